#include "runners/core/store_session.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"
#include "runners/core/store_sandbox.h"

#define SWEEP_MOST     100
#define JOB_TEXT_BYTES 4096

/* --- the job's text -------------------------------------------------------------------------- */

struct text_member {
	const char *name;
	size_t offset;
	size_t size;
};

#define TEXT(member)                                             \
	{                                                        \
#member, offsetof(struct session_job, member),   \
		    sizeof(((struct session_job *)NULL)->member) \
	}

static const struct text_member texts[] = {TEXT(session), TEXT(snapshot), TEXT(clone), TEXT(name),
					   TEXT(upload)};

int session_job_encode(const struct session_job *job, struct buf *out, struct err *e)
{
	scope_json json_t *all =
	    json_pack("{s:I, s:I}", "workspace_bytes", (json_int_t)job->workspace_bytes,
		      "workspace_inodes", (json_int_t)job->workspace_inodes);

	for (size_t i = 0; all != NULL && i < ARRAY_LEN(texts); i++) {
		const char *value = (const char *)job + texts[i].offset;

		if (value[0] != '\0' &&
		    json_object_set_new(all, texts[i].name, json_string(value)) != 0)
			return err_set(e, ERR_NOMEM, 0, "session job");
	}
	return all == NULL ? err_set(e, ERR_NOMEM, 0, "session job") : json_write(out, all, e);
}

static int read_size(const json_t *all, const char *name, int64_t *out, struct err *e)
{
	const json_t *value = json_object_get(all, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return err_set(e, ERR_PROTOCOL, 0, "session job: %s", name);
	*out = json_integer_value(value);
	return 0;
}

int session_job_decode(const char *text, size_t length, struct session_job *out, struct err *e)
{
	scope_json json_t *all = NULL;

	memset(out, 0, sizeof(*out));
	if (json_parse(text, length, &all, e) != 0)
		return err_wrap(e, "session job");
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		const json_t *value = json_object_get(all, texts[i].name);

		if (value != NULL &&
		    (json_text(value) == NULL ||
		     str_copy((char *)out + texts[i].offset, texts[i].size, json_text(value)) != 0))
			return err_set(e, ERR_PROTOCOL, 0, "session job: %s", texts[i].name);
	}
	if (!ident_is_uuid(out->session))
		return err_set(e, ERR_PROTOCOL, 0, "session job without a session");
	if (read_size(all, "workspace_bytes", &out->workspace_bytes, e) != 0)
		return -1;
	return read_size(all, "workspace_inodes", &out->workspace_inodes, e);
}

bool snapshot_id_is_good(const char *id)
{
	const char *digits = str_after(id, "snap-");

	return digits != NULL && strlen(digits) == 12 && strspn(digits, "0123456789abcdef") == 12;
}

int snapshot_id_make(char out[SNAPSHOT_ID_SIZE], struct err *e)
{
	unsigned char random[6];
	char digits[13];

	if (ident_random(random, sizeof(random), e) != 0)
		return -1;
	str_hex(digits, random, sizeof(random));
	(void)snprintf(out, SNAPSHOT_ID_SIZE, "snap-%s", digits);
	return 0;
}

/* --- an operation ---------------------------------------------------------------------------- */

struct locked {
	enum session_state state;
	char tenant[65];
	char user[65];
	char operation[IDENT_UUID_SIZE];
	bool expired;
};

/* 1, 0: no such session. */
static int lock_session(struct store *db, struct session_wish *w, struct locked *out, struct err *e)
{
	struct store_value id[] = {SV_TEXT(w->session)};
	int got = store_query_row(db, STMT_SESSION_LOCK, id, 1, e);

	if (got <= 0)
		return got;
	if (session_state_parse(store_text(db, 0), &out->state) != 0 ||
	    str_copy(out->tenant, sizeof(out->tenant), store_text(db, 1)) != 0 ||
	    str_copy(out->user, sizeof(out->user), store_text(db, 2)) != 0 ||
	    str_copy(w->node, sizeof(w->node), store_text(db, 3)) != 0 ||
	    str_copy(out->operation, sizeof(out->operation), store_text(db, 6)) != 0 ||
	    str_copy(w->job.session, sizeof(w->job.session), w->session) != 0) {
		store_done(db);
		return err_set(e, ERR_INTERNAL, 0, "session %s has a wrong row", w->session);
	}
	w->job.workspace_bytes = store_i64(db, 4);
	w->job.workspace_inodes = store_i64(db, 5);
	out->expired = store_i64(db, 7) != 0;
	store_done(db);
	return 1;
}

