/* Face 3: create, list, get, stop, resume, delete, and the answer after a hold. */
#include "handlers/fleet/fleet.h"

#include "handlers/admit.h"
#include "handlers/authn.h"
#include "handlers/hold.h"
#include "handlers/reply.h"
#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#define HOLD_MS  INT64_C(60000)
#define LIST_MAX 100

json_t *fleet_object(const struct http_request *request, struct http_response *response,
		     bool optional)
{
	json_t *object = NULL;
	struct err e = ERR_INIT;

	if (optional && request->body_length == 0)
		return json_object();
	if (json_parse(request->body, request->body_length, &object, &e) == 0)
		return object;
	if (e.code == ERR_INVALID || e.code == ERR_LIMIT)
		reply_fail(response, &face_fleet, 400, "INVALID_REQUEST", e.shown, NULL);
	else
		reply_err(response, &face_fleet, request, &e);
	return NULL;
}

void fleet_fail_fields(struct http_response *response, struct problems *p)
{
	json_t *details = json_object();

	if (p->failed || json_object_set(details, "fields", p->list) != 0) {
		json_decref(details);
		reply_no_memory(response, &face_fleet);
		return;
	}
	reply_fail(response, &face_fleet, 400, "INVALID_REQUEST", "The request has wrong values.",
		   details);
}

void fleet_fail(struct http_response *response, const struct http_request *request,
		const struct err *e)
{
	if (e->code == ERR_NOT_FOUND)
		reply_fail(response, &face_fleet, 404, "NOT_FOUND",
			   e->shown[0] == '\0' ? "There is no such object." : e->shown,
			   json_pack("{s:s}", "resourceType", "sandbox"));
	else
		reply_err(response, &face_fleet, request, e);
}

void fleet_fail_state(struct http_response *response, const char *code, const char *message,
		      enum sandbox_state state, const char *required)
{
	bool moving = state == SANDBOX_PENDING || state == SANDBOX_PROVISIONING ||
		      state == SANDBOX_STOPPING || state == SANDBOX_DELETING;

	reply_fail(response, &face_fleet, 409, code, message,
		   json_pack("{s:s, s:s, s:b}", "currentState", sandbox_state_name(state),
			     "requiredState", required, "retryable", moving));
}

/* Parks the request until the operation has ended. */
static void wait_for(const struct handler_context *context, const char *as, const char *operation,
		     const struct principal *caller, struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct hold hold = {
	    .kind = "operation", .accepted_ms = now_ms, .until_ms = now_ms + HOLD_MS};

	(void)snprintf(hold.as, sizeof(hold.as), "%s", as);
	hold_redirect(response, context->policy->node, operation, &hold, caller);
}

static void answer_sandbox(const struct handler_context *context, int status,
			   const struct sandbox_row *row, struct http_response *response)
{
	reply_json(response, status, fleet_sandbox(context->policy, row));
}

/* --- create ---------------------------------------------------------------------------------- */

