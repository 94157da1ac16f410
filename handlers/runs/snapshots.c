/* Face 1: snapshots of a session's workspace, restore, clone. */
#include "handlers/reply.h"
#include "handlers/runs/common.h"
#include "handlers/runs/runs.h"
#include "handlers/runs/sessions.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

struct restore_body {
	struct field_text snapshot_id;
};

static const struct field restore_fields[] = {
    {"snapshot_id", FIELD_TEXT, offsetof(struct restore_body, snapshot_id), .hi = LIMIT_ID_BYTES,
     .required = true},
};

struct clone_body {
	struct field_text new_session_name;
};

static const struct field clone_fields[] = {
    {"new_session_name", FIELD_TEXT, offsetof(struct clone_body, new_session_name),
     .hi = LIMIT_ID_BYTES},
};

const struct field_table snapshots_restore_table = {restore_fields, ARRAY_LEN(restore_fields)};
const struct field_table snapshots_clone_table = {clone_fields, ARRAY_LEN(clone_fields)};

static void fail_snapshot(struct http_response *response)
{
	reply_fail(response, &face_runs, 404, "snapshot_not_found",
		   "This session has no such snapshot.", NULL);
}

void snapshots_create(struct handler_context *context, const struct http_request *request,
		      const struct route_match *match, const struct principal *caller,
		      struct http_response *response)
{
	struct session_wish wish = {.kind = JOB_SNAPSHOT};

	if (sessions_begin(context, request, caller, match->params[0], &wish, response) == 0)
		sessions_wait(&wish, "snapshot", caller, response);
}

void snapshots_list(struct handler_context *context, const struct http_request *request,
		    const struct route_match *match, const struct principal *caller,
		    struct http_response *response)
{
	scope_free struct snapshot_row *rows = mem_zalloc(OP_SNAPSHOT_LIST_MAX, sizeof(*rows));
	scope_json json_t *items = json_array();
	struct session_row session;
	size_t count = 0;
	struct err e = ERR_INIT;

	if (rows == NULL || items == NULL) {
		reply_no_memory(response, &face_runs);
		return;
	}
	if (op_session_get(context, caller, match->params[0], &session, &e) != 0) {
		runs_fail_session(response, request, &e);
		return;
	}
	op_session_release(&session);
	if (op_snapshot_list(context, match->params[0], rows, &count, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
		return;
	}
	for (size_t i = 0; i < count; i++)
		if (json_array_append_new(items,
					  json_pack("{s:s, s:s, s:s, s:I}", "snapshot_id",
						    rows[i].id, "session_id", match->params[0],
						    "created_at", rows[i].created_at, "size_bytes",
						    (json_int_t)rows[i].size_bytes)) != 0) {
			reply_no_memory(response, &face_runs);
			return;
		}
	reply_json(response, 200, json_pack("{s:O}", "items", items));
}

void snapshots_restore(struct handler_context *context, const struct http_request *request,
		       const struct route_match *match, const struct principal *caller,
		       struct http_response *response)
{
	scope_json json_t *object = runs_read_object(request, response);
	struct session_wish wish = {.kind = JOB_RESTORE};
	struct restore_body body = {0};
	struct problems p;
	bool bad;

	if (object == NULL)
		return;
	problems_init(&p);
	fields_decode(object, "", restore_fields, ARRAY_LEN(restore_fields), &body, &p);
	if (body.snapshot_id.state == FIELD_NULL)
		problems_add(&p, "snapshot_id", NULL, "snapshot_id is required");
	bad = problems_any(&p);
	if (bad)
		runs_fail_fields(response, 422, "validation_error", "The request has wrong values.",
				 &p);
	problems_release(&p);
	if (bad)
		return;
	/* what has not the form of an id is as unknown; the session comes first */
	if (snapshot_id_is_good(body.snapshot_id.value))
		(void)snprintf(wish.job.snapshot, sizeof(wish.job.snapshot), "%.17s",
			       body.snapshot_id.value);
	if (sessions_begin(context, request, caller, match->params[0], &wish, response) != 0)
		return;
	if (wish.no_snapshot)
		fail_snapshot(response);
	else
		sessions_wait(&wish, "restore", caller, response);
}

void snapshots_clone(struct handler_context *context, const struct http_request *request,
		     const struct route_match *match, const struct principal *caller,
		     struct http_response *response)
{
	scope_json json_t *object =
	    request->body_length == 0 ? json_object() : runs_read_object(request, response);
	struct session_wish wish = {.kind = JOB_CLONE,
				    .max_sessions = context->policy->sessions.max_per_tenant};
	struct clone_body body = {0};
	struct problems p;
	bool bad;

