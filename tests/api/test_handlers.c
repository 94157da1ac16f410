/* test_handlers: what changes something: POST, idempotency, the queue, and the fault loop over all
 * routes. In process, against the private stack's MariaDB. test_handlers_read has the rest. */
#include "fcgi/router.h"
#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/callrig.h"

#include <dirent.h>

/* --- POST ----------------------------------------------------------------------------------- */

static void test_post(void)
{
	struct answer a;
	struct answer b;
	char path[200];
	const char *name;
	json_t *value;

	post(alice, NULL,
	     "{\"base_image\":\"host\",\"command\":[\"true\"],\"persona_id\":\"caf\xc3\xa9\","
	     "\"resume_from_seq\":3,\"trust_level\":\"untrusted\"}",
	     &a);
	CU_ASSERT_EQUAL_FATAL(a.response.status, 200);
	CU_ASSERT(ident_is_uuid(member(&a, "id")));
	ASSERT_TEXT(member(&a, "phase"), "queued");
	ASSERT_TEXT(member(&a, "status_reason_code"), "queued");
	ASSERT_TEXT(member(&a, "runtime"), "namespace");
	ASSERT_TEXT(member(&a, "base_image"), "host");
	ASSERT_TEXT(member(&a, "image_digest"), "sha256:test");
	ASSERT_TEXT(member(&a, "persona_id"), "caf\xc3\xa9");
	CU_ASSERT(json_is_null(json_object_get(a.body, "started_at")));
	CU_ASSERT(json_is_null(json_object_get(a.body, "finished_at")));
	CU_ASSERT(json_is_null(json_object_get(a.body, "exit_code")));
	CU_ASSERT_EQUAL(strlen(member(&a, "policy_hash")), 16);
	CU_ASSERT(str_ends(member(&a, "created_at"), "Z"));
	CU_ASSERT_EQUAL(strlen(member(&a, "created_at")), 27);
	CU_ASSERT(str_starts(member(&a, "log_stream_url"), "wss://localhost:"));
	CU_ASSERT(str_ends(member(&a, "log_stream_url"), "/stream?from_seq=3"));
	/* GET agrees in every member */
	(void)snprintf(path, sizeof(path), BASE "/runs/%s", member(&a, "id"));
	get(alice, path, &b);
	CU_ASSERT_EQUAL(b.response.status, 200);
	CU_ASSERT_EQUAL(json_object_size(a.body), json_object_size(b.body));
	json_object_foreach (a.body, name, value)
		CU_ASSERT(json_equal(value, json_object_get(b.body, name)));
	CU_ASSERT_EQUAL(api_number(api.db,
				   "SELECT COUNT(*) FROM job WHERE object_id = '%s' AND node = "
				   "'" NODE "' AND state = 'queued' AND request_id = 'req-test'",
				   member(&a, "id")),
			1);
	answer_release(&a);
	answer_release(&b);
}

static void test_post_held(void)
{
	struct answer a;
	struct call c = {.method = "POST", .path = BASE "/runs", .key = alice, .body = RUN};
	const char *url;

	/* without a preference the answer is held at the gate of the run's node */
	call(&c, &a);
	url = http_response_get(&a.response, "X-Accel-Redirect");
	CU_ASSERT_PTR_NOT_NULL_FATAL(url);
	CU_ASSERT(str_starts(url, "/internal/hold/" NODE "/run/"));
	CU_ASSERT(strstr(url, "as=run&") != NULL);
	CU_ASSERT_EQUAL(a.response.body.len, 0);
	/* no key of a client goes on in a URL, only its id */
	CU_ASSERT_PTR_NULL(strstr(url, alice + 16));
	answer_release(&a);
	c.more[0] = (struct http_header){"Prefer", "wait=0"};
	call(&c, &a);
	CU_ASSERT_PTR_NULL(http_response_get(&a.response, "X-Accel-Redirect"));
	ASSERT_TEXT(member(&a, "phase"), "queued");
	answer_release(&a);
	c.more[0] = (struct http_header){"Prefer", "handling=lenient; x=1, RESPOND-ASYNC"};
	call(&c, &a);
	ASSERT_TEXT(member(&a, "phase"), "queued");
	answer_release(&a);
	c.more[0] = (struct http_header){"Prefer", "wait=nonsense"};
	call(&c, &a);
	CU_ASSERT_PTR_NOT_NULL(http_response_get(&a.response, "X-Accel-Redirect"));
	answer_release(&a);
}

