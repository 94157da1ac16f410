/* Face 1: GET /openapi.json. */
#include "handlers/runs/openapi.h"

#include "handlers/runs/runs.h"
#include "openapi_data.h"
#include "runners/base/str.h"

const struct openapi_document openapi_face1 = {(const char *)openapi_json, sizeof(openapi_json),
					       openapi_etag};

/* If-None-Match: a list of validators, compared weakly (RFC 9110), or *. */
static bool client_has_it(const struct http_request *request)
{
	const char *at = http_header(request, "If-None-Match");
	size_t length = strlen(openapi_etag);

	while (at != NULL && *at != '\0') {
		at += strspn(at, " \t,");
		if (*at == '*')
			return true;
		if (str_starts(at, "W/"))
			at += 2;
		if (strncmp(at, openapi_etag, length) == 0)
			return true;
		at += strcspn(at, ",");
	}
	return false;
}

void runs_openapi(struct handler_context *context, const struct http_request *request,
		  const struct route_match *match, const struct principal *nobody,
		  struct http_response *response)
{
	(void)context;
	(void)match;
	(void)nobody;
	http_response_header(response, "ETag", openapi_etag);
	/* it changes with the program only, but clients should learn of that soon */
	http_response_header(response, "Cache-Control", "public, max-age=300");
	if (client_has_it(request)) {
		response->status = 304;
		return;
	}
	http_response_header(response, "Content-Type", "application/json");
	buf_add(&response->body, openapi_face1.text, openapi_face1.length);
	if (!buf_ok(&response->body))
		response->failed = true;
}
