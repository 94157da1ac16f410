/* Face 1: what administrators list (contract sections 4.6 to 4.8). An admin sees its tenant, an
 * operator all tenants, or the one that its query names. */
#include "handlers/runs/admin.h"
#include "handlers/runs/runs.h"

#include "handlers/reply.h"

#define ID_BYTES 255

struct run_list {
	const struct policy *policy;
	json_t *items;
};

static int add_run(const struct run_row *row, void *arg)
{
	struct run_list *list = arg;

	return json_array_append_new(list->items, admin_run(list->policy, row, true, false));
}

/* Steals items. */
static void answer_list(struct http_response *response, const struct http_request *request,
			const struct admin_page *page, json_t *items, int result,
			const struct err *e)
{
	if (result == 0) {
		reply_json(response, 200, admin_list(page, items));
		return;
	}
	json_decref(items);
	reply_err(response, &face_runs, request, e);
}

void runs_admin_list(struct handler_context *context, const struct http_request *request,
		     const struct route_match *match, const struct principal *caller,
		     struct http_response *response)
{
	static const char *const phases[] = {"queued", "starting", "running",   "completed",
					     "failed", "killed",   "timed_out", NULL};
	struct run_list list = {.policy = context->policy};
	struct admin_runs_filter f;
	struct admin_page page;
	struct admin_query q;
	struct err e = ERR_INIT;

	(void)match;
	if (!admin_may(caller, response))
		return;
	admin_query_init(&q, request);
	admin_query_page(&q, false, &page);
	f.tenant = admin_query_tenant(&q, caller);
	f.user = admin_query_text(&q, "user_id", 64);
	f.image_digest = admin_query_text(&q, "image_digest", ID_BYTES);
	f.workspace_id = admin_query_text(&q, "workspace_id", ID_BYTES);
	f.workspace_group_id = admin_query_text(&q, "workspace_group_id", ID_BYTES);
	f.scope_snapshot_id = admin_query_text(&q, "scope_snapshot_id", ID_BYTES);
	f.phase = admin_query_choice(
	    &q, "phase", phases, "queued, starting, running, completed, failed, killed, timed_out");
	f.started_from = admin_query_time(&q, "started_at_from", false);
	f.started_to = admin_query_time(&q, "started_at_to", false);
	if (admin_query_fits(&q, response)) {
		int result;

		list.items = json_array();
		result = op_admin_runs(context, &f, &page, add_run, &list, &e);
		answer_list(response, request, &page, list.items, result, &e);
	}
	admin_query_release(&q);
}

void runs_admin_get(struct handler_context *context, const struct http_request *request,
		    const struct route_match *match, const struct principal *caller,
		    struct http_response *response)
{
	struct run_row row;
	struct err e = ERR_INIT;

	if (!admin_may(caller, response))
		return;
	if (op_run_get(context, caller, match->params[0], &row, &e) == 0)
		reply_json(response, 200, admin_run(context->policy, &row, true, true));
	else if (e.code == ERR_NOT_FOUND)
		reply_fail(response, &face_runs, 404, "run_not_found", "There is no such run.",
			   NULL);
	else
		reply_err(response, &face_runs, request, &e);
}

static int add_idempotency(const struct idempotency_row *row, void *arg)
{
	return json_array_append_new(
	    arg, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "endpoint", row->endpoint, "user_id",
			   row->user, "key", row->key, "fingerprint", row->fingerprint, "object_id",
			   row->object_id, "created_at", row->created_at));
}

void runs_admin_idempotency(struct handler_context *context, const struct http_request *request,
			    const struct route_match *match, const struct principal *caller,
			    struct http_response *response)
{
	static const char *const endpoints[] = {"sessions", "runs", NULL};
	struct admin_idempotency_filter f;
	struct admin_page page;
	struct admin_query q;
	struct err e = ERR_INIT;

	(void)match;
	if (!admin_may(caller, response))
		return;
	admin_query_init(&q, request);
	admin_query_page(&q, false, &page);
	f.tenant = admin_query_tenant(&q, caller);
	f.endpoint = admin_query_choice(&q, "endpoint", endpoints, "sessions, runs");
	f.user = admin_query_text(&q, "user_id", 64);
	f.key = admin_query_text(&q, "key", ID_BYTES);
	f.created_from = admin_query_time(&q, "created_at_from", true);
	f.created_to = admin_query_time(&q, "created_at_to", true);
	if (admin_query_fits(&q, response)) {
		json_t *items = json_array();
		int result = op_admin_idempotency(context, &f, &page, add_idempotency, items, &e);

		answer_list(response, request, &page, items, result, &e);
	}
	admin_query_release(&q);
}

static int add_usage(const struct usage_row *row, void *arg)
{
	return json_array_append_new(
	    arg, json_pack("{s:s, s:I, s:I, s:I}", "user_id", row->user, "runs_count",
			   (json_int_t)row->runs, "log_bytes", (json_int_t)row->log_bytes,
			   "artifact_bytes", (json_int_t)row->artifact_bytes));
}

void runs_admin_usage(struct handler_context *context, const struct http_request *request,
		      const struct route_match *match, const struct principal *caller,
		      struct http_response *response)
{
	const char *tenant;
	const char *user;
	struct admin_page page;
	struct admin_query q;
	struct err e = ERR_INIT;

	(void)match;
	if (!admin_may(caller, response))
		return;
	admin_query_init(&q, request);
	admin_query_page(&q, false, &page);
	tenant = admin_query_tenant(&q, caller);
	user = admin_query_text(&q, "user_id", 64);
	if (admin_query_fits(&q, response)) {
		json_t *items = json_array();
		int result = op_admin_usage(context, tenant, user, &page, add_usage, items, &e);

		answer_list(response, request, &page, items, result, &e);
	}
	admin_query_release(&q);
}
