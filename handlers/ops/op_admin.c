#include "handlers/ops/op_admin.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

/* A text that can be absent, for "? IS NULL OR column = ?". */
#define TWICE(text) SV_TEXT(text), SV_TEXT(text)

static int count_rows(struct store *db, enum statement which, const struct store_value *in,
		      size_t count, struct admin_page *page, struct err *e)
{
	int got = store_query_row(db, which, in, count, e);

	if (got < 0)
		return -1;
	page->total = got == 1 ? (uint64_t)store_i64(db, 0) : 0;
	store_done(db);
	return 0;
}

/* Calls read for each row; one more than the page holds was asked for. */
static int walk(struct store *db, struct admin_page *page,
		int (*read)(const struct store *db, void *arg, struct err *e), void *arg,
		struct err *e)
{
	uint64_t count = 0;
	int got;

	page->has_more = false;
	while ((got = store_next(db, e)) == 1) {
		if (count++ == page->limit) {
			page->has_more = true;
			break;
		}
		if (read(db, arg, e) != 0) {
			got = -1;
			break;
		}
	}
	store_done(db);
	return got < 0 ? -1 : 0;
}

/* --- runs ------------------------------------------------------------------------------------ */

struct run_reader {
	op_admin_run_fn *each;
	void *arg;
	struct run_row *row;
};

static int read_run(const struct store *db, void *arg, struct err *e)
{
	struct run_reader *r = arg;

	if (op_run_read(db, r->row, e) != 0)
		return -1;
	return r->each(r->row, r->arg) == 0 ? 0 : err_set(e, ERR_NOMEM, 0, "list");
}

static int walk_runs(struct store *db, struct admin_page *page, op_admin_run_fn *each, void *arg,
		     struct err *e)
{
	scope_free struct run_row *row = mem_zalloc(1, sizeof(*row));
	struct run_reader reader = {.each = each, .arg = arg, .row = row};

	if (row == NULL) {
		store_done(db);
		return err_set(e, ERR_NOMEM, 0, "list");
	}
	return walk(db, page, read_run, &reader, e);
}

int op_admin_runs(struct handler_context *context, const struct admin_runs_filter *f,
		  struct admin_page *page, op_admin_run_fn *each, void *arg, struct err *e)
{
	struct store_value in[] = {TWICE(f->tenant),
				   TWICE(f->user),
				   TWICE(f->image_digest),
				   TWICE(f->workspace_id),
				   TWICE(f->workspace_group_id),
				   TWICE(f->scope_snapshot_id),
				   TWICE(f->phase),
				   TWICE(f->started_from),
				   TWICE(f->started_to),
				   SV_I64(OP_ADMIN_TOTAL_MAX),
				   SV_NULL};
	size_t last = ARRAY_LEN(in) - 1;

	if (count_rows(context->db, STMT_ADMIN_RUN_COUNT, in, last, page, e) != 0)
		return -1;
	in[last - 1] = SV_I64((int64_t)page->limit + 1);
	in[last] = SV_I64((int64_t)page->offset);
	if (store_query(context->db,
			page->ascending ? STMT_ADMIN_RUN_LIST_ASC : STMT_ADMIN_RUN_LIST_DESC, in,
			ARRAY_LEN(in), e) != 0)
		return -1;
	return walk_runs(context->db, page, each, arg, e);
}

int op_workspace_runs(struct handler_context *context, const struct principal *caller,
		      const char *workspace_id, struct admin_page *page, op_admin_run_fn *each,
		      void *arg, struct err *e)
{
	struct store_value in[] = {SV_TEXT(caller->tenant), SV_TEXT(caller->user),
				   SV_TEXT(workspace_id), SV_I64(OP_ADMIN_TOTAL_MAX)};

	if (count_rows(context->db, STMT_WORKSPACE_RUN_COUNT, in, ARRAY_LEN(in), page, e) != 0)
		return -1;
	in[3] = SV_I64((int64_t)page->limit + 1);
	if (store_query(context->db, STMT_WORKSPACE_RUN_LIST, in, ARRAY_LEN(in), e) != 0)
		return -1;
	return walk_runs(context->db, page, each, arg, e);
}

/* --- idempotency ----------------------------------------------------------------------------- */