/* Which kinds are impossible while it has runs. */
static bool wants_no_runs(enum job_kind kind)
{
	return kind == JOB_SNAPSHOT || kind == JOB_RESTORE || kind == JOB_CLONE;
}

static int count_runs(struct store *db, struct session_wish *w, struct err *e)
{
	struct store_value id[] = {SV_TEXT(w->session)};

	if (store_query_row(db, STMT_SESSION_ACTIVE_RUNS, id, 1, e) != 1)
		return -1;
	w->active_runs = store_i64(db, 0);
	store_done(db);
	return 0;
}

/* 1: there is one; a snapshot_delete takes its row away. */
static int take_snapshot(struct store *db, struct session_wish *w, struct err *e)
{
	struct store_value in[] = {SV_TEXT(w->session), SV_TEXT(w->job.snapshot)};
	uint64_t changed = 0;
	int got;

	if (w->kind == JOB_SNAPSHOT_DELETE)
		return store_exec(db, STMT_SNAPSHOT_DELETE, in, ARRAY_LEN(in), &changed, e) != 0
			   ? -1
			   : (int)changed;
	got = store_query_row(db, STMT_SNAPSHOT_FIND, in, ARRAY_LEN(in), e);
	store_done(db);
	return got;
}

/* Lock order: job, then run. One that is queued ends at once, of any other the wish is written. */
static int cancel_one(struct store *db, int64_t job, struct session_run *r, struct err *e)
{
	struct store_value job_id[] = {SV_I64(job)};
	struct store_value run[] = {SV_TEXT(r->run)};
	struct store_value end[] = {SV_TEXT("killed"), SV_TEXT("finished"),
				    SV_TEXT("canceled_by_user"), SV_TEXT(r->run)};
	int got = store_query_row(db, STMT_JOB_GET_LOCKED, job_id, 1, e);

	if (got < 0)
		return -1;
	r->ended = got == 1 && !str_equal(store_text(db, 0), "claimed");
	store_done(db);
	if (got == 0)
		return 0; /* it has just ended */
	if (store_exec(db, STMT_RUN_CANCEL_WISH, run, 1, NULL, e) != 0)
		return -1;
	if (!r->ended)
		return 0;
	if (store_exec(db, STMT_RUN_END_QUEUED, end, ARRAY_LEN(end), NULL, e) != 0)
		return -1;
	return store_exec(db, STMT_JOB_DELETE, job_id, 1, NULL, e);
}

