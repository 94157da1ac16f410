-- 0003 sandbox: boxes that live until they are stopped, and the operations on them.
--
-- By hand: mariadb --default-character-set=utf8mb4 cordon < sql/migrations/0003_sandbox.sql
SET NAMES utf8mb4;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO';

-- A sandbox and its wishes. `spec` is what starts its box, with every limit resolved; `request` is the face's own text.
CREATE TABLE sandbox (
  id               VARBINARY(36) NOT NULL,
  face             VARBINARY(16) NOT NULL,
  tenant           VARBINARY(64) NOT NULL,
  user_id          VARBINARY(64) NOT NULL,
  key_id           VARBINARY(32) NOT NULL,
  node             VARBINARY(64) NOT NULL,
  request_id       VARBINARY(64) NOT NULL,
  state            VARBINARY(16) NOT NULL,
  error            VARBINARY(255) NULL,
  persistent       TINYINT NOT NULL,
  lifetime_sec     INT UNSIGNED NOT NULL,
  spec             TEXT NOT NULL,
  request          MEDIUMTEXT NOT NULL,
  created_at       DATETIME(6) NOT NULL,
  started_at       DATETIME(6) NULL,
  stopped_at       DATETIME(6) NULL,
  expires_at       DATETIME(6) NULL,
  deleted_at       DATETIME(6) NULL,
  PRIMARY KEY (id),
  KEY sandbox_owner (tenant, user_id, id),
  KEY sandbox_node (node, state),
  KEY sandbox_expiry (state, expires_at),
  KEY sandbox_deleted (deleted_at),
  CONSTRAINT sandbox_state CHECK (state IN ('pending', 'provisioning', 'running', 'stopping', 'stopped', 'failed', 'deleting', 'deleted')),
  CONSTRAINT sandbox_face CHECK (face IN ('assess', 'fleet'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- start, stop and delete of a sandbox: something to wait for, like a run.
CREATE TABLE operation (
  id          VARBINARY(36) NOT NULL,
  kind        VARBINARY(16) NOT NULL,
  sandbox_id  VARBINARY(36) NOT NULL,
  tenant      VARBINARY(64) NOT NULL,
  user_id     VARBINARY(64) NOT NULL,
  node        VARBINARY(64) NOT NULL,
  request_id  VARBINARY(64) NOT NULL,
  state       VARBINARY(16) NOT NULL,
  error       VARBINARY(255) NULL,
  created_at  DATETIME(6) NOT NULL,
  started_at  DATETIME(6) NULL,
  finished_at DATETIME(6) NULL,
  PRIMARY KEY (id),
  KEY operation_sandbox (sandbox_id, id),
  KEY operation_finished (finished_at),
  CONSTRAINT operation_kind CHECK (kind IN ('start', 'stop', 'delete')),
  CONSTRAINT operation_state CHECK (state IN ('accepted', 'running', 'succeeded', 'failed'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

ALTER TABLE job
  DROP CONSTRAINT job_kind,
  ADD CONSTRAINT job_kind CHECK (kind IN ('run', 'exec', 'start', 'stop', 'delete'));

-- A command in a sandbox is a run; `result` is its output as far as its answer holds it, canonical JSON.
ALTER TABLE run
  ADD COLUMN sandbox_id VARBINARY(36) NULL,
  ADD COLUMN result MEDIUMTEXT NULL,
  ADD KEY run_sandbox (sandbox_id, id);
