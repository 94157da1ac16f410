/* Health: with a key and without one. */
#include "handlers/reply.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"

static json_t *health_body(struct handler_context *context, bool *out_ok)
{
	struct err e = ERR_INIT;
	int64_t start = clock_monotonic_us();
	int got = store_query_row(context->db, STMT_PING, NULL, 0, &e);
	double store_ms = (double)(clock_monotonic_us() - start) / 1000.0;

	store_done(context->db);
	*out_ok = got == 1;
	return json_pack("{s:b, s:{s:s, s:b}, s:{s:b}, s:{s:f}}", "ok", got == 1, "store", "mode",
			 "mariadb", "healthy", got == 1, "redis", "enabled", 0, "timings",
			 "store_ms", store_ms);
}

static void health(struct handler_context *context, const struct http_request *request,
		   const struct route_match *match, const struct principal *caller,
		   struct http_response *response)
{
	bool ok;

	(void)request;
	(void)match;
	(void)caller;
	reply_json(response, 200, health_body(context, &ok));
}

#define BASE "/api/v1/sandbox"

/* The public one never needs the database: it says ok false when it is away. */
const struct route system_routes[] = {
    {"GET", BASE "/health", ACCESS_KEY, health, &face_runs},
    {"GET", BASE "/health/public", ACCESS_OPEN, health, &face_runs},
};

const size_t system_route_count = ARRAY_LEN(system_routes);
