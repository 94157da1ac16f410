UPDATE session SET state = 'deleted' WHERE id = '@SESSION'