static void test_b12_refusals(void)
{
	struct answer a;
	struct call c = {.method = "POST", .path = BASE "/runs", .key = alice, .body = RUN};

	body_is("", 400, "invalid_json");
	body_is("{", 400, "invalid_json");
	body_is("[]", 400, "invalid_json");
	body_is("{\"a\":1,\"a\":2}", 400, "invalid_json");
	body_is(RUN "x", 400, "invalid_json");
	body_is("{\"a\":\"\xff\"}", 400, "invalid_json");
	body_is("{\"command\":[\"\\ud800\"]}", 400, "invalid_json");
	body_is("{}", 422, "validation_error");
	body_is("{\"base_image\":\"host\",\"command\":[]}", 422, "validation_error");
	body_is("{\"base_image\":\"host\",\"command\":[\"a\\u0000\"]}", 422, "validation_error");
	body_is("{\"base_image\":\"nothing\",\"command\":[\"a\"]}", 422, "unknown_base_image");
	body_is("{\"session_id\":\"x\",\"command\":[\"a\"]}", 404, "session_not_found");
	body_is("{\"base_image\":\"host\",\"command\":[\"a\"],\"spec_version\":\"9\"}", 400,
		"invalid_spec_version");
	body_is("{\"base_image\":\"host\",\"command\":[\"a\"],\"runtime\":\"docker\"}", 503,
		"runtime_unavailable");
	body_is("{\"base_image\":\"host\",\"command\":[\"a\"],\"trust_level\":\"trusted\"}", 422,
		"policy_unsupported");
	body_is("{\"base_image\":\"host\",\"command\":[\"a\"],\"files\":[{\"path\":\"../x\","
		"\"content_b64\":\"\"}]}",
		422, "invalid_inline_file");
	c.more[0] = (struct http_header){"Content-Type", "text/plain"};
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 415);
	ASSERT_TEXT(a.code, "unsupported_media_type");
	answer_release(&a);
	c.more[0] = (struct http_header){"Content-Type", "application/jsonx"};
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 415);
	answer_release(&a);
	c.more[0] = (struct http_header){"Content-Type", "Application/JSON;charset=utf-8"};
	c.more[1] = (struct http_header){"Prefer", "respond-async"};
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	answer_release(&a);
}

static void test_b11_names_the_field(void)
{
	static const char *const values[] = {"0",
					     "-1",
					     "0.5",
					     "\"60\"",
					     "true",
					     "3601",
					     "1e309",
					     "9223372036854775808",
					     "9007199254740993"};

	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		struct answer a;
		char body[300];
		json_t *field;

		(void)snprintf(body, sizeof(body),
			       "{\"base_image\":\"host\",\"command\":[\"a\"],\"timeout_sec\":%s}",
			       values[i]);
		post(alice, NULL, body, &a);
		CU_ASSERT_EQUAL(a.response.status, 422);
		ASSERT_TEXT(a.code, "validation_error");
		field = json_array_get(json_object_get(details(&a), "fields"), 0);
		ASSERT_TEXT(json_text(json_object_get(field, "field")), "timeout_sec");
		CU_ASSERT_PTR_NOT_NULL(json_text(json_object_get(field, "allowed")));
		answer_release(&a);
	}
}

/* --- idempotency ---------------------------------------------------------------------------- */

static void test_replay(void)
{
	struct answer a;
	struct answer b;
	int64_t before;

	post(alice, "key one", RUN, &a);
	CU_ASSERT_EQUAL_FATAL(a.response.status, 200);
	before = api_number(api.db, "SELECT COUNT(*) FROM run WHERE tenant LIKE '%s%%'", TENANT);
	/* the same by the rule of the fingerprint, not by bytes */
	post(alice, "key one",
	     "{\"command\":[\"true\"], \"timeout_sec\":300.0, \"base_image\":\"host\",\"x\":1}",
	     &b);
	CU_ASSERT_EQUAL(b.response.status, 200);
	ASSERT_TEXT(member(&b, "id"), member(&a, "id"));
	CU_ASSERT_EQUAL(
	    api_number(api.db, "SELECT COUNT(*) FROM run WHERE tenant LIKE '%s%%'", TENANT),
	    before);
	answer_release(&b);
	/* a replay shows the object as it is now */
	api_sql(
	    api.db,
	    "UPDATE run SET phase = 'completed', exit_code = 0, message = 'exit=0', finished_at "
	    "= UTC_TIMESTAMP(6) WHERE id = '%s'",
	    member(&a, "id"));
	post(alice, "key one", RUN, &b);
	ASSERT_TEXT(member(&b, "phase"), "completed");
	answer_release(&b);
	answer_release(&a);
}

