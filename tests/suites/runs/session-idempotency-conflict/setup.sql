REPLACE INTO idempotency VALUES ('sessions', 'suites-t', 'u', 'suites-conflict', REPEAT('x', 32), '@SESSION', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)
