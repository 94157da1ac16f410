/* Face 1: POST /runs, GET /runs, GET /runs/{id}, POST cancel, and the answer after a hold. */
#include "handlers/runs/runs.h"

#include "handlers/admit.h"
#include "handlers/authn.h"
#include "handlers/hold.h"
#include "handlers/ops/op_run.h"
#include "handlers/ops/op_runtime.h"
#include "handlers/ops/op_session.h"
#include "handlers/reply.h"
#include "handlers/runs/codec.h"
#include "handlers/runs/codec_session.h"
#include "handlers/runs/common.h"
#include "handlers/runs/signed.h"
#include "runners/base/clock.h"
#include "runners/base/limits.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

/* Below nginx's proxy_read_timeout of the hold location (3900 s). */
#define HOLD_MAX_MS     INT64_C(3890000)
#define HOLD_MARGIN_MS  INT64_C(30000)
#define CORDON_VERSION  "0.1.0"
#define CANCEL_EXTRA_MS INT64_C(5000)

enum waiting { WAIT_DEFAULT, WAIT_NOT, WAIT_SECONDS };

/* Prefer: respond-async | wait=N (RFC 7240); unknown preferences are ignored, as the RFC says. */
static enum waiting read_prefer(const struct http_request *request, int64_t *out_seconds)
{
	const char *text = http_header(request, "Prefer");

	while (text != NULL && *text != '\0') {
		size_t length;
		char item[64];
		uint64_t seconds;
		struct err ignored = ERR_INIT;

		text += strspn(text, " \t,;");
		length = strcspn(text, ",;");
		if (length < sizeof(item)) {
			memcpy(item, text, length);
			item[length] = '\0';
			while (length > 0 && (item[length - 1] == ' ' || item[length - 1] == '\t'))
				item[--length] = '\0';
			if (str_equal_nocase(item, "respond-async"))
				return WAIT_NOT;
			if (strncasecmp(item, "wait=", 5) == 0 &&
			    num_u64("wait", item + 5, 0, 86400, &seconds, &ignored) == 0) {
				*out_seconds = (int64_t)seconds;
				return WAIT_SECONDS;
			}
		}
		text += strcspn(text, ",;");
	}
	return WAIT_DEFAULT;
}

static void copy_text(char *out, size_t size, const struct field_text *field)
{
	if (field->state == FIELD_SET && str_copy(out, size, field->value) != 0)
		out[0] = '\0';
}

static const char *text_or(const struct field_text *field, const char *otherwise)
{
	return field->state == FIELD_SET ? field->value : otherwise;
}

/* Fills the row's descriptive columns. */
static void describe(struct run_create *create, const struct run_body *body,
		     const struct admitted *admitted, const struct handler_context *context)
{
	struct run_row *row = &create->row;
	const char *version = text_or(&body->spec_version, "1.0");

	create->network = admitted->network_policy;
	(void)snprintf(row->spec_version, sizeof(row->spec_version), "%.16s",
		       version[0] == '\0' ? "1.0" : version);
	(void)snprintf(row->runtime, sizeof(row->runtime), "%s", admitted->runtime);
	(void)snprintf(row->runtime_version, sizeof(row->runtime_version), "%s", CORDON_VERSION);
	(void)snprintf(row->image_digest, sizeof(row->image_digest), "%s", context->image_digest);
	(void)snprintf(row->policy_hash, sizeof(row->policy_hash), "%s", admitted->policy_hash);
	(void)snprintf(row->trust_level, sizeof(row->trust_level), "%s", admitted->trust_level);
	copy_text(row->base_image, sizeof(row->base_image), &body->base_image);
	row->interactive = body->interactive.state == FIELD_SET && body->interactive.value;
	row->resume_from_seq =
	    body->resume_from_seq.state == FIELD_SET ? body->resume_from_seq.value : 0;
	copy_text(row->persona_id, sizeof(row->persona_id), &body->persona_id);
	copy_text(row->workspace_id, sizeof(row->workspace_id), &body->workspace_id);
	copy_text(row->workspace_group_id, sizeof(row->workspace_group_id),
		  &body->workspace_group_id);
	copy_text(row->scope_snapshot_id, sizeof(row->scope_snapshot_id), &body->scope_snapshot_id);
}

