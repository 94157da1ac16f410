/* The SQL thread's part in sessions: what the end of an operation changes in the tables. */
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/store_sandbox.h"
#include "runners/core/store_session.h"
#include "runners/supervisor/jobs_private.h"

#define ARTIFACT_BATCH 50
#define SNAPSHOTS_MOST 1000
#define JOB_TEXT_BYTES 4096

/* --- snapshots ------------------------------------------------------------------------------- */

/* The rows go now, the files with a job each. */
static int drop_snapshot(struct store *db, const struct run_result *r, const char *id,
			 struct err *e)
{
	struct store_value in[] = {SV_TEXT(r->session->session), SV_TEXT(id)};
	struct session_job job = *r->session;
	char operation[IDENT_UUID_SIZE];
	scope_buf struct buf text = BUF_NONE;
	char node[65];
	struct store_value session[] = {SV_TEXT(r->session->session)};
	struct operation_rows rows = {.operation = operation,
				      .kind = JOB_SNAPSHOT_DELETE,
				      .sandbox = r->session->session,
				      .tenant = r->claim.tenant,
				      .user = r->claim.user,
				      .node = node,
				      .request_id = r->claim.request_id};

	buf_init(&text, JOB_TEXT_BYTES);
	(void)snprintf(job.snapshot, sizeof(job.snapshot), "%s", id);
	if (store_query_row(db, STMT_SESSION_GET, session, 1, e) != 1 ||
	    str_copy(node, sizeof(node), store_text(db, 3)) != 0)
		return err_set(e, ERR_INTERNAL, 0, "session %s has no row", r->session->session);
	store_done(db);
	if (ident_uuid(operation, e) != 0 || session_job_encode(&job, &text, e) != 0 ||
	    store_exec(db, STMT_SNAPSHOT_DELETE, in, ARRAY_LEN(in), NULL, e) != 0)
		return -1;
	rows.spec = buf_text(&text);
	rows.spec_length = text.len;
	return store_operation_insert(db, &rows, e);
}

struct dropped {
	char id[SNAPSHOT_ID_SIZE];
};

/* Count and bytes of a session's snapshots; the newest one is never dropped. */
static int keep_quota(struct store *db, const struct policy *policy, const struct run_result *r,
		      struct err *e)
{
	struct store_value in[] = {SV_TEXT(r->session->session), SV_I64(SNAPSHOTS_MOST)};
	scope_free struct dropped *dropped = mem_zalloc(SNAPSHOTS_MOST, sizeof(*dropped));
	int64_t most_bytes = policy->sessions.snapshot_max_mb << 20;
	int64_t bytes = 0;
	int64_t seen = 0;
	size_t count = 0;
	int got;

	if (dropped == NULL)
		return err_set(e, ERR_NOMEM, 0, "snapshots");
	if (store_query(db, STMT_SNAPSHOT_LIST, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && count < SNAPSHOTS_MOST) {
		seen++;
		bytes += store_i64(db, 1);
		if (seen > 1 &&
		    (seen > policy->sessions.snapshot_max_count || bytes > most_bytes) &&
		    str_copy(dropped[count].id, SNAPSHOT_ID_SIZE, store_text(db, 0)) == 0)
			count++;
	}
	store_done(db);
	for (size_t i = 0; got >= 0 && i < count; i++)
		got = drop_snapshot(db, r, dropped[i].id, e);
	return got < 0 ? -1 : 0;
}

static int end_snapshot(struct store *db, const struct policy *policy, const struct run_result *r,
			struct err *e)
{
	struct store_value in[] = {SV_TEXT(r->session->session), SV_TEXT(r->session->snapshot),
				   SV_I64((int64_t)r->session_bytes)};

	if (store_exec(db, STMT_SNAPSHOT_INSERT, in, ARRAY_LEN(in), NULL, e) != 0)
		return -1;
	return keep_quota(db, policy, r, e);
}

/* --- clone and delete ------------------------------------------------------------------------ */

static int end_clone(struct store *db, const struct policy *policy, const struct run_result *r,
		     struct err *e)
{
	const struct session_job *job = r->session;
	struct store_value in[] = {SV_TEXT(job->clone), SV_TEXT(r->claim.request_id),
				   SV_TEXT(job->name[0] == '\0' ? NULL : job->name),
				   policy->sessions.ttl_sec > 0 ? SV_I64(policy->sessions.ttl_sec)
								: SV_NULL,
				   SV_TEXT(job->session)};
	uint64_t changed = 0;

