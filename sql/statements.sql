-- statements.sql: every statement of every program, by name. sql/generate.sh turns this into an enum and a table; a connection
-- prepares each one at its first use. `make check-sql` prepares them all against a fresh schema.
-- Form: a line "-- name: NAME", then one statement up to the semicolon. Question marks are the parameters, in order.

-- name: SESSION_SETUP
SET SESSION tx_isolation = 'READ-COMMITTED', time_zone = '+00:00', innodb_lock_wait_timeout = 5, lock_wait_timeout = 30,
  sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO';

-- name: BEGIN
START TRANSACTION;

-- name: PING
SELECT 1;

-- name: KEY_FIND
SELECT secret_hash, tenant, user_id, role, scopes, revoked_at IS NOT NULL FROM api_key WHERE id = ?;

-- The key and the run that the request is about, in one round trip; columns 6 and up are those of RUN_GET.

-- name: KEY_FIND_RUN
SELECT secret_hash, api_key.tenant, api_key.user_id, role, scopes, revoked_at IS NOT NULL, run.id, run.tenant, run.user_id, node, job_id,
  session_id, spec_version, runtime, runtime_version, base_image, image_digest, policy_hash, trust_level, interactive, resume_from_seq,
  persona_id, workspace_id, workspace_group_id, scope_snapshot_id, phase, outcome, message, exit_code, last_seq, resource_usage,
  cancel_requested_at, run.created_at, estimated_start_at, started_at, finished_at, request_id
FROM api_key LEFT JOIN run ON run.id = ? WHERE api_key.id = ?;

-- name: KEY_REVOKED
SELECT 1 FROM api_key WHERE id = ? AND revoked_at IS NULL;

-- name: KEY_INSERT
INSERT INTO api_key (id, secret_hash, tenant, user_id, role, scopes, created_at) VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));

-- name: KEY_LIST
SELECT id, tenant, user_id, role, scopes, created_at, revoked_at FROM api_key ORDER BY created_at, id LIMIT 10000;

-- name: KEY_REVOKE
UPDATE api_key SET revoked_at = UTC_TIMESTAMP(6) WHERE id = ? AND revoked_at IS NULL;

-- name: TENANT_ENSURE
INSERT IGNORE INTO tenant (id, created_at) VALUES (?, UTC_TIMESTAMP(6));

-- name: TENANT_FIND
SELECT id FROM tenant WHERE id = ?;

-- name: TENANT_LOCK
SELECT id FROM tenant WHERE id = ? FOR UPDATE;

-- The lock, how many jobs wait (a count without locks), and in how many microseconds one of them ends on this node.

-- name: TENANT_LOCK_COUNT
SELECT id, (SELECT COUNT(*) FROM (SELECT 1 FROM job WHERE node = ? AND state IN ('queued', 'parked') LIMIT ?) AS waiting),
  (SELECT MAX(run_us DIV places) FROM runner WHERE node = ?) FROM tenant WHERE id = ? FOR UPDATE;

-- name: IDEM_FIND
SELECT fingerprint, object_id, created_at, expires_at <= UTC_TIMESTAMP(6) FROM idempotency
WHERE endpoint = ? AND tenant = ? AND user_id = ? AND idem_key = ?;

-- name: IDEM_DELETE
DELETE FROM idempotency WHERE endpoint = ? AND tenant = ? AND user_id = ? AND idem_key = ?;

-- name: IDEM_INSERT
INSERT INTO idempotency (endpoint, tenant, user_id, idem_key, fingerprint, object_id, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? SECOND);

-- name: IDEM_EXPIRED
SELECT endpoint, tenant, user_id, idem_key FROM idempotency WHERE expires_at <= UTC_TIMESTAMP(6)
ORDER BY expires_at LIMIT 200 FOR UPDATE SKIP LOCKED;

-- name: QUEUE_COUNT_USER
SELECT COUNT(*) FROM job WHERE node = ? AND state IN ('queued', 'parked') AND tenant = ? AND user_id = ?;

-- name: QUEUE_COUNT_PERSONA
SELECT COUNT(*) FROM job JOIN run ON run.id = job.object_id WHERE job.node = ? AND job.state IN ('queued', 'parked') AND job.tenant = ?
  AND job.user_id = ? AND run.persona_id = ?;

-- name: QUEUE_COUNT_WORKSPACE
SELECT COUNT(*) FROM job JOIN run ON run.id = job.object_id WHERE job.node = ? AND job.state IN ('queued', 'parked') AND job.tenant = ?
  AND job.user_id = ? AND run.workspace_id = ?;

-- name: QUEUE_COUNT_GROUP
SELECT COUNT(*) FROM job JOIN run ON run.id = job.object_id WHERE job.node = ? AND job.state IN ('queued', 'parked') AND job.tenant = ?
  AND job.user_id = ? AND run.workspace_group_id = ?;

-- Runs that are started or may start: limits of active runs.

-- name: ACTIVE_COUNT_USER
SELECT COUNT(*) FROM job WHERE node = ? AND state IN ('queued', 'claimed') AND kind = 'run' AND tenant = ? AND user_id = ?;

