#include "handlers/ops/op_run.h"

#include "handlers/ops/op_idem.h"
#include "runners/base/fdio.h"
#include "runners/base/limits.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/spool.h"
#include "runners/core/store_park.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

void op_iso_time(char out[CLOCK_ISO_SIZE], const char *text)
{
	out[0] = '\0';
	if (strlen(text) != 26)
		return;
	(void)snprintf(out, CLOCK_ISO_SIZE, "%.10sT%.15sZ", text, text + 11);
}

/* Copies a text column; a value that is too long is a fault of ours and shows as empty. */
static void column(char *out, size_t size, const struct store *db, unsigned int i)
{
	if (str_copy(out, size, store_text(db, i)) != 0)
		out[0] = '\0';
}

/* Reads the columns of RUN_GET and RUN_LIST, which begin with column `base`. */
static int read_row(const struct store *db, unsigned int base, struct run_row *row, struct err *e)
{
	memset(row, 0, sizeof(*row));
	column(row->id, sizeof(row->id), db, base);
	column(row->tenant, sizeof(row->tenant), db, base + 1);
	column(row->user, sizeof(row->user), db, base + 2);
	column(row->node, sizeof(row->node), db, base + 3);
	row->job_id = (uint64_t)store_i64(db, base + 4);
	column(row->session_id, sizeof(row->session_id), db, base + 5);
	column(row->spec_version, sizeof(row->spec_version), db, base + 6);
	column(row->runtime, sizeof(row->runtime), db, base + 7);
	column(row->runtime_version, sizeof(row->runtime_version), db, base + 8);
	column(row->base_image, sizeof(row->base_image), db, base + 9);
	column(row->image_digest, sizeof(row->image_digest), db, base + 10);
	column(row->policy_hash, sizeof(row->policy_hash), db, base + 11);
	column(row->trust_level, sizeof(row->trust_level), db, base + 12);
	row->interactive = store_i64(db, base + 13) != 0;
	row->resume_from_seq = store_i64(db, base + 14);
	column(row->persona_id, sizeof(row->persona_id), db, base + 15);
	column(row->workspace_id, sizeof(row->workspace_id), db, base + 16);
	column(row->workspace_group_id, sizeof(row->workspace_group_id), db, base + 17);
	column(row->scope_snapshot_id, sizeof(row->scope_snapshot_id), db, base + 18);
	if (run_phase_parse(store_text(db, base + 19), &row->phase) != 0)
		return err_set(e, ERR_INTERNAL, 0, "run %s has an unknown phase", row->id);
	column(row->outcome, sizeof(row->outcome), db, base + 20);
	column(row->message, sizeof(row->message), db, base + 21);
	row->has_exit = !store_is_null(db, base + 22);
	row->exit_code = store_i64(db, base + 22);
	row->has_last_seq = !store_is_null(db, base + 23);
	row->last_seq = (uint64_t)store_i64(db, base + 23);
	column(row->resource_usage, sizeof(row->resource_usage), db, base + 24);
	row->cancel_requested = !store_is_null(db, base + 25);
	op_iso_time(row->created_at, store_text(db, base + 26));
	op_iso_time(row->estimated_start_at, store_text(db, base + 27));
	op_iso_time(row->started_at, store_text(db, base + 28));
	op_iso_time(row->finished_at, store_text(db, base + 29));
	column(row->request_id, sizeof(row->request_id), db, base + 30);
	return 0;
}

int op_run_read(const struct store *db, struct run_row *row, struct err *e)
{
	return read_row(db, 0, row, e);
}

static bool may_see(const struct principal *caller, const struct run_row *row)
{
	if (caller->role == ROLE_OPERATOR)
		return true;
	if (!str_equal(caller->tenant, row->tenant))
		return false;
	return caller->role == ROLE_ADMIN || str_equal(caller->user, row->user);
}