static void fill_admit(struct admit_request *ask, const struct run_body *body)
{
	memset(ask, 0, sizeof(*ask));
	ask->runtime = text_or(&body->runtime, NULL);
	ask->base_image = text_or(&body->base_image, "");
	ask->trust_level = text_or(&body->trust_level, NULL);
	ask->network_policy = text_or(&body->network_policy, NULL);
	ask->has_cpu = body->cpu.state == FIELD_SET;
	ask->cpu = body->cpu.value;
	ask->memory_mb = body->memory_mb.state == FIELD_SET ? body->memory_mb.value : 0;
	if (body->timeout_sec.state == FIELD_NULL)
		ask->timeout_sec = -1;
	else if (body->timeout_sec.state == FIELD_SET)
		ask->timeout_sec = body->timeout_sec.value;
	if (body->startup_timeout_sec.state == FIELD_SET)
		ask->startup_timeout_sec = body->startup_timeout_sec.value;
}

static void fail_queue_full(struct http_response *response, const struct run_created *made,
			    int64_t ttl_sec)
{
	int64_t retry = ttl_sec < 1 ? 1 : ttl_sec;

	reply_fail(response, &face_runs, 429, "queue_full", "The queue is full. Try again later.",
		   json_pack("{s:I, s:s, s:s, s:I}", "retry_after", (json_int_t)retry, "reason",
			     made->queue_reason, "quota_scope", made->queue_scope, "limit",
			     (json_int_t)made->queue_limit));
	http_response_headerf(response, "Retry-After", "%lld", (long long)retry);
}

/* How long the answer may be held, in real ms; 0: answer now. */
static int64_t hold_until(const struct handler_context *context, const struct http_request *request,
			  const struct run_spec *spec, int64_t now_ms)
{
	int64_t limit = context->policy->queue.ttl_sec * 1000 + spec->startup_timeout_ms +
			spec->timeout_ms + HOLD_MARGIN_MS;
	int64_t seconds = 0;

	switch (read_prefer(request, &seconds)) {
	case WAIT_NOT:
		return 0;
	case WAIT_SECONDS:
		limit = seconds * 1000 < limit ? seconds * 1000 : limit;
		break;
	case WAIT_DEFAULT:
		if (context->policy->runs.sync_wait_ms > 0 &&
		    context->policy->runs.sync_wait_ms < limit)
			limit = context->policy->runs.sync_wait_ms;
		break;
	}
	return now_ms + (limit < HOLD_MAX_MS ? limit : HOLD_MAX_MS);
}

static bool answer_is_due(const struct run_row *row, bool until_running)
{
	return run_phase_terminal(row->phase) || (until_running && row->phase == RUN_RUNNING);
}

static void answer_run(const struct handler_context *context, const struct run_row *row,
		       struct http_response *response)
{
	reply_json(response, 200, signed_run(context, row, codec_run(context->policy, row)));
}

static void answer_now(struct handler_context *context, const struct http_request *request,
		       const struct principal *caller, struct run_created *made,
		       struct http_response *response)
{
	char id[IDENT_UUID_SIZE];
	struct err e = ERR_INIT;

	memcpy(id, made->row.id, sizeof(id));
	if (made->result == RUN_CREATED && op_run_get(context, caller, id, &made->row, &e) != 0)
		reply_err(response, &face_runs, request, &e);
	else
		answer_run(context, &made->row, response);
	if (made->result == RUN_CREATED)
		op_run_announce(context, id);
}