-- name: ACTIVE_COUNT_PERSONA
SELECT COUNT(*) FROM job JOIN run ON run.id = job.object_id WHERE job.node = ? AND job.state IN ('queued', 'claimed') AND job.kind = 'run' AND job.tenant = ?
  AND job.user_id = ? AND run.persona_id = ?;

-- name: ACTIVE_COUNT_WORKSPACE
SELECT COUNT(*) FROM job JOIN run ON run.id = job.object_id WHERE job.node = ? AND job.state IN ('queued', 'claimed') AND job.kind = 'run' AND job.tenant = ?
  AND job.user_id = ? AND run.workspace_id = ?;

-- name: ACTIVE_COUNT_GROUP
SELECT COUNT(*) FROM job JOIN run ON run.id = job.object_id WHERE job.node = ? AND job.state IN ('queued', 'claimed') AND job.kind = 'run' AND job.tenant = ?
  AND job.user_id = ? AND run.workspace_group_id = ?;

-- name: PARKED_LIST
SELECT job.id, job.tenant, job.user_id, run.persona_id, run.workspace_id, run.workspace_group_id FROM job FORCE INDEX (job_claim)
JOIN run ON run.id = job.object_id WHERE job.node = ? AND job.state = 'parked' ORDER BY job.rank, job.id LIMIT ?;

-- name: JOB_PARK
UPDATE job SET state = 'parked' WHERE id = ? AND state = 'queued';

-- name: JOB_UNPARK
UPDATE job SET state = 'queued' WHERE id = ? AND state = 'parked';

-- name: RUN_JOB_EXISTS
SELECT 1 FROM run JOIN job ON job.id = run.job_id WHERE run.id = ?;

-- name: JOB_INSERT
INSERT INTO job (kind, object_kind, object_id, tenant, user_id, node, rank, state, spec, request_id, created_at, expires_at)
VALUES ('run', 'run', ?, ?, ?, ?, 0, 'queued', ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? SECOND);

-- name: JOB_INSERT_EXEC
INSERT INTO job (kind, object_kind, object_id, tenant, user_id, node, rank, state, spec, request_id, created_at, expires_at)
VALUES ('exec', 'run', ?, ?, ?, ?, -1, 'queued', ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? SECOND);

-- name: JOB_INSERT_OPERATION
INSERT INTO job (kind, object_kind, object_id, tenant, user_id, node, rank, state, spec, request_id, created_at, expires_at)
VALUES (?, 'operation', ?, ?, ?, ?, -1, 'queued', ?, ?, UTC_TIMESTAMP(6), NULL);

-- name: RUN_INSERT
INSERT INTO run (id, face, tenant, user_id, key_id, node, job_id, request_id, session_id, spec_version, runtime, runtime_version,
  base_image, image_digest, policy_hash, trust_level, network_policy, interactive, resume_from_seq, persona_id, workspace_id,
  workspace_group_id, scope_snapshot_id, trace, sandbox_id, phase, created_at, estimated_start_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', UTC_TIMESTAMP(6),
  UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND);

-- name: RUN_GET
SELECT id, tenant, user_id, node, job_id, session_id, spec_version, runtime, runtime_version, base_image, image_digest, policy_hash,
  trust_level, interactive, resume_from_seq, persona_id, workspace_id, workspace_group_id, scope_snapshot_id, phase, outcome, message,
  exit_code, last_seq, resource_usage, cancel_requested_at, created_at, estimated_start_at, started_at, finished_at, request_id
FROM run WHERE id = ?;

-- name: RUN_GET_LOCKED
SELECT phase, job_id, cancel_requested_at FROM run WHERE id = ? FOR UPDATE;

-- name: RUN_JOB
SELECT job_id FROM run WHERE id = ?;

-- name: RUN_LIST
SELECT id, tenant, user_id, node, job_id, session_id, spec_version, runtime, runtime_version, base_image, image_digest, policy_hash,
  trust_level, interactive, resume_from_seq, persona_id, workspace_id, workspace_group_id, scope_snapshot_id, phase, outcome, message,
  exit_code, last_seq, resource_usage, cancel_requested_at, created_at, estimated_start_at, started_at, finished_at, request_id
FROM run WHERE tenant = ? AND user_id = ? AND id < ? AND face = 'runs' ORDER BY id DESC LIMIT ?;

-- name: RUN_LIST_PHASE
SELECT id, tenant, user_id, node, job_id, session_id, spec_version, runtime, runtime_version, base_image, image_digest, policy_hash,
  trust_level, interactive, resume_from_seq, persona_id, workspace_id, workspace_group_id, scope_snapshot_id, phase, outcome, message,
  exit_code, last_seq, resource_usage, cancel_requested_at, created_at, estimated_start_at, started_at, finished_at, request_id
FROM run WHERE tenant = ? AND user_id = ? AND id < ? AND face = 'runs' AND phase = ? ORDER BY id DESC LIMIT ?;

