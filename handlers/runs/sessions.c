/* Face 1: sessions: create, read, list, delete, and the answers after an operation on one. */
#include "handlers/runs/sessions.h"
#include "handlers/admit.h"
#include "handlers/authn.h"
#include "handlers/hold.h"
#include "handlers/ops/op_runtime.h"
#include "handlers/ops/op_sandbox.h"
#include "handlers/ops/op_session.h"
#include "handlers/reply.h"
#include "handlers/runs/codec_session.h"
#include "handlers/runs/common.h"
#include "handlers/runs/runs.h"
#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

/* What a runner gives an operation, and some room. */
#define WAIT_MS    360000
#define LIST_BYTES (4U << 20) /* of GET /sessions, but for one session */

/* --- create ---------------------------------------------------------------------------------- */

static const char *text_or(const struct field_text *field, const char *otherwise)
{
	return field->state == FIELD_SET ? field->value : otherwise;
}

static void copy_text(char *out, size_t size, const struct field_text *field)
{
	if (field->state == FIELD_SET && str_copy(out, size, field->value) != 0)
		out[0] = '\0';
}

static void fill_admit(struct admit_request *ask, const struct session_body *body)
{
	memset(ask, 0, sizeof(*ask));
	ask->runtime = text_or(&body->runtime, NULL);
	ask->base_image = text_or(&body->base_image, NULL);
	ask->trust_level = text_or(&body->trust_level, NULL);
	/* of a session the tier has no say in this */
	ask->network_policy = text_or(&body->network_policy, "deny_all");
	ask->has_cpu = body->cpu_limit.state == FIELD_SET;
	ask->cpu = body->cpu_limit.value;
	ask->memory_mb = body->memory_mb.state == FIELD_SET ? body->memory_mb.value : 0;
	if (body->timeout_sec.state == FIELD_NULL)
		ask->timeout_sec = -1;
	else if (body->timeout_sec.state == FIELD_SET)
		ask->timeout_sec = body->timeout_sec.value;
}

/* After the clamping: what is shown is what holds. */
static int describe(struct session_row *row, const struct session_body *body,
		    const struct admitted *admitted, const struct run_spec *spec, struct err *e)
{
	const char *version = text_or(&body->spec_version, "1.0");

	(void)snprintf(row->spec_version, sizeof(row->spec_version), "%.16s",
		       version[0] == '\0' ? "1.0" : version);
	(void)snprintf(row->runtime, sizeof(row->runtime), "%s", admitted->runtime);
	(void)snprintf(row->network_policy, sizeof(row->network_policy), "%s",
		       admitted->network_policy);
	(void)snprintf(row->trust_level, sizeof(row->trust_level), "%s", admitted->trust_level);
	(void)snprintf(row->policy_hash, sizeof(row->policy_hash), "%s", admitted->policy_hash);
	copy_text(row->base_image, sizeof(row->base_image), &body->base_image);
	copy_text(row->persona_id, sizeof(row->persona_id), &body->persona_id);
	copy_text(row->workspace_id, sizeof(row->workspace_id), &body->workspace_id);
	copy_text(row->workspace_group_id, sizeof(row->workspace_group_id),
		  &body->workspace_group_id);
	copy_text(row->scope_snapshot_id, sizeof(row->scope_snapshot_id), &body->scope_snapshot_id);
	row->cpu_milli = spec->cpu_milli;
	row->memory_mb = spec->memory_bytes >> 20;
	row->timeout_sec = spec->timeout_ms / 1000;
	row->workspace_bytes = spec->workspace_bytes;
	row->workspace_inodes = spec->workspace_inodes;
	row->env = body->env.state == FIELD_SET ? json_incref(body->env.value) : json_object();
	row->labels =
	    body->labels.state == FIELD_SET ? json_incref(body->labels.value) : json_object();
	return row->env == NULL || row->labels == NULL ? err_set(e, ERR_NOMEM, 0, "session") : 0;
}

static void fail_full(struct http_response *response, int64_t limit)
{
	reply_fail(response, &face_runs, 429, "session_quota",
		   "There are as many sessions as this tenant may have. Delete some.",
		   json_pack("{s:s, s:I}", "quota_scope", "tenant", "limit", (json_int_t)limit));
	http_response_header(response, "Retry-After", "60");
}

