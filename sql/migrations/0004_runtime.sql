-- 0004 runtime: what execution hosts found out about themselves, results of operations, the lists of administrators.
--
-- By hand: mariadb --default-character-set=utf8mb4 cordon < sql/migrations/0004_runtime.sql
SET NAMES utf8mb4;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO';

-- One row per runtime of face 1 and host, written by the host's runner every 30 s; the row `image_store` is what its last look at
-- the stores found. `reasons` is a JSON array of texts, `host` a JSON object.
CREATE TABLE runtime_fact (
  node       VARBINARY(64) NOT NULL,
  runtime    VARBINARY(32) NOT NULL,
  available  TINYINT NOT NULL,
  reasons    TEXT NOT NULL,
  host       MEDIUMTEXT NOT NULL,
  checked_at DATETIME(6) NOT NULL,
  PRIMARY KEY (node, runtime)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- store_plan and store_cleanup are of a host, not of a sandbox: sandbox_id is empty. `result` is JSON for the face that asked.
ALTER TABLE operation
  ADD COLUMN result MEDIUMTEXT NULL,
  DROP CONSTRAINT operation_kind,
  ADD CONSTRAINT operation_kind CHECK (kind IN ('start', 'stop', 'delete', 'store_plan', 'store_cleanup'));

ALTER TABLE job
  DROP CONSTRAINT job_kind,
  ADD CONSTRAINT job_kind CHECK (kind IN ('run', 'exec', 'start', 'stop', 'delete', 'store_plan', 'store_cleanup'));

-- The order of the administrators' list; the tenant is in it, so that other tenants' rows are passed over in the index.
ALTER TABLE run ADD KEY run_started (started_at, id, tenant);
