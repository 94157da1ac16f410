/*
 * Face 1: the cleanup of the image store and of the stores of runs, and the repair of machines on
 * Macs (contract sections 4.4, 4.5). A plan or a cleanup is an operation that the runner carries
 * out; the request is held meanwhile.
 */
#include "handlers/runs/admin.h"
#include "handlers/runs/common.h"
#include "handlers/runs/diagnostics.h"
#include "handlers/runs/runs.h"

#include "handlers/authn.h"
#include "handlers/hold.h"
#include "handlers/ops/op_store.h"
#include "handlers/reply.h"
#include "runners/base/limits.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define HOLD_MS      INT64_C(60000)
#define RUN_IDS_MOST 1000

static const char *const action_types[][2] = {
    {"planning_only_run_manifest", "remove_run_manifest"},
    {"inactive_run", "remove_run_directory"},
    {"legacy_run_directory", "remove_legacy_run_directory"},
};

struct cleanup_body {
	struct field_bool dry_run;
	struct field_bool confirm_all;
	struct field_value action_types;
	struct field_value run_ids;
};

static const struct field cleanup_fields[] = {
    {"dry_run", FIELD_BOOL, offsetof(struct cleanup_body, dry_run)},
    {"confirm_all", FIELD_BOOL, offsetof(struct cleanup_body, confirm_all)},
    {"action_types", FIELD_ARRAY, offsetof(struct cleanup_body, action_types)},
    {"run_ids", FIELD_ARRAY, offsetof(struct cleanup_body, run_ids)},
};

struct repair_body {
	struct field_bool stale;
	struct field_bool unhealthy;
	struct field_bool terminate;
	struct field_bool dry_run;
};

static const struct field repair_fields[] = {
    {"delete_stale_session_controls", FIELD_BOOL, offsetof(struct repair_body, stale)},
    {"delete_unhealthy_session_controls", FIELD_BOOL, offsetof(struct repair_body, unhealthy)},
    {"terminate_orphaned_vms", FIELD_BOOL, offsetof(struct repair_body, terminate)},
    {"dry_run", FIELD_BOOL, offsetof(struct repair_body, dry_run)},
};

const struct field_table admin_cleanup_table = {cleanup_fields, ARRAY_LEN(cleanup_fields)};
const struct field_table admin_repair_table = {repair_fields, ARRAY_LEN(repair_fields)};

static void fail_unavailable(struct http_response *response, const char *message,
			     const char *reason)
{
	reply_fail(response, &face_runs, 503, "image_store_cleanup_unavailable", message,
		   json_pack("{s:[s]}", "reasons", reason));
}

/* The body may be missing: an empty object then. NULL: the refusal is in response. */
static json_t *read_body(const struct http_request *request, struct http_response *response)
{
	json_t *object;

	if (request->body_length > 0)
		return runs_read_object(request, response);
	object = json_object();
	if (object == NULL)
		reply_no_memory(response, &face_runs);
	return object;
}

/* True when there are none; else the 422, and the problems are released. */
static bool no_problems(struct problems *p, struct http_response *response)
{
	bool any = problems_any(p);

	if (any)
		runs_fail_fields(response, 422, "validation_error", "The request has wrong values.",
				 p);
	problems_release(p);
	return !any;
}

static bool is_action(const char *text)
{
	for (size_t i = 0; text != NULL && i < ARRAY_LEN(action_types); i++)
		if (str_equal(action_types[i][1], text))
			return true;
	return false;
}

static void check_lists(const struct cleanup_body *body, struct problems *p)
{
	char name[64];

	if (json_array_size(body->run_ids.value) > RUN_IDS_MOST)
		problems_add(p, "run_ids", "at most 1000", "run_ids may have at most 1000 entries");
	for (size_t i = 0; i < json_array_size(body->action_types.value); i++) {
		(void)snprintf(name, sizeof(name), "action_types[%zu]", i);
		if (!is_action(json_text(json_array_get(body->action_types.value, i))))
			problems_add(p, name,
				     "remove_run_manifest, remove_run_directory, "
				     "remove_legacy_run_directory",
				     "%s is no type of action", name);
	}
	for (size_t i = 0; i < json_array_size(body->run_ids.value); i++) {
		const char *text = json_text(json_array_get(body->run_ids.value, i));

		(void)snprintf(name, sizeof(name), "run_ids[%zu]", i);
		if (text == NULL || text[0] == '\0' || strlen(text) > LIMIT_ID_BYTES)
			problems_add(p, name, "a text of 1 to 255 bytes",
				     "%s must be a text of 1 to 255 bytes", name);
	}
}

static bool is_on(const struct field_bool *field, bool otherwise)
{
	return field->state == FIELD_SET ? field->value : otherwise;
}

static json_t *list_of(const struct field_value *field)
{
	return field->state == FIELD_SET ? field->value : NULL;
}

