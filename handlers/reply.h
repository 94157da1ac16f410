/* reply.h: answers. The only place that turns an error of ours into a status. */
#ifndef CORDON_HANDLERS_REPLY_H
#define CORDON_HANDLERS_REPLY_H

#include "handlers/handler.h"

/* 200 (or status) with a JSON body; steals body. */
void reply_json(struct http_response *response, int status, json_t *body);
/* An error in the face's shape; steals error->details. Replaces whatever was in the response. */
void reply_error(struct http_response *response, const struct face *face,
		 const struct api_error *error);
/* The same with plain values; steals details (may be NULL). */
void reply_fail(struct http_response *response, const struct face *face, int status,
		const char *code, const char *message, json_t *details);
/* From an error object: status and code by its class; logs what is our fault with the request id.
 */
void reply_err(struct http_response *response, const struct face *face,
	       const struct http_request *request, const struct err *e);

/* 503: there is no memory; never blamed on the client. */
void reply_no_memory(struct http_response *response, const struct face *face);

#endif
