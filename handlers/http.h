/*
 * http.h: a request and a response as plain data. No FastCGI type is known here, so that tests call
 * handlers without a web server.
 *
 * A request belongs to the worker and lives for one call. A response owns its headers and body;
 * http_response_release frees them. Header names are compared without case. Headers set by handlers
 * may hold no CR, LF or NUL: http_response_header refuses them.
 */
#ifndef CORDON_HANDLERS_HTTP_H
#define CORDON_HANDLERS_HTTP_H

#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define HTTP_MAX_RESPONSE_HEADERS 16
#define HTTP_MAX_REQUEST_HEADERS  64

struct http_header {
	const char *name;
	const char *value;
};

struct http_request {
	const char *method;
	const char *path;  /* raw, as the client sent it, without the query */
	const char *query; /* raw, "" if none */
	const char *request_id;
	bool internal; /* came by our own redirect to the render location */
	bool http2;    /* headers of one connection (Upgrade) are forbidden in the answer */
	struct http_header headers[HTTP_MAX_REQUEST_HEADERS];
	size_t header_count;
	const char *body;
	size_t body_length;
	bool body_too_large;
	bool too_many_headers; /* more than fit below: none may be left out silently */
};

struct http_response {
	int status;
	struct http_header headers[HTTP_MAX_RESPONSE_HEADERS]; /* names static, values mem */
	size_t header_count;
	struct buf body;
	bool failed; /* memory ran out while it was built */
};

/* The value of a request header, or NULL. */
const char *http_header(const struct http_request *request, const char *name);

/*
 * A query parameter, percent-decoded once ('+' is a blank) into out (emptied first). 1 found, 0
 * absent, -1 malformed, with a NUL, or out of memory (buf_error(out) tells). The first of several
 * counts.
 */
int http_query(const struct http_request *request, const char *name, struct buf *out);

void http_response_init(struct http_response *response);
void http_response_release(struct http_response *response);
/* name must be static text. */
void http_response_header(struct http_response *response, const char *name, const char *value);
void http_response_headerf(struct http_response *response, const char *name, const char *format,
			   ...) __attribute__((format(printf, 3, 4)));
/* Starts over: status 200, no headers, no body. */
void http_response_reset(struct http_response *response);
/* The value of a header that was set, or NULL (for tests). */
const char *http_response_get(const struct http_response *response, const char *name);

#endif