static void answer_created(struct handler_context *context, const struct http_request *request,
			   const struct principal *caller, const struct run_spec *spec,
			   const struct run_create *create, struct run_created *made,
			   struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct hold hold = {.as = "run", .accepted_ms = now_ms};
	struct err gone = ERR_INIT;

	switch (made->result) {
	case RUN_QUEUE_FULL:
		fail_queue_full(response, made, context->policy->queue.ttl_sec);
		return;
	case RUN_CONFLICT:
		runs_fail_conflict(response, made->prior_id, create->idempotency_key,
				   made->prior_created_at);
		return;
	case RUN_NO_SESSION:
		(void)err_set(&gone, ERR_NOT_FOUND, 0, "session");
		runs_fail_session(response, request, &gone);
		return;
	case RUN_CREATED:
		hold.traced = true;
		log_event(LOG_INFO, "run_accepted", "req=%s run=%s tenant=%s face=runs",
			  request->request_id, made->row.id, caller->tenant);
		break;
	case RUN_REPLAYED:
		log_event(LOG_INFO, "run_replayed", "req=%s run=%s tenant=%s face=runs",
			  request->request_id, made->row.id, caller->tenant);
		break;
	}
	hold.until_running = made->row.interactive;
	hold.until_ms = hold_until(context, request, spec, now_ms);
	if (hold.until_ms <= now_ms || answer_is_due(&made->row, hold.until_running)) {
		answer_now(context, request, caller, made, response);
		return;
	}
	if (made->result == RUN_CREATED)
		op_run_announce(context, made->row.id);
	hold_redirect(response, made->row.node, made->row.id, &hold, caller);
}

/* The text begins with the field: files[3].path must ... */
static void fail_file(struct http_response *response, const char *text)
{
	char field[64];
	struct problems p;

	(void)snprintf(field, sizeof(field), "%.*s", (int)strcspn(text, " "), text);
	problems_init(&p);
	problems_add(&p, field, NULL, "%s", text);
	runs_fail_fields(response, 422, "invalid_inline_file", text, &p);
	problems_release(&p);
}

/* The run has the session's workspace, as large as that is. */
static int use_session(struct run_create *create, const struct session_row *session,
		       struct run_spec *spec, struct err *e)
{
	memcpy(create->row.session_id, session->id, sizeof(create->row.session_id));
	mem_free(spec->session);
	spec->session = mem_dup(session->id);
	spec->workspace_bytes = session->workspace_bytes;
	spec->workspace_inodes = session->workspace_inodes;
	return spec->session == NULL ? err_set(e, ERR_NOMEM, 0, "session") : 0;
}

/* Everything behind the decoding; spec and blob are the caller's to release. */
static void create_run(struct handler_context *context, const struct http_request *request,
		       const struct principal *caller, json_t *object, const struct run_body *body,
		       const struct session_row *session, struct run_spec *spec, struct buf *blob,
		       struct http_response *response)
{
	struct err e = ERR_INIT;
	struct api_error refusal = {.status = 0};
	struct admit_request ask;
	struct admitted admitted;
	struct run_create *create = mem_zalloc(1, sizeof(*create));
	struct run_created *made = mem_zalloc(1, sizeof(*made));

	if (create == NULL || made == NULL) {
		(void)err_set(&e, ERR_NOMEM, 0, "create");
		reply_err(response, &face_runs, request, &e);
		goto out;
	}
	if (codec_decode_files(body, context->policy, spec, blob, &e) != 0) {
		if (e.code == ERR_INVALID)
			fail_file(response, e.shown);
		else
			reply_err(response, &face_runs, request, &e);
		goto out;
	}
	if (!runs_version_is_good(context->policy, &body->spec_version, response))
		goto out;
	fill_admit(&ask, body);
	/* those of the usual runtime may be some seconds old: no round trip for each run */
	ask.facts = op_runtime_facts(
	    context, ask.runtime == NULL || str_equal(ask.runtime, "namespace"), &e);
	if (ask.facts == NULL ||
	    admit_run(context->policy, &ask, spec, &admitted, &refusal, &e) != 0) {
		runs_fail_admission(response, request, &refusal, &e);
		goto out;
	}
	trace_mark(&context->trace, TRACE_ADMITTED);
	describe(create, body, &admitted, context);
	if (session != NULL && use_session(create, session, spec, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
		goto out;
	}
	create->face = "runs";
	create->endpoint = "runs";
	create->request_id = request->request_id;
	create->spec = spec;
	create->blob = blob->len > 0 ? blob->data : NULL;
	create->blob_length = blob->len;
	if (runs_read_key(request, &create->idempotency_key, response) != 0)
		goto out;
	if ((create->idempotency_key != NULL &&
	     codec_fingerprint_run(object, create->fingerprint, &e) != 0) ||
	    op_run_create(context, caller, create, made, &e) != 0)
		reply_err(response, &face_runs, request, &e);
	else
		answer_created(context, request, caller, spec, create, made, response);
out:
	mem_free(create);
	mem_free(made);
}

static void in_session(struct handler_context *context, const struct http_request *request,
		       const struct principal *caller, json_t *object, const char *id,
		       struct http_response *response);

/* Decodes and runs; session: NULL, or whose values the object has where it had none. */
static void decode_and_create(struct handler_context *context, const struct http_request *request,
			      const struct principal *caller, json_t *object, json_t *asked,
			      const struct session_row *session, struct http_response *response)
{
	struct run_body body;
	struct run_spec spec;
	struct problems p;
	struct buf blob;
	struct err e = ERR_INIT;

	spec_init(&spec);
	buf_init(&blob, 0);
	problems_init(&p);
	codec_decode_run(object, &body, &p);
	if (codec_fill_spec(&body, &spec, &p, &e) != 0)
		reply_err(response, &face_runs, request, &e);
	else if (problems_any(&p))
		runs_fail_fields(response, 422, "validation_error", "The request has wrong values.",
				 &p);
	else if (body.session_id.state == FIELD_SET)
		in_session(context, request, caller, object, body.session_id.value, response);
	else
		create_run(context, request, caller, asked, &body, session, &spec, &blob, response);
	problems_release(&p);
	buf_release(&blob);
	spec_release(&spec);
}

static void in_session(struct handler_context *context, const struct http_request *request,
		       const struct principal *caller, json_t *object, const char *id,
		       struct http_response *response)
{
	scope_json json_t *whole = NULL;
	struct session_row session;
	struct err e = ERR_INIT;

