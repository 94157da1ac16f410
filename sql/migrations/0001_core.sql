-- 0001 core: keys, runners, runs, the job table, artifacts, idempotency.
--
-- By hand: mariadb --default-character-set=utf8mb4 cordon < sql/migrations/0001_core.sql
-- Rules (docs/job-table.md): text of people is utf8mb4_nopad_bin; ids, keys, tokens, names and everything in a UNIQUE key is
-- VARBINARY; times are DATETIME(6) in UTC; no column has the JSON type.
SET NAMES utf8mb4;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO';

CREATE TABLE schema_migration (
  version    INT UNSIGNED NOT NULL,
  name       VARBINARY(128) NOT NULL,
  applied_at DATETIME(6) NOT NULL,
  PRIMARY KEY (version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- One row per tenant. Admission locks it, so that limits are judged exactly.
CREATE TABLE tenant (
  id         VARBINARY(64) NOT NULL,
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- API keys: ck_<id>_<secret>; only the SHA-256 of the secret is kept.
CREATE TABLE api_key (
  id          VARBINARY(32) NOT NULL,
  secret_hash BINARY(32) NOT NULL,
  tenant      VARBINARY(64) NOT NULL,
  user_id     VARBINARY(64) NOT NULL,
  role        VARBINARY(16) NOT NULL,
  scopes      VARBINARY(1024) NOT NULL,
  created_at  DATETIME(6) NOT NULL,
  revoked_at  DATETIME(6) NULL,
  PRIMARY KEY (id),
  CONSTRAINT api_key_role CHECK (role IN ('user', 'admin', 'operator'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- One row per living runner process; `beat` moves every few seconds.
CREATE TABLE runner (
  instance   VARBINARY(36) NOT NULL,
  node       VARBINARY(64) NOT NULL,
  beat       BIGINT UNSIGNED NOT NULL,
  boot_id    BINARY(16) NOT NULL, -- of the host: boxes do not outlive a boot
  started_at DATETIME(6) NOT NULL,
  beat_at    DATETIME(6) NOT NULL,
  PRIMARY KEY (instance),
  KEY runner_node (node)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- The only hand-over of work. A row lives until its object is terminal. The index job_claim is the claim's own order.
CREATE TABLE job (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  kind        VARBINARY(16) NOT NULL,
  object_kind VARBINARY(16) NOT NULL,
  object_id   VARBINARY(36) NOT NULL,
  tenant      VARBINARY(64) NOT NULL,
  user_id     VARBINARY(64) NOT NULL,
  node        VARBINARY(64) NOT NULL,
  rank        INT NOT NULL DEFAULT 0,
  state       VARBINARY(16) NOT NULL,
  claim_owner VARBINARY(36) NULL,
  claim_token BINARY(16) NULL,
  claimed_at  DATETIME(6) NULL,
  attempt     INT UNSIGNED NOT NULL DEFAULT 0,
  spec        MEDIUMTEXT NOT NULL,
  request_id  VARBINARY(64) NOT NULL,
  created_at  DATETIME(6) NOT NULL,
  expires_at  DATETIME(6) NULL,
  PRIMARY KEY (id),
  KEY job_claim (node, state, rank, id),
  KEY job_owner (claim_owner),
  KEY job_expiry (state, expires_at),
  CONSTRAINT job_state CHECK (state IN ('queued', 'delayed', 'parked', 'claimed')),
  CONSTRAINT job_kind CHECK (kind IN ('run')),
  CONSTRAINT job_object_kind CHECK (object_kind IN ('run', 'operation'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

CREATE TABLE run (
  id                  VARBINARY(36) NOT NULL,
  face                VARBINARY(16) NOT NULL,
  tenant              VARBINARY(64) NOT NULL,
  user_id             VARBINARY(64) NOT NULL,
  key_id              VARBINARY(32) NOT NULL,
  node                VARBINARY(64) NOT NULL,
  job_id              BIGINT UNSIGNED NOT NULL,
  request_id          VARBINARY(64) NOT NULL,
  session_id          VARBINARY(36) NULL,
  spec_version        VARBINARY(16) NOT NULL,
  runtime             VARBINARY(32) NOT NULL,
  runtime_version     VARBINARY(64) NULL,
  base_image          VARBINARY(255) NULL,
  image_digest        VARBINARY(80) NULL,
  policy_hash         VARBINARY(64) NOT NULL,
  trust_level         VARBINARY(16) NOT NULL,
  network_policy      VARBINARY(16) NOT NULL,
  interactive         TINYINT NOT NULL DEFAULT 0,
  resume_from_seq     BIGINT NULL,
  persona_id          VARBINARY(255) NULL,
  workspace_id        VARBINARY(255) NULL,
  workspace_group_id  VARBINARY(255) NULL,
  scope_snapshot_id   VARBINARY(255) NULL,
  phase               VARBINARY(16) NOT NULL,
  outcome             VARBINARY(16) NULL,
  message             VARBINARY(255) NULL,
  exit_code           INT NULL,
  last_seq            BIGINT UNSIGNED NULL,
  resource_usage      TEXT NULL,
  log_bytes           BIGINT UNSIGNED NOT NULL DEFAULT 0,
  artifact_bytes      BIGINT UNSIGNED NOT NULL DEFAULT 0,
  cancel_requested_at DATETIME(6) NULL,
  created_at          DATETIME(6) NOT NULL,
  estimated_start_at  DATETIME(6) NULL,
  started_at          DATETIME(6) NULL,
  finished_at         DATETIME(6) NULL,
  PRIMARY KEY (id),
  KEY run_owner (tenant, user_id, id),
  KEY run_finished (finished_at),
  CONSTRAINT run_phase CHECK (phase IN ('queued', 'starting', 'running', 'completed', 'failed', 'killed', 'timed_out')),
  CONSTRAINT run_outcome CHECK (outcome IS NULL OR outcome IN ('finished', 'failed')),
  CONSTRAINT run_face CHECK (face IN ('runs', 'assess', 'fleet'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- The bytes are at <data>/artifacts/<last 2 hex of run>/<run>/<ordinal>; the name is data, never a path on the host.
CREATE TABLE artifact (
  run_id     VARBINARY(36) NOT NULL,
  ordinal    INT UNSIGNED NOT NULL,
  path       VARBINARY(4096) NOT NULL,
  path_hash  BINARY(32) NOT NULL,
  size_bytes BIGINT UNSIGNED NOT NULL,
  mtime_sec  BIGINT NOT NULL, -- of the file: half of the web server's ETag
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (run_id, ordinal),
  UNIQUE KEY artifact_path (run_id, path_hash)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

-- Artifact bytes per user, for the user cap.
CREATE TABLE artifact_usage (
  tenant     VARBINARY(64) NOT NULL,
  user_id    VARBINARY(64) NOT NULL,
  size_bytes BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (tenant, user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;

CREATE TABLE idempotency (
  endpoint    VARBINARY(16) NOT NULL,
  tenant      VARBINARY(64) NOT NULL,
  user_id     VARBINARY(64) NOT NULL,
  idem_key    VARBINARY(255) NOT NULL,
  fingerprint BINARY(32) NOT NULL,
  object_id   VARBINARY(36) NOT NULL,
  created_at  DATETIME(6) NOT NULL,
  expires_at  DATETIME(6) NOT NULL,
  PRIMARY KEY (endpoint, tenant, user_id, idem_key),
  KEY idempotency_expiry (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
