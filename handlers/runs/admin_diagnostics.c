/* Face 1: the diagnostics of operators, and of a workspace: read only. */
#include "handlers/runs/admin.h"
#include "handlers/runs/diagnostics.h"
#include "handlers/runs/runs.h"
#include "handlers/runs/runtimes.h"

#include "handlers/reply.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

/* The rows of discovery as they are now; NULL and e. */
static json_t *discover(struct handler_context *context, struct err *e)
{
	const struct runtime_facts *facts = op_runtime_facts(context, false, e);
	json_t *rows;

	if (facts == NULL)
		return NULL;
	rows = runtimes_encode(context->policy, facts, "mariadb");
	if (rows == NULL)
		(void)err_set(e, ERR_NOMEM, 0, "discovery");
	return rows;
}

void runs_admin_runtimes(struct handler_context *context, const struct http_request *request,
			 const struct route_match *match, const struct principal *caller,
			 struct http_response *response)
{
	scope_json json_t *rows = NULL;
	struct err e = ERR_INIT;

	(void)match;
	if (!admin_may(caller, response))
		return;
	rows = discover(context, &e);
	if (rows == NULL)
		reply_err(response, &face_runs, request, &e);
	else
		reply_json(response, 200, diagnostics_runtimes(rows));
}

void runs_admin_macos(struct handler_context *context, const struct http_request *request,
		      const struct route_match *match, const struct principal *caller,
		      struct http_response *response)
{
	scope_json json_t *rows = NULL;
	scope_json json_t *seen = NULL;
	struct err e = ERR_INIT;

	(void)match;
	if (!admin_may(caller, response))
		return;
	rows = discover(context, &e);
	if (rows == NULL || op_store_seen(context, &seen, &e) < 0)
		reply_err(response, &face_runs, request, &e);
	else
		reply_json(response, 200, diagnostics_macos(context->policy, rows, seen));
}

/* What cannot be read is a section that says so, not a refusal. */
void runs_admin_operator(struct handler_context *context, const struct http_request *request,
			 const struct route_match *match, const struct principal *caller,
			 struct http_response *response)
{
	scope_json json_t *rows = NULL;
	scope_json json_t *seen = NULL;
	scope_json json_t *runtimes = NULL;
	scope_json json_t *macos = NULL;
	scope_json json_t *evidence = diagnostics_no_evidence();
	struct err e = ERR_INIT;

	(void)match;
	(void)request;
	if (!admin_may(caller, response))
		return;
	rows = discover(context, &e);
	if (rows != NULL) {
		runtimes = diagnostics_runtimes(rows);
		if (op_store_seen(context, &seen, &e) >= 0)
			macos = diagnostics_macos(context->policy, rows, seen);
	}
	reply_json(response, 200, diagnostics_operator(runtimes, macos, evidence));
}

/* --- of a workspace -------------------------------------------------------------------------- */

struct workspace_list {
	const struct policy *policy;
	json_t *items;
};

static int add_run(const struct run_row *row, void *arg)
{
	struct workspace_list *list = arg;

	return json_array_append_new(list->items, admin_run(list->policy, row, false, false));
}

/* False: the refusal is in response. */
static bool read_label(struct admin_query *q, struct http_response *response)
{
	const char *label = admin_query_text(q, "source_label", LIMIT_ID_BYTES);

	if (label == NULL || str_equal(label, "research_workspace"))
		return admin_query_fits(q, response);
	reply_fail(response, &face_runs, 400, "invalid_source_label",
		   "source_label must be research_workspace.",
		   json_pack("{s:[s]}", "allowed", "research_workspace"));
	return false;
}

static json_t *encode_workspace(const char *workspace, const json_t *rows,
				const struct admin_page *page, json_t *items)
{
	scope_buf struct buf link = BUF_NONE;
	scope_json json_t *states = diagnostics_workspace(rows);
	json_t *out;

	buf_init(&link, 4096);
	buf_add_str(&link, "/admin/monitoring?focus=sandbox&workspace_id=");
	str_percent_encode(&link, workspace, strlen(workspace), "");
	if (!buf_ok(&link)) {
		json_decref(items);
		return NULL;
	}
	out = json_pack("{s:s, s:s, s:{s:I, s:I, s:b, s:o}, s:{s:s, s:s}}", "workspace_id",
			workspace, "source_label", "research_workspace", "runs", "total",
			(json_int_t)page->total, "limit", (json_int_t)page->limit, "has_more",
			page->has_more, "items", items, "links", "runtime_config",
			"/admin/runtime-config", "admin_runs", buf_text(&link));
	if (json_object_update(out, states) == 0)
		return out;
	json_decref(out);
	return NULL;
}

static void answer_workspace(struct handler_context *context, const struct http_request *request,
			     const char *workspace, const struct principal *caller,
			     struct admin_page *page, struct http_response *response)
{
	struct workspace_list list = {.policy = context->policy};
	scope_json json_t *rows = NULL;
	struct err e = ERR_INIT;

	rows = discover(context, &e);
	list.items = json_array();
	if (rows == NULL ||
	    op_workspace_runs(context, caller, workspace, page, add_run, &list, &e) != 0) {
		json_decref(list.items);
		reply_err(response, &face_runs, request, &e);
		return;
	}
	reply_json(response, 200, encode_workspace(workspace, rows, page, list.items));
}

void runs_workspace(struct handler_context *context, const struct http_request *request,
		    const struct route_match *match, const struct principal *caller,
		    struct http_response *response)
{
	const char *workspace = match->params[0];
	struct admin_page page;
	struct admin_query q;

	admin_query_init(&q, request);
	memset(&page, 0, sizeof(page));
	page.limit = 10;
	admin_query_number(&q, "limit", 1, 100, &page.limit);
	if (match->lengths[0] > LIMIT_ID_BYTES || !str_utf8_valid(workspace, match->lengths[0]))
		problems_add(&q.problems, "workspace_id", "at most 255 bytes of UTF-8",
			     "workspace_id must be at most 255 bytes of UTF-8");
	if (read_label(&q, response))
		answer_workspace(context, request, workspace, caller, &page, response);
	admin_query_release(&q);
}
