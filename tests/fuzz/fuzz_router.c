/* fuzz_router: any bytes as a path, without a database: each answer is whole, and what a pattern
 * matched is text without NUL, and safe where it is not marked as bad. */
#include "fcgi/router.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void must(bool right)
{
	if (!right)
		abort();
}

static void judge(const char *path)
{
	struct route_match match;
	int fits;

	memset(&match, 0, sizeof(match));
	fits = router_match("/api/v1/sandbox/runs/{id}/artifacts/{path...}", path, &match);
	must(fits >= 0);
	for (size_t i = 0; i < match.count; i++)
		must(strlen(match.params[i]) == match.lengths[i]);
	if (fits == 1 && !match.bad_path) {
		const char *rest = match.params[1];

		must(match.count == 2 && rest[0] != '\0' && rest[0] != '/');
		must(strstr(rest, "//") == NULL && strstr(rest, "/../") == NULL &&
		     strstr(rest, "/./") == NULL && !str_starts(rest, "../") &&
		     !str_ends(rest, "/..") && !str_equal(rest, ".."));
	}
	router_match_release(&match);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static const struct store_options nowhere = {.socket = "/nonexistent", .user = "nobody"};
	static const char *const methods[] = {"GET", "POST", "HEAD", "PUT"};
	static struct policy *policy;
	static struct store *db;
	scope_free char *path = mem_dup_bytes(data, size);
	struct handler_context context = {.image_digest = ""};
	struct http_request request = {.query = "", .request_id = "r", .body = ""};
	struct http_response response;
	struct err e = ERR_INIT;
	static const char text[] = "public_url: https://localhost:8443\n";

	if (policy == NULL) {
		must(policy_parse("p", text, sizeof(text) - 1, &policy, &e) == 0);
		must(store_open(&nowhere, &db, &e) == 0);
	}
	must(path != NULL);
	judge(path);
	context.policy = policy;
	context.db = db;
	request.path = path;
	request.method = methods[size % 4];
	/* no key: nothing but the open routes is run */
	http_response_init(&response);
	router_serve(&context, &request, &response);
	must(!response.failed && response.body.len > 2 && response.body.data[0] == '{');
	must(response.status == 200 || response.status == 401 || response.status == 404 ||
	     response.status == 405);
	http_response_release(&response);
	return 0;
}
