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

#endif
