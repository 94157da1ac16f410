#include "runners/core/store_sandbox.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

#define SWEEP_MOST 100

int store_operation_insert(struct store *db, const struct operation_rows *rows, struct err *e)
{
	struct store_value operation[] = {
	    SV_TEXT(rows->operation), SV_TEXT(job_kind_name(rows->kind)),
	    SV_TEXT(rows->sandbox),   SV_TEXT(rows->tenant),
	    SV_TEXT(rows->user),      SV_TEXT(rows->node),
	    SV_TEXT(rows->request_id)};
	struct store_value job[] = {SV_TEXT(job_kind_name(rows->kind)),
				    SV_TEXT(rows->operation),
				    SV_TEXT(rows->tenant),
				    SV_TEXT(rows->user),
				    SV_TEXT(rows->node),
				    SV_BYTES(rows->spec, rows->spec_length),
				    SV_TEXT(rows->request_id)};

	if (store_exec(db, STMT_OPERATION_INSERT, operation, ARRAY_LEN(operation), NULL, e) != 0)
		return -1;
	return store_exec(db, STMT_JOB_INSERT_OPERATION, job, ARRAY_LEN(job), NULL, e);
}

/* While it waits for a runner: a start is pending, the others are under way at once, so that no
 * second one is accepted. */
static enum sandbox_state state_at_once(enum job_kind kind)
{
	return kind == JOB_START ? SANDBOX_PENDING : sandbox_during(kind);
}

static int judge_room(struct store *db, struct sandbox_wish *w, const char *node, struct err *e)
{
	struct store_value in[] = {SV_TEXT(node)};

	if (store_query_row(db, STMT_SANDBOX_COUNT_NODE, in, 1, e) != 1)
		return -1;
	w->running = store_i64(db, 0);
	store_done(db);
	w->full = w->running >= w->most;
	return 0;
}

int store_sandbox_body(struct store *db, void *arg, struct err *e)
{
	struct sandbox_wish *w = arg;
	struct store_value id[] = {SV_TEXT(w->sandbox)};
	struct store_value state[] = {SV_TEXT(sandbox_state_name(state_at_once(w->kind))),
				      SV_TEXT(w->sandbox)};
	struct operation_rows rows = {.operation = w->operation,
				      .kind = w->kind,
				      .sandbox = w->sandbox,
				      .request_id = w->request_id};
	scope_free char *spec = NULL;
	char tenant[65];
	char user[65];
	char node[65];
	const char *text;
	int got = store_query_row(db, STMT_SANDBOX_LOCK, id, 1, e);

	w->missing = got == 0;
	w->refused = false;
	w->full = false;
	if (got <= 0)
		return got;
	if (sandbox_state_parse(store_text(db, 0), &w->state) != 0 ||
	    str_copy(tenant, sizeof(tenant), store_text(db, 1)) != 0 ||
	    str_copy(user, sizeof(user), store_text(db, 2)) != 0 ||
	    str_copy(node, sizeof(node), store_text(db, 3)) != 0)
		return err_set(e, ERR_INTERNAL, 0, "sandbox %s has a wrong row", w->sandbox);
	text = store_bytes(db, 4, &rows.spec_length);
	spec = mem_dup_bytes(text, rows.spec_length);
	store_done(db);
	if (spec == NULL)
		return err_set(e, ERR_NOMEM, 0, "sandbox");
	w->refused = !sandbox_accepts(w->state, w->kind);
	if (w->refused)
		return 0;
	if (w->kind == JOB_START && w->most > 0 && judge_room(db, w, node, e) != 0)
		return -1;
	if (w->full)
		return 0;
	if (ident_uuid(w->operation, e) != 0)
		return -1;
	rows.tenant = tenant;
	rows.user = user;
	rows.node = node;
	rows.spec = spec;
	if (store_exec(db, STMT_SANDBOX_STATE, state, ARRAY_LEN(state), NULL, e) != 0)
		return -1;
	return store_operation_insert(db, &rows, e);
}

int sweep_sandboxes(struct store *db, const char *node, size_t *out_count, struct err *e)
{
	struct store_value in[] = {SV_TEXT(node)};
	char ids[SWEEP_MOST][IDENT_UUID_SIZE];
	size_t count = 0;
	int got;

	*out_count = 0;
	if (store_query(db, STMT_SANDBOX_EXPIRED, in, 1, e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && count < SWEEP_MOST)
		if (str_copy(ids[count], IDENT_UUID_SIZE, store_text(db, 0)) == 0)
			count++;
	store_done(db);
	if (got < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct sandbox_wish wish = {
		    .sandbox = ids[i], .kind = JOB_STOP, .request_id = "lifetime"};

		/* each by itself: one lock at a time */
		if (store_retry(db, store_sandbox_body, &wish, e) != 0)
			return -1;
		if (!wish.missing && !wish.refused)
			(*out_count)++;
	}
	return 0;
}