/* 0 and the row, or ERR_NOT_FOUND. */
static int load_row(struct store *db, const char *id, struct run_row *row, struct err *e)
{
	struct store_value in[1] = {SV_TEXT(id)};
	int got = store_query_row(db, STMT_RUN_GET, in, 1, e);

	if (got < 0)
		return -1;
	if (got == 0)
		return err_show(e, ERR_NOT_FOUND, "There is no such run.");
	got = read_row(db, 0, row, e);
	store_done(db);
	return got;
}

void op_run_keep(struct handler_context *context, unsigned int base)
{
	struct err ignored = ERR_INIT;

	context->has_run = false;
	if (store_is_null(context->db, base))
		return;
	if (context->run == NULL)
		context->run = mem_zalloc(1, sizeof(*context->run));
	/* without it the row is read by itself */
	context->has_run =
	    context->run != NULL && read_row(context->db, base, context->run, &ignored) == 0;
}

int op_run_get(struct handler_context *context, const struct principal *caller, const char *id,
	       struct run_row *out, struct err *e)
{
	if (!ident_is_uuid(id))
		return err_show(e, ERR_NOT_FOUND, "There is no such run.");
	if (context->has_run && str_equal(context->run->id, id)) {
		*out = *context->run;
		context->has_run = false;
	} else if (load_row(context->db, id, out, e) != 0) {
		return -1;
	}
	if (!may_see(caller, out))
		return err_show(e, ERR_NOT_FOUND, "There is no such run.");
	return 0;
}

int op_run_trace(struct handler_context *context, const struct principal *caller, const char *id,
		 struct run_row *out, struct trace_list *out_trace, struct err *e)
{
	struct store_value in[1] = {SV_TEXT(id)};
	scope_buf struct buf text = BUF_NONE;
	size_t length;
	const char *points;
	int got;

	if (op_run_get(context, caller, id, out, e) != 0)
		return -1;
	buf_init(&text, 2 * TRACE_COLUMN_BYTES);
	got = store_query_row(context->db, STMT_RUN_TRACE, in, ARRAY_LEN(in), e);
	if (got <= 0)
		return got < 0 ? -1 : err_show(e, ERR_NOT_FOUND, "There is no such run.");
	for (unsigned int i = 0; i < 2; i++) {
		points = store_bytes(context->db, i, &length);
		buf_add(&text, points, length);
	}
	store_done(context->db);
	if (!buf_ok(&text))
		return err_set(e, buf_error(&text), 0, "trace of run %s", id);
	trace_decode(buf_text(&text), text.len, out_trace);
	return 0;
}

int op_run_list(struct handler_context *context, const struct principal *caller, const char *cursor,
		const char *phase, size_t limit, struct run_row *rows, size_t *out_count,
		struct err *e)
{
	/* above every UUID */
	const char *below = cursor == NULL ? "g" : cursor;
	struct store_value all[] = {SV_TEXT(caller->tenant), SV_TEXT(caller->user), SV_TEXT(below),
				    SV_I64((int64_t)limit + 1)};
	struct store_value some[] = {SV_TEXT(caller->tenant), SV_TEXT(caller->user), SV_TEXT(below),
				     SV_TEXT(phase), SV_I64((int64_t)limit + 1)};
	size_t count = 0;
	int got;

	if (phase == NULL)
		got = store_query(context->db, STMT_RUN_LIST, all, ARRAY_LEN(all), e);
	else
		got = store_query(context->db, STMT_RUN_LIST_PHASE, some, ARRAY_LEN(some), e);
	if (got != 0)
		return -1;
	while ((got = store_next(context->db, e)) == 1 && count <= limit)
		if (read_row(context->db, 0, &rows[count++], e) != 0)
			break;
	store_done(context->db);
	if (e->code != ERR_NONE)
		return -1;
	*out_count = count;
	return 0;
}

/* --- create
 * ---------------------------------------------------------------------------------------------------
 */

struct create_work {
	struct handler_context *context;
	const struct principal *caller;
	struct run_create *request;
	struct run_created *out;
	const char *spec_text;
	size_t spec_length;
	int64_t run_us; /* in which one of the waiting runs starts */
};

