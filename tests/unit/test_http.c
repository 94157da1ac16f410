/* test_http: http fields range hold reply: the parts under every handler. */
#include "handlers/fields.h"
#include "handlers/hold.h"
#include "handlers/http.h"
#include "handlers/range.h"
#include "handlers/reply.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

#define ID "0190a5c0-0000-7000-8000-0123456789ab"

/* --- query, headers ------------------------------------------------------------------------- */

static void query_is(const char *query, const char *name, int result, const char *want)
{
	struct http_request request = {.query = query};
	scope_buf struct buf out;

	buf_init(&out, 100);
	buf_add_str(&out, "old");
	CU_ASSERT_EQUAL(http_query(&request, name, &out), result);
	if (result == 1)
		ASSERT_TEXT(buf_text(&out), want);
}

static void test_query(void)
{
	query_is("", "a", 0, NULL);
	query_is("a=1", "a", 1, "1");
	query_is("b=2&a=1", "a", 1, "1");
	query_is("ab=2&a=1", "a", 1, "1");
	query_is("a=1&a=2", "a", 1, "1");
	query_is("a", "a", 1, "");
	query_is("a=", "a", 1, "");
	query_is("&&a=x&", "a", 1, "x");
	query_is("a=b=c", "a", 1, "b=c");
	query_is("a=x+y%20z%2Bw", "a", 1, "x y z+w");
	query_is("a=%252e", "a", 1, "%2e");
	query_is("a=%", "a", -1, NULL);
	query_is("a=%zz", "a", -1, NULL);
	query_is("a=x%00y", "a", -1, NULL);
	query_is("A=1", "a", 0, NULL);
	query_is("a%3d=1", "a", 0, NULL);
	query_is("a=11111111111111111111111111111111111111111111111111"
		 "111111111111111111111111111111111111111111111111111",
		 "a", -1, NULL);
}

static void test_headers(void)
{
	struct http_request request = {.header_count = 2};
	struct http_response response;
	char long_value[LIMIT_URL_BYTES + 10];

	request.headers[0] = (struct http_header){"X-API-KEY", "k"};
	request.headers[1] = (struct http_header){"Range", "r"};
	ASSERT_TEXT(http_header(&request, "x-api-key"), "k");
	ASSERT_TEXT(http_header(&request, "RANGE"), "r");
	CU_ASSERT_PTR_NULL(http_header(&request, "Rang"));
	http_response_init(&response);
	CU_ASSERT_EQUAL(response.status, 200);
	http_response_headerf(&response, "Retry-After", "%d", 5);
	ASSERT_TEXT(http_response_get(&response, "retry-after"), "5");
	CU_ASSERT_FALSE(response.failed);
	/* no second header can come out of a value */
	http_response_header(&response, "X", "a\r\nX-Accel-Redirect: /etc/passwd");
	CU_ASSERT(response.failed);
	CU_ASSERT_PTR_NULL(http_response_get(&response, "X"));
	http_response_reset(&response);
	CU_ASSERT_EQUAL(response.header_count, 0);
	http_response_header(&response, "X", "a\nb");
	CU_ASSERT(response.failed);
	http_response_reset(&response);
	memset(long_value, 'x', sizeof(long_value));
	long_value[sizeof(long_value) - 1] = '\0';
	http_response_headerf(&response, "X", "%s", long_value);
	CU_ASSERT(response.failed);
	http_response_reset(&response);
	for (int i = 0; i < HTTP_MAX_RESPONSE_HEADERS; i++)
		http_response_header(&response, "X", "1");
	CU_ASSERT_FALSE(response.failed);
	http_response_header(&response, "X", "1");
	CU_ASSERT(response.failed);
	http_response_release(&response);
}

/* --- fields --------------------------------------------------------------------------------- */

struct thing {
	struct field_int count;
	struct field_number share;
	struct field_bool flag;
	struct field_text name;
	struct field_text colour;
	struct field_value list;
	struct field_value map;
};

