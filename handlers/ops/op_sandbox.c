#include "handlers/ops/op_sandbox.h"

#include "handlers/admit.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/store_sandbox.h"

#define REQUEST_BYTES (512U << 10)

static const char no_sandbox[] = "There is no such sandbox.";

void op_sandbox_release(struct sandbox_row *row)
{
	spec_release(&row->spec);
	json_decref(row->request);
	row->request = NULL;
}

static void column(char *out, size_t size, const struct store *db, unsigned int i)
{
	if (str_copy(out, size, store_text(db, i)) != 0)
		out[0] = '\0';
}

/* Reads the columns of SANDBOX_GET and SANDBOX_LIST. */
static int read_row(const struct store *db, struct sandbox_row *row, struct err *e)
{
	struct err ignored = ERR_INIT;
	size_t length;
	const char *text;

	memset(row, 0, sizeof(*row));
	spec_init(&row->spec);
	column(row->id, sizeof(row->id), db, 0);
	column(row->face, sizeof(row->face), db, 1);
	column(row->tenant, sizeof(row->tenant), db, 2);
	column(row->user, sizeof(row->user), db, 3);
	column(row->node, sizeof(row->node), db, 4);
	if (sandbox_state_parse(store_text(db, 5), &row->state) != 0)
		return err_set(e, ERR_INTERNAL, 0, "sandbox %s has an unknown state", row->id);
	column(row->error, sizeof(row->error), db, 6);
	row->persistent = store_i64(db, 7) != 0;
	row->lifetime_sec = store_i64(db, 8);
	text = store_bytes(db, 9, &length);
	if (spec_decode(text, length, &row->spec, e) != 0)
		return -1;
	text = store_bytes(db, 10, &length);
	if (json_parse(text, length, &row->request, &ignored) != 0)
		row->request = NULL;
	op_iso_time(row->created_at, store_text(db, 11));
	op_iso_time(row->started_at, store_text(db, 12));
	op_iso_time(row->stopped_at, store_text(db, 13));
	op_iso_time(row->expires_at, store_text(db, 14));
	op_iso_time(row->deleted_at, store_text(db, 15));
	return 0;
}

static bool may_see(const struct principal *caller, const char *face, const struct sandbox_row *row)
{
	if (!str_equal(face, row->face))
		return false;
	if (caller->role == ROLE_OPERATOR)
		return true;
	if (!str_equal(caller->tenant, row->tenant))
		return false;
	return caller->role == ROLE_ADMIN || str_equal(caller->user, row->user);
}

int op_sandbox_get(struct handler_context *context, const struct principal *caller,
		   const char *face, const char *id, struct sandbox_row *out, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got;

	memset(out, 0, sizeof(*out));
	spec_init(&out->spec);
	if (!ident_is_uuid(id))
		return err_show(e, ERR_NOT_FOUND, no_sandbox);
	got = store_query_row(context->db, STMT_SANDBOX_GET, in, 1, e);
	if (got < 0)
		return -1;
	if (got == 0)
		return err_show(e, ERR_NOT_FOUND, no_sandbox);
	got = read_row(context->db, out, e);
	store_done(context->db);
	if (got == 0 && may_see(caller, face, out))
		return 0;
	op_sandbox_release(out);
	return got != 0 ? -1 : err_show(e, ERR_NOT_FOUND, no_sandbox);
}

int op_sandbox_list(struct handler_context *context, const struct principal *caller,
		    const char *face, size_t limit, struct sandbox_row *rows, size_t *out_count,
		    struct err *e)
{
	/* "g" is above every UUID */
	struct store_value in[] = {SV_TEXT(caller->tenant), SV_TEXT(caller->user), SV_TEXT("g"),
				   SV_TEXT(face), SV_I64((int64_t)limit)};
	size_t count = 0;
	int got;

	*out_count = 0;
	if (store_query(context->db, STMT_SANDBOX_LIST, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(context->db, e)) == 1 && count < limit) {
		if (read_row(context->db, &rows[count], e) != 0) {
			op_sandbox_release(&rows[count]);
			got = -1;
			break;
		}
		count++;
	}
	store_done(context->db);
	if (got >= 0) {
		*out_count = count;
		return 0;
	}
	while (count > 0)
		op_sandbox_release(&rows[--count]);
	return -1;
}

/* --- create ---------------------------------------------------------------------------------- */

struct create_work {
	struct handler_context *context;
	const struct principal *caller;
	struct sandbox_create *request;
	struct sandbox_made *out;
	const char *spec;
	size_t spec_length;
	const char *text;
	size_t text_length;
};

