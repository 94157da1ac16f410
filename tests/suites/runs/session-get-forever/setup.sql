UPDATE session SET expires_at = NULL WHERE id = '@SESSION'
