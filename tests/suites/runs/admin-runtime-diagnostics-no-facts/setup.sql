DELETE FROM runtime_fact WHERE node = 'suites'