/* 1: full (out says so), 0: there is room, -1. */
static int check_room(struct store *db, struct create_work *w, struct err *e)
{
	const struct policy *policy = w->context->policy;
	const struct {
		enum statement count;
		const char *of;
		int64_t limit;
		enum sandbox_result result;
	} rooms[] = {
	    {STMT_SANDBOX_COUNT_TENANT, w->caller->tenant,
	     policy->sandbox.max_per_tenant > 0 ? policy->sandbox.max_per_tenant : INT64_MAX,
	     SANDBOX_FULL_TENANT},
	    {STMT_SANDBOX_COUNT_NODE, policy->node, policy->sandbox.max, SANDBOX_FULL_NODE},
	};

	for (size_t i = 0; i < ARRAY_LEN(rooms); i++) {
		struct store_value in[] = {SV_TEXT(rooms[i].of)};

		if (store_query_row(db, rooms[i].count, in, 1, e) != 1)
			return -1;
		w->out->used = store_i64(db, 0);
		store_done(db);
		w->out->limit = rooms[i].limit;
		w->out->result = rooms[i].result;
		if (w->out->used >= rooms[i].limit)
			return 1;
	}
	return 0;
}

static int create_body(struct store *db, void *arg, struct err *e)
{
	struct create_work *w = arg;
	struct sandbox_create *r = w->request;
	const struct policy *policy = w->context->policy;
	struct store_value tenant[] = {SV_TEXT(w->caller->tenant)};
	struct store_value in[] = {SV_TEXT(w->out->id),
				   SV_TEXT(r->face),
				   SV_TEXT(w->caller->tenant),
				   SV_TEXT(w->caller->user),
				   SV_TEXT(w->caller->key_id),
				   SV_TEXT(policy->node),
				   SV_TEXT(r->request_id),
				   SV_I64(r->spec->persistent ? 1 : 0),
				   SV_I64(r->lifetime_sec),
				   SV_BYTES(w->spec, w->spec_length),
				   SV_BYTES(w->text, w->text_length)};
	struct operation_rows rows = {.operation = w->out->operation,
				      .kind = JOB_START,
				      .sandbox = w->out->id,
				      .tenant = w->caller->tenant,
				      .user = w->caller->user,
				      .node = policy->node,
				      .request_id = r->request_id,
				      .spec = w->spec,
				      .spec_length = w->spec_length};
	int got = store_query_row(db, STMT_TENANT_LOCK, tenant, 1, e);

	if (got < 0)
		return -1;
	if (got == 0)
		return err_set(e, ERR_INTERNAL, 0, "tenant %s has no row", w->caller->tenant);
	store_done(db);
	got = check_room(db, w, e);
	if (got != 0)
		return got < 0 ? -1 : 0;
	w->out->result = SANDBOX_DONE;
	if (store_exec(db, STMT_SANDBOX_INSERT, in, ARRAY_LEN(in), NULL, e) != 0)
		return -1;
	return store_operation_insert(db, &rows, e);
}

/* A COMMIT whose answer was lost: the operation's row tells whether it happened. */
static int resolve_unknown(struct handler_context *context, const char *operation, struct err *e)
{
	struct err again = ERR_INIT;
	struct operation_row row;

	if (op_operation_get(context, operation, &row, &again) == 0) {
		err_clear(e);
		return 0;
	}
	if (again.code == ERR_NOT_FOUND) {
		err_clear(e);
		return err_set(e, ERR_UNAVAILABLE, 0, "the commit did not happen");
	}
	return -1;
}

int op_sandbox_create(struct handler_context *context, const struct principal *caller,
		      struct sandbox_create *request, struct sandbox_made *out, struct err *e)
{
	struct create_work w = {
	    .context = context, .caller = caller, .request = request, .out = out};
	scope_buf struct buf spec = BUF_NONE;
	scope_buf struct buf text = BUF_NONE;
	int result;

	memset(out, 0, sizeof(*out));
	buf_init(&spec, LIMIT_SPEC_BYTES);
	buf_init(&text, REQUEST_BYTES);
	if (ident_uuid(out->id, e) != 0 || ident_uuid(out->operation, e) != 0 ||
	    op_check_space(context->policy->paths.data, context->policy->data.min_free_pct, e) != 0)
		return -1;
	mem_free(request->spec->sandbox);
	request->spec->sandbox = mem_dup(out->id);
	if (request->spec->sandbox == NULL)
		return err_set(e, ERR_NOMEM, 0, "sandbox");
	if (spec_encode(request->spec, &spec, e) != 0 ||
	    json_write(&text, request->request, e) != 0)
		return -1;
	w.spec = buf_text(&spec);
	w.spec_length = spec.len;
	w.text = buf_text(&text);
	w.text_length = text.len;
	result = store_retry(context->db, create_body, &w, e);
	if (result != 0 && e->code == ERR_UNKNOWN_OUTCOME)
		result = resolve_unknown(context, out->operation, e);
	if (result == 0 && out->result == SANDBOX_DONE)
		(void)notify_send(context->to_runner, "run", out->operation, NOTICE_QUEUED);
	return result;
}

/* --- start, stop, delete --------------------------------------------------------------------- */

