/* test_json: strict reading, canonical writing, fingerprints. */
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"
#include "tests/lib/test.h"

static json_t *parse(const char *text, size_t length, struct err *e)
{
	json_t *value = NULL;
	int result = json_parse(text, length, &value, e);

	CU_ASSERT_EQUAL(result == 0, value != NULL);
	CU_ASSERT_EQUAL(result == 0, e->code == ERR_NONE);
	return value;
}

static void refused(const char *text, size_t length)
{
	struct err e = ERR_INIT;
	scope_json json_t *value = parse(text, length, &e);

	CU_ASSERT_PTR_NULL(value);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
	CU_ASSERT(e.shown[0] != '\0');
	CU_ASSERT(str_utf8_valid(e.shown, strlen(e.shown)));
}

#define REFUSED(text) refused(text, sizeof(text) - 1)

static void taken(const char *text)
{
	struct err e = ERR_INIT;
	scope_json json_t *value = parse(text, strlen(text), &e);

	ASSERT_TEXT(e.text, "");
	CU_ASSERT_PTR_NOT_NULL(value);
}

static void test_strict(void)
{
	taken("{}");
	taken(" {\"a\":[1,2,{\"b\":null}]} \n");
	taken("{\"a\":\"\\ud83d\\ude00 \xf0\x9f\x98\x80\"}");
	taken("{\"a\":1,\"b\":{\"a\":1}}");
	REFUSED("");
	REFUSED(" ");
	REFUSED("{");
	REFUSED("{}x");
	REFUSED("{} {}");
	REFUSED("{}\0");
	REFUSED("{\"a\":1,\"a\":2}");
	REFUSED("{\"b\":{\"a\":1,\"\\u0061\":2}}");
	REFUSED("{\"a\":1,}");
	REFUSED("{a:1}");
	REFUSED("{'a':1}");
	REFUSED("{\"a\":01}");
	REFUSED("{\"a\":+1}");
	REFUSED("{\"a\":.5}");
	REFUSED("{\"a\":NaN}");
	REFUSED("{\"a\":Infinity}");
	REFUSED("{\"a\":\"x\ny\"}");
	REFUSED("{\"a\":\"\\x\"}");
	REFUSED("/* */ {}");
	/* an object at the top */
	REFUSED("[]");
	REFUSED("\"a\"");
	REFUSED("1");
	REFUSED("null");
	REFUSED("true");
}

static void test_encoding(void)
{
	REFUSED("{\"a\":\"\xff\"}");
	REFUSED("{\"a\":\"\xc0\xae\"}");
	REFUSED("{\"a\":\"\xed\xa0\x80\"}");
	REFUSED("{\"a\":\"\xe2\x98\"}");
	REFUSED("{\"\xff\":1}");
	REFUSED("\xef\xbb\xbf{}");
	REFUSED("{\"a\":\"\\ud83d\"}");
	REFUSED("{\"a\":\"\\ude00\"}");
	REFUSED("{\"a\":\"\\ude00\\ud83d\"}");
	REFUSED("{\"a\":\"\\ud83d\\u0041\"}");
	REFUSED("{\"a\":\"\\ud83dx\"}");
	REFUSED(
	    "{\"a\xe2\x98\x95\xe2\x98\x95\xe2\x98\x95\xe2\x98\x95\xe2\x98\x95\xe2\x98\x95\n\":1}");
	REFUSED("{\"\\u0000\":1}");
	/* a message that would quote half of a character */
	REFUSED("{\"a\":\"x\\\xd3\x8b\"}");
	REFUSED("{\"a\":\xd3\x8b}");
}

static void depth_is(size_t depth, bool good)
{
	scope_buf struct buf text;
	struct err e = ERR_INIT;
	json_t *value;

	buf_init(&text, 1 << 20);
	buf_add_str(&text, "{\"a\":");
	for (size_t i = 1; i < depth; i++)
		buf_add_char(&text, '[');
	buf_add_str(&text, "\"[[{{\\\"[\"");
	for (size_t i = 1; i < depth; i++)
		buf_add_char(&text, ']');
	buf_add_char(&text, '}');
	value = parse(text.data, text.len, &e);
	CU_ASSERT_EQUAL(value != NULL, good);
	if (!good)
		ASSERT_TEXT(e.shown, "the JSON nests deeper than 32 levels");
	json_decref(value);
}

static void test_depth(void)
{
	scope_buf struct buf text;

	depth_is(1, true);
	depth_is(32, true);
	depth_is(33, false);
	depth_is(20000, false);
	/* never closed */
	buf_init(&text, 1 << 20);
	for (size_t i = 0; i < 20000; i++)
		buf_add_char(&text, '[');
	refused(text.data, text.len);
	/* siblings do not add up */
	buf_reset(&text);
	buf_add_str(&text, "{\"a\":[");
	for (size_t i = 0; i < 1000; i++)
		buf_add_str(&text, i == 0 ? "[[]]" : ",[[]]");
	buf_add_str(&text, "]}");
	taken(text.data);
}

