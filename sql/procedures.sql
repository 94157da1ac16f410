-- procedures.sql: transactions of several statements in one round trip. Made anew by each `cordonctl migrate`, or by hand after the
-- migrations: mariadb cordon < sql/procedures.sql
-- They run with the rights of the caller. What cannot be done says so by SQLSTATE 45000, and nothing has changed then.

-- A run and its job, when there is room in the queue: the usual request, without an idempotency key and with no limit but the queue's.
-- A command in a sandbox waits for nothing but its agent: it is before all runs, and the queue's length is not its.
DELIMITER //
CREATE OR REPLACE PROCEDURE run_accept(
  p_id VARBINARY(36), p_face VARBINARY(16), p_tenant VARBINARY(64), p_user VARBINARY(64), p_key VARBINARY(32), p_node VARBINARY(64),
  p_request VARBINARY(64), p_session VARBINARY(36), p_version VARBINARY(16), p_runtime VARBINARY(32), p_runtime_version VARBINARY(64),
  p_image VARBINARY(255), p_digest VARBINARY(80), p_policy VARBINARY(64), p_trust VARBINARY(16), p_network VARBINARY(16),
  p_interactive TINYINT, p_resume BIGINT, p_persona VARBINARY(255), p_workspace VARBINARY(255), p_group VARBINARY(255),
  p_scope VARBINARY(255), p_trace VARBINARY(768), p_spec MEDIUMTEXT CHARACTER SET utf8mb4, p_ttl_sec INT, p_most INT, p_wait_us BIGINT,
  p_sandbox VARBINARY(36))
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_tenant VARBINARY(64);
  DECLARE v_waiting BIGINT DEFAULT 0;
  DECLARE v_run_us BIGINT DEFAULT p_wait_us;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  SELECT id INTO v_tenant FROM tenant WHERE id = p_tenant FOR UPDATE;
  IF v_tenant IS NULL THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no such tenant'; END IF;
  IF p_sandbox IS NULL THEN
    SELECT COUNT(*) INTO v_waiting FROM (SELECT 1 FROM job WHERE node = p_node AND state = 'queued' LIMIT p_most) AS waiting;
    IF v_waiting >= p_most THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the queue is full'; END IF;
    IF v_waiting > 0 THEN
      SELECT COALESCE(NULLIF(MAX(run_us DIV places), 0), p_wait_us) INTO v_run_us FROM runner WHERE node = p_node;
    END IF;
  END IF;
  INSERT INTO job (kind, object_kind, object_id, tenant, user_id, node, rank, state, spec, request_id, created_at, expires_at)
  VALUES (IF(p_sandbox IS NULL, 'run', 'exec'), 'run', p_id, p_tenant, p_user, p_node, IF(p_sandbox IS NULL, 0, -1), 'queued', p_spec, p_request, UTC_TIMESTAMP(6),
    UTC_TIMESTAMP(6) + INTERVAL p_ttl_sec SECOND);
  INSERT INTO run (id, face, tenant, user_id, key_id, node, job_id, request_id, session_id, spec_version, runtime, runtime_version,
    base_image, image_digest, policy_hash, trust_level, network_policy, interactive, resume_from_seq, persona_id, workspace_id,
    workspace_group_id, scope_snapshot_id, trace, sandbox_id, phase, created_at, estimated_start_at)
  VALUES (p_id, p_face, p_tenant, p_user, p_key, p_node, LAST_INSERT_ID(), p_request, p_session, p_version, p_runtime, p_runtime_version,
    p_image, p_digest, p_policy, p_trust, p_network, p_interactive, p_resume, p_persona, p_workspace, p_group, p_scope, p_trace, p_sandbox,
    'queued',
    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL (v_waiting * v_run_us) MICROSECOND);
  COMMIT;
END
//
DELIMITER ;

-- The claim of one run, as JOB_CLAIM and RUN_STARTING do it.
DELIMITER //
CREATE OR REPLACE PROCEDURE run_claim(p_owner VARBINARY(36), p_token VARBINARY(16), p_job BIGINT UNSIGNED, p_run VARBINARY(36))
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  UPDATE job SET state = 'claimed', claim_owner = p_owner, claim_token = p_token, claimed_at = UTC_TIMESTAMP(6), attempt = attempt + 1
  WHERE id = p_job AND state = 'queued';
  IF ROW_COUNT() = 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the job is not queued'; END IF;
  UPDATE run SET phase = 'starting', started_at = UTC_TIMESTAMP(6) WHERE id = p_run AND phase = 'queued';
  COMMIT;
END
//
DELIMITER ;

-- The end of a run without artifacts, and of its job.
DELIMITER //
CREATE OR REPLACE PROCEDURE run_end(
  p_job BIGINT UNSIGNED, p_token VARBINARY(16), p_run VARBINARY(36), p_phase VARBINARY(16), p_outcome VARBINARY(16),
  p_message VARBINARY(255), p_exit INT, p_seq BIGINT UNSIGNED, p_usage TEXT CHARACTER SET utf8mb4, p_log_bytes BIGINT UNSIGNED,
  p_result MEDIUMTEXT CHARACTER SET utf8mb4, p_trace VARBINARY(768))
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  DELETE FROM job WHERE id = p_job AND claim_token = p_token;
  IF ROW_COUNT() = 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the claim is another one'; END IF;
  UPDATE run SET phase = p_phase, outcome = p_outcome, message = p_message, exit_code = p_exit, last_seq = p_seq,
    resource_usage = p_usage, log_bytes = p_log_bytes, artifact_bytes = 0, result = p_result,
    trace = LEFT(CONCAT(COALESCE(trace, ''), p_trace), 768), finished_at = UTC_TIMESTAMP(6)
  WHERE id = p_run AND phase IN ('starting', 'running');
  IF ROW_COUNT() = 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the run is not active'; END IF;
  COMMIT;
END
//
DELIMITER ;
