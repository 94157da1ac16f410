/* test_router: from a path to a route, decoded once; answers that need no database. */
#include "fcgi/router.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

#define ID   "0190a5c0-0000-7000-8000-0123456789ab"
#define BASE "/api/v1/sandbox"
#define KEY  "ck_abcdefabcdef_abcdefghijklmnopqrstuvwxyz234567"

/* --- matching ------------------------------------------------------------------------------- */

/* The parameters joined by '|', with '!' in front of a bad path; "-" when the path does not fit. */
static void match_is(const char *pattern, const char *path, const char *want)
{
	struct route_match match;
	scope_buf struct buf got;
	int fits;

	memset(&match, 0, sizeof(match));
	buf_init(&got, 20000);
	fits = router_match(pattern, path, &match);
	if (fits == 0)
		buf_add_str(&got, "-");
	if (fits == 1 && match.bad_path)
		buf_add_str(&got, "!");
	for (size_t i = 0; fits == 1 && i < match.count; i++) {
		buf_addf(&got, "%s%s", i == 0 ? "" : "|", match.params[i]);
		CU_ASSERT_EQUAL(match.lengths[i], strlen(match.params[i]));
	}
	ASSERT_TEXT(buf_text(&got), want);
	router_match_release(&match);
	CU_ASSERT_EQUAL(match.count, 0);
}

static void test_match(void)
{
	match_is("/a/b", "/a/b", "");
	match_is("/a/b", "/a/b/", "-");
	match_is("/a/b", "/a", "-");
	match_is("/a/b", "/a/bc", "-");
	match_is("/a/b", "//a/b", "-");
	match_is("/a/b", "/a//b", "-");
	match_is("/a/b", "a/b", "-");
	match_is("/a/b", "", "-");
	match_is("/a/b", "/A/b", "-");
	/* literal segments are compared as they came */
	match_is("/a/b", "/%61/b", "-");
	match_is("/a/{id}", "/a/x", "x");
	match_is("/a/{id}", "/a/", "-");
	match_is("/a/{id}", "/a", "-");
	match_is("/a/{id}", "/a/x/y", "-");
	match_is("/a/{id}/b", "/a/x/b", "x");
	match_is("/a/{id}/b", "/a//b", "-");
	match_is("/a/{x}/b/{y}", "/a/1/b/2", "1|2");
	match_is("/a/{p...}", "/a/x/y/z", "x/y/z");
	match_is("/a/{p...}", "/a", "-");
	match_is("/a/{p...}", "/a/", "!");
}

static void test_b14_ids(void)
{
	match_is("/r/{id}", "/r/..", "..");
	match_is("/r/{id}", "/r/%2e%2e", "..");
	match_is("/r/{id}", "/r/a%2fb", "a/b");
	match_is("/r/{id}", "/r/a%252fb", "a%2fb");
	match_is("/r/{id}/x", "/r/a%2fx", "-");
	/* nobody may take the beginning for the whole */
	match_is("/r/{id}", "/r/" ID "%00", "!");
	match_is("/r/{id}", "/r/" ID "%00x", "!");
	match_is("/r/{id}", "/r/%00", "!");
	match_is("/r/{id}", "/r/%", "!");
	match_is("/r/{id}", "/r/a%2", "!");
	match_is("/r/{id}", "/r/a%zz", "!");
	match_is("/r/{id}", "/r/a+b", "a+b");
}

