UPDATE session SET base_image = NULL WHERE id = '@SESSION'
