#include "handlers/ops/op_session.h"

#include "handlers/ops/op_idem.h"
#include "handlers/ops/op_run.h"
#include "handlers/ops/op_sandbox.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

static const char no_session[] = "There is no such session.";

void op_session_release(struct session_row *row)
{
	json_decref(row->env);
	json_decref(row->labels);
	row->env = NULL;
	row->labels = NULL;
}

static void column(char *out, size_t size, const struct store *db, unsigned int i)
{
	if (str_copy(out, size, store_text(db, i)) != 0)
		out[0] = '\0';
}

static int read_object(const struct store *db, unsigned int i, json_t **out, struct err *e)
{
	size_t length;
	const char *text = store_bytes(db, i, &length);

	return json_parse(text, length, out, e);
}

/* Reads the columns of SESSION_GET and SESSION_LIST. */
static int read_row(const struct store *db, struct session_row *row, struct err *e)
{
	memset(row, 0, sizeof(*row));
	column(row->id, sizeof(row->id), db, 0);
	column(row->tenant, sizeof(row->tenant), db, 1);
	column(row->user, sizeof(row->user), db, 2);
	column(row->node, sizeof(row->node), db, 3);
	if (session_state_parse(store_text(db, 4), &row->state) != 0)
		return err_set(e, ERR_INTERNAL, 0, "session %s has an unknown state", row->id);
	column(row->name, sizeof(row->name), db, 5);
	column(row->spec_version, sizeof(row->spec_version), db, 6);
	column(row->runtime, sizeof(row->runtime), db, 7);
	column(row->base_image, sizeof(row->base_image), db, 8);
	row->cpu_milli = store_i64(db, 9);
	row->memory_mb = store_i64(db, 10);
	row->timeout_sec = store_i64(db, 11);
	column(row->network_policy, sizeof(row->network_policy), db, 12);
	column(row->trust_level, sizeof(row->trust_level), db, 13);
	column(row->policy_hash, sizeof(row->policy_hash), db, 14);
	column(row->persona_id, sizeof(row->persona_id), db, 17);
	column(row->workspace_id, sizeof(row->workspace_id), db, 18);
	column(row->workspace_group_id, sizeof(row->workspace_group_id), db, 19);
	column(row->scope_snapshot_id, sizeof(row->scope_snapshot_id), db, 20);
	row->workspace_bytes = store_i64(db, 21);
	row->workspace_inodes = store_i64(db, 22);
	op_iso_time(row->created_at, store_text(db, 23));
	op_iso_time(row->expires_at, store_text(db, 24));
	row->expired = store_i64(db, 25) != 0;
	if (read_object(db, 15, &row->env, e) == 0 && read_object(db, 16, &row->labels, e) == 0)
		return 0;
	op_session_release(row);
	return -1;
}

static bool may_see(const struct principal *caller, const struct session_row *row)
{
	if (caller->role == ROLE_OPERATOR)
		return true;
	if (!str_equal(caller->tenant, row->tenant))
		return false;
	return caller->role == ROLE_ADMIN || str_equal(caller->user, row->user);
}

static int load_row(struct store *db, const char *id, struct session_row *out, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got = store_query_row(db, STMT_SESSION_GET, in, 1, e);

	if (got < 0)
		return -1;
	if (got == 0)
		return err_show(e, ERR_NOT_FOUND, no_session);
	got = read_row(db, out, e);
	store_done(db);
	return got;
}

int op_session_get(struct handler_context *context, const struct principal *caller, const char *id,
		   struct session_row *out, struct err *e)
{
	memset(out, 0, sizeof(*out));
	if (!ident_is_uuid(id))
		return err_show(e, ERR_NOT_FOUND, no_session);
	if (load_row(context->db, id, out, e) != 0)
		return -1;
	if (may_see(caller, out) && out->state == SESSION_ACTIVE && !out->expired)
		return 0;
	op_session_release(out);
	return err_show(e, ERR_NOT_FOUND, no_session);
}