struct idempotency_reader {
	op_admin_idempotency_fn *each;
	void *arg;
};

static int copy(char *out, size_t size, const struct store *db, unsigned int i, struct err *e)
{
	return str_copy(out, size, store_text(db, i)) == 0
		   ? 0
		   : err_set(e, ERR_INTERNAL, 0, "a column is too long");
}

static int read_idempotency(const struct store *db, void *arg, struct err *e)
{
	struct idempotency_reader *r = arg;
	struct idempotency_row row;

	memset(&row, 0, sizeof(row));
	if (copy(row.endpoint, sizeof(row.endpoint), db, 0, e) != 0 ||
	    copy(row.user, sizeof(row.user), db, 1, e) != 0 ||
	    copy(row.key, sizeof(row.key), db, 2, e) != 0 ||
	    copy(row.fingerprint, sizeof(row.fingerprint), db, 3, e) != 0 ||
	    copy(row.object_id, sizeof(row.object_id), db, 4, e) != 0)
		return -1;
	op_iso_time(row.created_at, store_text(db, 5));
	return r->each(&row, r->arg) == 0 ? 0 : err_set(e, ERR_NOMEM, 0, "list");
}

int op_admin_idempotency(struct handler_context *context, const struct admin_idempotency_filter *f,
			 struct admin_page *page, op_admin_idempotency_fn *each, void *arg,
			 struct err *e)
{
	struct idempotency_reader reader = {.each = each, .arg = arg};
	struct store_value in[] = {TWICE(f->tenant),
				   TWICE(f->endpoint),
				   TWICE(f->user),
				   TWICE(f->key),
				   TWICE(f->created_from),
				   TWICE(f->created_to),
				   SV_I64(OP_ADMIN_TOTAL_MAX),
				   SV_NULL};
	size_t last = ARRAY_LEN(in) - 1;

	if (count_rows(context->db, STMT_ADMIN_IDEM_COUNT, in, last, page, e) != 0)
		return -1;
	in[last - 1] = SV_I64((int64_t)page->limit + 1);
	in[last] = SV_I64((int64_t)page->offset);
	if (store_query(context->db,
			page->ascending ? STMT_ADMIN_IDEM_LIST_ASC : STMT_ADMIN_IDEM_LIST_DESC, in,
			ARRAY_LEN(in), e) != 0)
		return -1;
	return walk(context->db, page, read_idempotency, &reader, e);
}

/* --- usage ----------------------------------------------------------------------------------- */

struct usage_reader {
	op_admin_usage_fn *each;
	void *arg;
};

static int read_usage(const struct store *db, void *arg, struct err *e)
{
	struct usage_reader *r = arg;
	struct usage_row row;

	memset(&row, 0, sizeof(row));
	if (copy(row.user, sizeof(row.user), db, 0, e) != 0)
		return -1;
	row.runs = store_i64(db, 1);
	row.log_bytes = store_i64(db, 2);
	row.artifact_bytes = store_i64(db, 3);
	return r->each(&row, r->arg) == 0 ? 0 : err_set(e, ERR_NOMEM, 0, "list");
}

int op_admin_usage(struct handler_context *context, const char *tenant, const char *user,
		   struct admin_page *page, op_admin_usage_fn *each, void *arg, struct err *e)
{
	struct usage_reader reader = {.each = each, .arg = arg};
	/* the users are those with runs and those with artifacts */
	struct store_value in[] = {
	    TWICE(tenant), TWICE(user), TWICE(tenant), TWICE(user), SV_I64(OP_ADMIN_TOTAL_MAX),
	    SV_NULL};
	size_t last = ARRAY_LEN(in) - 1;

	if (count_rows(context->db, STMT_ADMIN_USAGE_COUNT, in, last, page, e) != 0)
		return -1;
	in[last - 1] = SV_I64((int64_t)page->limit + 1);
	in[last] = SV_I64((int64_t)page->offset);
	if (store_query(context->db,
			page->ascending ? STMT_ADMIN_USAGE_LIST_ASC : STMT_ADMIN_USAGE_LIST_DESC,
			in, ARRAY_LEN(in), e) != 0)
		return -1;
	return walk(context->db, page, read_usage, &reader, e);
}
