/* What the handlers of face 1 share: reading a request, refusing it. */
#include "handlers/runs/common.h"

#include "handlers/reply.h"
#include "runners/base/limits.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <strings.h>

void runs_fail_fields(struct http_response *response, int status, const char *code,
		      const char *message, struct problems *p)
{
	json_t *details = json_object();

	/* a refusal must name its fields, and a problem that only memory has is no refusal */
	if (p->failed || json_object_set(details, "fields", p->list) != 0) {
		json_decref(details);
		reply_no_memory(response, &face_runs);
		return;
	}
	reply_fail(response, &face_runs, status, code, message, details);
}

void runs_fail_field(struct http_response *response, const char *field, const char *allowed,
		     const char *message)
{
	struct problems p;

	problems_init(&p);
	problems_add(&p, field, allowed, "%s", message);
	runs_fail_fields(response, 422, "validation_error", "The request has wrong values.", &p);
	problems_release(&p);
}

/* The body as a JSON object, or the refusal in response and NULL. */
json_t *runs_read_object(const struct http_request *request, struct http_response *response)
{
	const char *type = http_header(request, "Content-Type");
	json_t *object = NULL;
	struct err e = ERR_INIT;

	if (type != NULL && type[0] != '\0' &&
	    (strncasecmp(type, "application/json", 16) != 0 || strchr("; \t", type[16]) == NULL)) {
		reply_fail(response, &face_runs, 415, "unsupported_media_type",
			   "The body must be JSON: send Content-Type: application/json.",
			   json_pack("{s:[s]}", "allowed", "application/json"));
		return NULL;
	}
	if (json_parse(request->body, request->body_length, &object, &e) != 0) {
		if (e.code == ERR_LIMIT)
			runs_fail_field(response, e.shown, "a number that fits 64 bits",
					"the number is too large");
		else if (e.code == ERR_INVALID)
			reply_fail(response, &face_runs, 400, "invalid_json", e.shown, NULL);
		else
			reply_err(response, &face_runs, request, &e);
		return NULL;
	}
	return object;
}

/* 0: fine (NULL key: none), -1: refused. */
int runs_read_key(const struct http_request *request, const char **out,
		  struct http_response *response)
{
	const char *key = http_header(request, "Idempotency-Key");
	size_t length = key == NULL ? 0 : strlen(key);

	*out = key;
	if (key == NULL)
		return 0;
	for (size_t i = 0; i < length; i++)
		if (key[i] < 0x20 || key[i] > 0x7e)
			length = 0;
	if (length >= 1 && length <= LIMIT_ID_BYTES)
		return 0;
	runs_fail_field(response, "Idempotency-Key", "1 to 255 printable ASCII bytes",
			"the header must be 1 to 255 printable ASCII bytes");
	return -1;
}

static bool known_version(const struct policy *policy, const struct field_text *version)
{
	if (version->state != FIELD_SET || version->value[0] == '\0')
		return true;
	for (size_t i = 0; i < policy->runs.spec_versions.count; i++)
		if (str_equal(policy->runs.spec_versions.items[i], version->value))
			return true;
	return false;
}

static void fail_version(struct http_response *response, const struct policy *policy,
			 const char *provided)
{
	json_t *supported = json_array();

	for (size_t i = 0; i < policy->runs.spec_versions.count; i++)
		(void)json_array_append_new(supported,
					    json_string(policy->runs.spec_versions.items[i]));
	reply_fail(response, &face_runs, 400, "invalid_spec_version",
		   "This spec_version is not supported.",
		   json_pack("{s:o, s:s}", "supported", supported, "provided", provided));
}

/* As http_query; -2 when memory ended, which is answered then. */
int runs_query(const struct http_request *request, struct http_response *response, const char *name,
	       struct buf *out)
{
	int got = http_query(request, name, out);

	if (got >= 0 || buf_error(out) != ERR_NOMEM)
		return got;
	reply_no_memory(response, &face_runs);
	return -2;
}

bool runs_version_is_good(const struct policy *policy, const struct field_text *version,
			  struct http_response *response)
{
	if (known_version(policy, version))
		return true;
	fail_version(response, policy, version->value);
	return false;
}

void runs_fail_session(struct http_response *response, const struct http_request *request,
		       const struct err *e)
{
	if (e->code == ERR_NOT_FOUND)
		reply_fail(response, &face_runs, 404, "session_not_found",
			   "There is no such session.", NULL);
	else
		reply_err(response, &face_runs, request, e);
}

void runs_fail_conflict(struct http_response *response, const char *prior_id, const char *key,
			const char *prior_created_at)
{
	reply_fail(response, &face_runs, 409, "idempotency_conflict",
		   "Idempotency-Key replay with different body",
		   json_pack("{s:s, s:s, s:s}", "prior_id", prior_id, "key", key,
			     "prior_created_at", prior_created_at));
}

void runs_fail_admission(struct http_response *response, const struct http_request *request,
			 const struct api_error *refusal, const struct err *e)
{
	struct api_error copy = *refusal;

	if (copy.status != 0)
		reply_error(response, &face_runs, &copy);
	else
		reply_err(response, &face_runs, request, e);
}

/* --- the query of lists ---------------------------------------------------------------------- */

int runs_query_limit(const struct http_request *request, struct http_response *response,
		     uint64_t most, uint64_t *out)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	char allowed[64];
	int got;

	buf_init(&text, 64);
	(void)snprintf(allowed, sizeof(allowed), "a whole number from 1 to %llu",
		       (unsigned long long)most);
	got = runs_query(request, response, "limit", &text);
	if (got < -1)
		return -1;
	if (got == 0 || (got > 0 && num_u64("limit", buf_text(&text), 1, most, out, &e) == 0))
		return 0;
	runs_fail_field(response, "limit", allowed, "limit is out of range or no whole number");
	return -1;
}

int runs_query_cursor(const struct http_request *request, struct http_response *response,
		      struct buf *out)
{
	int got = runs_query(request, response, "cursor", out);

	if (got < -1)
		return -1;
	if (got == 0 || (got > 0 && ident_is_uuid(buf_text(out))))
		return 0;
	runs_fail_field(response, "cursor", "the next_cursor of an earlier answer",
			"cursor must be the next_cursor of an earlier answer");
	return -1;
}