int op_session_check(struct handler_context *context, const struct principal *caller,
		     const char *id, struct err *e)
{
	struct session_row row;
	bool visible;

	if (load_row(context->db, id, &row, e) != 0)
		return -1;
	visible = may_see(caller, &row);
	op_session_release(&row);
	return visible ? 0 : err_show(e, ERR_NOT_FOUND, no_session);
}

int op_session_active_runs(struct handler_context *context, const char *id, int64_t *out,
			   struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};

	if (store_query_row(context->db, STMT_SESSION_ACTIVE_RUNS, in, 1, e) != 1)
		return -1;
	*out = store_i64(context->db, 0);
	store_done(context->db);
	return 0;
}

int op_session_room(struct handler_context *context, struct err *e)
{
	return op_check_space(context->policy->paths.data, context->policy->data.min_free_pct, e);
}

int op_session_list(struct handler_context *context, const struct principal *caller,
		    const char *cursor, size_t limit, struct session_row *rows, size_t *out_count,
		    struct err *e)
{
	/* "g" is above every UUID */
	struct store_value in[] = {SV_TEXT(caller->tenant), SV_TEXT(caller->user),
				   SV_TEXT(cursor == NULL ? "g" : cursor),
				   SV_I64((int64_t)limit + 1)};
	size_t count = 0;
	int got;

	*out_count = 0;
	if (store_query(context->db, STMT_SESSION_LIST, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(context->db, e)) == 1 && count <= limit) {
		if (read_row(context->db, &rows[count], e) != 0) {
			got = -1;
			break;
		}
		count++;
	}
	store_done(context->db);
	*out_count = count;
	if (got >= 0)
		return 0;
	while (count > 0)
		op_session_release(&rows[--count]);
	*out_count = 0;
	return -1;
}

/* --- create ---------------------------------------------------------------------------------- */

struct create_work {
	struct handler_context *context;
	const struct principal *caller;
	struct session_create *request;
	struct session_created *out;
	const char *env;
	size_t env_length;
	const char *labels;
	size_t labels_length;
};

static const char *or_null(const char *text)
{
	return text[0] == '\0' ? NULL : text;
}

/* 1: full (out says so), 0: there is room, -1. */
static int check_room(struct store *db, struct create_work *w, struct err *e)
{
	int64_t most = w->context->policy->sessions.max_per_tenant;
	struct store_value in[] = {SV_TEXT(w->caller->tenant), SV_TEXT(w->caller->tenant)};
	int64_t have;

	if (most == 0)
		return 0;
	if (store_query_row(db, STMT_SESSION_COUNT_WITH_CLONES, in, ARRAY_LEN(in), e) != 1)
		return -1;
	have = store_i64(db, 0);
	store_done(db);
	if (have < most)
		return 0;
	w->out->result = SESSION_FULL;
	w->out->limit = most;
	return 1;
}

static int insert_session(struct store *db, const struct create_work *w, struct err *e)
{
	const struct session_row *row = &w->request->row;
	int64_t ttl = w->context->policy->sessions.ttl_sec;
	struct store_value in[] = {SV_TEXT(row->id),
				   SV_TEXT(w->caller->tenant),
				   SV_TEXT(w->caller->user),
				   SV_TEXT(w->caller->key_id),
				   SV_TEXT(w->context->policy->node),
				   SV_TEXT(w->request->request_id),
				   SV_TEXT(row->spec_version),
				   SV_TEXT(row->runtime),
				   SV_TEXT(or_null(row->base_image)),
				   SV_I64(row->cpu_milli),
				   SV_I64(row->memory_mb),
				   SV_I64(row->timeout_sec),
				   SV_TEXT(row->network_policy),
				   SV_TEXT(row->trust_level),
				   SV_TEXT(row->policy_hash),
				   SV_BYTES(w->env, w->env_length),
				   SV_BYTES(w->labels, w->labels_length),
				   SV_TEXT(or_null(row->persona_id)),
				   SV_TEXT(or_null(row->workspace_id)),
				   SV_TEXT(or_null(row->workspace_group_id)),
				   SV_TEXT(or_null(row->scope_snapshot_id)),
				   SV_I64(row->workspace_bytes),
				   SV_I64(row->workspace_inodes),
				   ttl > 0 ? SV_I64(ttl) : SV_NULL};

	return store_exec(db, STMT_SESSION_INSERT, in, ARRAY_LEN(in), NULL, e);
}

