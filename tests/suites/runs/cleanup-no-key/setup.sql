DELETE FROM runner WHERE node = 'suites'