static const char *const colours[] = {"red", "green", NULL};

static const struct field thing_fields[] = {
    {"count", FIELD_INT, offsetof(struct thing, count), .lo = 1, .hi = 3600, .required = true},
    {"share", FIELD_NUMBER, offsetof(struct thing, share), .lo = 0, .hi = 8},
    {"flag", FIELD_BOOL, offsetof(struct thing, flag)},
    {"name", FIELD_TEXT, offsetof(struct thing, name), .hi = 5},
    {"colour", FIELD_CHOICE, offsetof(struct thing, colour), .choices = colours},
    {"list", FIELD_ARRAY, offsetof(struct thing, list)},
    {"map", FIELD_OBJECT, offsetof(struct thing, map)},
};

/* Decodes; the fields with problems joined by ' '. The caller releases *root. */
static void decode(const char *text, struct thing *out, json_t **root, char *bad, size_t size)
{
	struct problems p;
	struct err e = ERR_INIT;
	size_t index;
	json_t *item;
	size_t used = 0;

	memset(out, 0, sizeof(*out));
	bad[0] = '\0';
	*root = NULL;
	if (json_parse(text, strlen(text), root, &e) != 0)
		CU_FAIL_FATAL("bad test text");
	problems_init(&p);
	fields_decode(*root, "t.", thing_fields, ARRAY_LEN(thing_fields), out, &p);
	json_array_foreach (p.list, index, item) {
		const char *field = json_text(json_object_get(item, "field"));

		used +=
		    (size_t)snprintf(bad + used, size - used, "%s%s", used == 0 ? "" : " ", field);
		/* every refusal says which and what is allowed */
		CU_ASSERT(strstr(json_text(json_object_get(item, "message")), field) != NULL);
	}
	CU_ASSERT_EQUAL(problems_any(&p), bad[0] != '\0');
	problems_release(&p);
}

static void problems_are(const char *text, const char *want)
{
	struct thing t;
	json_t *root;
	char bad[500];

	decode(text, &t, &root, bad, sizeof(bad));
	ASSERT_TEXT(bad, want);
	json_decref(root);
}

static void test_fields_types(void)
{
	static const char *const wrong[] = {"\"60\"",
					    "true",
					    "0.5",
					    "[]",
					    "{}",
					    "0",
					    "-1",
					    "3601",
					    "60.5",
					    "1e300",
					    "-0.0",
					    "1e308",
					    "9007199254740993",
					    "\"\""};
	char text[200];

	/* B11: each kind of value for an integer */
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		(void)snprintf(text, sizeof(text), "{\"count\":%s}", wrong[i]);
		problems_are(text, "t.count");
	}
	problems_are("{\"count\":60}", "");
	problems_are("{\"count\":60.0}", "");
	problems_are("{\"count\":6e1}", "");
	problems_are("{\"count\":1,\"unknown\":{\"x\":1}}", "");
	problems_are("{}", "t.count");
	problems_are("{\"count\":null}", "t.count");
	problems_are("{\"count\":1,\"share\":-0.1}", "t.share");
	problems_are("{\"count\":1,\"share\":8.01}", "t.share");
	problems_are("{\"count\":1,\"share\":\"1\"}", "t.share");
	problems_are("{\"count\":1,\"share\":true}", "t.share");
	problems_are("{\"count\":1,\"flag\":1}", "t.flag");
	problems_are("{\"count\":1,\"flag\":\"true\"}", "t.flag");
	problems_are("{\"count\":1,\"name\":5}", "t.name");
	problems_are("{\"count\":1,\"name\":\"123456\"}", "t.name");
	problems_are("{\"count\":1,\"name\":\"a\\u0000b\"}", "t.name");
	problems_are("{\"count\":1,\"colour\":\"blue\"}", "t.colour");
	problems_are("{\"count\":1,\"colour\":\"red\\u0000\"}", "t.colour");
	problems_are("{\"count\":1,\"colour\":1}", "t.colour");
	problems_are("{\"count\":1,\"list\":{}}", "t.list");
	problems_are("{\"count\":1,\"map\":[]}", "t.map");
	problems_are("{\"count\":0,\"share\":9,\"flag\":0,\"name\":1,\"colour\":2,\"list\":3,"
		     "\"map\":4}",
		     "t.count t.share t.flag t.name t.colour t.list t.map");
}