static void answer_created(const struct http_request *request, const struct principal *caller,
			   const struct session_create *create, struct session_created *made,
			   struct http_response *response)
{
	switch (made->result) {
	case SESSION_CONFLICT:
		runs_fail_conflict(response, made->prior_id, create->idempotency_key,
				   made->prior_created_at);
		return;
	case SESSION_FULL:
		fail_full(response, made->limit);
		return;
	case SESSION_CREATED:
	case SESSION_REPLAYED:
		break;
	}
	log_event(LOG_INFO,
		  made->result == SESSION_CREATED ? "session_created" : "session_replayed",
		  "req=%s session=%s tenant=%s", request->request_id, made->row.id, caller->tenant);
	reply_json(response, 200, codec_session(&made->row));
	op_session_release(&made->row);
}

static void create_session(struct handler_context *context, const struct http_request *request,
			   const struct principal *caller, const json_t *object,
			   const struct session_body *body, struct run_spec *spec,
			   struct http_response *response)
{
	scope_free struct session_create *create = mem_zalloc(1, sizeof(*create));
	scope_free struct session_created *made = mem_zalloc(1, sizeof(*made));
	struct admit_request ask;
	struct admitted admitted;
	struct api_error refusal = {.status = 0};
	struct err e = ERR_INIT;

	if (create == NULL || made == NULL) {
		reply_no_memory(response, &face_runs);
		return;
	}
	fill_admit(&ask, body);
	ask.facts = op_runtime_facts(
	    context, ask.runtime == NULL || str_equal(ask.runtime, "namespace"), &e);
	if (ask.facts == NULL ||
	    admit_run(context->policy, &ask, spec, &admitted, &refusal, &e) != 0) {
		runs_fail_admission(response, request, &refusal, &e);
		return;
	}
	create->request_id = request->request_id;
	if (runs_read_key(request, &create->idempotency_key, response) != 0)
		return;
	if (describe(&create->row, body, &admitted, spec, &e) != 0 ||
	    (create->idempotency_key != NULL &&
	     codec_fingerprint_session(object, create->fingerprint, &e) != 0) ||
	    op_session_create(context, caller, create, made, &e) != 0)
		runs_fail_session(response, request, &e);
	else
		answer_created(request, caller, create, made, response);
	op_session_release(&create->row);
}

void sessions_create(struct handler_context *context, const struct http_request *request,
		     const struct route_match *match, const struct principal *caller,
		     struct http_response *response)
{
	scope_json json_t *object = runs_read_object(request, response);
	struct session_body body;
	struct run_spec spec;
	struct problems p;

	(void)match;
	if (object == NULL)
		return;
	spec_init(&spec);
	problems_init(&p);
	codec_decode_session(object, &body, &p);
	if (problems_any(&p))
		runs_fail_fields(response, 422, "validation_error", "The request has wrong values.",
				 &p);
	else if (runs_version_is_good(context->policy, &body.spec_version, response))
		create_session(context, request, caller, object, &body, &spec, response);
	problems_release(&p);
	spec_release(&spec);
}

/* --- read ------------------------------------------------------------------------------------ */

void sessions_get(struct handler_context *context, const struct http_request *request,
		  const struct route_match *match, const struct principal *caller,
		  struct http_response *response)
{
	struct session_row row;
	struct err e = ERR_INIT;

	if (op_session_get(context, caller, match->params[0], &row, &e) != 0) {
		runs_fail_session(response, request, &e);
		return;
	}
	reply_json(response, 200, codec_session(&row));
	op_session_release(&row);
}

void sessions_list(struct handler_context *context, const struct http_request *request,
		   const struct route_match *match, const struct principal *caller,
		   struct http_response *response)
{
	scope_free struct session_row *rows = mem_zalloc(OP_SESSION_LIST_MAX + 1, sizeof(*rows));
	scope_buf struct buf cursor = BUF_NONE;
	uint64_t limit = 50;
	size_t count = 0;
	size_t bytes = 0;
	json_t *items = json_array();
	json_t *next;
	struct err e = ERR_INIT;
	int bad = 0;