-- name: RUN_WATCH
SELECT id, phase, last_seq, exit_code, message FROM run
WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: RUN_CANCEL_WISH
UPDATE run SET cancel_requested_at = UTC_TIMESTAMP(6) WHERE id = ? AND cancel_requested_at IS NULL;

-- name: RUN_CANCEL_WISHES
SELECT run.id FROM job JOIN run ON run.id = job.object_id
WHERE job.claim_owner = ? AND run.cancel_requested_at IS NOT NULL AND run.finished_at IS NULL;

-- name: RUN_END_QUEUED
UPDATE run SET phase = ?, outcome = ?, message = ?, last_seq = 0, finished_at = UTC_TIMESTAMP(6) WHERE id = ? AND phase = 'queued';

-- name: RUN_BACK_TO_QUEUE
UPDATE run SET phase = 'queued', started_at = NULL WHERE id = ? AND phase = 'starting';

-- name: RUN_RUNNING
UPDATE run SET phase = 'running' WHERE id = ? AND phase = 'starting';

-- name: RUN_END
UPDATE run SET phase = ?, outcome = ?, message = ?, exit_code = ?, last_seq = ?, resource_usage = ?, log_bytes = ?, artifact_bytes = ?,
  trace = LEFT(CONCAT(COALESCE(trace, ''), ?), 768), finished_at = UTC_TIMESTAMP(6) WHERE id = ? AND phase IN ('starting', 'running');

-- name: RUN_EXPIRED_ROWS
SELECT id FROM run WHERE finished_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND ORDER BY finished_at LIMIT ? FOR UPDATE SKIP LOCKED;

-- name: RUN_DELETE
DELETE FROM run WHERE id = ?;

-- name: RUN_TRACE
SELECT run.trace, run_trace.points FROM run LEFT JOIN run_trace ON run_trace.run_id = run.id WHERE run.id = ?;

-- A batch of 16; what is not used is the first id again with an empty text.

-- name: RUN_TRACE_ADD
INSERT INTO run_trace (run_id, points)
VALUES (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?)
ON DUPLICATE KEY UPDATE points = LEFT(CONCAT(points, VALUES(points)), 768);

-- name: RUN_TRACE_DELETE
DELETE FROM run_trace WHERE run_id = ?;

-- name: RUN_EXISTS
SELECT 1 FROM run WHERE id = ?;

-- name: RUN_ENDED
SELECT finished_at IS NOT NULL FROM run WHERE id = ?;

-- name: JOB_GET_LOCKED
SELECT state FROM job WHERE id = ? FOR UPDATE;

-- The order leaves out the columns that WHERE fixes: with VARBINARY columns in it MariaDB sorts, and then locks every queued row.

-- name: JOB_CLAIM_NEXT
SELECT id, object_id, tenant, user_id, attempt, spec, request_id, kind, (SELECT size_bytes FROM artifact_usage
  WHERE artifact_usage.tenant = job.tenant AND artifact_usage.user_id = job.user_id) FROM job FORCE INDEX (job_claim)
WHERE node = ? AND state = 'queued' ORDER BY rank, id LIMIT ? FOR UPDATE SKIP LOCKED;

-- What needs no place of its own: commands in sandboxes, and the operations on them.

-- name: JOB_CLAIM_FIRST
SELECT id, object_id, tenant, user_id, attempt, spec, request_id, kind, 0 FROM job FORCE INDEX (job_claim)
WHERE node = ? AND state = 'queued' AND rank < 0 ORDER BY rank, id LIMIT ? FOR UPDATE SKIP LOCKED;

-- The same without locks: most often there is one job or none, and one statement can claim that.

-- name: JOB_LOOK
SELECT id, object_id, tenant, user_id, attempt, spec, request_id, kind, (SELECT size_bytes FROM artifact_usage
  WHERE artifact_usage.tenant = job.tenant AND artifact_usage.user_id = job.user_id) FROM job FORCE INDEX (job_claim)
WHERE node = ? AND state = 'queued' ORDER BY rank, id LIMIT ?;

-- name: JOB_LOOK_FIRST
SELECT id, object_id, tenant, user_id, attempt, spec, request_id, kind, 0 FROM job FORCE INDEX (job_claim)
WHERE node = ? AND state = 'queued' AND rank < 0 ORDER BY rank, id LIMIT ?;

-- Calls of sql/procedures.sql.