static void test_fields_values(void)
{
	struct thing t;
	json_t *root;
	char bad[500];

	decode("{\"count\":60.0,\"share\":2,\"flag\":true,\"name\":\"caf\xc3\xa9\",\"colour\":"
	       "\"green\",\"list\":[1],\"map\":{\"a\":1}}",
	       &t, &root, bad, sizeof(bad));
	ASSERT_TEXT(bad, "");
	CU_ASSERT(t.count.state == FIELD_SET && t.count.value == 60);
	CU_ASSERT(t.share.state == FIELD_SET && t.share.value > 1.99 && t.share.value < 2.01);
	CU_ASSERT(t.flag.state == FIELD_SET && t.flag.value);
	ASSERT_TEXT(t.name.value, "caf\xc3\xa9");
	ASSERT_TEXT(t.colour.value, "green");
	CU_ASSERT_EQUAL(json_array_size(t.list.value), 1);
	CU_ASSERT_EQUAL(json_object_size(t.map.value), 1);
	json_decref(root);
	decode("{\"count\":1,\"share\":null,\"name\":null}", &t, &root, bad, sizeof(bad));
	ASSERT_TEXT(bad, "");
	CU_ASSERT_EQUAL(t.share.state, FIELD_NULL);
	CU_ASSERT_EQUAL(t.name.state, FIELD_NULL);
	CU_ASSERT_EQUAL(t.flag.state, FIELD_ABSENT);
	json_decref(root);
}

static void test_problems_bounded(void)
{
	struct problems p;

	problems_init(&p);
	for (int i = 0; i < 1000; i++)
		problems_add(&p, "f", NULL, "%d", i);
	CU_ASSERT_EQUAL(json_array_size(p.list), 20);
	CU_ASSERT_FALSE(p.failed);
	CU_ASSERT(json_is_null(json_object_get(json_array_get(p.list, 0), "allowed")));
	problems_release(&p);
}

static int add_problems(void *context, struct err *e)
{
	struct problems p;
	bool any;

	(void)context;
	problems_init(&p);
	problems_add(&p, "a", "b", "c");
	any = problems_any(&p);
	/* lack of memory never turns a refusal into a yes */
	CU_ASSERT(any);
	if (p.failed)
		(void)err_set(e, ERR_NOMEM, 0, "problems");
	problems_release(&p);
	return e->code == ERR_NONE ? 0 : -1;
}

static void test_problems_faults(void)
{
	json_setup();
	fault_loop(add_problems, NULL);
}

/* --- range ---------------------------------------------------------------------------------- */

#define ETAG     "\"5f-a\""
#define MODIFIED "Thu, 01 Jan 2026 00:00:00 GMT"

struct range_case {
	const char *range;
	enum range_verdict ten;
	enum range_verdict empty;
};