/* 1: answered by an earlier request (out is filled), 0: the key is free, -1 error. */
static int check_key(struct store *db, struct create_work *w, const struct op_idem *idem,
		     struct err *e)
{
	struct op_idem_found found;
	int got = op_idem_find(db, w->caller, idem, &found, e);

	if (got != 1)
		return got;
	memcpy(w->out->prior_id, found.object, sizeof(w->out->prior_id));
	memcpy(w->out->prior_created_at, found.created_at, sizeof(w->out->prior_created_at));
	w->out->result = found.same ? RUN_REPLAYED : RUN_CONFLICT;
	return 1;
}

struct queue_quota {
	enum statement count;
	int64_t limit;
	const char *tag; /* whose waiting runs count; empty: not given */
	const char *reason;
	const char *scope;
};

/* The quotas of queued runs, in the contract's order (section 2.4); a tag counts within its user.
 */
static int check_quotas(struct store *db, struct create_work *w, struct err *e)
{
	const struct policy *p = w->context->policy;
	const struct run_row *row = &w->request->row;
	const struct queue_quota quotas[] = {
	    {STMT_QUEUE_COUNT_USER, p->queue.max_per_user, w->caller->user,
	     "user_queue_quota_exceeded", "user_id"},
	    {STMT_QUEUE_COUNT_PERSONA, p->queue.max_per_persona, row->persona_id,
	     "persona_queue_quota_exceeded", "persona_id"},
	    {STMT_QUEUE_COUNT_WORKSPACE, p->queue.max_per_workspace, row->workspace_id,
	     "workspace_queue_quota_exceeded", "workspace_id"},
	    {STMT_QUEUE_COUNT_GROUP, p->queue.max_per_workspace_group, row->workspace_group_id,
	     "workspace_group_queue_quota_exceeded", "workspace_group_id"},
	};

	for (size_t i = 0; i < ARRAY_LEN(quotas); i++) {
		struct store_value in[] = {SV_TEXT(p->node), SV_TEXT(w->caller->tenant),
					   SV_TEXT(w->caller->user), SV_TEXT(quotas[i].tag)};
		int64_t waiting;

		if (quotas[i].limit <= 0 || quotas[i].tag[0] == '\0')
			continue;
		if (store_query_row(db, quotas[i].count, in, i == 0 ? 3 : 4, e) != 1)
			return -1;
		waiting = store_i64(db, 0);
		store_done(db);
		if (waiting < quotas[i].limit)
			continue;
		w->out->queue_reason = quotas[i].reason;
		w->out->queue_scope = quotas[i].scope;
		w->out->queue_limit = quotas[i].limit;
		w->out->result = RUN_QUEUE_FULL;
		return 1;
	}
	return 0;
}

/* 1: over a limit (out is filled), 0: there is room, -1 error. */
static int check_queue(struct store *db, struct create_work *w, int64_t waiting, struct err *e)
{
	const struct policy *policy = w->context->policy;

	if (waiting >= policy->queue.max_length) {
		w->out->queue_reason = "queue_capacity_exceeded";
		w->out->queue_scope = "global";
		w->out->queue_limit = policy->queue.max_length;
		w->out->result = RUN_QUEUE_FULL;
		return 1;
	}
	return check_quotas(db, w, e);
}

static const char *or_null(const char *text)
{
	return text[0] == '\0' ? NULL : text;
}

static bool is_in_sandbox(const struct run_create *r)
{
	return r->spec->sandbox != NULL && r->spec->sandbox[0] != '\0';
}

static int insert_job(struct store *db, struct create_work *w, struct err *e)
{
	const struct policy *policy = w->context->policy;
	struct run_create *r = w->request;
	struct store_value job[] = {SV_TEXT(r->row.id),
				    SV_TEXT(w->caller->tenant),
				    SV_TEXT(w->caller->user),
				    SV_TEXT(policy->node),
				    SV_BYTES(w->spec_text, w->spec_length),
				    SV_TEXT(r->request_id),
				    SV_I64(policy->queue.ttl_sec),
				    SV_TEXT(r->row.session_id)};

	if (r->row.session_id[0] != '\0')
		return store_exec(db, STMT_JOB_INSERT_SESSION, job, ARRAY_LEN(job), NULL, e);
	return store_exec(db, is_in_sandbox(r) ? STMT_JOB_INSERT_EXEC : STMT_JOB_INSERT, job,
			  ARRAY_LEN(job) - 1, NULL, e);
}