-- name: RUN_ACCEPT
CALL run_accept(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: RUN_CLAIM
CALL run_claim(?, ?, ?, ?);

-- name: RUN_END_ALL
CALL run_end(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: RUN_STARTING
UPDATE run SET phase = 'starting', started_at = UTC_TIMESTAMP(6) WHERE id = ? AND phase = 'queued';


-- name: JOB_CLAIM
UPDATE job SET state = 'claimed', claim_owner = ?, claim_token = ?, claimed_at = UTC_TIMESTAMP(6), attempt = attempt + 1 WHERE id = ?;

-- name: JOB_HELD
SELECT 1 FROM job WHERE id = ? AND claim_token = ? FOR UPDATE;

-- name: JOB_RELEASE
UPDATE job SET state = 'queued', claim_owner = NULL, claim_token = NULL, claimed_at = NULL WHERE id = ? AND claim_token = ?;

-- name: JOB_DELETE
DELETE FROM job WHERE id = ?;

-- name: JOB_EXPIRED
SELECT id, object_id FROM job FORCE INDEX (job_expiry) WHERE state = ? AND expires_at <= UTC_TIMESTAMP(6)
ORDER BY expires_at LIMIT 100;

-- name: JOB_EXPIRED_LOCK
SELECT 1 FROM job WHERE id = ? AND state IN ('queued', 'parked') AND expires_at <= UTC_TIMESTAMP(6) FOR UPDATE SKIP LOCKED;

-- name: JOB_OF_OWNER
SELECT id, object_id FROM job WHERE claim_owner = ? ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED;

-- name: JOB_TAKE_OVER
SELECT id, object_id, tenant, user_id, attempt, spec, request_id, kind FROM job WHERE claim_owner = ?
ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED;

-- name: JOB_QUEUED_EXISTS
SELECT 1 FROM job WHERE node = ? AND state = 'queued' LIMIT 1;

-- name: RUNNER_INSERT
INSERT INTO runner (instance, node, beat, boot_id, places, started_at, beat_at) VALUES (?, ?, 0, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6));

-- name: RUNNER_BEAT
UPDATE runner SET beat = beat + 1, beat_at = UTC_TIMESTAMP(6), run_us = ? WHERE instance = ?;

-- name: RUNNER_LIST
SELECT instance, node, beat, boot_id FROM runner ORDER BY instance LIMIT 1000;

-- name: RUNNER_DELETE
DELETE FROM runner WHERE instance = ?;

-- name: OWNERS_WITHOUT_RUNNER
SELECT DISTINCT job.claim_owner FROM job LEFT JOIN runner ON runner.instance = job.claim_owner
WHERE job.claim_owner IS NOT NULL AND runner.instance IS NULL LIMIT 100;

-- name: ARTIFACT_INSERT
INSERT INTO artifact (run_id, ordinal, path, path_hash, size_bytes, mtime_sec, created_at)
VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));

-- name: ARTIFACT_LIST
SELECT ordinal, path, size_bytes, mtime_sec FROM artifact WHERE run_id = ? ORDER BY path;

-- name: ARTIFACT_FIND
SELECT ordinal, path, size_bytes, mtime_sec FROM artifact WHERE run_id = ? AND path_hash = ?;

-- name: ARTIFACT_SUM
SELECT COALESCE(SUM(size_bytes), 0) FROM artifact WHERE run_id = ?;

-- name: ARTIFACT_DELETE
DELETE FROM artifact WHERE run_id = ?;

-- name: ARTIFACT_EXPIRED
SELECT id, tenant, user_id, artifact_bytes FROM run WHERE finished_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND
  AND (artifact_bytes > 0 OR log_bytes > 0) ORDER BY finished_at LIMIT ? FOR UPDATE SKIP LOCKED;

-- name: RUN_FILES_GONE
UPDATE run SET artifact_bytes = 0, log_bytes = 0 WHERE id = ?;

-- name: USAGE_ADD
INSERT INTO artifact_usage (tenant, user_id, size_bytes) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE size_bytes = size_bytes + VALUES(size_bytes);

-- name: USAGE_SUBTRACT
UPDATE artifact_usage SET size_bytes = IF(size_bytes > ?, size_bytes - ?, 0) WHERE tenant = ? AND user_id = ?;

-- name: SCHEMA_VERSION
SELECT COALESCE(MAX(version), 0) FROM schema_migration;

-- name: SCHEMA_APPLIED
INSERT INTO schema_migration (version, name, applied_at) VALUES (?, ?, UTC_TIMESTAMP(6));

-- name: MIGRATE_LOCK
SELECT GET_LOCK('cordon_migrate', 30);

-- name: MIGRATE_UNLOCK
SELECT RELEASE_LOCK('cordon_migrate');

-- name: SCHEMA_PRESENT
SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'schema_migration';

-- What hosts found out about themselves. A fact that is two minutes old is none: its runner is away.

-- name: FACT_LIST
SELECT runtime, available, reasons, host, checked_at > UTC_TIMESTAMP(6) - INTERVAL 120 SECOND FROM runtime_fact
WHERE node = ? AND runtime <> 'image_store';

-- name: FACT_STORE
SELECT host FROM runtime_fact WHERE node = ? AND runtime = 'image_store' AND checked_at > UTC_TIMESTAMP(6) - INTERVAL 1200 SECOND;

-- name: FACT_PUT
INSERT INTO runtime_fact (node, runtime, available, reasons, host, checked_at) VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE available = VALUES(available), reasons = VALUES(reasons), host = VALUES(host), checked_at = UTC_TIMESTAMP(6);

-- Operations on a host's stores.

-- name: OPERATION_STORE
SELECT kind, tenant, user_id, node, state, error, result FROM operation WHERE id = ?;

-- name: JOB_OF_OBJECT
SELECT 1 FROM job WHERE object_id = ? LIMIT 1;