static void overflow_names(const char *text, const char *field)
{
	struct err e = ERR_INIT;
	scope_json json_t *value = parse(text, strlen(text), &e);

	CU_ASSERT_PTR_NULL(value);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	ASSERT_TEXT(e.shown, field);
}

static void test_numbers(void)
{
	const char *exact = "{\"n\":9007199254740993,\"m\":9223372036854775807,\"k\":60.0}";
	struct err e = ERR_INIT;
	json_t *value;

	overflow_names("{\"timeout_sec\": 1e309}", "timeout_sec");
	overflow_names("{\"a\":1, \"timeout_sec\" : \n -1e309 , \"b\":2}", "timeout_sec");
	overflow_names("{\"timeout_sec\":9223372036854775808}", "timeout_sec");
	overflow_names("{\"timeout_sec\":-9223372036854775809}", "timeout_sec");
	overflow_names("{\"x\":\"a:b,{\",\"n\":99999999999999999999999999}", "n");
	overflow_names("{\"resources\":{\"memory_mb\":1e999},\"b\":1}", "memory_mb");
	overflow_names("{\"x\":[1,1e309]}", "a number");
	value = parse(exact, strlen(exact), &e);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(value, "n")), 9007199254740993);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(value, "m")), INT64_MAX);
	CU_ASSERT(json_is_real(json_object_get(value, "k")));
	json_decref(value);
}

static void test_nul_strings(void)
{
	struct err e = ERR_INIT;
	const char *text = "{\"a\":\"x\\u0000y\",\"b\":\"xy\",\"c\":7}";
	json_t *value = parse(text, strlen(text), &e);

	CU_ASSERT_PTR_NOT_NULL_FATAL(value);
	CU_ASSERT_PTR_NULL(json_text(json_object_get(value, "a")));
	ASSERT_TEXT(json_text(json_object_get(value, "b")), "xy");
	CU_ASSERT_PTR_NULL(json_text(json_object_get(value, "c")));
	CU_ASSERT_PTR_NULL(json_text(NULL));
	json_decref(value);
}

static void canonical_is(const char *text, const char *want)
{
	scope_buf struct buf out;
	struct err e = ERR_INIT;
	json_t *value = parse(text, strlen(text), &e);
	json_t *again = NULL;

	buf_init(&out, 1 << 20);
	CU_ASSERT_PTR_NOT_NULL_FATAL(value);
	CU_ASSERT_EQUAL(json_canonical(&out, value, &e), 0);
	ASSERT_TEXT(buf_text(&out), want);
	CU_ASSERT_EQUAL(json_parse(buf_text(&out), out.len, &again, &e), 0);
	CU_ASSERT(json_equal(value, again));
	json_decref(value);
	json_decref(again);
}

static void test_canonical(void)
{
	canonical_is("{ \"b\" : [ 1 , true , null ] , \"a\" : { } }",
		     "{\"a\":{},\"b\":[1,true,null]}");
	canonical_is("{\"aa\":1,\"a\":2,\"B\":3,\"\":4}", "{\"\":4,\"B\":3,\"a\":2,\"aa\":1}");
	canonical_is("{\"a\":\"\\u00e9\xe2\x98\x95\xf0\x9f\x98\x80\"}",
		     "{\"a\":\"\\u00e9\\u2615\\ud83d\\ude00\"}");
	canonical_is("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\u0000z\"}",
		     "{\"a\":\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\\u0000z\"}");
	canonical_is("{\"a\":9007199254740993,\"b\":-0}", "{\"a\":9007199254740993,\"b\":0}");
	/* reals as Python's json writes them: the contract's fingerprints are made by it */
	canonical_is("{\"a\":[1.0,0.5,0.1,2.5e-7,100.0,12.0,1000000.0,123456.789]}",
		     "{\"a\":[1.0,0.5,0.1,2.5e-07,100.0,12.0,1000000.0,123456.789]}");
	canonical_is("{\"a\":[1e15,1e16,1.5e300,0.0001,0.00001,-3.25,1e22,0.30000000000000004]}",
		     "{\"a\":[1000000000000000.0,1e+16,1.5e+300,0.0001,1e-05,-3.25,1e+22,"
		     "0.30000000000000004]}");
	canonical_is("{\"a\":[0.0,-0.0,9007199254740993.0,5e-324,1.7976931348623157e308]}",
		     "{\"a\":[0.0,-0.0,9007199254740992.0,5e-324,1.7976931348623157e+308]}");
}

static void test_canonical_many_keys(void)
{
	scope_json json_t *object = json_object();
	scope_buf struct buf out;
	struct err e = ERR_INIT;
	char key[16];

	/* in the worst order for a sort by insertion: a client chooses it */
	for (int i = 300000; i > 0; i--) {
		(void)snprintf(key, sizeof(key), "%06d", i);
		CU_ASSERT_EQUAL_FATAL(json_object_set_new(object, key, json_true()), 0);
	}
	buf_init(&out, 1 << 24);
	CU_ASSERT_EQUAL(json_canonical(&out, object, &e), 0);
	CU_ASSERT(str_starts(buf_text(&out), "{\"000001\":true,\"000002\":true,"));
	CU_ASSERT(str_ends(buf_text(&out), ",\"300000\":true}"));
	CU_ASSERT_EQUAL(out.len, 300000 * 14 + 1);
}

