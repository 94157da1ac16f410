REPLACE INTO idempotency VALUES ('runs', 'suites-t', 'u', 'suites-conflict', REPEAT('x', 32), '@RUN', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)
