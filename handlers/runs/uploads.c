/*
 * Face 1: POST /sessions/{id}/files. Three workers have a part in it, and none sees the body:
 *
 *	uploads_admit	before the body is read (auth_request): may this caller upload here?
 *	uploads_staged	when the gate has the files: the operation that puts them into the workspace
 *	uploads_refuse	what a refused admit meant, as an answer
 *
 * The answer behind the operation is snapshots_answer's.
 */
#include "handlers/authn.h"
#include "handlers/hold.h"
#include "handlers/reply.h"
#include "handlers/runs/common.h"
#include "handlers/runs/runs.h"
#include "handlers/runs/sessions.h"
#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define WAIT_MS     360000
#define REASON_SIZE 400

/* What the gate found (runners/gate/upload.h). */
static const struct {
	const char *how;
	int status;
	const char *code;
	const char *text;
} refusals[] = {
    {"too_large", 413, "body_too_large",
     "The files of the upload are larger than sessions.upload_mb, or more than 1000."},
    {"busy", 429, "connection_quota", "Too many uploads at once. Try again."},
    {"storage", 503, "storage_low", "The server is low on disk space."},
    {"internal", 500, "internal_error", "The upload could not be stored."},
};

void uploads_admit(struct handler_context *context, const struct http_request *request,
		   const struct route_match *match, const struct principal *nobody,
		   struct http_response *response)
{
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct hold hold = {
	    .kind = "upload", .as = "upload", .accepted_ms = now_ms, .until_ms = now_ms + WAIT_MS};
	struct principal caller;
	struct session_row row;
	char upload[IDENT_UUID_SIZE];
	struct err e = ERR_INIT;

	(void)nobody;
	/* the web server knows yes and no only; uploads_refuse tells why */
	response->status = 403;
	if (!request->internal || authn_check(context, request, false, now_ms, &caller, &e) != 0 ||
	    op_session_get(context, &caller, match->params[0], &row, &e) != 0)
		return;
	op_session_release(&row);
	if (op_session_room(context, &e) != 0 || ident_uuid(upload, &e) != 0)
		return;
	log_event(LOG_INFO, "upload_admitted", "req=%s session=%s upload=%s", request->request_id,
		  row.id, upload);
	response->status = 200;
	hold_arguments(response, &hold, &caller, row.id);
	http_response_headerf(response, "X-Cordon-Upload", "%s/upload/%s", row.node, upload);
}

void uploads_refuse(struct handler_context *context, const struct http_request *request,
		    const struct route_match *match, const struct principal *caller,
		    struct http_response *response)
{
	struct session_row row;
	struct err e = ERR_INIT;

	if (op_session_get(context, caller, match->params[0], &row, &e) != 0) {
		runs_fail_session(response, request, &e);
		return;
	}
	op_session_release(&row);
	if (op_session_room(context, &e) == 0)
		/* it has become possible meanwhile */
		(void)err_set(&e, ERR_UNAVAILABLE, 0, "the upload was refused a moment ago");
	reply_err(response, &face_runs, request, &e);
}

static void refuse(const struct http_request *request, const char *how,
		   struct http_response *response)
{
	scope_buf struct buf reason = BUF_NONE;

	buf_init(&reason, REASON_SIZE);
	if (str_equal(how, "no_files")) {
		runs_fail_field(response, "files", "one or more files in parts named files",
				"the form has no part named files");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		if (str_equal(how, refusals[i].how)) {
			reply_fail(response, &face_runs, refusals[i].status, refusals[i].code,
				   refusals[i].text, NULL);
			if (refusals[i].status == 503 || refusals[i].status == 429)
				http_response_header(response, "Retry-After",
						     refusals[i].status == 503 ? "30" : "2");
			return;
		}
	if (http_query(request, "t", &reason) != 1)
		buf_reset(&reason);
	if (str_starts(buf_text(&reason), "The body is no good multipart/form-data: Content-Type"))
		reply_fail(response, &face_runs, 415, "unsupported_media_type", buf_text(&reason),
			   json_pack("{s:[s]}", "allowed", "multipart/form-data"));
	else
		runs_fail_field(response, "files", "multipart/form-data (RFC 7578)",
				reason.len == 0 ? "the form is malformed" : buf_text(&reason));
}

void uploads_staged(struct handler_context *context, const struct http_request *request,
		    const struct route_match *match, const struct principal *nobody,
		    struct http_response *response)
{
	struct session_wish wish = {.kind = JOB_UPLOAD};
	scope_buf struct buf how = BUF_NONE;
	scope_buf struct buf session = BUF_NONE;
	struct principal caller;
	struct hold hold;
	struct err e = ERR_INIT;

	(void)nobody;
	buf_init(&how, 32);
	buf_init(&session, 64);
	if (!request->internal || hold_parse(request, &hold, &e) != 0 ||
	    http_query(request, "s", &session) != 1 || !ident_is_uuid(match->params[1])) {
		reply_fail(response, &face_runs, 404, "not_found", "There is no such path.", NULL);
		return;
	}
	if (authn_check(context, request, false, hold.accepted_ms, &caller, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
		return;
	}
	if (http_query(request, "e", &how) == 1) {
		refuse(request, buf_text(&how), response);
		return;
	}
	memcpy(wish.job.upload, match->params[1], sizeof(wish.job.upload));
	if (sessions_begin(context, request, &caller, buf_text(&session), &wish, response) == 0)
		sessions_wait(&wish, "upload", &caller, response);
	else if (response->status < 500)
		/* nobody comes for the files; where that is not sure the runner looks */
		(void)notify_send(context->to_gate, "upload", wish.job.upload, NOTICE_ENDED);
}