int op_sandbox_do(struct handler_context *context, const char *id, enum job_kind kind,
		  const char *request_id, struct sandbox_made *out, struct err *e)
{
	struct sandbox_wish wish = {.sandbox = id,
				    .kind = kind,
				    .request_id = request_id,
				    .most = context->policy->sandbox.max};
	int result;

	memset(out, 0, sizeof(*out));
	if (str_copy(out->id, sizeof(out->id), id) != 0)
		return err_show(e, ERR_NOT_FOUND, no_sandbox);
	result = store_retry(context->db, store_sandbox_body, &wish, e);
	if (result != 0 && e->code == ERR_UNKNOWN_OUTCOME)
		result = resolve_unknown(context, wish.operation, e);
	if (result != 0)
		return -1;
	if (wish.missing)
		return err_show(e, ERR_NOT_FOUND, no_sandbox);
	memcpy(out->operation, wish.operation, sizeof(out->operation));
	out->state = wish.state;
	out->used = wish.running;
	out->limit = wish.most;
	out->result = wish.full ? SANDBOX_FULL_NODE : wish.refused ? SANDBOX_REFUSED : SANDBOX_DONE;
	if (out->result == SANDBOX_DONE)
		(void)notify_send(context->to_runner, "run", out->operation, NOTICE_QUEUED);
	return 0;
}

int op_operation_get(struct handler_context *context, const char *id, struct operation_row *out,
		     struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got = store_query_row(context->db, STMT_OPERATION_GET, in, 1, e);

	memset(out, 0, sizeof(*out));
	if (got < 0)
		return -1;
	if (got == 0)
		return err_show(e, ERR_NOT_FOUND, "There is no such operation.");
	column(out->id, sizeof(out->id), context->db, 0);
	column(out->sandbox, sizeof(out->sandbox), context->db, 2);
	column(out->node, sizeof(out->node), context->db, 5);
	column(out->error, sizeof(out->error), context->db, 7);
	got = job_kind_parse(store_text(context->db, 1), &out->kind) == 0 &&
		      operation_state_parse(store_text(context->db, 6), &out->state) == 0
		  ? 0
		  : err_set(e, ERR_INTERNAL, 0, "operation %s has a wrong row", id);
	store_done(context->db);
	return got;
}

/* --- commands -------------------------------------------------------------------------------- */

static bool has_variable(char *const *list, size_t count, const char *variable)
{
	size_t name = strcspn(variable, "=") + 1;

	for (size_t i = 0; i < count; i++)
		if (strncmp(list[i], variable, name) == 0)
			return true;
	return false;
}

/* Variables that the command does not have yet. */
static int add_environment(const char *const *lines, size_t count, struct run_spec *to,
			   struct err *e)
{
	size_t own = to->environment_count;
	char **all = mem_zalloc(own + count + 1, sizeof(*all));

	if (all == NULL)
		return err_set(e, ERR_NOMEM, 0, "environment");
	for (size_t i = 0; i < own; i++)
		all[i] = to->environment[i];
	mem_free(to->environment);
	to->environment = all;
	for (size_t i = 0; i < count; i++) {
		if (has_variable(all, own, lines[i]))
			continue;
		all[to->environment_count] = mem_dup(lines[i]);
		if (all[to->environment_count] == NULL)
			return err_set(e, ERR_NOMEM, 0, "environment");
		to->environment_count++;
	}
	return 0;
}

int op_sandbox_exec(struct handler_context *context, const struct principal *caller,
		    const struct sandbox_row *sandbox, struct run_create *create,
		    struct run_created *out, struct err *e)
{
	struct run_spec *spec = create->spec;

	mem_free(spec->sandbox);
	mem_free(spec->runtime);
	mem_free(spec->image);
	mem_free(spec->network);
	spec->sandbox = mem_dup(sandbox->id);
	spec->runtime = mem_dup(sandbox->spec.runtime);
	spec->image = mem_dup(sandbox->spec.image);
	spec->network = mem_dup(sandbox->spec.network);
	if (spec->sandbox == NULL || spec->runtime == NULL || spec->image == NULL ||
	    spec->network == NULL)
		return err_set(e, ERR_NOMEM, 0, "exec");
	spec->nofile = sandbox->spec.nofile;
	spec->pids = sandbox->spec.pids;
	spec->log_bytes = context->policy->runs.max_log_bytes;
	spec->result_bytes = context->policy->sandbox.output_bytes;
	spec->startup_timeout_ms = context->policy->runs.default_startup_timeout_sec * 1000;
	spec->cancel_grace_ms = context->policy->runs.cancel_grace_ms;
	if (add_environment((const char *const *)sandbox->spec.environment,
			    sandbox->spec.environment_count, spec, e) != 0 ||
	    add_environment(admit_environment, ADMIT_ENVIRONMENT, spec, e) != 0)
		return -1;
	create->network = sandbox->spec.network;
	return op_run_create(context, caller, create, out, e);
}

int op_run_result(struct handler_context *context, const char *run, json_t **out, struct err *e)
{
	struct store_value in[] = {SV_TEXT(run)};
	int got = store_query_row(context->db, STMT_RUN_RESULT, in, 1, e);
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