	if (op_session_get(context, caller, id, &session, &e) != 0) {
		runs_fail_session(response, request, &e);
		return;
	}
	whole = codec_inherit(object, &session);
	if (whole == NULL)
		reply_no_memory(response, &face_runs);
	else if (session.base_image[0] == '\0')
		reply_fail(response, &face_runs, 422, "session_base_image_required",
			   "The session has no base_image, so nothing can run in it.", NULL);
	else
		decode_and_create(context, request, caller, whole, object, &session, response);
	op_session_release(&session);
}

void runs_create(struct handler_context *context, const struct http_request *request,
		 const struct route_match *match, const struct principal *caller,
		 struct http_response *response)
{
	scope_json json_t *object = runs_read_object(request, response);

	(void)match;
	if (object != NULL)
		decode_and_create(context, request, caller, object, object, NULL, response);
}

/* ERR_NOT_FOUND has face 1's own code. */
static void fail_run(struct http_response *response, const struct http_request *request,
		     const struct err *e)
{
	if (e->code == ERR_NOT_FOUND)
		reply_fail(response, &face_runs, 404, "run_not_found", "There is no such run.",
			   NULL);
	else
		reply_err(response, &face_runs, request, e);
}

void runs_get(struct handler_context *context, const struct http_request *request,
	      const struct route_match *match, const struct principal *caller,
	      struct http_response *response)
{
	struct run_row row;
	struct err e = ERR_INIT;

	if (op_run_get(context, caller, match->params[0], &row, &e) != 0) {
		fail_run(response, request, &e);
		return;
	}
	answer_run(context, &row, response);
}

/* The query of GET /runs; -1 when refused. */
static int read_list_query(const struct http_request *request, struct http_response *response,
			   struct buf *cursor, struct buf *phase, uint64_t *out_limit)
{
	enum run_phase ignored;
	int got;

	*out_limit = 50;
	if (runs_query_limit(request, response, OP_LIST_MAX, out_limit) != 0 ||
	    runs_query_cursor(request, response, cursor) != 0)
		return -1;
	got = runs_query(request, response, "phase", phase);
	if (got < -1)
		return -1;
	if (got != 0 && (got < 0 || run_phase_parse(buf_text(phase), &ignored) != 0)) {
		runs_fail_field(
		    response, "phase",
		    "queued, starting, running, completed, failed, killed, timed_out",
		    "phase must be one of queued, starting, running, completed, failed, killed, "
		    "timed_out");
		return -1;
	}
	return 0;
}

void runs_list(struct handler_context *context, const struct http_request *request,
	       const struct route_match *match, const struct principal *caller,
	       struct http_response *response)
{
	scope_buf struct buf cursor = BUF_NONE;
	scope_buf struct buf phase = BUF_NONE;
	scope_free struct run_row *rows = NULL;
	struct err e = ERR_INIT;
	uint64_t limit;
	size_t count = 0;
	json_t *items;
	json_t *next;