static void test_b14_paths(void)
{
	match_is("/f/{p...}", "/f/a.txt", "a.txt");
	match_is("/f/{p...}", "/f/..", "!..");
	match_is("/f/{p...}", "/f/.", "!.");
	match_is("/f/{p...}", "/f/../../etc/passwd", "!../../etc/passwd");
	match_is("/f/{p...}", "/f/..%2f..%2fetc%2fpasswd", "!../../etc/passwd");
	match_is("/f/{p...}", "/f/%2e%2e/x", "!../x");
	match_is("/f/{p...}", "/f/x/%2e", "!x/.");
	/* one decoding only: this is a name with a percent sign */
	match_is("/f/{p...}", "/f/%252e%252e", "%2e%2e");
	match_is("/f/{p...}", "/f/%252e%252e/", "!%2e%2e/");
	match_is("/f/{p...}", "/f/%252e%252e/x", "%2e%2e/x");
	match_is("/f/{p...}", "/f/a/./b//c", "!a/./b//c");
	match_is("/f/{p...}", "/f//abs", "!/abs");
	match_is("/f/{p...}", "/f/%2fabs", "!/abs");
	match_is("/f/{p...}", "/f/a%00.txt", "!");
	match_is("/f/{p...}", "/f/....//", "!....//");
	match_is("/f/{p...}", "/f/a/", "!a/");
	match_is("/f/{p...}", "/f/%c0%ae%c0%ae/", "!\xc0\xae\xc0\xae/");
	match_is("/f/{p...}", "/f/%c0%ae%c0%ae", "\xc0\xae\xc0\xae");
	match_is("/f/{p...}", "/f/...", "...");
	match_is("/f/{p...}", "/f/a..b/..c/d..", "a..b/..c/d..");
	match_is("/f/{p...}", "/f/..%5cx", "..\\x");
	match_is("/f/{p...}", "/f/%", "!");
	/* B23: names */
	match_is("/f/{p...}", "/f/90%25.txt", "90%.txt");
	match_is("/f/{p...}", "/f/r%2541.txt", "r%41.txt");
	match_is("/f/{p...}", "/f/q%3Fx%3D1%23y", "q?x=1#y");
	match_is("/f/{p...}", "/f/a%20b+c", "a b+c");
	match_is("/f/{p...}", "/f/%0d%0aX:%20y", "\r\nX: y");
	match_is("/f/{p...}", "/f/%FF", "\xff");
}

static void test_long_names(void)
{
	scope_buf struct buf path;
	scope_buf struct buf want;

	buf_init(&path, 1 << 20);
	buf_init(&want, 1 << 20);
	/* the longest name that a run can make, each byte escaped */
	buf_add_str(&path, "/f/");
	for (int i = 0; i < 4096; i++) {
		buf_add_str(&path, "%C3");
		buf_add_str(&want, "\xc3");
	}
	match_is("/f/{p...}", buf_text(&path), buf_text(&want));
	/* longer than any name: refused, not "out of memory" */
	for (int i = 0; i < 6000; i++)
		buf_add_str(&path, "%C3");
	match_is("/f/{p...}", buf_text(&path), "!");
	match_is("/f/{id}", buf_text(&path), "!");
}

/* --- serving -------------------------------------------------------------------------------- */

static struct policy *policy;
static struct store *db;

static void open_context(struct handler_context *context)
{
	static const char text[] = "public_url: https://localhost:8443\n";
	static const struct store_options options = {
	    .socket = "/nonexistent/db.sock", .database = "cordon", .user = "nobody"};
	struct err e = ERR_INIT;

	json_setup();
	if (policy == NULL && policy_parse("p", text, sizeof(text) - 1, &policy, &e) != 0)
		CU_FAIL_FATAL("policy");
	if (db == NULL && store_open(&options, &db, &e) != 0)
		CU_FAIL_FATAL("store");
	memset(context, 0, sizeof(*context));
	context->policy = policy;
	context->db = db;
	context->image_digest = "sha256:0";
}

/* Serves, and checks that an error has the face's shape. The status; the code in out. */
static int serve(const char *method, const char *path, const char *key, char out[64],
		 struct http_response *response)
{
	struct handler_context context;
	struct http_request request = {.method = method,
				       .path = path,
				       .query = "",
				       .request_id = "r1",
				       .body = "{}",
				       .body_length = 2};
	json_t *body = NULL;
	struct err e = ERR_INIT;