static int insert_run(struct store *db, struct create_work *w, int64_t waiting, struct err *e)
{
	const struct policy *policy = w->context->policy;
	struct run_create *r = w->request;
	struct run_row *row = &r->row;
	struct store_value run[27];
	char trace[TRACE_PART_BYTES];
	size_t n = 0;

	(void)trace_encode(&w->context->trace, TRACE_ACCEPTED, TRACE_LOCKED, trace);
	run[n++] = SV_TEXT(row->id);
	run[n++] = SV_TEXT(r->face);
	run[n++] = SV_TEXT(w->caller->tenant);
	run[n++] = SV_TEXT(w->caller->user);
	run[n++] = SV_TEXT(w->caller->key_id);
	run[n++] = SV_TEXT(policy->node);
	run[n++] = SV_I64((int64_t)store_insert_id(db));
	run[n++] = SV_TEXT(r->request_id);
	run[n++] = SV_TEXT(or_null(row->session_id));
	run[n++] = SV_TEXT(row->spec_version);
	run[n++] = SV_TEXT(row->runtime);
	run[n++] = SV_TEXT(or_null(row->runtime_version));
	run[n++] = SV_TEXT(or_null(row->base_image));
	run[n++] = SV_TEXT(or_null(row->image_digest));
	run[n++] = SV_TEXT(row->policy_hash);
	run[n++] = SV_TEXT(row->trust_level);
	run[n++] = SV_TEXT(r->network);
	run[n++] = SV_I64(row->interactive ? 1 : 0);
	run[n++] = row->resume_from_seq > 0 ? SV_I64(row->resume_from_seq) : SV_NULL;
	run[n++] = SV_TEXT(or_null(row->persona_id));
	run[n++] = SV_TEXT(or_null(row->workspace_id));
	run[n++] = SV_TEXT(or_null(row->workspace_group_id));
	run[n++] = SV_TEXT(or_null(row->scope_snapshot_id));
	run[n++] = SV_TEXT(or_null(trace));
	run[n++] = SV_TEXT(is_in_sandbox(r) ? r->spec->sandbox : NULL);
	run[n++] = SV_I64(waiting * w->run_us);
	return store_exec(db, STMT_RUN_INSERT, run, n, NULL, e);
}

/* 1: the session is gone (out says so), 0: it is locked and takes the run, -1. */
static int check_session(struct store *db, struct create_work *w, struct err *e)
{
	struct store_value id[] = {SV_TEXT(w->request->row.session_id)};
	int got = store_query_row(db, STMT_SESSION_LOCK, id, 1, e);
	bool usable;

	if (got < 0)
		return -1;
	usable = got == 1 && str_equal(store_text(db, 0), session_state_name(SESSION_ACTIVE)) &&
		 store_i64(db, 7) == 0;
	store_done(db);
	if (usable)
		return 0;
	w->out->result = RUN_NO_SESSION;
	return 1;
}

/* The session's delete removes the artifacts of its runs. */
static int note_session_run(struct store *db, const struct run_create *r, struct err *e)
{
	struct store_value in[] = {SV_TEXT(r->row.session_id), SV_TEXT(r->row.id)};

	return r->row.session_id[0] == '\0'
		   ? 0
		   : store_exec(db, STMT_SESSION_RUN_INSERT, in, ARRAY_LEN(in), NULL, e);
}