static int create_body(struct store *db, void *arg, struct err *e)
{
	struct create_work *w = arg;
	const struct session_create *r = w->request;
	const struct op_idem idem = {
	    .endpoint = "sessions", .key = r->idempotency_key, .fingerprint = r->fingerprint};
	struct op_idem_found found;
	struct store_value tenant[] = {SV_TEXT(w->caller->tenant)};
	int got = store_query_row(db, STMT_TENANT_LOCK, tenant, 1, e);

	w->out->result = SESSION_CREATED;
	if (got < 0)
		return -1;
	store_done(db);
	if (got == 0)
		return err_set(e, ERR_INTERNAL, 0, "tenant %s has no row", w->caller->tenant);
	got = idem.key == NULL ? 0 : op_idem_find(db, w->caller, &idem, &found, e);
	if (got < 0)
		return -1;
	if (got == 1) {
		memcpy(w->out->prior_id, found.object, sizeof(w->out->prior_id));
		memcpy(w->out->prior_created_at, found.created_at,
		       sizeof(w->out->prior_created_at));
		w->out->result = found.same ? SESSION_REPLAYED : SESSION_CONFLICT;
		return 0;
	}
	got = check_room(db, w, e);
	if (got != 0)
		return got < 0 ? -1 : 0;
	if (insert_session(db, w, e) != 0)
		return -1;
	return idem.key == NULL ? 0
				: op_idem_reserve(db, w->caller, &idem, r->row.id,
						  w->context->policy->idempotency.ttl_sec, e);
}

/* A COMMIT whose answer was lost: the row tells whether it happened. */
static int resolve_unknown(struct create_work *w, struct err *e)
{
	struct err again = ERR_INIT;
	struct session_row row;

	if (load_row(w->context->db, w->request->row.id, &row, &again) == 0) {
		op_session_release(&row);
		err_clear(e);
		w->out->result = SESSION_CREATED;
		return 0;
	}
	if (again.code != ERR_NOT_FOUND)
		return -1;
	err_clear(e);
	return err_set(e, ERR_UNAVAILABLE, 0, "the commit did not happen");
}

int op_session_create(struct handler_context *context, const struct principal *caller,
		      struct session_create *request, struct session_created *out, struct err *e)
{
	struct create_work w = {
	    .context = context, .caller = caller, .request = request, .out = out};
	scope_buf struct buf env = BUF_NONE;
	scope_buf struct buf labels = BUF_NONE;
	int result;

	memset(out, 0, sizeof(*out));
	/* escapes make bytes longer, six times at most */
	buf_init(&env, 8U * LIMIT_MAP_BYTES);
	buf_init(&labels, 8U * LIMIT_MAP_BYTES);
	if (ident_uuid(request->row.id, e) != 0 ||
	    op_check_space(context->policy->paths.data, context->policy->data.min_free_pct, e) !=
		0 ||
	    json_write(&env, request->row.env, e) != 0 ||
	    json_write(&labels, request->row.labels, e) != 0)
		return -1;
	w.env = buf_text(&env);
	w.env_length = env.len;
	w.labels = buf_text(&labels);
	w.labels_length = labels.len;
	result = store_retry(context->db, create_body, &w, e);
	if (result != 0 && e->code == ERR_UNKNOWN_OUTCOME)
		result = resolve_unknown(&w, e);
	if (result != 0)
		return -1;
	if (out->result == SESSION_CREATED)
		return op_session_get(context, caller, request->row.id, &out->row, e);
	if (out->result == SESSION_REPLAYED)
		return op_session_get(context, caller, out->prior_id, &out->row, e);
	return 0;
}