	open_context(&context);
	if (key != NULL)
		request.headers[request.header_count++] = (struct http_header){"X-API-KEY", key};
	http_response_init(response);
	router_serve(&context, &request, response);
	CU_ASSERT_FALSE(response->failed);
	CU_ASSERT_EQUAL_FATAL(json_parse(buf_text(&response->body), response->body.len, &body, &e),
			      0);
	(void)snprintf(out, 64, "-");
	if (response->status >= 400) {
		json_t *error = json_object_get(body, "error");

		(void)snprintf(out, 64, "%.63s", json_text(json_object_get(error, "code")));
		CU_ASSERT(json_text(json_object_get(error, "message")) != NULL);
		CU_ASSERT(json_is_object(json_object_get(error, "details")));
	}
	json_decref(body);
	return response->status;
}

static void serves(const char *method, const char *path, const char *key, int status,
		   const char *code)
{
	struct http_response response;
	char got[64];

	CU_ASSERT_EQUAL(serve(method, path, key, got, &response), status);
	ASSERT_TEXT(got, code);
	CU_ASSERT_EQUAL(status == 401, http_response_get(&response, "WWW-Authenticate") != NULL);
	CU_ASSERT_EQUAL(status == 503, http_response_get(&response, "Retry-After") != NULL);
	http_response_release(&response);
}

static void test_routes(void)
{
	static const char *const get[] = {
	    BASE "/runs",
	    BASE "/runs/" ID,
	    BASE "/runs/" ID "/artifacts",
	    BASE "/runs/" ID "/artifacts/a/b",
	    BASE "/runs/" ID "/stream",
	    BASE "/health",
	};
	static const char *const unknown[] = {
	    "/",
	    "",
	    "/api",
	    BASE,
	    BASE "/",
	    BASE "/runs/",
	    BASE "//runs",
	    BASE "/runs/" ID "/",
	    BASE "/runs/" ID "/nothing",
	    BASE "/runs//artifacts",
	    BASE "/runs/../runs",
	    BASE "/health/public/",
	    "/api/v1/sandbox%2fruns",
	};

	for (size_t i = 0; i < ARRAY_LEN(get); i++) {
		serves("GET", get[i], NULL, 401, "unauthorized");
		serves("HEAD", get[i], NULL, 401, "unauthorized");
		serves("GET", get[i], "nonsense", 401, "unauthorized");
		/* MariaDB down: a key that may be right */
		serves("GET", get[i], KEY, 503, "store_unavailable");
	}
	serves("POST", BASE "/runs", NULL, 401, "unauthorized");
	serves("POST", BASE "/runs/" ID "/cancel", NULL, 401, "unauthorized");
	for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
		serves("GET", unknown[i], NULL, 404, "not_found");
		serves("POST", unknown[i], KEY, 404, "not_found");
	}
}

static void allow_is(const char *method, const char *path, const char *allow)
{
	struct http_response response;
	char code[64];

	CU_ASSERT_EQUAL(serve(method, path, NULL, code, &response), 405);
	ASSERT_TEXT(code, "method_not_allowed");
	ASSERT_TEXT(http_response_get(&response, "Allow"), allow);
	http_response_release(&response);
}

static void test_methods(void)
{
	allow_is("PUT", BASE "/runs", "POST, GET, HEAD");
	allow_is("DELETE", BASE "/runs/" ID, "GET, HEAD");
	allow_is("GET", BASE "/runs/" ID "/cancel", "POST");
	allow_is("HEAD", BASE "/runs/" ID "/cancel", "POST");
	allow_is("POST", BASE "/runs/" ID "/artifacts/x", "GET, HEAD");
	allow_is("POST", BASE "/health/public", "GET, HEAD");
	allow_is("get", BASE "/runs", "POST, GET, HEAD");
	allow_is("OPTIONS", BASE "/runs", "POST, GET, HEAD");
}