/* Over a limit of active runs it waits until one of them ends. */
static int park_job(struct store *db, const struct create_work *w, uint64_t job, struct err *e)
{
	const struct run_row *row = &w->request->row;
	const struct park_tags tags = {.tenant = w->caller->tenant,
				       .user = w->caller->user,
				       .persona = row->persona_id,
				       .workspace = row->workspace_id,
				       .group = row->workspace_group_id};
	struct store_value id[] = {SV_I64((int64_t)job)};
	int got;

	if (is_in_sandbox(w->request) || !park_is_on(w->context->policy))
		return 0;
	/* it counts itself: so it is parked before, and let go where that is possible */
	if (store_exec(db, STMT_JOB_PARK, id, 1, NULL, e) != 0)
		return -1;
	got = park_judge(db, w->context->policy, &tags, e);
	if (got != 0)
		return got < 0 ? -1 : 0;
	return store_exec(db, STMT_JOB_UNPARK, id, 1, NULL, e);
}

static int create_body(struct store *db, void *arg, struct err *e)
{
	struct create_work *w = arg;
	struct run_create *r = w->request;
	const struct policy *policy = w->context->policy;
	struct store_value tenant[] = {SV_TEXT(policy->node), SV_I64(policy->queue.max_length),
				       SV_TEXT(policy->node), SV_TEXT(w->caller->tenant)};
	const struct op_idem idem = {
	    .endpoint = r->endpoint, .key = r->idempotency_key, .fingerprint = r->fingerprint};
	int64_t waiting;
	uint64_t job;
	int got;

	w->out->result = RUN_CREATED;
	trace_mark(&w->context->trace, TRACE_BEGUN);
	got = store_query_row(db, STMT_TENANT_LOCK_COUNT, tenant, ARRAY_LEN(tenant), e);
	if (got < 0)
		return -1;
	if (got == 0)
		return err_set(e, ERR_INTERNAL, 0, "tenant %s has no row", w->caller->tenant);
	waiting = store_i64(db, 1);
	w->run_us = store_i64(db, 2);
	if (w->run_us <= 0)
		w->run_us = policy->queue.estimated_wait_per_run_ms * CLOCK_US_PER_MS;
	store_done(db);
	trace_mark(&w->context->trace, TRACE_LOCKED);
	if (r->idempotency_key != NULL) {
		got = check_key(db, w, &idem, e);
		if (got != 0)
			return got < 0 ? -1 : 0;
	}
	/* a command in a sandbox waits for nothing but its agent */
	got = is_in_sandbox(r) ? 0 : check_queue(db, w, waiting, e);
	if (got != 0)
		return got < 0 ? -1 : 0;
	if (r->row.session_id[0] != '\0') {
		got = check_session(db, w, e);
		if (got != 0)
			return got < 0 ? -1 : 0;
	}
	if (insert_job(db, w, e) != 0)
		return -1;
	job = store_insert_id(db);
	if (insert_run(db, w, waiting, e) != 0 || note_session_run(db, r, e) != 0 ||
	    park_job(db, w, job, e) != 0)
		return -1;
	return r->idempotency_key == NULL ? 0
					  : op_idem_reserve(db, w->caller, &idem, r->row.id,
							    policy->idempotency.ttl_sec, e);
}

int op_check_space(const char *data_dir, int64_t min_free_pct, struct err *e)
{
	struct statvfs info;

	if (statvfs(data_dir, &info) != 0)
		return err_set(e, ERR_IO, errno, "statvfs %s", data_dir);
	if (info.f_blocks > 0 && info.f_bavail * 100 / info.f_blocks < (uint64_t)min_free_pct)
		return err_set(e, ERR_STORAGE, 0, "%s has less than %d%% free", data_dir,
			       (int)min_free_pct);
	return 0;
}

