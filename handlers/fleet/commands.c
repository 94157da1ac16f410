/* Face 3: POST runtime/terminals/commands, a command in a sandbox, and its answer. */
#include "handlers/fleet/fleet.h"

#include "handlers/authn.h"
#include "handlers/hold.h"
#include "handlers/reply.h"
#include "runners/base/clock.h"
#include "runners/base/limits.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define MARGIN_MS        INT64_C(30000)
#define HOLD_MAX_MS      INT64_C(3890000)
#define SANDBOX_COMMANDS 30 /* at once, as the runner has it */
#define TIMED_OUT        124

static const char timeout_note[] = "\n[timed out]\n";

static int set_command(struct run_spec *spec, const struct fleet_command_body *body, struct err *e)
{
	const char *const words[] = {"/bin/sh", "-c", body->command.value};
	char folder[LIMIT_PATH_BYTES + 16];

	spec->command = mem_zalloc(ARRAY_LEN(words) + 1, sizeof(*spec->command));
	if (spec->command == NULL)
		return err_set(e, ERR_NOMEM, 0, "command");
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		spec->command[i] = mem_dup(words[i]);
		if (spec->command[i] == NULL)
			return err_set(e, ERR_NOMEM, 0, "command");
		spec->command_count++;
	}
	if (body->cwd.state == FIELD_SET) {
		/* relative ones are below the workspace */
		(void)snprintf(folder, sizeof(folder), "%s%s",
			       body->cwd.value[0] == '/' ? "" : "/workspace/", body->cwd.value);
		spec->cwd = mem_dup(folder);
		if (spec->cwd == NULL)
			return err_set(e, ERR_NOMEM, 0, "cwd");
	}
	return 0;
}

static void run_command(struct handler_context *context, const struct http_request *request,
			const struct principal *caller, const struct sandbox_row *sandbox,
			const struct fleet_command_body *body, struct run_spec *spec,
			struct http_response *response)
{
	const struct policy *policy = context->policy;
	int64_t most_ms = policy->runs.max_timeout_sec * 1000;
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct hold hold = {.kind = "exec", .as = "exec", .accepted_ms = now_ms};
	scope_free struct run_create *create = mem_zalloc(1, sizeof(*create));
	scope_free struct run_created *made = mem_zalloc(1, sizeof(*made));
	struct err e = ERR_INIT;

	if (create == NULL || made == NULL) {
		reply_no_memory(response, &face_fleet);
		return;
	}
	spec->timeout_ms = policy->runs.default_timeout_sec * 1000;
	if (body->timeout_ms.state == FIELD_SET)
		spec->timeout_ms = body->timeout_ms.value;
	if (spec->timeout_ms > most_ms)
		spec->timeout_ms = most_ms;
	create->face = FLEET;
	create->request_id = request->request_id;
	create->spec = spec;
	(void)snprintf(create->row.spec_version, sizeof(create->row.spec_version), "1.0");
	(void)snprintf(create->row.runtime, sizeof(create->row.runtime), "%s",
		       sandbox->spec.runtime);
	(void)snprintf(create->row.trust_level, sizeof(create->row.trust_level), "standard");
	trace_mark(&context->trace, TRACE_ADMITTED);
	if (set_command(spec, body, &e) != 0 ||
	    op_sandbox_exec(context, caller, sandbox, create, made, &e) != 0) {
		reply_err(response, &face_fleet, request, &e);
		return;
	}
	log_event(LOG_INFO, "run_accepted", "req=%s run=%s tenant=%s face=fleet sandbox=%s",
		  request->request_id, made->row.id, caller->tenant, sandbox->id);
	op_run_announce(context, made->row.id);
	hold.until_ms = spec->timeout_ms + spec->startup_timeout_ms + MARGIN_MS;
	hold.until_ms = now_ms + (hold.until_ms < HOLD_MAX_MS ? hold.until_ms : HOLD_MAX_MS);
	hold.traced = true;
	hold_redirect(response, made->row.node, made->row.id, &hold, caller);
}

static void decode_and_run(struct handler_context *context, const struct http_request *request,
			   const struct principal *caller, const struct sandbox_row *sandbox,
			   json_t *object, struct http_response *response)
{
	struct fleet_command_body body;
	struct run_spec spec;
	struct problems p;
	struct err e = ERR_INIT;

	spec_init(&spec);
	problems_init(&p);
	fleet_decode_command(object, &body, &p);
	if (body.env.state == FIELD_SET && fleet_environment(body.env.value, &spec, &p, &e) != 0)
		reply_err(response, &face_fleet, request, &e);
	else if (body.command.state != FIELD_SET || body.command.value[0] == '\0')
		reply_fail(response, &face_fleet, 400, "INVALID_COMMAND",
			   "command must be a shell command, not empty and of at most 131071 "
			   "bytes.",
			   json_pack("{s:O}", "fields", p.list));
	else if (problems_any(&p))
		fleet_fail_fields(response, &p);
	else if (sandbox->state != SANDBOX_RUNNING)
		fleet_fail_state(response, "SANDBOX_NOT_RUNNING", "The sandbox is not running.",
				 sandbox->state, "running");
	else
		run_command(context, request, caller, sandbox, &body, &spec, response);
	problems_release(&p);
	spec_release(&spec);
}

void fleet_command(struct handler_context *context, const struct http_request *request,
		   const struct route_match *match, const struct principal *caller,
		   struct http_response *response)
{
	scope_json json_t *object = fleet_object(request, response, false);
	struct sandbox_row sandbox;
	struct err e = ERR_INIT;

