/*
 * common.h: what the handlers of face 1 share: reading a request's body, key and query, and the
 * refusals that several routes give. A function that gives -1, false or NULL has answered.
 */
#ifndef CORDON_HANDLERS_RUNS_COMMON_H
#define CORDON_HANDLERS_RUNS_COMMON_H

#include "handlers/fields.h"
#include "handlers/handler.h"

/* The problems as details.fields. */
void runs_fail_fields(struct http_response *response, int status, const char *code,
		      const char *message, struct problems *p);
/* 422 validation_error with one field; allowed may be NULL. */
void runs_fail_field(struct http_response *response, const char *field, const char *allowed,
		     const char *message);
/* ERR_NOT_FOUND has face 1's own code. */
void runs_fail_session(struct http_response *response, const struct http_request *request,
		       const struct err *e);
void runs_fail_conflict(struct http_response *response, const char *prior_id, const char *key,
			const char *prior_created_at);
/* What admit_run said; the details are taken. */
void runs_fail_admission(struct http_response *response, const struct http_request *request,
			 const struct api_error *refusal, const struct err *e);

/* The body, a JSON object, to be released. */
json_t *runs_read_object(const struct http_request *request, struct http_response *response);
/* The Idempotency-Key; NULL: there is none. */
int runs_read_key(const struct http_request *request, const char **out,
		  struct http_response *response);
bool runs_version_is_good(const struct policy *policy, const struct field_text *version,
			  struct http_response *response);

/* As http_query; -2 when memory ended, which is answered then. */
int runs_query(const struct http_request *request, struct http_response *response, const char *name,
	       struct buf *out);
/* `limit` and `cursor` of a list; *out keeps its value without a limit. */
int runs_query_limit(const struct http_request *request, struct http_response *response,
		     uint64_t most, uint64_t *out);
int runs_query_cursor(const struct http_request *request, struct http_response *response,
		      struct buf *out);

#endif