static const struct range_case range_cases[] = {
    {"bytes=0-4", RANGE_PART, RANGE_WHOLE},
    {"bytes=0-", RANGE_PART, RANGE_WHOLE},
    {"bytes=9-", RANGE_PART, RANGE_WHOLE},
    {"bytes=9-9", RANGE_PART, RANGE_WHOLE},
    {"bytes=10-", RANGE_REFUSED, RANGE_WHOLE},
    {"bytes=10-20", RANGE_REFUSED, RANGE_WHOLE},
    {"bytes=5-2", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=-3", RANGE_PART, RANGE_WHOLE},
    {"bytes=-0", RANGE_REFUSED, RANGE_WHOLE},
    {"bytes=-99", RANGE_PART, RANGE_WHOLE},
    {"bytes=0-99", RANGE_PART, RANGE_WHOLE},
    {"bytes=0-9223372036854775807", RANGE_PART, RANGE_WHOLE},
    {"bytes=0-9223372036854775808", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=0-18446744073709551616", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=99999999999999999999999999-", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=-18446744073709551616", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=0-1,3-4", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=0-1,", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=,0-1", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=0-,-1", RANGE_REFUSED, RANGE_REFUSED},
    {"Bytes=0-1", RANGE_PART, RANGE_WHOLE},
    {"BYTES=0-1", RANGE_PART, RANGE_WHOLE},
    {"items=0-1", RANGE_WHOLE, RANGE_WHOLE},
    {"bytes", RANGE_WHOLE, RANGE_WHOLE},
    {"", RANGE_WHOLE, RANGE_WHOLE},
    {"bytes=", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=-", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=--1", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=a-b", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=0", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=0-1-2", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=+0-1", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=0x0-1", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes= 0-1", RANGE_REFUSED, RANGE_REFUSED},
    {"bytes=0 -1", RANGE_REFUSED, RANGE_REFUSED},
};

static enum range_verdict judge(const char *range, uint64_t size)
{
	return range_judge(true, range, NULL, size, ETAG, MODIFIED);
}

static void test_b16_matrix(void)
{
	for (size_t i = 0; i < ARRAY_LEN(range_cases); i++) {
		const struct range_case *c = &range_cases[i];

		if (judge(c->range, 10) != c->ten || judge(c->range, 0) != c->empty)
			(void)printf("\n    %s\n", c->range);
		CU_ASSERT_EQUAL(judge(c->range, 10), c->ten);
		CU_ASSERT_EQUAL(judge(c->range, 0), c->empty);
		/* HEAD ignores it, so does a stale If-Range */
		CU_ASSERT_EQUAL(range_judge(false, c->range, NULL, 10, ETAG, MODIFIED),
				RANGE_WHOLE);
		CU_ASSERT_EQUAL(range_judge(true, c->range, "\"old\"", 10, ETAG, MODIFIED),
				RANGE_WHOLE);
		CU_ASSERT_EQUAL(range_judge(true, c->range, ETAG, 10, ETAG, MODIFIED), c->ten);
		CU_ASSERT_EQUAL(range_judge(true, c->range, MODIFIED, 10, ETAG, MODIFIED), c->ten);
		CU_ASSERT_EQUAL(range_judge(true, c->range, "W/" ETAG, 10, ETAG, MODIFIED),
				RANGE_WHOLE);
		CU_ASSERT_EQUAL(range_judge(true, c->range, "", 10, ETAG, MODIFIED), RANGE_WHOLE);
	}
	CU_ASSERT_EQUAL(judge(NULL, 10), RANGE_WHOLE);
	CU_ASSERT_EQUAL(judge("bytes=9223372036854775807-", INT64_MAX), RANGE_REFUSED);
	CU_ASSERT_EQUAL(judge("bytes=9223372036854775806-", INT64_MAX), RANGE_PART);
}

static void test_b16_ten_thousand(void)
{
	scope_buf struct buf text;

	buf_init(&text, 1 << 20);
	buf_add_str(&text, "bytes=");
	for (int i = 0; i < 10000; i++)
		buf_addf(&text, "%s%d-%d", i == 0 ? "" : ",", i % 10, i % 10);
	CU_ASSERT_EQUAL(judge(buf_text(&text), 10), RANGE_REFUSED);
	CU_ASSERT_EQUAL(judge(buf_text(&text), 0), RANGE_REFUSED);
}

/* --- hold ----------------------------------------------------------------------------------- */

static void test_hold(void)
{
	struct principal caller = {.key_id = "abcdefabcdef", .tenant = "a/b&c", .user = "u=%\xc3"};
	struct hold hold = {.as = "cancel",
			    .accepted_ms = 1700000000123,
			    .until_ms = 1700000003123,
			    .until_running = true,
			    .tries = 2};
	struct hold back;
	struct http_response response;
	struct http_request request = {.internal = true};
	struct err e = ERR_INIT;
	const char *url;
	char query[1000];

	http_response_init(&response);
	hold_redirect(&response, "node-1", ID, &hold, &caller);
	url = http_response_get(&response, "X-Accel-Redirect");
	CU_ASSERT_PTR_NOT_NULL_FATAL(url);
	CU_ASSERT(str_starts(url, "/internal/hold/node-1/run/" ID "?"));
	/* the names of people cannot add arguments */
	CU_ASSERT(strstr(url, "&p=a%2Fb%26c%2Fu%3D%25%C3&k=abcdefabcdef&") != NULL);
	(void)snprintf(query, sizeof(query), "%s", strchr(url, '?') + 1);
	request.query = query;
	CU_ASSERT_EQUAL(hold_parse(&request, &back, &e), 0);
	ASSERT_TEXT(back.as, "cancel");
	CU_ASSERT_EQUAL(back.accepted_ms, hold.accepted_ms);
	CU_ASSERT_EQUAL(back.until_ms, hold.until_ms);
	CU_ASSERT(back.until_running);
	CU_ASSERT_EQUAL(back.tries, 2);
	CU_ASSERT_FALSE(back.gone);
	CU_ASSERT_FALSE(back.traced);
	(void)snprintf(query, sizeof(query), "%s&gone=1&tr=1", strchr(url, '?') + 1);
	CU_ASSERT_EQUAL(hold_parse(&request, &back, &e), 0);
	CU_ASSERT(back.gone);
	CU_ASSERT(back.traced);
	hold.traced = true;
	http_response_reset(&response);
	hold_redirect(&response, "node-1", ID, &hold, &caller);
	url = http_response_get(&response, "X-Accel-Redirect");
	CU_ASSERT_PTR_NOT_NULL_FATAL(url);
	CU_ASSERT(strstr(url, "&n=2&tr=1") != NULL);
	request.internal = false;
	CU_ASSERT_EQUAL(hold_parse(&request, &back, &e), -1);
	http_response_release(&response);
}

static void test_hold_malformed(void)
{
	static const char *const bad[] = {
	    "",
	    "as=run&t0=1&until=2",
	    "as=run&t0=1&n=0",
	    "as=run&until=2&n=0",
	    "t0=1&until=2&n=0",
	    "as=run&t0=-1&until=2&n=0",
	    "as=run&t0=1&until=99999999999999999999&n=0",
	    "as=run&t0=1&until=x&n=0",
	    "as=a_very_long_word_&t0=1&until=2&n=0",
	    "as=%&t0=1&until=2&n=0",
	};
	struct http_request request = {.internal = true};
	struct hold back;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = ERR_INIT;

		request.query = bad[i];
		CU_ASSERT_EQUAL(hold_parse(&request, &back, &e), -1);
		CU_ASSERT_NOT_EQUAL(e.code, ERR_NONE);
	}
}

/* --- reply ---------------------------------------------------------------------------------- */

/* The code in an error body, which must be whole and in the face's shape. */
static void error_is(const struct http_response *response, int status, const char *code)
{
	struct err e = ERR_INIT;
	json_t *body = NULL;
	json_t *error;

	CU_ASSERT_EQUAL(response->status, status);
	CU_ASSERT_EQUAL_FATAL(json_parse(buf_text(&response->body), response->body.len, &body, &e),
			      0);
	error = json_object_get(body, "error");
	ASSERT_TEXT(json_text(json_object_get(error, "code")), code);
	CU_ASSERT_PTR_NOT_NULL(json_text(json_object_get(error, "message")));
	CU_ASSERT(json_is_object(json_object_get(error, "details")));
	CU_ASSERT_EQUAL(json_object_size(error), 3);
	json_decref(body);
}

static void test_reply_shapes(void)
{
	struct http_request request = {.request_id = "r1"};
	struct http_response response;
	struct err e = ERR_INIT;

	http_response_init(&response);
	reply_fail(&response, &face_runs, 404, "not_found", "There is \"no\" path.", NULL);
	error_is(&response, 404, "not_found");
	ASSERT_TEXT(http_response_get(&response, "Content-Type"), "application/json");
	reply_fail(&response, &face_runs, 401, "unauthorized", "x",
		   json_pack("{s:i}", "close_code", 4401));
	error_is(&response, 401, "unauthorized");
	CU_ASSERT(strstr(buf_text(&response.body), "4401") != NULL);
	/* a message that is no text is an error body all the same */
	reply_fail(&response, &face_runs, 422, "validation_error", "bad \xff byte", NULL);
	CU_ASSERT(response.status >= 400);
	error_is(&response, response.status,
		 response.status == 422 ? "validation_error" : "internal_error");
	/* what we failed to do shows nothing of how */
	for (int code = 0; code < ERR__MAX; code++) {
		err_clear(&e);
		(void)err_set(&e, (enum err_code)code, 0, "SELECT 1 FROM /var/lib");
		e.code = (enum err_code)code;
		reply_err(&response, &face_runs, &request, &e);
		CU_ASSERT(response.status >= 400);
		CU_ASSERT_PTR_NULL(strstr(buf_text(&response.body), "SELECT"));
		CU_ASSERT_PTR_NULL(strstr(buf_text(&response.body), "/var"));
		CU_ASSERT_EQUAL(response.status == 503,
				http_response_get(&response, "Retry-After") != NULL);
		CU_ASSERT_EQUAL(response.status == 401,
				http_response_get(&response, "WWW-Authenticate") != NULL);
	}
	http_response_release(&response);
}

/* However little memory there is, a body is whole. */
static int failing_reply(void *context, struct err *e)
{
	struct http_response response;
	bool ok = *(bool *)context;

	http_response_init(&response);
	if (ok)
		reply_json(&response, 200, json_pack("{s:s}", "a", "b"));
	else
		reply_fail(&response, &face_runs, 404, "not_found", "There is no such path.",
			   json_pack("{s:s}", "a", "b"));
	if (mem_has_failed()) {
		struct http_response copy = response;

		mem_fail_at(0);
		/* the flag is gone with it: say so by hand */
		if (response.body.len == 0) {
			CU_ASSERT(response.failed || !buf_ok(&response.body));
		} else {
			json_t *body = NULL;
			struct err bad = ERR_INIT;

			CU_ASSERT_EQUAL(
			    json_parse(buf_text(&copy.body), copy.body.len, &body, &bad), 0);
			json_decref(body);
		}
		http_response_release(&response);
		return err_set(e, ERR_NOMEM, 0, "reply");
	}
	CU_ASSERT_EQUAL(response.status, ok ? 200 : 404);
	http_response_release(&response);
	return 0;
}

static void reply_fault_loop(bool ok)
{
	for (unsigned long n = 1; n < 1000; n++) {
		struct err e = ERR_INIT;
		int done;

		mem_fail_at(n);
		done = failing_reply(&ok, &e);
		mem_fail_at(0);
		if (done == 0) {
			CU_ASSERT(n > 3);
			return;
		}
	}
	CU_FAIL("the fault loop does not end");
}

static void test_reply_faults(void)
{
	json_setup();
	reply_fault_loop(true);
	reply_fault_loop(false);
}

static const struct test tests[] = {
    {"http", "query", test_query},
    {"http", "B23 headers", test_headers},
    {"fields", "B11 types", test_fields_types},
    {"fields", "values", test_fields_values},
    {"fields", "problems are bounded", test_problems_bounded},
    {"fields", "problems faults", test_problems_faults},
    {"range", "B16 matrix", test_b16_matrix},
    {"range", "B16 10,000 ranges", test_b16_ten_thousand},
    {"hold", "round trip", test_hold},
    {"hold", "malformed", test_hold_malformed},
    {"reply", "shapes", test_reply_shapes},
    {"reply", "faults", test_reply_faults},
};

TEST_MAIN(tests)
