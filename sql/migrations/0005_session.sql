-- 0005 session: workspaces that several runs share, their snapshots, and the operations on them.
--
-- By hand: mariadb --default-character-set=utf8mb4 cordon < sql/migrations/0005_session.sql
SET NAMES utf8mb4;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO';

-- A session is a workspace and what its runs have unless they say otherwise. The image file of the workspace is made by its first
-- use. `operation_id` is the delete that is under way.
CREATE TABLE session (
  id                 VARBINARY(36) NOT NULL,
  tenant             VARBINARY(64) NOT NULL,
  user_id            VARBINARY(64) NOT NULL,
  key_id             VARBINARY(32) NOT NULL,
  node               VARBINARY(64) NOT NULL,
  request_id         VARBINARY(64) NOT NULL,
  state              VARBINARY(16) NOT NULL,
  name               VARBINARY(255) NULL,
  spec_version       VARBINARY(16) NOT NULL,
  runtime            VARBINARY(32) NOT NULL,
  base_image         VARBINARY(255) NULL,
  cpu_milli          INT UNSIGNED NOT NULL,
  memory_mb          INT UNSIGNED NOT NULL,
  timeout_sec        INT UNSIGNED NOT NULL,
  network_policy     VARBINARY(16) NOT NULL,
  trust_level        VARBINARY(16) NOT NULL,
  policy_hash        VARBINARY(64) NOT NULL,
  env                MEDIUMTEXT NOT NULL,
  labels             MEDIUMTEXT NOT NULL,
  persona_id         VARBINARY(255) NULL,
  workspace_id       VARBINARY(255) NULL,
  workspace_group_id VARBINARY(255) NULL,
  scope_snapshot_id  VARBINARY(255) NULL,
  workspace_bytes    BIGINT UNSIGNED NOT NULL,
  workspace_inodes   BIGINT UNSIGNED NOT NULL,
  operation_id       VARBINARY(36) NULL,
  created_at         DATETIME(6) NOT NULL,
  expires_at         DATETIME(6) NULL,
  deleted_at         DATETIME(6) NULL,
  PRIMARY KEY (id),
  KEY session_owner (tenant, user_id, id),
  KEY session_expiry (state, expires_at),
  KEY session_operation (operation_id),
  KEY session_deleted (deleted_at),
  CONSTRAINT session_state CHECK (state IN ('active', 'deleting', 'deleted'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- A copy of a session's workspace: the image file <session>.<id>.
CREATE TABLE snapshot (
  session_id VARBINARY(36) NOT NULL,
  id         VARBINARY(32) NOT NULL,
  size_bytes BIGINT UNSIGNED NOT NULL,
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (session_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- Which runs a session had: their artifacts go with it.
CREATE TABLE session_run (
  session_id VARBINARY(36) NOT NULL,
  run_id     VARBINARY(36) NOT NULL,
  PRIMARY KEY (session_id, run_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- How long a run took lately, and how many this runner has at one time: when a queued run will start is told from that.
ALTER TABLE runner
  ADD COLUMN run_us BIGINT UNSIGNED NOT NULL DEFAULT 0,
  ADD COLUMN places INT UNSIGNED NOT NULL DEFAULT 1;

-- A run that has not ended has a job: a session's active runs are counted here.
ALTER TABLE job
  ADD COLUMN session_id VARBINARY(36) NULL,
  ADD KEY job_session (session_id),
  DROP CONSTRAINT job_kind,
  ADD CONSTRAINT job_kind CHECK (kind IN ('run', 'exec', 'start', 'stop', 'delete', 'store_plan', 'store_cleanup', 'upload', 'snapshot', 'restore',
    'clone', 'snapshot_delete', 'session_delete'));

-- `sandbox_id` is the object that the operation changes: of these kinds a session. `result` is canonical JSON.
ALTER TABLE operation
  ADD COLUMN IF NOT EXISTS result MEDIUMTEXT NULL,
  DROP CONSTRAINT operation_kind,
  ADD CONSTRAINT operation_kind CHECK (kind IN ('start', 'stop', 'delete', 'store_plan', 'store_cleanup', 'upload', 'snapshot',
    'restore', 'clone', 'snapshot_delete', 'session_delete'));