	if (store_exec(db, STMT_SESSION_CLONE, in, ARRAY_LEN(in), &changed, e) != 0)
		return -1;
	return changed == 1 ? 0
			    : err_set(e, ERR_INTERNAL, 0, "session %s has no row", job->session);
}

static int end_delete(struct store *db, const struct run_result *r, bool good, struct err *e)
{
	struct store_value id[] = {SV_TEXT(r->session->session)};
	struct store_value state[] = {
	    SV_TEXT(session_state_name(good ? SESSION_DELETED : SESSION_ACTIVE)),
	    SV_TEXT(r->session->session)};

	if (good && store_exec(db, STMT_SNAPSHOT_DELETE_ALL, id, 1, NULL, e) != 0)
		return -1;
	return store_exec(db, STMT_SESSION_DELETE_ENDED, state, ARRAY_LEN(state), NULL, e);
}

int jobs_session_end(struct store *db, const struct policy *policy, const struct run_result *r,
		     struct err *e)
{
	bool good = r->phase == RUN_COMPLETED;
	struct store_value result[] = {SV_TEXT(r->result), SV_TEXT(r->claim.run_id)};
	struct store_value operation[] = {
	    SV_TEXT(operation_state_name(good ? OPERATION_SUCCEEDED : OPERATION_FAILED)),
	    SV_TEXT(good ? NULL : r->message), SV_TEXT(r->claim.run_id)};
	int got = 0;

	/* without it the job's text could not even be read */
	if (r->session == NULL)
		got = 0;
	else if (r->claim.kind == JOB_SNAPSHOT && good)
		got = end_snapshot(db, policy, r, e);
	else if (r->claim.kind == JOB_CLONE && good)
		got = end_clone(db, policy, r, e);
	else if (r->claim.kind == JOB_SESSION_DELETE)
		got = end_delete(db, r, good, e);
	if (got != 0 || (r->result != NULL && store_exec(db, STMT_OPERATION_RESULT_SET, result,
							 ARRAY_LEN(result), NULL, e) != 0))
		return -1;
	return store_exec(db, STMT_OPERATION_END, operation, ARRAY_LEN(operation), NULL, e);
}

/* --- artifacts ------------------------------------------------------------------------------- */

struct artifact_work {
	const char *session;
	char runs[ARTIFACT_BATCH][IDENT_UUID_SIZE];
	size_t count;
};

/* One run; one that has not ended keeps its files until their time is over. */
static int forget_artifacts(struct store *db, const char *session, const char *run, struct err *e)
{
	struct store_value id[] = {SV_TEXT(run)};
	struct store_value row[] = {SV_TEXT(session), SV_TEXT(run)};
	char tenant[65];
	char user[65];
	int64_t bytes;
	struct store_value less[4];
	int got = store_query_row(db, STMT_RUN_ARTIFACTS_OF, id, 1, e);

	if (got < 0)
		return -1;
	if (got == 1) {
		(void)!str_copy(tenant, sizeof(tenant), store_text(db, 0));
		(void)!str_copy(user, sizeof(user), store_text(db, 1));
		bytes = store_i64(db, 2);
		store_done(db);
		less[0] = SV_I64(bytes);
		less[1] = SV_I64(bytes);
		less[2] = SV_TEXT(tenant);
		less[3] = SV_TEXT(user);
		if (store_exec(db, STMT_ARTIFACT_DELETE, id, 1, NULL, e) != 0 ||
		    store_exec(db, STMT_RUN_ARTIFACTS_GONE, id, 1, NULL, e) != 0 ||
		    store_exec(db, STMT_USAGE_SUBTRACT, less, ARRAY_LEN(less), NULL, e) != 0)
			return -1;
	}
	return store_exec(db, STMT_SESSION_RUN_DELETE, row, ARRAY_LEN(row), NULL, e);
}

static int artifacts_body(struct store *db, void *arg, struct err *e)
{
	struct artifact_work *w = arg;
	struct store_value in[] = {SV_TEXT(w->session), SV_I64(ARTIFACT_BATCH)};
	int got;

	w->count = 0;
	if (store_query(db, STMT_SESSION_RUN_LIST, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && w->count < ARTIFACT_BATCH)
		if (str_copy(w->runs[w->count], IDENT_UUID_SIZE, store_text(db, 0)) == 0)
			w->count++;
	store_done(db);
	for (size_t i = 0; got >= 0 && i < w->count; i++)
		got = forget_artifacts(db, w->session, w->runs[i], e);
	return got < 0 ? -1 : 0;
}

int jobs_session_artifacts(struct jobs *jobs, const struct run_result *r, struct err *e)
{
	scope_free struct artifact_work *w = NULL;

	if (r->claim.kind != JOB_SESSION_DELETE || r->phase != RUN_COMPLETED || r->session == NULL)
		return 0;
	w = mem_zalloc(1, sizeof(*w));
	if (w == NULL)
		return err_set(e, ERR_NOMEM, 0, "artifacts of a session");
	w->session = r->session->session;
	do {
		if (store_retry(jobs->db, artifacts_body, w, e) != 0)
			return -1;
		for (size_t i = 0; i < w->count; i++)
			jobs_put_simple(jobs, JOBS_ARTIFACTS, w->runs[i]);
	} while (w->count == ARTIFACT_BATCH);
	return 0;
}

/* --- the sweep ------------------------------------------------------------------------------- */

int jobs_delete_expired(struct jobs *jobs, struct err *e)
{
	size_t count;

	if (sweep_sessions(jobs->db, jobs->policy->node, &count, e) != 0)
		return -1;
	if (count > 0) {
		log_event(LOG_INFO, "sessions_expired", "count=%zu", count);
		(void)pthread_mutex_lock(&jobs->lock);
		jobs->look = true;
		(void)pthread_mutex_unlock(&jobs->lock);
	}
	return 0;
}