static void test_conflict(void)
{
	struct answer a;
	struct answer b;

	post(alice, "key two", RUN, &a);
	CU_ASSERT_EQUAL_FATAL(a.response.status, 200);
	post(alice, "key two", "{\"base_image\":\"host\",\"command\":[\"false\"]}", &b);
	CU_ASSERT_EQUAL(b.response.status, 409);
	ASSERT_TEXT(b.code, "idempotency_conflict");
	ASSERT_TEXT(json_text(json_object_get(details(&b), "prior_id")), member(&a, "id"));
	ASSERT_TEXT(json_text(json_object_get(details(&b), "key")), "key two");
	CU_ASSERT(str_ends(json_text(json_object_get(details(&b), "prior_created_at")), "Z"));
	CU_ASSERT_EQUAL(json_object_size(details(&b)), 3);
	answer_release(&b);
	/* its time is over: a new run */
	api_sql(api.db,
		"UPDATE idempotency SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE "
		"tenant = '%s-a' AND idem_key = 'key two'",
		TENANT);
	post(alice, "key two", "{\"base_image\":\"host\",\"command\":[\"false\"]}", &b);
	CU_ASSERT_EQUAL(b.response.status, 200);
	CU_ASSERT_STRING_NOT_EQUAL(member(&b, "id"), member(&a, "id"));
	answer_release(&b);
	answer_release(&a);
}

static void test_b19_keys_per_owner(void)
{
	static char *const keys[] = {alice, bob, mallory};
	char ids[3][IDENT_UUID_SIZE];

	for (size_t i = 0; i < 3; i++) {
		struct answer a;
		char body[100];

		/* different bodies: a shared key would be a conflict */
		(void)snprintf(body, sizeof(body),
			       "{\"base_image\":\"host\",\"command\":[\"echo\",\"%zu\"]}", i);
		post(keys[i], "shared", body, &a);
		CU_ASSERT_EQUAL(a.response.status, 200);
		CU_ASSERT_EQUAL_FATAL(str_copy(ids[i], IDENT_UUID_SIZE, member(&a, "id")), 0);
		answer_release(&a);
	}
	CU_ASSERT_STRING_NOT_EQUAL(ids[0], ids[1]);
	CU_ASSERT_STRING_NOT_EQUAL(ids[0], ids[2]);
}

static void key_is(const char *idem, int status)
{
	struct answer a;

	post(alice, idem, RUN, &a);
	CU_ASSERT_EQUAL(a.response.status, status);
	answer_release(&a);
}

static void test_key_form(void)
{
	char text[300];

	memset(text, 'k', sizeof(text));
	text[255] = '\0';
	key_is(text, 200);
	text[255] = 'k';
	text[256] = '\0';
	key_is(text, 422);
	key_is("", 422);
	key_is("caf\xc3\xa9", 422);
	key_is("a\tb", 422);
	key_is("' OR 1=1 --", 200);
	/* a refusal by the queue or the body reserves nothing */
	CU_ASSERT_EQUAL(
	    api_number(api.db, "SELECT COUNT(*) FROM idempotency WHERE idem_key = 'never'"), 0);
}

