DELETE FROM session WHERE tenant = 'suites-t' AND id <> '@SESSION'