static int64_t lower(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void fill_disk(const struct policy *policy, const struct fleet_body *body,
		      struct run_spec *spec)
{
	int64_t mb = policy->sandbox.disk_mb;

	spec->persistent = !(body->ephemeral.state == FIELD_SET && body->ephemeral.value);
	if (!spec->persistent)
		return; /* a tmpfs, by the tier's cap */
	if (body->disk_gb.state == FIELD_SET)
		mb = body->disk_gb.value * 1024;
	spec->workspace_bytes = lower(mb, policy->box.disk_max_mb) << 20;
	spec->workspace_inodes = policy->sandbox.disk_inodes;
}

static json_t *kept_request(const json_t *object)
{
	json_t *kept = json_object();
	static const char *const names[] = {"name", "metadata"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		json_t *value = json_object_get(object, names[i]);

		if (value != NULL && !json_is_null(value) &&
		    json_object_set(kept, names[i], value) != 0) {
			json_decref(kept);
			return NULL;
		}
	}
	return kept;
}

static void fail_full(struct http_response *response, const struct sandbox_made *made)
{
	bool tenant = made->result == SANDBOX_FULL_TENANT;

	reply_fail(response, &face_fleet, tenant ? 429 : 503,
		   tenant ? "QUOTA_EXCEEDED" : "HOST_UNAVAILABLE",
		   tenant ? "The tenant has as many sandboxes as it may have: delete one."
			  : "The host runs as many sandboxes as it can. Try again later.",
		   json_pack("{s:s, s:I, s:I}", "quotaType",
			     tenant ? "sandboxes" : "running_sandboxes", "current",
			     (json_int_t)made->used, "limit", (json_int_t)made->limit));
	http_response_header(response, "Retry-After", "10");
}

static void create(struct handler_context *context, const struct http_request *request,
		   const struct principal *caller, const json_t *object,
		   const struct fleet_body *body, struct run_spec *spec,
		   struct http_response *response)
{
	const struct policy *policy = context->policy;
	struct admit_request ask = {.base_image = policy->images.items[0].key,
				    .has_cpu = body->cpu_cores.state == FIELD_SET,
				    .cpu = body->cpu_cores.value};
	scope_json json_t *kept = kept_request(object);
	struct sandbox_create wish = {.face = FLEET,
				      .request_id = request->request_id,
				      .lifetime_sec = policy->sandbox.default_lifetime_sec,
				      .spec = spec,
				      .request = kept};
	struct admitted admitted;
	struct api_error refusal;
	struct sandbox_made made;
	struct err e = ERR_INIT;

	if (body->memory_mb.state == FIELD_SET)
		ask.memory_mb = body->memory_mb.value;
	if (body->lifetime_sec.state == FIELD_SET)
		wish.lifetime_sec = body->lifetime_sec.value;
	wish.lifetime_sec = lower(wish.lifetime_sec, policy->sandbox.max_lifetime_sec);
	if (kept == NULL) {
		reply_no_memory(response, &face_fleet);
		return;
	}
	if (admit_run(policy, &ask, spec, &admitted, &refusal, &e) != 0) {
		if (refusal.status != 0)
			reply_error(response, &face_fleet, &refusal);
		else
			reply_err(response, &face_fleet, request, &e);
		return;
	}
	fill_disk(policy, body, spec);
	if (op_sandbox_create(context, caller, &wish, &made, &e) != 0) {
		reply_err(response, &face_fleet, request, &e);
		return;
	}
	if (made.result != SANDBOX_DONE) {
		fail_full(response, &made);
		return;
	}
	log_event(LOG_INFO, "sandbox_accepted", "req=%s sandbox=%s operation=%s tenant=%s",
		  request->request_id, made.id, made.operation, caller->tenant);
	wait_for(context, "create", made.operation, caller, response);
}

void fleet_create(struct handler_context *context, const struct http_request *request,
		  const struct route_match *match, const struct principal *caller,
		  struct http_response *response)
{
	scope_json json_t *object = fleet_object(request, response, true);
	struct fleet_body body;
	struct run_spec spec;
	struct problems p;
	struct err e = ERR_INIT;
	const char *missing;

	(void)match;
	if (object == NULL)
		return;
	spec_init(&spec);
	problems_init(&p);
	fleet_decode_create(object, &body, &p);
	missing = fleet_unsupported(object);
	if (body.env.state == FIELD_SET && fleet_environment(body.env.value, &spec, &p, &e) != 0)
		reply_err(response, &face_fleet, request, &e);
	else if (problems_any(&p))
		fleet_fail_fields(response, &p);
	else if (missing != NULL)
		reply_fail(response, &face_fleet, 501, "NOT_SUPPORTED",
			   "This installation cannot do what this field asks for.",
			   json_pack("{s:s}", "field", missing));
	else
		create(context, request, caller, object, &body, &spec, response);
	problems_release(&p);
	spec_release(&spec);
}

/* --- read ------------------------------------------------------------------------------------ */

void fleet_get(struct handler_context *context, const struct http_request *request,
	       const struct route_match *match, const struct principal *caller,
	       struct http_response *response)
{
	struct sandbox_row row;
	struct err e = ERR_INIT;

	if (op_sandbox_get(context, caller, FLEET, match->params[0], &row, &e) != 0) {
		fleet_fail(response, request, &e);
		return;
	}
	if (row.state == SANDBOX_DELETED) {
		(void)err_show(&e, ERR_NOT_FOUND, "There is no such sandbox.");
		fleet_fail(response, request, &e);
	} else {
		answer_sandbox(context, 200, &row, response);
	}
	op_sandbox_release(&row);
}

void fleet_list(struct handler_context *context, const struct http_request *request,
		const struct route_match *match, const struct principal *caller,
		struct http_response *response)
{
	scope_free struct sandbox_row *rows = mem_zalloc(LIST_MAX, sizeof(*rows));
	json_t *list = json_array();
	struct err e = ERR_INIT;
	size_t count = 0;
	bool bad = false;

	(void)match;
	if (rows == NULL || list == NULL) {
		json_decref(list);
		reply_no_memory(response, &face_fleet);
		return;
	}
	if (op_sandbox_list(context, caller, FLEET, LIST_MAX, rows, &count, &e) != 0) {
		json_decref(list);
		reply_err(response, &face_fleet, request, &e);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		bad = bad ||
		      json_array_append_new(list, fleet_sandbox(context->policy, &rows[i])) != 0;
		op_sandbox_release(&rows[i]);
	}
	if (bad) {
		json_decref(list);
		reply_no_memory(response, &face_fleet);
		return;
	}
	reply_json(response, 200, json_pack("{s:o}", "sandboxes", list));
}

/* --- stop, resume, delete -------------------------------------------------------------------- */

/* 1: there is an operation to wait for, 0: answered. */
static int begin(struct handler_context *context, const struct http_request *request,
		 const struct sandbox_row *row, enum job_kind kind, struct sandbox_made *made,
		 struct http_response *response)
{
	struct err e = ERR_INIT;

	if (op_sandbox_do(context, row->id, kind, request->request_id, made, &e) != 0) {
		fleet_fail(response, request, &e);
		return 0;
	}
	if (made->result == SANDBOX_DONE) {
		log_event(LOG_INFO, "operation_accepted", "req=%s sandbox=%s operation=%s kind=%s",
			  request->request_id, row->id, made->operation, job_kind_name(kind));
		return 1;
	}
	if (made->result == SANDBOX_FULL_NODE) {
		fail_full(response, made);
		return 0;
	}
	fleet_fail_state(
	    response, "SANDBOX_NOT_READY",
	    "A lifecycle operation is already in progress, or the sandbox's state does not "
	    "allow this.",
	    made->state,
	    kind == JOB_STOP    ? "running"
	    : kind == JOB_START ? "stopped"
				: "running, stopped or failed");
	return 0;
}

static void answer_deleted(const char *id, const char *outcome, struct http_response *response)
{
	reply_json(response, 200,
		   json_pack("{s:b, s:b, s:s, s:s}", "success", true, "deleted", true, "sandboxId",
			     id, "outcome", outcome));
}

static void change(struct handler_context *context, const struct http_request *request,
		   const struct route_match *match, const struct principal *caller,
		   enum job_kind kind, enum sandbox_state wanted, struct http_response *response)
{
	struct sandbox_row row;
	struct sandbox_made made;
	struct err e = ERR_INIT;

	if (op_sandbox_get(context, caller, FLEET, match->params[0], &row, &e) != 0) {
		fleet_fail(response, request, &e);
		return;
	}
	if (row.state == SANDBOX_DELETED && kind == JOB_DELETE) {
		answer_deleted(row.id, "already_absent", response);
	} else if (row.state == SANDBOX_DELETED) {
		(void)err_show(&e, ERR_NOT_FOUND, "There is no such sandbox.");
		fleet_fail(response, request, &e);
	} else if (row.state == wanted) {
		answer_sandbox(context, 200, &row, response);
	} else if (kind == JOB_START && !row.persistent) {
		fleet_fail_state(response, "RUNTIME_GONE",
				 "An ephemeral sandbox keeps nothing that could be resumed.",
				 row.state, "running");
	} else if (begin(context, request, &row, kind, &made, response) == 1) {
		wait_for(context, kind == JOB_DELETE ? "delete" : "change", made.operation, caller,
			 response);
	}
	op_sandbox_release(&row);
}

void fleet_stop(struct handler_context *context, const struct http_request *request,
		const struct route_match *match, const struct principal *caller,
		struct http_response *response)
{
	change(context, request, match, caller, JOB_STOP, SANDBOX_STOPPED, response);
}

void fleet_resume(struct handler_context *context, const struct http_request *request,
		  const struct route_match *match, const struct principal *caller,
		  struct http_response *response)
{
	change(context, request, match, caller, JOB_START, SANDBOX_RUNNING, response);
}

void fleet_delete(struct handler_context *context, const struct http_request *request,
		  const struct route_match *match, const struct principal *caller,
		  struct http_response *response)
{
	change(context, request, match, caller, JOB_DELETE, SANDBOX_DELETED, response);
}

/* --- after the hold -------------------------------------------------------------------------- */

static void answer_operation(const struct handler_context *context, const struct hold *hold,
			     const struct operation_row *operation, const struct sandbox_row *row,
			     struct http_response *response)
{
	if (operation->state == OPERATION_FAILED) {
		reply_fail(
		    response, &face_fleet, 500, "SERVER_ERROR",
		    "The sandbox could not be changed; its error field says why.",
		    json_pack("{s:s, s:s}", "reason", operation->error, "sandboxId", row->id));
		return;
	}
	if (str_equal(hold->as, "delete") && operation->state == OPERATION_SUCCEEDED)
		answer_deleted(row->id, "destroyed", response);
	else if (str_equal(hold->as, "create"))
		answer_sandbox(context, 201, row, response);
	else
		answer_sandbox(context, operation->state == OPERATION_SUCCEEDED ? 200 : 202, row,
			       response);
}

void fleet_render_operation(struct handler_context *context, const struct http_request *request,
			    const struct route_match *match, const struct principal *nobody,
			    struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct operation_row operation;
	struct sandbox_row row;
	struct principal caller;
	struct hold hold;
	struct err e = ERR_INIT;

	(void)nobody;
	if (!request->internal || hold_parse(request, &hold, &e) != 0) {
		reply_fail(response, &face_fleet, 404, "NOT_FOUND", "There is no such path.", NULL);
		return;
	}
	if (authn_check(context, request, false, hold.accepted_ms, &caller, &e) != 0) {
		reply_err(response, &face_fleet, request, &e);
		return;
	}
	if (op_operation_get(context, match->params[1], &operation, &e) != 0 ||
	    op_sandbox_get(context, &caller, FLEET, operation.sandbox, &row, &e) != 0) {
		fleet_fail(response, request, &e);
		return;
	}
	if (!operation_terminal(operation.state) && now_ms < hold.until_ms &&
	    hold.tries < HOLD_MAX_TRIES) {
		hold.tries++;
		hold.kind = "operation";
		hold_redirect(response, operation.node, operation.id, &hold, &caller);
	} else {
		answer_operation(context, &hold, &operation, &row, response);
	}
	op_sandbox_release(&row);
}