static void test_queue_full(void)
{
	struct answer a;
	int64_t runs =
	    api_number(api.db, "SELECT COUNT(*) FROM run WHERE tenant LIKE '%s%%'", TENANT);
	int64_t waiting = api_number(
	    api.db, "SELECT COUNT(*) FROM job WHERE node = '%s' AND state = 'queued'", NODE);
	int64_t length = api.policy->queue.max_length;

	CU_ASSERT_FATAL(waiting > 0);
	api.policy->queue.max_length = waiting;
	post(bob, "never", RUN, &a);
	CU_ASSERT_EQUAL(a.response.status, 429);
	ASSERT_TEXT(a.code, "queue_full");
	ASSERT_TEXT(json_text(json_object_get(details(&a), "reason")), "queue_capacity_exceeded");
	ASSERT_TEXT(json_text(json_object_get(details(&a), "quota_scope")), "global");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(details(&a), "limit")), waiting);
	CU_ASSERT(json_integer_value(json_object_get(details(&a), "retry_after")) >= 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(http_response_get(&a.response, "Retry-After"));
	CU_ASSERT(strcmp(http_response_get(&a.response, "Retry-After"), "0") > 0);
	answer_release(&a);
	/* one more place: exactly one more run */
	api.policy->queue.max_length = waiting + 1;
	post(bob, NULL, RUN, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	answer_release(&a);
	post(bob, NULL, RUN, &a);
	CU_ASSERT_EQUAL(a.response.status, 429);
	answer_release(&a);
	api.policy->queue.max_length = 0;
	post(bob, NULL, RUN, &a);
	CU_ASSERT_EQUAL(a.response.status, 429);
	answer_release(&a);
	api.policy->queue.max_length = length;
	api.policy->queue.max_per_user = 1;
	post(bob, NULL, RUN, &a);
	CU_ASSERT_EQUAL(a.response.status, 429);
	ASSERT_TEXT(json_text(json_object_get(details(&a), "quota_scope")), "user_id");
	answer_release(&a);
	api.policy->queue.max_per_user = 0;
	CU_ASSERT_EQUAL(
	    api_number(api.db, "SELECT COUNT(*) FROM run WHERE tenant LIKE '%s%%'", TENANT),
	    runs + 1);
	CU_ASSERT_EQUAL(
	    api_number(api.db, "SELECT COUNT(*) FROM idempotency WHERE idem_key = 'never'"), 0);
}

static void test_inline_files_staged(void)
{
	struct answer a;
	char path[600];

	post(alice, "staged",
	     "{\"base_image\":\"host\",\"command\":[\"true\"],\"files\":[{\"path\":\"a\","
	     "\"content_b64\":\"Zm9v\"}]}",
	     &a);
	CU_ASSERT_EQUAL_FATAL(a.response.status, 200);
	(void)snprintf(path, sizeof(path), "%s/staging/%s/%s", api.policy->paths.data,
		       member(&a, "id") + 34, member(&a, "id"));
	CU_ASSERT_EQUAL(access(path, R_OK), 0);
	CU_ASSERT_EQUAL(unlink(path), 0);
	answer_release(&a);
	/* a refused one leaves none behind */
	post(alice, "staged",
	     "{\"base_image\":\"host\",\"command\":[\"false\"],\"files\":[{\"path\":"
	     "\"a\",\"content_b64\":\"Zm9v\"}]}",
	     &a);
	CU_ASSERT_EQUAL(a.response.status, 409);
	answer_release(&a);
}

/* --- faults --------------------------------------------------------------------------------- */

static size_t staged_files(void)
{
	char path[600];
	size_t count = 0;
	DIR *outer;
	struct dirent *entry;

	(void)snprintf(path, sizeof(path), "%s/staging", api.policy->paths.data);
	outer = opendir(path);
	while (outer != NULL && (entry = readdir(outer)) != NULL) {
		char inner_path[900];
		DIR *inner;

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(inner_path, sizeof(inner_path), "%s/%s", path, entry->d_name);
		inner = opendir(inner_path);
		while (inner != NULL && readdir(inner) != NULL)
			count++;
		if (inner != NULL) {
			(void)closedir(inner);
			count -= 2;
		}
	}
	if (outer != NULL)
		(void)closedir(outer);
	return count;
}

/* More of the request than its key. */
static bool fault_internal;

/* Fails the n-th allocation of a request until it gets by without one: every answer is whole, and
 * one that was refused left nothing behind. */
static void fault(const struct call *c, const char *what)
{
	unsigned long n = 1;
	bool failed = true;

	for (; failed && n < 3000; n++) {
		struct http_request request = {.method = c->method,
					       .path = c->path,
					       .query = c->query == NULL ? "" : c->query,
					       .request_id = "req-fault",
					       .body = c->body == NULL ? "" : c->body,
					       .body_length =
						   c->body == NULL ? 0 : strlen(c->body)};
		struct http_response response;
		const char *text;

		request.headers[0] = (struct http_header){"X-API-KEY", c->key};
		request.headers[1] = (struct http_header){"Prefer", "respond-async"};
		request.headers[2] = (struct http_header){"Upgrade", "websocket"};
		request.headers[3] = (struct http_header){"Sec-WebSocket-Version", "13"};
		request.headers[4] =
		    (struct http_header){"Sec-WebSocket-Key", "d2Fsa2luZyBhbG9uZyBpdA=="};
		request.header_count = 5;
		request.internal = fault_internal;
		if (c->key == NULL)
			request.headers[0].name = "X-None";
		http_response_init(&response);
		mem_fail_at(n);
		router_serve(&api.context, &request, &response);
		failed = mem_has_failed();
		mem_fail_at(0);
		text = buf_text(&response.body);
		if (response.status == 200 && response.body.len == 0) {
			text = http_response_get(&response, "X-Accel-Redirect");
			/* a redirect is whole, too */
			CU_ASSERT(text != NULL &&
				  strstr(text, "p=" TENANT "-a%2Falice&k=") != NULL);
			CU_ASSERT(text != NULL && (strstr(text, "from=7") || strstr(text, "n=1")));
			http_response_release(&response);
			continue;
		}
		if (response.failed || response.body.len < 2 || text[0] != '{' ||
		    !str_ends(text, "}") || (response.status != 200 && response.status < 500)) {
			(void)printf("\n    %s, allocation %lu: %d %s\n", what, n, response.status,
				     text);
			CU_FAIL("an answer that lack of memory does not explain");
		}
		http_response_release(&response);
	}
	CU_ASSERT(n > 10 && n < 3000);
}

static void test_faults(void)
{
	char id[IDENT_UUID_SIZE];
	char path[200];
	char query[200];
	size_t staged = staged_files();
	int64_t before;
	int64_t ran;

	api.policy->queue.max_length = 100000;
	make_run(alice, id);
	add_artifact(id, 0, "a b", 3, 10);
	(void)snprintf(path, sizeof(path), BASE "/runs/%s", id);
	fault(&(struct call){.method = "GET", .path = path, .key = alice}, "get");
	fault(
	    &(struct call){.method = "GET", .path = BASE "/runs", .query = "limit=3", .key = alice},
	    "list");
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/artifacts", id);
	fault(&(struct call){.method = "GET", .path = path, .key = alice}, "artifacts");
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/trace", id);
	fault(&(struct call){.method = "GET", .path = path, .key = alice}, "trace");
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/stream", id);
	(void)snprintf(query, sizeof(query), "token=%s&from_seq=7", alice);
	fault(&(struct call){.method = "GET", .path = path, .query = query}, "stream");
	(void)snprintf(path, sizeof(path), "/internal/render/" NODE "/run/%s", id);
	(void)snprintf(query, sizeof(query), "as=run&t0=1&until=%lld&f=e&n=0",
		       (long long)(clock_real_us() / 1000 + 60000));
	fault_internal = true;
	fault(&(struct call){.method = "POST", .path = path, .query = query, .key = alice},
	      "render");
	fault_internal = false;
	before = api_number(api.db, "SELECT COUNT(*) FROM run WHERE request_id = 'req-fault'");
	fault(&(struct call){.method = "POST",
			     .path = BASE "/runs",
			     .key = alice,
			     .body = "{\"base_image\":\"host\",\"command\":[\"true\"],\"files\":[{"
				     "\"path\":\"a\",\"content_b64\":\"Zm9v\"}]}"},
	      "post");
	ran =
	    api_number(api.db, "SELECT COUNT(*) FROM run WHERE request_id = 'req-fault'") - before;
	/* a run that was stored keeps its files, one that was not leaves none */
	CU_ASSERT(ran >= 1);
	CU_ASSERT_EQUAL(staged_files() - staged, (size_t)ran);
	CU_ASSERT_EQUAL(
	    api_number(api.db, "SELECT COUNT(*) FROM job WHERE request_id = 'req-fault'"), ran);
}

static const struct test tests[] = {
    {"handlers", "clean", callrig_clean},
    {"post", "answers", test_post},
    {"post", "held", test_post_held},
    {"post", "B12 refusals", test_b12_refusals},
    {"post", "B11 names the field", test_b11_names_the_field},
    {"post", "inline files are staged", test_inline_files_staged},
    {"idempotency", "replay", test_replay},
    {"idempotency", "conflict and expiry", test_conflict},
    {"idempotency", "B19 keys are per owner", test_b19_keys_per_owner},
    {"idempotency", "form of the key", test_key_form},
    {"queue", "queue_full", test_queue_full},
    {"handlers", "faults", test_faults},
    {"handlers", "leave nothing", callrig_leave_nothing},
};

int main(int argc, char **argv)
{
	return api_main(argc, argv, tests, ARRAY_LEN(tests));
}
