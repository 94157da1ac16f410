/* Health: with a key and without one. */
#include "handlers/ops/op_runtime.h"
#include "handlers/reply.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"

/* The same body for both: what is asked of the store is also what is timed. There is no Redis in
 * this system; clients of the original look for the member. */
static json_t *health_body(struct handler_context *context)
{
	char mode[OP_STORE_MODE_SIZE];
	struct err e = ERR_INIT;
	int64_t start = clock_monotonic_us();
	bool good = op_store_mode(context, mode, &e) == 0;
	double store_ms = (double)(clock_monotonic_us() - start) / 1000.0;
	json_t *store;

	if (good)
		store = json_pack("{s:s, s:b}", "mode", mode, "healthy", 1);
	else
		store = json_pack("{s:s, s:b, s:s}", "mode", "mariadb", "healthy", 0, "code",
				  "internal_error");
	return json_pack("{s:b, s:o, s:{s:b}, s:{s:f}}", "ok", good, "store", store, "redis",
			 "enabled", 0, "timings", "store_ms", store_ms);
}

static void health(struct handler_context *context, const struct http_request *request,
		   const struct route_match *match, const struct principal *caller,
		   struct http_response *response)
{
	(void)request;
	(void)match;
	(void)caller;
	reply_json(response, 200, health_body(context));
}

#define BASE "/api/v1/sandbox"

/* The public one never needs the database: it says ok false when it is away. */
const struct route system_routes[] = {
    {"GET", BASE "/health", ACCESS_KEY, health, &face_runs},
    {"GET", BASE "/health/public", ACCESS_OPEN, health, &face_runs},
};

const size_t system_route_count = ARRAY_LEN(system_routes);