/* --- operations ------------------------------------------------------------------------------ */

static int resolve_operation(struct handler_context *context, const char *operation, struct err *e)
{
	struct err again = ERR_INIT;
	struct operation_row row;

	if (op_operation_get(context, operation, &row, &again) == 0) {
		err_clear(e);
		return 0;
	}
	if (again.code != ERR_NOT_FOUND)
		return -1;
	err_clear(e);
	return err_set(e, ERR_UNAVAILABLE, 0, "the commit did not happen");
}

int op_session_do(struct handler_context *context, struct session_wish *wish, struct err *e)
{
	int result = 0;

	if (wish->kind != JOB_SESSION_DELETE && wish->kind != JOB_SNAPSHOT_DELETE)
		result = op_session_room(context, e);
	if (result == 0)
		result = store_retry(context->db, store_session_body, wish, e);
	if (result != 0 && e->code == ERR_UNKNOWN_OUTCOME)
		result = resolve_operation(context, wish->operation, e);
	if (result == 0 && wish->missing)
		result = err_show(e, ERR_NOT_FOUND, no_session);
	if (result == 0 && wish->active_runs == 0 && !wish->no_snapshot && !wish->full) {
		for (size_t i = 0; i < wish->run_count; i++) {
			if (wish->runs[i].ended)
				(void)notify_send(context->to_gate, "run", wish->runs[i].run,
						  NOTICE_ENDED);
			else
				(void)notify_send(context->to_runner, "run", wish->runs[i].run,
						  NOTICE_CANCEL);
		}
		(void)notify_send(context->to_runner, "run", wish->operation, NOTICE_QUEUED);
	}
	mem_free(wish->runs);
	wish->runs = NULL;
	return result;
}

/* --- snapshots ------------------------------------------------------------------------------- */

int op_snapshot_list(struct handler_context *context, const char *session,
		     struct snapshot_row *rows, size_t *out_count, struct err *e)
{
	struct store_value in[] = {SV_TEXT(session), SV_I64(OP_SNAPSHOT_LIST_MAX)};
	size_t count = 0;
	int got;

	*out_count = 0;
	if (store_query(context->db, STMT_SNAPSHOT_LIST, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(context->db, e)) == 1 && count < OP_SNAPSHOT_LIST_MAX) {
		column(rows[count].id, sizeof(rows[count].id), context->db, 0);
		rows[count].size_bytes = (uint64_t)store_i64(context->db, 1);
		op_iso_time(rows[count].created_at, store_text(context->db, 2));
		count++;
	}
	store_done(context->db);
	*out_count = count;
	return got < 0 ? -1 : 0;
}

int op_snapshot_get(struct handler_context *context, const char *session, const char *id,
		    struct snapshot_row *out, struct err *e)
{
	struct store_value in[] = {SV_TEXT(session), SV_TEXT(id)};
	int got = store_query_row(context->db, STMT_SNAPSHOT_FIND, in, ARRAY_LEN(in), e);

	if (got < 0)
		return -1;
	if (got == 0)
		return err_show(e, ERR_NOT_FOUND, "This session has no such snapshot.");
	(void)!str_copy(out->id, sizeof(out->id), id);
	out->size_bytes = (uint64_t)store_i64(context->db, 0);
	op_iso_time(out->created_at, store_text(context->db, 1));
	store_done(context->db);
	return 0;
}

int op_operation_result(struct handler_context *context, const char *operation, json_t **out,
			struct err *e)
{
	struct store_value in[] = {SV_TEXT(operation)};
	int got = store_query_row(context->db, STMT_OPERATION_RESULT, in, 1, e);
	const char *text;
	size_t length;

	*out = NULL;
	if (got <= 0)
		return got;
	text = store_bytes(context->db, 0, &length);
	got = length == 0 ? 0 : json_parse(text, length, out, e);
	store_done(context->db);
	return got;
}