	(void)match;
	buf_init(&cursor, 64);
	if (rows == NULL || items == NULL) {
		json_decref(items);
		reply_no_memory(response, &face_runs);
		return;
	}
	if (runs_query_limit(request, response, OP_SESSION_LIST_MAX, &limit) != 0 ||
	    runs_query_cursor(request, response, &cursor) != 0) {
		json_decref(items);
		return;
	}
	if (op_session_list(context, caller, cursor.len > 0 ? cursor.data : NULL, limit, rows,
			    &count, &e) != 0) {
		json_decref(items);
		reply_err(response, &face_runs, request, &e);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		json_t *item = i < limit ? codec_session(&rows[i]) : NULL;

		bytes += item == NULL ? 0 : json_dumpb(item, NULL, 0, JSON_COMPACT);
		/* env and labels may be large: a page is shorter then */
		if (i > 0 && i < limit && bytes > LIST_BYTES)
			limit = i;
		if (i < limit)
			bad |= json_array_append(items, item);
		json_decref(item);
		op_session_release(&rows[i]);
	}
	next = count > limit ? json_string(rows[limit - 1].id) : json_null();
	if (bad != 0) { /* a list with holes would look like a whole one */
		json_decref(items);
		json_decref(next);
		reply_no_memory(response, &face_runs);
		return;
	}
	reply_json(response, 200, json_pack("{s:o, s:o}", "items", items, "next_cursor", next));
}

/* --- operations ------------------------------------------------------------------------------ */

int sessions_begin(struct handler_context *context, const struct http_request *request,
		   const struct principal *caller, const char *id, struct session_wish *wish,
		   struct http_response *response)
{
	struct session_row row;
	struct err e = ERR_INIT;

	if (op_session_get(context, caller, id, &row, &e) != 0) {
		runs_fail_session(response, request, &e);
		return -1;
	}
	op_session_release(&row);
	wish->session = id;
	wish->request_id = request->request_id;
	if (op_session_do(context, wish, &e) != 0) {
		runs_fail_session(response, request, &e);
		return -1;
	}
	if (wish->active_runs > 0) {
		reply_fail(response, &face_runs, 409, "session_has_active_runs",
			   "The session has runs that have not ended. Wait for them, or cancel "
			   "them.",
			   json_pack("{s:I, s:s}", "active_runs", (json_int_t)wish->active_runs,
				     "session_id", id));
		return -1;
	}
	if (wish->full) {
		fail_full(response, wish->max_sessions);
		return -1;
	}
	if (!wish->no_snapshot)
		log_event(LOG_INFO, "operation_accepted", "req=%s session=%s operation=%s kind=%s",
			  request->request_id, id, wish->operation, job_kind_name(wish->kind));
	return 0;
}

void sessions_wait(const struct session_wish *wish, const char *as, const struct principal *caller,
		   struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct hold hold = {.kind = "session", .accepted_ms = now_ms, .until_ms = now_ms + WAIT_MS};

	(void)snprintf(hold.as, sizeof(hold.as), "%s", as);
	hold_redirect(response, wish->node, wish->operation, &hold, caller);
}

void sessions_delete(struct handler_context *context, const struct http_request *request,
		     const struct route_match *match, const struct principal *caller,
		     struct http_response *response)
{
	struct session_wish wish = {.kind = JOB_SESSION_DELETE};

	if (sessions_begin(context, request, caller, match->params[0], &wish, response) == 0)
		sessions_wait(&wish, "delete", caller, response);
}

/* --- after the hold -------------------------------------------------------------------------- */

struct failure {
	const char *message; /* of the operation */
	int status;
	const char *code;
	const char *text;
};