-- name: RUNNER_LIVES
SELECT 1 FROM runner WHERE node = ? AND beat_at > UTC_TIMESTAMP(6) - INTERVAL ? SECOND LIMIT 1;

-- name: STORE_MODE
SELECT variable_value FROM information_schema.global_variables WHERE variable_name = 'WSREP_ON';

-- Lists of administrators. Each filter that is not given is NULL; counting ends at a limit.

-- name: ADMIN_RUN_LIST_ASC
SELECT id, tenant, user_id, node, job_id, session_id, spec_version, runtime, runtime_version, base_image, image_digest, policy_hash,
  trust_level, interactive, resume_from_seq, persona_id, workspace_id, workspace_group_id, scope_snapshot_id, phase, outcome, message,
  exit_code, last_seq, resource_usage, cancel_requested_at, created_at, estimated_start_at, started_at, finished_at, request_id
FROM run FORCE INDEX (run_started)
WHERE face = 'runs' AND (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?) AND (? IS NULL OR image_digest = ?)
  AND (? IS NULL OR workspace_id = ?) AND (? IS NULL OR workspace_group_id = ?) AND (? IS NULL OR scope_snapshot_id = ?)
  AND (? IS NULL OR phase = ?) AND (? IS NULL OR started_at >= ?) AND (? IS NULL OR started_at <= ?)
ORDER BY started_at ASC, id ASC LIMIT ? OFFSET ?;

-- name: ADMIN_RUN_LIST_DESC
SELECT id, tenant, user_id, node, job_id, session_id, spec_version, runtime, runtime_version, base_image, image_digest, policy_hash,
  trust_level, interactive, resume_from_seq, persona_id, workspace_id, workspace_group_id, scope_snapshot_id, phase, outcome, message,
  exit_code, last_seq, resource_usage, cancel_requested_at, created_at, estimated_start_at, started_at, finished_at, request_id
FROM run FORCE INDEX (run_started)
WHERE face = 'runs' AND (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?) AND (? IS NULL OR image_digest = ?)
  AND (? IS NULL OR workspace_id = ?) AND (? IS NULL OR workspace_group_id = ?) AND (? IS NULL OR scope_snapshot_id = ?)
  AND (? IS NULL OR phase = ?) AND (? IS NULL OR started_at >= ?) AND (? IS NULL OR started_at <= ?)
ORDER BY started_at DESC, id DESC LIMIT ? OFFSET ?;

-- name: ADMIN_RUN_COUNT
SELECT COUNT(*) FROM (SELECT 1 FROM run
WHERE face = 'runs' AND (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?) AND (? IS NULL OR image_digest = ?)
  AND (? IS NULL OR workspace_id = ?) AND (? IS NULL OR workspace_group_id = ?) AND (? IS NULL OR scope_snapshot_id = ?)
  AND (? IS NULL OR phase = ?) AND (? IS NULL OR started_at >= ?) AND (? IS NULL OR started_at <= ?)
LIMIT ?) AS found;

-- The keys live equally long, so the order of their ends, which has an index, is that of their ages. Among equal ones it is the index's own:
-- to name columns that WHERE may fix would make MariaDB sort.

-- name: ADMIN_IDEM_LIST_ASC
SELECT endpoint, user_id, idem_key, LOWER(HEX(fingerprint)), object_id, created_at
FROM idempotency FORCE INDEX (idempotency_expiry)
WHERE expires_at > UTC_TIMESTAMP(6) AND endpoint IN ('runs', 'sessions') AND (? IS NULL OR tenant = ?) AND (? IS NULL OR endpoint = ?)
  AND (? IS NULL OR user_id = ?) AND (? IS NULL OR idem_key = ?) AND (? IS NULL OR created_at >= ?) AND (? IS NULL OR created_at <= ?)
ORDER BY expires_at ASC LIMIT ? OFFSET ?;

-- name: ADMIN_IDEM_LIST_DESC
SELECT endpoint, user_id, idem_key, LOWER(HEX(fingerprint)), object_id, created_at
FROM idempotency FORCE INDEX (idempotency_expiry)
WHERE expires_at > UTC_TIMESTAMP(6) AND endpoint IN ('runs', 'sessions') AND (? IS NULL OR tenant = ?) AND (? IS NULL OR endpoint = ?)
  AND (? IS NULL OR user_id = ?) AND (? IS NULL OR idem_key = ?) AND (? IS NULL OR created_at >= ?) AND (? IS NULL OR created_at <= ?)
ORDER BY expires_at DESC LIMIT ? OFFSET ?;

-- name: ADMIN_IDEM_COUNT
SELECT COUNT(*) FROM (SELECT 1 FROM idempotency
WHERE expires_at > UTC_TIMESTAMP(6) AND endpoint IN ('runs', 'sessions') AND (? IS NULL OR tenant = ?) AND (? IS NULL OR endpoint = ?)
  AND (? IS NULL OR user_id = ?) AND (? IS NULL OR idem_key = ?) AND (? IS NULL OR created_at >= ?) AND (? IS NULL OR created_at <= ?)
LIMIT ?) AS found;