/* --- the wish -------------------------------------------------------------------------------- */

static void begin(struct handler_context *context, const struct http_request *request,
		  const struct principal *caller, const struct store_wish *wish, const char *as,
		  struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct hold hold = {.kind = "store", .accepted_ms = now_ms, .until_ms = now_ms + HOLD_MS};
	char id[IDENT_UUID_SIZE];
	bool away;
	struct err e = ERR_INIT;

	if (op_store_begin(context, caller, wish, request->request_id, id, &away, &e) != 0) {
		if (away)
			fail_unavailable(response,
					 "The runner of this host is away. Nothing was done.",
					 "runner_unavailable");
		else
			reply_err(response, &face_runs, request, &e);
		return;
	}
	log_event(LOG_INFO, "operation_accepted", "req=%s operation=%s kind=%s tenant=%s user=%s",
		  request->request_id, id, wish->remove ? "store_cleanup" : "store_plan",
		  caller->tenant, caller->user);
	(void)snprintf(hold.as, sizeof(hold.as), "%s", as);
	hold_redirect(response, context->policy->node, id, &hold, caller);
}

void runs_admin_plan(struct handler_context *context, const struct http_request *request,
		     const struct route_match *match, const struct principal *caller,
		     struct http_response *response)
{
	struct store_wish wish = {.remove = false};

	(void)match;
	if (admin_may(caller, response))
		begin(context, request, caller, &wish, "plan", response);
}

void runs_admin_cleanup(struct handler_context *context, const struct http_request *request,
			const struct route_match *match, const struct principal *caller,
			struct http_response *response)
{
	scope_json json_t *object = NULL;
	struct store_wish wish;
	struct cleanup_body body;
	struct problems p;

	(void)match;
	if (!admin_may(caller, response))
		return;
	object = read_body(request, response);
	if (object == NULL)
		return;
	memset(&body, 0, sizeof(body));
	problems_init(&p);
	fields_decode(object, "", cleanup_fields, ARRAY_LEN(cleanup_fields), &body, &p);
	check_lists(&body, &p);
	if (!no_problems(&p, response))
		return;
	wish.remove = !is_on(&body.dry_run, true);
	wish.action_types = list_of(&body.action_types);
	wish.run_ids = list_of(&body.run_ids);
	if (wish.remove && !admin_may_operate(caller, response))
		return;
	/* an empty list fits nothing, and is no filter that somebody thought about */
	if (wish.remove && !is_on(&body.confirm_all, false) &&
	    json_array_size(wish.action_types) == 0 && json_array_size(wish.run_ids) == 0) {
		reply_fail(response, &face_runs, 400, "image_store_cleanup_confirmation_required",
			   "Removing all that is planned needs confirm_all true, or a filter.",
			   NULL);
		return;
	}
	begin(context, request, caller, &wish, "cleanup", response);
}

/* --- after the hold -------------------------------------------------------------------------- */

static const char *action_of(const char *reason)
{
	for (size_t i = 0; i < ARRAY_LEN(action_types); i++)
		if (str_equal(action_types[i][0], reason))
			return action_types[i][1];
	return "remove_legacy_run_directory";
}

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_text(json_object_get(object, name));

	return text == NULL ? "" : text;
}

struct summed {
	json_int_t planned;
	json_int_t deleted;
	json_int_t of[ARRAY_LEN(action_types)];
};

/* The actions of a result: what is not live. */
static json_t *encode_actions(const json_t *items, struct summed *sum)
{
	json_t *actions = json_array();

	for (size_t i = 0; i < json_array_size(items); i++) {
		const json_t *item = json_array_get(items, i);
		const char *reason = text_of(item, "gc_reason");
		scope_json json_t *action = NULL;

		for (size_t k = 0; k < ARRAY_LEN(action_types); k++)
			if (str_equal(action_types[k][0], reason))
				sum->of[k]++;
		if (json_is_true(json_object_get(item, "live")))
			continue;
		sum->planned++;
		if (str_equal(text_of(item, "status"), "deleted"))
			sum->deleted++;
		action = diagnostics_store_item(item);
		if (json_object_set_new(action, "type", json_string(action_of(reason))) == 0 &&
		    json_object_set(action, "status", json_object_get(item, "status")) == 0 &&
		    json_object_set(action, "error", json_object_get(item, "error")) == 0 &&
		    json_array_append(actions, action) == 0)
			continue;
		json_decref(actions);
		return NULL;
	}
	return actions;
}

static json_t *encode_reasons(const json_t *result)
{
	json_t *reasons = json_array();
	int bad = 0;

	if (json_integer_value(json_object_get(result, "blocked_live_matches")) > 0)
		bad |=
		    json_array_append_new(reasons, json_string("live_vm_matches_blocked_cleanup"));
	if (json_is_true(json_object_get(result, "truncated")))
		bad |= json_array_append_new(reasons, json_string("candidates_truncated"));
	if (bad == 0)
		return reasons;
	json_decref(reasons);
	return NULL;
}