static const struct failure failures[] = {
    {"session_cancel_drain_timeout", 409, "session_cancel_drain_timeout",
     "The session's runs did not end in time. It is as it was; try again."},
    {"session_gone", 404, "session_not_found", "The session was deleted."},
    {"workspace_busy", 409, "conflict", "The session's workspace was in use for too long."},
    {"path_conflict", 409, "conflict",
     "The workspace does not take a name of the upload; details.reason says which and why."},
    {"snapshot_lost", 404, "snapshot_not_found", "The session has no such snapshot."},
    {"invalid_archive", 422, "invalid_archive",
     "An archive of the upload is damaged. Nothing of it is in the workspace."},
    {"archive_too_large", 422, "invalid_archive",
     "An archive of the upload takes more memory or time than it may. Nothing of it is in the "
     "workspace."},
    {"workspace_full", 413, "workspace_cap_exceeded",
     "The workspace has no room for this. Nothing of the part that did not fit is in it."},
    {"storage_low", 503, "storage_low", "The server is low on disk space."},
};

static void fail_operation(const struct operation_row *operation, json_t *result,
			   int64_t active_runs, struct http_response *response)
{
	json_t *details = json_object();
	static const char *const told[] = {"part", "reason"};

	for (size_t i = 0; i < ARRAY_LEN(told); i++) {
		const char *text = json_text(json_object_get(result, told[i]));

		if (text != NULL && text[0] != '\0')
			(void)json_object_set_new(details, told[i], json_string(text));
	}
	for (size_t i = 0; i < ARRAY_LEN(failures); i++) {
		const struct failure *f = &failures[i];

		if (!str_equal(f->message, operation->error))
			continue;
		if (f->status == 409)
			(void)json_object_set_new(details, "session_id",
						  json_string(operation->sandbox));
		if (str_equal(f->code, "session_cancel_drain_timeout"))
			(void)json_object_set_new(details, "active_runs",
						  json_integer(active_runs));
		reply_fail(response, &face_runs, f->status, f->code, f->text, details);
		if (f->status == 503 || str_equal(f->code, "session_cancel_drain_timeout"))
			http_response_headerf(response, "Retry-After", "%d",
					      f->status == 503 ? 30 : 5);
		return;
	}
	json_decref(details);
	reply_fail(response, &face_runs, 500, "internal_error",
		   "The operation failed. It changed nothing, or can be done again.",
		   json_pack("{s:s}", "reason", operation->error));
}

static void answer_operation(struct handler_context *context, const struct http_request *request,
			     const struct hold *hold, const struct operation_row *operation,
			     struct http_response *response)
{
	scope_json json_t *result = NULL;
	struct err e = ERR_INIT;
	int64_t active = 0;

	if (!operation_terminal(operation->state)) {
		reply_fail(response, &face_runs, 502, "outcome_unknown",
			   "The operation has not ended yet; it goes on.",
			   json_pack("{s:s}", "id", operation->id));
		return;
	}
	if (op_operation_result(context, operation->id, &result, &e) != 0 ||
	    op_session_active_runs(context, operation->sandbox, &active, &e) != 0)
		reply_err(response, &face_runs, request, &e);
	else if (operation->state == OPERATION_FAILED)
		fail_operation(operation, result, active, response);
	else if (str_equal(hold->as, "delete"))
		reply_json(response, 200, json_pack("{s:b}", "ok", true));
	else
		snapshots_answer(context, request, hold->as, operation, result, response);
}

void sessions_render(struct handler_context *context, const struct http_request *request,
		     const struct route_match *match, const struct principal *nobody,
		     struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct operation_row operation;
	struct principal caller;
	struct hold hold;
	struct err e = ERR_INIT;

	(void)nobody;
	if (!request->internal || hold_parse(request, &hold, &e) != 0) {
		reply_fail(response, &face_runs, 404, "not_found", "There is no such path.", NULL);
		return;
	}
	if (authn_check(context, request, false, hold.accepted_ms, &caller, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
		return;
	}
	if (op_operation_get(context, match->params[1], &operation, &e) != 0 ||
	    op_session_check(context, &caller, operation.sandbox, &e) != 0) {
		runs_fail_session(response, request, &e);
		return;
	}
	if (!operation_terminal(operation.state) && now_ms < hold.until_ms &&
	    hold.tries < HOLD_MAX_TRIES) {
		hold.tries++;
		hold.kind = "session";
		hold_redirect(response, operation.node, operation.id, &hold, &caller);
		return;
	}
	answer_operation(context, request, &hold, &operation, response);
}