-- name: ADMIN_USAGE_LIST_ASC
SELECT owner.user_id, (SELECT COUNT(*) FROM run WHERE run.tenant = owner.tenant AND run.user_id = owner.user_id AND face = 'runs'),
  (SELECT COALESCE(SUM(CAST(JSON_VALUE(resource_usage, '$.log_bytes') AS UNSIGNED)), 0) FROM run
    WHERE run.tenant = owner.tenant AND run.user_id = owner.user_id AND face = 'runs'), COALESCE(size_bytes, 0)
FROM (SELECT tenant, user_id FROM run WHERE (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?) AND face = 'runs'
  UNION SELECT tenant, user_id FROM artifact_usage WHERE (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?)) AS owner
LEFT JOIN artifact_usage ON artifact_usage.tenant = owner.tenant AND artifact_usage.user_id = owner.user_id
ORDER BY owner.user_id ASC, owner.tenant ASC LIMIT ? OFFSET ?;

-- name: ADMIN_USAGE_LIST_DESC
SELECT owner.user_id, (SELECT COUNT(*) FROM run WHERE run.tenant = owner.tenant AND run.user_id = owner.user_id AND face = 'runs'),
  (SELECT COALESCE(SUM(CAST(JSON_VALUE(resource_usage, '$.log_bytes') AS UNSIGNED)), 0) FROM run
    WHERE run.tenant = owner.tenant AND run.user_id = owner.user_id AND face = 'runs'), COALESCE(size_bytes, 0)
FROM (SELECT tenant, user_id FROM run WHERE (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?) AND face = 'runs'
  UNION SELECT tenant, user_id FROM artifact_usage WHERE (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?)) AS owner
LEFT JOIN artifact_usage ON artifact_usage.tenant = owner.tenant AND artifact_usage.user_id = owner.user_id
ORDER BY owner.user_id DESC, owner.tenant DESC LIMIT ? OFFSET ?;

-- name: ADMIN_USAGE_COUNT
SELECT COUNT(*) FROM (SELECT 1 FROM (SELECT tenant, user_id FROM run WHERE (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?) AND face = 'runs'
  UNION SELECT tenant, user_id FROM artifact_usage WHERE (? IS NULL OR tenant = ?) AND (? IS NULL OR user_id = ?)) AS owner
LIMIT ?) AS found;

-- name: WORKSPACE_RUN_LIST
SELECT id, tenant, user_id, node, job_id, session_id, spec_version, runtime, runtime_version, base_image, image_digest, policy_hash,
  trust_level, interactive, resume_from_seq, persona_id, workspace_id, workspace_group_id, scope_snapshot_id, phase, outcome, message,
  exit_code, last_seq, resource_usage, cancel_requested_at, created_at, estimated_start_at, started_at, finished_at, request_id
FROM run FORCE INDEX (run_owner) WHERE tenant = ? AND user_id = ? AND workspace_id = ? AND face = 'runs' ORDER BY id DESC LIMIT ?;

-- name: WORKSPACE_RUN_COUNT
SELECT COUNT(*) FROM (SELECT 1 FROM run FORCE INDEX (run_owner) WHERE tenant = ? AND user_id = ? AND workspace_id = ? AND face = 'runs'
LIMIT ?) AS found;

-- Sandboxes. Lock order: tenant, job, sandbox, operation.

-- name: SANDBOX_INSERT
INSERT INTO sandbox (id, face, tenant, user_id, key_id, node, request_id, state, persistent, lifetime_sec, spec, request, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, UTC_TIMESTAMP(6));

-- name: SANDBOX_GET
SELECT id, face, tenant, user_id, node, state, error, persistent, lifetime_sec, spec, request, created_at, started_at, stopped_at,
  expires_at, deleted_at FROM sandbox WHERE id = ?;

-- name: SANDBOX_LIST
SELECT id, face, tenant, user_id, node, state, error, persistent, lifetime_sec, spec, request, created_at, started_at, stopped_at,
  expires_at, deleted_at FROM sandbox
WHERE tenant = ? AND user_id = ? AND id < ? AND face = ? AND state <> 'deleted' ORDER BY id DESC LIMIT ?;

-- name: SANDBOX_LOCK
SELECT state, tenant, user_id, node, spec FROM sandbox WHERE id = ? FOR UPDATE;

-- name: SANDBOX_COUNT_TENANT
SELECT COUNT(*) FROM sandbox WHERE tenant = ? AND state <> 'deleted';

-- name: SANDBOX_COUNT_NODE
SELECT COUNT(*) FROM sandbox WHERE node = ? AND state IN ('pending', 'provisioning', 'running', 'stopping');

-- name: SANDBOX_STATE
UPDATE sandbox SET state = ? WHERE id = ?;

-- Of the operation that is carried out.

-- name: SANDBOX_DURING
UPDATE sandbox SET state = ? WHERE id = (SELECT sandbox_id FROM operation WHERE operation.id = ?);

-- name: SANDBOX_PENDING
UPDATE sandbox SET state = 'pending', error = NULL WHERE id = ?;

