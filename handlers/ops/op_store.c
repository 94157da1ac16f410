#include "handlers/ops/op_store.h"

#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/store_sandbox.h"

static const char no_operation[] = "There is no such operation.";

static int begin_body(struct store *db, void *arg, struct err *e)
{
	return store_operation_insert(db, arg, e);
}

/* A runner of this node that has beaten lately: else nobody would ever answer. */
static int runner_lives(struct handler_context *context, struct err *e)
{
	const struct policy *policy = context->policy;
	struct store_value in[] = {SV_TEXT(policy->node),
				   SV_I64(policy->runner.dead_after_ms / 1000 + 1)};
	int got = store_query_row(context->db, STMT_RUNNER_LIVES, in, ARRAY_LEN(in), e);

	store_done(context->db);
	return got;
}

static json_t *list_or_null(json_t *list)
{
	return list == NULL ? json_null() : json_incref(list);
}

/* A COMMIT whose answer was lost: the row tells whether it happened. */
static int resolve_unknown(struct handler_context *context, const char *id, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	struct err again = ERR_INIT;
	int got = store_query_row(context->db, STMT_OPERATION_GET, in, 1, &again);

	store_done(context->db);
	if (got < 0)
		return -1;
	err_clear(e);
	return got == 1 ? 0 : err_set(e, ERR_UNAVAILABLE, 0, "the commit did not happen");
}

int op_store_begin(struct handler_context *context, const struct principal *caller,
		   const struct store_wish *wish, const char *request_id,
		   char out_id[IDENT_UUID_SIZE], bool *out_away, struct err *e)
{
	scope_json json_t *spec =
	    json_pack("{s:o, s:o}", "action_types", list_or_null(wish->action_types), "run_ids",
		      list_or_null(wish->run_ids));
	scope_buf struct buf text = BUF_NONE;
	struct operation_rows rows = {.operation = out_id,
				      .kind = wish->remove ? JOB_STORE_CLEANUP : JOB_STORE_PLAN,
				      .sandbox = "",
				      .tenant = caller->tenant,
				      .user = caller->user,
				      .node = context->policy->node,
				      .request_id = request_id};
	int got = runner_lives(context, e);

	buf_init(&text, LIMIT_SPEC_BYTES);
	*out_away = got == 0;
	if (got < 0)
		return -1;
	if (got == 0)
		return err_set(e, ERR_UNAVAILABLE, 0, "no runner of this node lives");
	if (spec == NULL)
		return err_set(e, ERR_NOMEM, 0, "store");
	if (json_write(&text, spec, e) != 0 || ident_uuid(out_id, e) != 0)
		return -1;
	rows.spec = buf_text(&text);
	rows.spec_length = text.len;
	got = store_retry(context->db, begin_body, &rows, e);
	if (got != 0 && e->code == ERR_UNKNOWN_OUTCOME)
		got = resolve_unknown(context, out_id, e);
	if (got == 0)
		(void)notify_send(context->to_runner, "run", out_id, NOTICE_QUEUED);
	return got;
}

static int read_operation(struct store *db, const struct principal *caller,
			  struct store_operation *out, struct err *e)
{
	enum job_kind kind;
	size_t length;
	const char *text;

	if (job_kind_parse(store_text(db, 0), &kind) != 0 || !job_kind_is_store(kind) ||
	    (caller->role != ROLE_OPERATOR && !str_equal(caller->tenant, store_text(db, 1))))
		return err_show(e, ERR_NOT_FOUND, no_operation);
	out->remove = kind == JOB_STORE_CLEANUP;
	if (str_copy(out->node, sizeof(out->node), store_text(db, 3)) != 0 ||
	    operation_state_parse(store_text(db, 4), &out->state) != 0 ||
	    str_copy(out->error, sizeof(out->error), store_text(db, 5)) != 0)
		return err_set(e, ERR_INTERNAL, 0, "an operation has a wrong row");
	text = store_bytes(db, 6, &length);
	return length == 0 ? 0 : json_parse(text, length, &out->result, e);
}

int op_store_get(struct handler_context *context, const struct principal *caller, const char *id,
		 struct store_operation *out, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got;

	memset(out, 0, sizeof(*out));
	if (!ident_is_uuid(id))
		return err_show(e, ERR_NOT_FOUND, no_operation);
	got = store_query_row(context->db, STMT_OPERATION_STORE, in, 1, e);
	if (got == 0)
		return err_show(e, ERR_NOT_FOUND, no_operation);
	if (got < 0)
		return -1;
	got = read_operation(context->db, caller, out, e);
	store_done(context->db);
	return got;
}