static void fingerprint_is(const char *text, const char *want)
{
	struct err e = ERR_INIT;
	json_t *value = parse(text, strlen(text), &e);
	unsigned char hash[32];
	char hex[65];

	CU_ASSERT_EQUAL(json_fingerprint(value, hash, &e), 0);
	str_hex(hex, hash, sizeof(hash));
	ASSERT_TEXT(hex, want);
	json_decref(value);
}

static void test_fingerprint(void)
{
	/* contract 2.6, with the defaults and without nulls */
	fingerprint_is("{\"spec_version\":\"1.0\",\"runtime\":\"docker\",\"base_image\":"
		       "\"python:3.11-slim\",\"timeout_sec\":300,\"network_policy\":\"deny_all\","
		       "\"trust_level\":\"standard\"}",
		       "434c8b9d80a3e699781c4746773f548482c7f4ac6bf6e718d20a5733d5a4077f");
	fingerprint_is("{\"trust_level\":\"standard\",\"spec_version\":\"1.0\",\"runtime\":"
		       "\"docker\",\"base_image\":\"python:3.11-slim\",\"command\":[\"python\","
		       "\"-c\",\"print('hello')\"],\"timeout_sec\":60}",
		       "d06264916d4ffe6a5421c6ea4be50648c3b88180e6e4d79d575156843a223801");
}

static void test_without_nulls(void)
{
	struct err e = ERR_INIT;
	scope_buf struct buf out;
	const char *text = "{\"a\":null,\"b\":{\"c\":null,\"d\":[{\"e\":null},null,1]}}";
	json_t *value = parse(text, strlen(text), &e);
	json_t *clean = json_without_nulls(value);

	buf_init(&out, 1000);
	CU_ASSERT_EQUAL(json_canonical(&out, clean, &e), 0);
	ASSERT_TEXT(buf_text(&out), "{\"b\":{\"d\":[{},null,1]}}");
	json_decref(value);
	json_decref(clean);
}

static void test_write(void)
{
	struct err e = ERR_INIT;
	scope_buf struct buf out;
	const char *text = "{\"a\":[1, \"\xc3\xa9\\n\"]}";
	json_t *value = parse(text, strlen(text), &e);

	buf_init(&out, 100);
	CU_ASSERT_EQUAL(json_write(&out, value, &e), 0);
	ASSERT_TEXT(buf_text(&out), "{\"a\":[1,\"\xc3\xa9\\n\"]}");
	buf_release(&out);
	buf_init(&out, 10);
	CU_ASSERT_EQUAL(json_write(&out, value, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	err_clear(&e);
	CU_ASSERT_EQUAL(json_write(&out, NULL, &e), -1);
	json_decref(value);
}

static int whole_path(void *context, struct err *e)
{
	const char *text = context;
	scope_json json_t *value = NULL;
	scope_json json_t *clean = NULL;
	scope_buf struct buf out;
	unsigned char hash[32];

	buf_init(&out, 1000);
	if (json_parse(text, strlen(text), &value, e) != 0) {
		CU_ASSERT_EQUAL(e->code, ERR_NOMEM);
		return -1;
	}
	clean = json_without_nulls(value);
	if (clean == NULL)
		return err_set(e, ERR_NOMEM, 0, "clean");
	if (json_write(&out, clean, e) != 0 || json_canonical(&out, clean, e) != 0 ||
	    json_fingerprint(clean, hash, e) != 0) {
		CU_ASSERT_EQUAL(e->code, ERR_NOMEM);
		return -1;
	}
	ASSERT_TEXT(buf_text(&out), "{\"a\":[1,2.5,\"x\"],\"b\":{\"c\":true,\"0\":1}}"
				    "{\"a\":[1,2.5,\"x\"],\"b\":{\"0\":1,\"c\":true}}");
	return 0;
}

static void test_faults(void)
{
	char text[] = "{\"a\":[1,2.5,\"x\"],\"b\":{\"c\":true,\"0\":1,\"n\":null}}";

	fault_loop(whole_path, text);
}

static void test_setup(void)
{
	/* from here on jansson's memory comes through our door */
	json_setup();
	CU_ASSERT_EQUAL(LIMIT_JSON_DEPTH, 32);
}

static const struct test tests[] = {
    {"json", "setup", test_setup},
    {"json", "B12 strict", test_strict},
    {"json", "B12 encoding", test_encoding},
    {"json", "B12 depth", test_depth},
    {"json", "B11 numbers", test_numbers},
    {"json", "B12 NUL in strings", test_nul_strings},
    {"json", "canonical", test_canonical},
    {"json", "canonical, many keys", test_canonical_many_keys},
    {"json", "fingerprint", test_fingerprint},
    {"json", "without nulls", test_without_nulls},
    {"json", "write", test_write},
    {"json", "faults", test_faults},
};

TEST_MAIN(tests)