-- name: SANDBOX_STARTED
UPDATE sandbox SET state = 'running', error = NULL, started_at = UTC_TIMESTAMP(6), stopped_at = NULL,
  expires_at = UTC_TIMESTAMP(6) + INTERVAL lifetime_sec SECOND
WHERE id = (SELECT sandbox_id FROM operation WHERE operation.id = ?);

-- name: SANDBOX_ENDED
UPDATE sandbox SET state = ?, error = ?, stopped_at = UTC_TIMESTAMP(6), expires_at = NULL,
  deleted_at = IF(state = 'deleted', UTC_TIMESTAMP(6), NULL)
WHERE id = (SELECT sandbox_id FROM operation WHERE operation.id = ?);

-- name: SANDBOX_LOST
UPDATE sandbox SET state = IF(persistent = 1, 'stopped', 'failed'), error = ?, stopped_at = UTC_TIMESTAMP(6), expires_at = NULL
WHERE id = ? AND state = 'running';

-- name: SANDBOX_HELD
SELECT state IN ('pending', 'provisioning', 'running', 'stopping', 'deleting'), state <> 'deleted' FROM sandbox WHERE id = ?;

-- name: SANDBOX_OF_NODE
SELECT id FROM sandbox WHERE node = ? AND state = 'running' ORDER BY id;

-- name: SANDBOX_EXPIRED
SELECT id FROM sandbox WHERE state = 'running' AND expires_at <= UTC_TIMESTAMP(6) AND node = ?
ORDER BY expires_at LIMIT 100;

-- name: SANDBOX_OPERATION_LOST
UPDATE sandbox SET state = 'failed', error = 'host_lost'
WHERE id = (SELECT sandbox_id FROM operation WHERE operation.id = ?) AND state IN ('pending', 'provisioning', 'stopping', 'deleting');

-- name: OPERATION_INSERT
INSERT INTO operation (id, kind, sandbox_id, tenant, user_id, node, request_id, state, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'accepted', UTC_TIMESTAMP(6));

-- name: OPERATION_GET
SELECT id, kind, sandbox_id, tenant, user_id, node, state, error, created_at, started_at, finished_at FROM operation WHERE id = ?;

-- name: OPERATION_LAST
SELECT id, kind, state FROM operation WHERE sandbox_id = ? ORDER BY id DESC LIMIT 1;

-- name: OPERATION_RUNNING
UPDATE operation SET state = 'running', started_at = UTC_TIMESTAMP(6) WHERE id = ? AND state = 'accepted';

-- name: OPERATION_END
UPDATE operation SET state = ?, error = ?, finished_at = UTC_TIMESTAMP(6) WHERE id = ? AND state IN ('accepted', 'running');

-- name: OPERATION_WATCH
SELECT id, state FROM operation
WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: RUN_RESULT
SELECT result, sandbox_id FROM run WHERE id = ?;

-- name: RUN_RESULT_SET
UPDATE run SET result = ? WHERE id = ?;

-- name: OPERATION_EXPIRED
SELECT id FROM operation WHERE finished_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND ORDER BY finished_at LIMIT ? FOR UPDATE SKIP LOCKED;

-- name: OPERATION_DELETE
DELETE FROM operation WHERE id = ?;

-- name: SANDBOX_EXPIRED_ROWS
SELECT id FROM sandbox FORCE INDEX (sandbox_deleted) WHERE deleted_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND ORDER BY deleted_at LIMIT ?
FOR UPDATE SKIP LOCKED;

-- name: SANDBOX_DELETE
DELETE FROM sandbox WHERE id = ?;

-- Sessions. Lock order: tenant, idempotency, session, job, run.

-- name: SESSION_INSERT
INSERT INTO session (id, tenant, user_id, key_id, node, request_id, state, name, spec_version, runtime, base_image, cpu_milli,
  memory_mb, timeout_sec, network_policy, trust_level, policy_hash, env, labels, persona_id, workspace_id, workspace_group_id,
  scope_snapshot_id, workspace_bytes, workspace_inodes, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, 'active', NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6),
  UTC_TIMESTAMP(6) + INTERVAL ? SECOND);

-- name: SESSION_GET
SELECT id, tenant, user_id, node, state, name, spec_version, runtime, base_image, cpu_milli, memory_mb, timeout_sec, network_policy,
  trust_level, policy_hash, env, labels, persona_id, workspace_id, workspace_group_id, scope_snapshot_id, workspace_bytes,
  workspace_inodes, created_at, expires_at, expires_at <= UTC_TIMESTAMP(6) FROM session WHERE id = ?;

-- name: SESSION_LIST
SELECT id, tenant, user_id, node, state, name, spec_version, runtime, base_image, cpu_milli, memory_mb, timeout_sec, network_policy,
  trust_level, policy_hash, env, labels, persona_id, workspace_id, workspace_group_id, scope_snapshot_id, workspace_bytes,
  workspace_inodes, created_at, expires_at, expires_at <= UTC_TIMESTAMP(6) FROM session FORCE INDEX (session_owner)
WHERE tenant = ? AND user_id = ? AND id < ? AND state = 'active' AND (expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6))
ORDER BY id DESC LIMIT ?;