	if (object == NULL) {
		if (request->body_length == 0)
			reply_no_memory(response, &face_runs);
		return;
	}
	problems_init(&p);
	fields_decode(object, "", clone_fields, ARRAY_LEN(clone_fields), &body, &p);
	bad = problems_any(&p);
	if (bad)
		runs_fail_fields(response, 422, "validation_error", "The request has wrong values.",
				 &p);
	problems_release(&p);
	if (bad)
		return;
	if (body.new_session_name.state == FIELD_SET)
		(void)snprintf(wish.job.name, sizeof(wish.job.name), "%.255s",
			       body.new_session_name.value);
	if (sessions_begin(context, request, caller, match->params[0], &wish, response) == 0)
		sessions_wait(&wish, "clone", caller, response);
}

static void answer_deleted(struct http_response *response, const char *id, bool ok)
{
	/* an id that is not text cannot be shown; it is none */
	reply_json(response, 200,
		   json_pack("{s:b, s:s}", "ok", ok, "snapshot_id",
			     str_utf8_valid(id, strlen(id)) ? id : ""));
}

void snapshots_delete(struct handler_context *context, const struct http_request *request,
		      const struct route_match *match, const struct principal *caller,
		      struct http_response *response)
{
	const char *id = match->params[1];
	struct session_wish wish = {.kind = JOB_SNAPSHOT_DELETE};

	if (snapshot_id_is_good(id))
		(void)snprintf(wish.job.snapshot, sizeof(wish.job.snapshot), "%.17s", id);
	if (sessions_begin(context, request, caller, match->params[0], &wish, response) != 0)
		return;
	if (wish.no_snapshot)
		answer_deleted(response, id, false);
	else
		sessions_wait(&wish, "snapshot_delete", caller, response);
}

/* --- after the hold -------------------------------------------------------------------------- */

static void answer_snapshot(struct handler_context *context, const struct http_request *request,
			    const char *session, const char *id, struct http_response *response)
{
	struct snapshot_row row;
	struct err e = ERR_INIT;

	if (op_snapshot_get(context, session, id, &row, &e) == 0)
		reply_json(response, 200,
			   json_pack("{s:s, s:s, s:I}", "snapshot_id", row.id, "created_at",
				     row.created_at, "size_bytes", (json_int_t)row.size_bytes));
	else if (e.code == ERR_NOT_FOUND)
		fail_snapshot(response); /* somebody deleted it at once */
	else
		reply_err(response, &face_runs, request, &e);
}

void snapshots_answer(struct handler_context *context, const struct http_request *request,
		      const char *as, const struct operation_row *operation, json_t *result,
		      struct http_response *response)
{
	const char *snapshot = json_text(json_object_get(result, "snapshot_id"));
	const char *clone = json_text(json_object_get(result, "session_id"));
	struct err e = ERR_INIT;

	if (str_equal(as, "snapshot") && snapshot != NULL) {
		answer_snapshot(context, request, operation->sandbox, snapshot, response);
	} else if (str_equal(as, "restore") && snapshot != NULL) {
		reply_json(response, 200,
			   json_pack("{s:b, s:s}", "restored", true, "snapshot_id", snapshot));
	} else if (str_equal(as, "snapshot_delete") && snapshot != NULL) {
		answer_deleted(response, snapshot, true);
	} else if (str_equal(as, "clone") && clone != NULL) {
		reply_json(response, 200,
			   json_pack("{s:s, s:s}", "session_id", clone, "cloned_from",
				     operation->sandbox));
	} else if (str_equal(as, "upload") && result != NULL) {
		reply_json(response, 200,
			   json_pack("{s:s, s:O, s:O, s:O}", "session_id", operation->sandbox,
				     "bytes_received", json_object_get(result, "bytes_received"),
				     "file_count", json_object_get(result, "file_count"), "skipped",
				     json_object_get(result, "skipped")));
	} else {
		(void)err_set(&e, ERR_INTERNAL, 0, "operation %s has no result", operation->id);
		reply_err(response, &face_runs, request, &e);
	}
}