/* Writes the inline files' bytes to staging, on disk before the transaction that names them. */
static int stage_blob(struct handler_context *context, struct run_create *r, struct err *e)
{
	char path[SPOOL_PATH_BYTES];
	char parent[SPOOL_PATH_BYTES];
	char *slash;
	scope_close int fd = -1;

	if (spool_folder(path, context->policy->paths.data, "staging", r->row.id, e) != 0)
		return -1;
	(void)snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	*slash = '\0';
	/* the group comes from the folder above (setgid); a chmod by a non-member would lose it */
	if (mkdir(parent, 0770) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "mkdir %s", parent);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (fd < 0)
		return err_set(e, ERR_IO, errno, "create %s", path);
	if (fd_write_full(fd, r->blob, r->blob_length, e) != 0 || fdatasync(fd) != 0) {
		(void)err_set(e, ERR_IO, errno, "write %s", path);
		(void)unlink(path);
		return -1;
	}
	r->spec->blob_bytes = r->blob_length;
	(void)SHA256((const unsigned char *)r->blob, r->blob_length, r->spec->blob_sha256);
	return 0;
}

static void unstage_blob(struct handler_context *context, const struct run_create *r)
{
	char path[SPOOL_PATH_BYTES];
	struct err ignored = ERR_INIT;

	if (r->blob != NULL &&
	    spool_folder(path, context->policy->paths.data, "staging", r->row.id, &ignored) == 0)
		(void)unlink(path);
}

/* A COMMIT whose answer was lost: the row tells whether it happened. */
static int resolve_unknown(struct create_work *w, struct err *e)
{
	struct err again = ERR_INIT;
	struct run_row row;

	if (load_row(w->context->db, w->request->row.id, &row, &again) == 0) {
		err_clear(e);
		w->out->result = RUN_CREATED;
		return 0;
	}
	if (again.code == ERR_NOT_FOUND) {
		err_clear(e);
		return err_set(e, ERR_UNAVAILABLE, 0, "the commit did not happen");
	}
	return -1;
}

void op_run_announce(struct handler_context *context, const char *id)
{
	(void)notify_send(context->to_runner, "run", id, NOTICE_QUEUED);
}

/* No key and no limit but the queue's length: judged by the procedure itself. */
static bool is_plain(const struct create_work *w)
{
	const struct policy *p = w->context->policy;

	if (w->request->idempotency_key != NULL || w->request->row.session_id[0] != '\0')
		return false;
	return is_in_sandbox(w->request) ||
	       (!park_is_on(p) && p->queue.max_length > 0 && p->queue.max_per_user == 0 &&
		p->queue.max_per_persona == 0 && p->queue.max_per_workspace == 0 &&
		p->queue.max_per_workspace_group == 0);
}

/* Everything of a plain request in one round trip: 1 it is stored, 0 take the long way, which says
 * why not or tries again, -1 nobody knows. */
static int create_at_once(struct create_work *w, struct err *e)
{
	const struct policy *policy = w->context->policy;
	struct run_create *r = w->request;
	struct run_row *row = &r->row;
	struct store_value in[28];
	char trace[TRACE_PART_BYTES];
	struct run_row found;
	size_t n = 0;

	trace_mark(&w->context->trace, TRACE_BEGUN);
	(void)trace_encode(&w->context->trace, TRACE_ACCEPTED, TRACE_BEGUN, trace);
	in[n++] = SV_TEXT(row->id);
	in[n++] = SV_TEXT(r->face);
	in[n++] = SV_TEXT(w->caller->tenant);
	in[n++] = SV_TEXT(w->caller->user);
	in[n++] = SV_TEXT(w->caller->key_id);
	in[n++] = SV_TEXT(policy->node);
	in[n++] = SV_TEXT(r->request_id);
	in[n++] = SV_TEXT(or_null(row->session_id));
	in[n++] = SV_TEXT(row->spec_version);
	in[n++] = SV_TEXT(row->runtime);
	in[n++] = SV_TEXT(or_null(row->runtime_version));
	in[n++] = SV_TEXT(or_null(row->base_image));
	in[n++] = SV_TEXT(or_null(row->image_digest));
	in[n++] = SV_TEXT(row->policy_hash);
	in[n++] = SV_TEXT(row->trust_level);
	in[n++] = SV_TEXT(r->network);
	in[n++] = SV_I64(row->interactive ? 1 : 0);
	in[n++] = row->resume_from_seq > 0 ? SV_I64(row->resume_from_seq) : SV_NULL;
	in[n++] = SV_TEXT(or_null(row->persona_id));
	in[n++] = SV_TEXT(or_null(row->workspace_id));
	in[n++] = SV_TEXT(or_null(row->workspace_group_id));
	in[n++] = SV_TEXT(or_null(row->scope_snapshot_id));
	in[n++] = SV_TEXT(or_null(trace));
	in[n++] = SV_BYTES(w->spec_text, w->spec_length);
	in[n++] = SV_I64(policy->queue.ttl_sec);
	in[n++] = SV_I64(policy->queue.max_length);
	in[n++] = SV_I64(policy->queue.estimated_wait_per_run_ms * CLOCK_US_PER_MS);
	in[n++] = SV_TEXT(is_in_sandbox(r) ? r->spec->sandbox : NULL);
	if (store_exec(w->context->db, STMT_RUN_ACCEPT, in, n, NULL, e) == 0)
		return 1;
	if (e->code == ERR_CONFLICT) {
		err_clear(e);
		return 0;
	}
	if (e->code != ERR_UNAVAILABLE)
		return -1;
	/* the connection broke, or a deadlock: the row tells whether it happened */
	err_clear(e);
	if (load_row(w->context->db, row->id, &found, e) == 0)
		return 1;
	if (e->code != ERR_NOT_FOUND) {
		e->code = ERR_UNKNOWN_OUTCOME;
		return -1;
	}
	err_clear(e);
	return 0;
}