-- name: SESSION_COUNT_WITH_CLONES
SELECT (SELECT COUNT(*) FROM session WHERE tenant = ? AND state <> 'deleted')
  + (SELECT COUNT(*) FROM operation FORCE INDEX (operation_finished) WHERE finished_at IS NULL AND kind = 'clone' AND tenant = ?);

-- name: SESSION_LOCK
SELECT state, tenant, user_id, node, workspace_bytes, workspace_inodes, operation_id, expires_at <= UTC_TIMESTAMP(6) FROM session
WHERE id = ? FOR UPDATE;

-- name: SESSION_ACTIVE_RUNS
SELECT COUNT(*) FROM job WHERE session_id = ? AND kind = 'run';

-- name: SESSION_ACTIVE_LIST
SELECT job.id, job.object_id FROM job WHERE session_id = ? AND kind = 'run' ORDER BY job.id LIMIT ?;

-- name: SESSION_DELETING
UPDATE session SET state = 'deleting', operation_id = ? WHERE id = ? AND state = 'active';

-- name: SESSION_DELETE_ENDED
UPDATE session SET state = ?, operation_id = NULL, deleted_at = IF(state = 'deleted', UTC_TIMESTAMP(6), NULL) WHERE id = ?
  AND state = 'deleting';

-- name: SESSION_OPERATION_LOST
UPDATE session SET state = 'active', operation_id = NULL WHERE operation_id = ? AND state = 'deleting';

-- A session that has lived its time, and has no run.

-- name: SESSION_EXPIRED
SELECT id FROM session WHERE state = 'active' AND expires_at <= UTC_TIMESTAMP(6) AND node = ?
  AND NOT EXISTS (SELECT 1 FROM job WHERE job.session_id = session.id AND job.kind = 'run') ORDER BY expires_at LIMIT 100;

-- name: SESSION_HELD
SELECT state <> 'deleted' FROM session WHERE id = ?;

-- name: SESSION_EXPIRED_ROWS
SELECT id FROM session FORCE INDEX (session_deleted) WHERE deleted_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND ORDER BY deleted_at LIMIT ?
FOR UPDATE SKIP LOCKED;

-- name: SESSION_DELETE
DELETE FROM session WHERE id = ?;

-- name: SESSION_CLONE
INSERT INTO session (id, tenant, user_id, key_id, node, request_id, state, name, spec_version, runtime, base_image, cpu_milli,
  memory_mb, timeout_sec, network_policy, trust_level, policy_hash, env, labels, persona_id, workspace_id, workspace_group_id,
  scope_snapshot_id, workspace_bytes, workspace_inodes, created_at, expires_at)
SELECT ?, tenant, user_id, key_id, node, ?, 'active', ?, spec_version, runtime, base_image, cpu_milli,
  memory_mb, timeout_sec, network_policy, trust_level, policy_hash, env, labels, persona_id, workspace_id, workspace_group_id,
  scope_snapshot_id, workspace_bytes, workspace_inodes, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? SECOND
FROM session WHERE id = ?;

-- name: SESSION_RUN_INSERT
INSERT INTO session_run (session_id, run_id) VALUES (?, ?);

-- name: SESSION_RUN_LIST
SELECT run_id FROM session_run WHERE session_id = ? ORDER BY run_id LIMIT ?;

-- name: SESSION_RUN_DELETE
DELETE FROM session_run WHERE session_id = ? AND run_id = ?;

-- name: JOB_INSERT_SESSION
INSERT INTO job (kind, object_kind, object_id, tenant, user_id, node, rank, state, spec, request_id, created_at, expires_at, session_id)
VALUES ('run', 'run', ?, ?, ?, ?, 0, 'queued', ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? SECOND, ?);

-- name: RUN_ARTIFACTS_GONE
UPDATE run SET artifact_bytes = 0 WHERE id = ?;

-- name: RUN_ARTIFACTS_OF
SELECT tenant, user_id, artifact_bytes FROM run WHERE id = ? AND finished_at IS NOT NULL FOR UPDATE;

-- name: SNAPSHOT_INSERT
INSERT INTO snapshot (session_id, id, size_bytes, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE size_bytes = VALUES(size_bytes);

-- Newest first; two of one microsecond by their ids.

-- name: SNAPSHOT_LIST
SELECT id, size_bytes, created_at FROM snapshot WHERE session_id = ? ORDER BY created_at DESC, id DESC LIMIT ?;

-- name: SNAPSHOT_FIND
SELECT size_bytes, created_at FROM snapshot WHERE session_id = ? AND id = ?;

-- name: SNAPSHOT_DELETE
DELETE FROM snapshot WHERE session_id = ? AND id = ?;

-- name: SNAPSHOT_DELETE_ALL
DELETE FROM snapshot WHERE session_id = ?;

-- name: OPERATION_RESULT_SET
UPDATE operation SET result = ? WHERE id = ?;

-- name: OPERATION_LIVES
SELECT 1 FROM operation WHERE id = ? AND state IN ('accepted', 'running');

-- name: OPERATION_RESULT
SELECT result FROM operation WHERE id = ?;