static json_t *encode(const struct policy *policy, const struct store_operation *operation,
		      bool with_deleted)
{
	const json_t *result = operation->result;
	const json_t *items = json_object_get(result, "items");
	struct summed sum;
	scope_json json_t *actions = NULL;
	scope_json json_t *summary = NULL;

	memset(&sum, 0, sizeof(sum));
	actions = encode_actions(items, &sum);
	summary = json_pack("{s:I, s:I, s:O, s:I, s:I, s:I}", "total_candidates",
			    (json_int_t)json_array_size(items), "planned_actions", sum.planned,
			    "blocked_live_matches", json_object_get(result, "blocked_live_matches"),
			    "planning_only_run_manifests", sum.of[0], "inactive_runs", sum.of[1],
			    "legacy_run_directories", sum.of[2]);
	if (with_deleted &&
	    json_object_set_new(summary, "deleted_actions", json_integer(sum.deleted)) != 0)
		return NULL;
	return json_pack("{s:b, s:o, s:O, s:O, s:o}", "dry_run", !operation->remove, "image_store",
			 diagnostics_image_store(policy, result), "summary", summary, "actions",
			 actions, "reasons", encode_reasons(result));
}

static void answer(const struct handler_context *context, const struct hold *hold, const char *id,
		   const struct store_operation *operation, struct http_response *response)
{
	if (operation->state == OPERATION_SUCCEEDED && operation->result != NULL)
		reply_json(response, 200,
			   encode(context->policy, operation, str_equal(hold->as, "cleanup")));
	else if (operation_terminal(operation->state))
		fail_unavailable(response, "The runner of this host could not do it.",
				 operation->error[0] == '\0' ? "store_unavailable"
							     : operation->error);
	else if (operation->remove)
		reply_fail(response, &face_runs, 502, "outcome_unknown",
			   "The cleanup has not ended yet; it goes on. Ask for a plan later.",
			   json_pack("{s:s}", "id", id));
	else
		fail_unavailable(response, "The runner of this host does not answer.",
				 "runner_unavailable");
}

void runs_render_store(struct handler_context *context, const struct http_request *request,
		       const struct route_match *match, const struct principal *nobody,
		       struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	const char *id = match->params[1];
	struct store_operation operation;
	struct principal caller;
	struct hold hold;
	struct err e = ERR_INIT;

	(void)nobody;
	if (!request->internal || hold_parse(request, &hold, &e) != 0) {
		if (e.code == ERR_NOMEM)
			reply_no_memory(response, &face_runs);
		else
			reply_fail(response, &face_runs, 404, "not_found", "There is no such path.",
				   NULL);
		return;
	}
	if (authn_check(context, request, false, hold.accepted_ms, &caller, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
		return;
	}
	if (!admin_may(&caller, response))
		return;
	if (op_store_get(context, &caller, id, &operation, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
	} else if (!operation_terminal(operation.state) && now_ms < hold.until_ms &&
		   hold.tries < HOLD_MAX_TRIES) {
		hold.tries++;
		hold.kind = "store";
		hold_redirect(response, operation.node, id, &hold, &caller);
	} else {
		answer(context, &hold, id, &operation, response);
	}
	json_decref(operation.result);
}

/* --- repair ---------------------------------------------------------------------------------- */

/* There is no helper here that could be asked: a dry run says so, anything else is refused. */
void runs_admin_repair(struct handler_context *context, const struct http_request *request,
		       const struct route_match *match, const struct principal *caller,
		       struct http_response *response)
{
	scope_json json_t *object = NULL;
	struct repair_body body;
	struct problems p;

	(void)context;
	(void)match;
	if (!admin_may(caller, response))
		return;
	object = read_body(request, response);
	if (object == NULL)
		return;
	memset(&body, 0, sizeof(body));
	problems_init(&p);
	fields_decode(object, "", repair_fields, ARRAY_LEN(repair_fields), &body, &p);
	if (!no_problems(&p, response))
		return;
	if (!is_on(&body.dry_run, true)) {
		reply_fail(response, &face_runs, 503, "macos_virtualization_helper_unavailable",
			   "This host has no helper for Macs. Nothing was changed.", NULL);
		return;
	}
	reply_json(response, 200,
		   json_pack("{s:b, s:o, s:{s:i, s:i, s:i, s:i, s:i, s:i}, s:[], s:[s]}", "dry_run",
			     1, "helper", diagnostics_helper(), "summary", "stale_session_controls",
			     0, "unhealthy_session_controls", 0, "deleted_session_controls", 0,
			     "skipped_active_sessions", 0, "orphaned_vms", 0,
			     "terminated_orphaned_vms", 0, "actions", "reasons",
			     DIAGNOSTICS_HELPER_AWAY));
}