int op_run_create(struct handler_context *context, const struct principal *caller,
		  struct run_create *request, struct run_created *out, struct err *e)
{
	struct create_work w = {
	    .context = context, .caller = caller, .request = request, .out = out};
	scope_buf struct buf spec = BUF_NONE;
	int result;

	memset(out, 0, sizeof(*out));
	buf_init(&spec, LIMIT_SPEC_BYTES);
	if (ident_uuid(request->row.id, e) != 0 ||
	    op_check_space(context->policy->paths.data, context->policy->data.min_free_pct, e) != 0)
		return -1;
	if (request->blob != NULL && stage_blob(context, request, e) != 0)
		return -1;
	result = spec_encode(request->spec, &spec, e);
	if (result == 0) {
		w.spec_text = buf_text(&spec);
		w.spec_length = spec.len;
		result = is_plain(&w) ? create_at_once(&w, e) : 0;
		if (result == 0)
			result = store_retry(context->db, create_body, &w, e);
		else if (result == 1)
			result = 0; /* out->result is RUN_CREATED */
		if (result != 0 && e->code == ERR_UNKNOWN_OUTCOME)
			result = resolve_unknown(&w, e);
	}
	/* after an unknown outcome the run may exist: its staging is swept when no row names it */
	if ((result != 0 && e->code != ERR_UNKNOWN_OUTCOME) ||
	    (result == 0 && out->result != RUN_CREATED))
		unstage_blob(context, request);
	if (result != 0)
		return -1;
	if (out->result == RUN_CREATED) {
		trace_mark(&context->trace, TRACE_COMMITTED);
		memcpy(context->traced_run, request->row.id, sizeof(context->traced_run));
		/* all that a wait needs; who answers now reads the row */
		out->row = request->row;
		out->row.phase = RUN_QUEUED;
		return str_copy(out->row.node, sizeof(out->row.node), context->policy->node);
	}
	if (out->result == RUN_REPLAYED)
		return load_row(context->db, out->prior_id, &out->row, e);
	return 0;
}

/* --- cancel
 * ---------------------------------------------------------------------------------------------------
 */

struct cancel_work {
	const char *id;
	uint64_t job_id;
	bool ended;
};