static void test_b14_before_the_key(void)
{
	/* a caller without a key learns nothing about paths */
	serves("GET", BASE "/runs/" ID "/artifacts/../x", NULL, 401, "unauthorized");
	serves("GET", BASE "/runs/" ID "%00", NULL, 401, "unauthorized");
}

static void test_internal(void)
{
	/* not by a redirect of ours: no such path, with or without a key */
	serves("GET", "/internal/render/node1/run/" ID, NULL, 404, "not_found");
	serves("GET", "/internal/render/node1/run/" ID, KEY, 404, "not_found");
	serves("POST", "/internal/render/node1/run/" ID, KEY, 404, "not_found");
	serves("GET", "/internal/render/%00/run/%zz", NULL, 404, "not_found");
}

static void test_health_without_database(void)
{
	struct http_response response;
	char code[64];

	CU_ASSERT_EQUAL(serve("GET", BASE "/health/public", NULL, code, &response), 200);
	CU_ASSERT(str_starts(
	    buf_text(&response.body),
	    "{\"ok\":false,\"store\":{\"mode\":\"mariadb\",\"healthy\":false,\"code\":\"internal_error\"}"));
	http_response_release(&response);
}

static void test_body_too_large(void)
{
	struct handler_context context;
	struct http_request request = {.method = "POST",
				       .path = BASE "/runs",
				       .query = "",
				       .request_id = "r",
				       .body_too_large = true};
	struct http_response response;

	open_context(&context);
	http_response_init(&response);
	router_serve(&context, &request, &response);
	CU_ASSERT_EQUAL(response.status, 413);
	CU_ASSERT(strstr(buf_text(&response.body), "\"body_too_large\"") != NULL);
	CU_ASSERT(strstr(buf_text(&response.body), "8388608 bytes") != NULL);
	http_response_release(&response);
}

/* The close code of a refused handshake. */
static void test_stream_refusal(void)
{
	struct http_response response;
	char code[64];

	CU_ASSERT_EQUAL(serve("GET", BASE "/runs/" ID "/stream", NULL, code, &response), 401);
	CU_ASSERT(strstr(buf_text(&response.body), "\"close_code\":4401") != NULL);
	http_response_release(&response);
}

static void test_serve_faults(void)
{
	static const char *const paths[] = {BASE "/runs/" ID, BASE "/nothing",
					    BASE "/runs/" ID "/artifacts/a%20b",
					    BASE "/health/public"};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		unsigned long n = 1;
		bool failed = true;

		for (; failed && n < 1000; n++) {
			struct handler_context context;
			struct http_request request = {
			    .method = "GET", .path = paths[i], .query = "", .request_id = "r"};
			struct http_response response;

			open_context(&context);
			http_response_init(&response);
			mem_fail_at(n);
			router_serve(&context, &request, &response);
			failed = mem_has_failed();
			mem_fail_at(0);
			/* one failed allocation costs the answer, not its form */
			CU_ASSERT(response.body.len > 2 && response.body.data[0] == '{' &&
				  str_ends(response.body.data, "}"));
			CU_ASSERT_FALSE(response.failed);
			http_response_release(&response);
		}
		CU_ASSERT(n > 3 && n < 1000);
	}
	store_close(db);
	db = NULL;
	policy_free(policy);
	policy = NULL;
}

static const struct test tests[] = {
    {"router", "match", test_match},
    {"router", "B14 ids", test_b14_ids},
    {"router", "B14 and B23 paths", test_b14_paths},
    {"router", "long names", test_long_names},
    {"router", "routes", test_routes},
    {"router", "methods", test_methods},
    {"router", "B14 before the key", test_b14_before_the_key},
    {"router", "internal locations", test_internal},
    {"router", "health without a database", test_health_without_database},
    {"router", "body too large", test_body_too_large},
    {"router", "stream refused", test_stream_refusal},
    {"router", "serve faults", test_serve_faults},
};

TEST_MAIN(tests)