	if (object == NULL)
		return;
	if (op_sandbox_get(context, caller, FLEET, match->params[0], &sandbox, &e) != 0) {
		fleet_fail(response, request, &e);
		return;
	}
	if (sandbox.state == SANDBOX_DELETED) {
		(void)err_show(&e, ERR_NOT_FOUND, "There is no such sandbox.");
		fleet_fail(response, request, &e);
	} else {
		decode_and_run(context, request, caller, &sandbox, object, response);
	}
	op_sandbox_release(&sandbox);
}

/* --- the answer ------------------------------------------------------------------------------ */

/* Commands whose end is no result of theirs. */
static bool answer_failure(const struct run_row *row, struct http_response *response)
{
	if (str_equal(row->message, "sandbox_not_running") ||
	    str_equal(row->message, "sandbox_stopped"))
		fleet_fail_state(response, "SANDBOX_NOT_RUNNING",
				 "The sandbox was stopped before the command had ended.",
				 SANDBOX_STOPPED, "running");
	else if (str_equal(row->message, "cwd_failed"))
		reply_fail(response, &face_fleet, 400, "INVALID_REQUEST",
			   "cwd is no folder that the command can enter.",
			   json_pack("{s:[{s:s, s:s, s:s}]}", "fields", "field", "cwd", "message",
				     "there is no such folder", "allowed",
				     "a folder in the sandbox"));
	else if (str_equal(row->message, "sandbox_busy"))
		reply_fail(response, &face_fleet, 429, "RATE_LIMIT_EXCEEDED",
			   "As many commands as a sandbox takes run in it. Try again later.",
			   json_pack("{s:i}", "limit", SANDBOX_COMMANDS));
	else if (str_equal(row->message, "sandbox_full"))
		reply_fail(response, &face_fleet, 429, "RATE_LIMIT_EXCEEDED",
			   "The sandbox has as many processes as it may have. End some, or stop "
			   "and resume it.",
			   NULL);
	else if (str_equal(row->message, "box_lost"))
		fleet_fail_state(response, "SANDBOX_NOT_RUNNING",
				 "The sandbox ended before the command had; its error field says "
				 "why.",
				 SANDBOX_STOPPED, "running");
	else if (str_equal(row->message, "canceled_by_user"))
		reply_fail(response, &face_fleet, 409, "EXEC_CANCELED",
			   "The command was canceled before its end.",
			   json_pack("{s:s}", "runId", row->id));
	else if (!run_phase_terminal(row->phase))
		reply_fail(response, &face_fleet, 408, "EXEC_TIMEOUT",
			   "The command has not ended; it goes on.",
			   json_pack("{s:s}", "runId", row->id));
	else if (str_equal(row->outcome, "failed") ||
		 (row->phase != RUN_TIMED_OUT && !row->has_exit))
		reply_fail(response, &face_fleet, 500, "SERVER_ERROR",
			   "The command could not be carried out.",
			   json_pack("{s:s, s:s}", "reason", row->message, "runId", row->id));
	else
		return false;
	return true;
}

static void answer_result(const struct run_row *row, json_t *output, struct http_response *response)
{
	bool late = row->phase == RUN_TIMED_OUT;
	const char *out = json_string_value(json_object_get(output, "stdout"));
	const char *error = json_string_value(json_object_get(output, "stderr"));
	json_int_t us = json_integer_value(json_object_get(output, "duration_us"));
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, 16U << 20);
	buf_add_str(&text, error == NULL ? "" : error);
	if (late)
		buf_add_str(&text, timeout_note);
	reply_json(
	    response, 200,
	    json_pack("{s:b, s:{s:I, s:s, s:s, s:f, s:b, s:b, s:b}, s:s}", "success", true,
		      "result", "exitCode",
		      late ? (json_int_t)TIMED_OUT : (json_int_t)row->exit_code, "stdout",
		      out == NULL ? "" : out, "stderr", buf_ok(&text) ? buf_text(&text) : "",
		      "duration", (double)us / 1000.0, "timedOut", late, "stdoutTruncated",
		      json_is_true(json_object_get(output, "stdout_truncated")), "stderrTruncated",
		      json_is_true(json_object_get(output, "stderr_truncated")), "runId", row->id));
}

void fleet_render_exec(struct handler_context *context, const struct http_request *request,
		       const struct route_match *match, const struct principal *nobody,
		       struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	scope_json json_t *output = NULL;
	struct principal caller;
	struct hold hold;
	struct run_row row;
	struct err e = ERR_INIT;

	(void)nobody;
	trace_mark_at(&context->trace, TRACE_RENDER_BEGUN, context->trace.at_us[TRACE_ACCEPTED]);
	if (!request->internal || hold_parse(request, &hold, &e) != 0) {
		reply_fail(response, &face_fleet, 404, "NOT_FOUND", "There is no such path.", NULL);
		return;
	}
	context->wanted_run = match->params[1];
	if (authn_check(context, request, false, hold.accepted_ms, &caller, &e) != 0) {
		reply_err(response, &face_fleet, request, &e);
		return;
	}
	if (op_run_get(context, &caller, match->params[1], &row, &e) != 0) {
		fleet_fail(response, request, &e);
		return;
	}
	if (!run_phase_terminal(row.phase) && now_ms < hold.until_ms &&
	    hold.tries < HOLD_MAX_TRIES) {
		hold.tries++;
		hold.kind = "exec";
		hold_redirect(response, row.node, row.id, &hold, &caller);
		return;
	}
	if (op_run_result(context, row.id, &output, &e) != 0) {
		reply_err(response, &face_fleet, request, &e);
		return;
	}
	trace_mark(&context->trace, TRACE_ROW_READ);
	if (hold.traced)
		memcpy(context->traced_run, row.id, sizeof(context->traced_run));
	if (!answer_failure(&row, response))
		answer_result(&row, output, response);
}
