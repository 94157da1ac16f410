#include "handlers/reply.h"

#include "runners/base/log.h"
#include "runners/base/mem.h"

/* When even an error body cannot be built: static text. */
static const char last_resort[] =
    "{\"error\":{\"code\":\"internal_error\",\"message\":\"The server is short of memory.\",\"details\":{}}}";

static void reply_last_resort(struct http_response *response)
{
	http_response_reset(response);
	response->status = 500;
	http_response_header(response, "Content-Type", "application/json");
	buf_add_str(&response->body, last_resort);
	if (!buf_ok(&response->body))
		response->failed = true;
}

void reply_json(struct http_response *response, int status, json_t *body)
{
	struct err e = ERR_INIT;

	response->status = status;
	http_response_header(response, "Content-Type", "application/json");
	if (body == NULL || json_write(&response->body, body, &e) != 0)
		response->failed = true;
	json_decref(body);
	if (response->failed)
		reply_last_resort(response);
}

void reply_error(struct http_response *response, const struct face *face,
		 const struct api_error *error)
{
	http_response_reset(response);
	response->status = error->status;
	http_response_header(response, "Content-Type", "application/json");
	face->error_body(&response->body, error);
	json_decref(error->details);
	if (response->body.len == 0)
		reply_last_resort(response);
}

void reply_fail(struct http_response *response, const struct face *face, int status,
		const char *code, const char *message, json_t *details)
{
	struct api_error error = {
	    .status = status, .code = code, .message = message, .details = details};

	reply_error(response, face, &error);
}

struct class_row {
	int status;
	const char *code;
	const char *message;
};

static const struct class_row classes[ERR__MAX] = {
    [ERR_NONE] = {500, "internal_error", "Something went wrong on the server."},
    [ERR_INVALID] = {422, "validation_error", "A value is not allowed."},
    [ERR_NOT_FOUND] = {404, "not_found", "There is no such object."},
    [ERR_CONFLICT] = {409, "conflict", "The object's state does not allow this."},
    [ERR_DENIED] = {403, "forbidden", "This key is not allowed to do that."},
    [ERR_UNAUTHORIZED] = {401, "unauthorized", "A valid API key or token is required."},
    [ERR_LIMIT] = {413, "body_too_large", "The request is larger than allowed."},
    [ERR_UNAVAILABLE] = {503, "store_unavailable",
			 "The database cannot be reached. Try again soon."},
    [ERR_STORAGE] = {503, "storage_low", "The server is low on disk space. Try again later."},
    [ERR_UNKNOWN_OUTCOME] =
	{502, "outcome_unknown",
	 "The connection to the database broke while the request was stored. Repeat "
	 "it only with the same Idempotency-Key."},
    [ERR_TIMEOUT] = {503, "store_unavailable",
		     "The server did not answer in time. Try again soon."},
    [ERR_PROTOCOL] = {500, "internal_error", "Something went wrong on the server."},
    [ERR_IO] = {500, "internal_error", "Something went wrong on the server."},
    [ERR_NOMEM] = {503, "store_unavailable", "The server is short of memory. Try again soon."},
    [ERR_INTERNAL] = {500, "internal_error", "Something went wrong on the server."},
};

void reply_err(struct http_response *response, const struct face *face,
	       const struct http_request *request, const struct err *e)
{
	const struct class_row *row = &classes[e->code < ERR__MAX ? e->code : ERR_INTERNAL];

	if (row->status >= 500)
		log_err(LOG_ERROR, "request_failed", e, "req=%s", request->request_id);
	reply_fail(response, face, row->status, row->code,
		   e->shown[0] == '\0' ? row->message : e->shown, NULL);
	if (row->status == 503)
		http_response_header(response, "Retry-After", "2");
	if (row->status == 401)
		http_response_header(response, "WWW-Authenticate", "Bearer");
}

void reply_no_memory(struct http_response *response, const struct face *face)
{
	const struct class_row *row = &classes[ERR_NOMEM];

	reply_fail(response, face, row->status, row->code, row->message, NULL);
	http_response_header(response, "Retry-After", "2");
}