static int cancel_runs(struct store *db, struct session_wish *w, struct err *e)
{
	struct store_value in[] = {SV_TEXT(w->session), SV_I64(SESSION_RUNS_MAX)};
	scope_free int64_t *jobs = mem_zalloc(SESSION_RUNS_MAX, sizeof(*jobs));
	int got;

	w->run_count = 0;
	if (w->runs == NULL)
		w->runs = mem_zalloc(SESSION_RUNS_MAX, sizeof(*w->runs));
	if (jobs == NULL || w->runs == NULL)
		return err_set(e, ERR_NOMEM, 0, "runs of a session");
	if (store_query(db, STMT_SESSION_ACTIVE_LIST, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && w->run_count < SESSION_RUNS_MAX) {
		jobs[w->run_count] = store_i64(db, 0);
		if (str_copy(w->runs[w->run_count].run, IDENT_UUID_SIZE, store_text(db, 1)) == 0)
			w->run_count++;
	}
	store_done(db);
	for (size_t i = 0; got >= 0 && i < w->run_count; i++)
		got = cancel_one(db, jobs[i], &w->runs[i], e);
	return got < 0 ? -1 : 0;
}

/* As a create judges it; who makes sessions of one tenant does so one after another. */
static int count_sessions(struct store *db, struct session_wish *w, const struct locked *s,
			  struct err *e)
{
	struct store_value tenant[] = {SV_TEXT(s->tenant), SV_TEXT(s->tenant)};

	if (w->max_sessions == 0)
		return 0;
	if (store_query_row(db, STMT_TENANT_LOCK, tenant, 1, e) != 1)
		return e->code != ERR_NONE ? -1 : err_set(e, ERR_INTERNAL, 0, "no tenant");
	store_done(db);
	if (store_query_row(db, STMT_SESSION_COUNT_WITH_CLONES, tenant, 2, e) != 1)
		return -1;
	w->full = store_i64(db, 0) >= w->max_sessions;
	store_done(db);
	return 0;
}

/* 1: nothing more is to be done, 0: the operation is to be written. */
static int judge(struct store *db, struct session_wish *w, const struct locked *s, struct err *e)
{
	int got;

	if (s->state == SESSION_DELETING && w->kind == JOB_SESSION_DELETE) {
		memcpy(w->operation, s->operation, sizeof(w->operation));
		return 1;
	}
	/* one that has lived its time can still be deleted */
	w->missing = s->state != SESSION_ACTIVE || (s->expired && w->kind != JOB_SESSION_DELETE);
	if (w->missing)
		return 1;
	if (wants_no_runs(w->kind)) {
		if (count_runs(db, w, e) != 0)
			return -1;
		if (w->active_runs > 0)
			return 1;
	}
	if (w->kind == JOB_CLONE)
		return count_sessions(db, w, s, e) != 0 ? -1 : w->full;
	if (w->kind != JOB_RESTORE && w->kind != JOB_SNAPSHOT_DELETE)
		return 0;
	got = take_snapshot(db, w, e);
	w->no_snapshot = got == 0;
	return got < 0 ? -1 : got == 0;
}

static int mark_deleting(struct store *db, const struct session_wish *w, struct err *e)
{
	struct store_value in[] = {SV_TEXT(w->operation), SV_TEXT(w->session)};

	return store_exec(db, STMT_SESSION_DELETING, in, ARRAY_LEN(in), NULL, e);
}

int store_session_body(struct store *db, void *arg, struct err *e)
{
	struct session_wish *w = arg;
	struct operation_rows rows = {.operation = w->operation,
				      .kind = w->kind,
				      .sandbox = w->session,
				      .request_id = w->request_id,
				      .node = w->node};
	scope_buf struct buf text = BUF_NONE;
	struct locked s;
	int got = lock_session(db, w, &s, e);

	/* the operation of an upload has the name of its files */
	if (w->job.upload[0] != '\0')
		memcpy(w->operation, w->job.upload, sizeof(w->operation));

	w->missing = got == 0;
	w->no_snapshot = false;
	w->full = false;
	w->active_runs = 0;
	w->run_count = 0;
	if (got <= 0)
		return got;
	got = judge(db, w, &s, e);
	if (got != 0)
		return got < 0 ? -1 : 0;
	buf_init(&text, JOB_TEXT_BYTES);
	if ((w->job.upload[0] == '\0' && ident_uuid(w->operation, e) != 0) ||
	    (w->kind == JOB_SNAPSHOT && snapshot_id_make(w->job.snapshot, e) != 0) ||
	    (w->kind == JOB_CLONE && ident_uuid(w->job.clone, e) != 0) ||
	    session_job_encode(&w->job, &text, e) != 0)
		return -1;
	rows.tenant = s.tenant;
	rows.user = s.user;
	rows.spec = buf_text(&text);
	rows.spec_length = text.len;
	if (w->kind == JOB_SESSION_DELETE &&
	    (mark_deleting(db, w, e) != 0 || cancel_runs(db, w, e) != 0))
		return -1;
	return store_operation_insert(db, &rows, e);
}

/* --- the sweep ------------------------------------------------------------------------------- */

int sweep_sessions(struct store *db, const char *node, size_t *out_count, struct err *e)
{
	struct store_value in[] = {SV_TEXT(node)};
	char ids[SWEEP_MOST][IDENT_UUID_SIZE];
	size_t count = 0;
	int got;

	*out_count = 0;
	if (store_query(db, STMT_SESSION_EXPIRED, in, 1, e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && count < SWEEP_MOST)
		if (str_copy(ids[count], IDENT_UUID_SIZE, store_text(db, 0)) == 0)
			count++;
	store_done(db);
	for (size_t i = 0; got >= 0 && i < count; i++) {
		struct session_wish wish = {
		    .session = ids[i], .kind = JOB_SESSION_DELETE, .request_id = "lifetime"};

		/* each by itself: one lock at a time */
		got = store_retry(db, store_session_body, &wish, e);
		mem_free(wish.runs);
		if (got == 0 && !wish.missing)
			(*out_count)++;
	}
	return got < 0 ? -1 : 0;
}