/* Lock order: job, then run (the claim cannot take them in the other order). */
static int cancel_body(struct store *db, void *arg, struct err *e)
{
	struct cancel_work *w = arg;
	struct store_value job[] = {SV_I64((int64_t)w->job_id)};
	struct store_value run[] = {SV_TEXT(w->id)};
	struct store_value end[] = {SV_TEXT("killed"), SV_TEXT("finished"),
				    SV_TEXT("canceled_by_user"), SV_TEXT(w->id)};
	enum run_phase phase;
	bool waiting = false;
	int got = store_query_row(db, STMT_JOB_GET_LOCKED, job, 1, e);

	w->ended = false;
	if (got < 0)
		return -1;
	if (got == 1) {
		waiting = !str_equal(store_text(db, 0), "claimed");
		store_done(db);
	}
	got = store_query_row(db, STMT_RUN_GET_LOCKED, run, 1, e);
	if (got <= 0)
		return got < 0 ? -1 : err_show(e, ERR_NOT_FOUND, "There is no such run.");
	if (run_phase_parse(store_text(db, 0), &phase) != 0)
		return err_set(e, ERR_INTERNAL, 0, "unknown phase");
	store_done(db);
	if (run_phase_terminal(phase))
		return 0;
	if (store_exec(db, STMT_RUN_CANCEL_WISH, run, 1, NULL, e) != 0)
		return -1;
	if (!waiting)
		return 0;
	w->ended = true;
	if (store_exec(db, STMT_RUN_END_QUEUED, end, ARRAY_LEN(end), NULL, e) != 0)
		return -1;
	return store_exec(db, STMT_JOB_DELETE, job, 1, NULL, e);
}

int op_run_cancel(struct handler_context *context, const struct principal *caller, const char *id,
		  struct run_row *out, struct err *e)
{
	struct cancel_work w;

	if (op_run_get(context, caller, id, out, e) != 0)
		return -1;
	if (run_phase_terminal(out->phase))
		return 0;
	w.id = out->id;
	w.job_id = out->job_id;
	w.ended = false;
	if (store_retry(context->db, cancel_body, &w, e) != 0)
		return -1;
	if (w.ended)
		(void)notify_send(context->to_gate, "run", out->id, NOTICE_ENDED);
	else
		(void)notify_send(context->to_runner, "run", out->id, NOTICE_CANCEL);
	return load_row(context->db, id, out, e);
}

/* --- artifacts
 * ------------------------------------------------------------------------------------------------
 */

static void read_artifact(const struct store *db, struct artifact_row *row)
{
	const char *path = store_bytes(db, 1, &row->path_length);

	row->ordinal = (uint32_t)store_i64(db, 0);
	row->size_bytes = (uint64_t)store_i64(db, 2);
	row->mtime_sec = store_i64(db, 3);
	if (row->path_length >= sizeof(row->path))
		row->path_length = 0;
	memcpy(row->path, path, row->path_length);
	row->path[row->path_length] = '\0';
}

int op_artifact_list(struct handler_context *context, const char *run_id,
		     void (*each)(const struct artifact_row *row, void *arg), void *arg,
		     struct err *e)
{
	struct store_value in[] = {SV_TEXT(run_id)};
	struct artifact_row row;
	int got;

	if (store_query(context->db, STMT_ARTIFACT_LIST, in, 1, e) != 0)
		return -1;
	while ((got = store_next(context->db, e)) == 1) {
		read_artifact(context->db, &row);
		each(&row, arg);
	}
	return got;
}

int op_artifact_find(struct handler_context *context, const char *run_id, const char *path,
		     size_t path_length, struct artifact_row *out, struct err *e)
{
	unsigned char hash[SHA256_DIGEST_LENGTH];
	struct store_value in[] = {SV_TEXT(run_id), SV_BYTES(hash, sizeof(hash))};
	int got;

	(void)SHA256((const unsigned char *)path, path_length, hash);
	got = store_query_row(context->db, STMT_ARTIFACT_FIND, in, ARRAY_LEN(in), e);
	if (got < 0)
		return -1;
	if (got == 1) {
		read_artifact(context->db, out);
		store_done(context->db);
		if (out->path_length == path_length && memcmp(out->path, path, path_length) == 0)
			return 0;
	}
	return err_show(e, ERR_NOT_FOUND, "This run has no such artifact.");
}