	(void)match;
	buf_init(&cursor, 64);
	buf_init(&phase, 64);
	if (read_list_query(request, response, &cursor, &phase, &limit) != 0)
		return;
	rows = mem_zalloc(limit + 1, sizeof(*rows));
	if (rows == NULL)
		(void)err_set(&e, ERR_NOMEM, 0, "list");
	if (rows == NULL ||
	    op_run_list(context, caller, cursor.len > 0 ? cursor.data : NULL,
			phase.len > 0 ? phase.data : NULL, limit, rows, &count, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
		return;
	}
	items = json_array();
	for (size_t i = 0; i < count && i < limit; i++) {
		if (json_array_append_new(
			items,
			signed_run(context, &rows[i], codec_run(context->policy, &rows[i]))) == 0)
			continue;
		/* a list with holes would look like a whole one */
		json_decref(items);
		reply_json(response, 200, NULL);
		return;
	}
	next = count > limit ? json_string(rows[limit - 1].id) : json_null();
	reply_json(response, 200, json_pack("{s:o, s:o}", "items", items, "next_cursor", next));
}

static void answer_cancel(const struct run_row *row, struct http_response *response)
{
	bool cancelled = row->phase == RUN_KILLED && str_equal(row->message, "canceled_by_user");

	reply_json(response, 200,
		   json_pack("{s:s, s:b, s:s}", "id", row->id, "cancelled", cancelled, "message",
			     cancelled ? "canceled_by_user" : "not_running_or_not_found"));
}

void runs_cancel(struct handler_context *context, const struct http_request *request,
		 const struct route_match *match, const struct principal *caller,
		 struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct hold hold = {.as = "cancel", .accepted_ms = now_ms};
	struct run_row row;
	struct err e = ERR_INIT;

	if (op_run_cancel(context, caller, match->params[0], &row, &e) != 0) {
		fail_run(response, request, &e);
		return;
	}
	log_event(LOG_INFO, "run_cancel", "req=%s run=%s phase=%s", request->request_id, row.id,
		  run_phase_name(row.phase));
	if (run_phase_terminal(row.phase)) {
		answer_cancel(&row, response);
		return;
	}
	hold.until_ms = now_ms + context->policy->runs.cancel_grace_ms + CANCEL_EXTRA_MS;
	hold_redirect(response, row.node, row.id, &hold, caller);
}

void runs_render(struct handler_context *context, const struct http_request *request,
		 const struct route_match *match, const struct principal *nobody,
		 struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct principal caller;
	struct hold hold;
	struct run_row row;
	struct err e = ERR_INIT;

	(void)nobody;
	trace_mark_at(&context->trace, TRACE_RENDER_BEGUN, context->trace.at_us[TRACE_ACCEPTED]);
	if (!request->internal || hold_parse(request, &hold, &e) != 0) {
		if (e.code == ERR_NOMEM)
			reply_no_memory(response, &face_runs);
		else
			reply_fail(response, &face_runs, 404, "not_found", "There is no such path.",
				   NULL);
		return;
	}
	/* the credential is checked anew; one that expired while the request was held is fine */
	context->wanted_run = match->params[1];
	if (authn_check(context, request, false, hold.accepted_ms, &caller, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
		return;
	}
	if (op_run_get(context, &caller, match->params[1], &row, &e) != 0) {
		fail_run(response, request, &e);
		return;
	}
	if (!answer_is_due(&row, hold.until_running) && now_ms < hold.until_ms &&
	    hold.tries < HOLD_MAX_TRIES) {
		hold.tries++;
		hold_redirect(response, row.node, row.id, &hold, &caller);
		return;
	}
	trace_mark(&context->trace, TRACE_ROW_READ);
	if (hold.traced)
		memcpy(context->traced_run, row.id, sizeof(context->traced_run));
	if (str_equal(hold.as, "cancel"))
		answer_cancel(&row, response);
	else
		answer_run(context, &row, response);
}
