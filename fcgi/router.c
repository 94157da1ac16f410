#include "fcgi/router.h"

#include "handlers/authn.h"
#include "handlers/reply.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <strings.h>

void router_match_release(struct route_match *match)
{
	for (size_t i = 0; i < match->count; i++)
		mem_free(match->params[i]);
	match->count = 0;
}

/* Decodes one parameter; -1 when memory is short. One that has a broken escape, a NUL or more bytes
 * than any name becomes "" with bad_path: no handler may take its beginning for the whole. */
static int take_parameter(struct route_match *match, const char *text, size_t length)
{
	scope_buf struct buf decoded = BUF_NONE;
	size_t used;
	bool good;

	buf_init(&decoded, LIMIT_URL_BYTES);
	if (match->count >= ROUTE_MAX_PARAMS)
		return -1;
	good = str_percent_decode(&decoded, text, length) == 0;
	if (buf_error(&decoded) == ERR_NOMEM)
		return -1;
	if (!good || memchr(buf_text(&decoded), '\0', decoded.len) != NULL) {
		buf_reset(&decoded);
		match->bad_path = true;
	}
	match->params[match->count] = buf_steal(&decoded, &used);
	if (match->params[match->count] == NULL)
		return -1;
	match->lengths[match->count] = used;
	match->count++;
	return 0;
}

/* A decoded rest of a path must have no segment that is empty, "." or "..". */
static bool rest_is_bad(const char *text, size_t length)
{
	size_t start = 0;

	for (size_t i = 0; i <= length; i++) {
		if (i < length && text[i] != '/')
			continue;
		if (i == start || (i - start == 1 && text[start] == '.') ||
		    (i - start == 2 && text[start] == '.' && text[start + 1] == '.'))
			return true;
		start = i + 1;
	}
	return false;
}

int router_match(const char *pattern, const char *path, struct route_match *match)
{
	while (*pattern == '/' && *path == '/') {
		size_t want;
		size_t have;

		pattern++;
		path++;
		want = strcspn(pattern, "/");
		have = strcspn(path, "/");
		if (pattern[0] == '{' && str_starts(pattern + want - 4, "...}")) {
			if (take_parameter(match, path, strlen(path)) != 0)
				return -1;
			if (rest_is_bad(match->params[match->count - 1],
					match->lengths[match->count - 1]))
				match->bad_path = true;
			return 1;
		}
		if (pattern[0] == '{') {
			if (have == 0)
				return 0;
			if (take_parameter(match, path, have) != 0)
				return -1;
		} else if (want != have || memcmp(pattern, path, want) != 0) {
			return 0;
		}
		pattern += want;
		path += have;
	}
	return *pattern == '\0' && *path == '\0';
}

struct search {
	const struct route *route;
	struct route_match match;
	char allow[64];
};

static void add_method(struct search *s, const char *method)
{
	size_t used = strlen(s->allow);

	(void)snprintf(s->allow + used, sizeof(s->allow) - used, "%s%s", used == 0 ? "" : ", ",
		       method);
}

/* Finds the route; 1 found, 0 the path is unknown, 2 another method is served here, -1 no memory.
 */
static int find_in(const struct route *routes, size_t count, const struct http_request *request,
		   struct search *s)
{
	int result = 0;

	for (size_t i = 0; i < count; i++) {
		struct route_match match;
		bool head =
		    str_equal(request->method, "HEAD") && str_equal(routes[i].method, "GET");
		int fits;

		memset(&match, 0, sizeof(match));
		fits = router_match(routes[i].pattern, request->path, &match);
		if (fits == 1 && (head || str_equal(request->method, routes[i].method))) {
			s->route = &routes[i];
			s->match = match;
			return 1;
		}
		router_match_release(&match);
		if (fits < 0)
			return -1;
		if (fits == 1) {
			s->route = &routes[i];
			add_method(s, routes[i].method);
			if (str_equal(routes[i].method, "GET"))
				add_method(s, "HEAD");
			result = 2;
		}
	}
	return result;
}

static void run_route(struct handler_context *context, const struct http_request *request,
		      struct search *s, struct http_response *response)
{
	const struct route *route = s->route;
	struct principal caller;
	struct err e = ERR_INIT;

	memset(&caller, 0, sizeof(caller));
	context->has_run = false;
	context->wanted_run = route->about_run && s->match.count > 0 ? s->match.params[0] : NULL;
	if (route->access == ACCESS_KEY || route->access == ACCESS_SOCKET) {
		if (authn_check(context, request, route->access == ACCESS_SOCKET, 0, &caller, &e) !=
		    0) {
			if (route->access == ACCESS_SOCKET && e.code == ERR_UNAUTHORIZED) {
				reply_fail(response, route->face, 401, "unauthorized", e.shown,
					   json_pack("{s:i}", "close_code", 4401));
				http_response_header(response, "WWW-Authenticate", "Bearer");
				return;
			}
			reply_err(response, route->face, request, &e);
			return;
		}
	}
	trace_mark(&context->trace, TRACE_AUTHENTICATED);
	if (s->match.bad_path && route->access != ACCESS_SELF) {
		reply_fail(response, route->face, 400, "invalid_path",
			   "The path may have no empty, \".\" or \"..\" segment, no NUL and no "
			   "broken escape.",
			   NULL);
		return;
	}
	route->run(context, request, &s->match, &caller, response);
	context->wanted_run = NULL;
	context->has_run = false;
}

void router_serve(struct handler_context *context, const struct http_request *request,
		  struct http_response *response)
{
	struct search s;
	int found;

	memset(&s, 0, sizeof(s));
	if (request->too_many_headers) {
		char message[96];

		(void)snprintf(message, sizeof(message), "A request may have at most %d headers.",
			       HTTP_MAX_REQUEST_HEADERS - 1);
		reply_fail(response, &face_runs, 431, "header_too_large", message, NULL);
		return;
	}
	if (request->body_too_large) {
		char message[96];

		(void)snprintf(message, sizeof(message), "The body may have at most %lld bytes.",
			       (long long)context->policy->http.body_bytes);
		reply_fail(response, &face_runs, 413, "body_too_large", message, NULL);
		return;
	}
	found = find_in(runs_routes, runs_route_count, request, &s);
	if (found == 0)
		found = find_in(fleet_routes, fleet_route_count, request, &s);
	if (found == 0)
		found = find_in(system_routes, system_route_count, request, &s);
	if (found == 1) {
		run_route(context, request, &s, response);
		router_match_release(&s.match);
	} else if (found == 2) {
		char message[128];

		(void)snprintf(message, sizeof(message), "This path takes %s.", s.allow);
		reply_fail(response, s.route->face, 405, "method_not_allowed", message, NULL);
		http_response_header(response, "Allow", s.allow);
	} else if (found < 0) {
		reply_no_memory(response, &face_runs);
	} else {
		reply_fail(response, &face_runs, 404, "not_found", "There is no such path.", NULL);
	}
	if (response->failed)
		reply_fail(response, &face_runs, 500, "internal_error",
			   "The answer could not be built.", NULL);
}
