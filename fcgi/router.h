/*
 * router.h: from a path to a handler. Splits the raw path at '/', decodes each segment once, checks
 * the caller, runs the handler. Knows no FastCGI; tests call router_serve directly.
 */
#ifndef CORDON_FCGI_ROUTER_H
#define CORDON_FCGI_ROUTER_H

#include "handlers/handler.h"

/* Always leaves a complete answer in response. */
void router_serve(struct handler_context *context, const struct http_request *request,
		  struct http_response *response);

/*
 * Whether path (raw, without the query) fits pattern: 1 and the decoded parameters in match (which
 * starts zeroed), 0, or -1 when memory ends. match is to be released in any case. Exported for its
 * tests.
 */
int router_match(const char *pattern, const char *path, struct route_match *match);
void router_match_release(struct route_match *match);

#endif
