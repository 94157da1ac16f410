/* request.h: from FastCGI parameters to struct http_request. Only request.c and response.c know
 * libfcgi's types. */
#ifndef CORDON_FCGI_REQUEST_H
#define CORDON_FCGI_REQUEST_H

#include "handlers/http.h"

struct fcgi_request; /* an FCGX_Request and what request.c keeps with it */

/* listen_fd stays the caller's. */
int fcgi_request_open(int listen_fd, struct fcgi_request **out, struct err *e);
void fcgi_request_close(struct fcgi_request *r);

/* Takes a request from the listener, which must not block: 1 accepted, 0 another one has it, -1 the
 * listener is broken. TERM must be blocked: a signal between the accept and the first bytes would
 * lose the connection (libfcgi). */
int fcgi_request_accept(struct fcgi_request *r);

/* Reads body and parameters; all pointers in *out live until fcgi_request_finish. -1: the client
 * went away or no memory. */
int fcgi_request_read(struct fcgi_request *r, size_t max_body, struct http_request *out,
		      struct err *e);

/* Writes the answer. Errors only mean that the client is gone. */
int fcgi_request_write(struct fcgi_request *r, const struct http_request *request,
		       const struct http_response *response);
void fcgi_request_finish(struct fcgi_request *r);

#endif
