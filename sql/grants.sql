-- grants.sql: one database user per program, least rights. Run by `cordonctl migrate`, or by hand after the migrations:
--   mariadb cordon < sql/grants.sql
-- The users are the system users of the programs and log in over the unix socket, so there is no password. Repeatable.
CREATE USER IF NOT EXISTS 'cordon-web'@'localhost' IDENTIFIED VIA unix_socket;
CREATE USER IF NOT EXISTS 'cordon-gate'@'localhost' IDENTIFIED VIA unix_socket;
CREATE USER IF NOT EXISTS 'cordon-run'@'localhost' IDENTIFIED VIA unix_socket;

GRANT SELECT ON schema_migration TO 'cordon-web'@'localhost';
GRANT SELECT, UPDATE ON tenant TO 'cordon-web'@'localhost';
GRANT SELECT ON api_key TO 'cordon-web'@'localhost';
GRANT SELECT ON runner TO 'cordon-web'@'localhost';
GRANT SELECT, INSERT, UPDATE, DELETE ON job TO 'cordon-web'@'localhost';
GRANT SELECT, INSERT, UPDATE ON run TO 'cordon-web'@'localhost';
GRANT SELECT ON artifact TO 'cordon-web'@'localhost';
GRANT SELECT ON artifact_usage TO 'cordon-web'@'localhost';
GRANT SELECT, INSERT, DELETE ON idempotency TO 'cordon-web'@'localhost';
GRANT SELECT ON run_trace TO 'cordon-web'@'localhost';

GRANT SELECT ON api_key TO 'cordon-gate'@'localhost';
GRANT SELECT ON artifact TO 'cordon-gate'@'localhost';
GRANT SELECT, DELETE ON runner TO 'cordon-gate'@'localhost';
GRANT SELECT, UPDATE, DELETE ON job TO 'cordon-gate'@'localhost';
GRANT SELECT, UPDATE ON run TO 'cordon-gate'@'localhost';
GRANT SELECT, DELETE ON idempotency TO 'cordon-gate'@'localhost';
GRANT SELECT, INSERT, UPDATE ON run_trace TO 'cordon-gate'@'localhost';

GRANT SELECT, INSERT, UPDATE, DELETE ON runner TO 'cordon-run'@'localhost';
GRANT SELECT, UPDATE ON tenant TO 'cordon-run'@'localhost';
GRANT SELECT, UPDATE, DELETE ON job TO 'cordon-run'@'localhost';
GRANT SELECT, UPDATE, DELETE ON run TO 'cordon-run'@'localhost';
GRANT SELECT, INSERT, DELETE ON artifact TO 'cordon-run'@'localhost';
GRANT SELECT, INSERT, UPDATE ON artifact_usage TO 'cordon-run'@'localhost';
GRANT SELECT, DELETE ON run_trace TO 'cordon-run'@'localhost';

GRANT SELECT, INSERT, UPDATE ON sandbox TO 'cordon-web'@'localhost';
GRANT SELECT, INSERT ON operation TO 'cordon-web'@'localhost';
GRANT SELECT, UPDATE ON sandbox TO 'cordon-gate'@'localhost';
GRANT SELECT, UPDATE ON operation TO 'cordon-gate'@'localhost';
GRANT SELECT, UPDATE, DELETE ON sandbox TO 'cordon-run'@'localhost';
GRANT SELECT, INSERT, UPDATE, DELETE ON operation TO 'cordon-run'@'localhost';
GRANT INSERT ON job TO 'cordon-run'@'localhost';

GRANT SELECT, INSERT, UPDATE ON session TO 'cordon-web'@'localhost';
GRANT SELECT, DELETE ON snapshot TO 'cordon-web'@'localhost';
GRANT SELECT, INSERT ON session_run TO 'cordon-web'@'localhost';
GRANT SELECT, UPDATE ON session TO 'cordon-gate'@'localhost';
GRANT SELECT, INSERT, UPDATE, DELETE ON session TO 'cordon-run'@'localhost';
GRANT SELECT, INSERT, UPDATE, DELETE ON snapshot TO 'cordon-run'@'localhost';
GRANT SELECT, DELETE ON session_run TO 'cordon-run'@'localhost';
GRANT SELECT ON runtime_fact TO 'cordon-web'@'localhost';
GRANT SELECT, INSERT, UPDATE ON runtime_fact TO 'cordon-run'@'localhost';

GRANT EXECUTE ON PROCEDURE run_accept TO 'cordon-web'@'localhost';
GRANT EXECUTE ON PROCEDURE run_claim TO 'cordon-run'@'localhost';
GRANT EXECUTE ON PROCEDURE run_end TO 'cordon-run'@'localhost';
