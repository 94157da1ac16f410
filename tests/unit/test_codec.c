/* test_codec: the body of POST /runs and the status object. */
#include "handlers/runs/codec.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

#define ID "0190a5c0-0000-7000-8000-0123456789ab"

static json_t *parse(const char *text)
{
	json_t *root = NULL;
	struct err e = ERR_INIT;

	if (json_parse(text, strlen(text), &root, &e) != 0) {
		ASSERT_TEXT(e.text, "");
		CU_FAIL_FATAL("bad test text");
	}
	return root;
}

/* The fields with problems in bad, joined by ' '; body and spec as decoded. The caller releases
 * the spec and the returned JSON. */
static json_t *decode(const char *text, struct run_body *body, struct run_spec *spec, char *bad,
		      size_t size)
{
	json_t *root = parse(text);
	struct problems p;
	struct err e = ERR_INIT;
	size_t used = 0;
	size_t index;
	json_t *item;

	bad[0] = '\0';
	spec_init(spec);
	problems_init(&p);
	codec_decode_run(root, body, &p);
	CU_ASSERT_EQUAL(codec_fill_spec(body, spec, &p, &e), 0);
	json_array_foreach (p.list, index, item)
		used += (size_t)snprintf(bad + used, size - used, "%s%s", used == 0 ? "" : " ",
					 json_text(json_object_get(item, "field")));
	problems_release(&p);
	return root;
}

static void problems_are(const char *text, const char *want)
{
	struct run_body body;
	struct run_spec spec;
	char bad[1000];
	json_t *root = decode(text, &body, &spec, bad, sizeof(bad));

	ASSERT_TEXT(bad, want);
	spec_release(&spec);
	json_decref(root);
}

/* The problems of a good body with one more member. */
static void with(const char *member, const char *want)
{
	char text[2000];

	(void)snprintf(text, sizeof(text), "{\"base_image\":\"host\",\"command\":[\"true\"],%s}",
		       member);
	problems_are(text, want);
}

struct int_field {
	const char *name;
	const char *lowest;
	const char *highest;
	const char *below;
	const char *above;
};

static const struct int_field int_fields[] = {
    {"timeout_sec", "1", "3600", "0", "3601"},
    {"startup_timeout_sec", "1", "600", "0", "601"},
    {"stdin_max_bytes", "0", "9007199254740991", "-1", "9007199254740992"},
    {"stdin_max_frame_bytes", "0", "9007199254740991", "-1", "9007199254740993"},
    {"stdin_bps", "0", "9007199254740991", "-1", "9223372036854775807"},
    {"stdin_idle_timeout_sec", "0", "9007199254740991", "-1", "9007199254740993"},
    {"resume_from_seq", "0", "9007199254740991", "-1", "9007199254740993"},
};

static void member(const char *name, const char *value, bool good)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "\"%s\":%s", name, value);
	with(text, good ? "" : name);
}

static void test_b11_integers(void)
{
	static const char *const wrong[] = {"0.5", "\"60\"", "true",  "false", "[]",
					    "{}",  "60.5",   "1e300", "\"\""};

	for (size_t i = 0; i < ARRAY_LEN(int_fields); i++) {
		const struct int_field *f = &int_fields[i];

		for (size_t k = 0; k < ARRAY_LEN(wrong); k++)
			member(f->name, wrong[k], false);
		member(f->name, f->lowest, true);
		member(f->name, f->highest, true);
		member(f->name, f->below, false);
		member(f->name, f->above, false);
		member(f->name, "60.0", true);
		member(f->name, "null", true);
	}
	with("\"resources\":{\"memory_mb\":64}", "");
	with("\"resources\":{\"memory_mb\":63}", "resources.memory_mb");
	with("\"resources\":{\"memory_mb\":\"64\"}", "resources.memory_mb");
	with("\"resources\":{\"memory_mb\":64.5}", "resources.memory_mb");
	with("\"resources\":{\"memory_mb\":null,\"cpu\":null}", "");
	with("\"resources\":{\"cpu\":0}", "");
	with("\"resources\":{\"cpu\":-1}", "resources.cpu");
	with("\"resources\":{\"cpu\":\"1\"}", "resources.cpu");
	with("\"resources\":{\"cpu\":true}", "resources.cpu");
	with("\"resources\":null", "");
	with("\"resources\":[]", "resources");
}

static void test_types(void)
{
	with("\"interactive\":1", "interactive");
	with("\"interactive\":\"true\"", "interactive");
	with("\"interactive\":null", "");
	with("\"runtime\":\"Docker\"", "runtime");
	with("\"runtime\":\"docker\"", "");
	with("\"runtime\":\"namespace\"", "");
	with("\"network_policy\":\"open\"", "network_policy");
	with("\"trust_level\":\"root\"", "trust_level");
	with("\"persona_id\":7", "persona_id");
	with("\"persona_id\":\"a\\u0000b\"", "persona_id");
	with("\"env\":[]", "env");
	with("\"files\":{}", "files");
	with("\"capture_patterns\":\"*\"", "capture_patterns");
	with("\"nobody_knows\":[1,{\"a\":2}]", "");
	problems_are("{}", "command base_image");
	problems_are("{\"command\":null,\"base_image\":\"host\"}", "command");
	problems_are("{\"command\":\"true\",\"base_image\":\"host\"}", "command");
}

static void test_b12_bodies(void)
{
	problems_are("{\"base_image\":\"host\",\"command\":[\"printf\",\"a\\nb\"]}", "");
	problems_are("{\"base_image\":\"host\",\"command\":[]}", "command");
	problems_are("{\"base_image\":\"host\",\"command\":[\"\"]}", "command");
	problems_are("{\"base_image\":\"host\",\"command\":[\"a\",\"\"]}", "");
	problems_are("{\"base_image\":\"host\",\"command\":[\"a\\u0000\"]}", "command");
	problems_are("{\"base_image\":\"host\",\"command\":[\"a\",7]}", "command");
	problems_are("{\"base_image\":\"host\",\"command\":[\"a\",null]}", "command");
	problems_are("{\"base_image\":\"host\",\"command\":[[\"a\"]]}", "command");
	with("\"env\":{\"A\":\"x\\u0000\"}", "env");
	with("\"env\":{\"A\":1}", "env");
	with("\"env\":{\"\":\"x\"}", "env");
	with("\"env\":{\"A=B\":\"x\"}", "env");
	with("\"capture_patterns\":[\"a\\u0000\"]", "capture_patterns");
	with("\"capture_patterns\":[1]", "capture_patterns");
	with("\"capture_patterns\":[]", "");
	/* exactly one of two, blanks do not count */
	problems_are("{\"command\":[\"a\"]}", "base_image");
	problems_are("{\"command\":[\"a\"],\"base_image\":\" \\n\"}", "base_image");
	problems_are("{\"command\":[\"a\"],\"base_image\":\"x\",\"session_id\":\"y\"}",
		     "base_image");
	problems_are("{\"command\":[\"a\"],\"session_id\":\"y\"}", "");
}

static void test_blank_session(void)
{
	struct run_body body;
	struct run_spec spec;
	char bad[100];
	json_t *root = decode("{\"command\":[\"a\"],\"base_image\":\"x\",\"session_id\":\" \"}",
			      &body, &spec, bad, sizeof(bad));

	/* so it asks for the image, not for a session of that name */
	ASSERT_TEXT(bad, "");
	CU_ASSERT_NOT_EQUAL(body.session_id.state, FIELD_SET);
	CU_ASSERT_EQUAL(body.base_image.state, FIELD_SET);
	spec_release(&spec);
	json_decref(root);
}

/* {"base_image":"host", "command":[...], NAME: [count texts of length bytes]} */
static void list_is(const char *name, size_t count, size_t length, const char *want)
{
	scope_buf struct buf text;
	scope_free char *item = mem_zalloc(length + 1, 1);

	memset(item, 'x', length);
	buf_init(&text, 64U << 20);
	buf_add_str(&text, "{\"base_image\":\"host\"");
	if (!str_equal(name, "command"))
		buf_add_str(&text, ",\"command\":[\"a\"]");
	buf_addf(&text, ",\"%s\":[", name);
	for (size_t i = 0; i < count; i++)
		buf_addf(&text, "%s\"%s\"", i == 0 ? "" : ",", item);
	buf_add_str(&text, "]}");
	problems_are(buf_text(&text), want);
}

static void env_is(size_t count, size_t length, const char *want)
{
	scope_buf struct buf text;
	scope_free char *item = mem_zalloc(length + 1, 1);

	memset(item, 'x', length);
	buf_init(&text, 64U << 20);
	buf_add_str(&text, "{\"base_image\":\"host\",\"command\":[\"a\"],\"env\":{");
	for (size_t i = 0; i < count; i++)
		buf_addf(&text, "%s\"%03zu\":\"%s\"", i == 0 ? "" : ",", i, item);
	buf_add_str(&text, "}}");
	problems_are(buf_text(&text), want);
}

static void test_limits(void)
{
	list_is("command", 256, 1, "");
	list_is("command", 257, 1, "command");
	list_is("command", 1, 128U << 10, "");
	list_is("command", 1, (128U << 10) + 1, "command");
	list_is("command", 8, 128U << 10, "");
	list_is("command", 9, 128U << 10, "command");
	list_is("capture_patterns", 64, 1024, "");
	list_is("capture_patterns", 65, 1, "capture_patterns");
	list_is("capture_patterns", 1, 1025, "capture_patterns");
	env_is(128, 509, "");
	env_is(128, 510, "env");
	env_is(129, 1, "env");
	env_is(1, 65533, "");
	env_is(1, 65534, "env");
}

static bool has_variable(const struct run_spec *spec, const char *text)
{
	for (size_t i = 0; i < spec->environment_count; i++)
		if (str_equal(spec->environment[i], text))
			return true;
	return false;
}

static void test_b13_untouched(void)
{
	struct run_body body;
	struct run_spec spec;
	char bad[100];
	json_t *root = decode(
	    "{\"base_image\":\"host\",\"command\":[\"sh\",\"-c\",\"cat <<EOF\\n$HOME `id` \\\\ "
	    "'\\\"\\r\\nEOF\\n\"],\"env\":{\"V\":\"a'b\\\"c $(id)\\nd=e\",\"PATH\":\"/x\"},"
	    "\"capture_patterns\":[\"*.[ch]\",\"a b\"],\"interactive\":true,\"stdin_bps\":0}",
	    &body, &spec, bad, sizeof(bad));

	ASSERT_TEXT(bad, "");
	CU_ASSERT_EQUAL_FATAL(spec.command_count, 3);
	ASSERT_TEXT(spec.command[2], "cat <<EOF\n$HOME `id` \\ '\"\r\nEOF\n");
	CU_ASSERT_PTR_NULL(spec.command[3]);
	CU_ASSERT(has_variable(&spec, "V=a'b\"c $(id)\nd=e"));
	/* theirs instead of ours, never both */
	CU_ASSERT(has_variable(&spec, "PATH=/x"));
	CU_ASSERT_EQUAL(spec.environment_count, 6);
	CU_ASSERT_PTR_NULL(spec.environment[6]);
	CU_ASSERT(has_variable(&spec, "HOME=/workspace"));
	ASSERT_TEXT(spec.patterns[0], "*.[ch]");
	ASSERT_TEXT(spec.patterns[1], "a b");
	CU_ASSERT(spec.interactive);
	CU_ASSERT_EQUAL(spec.stdin_bytes_per_second, 0);
	CU_ASSERT_EQUAL(spec.stdin_max_bytes, -1);
	spec_release(&spec);
	json_decref(root);
}

/* --- files ---------------------------------------------------------------------------------- */

static struct policy *policy;

static void load_policy(void)
{
	static const char text[] = "public_url: https://localhost:8443\n";
	struct err e = ERR_INIT;

	if (policy == NULL && policy_parse("p", text, sizeof(text) - 1, &policy, &e) != 0)
		CU_FAIL_FATAL("policy");
}

/* Decodes {"files": FILES}; 0 or -1, the message in shown. */
static int files_of(const char *files, struct run_spec *spec, struct buf *blob, char *shown)
{
	scope_buf struct buf text;
	struct run_body body;
	struct problems p;
	struct err e = ERR_INIT;
	json_t *root;
	int result;

	load_policy();
	buf_init(&text, 64U << 20);
	buf_addf(&text, "{\"base_image\":\"host\",\"command\":[\"a\"],\"files\":%s}", files);
	root = parse(buf_text(&text));
	problems_init(&p);
	codec_decode_run(root, &body, &p);
	CU_ASSERT_FALSE(problems_any(&p));
	problems_release(&p);
	spec_init(spec);
	buf_init(blob, 0);
	result = codec_decode_files(&body, policy, spec, blob, &e);
	CU_ASSERT_EQUAL(e.code, result == 0 ? ERR_NONE : ERR_INVALID);
	(void)snprintf(shown, 256, "%.255s", e.shown);
	json_decref(root);
	return result;
}

static void files_refused(const char *files, const char *part)
{
	struct run_spec spec;
	struct buf blob;
	char shown[256];

	CU_ASSERT_EQUAL(files_of(files, &spec, &blob, shown), -1);
	if (strstr(shown, part) == NULL)
		ASSERT_TEXT(shown, part);
	CU_ASSERT(strstr(shown, part) != NULL);
	spec_release(&spec);
	buf_release(&blob);
}

static void path_is(const char *path, bool good)
{
	scope_buf struct buf text;
	struct run_spec spec;
	struct buf blob;
	char shown[256];

	buf_init(&text, 10000);
	buf_addf(&text, "[{\"path\":\"%s\",\"content_b64\":\"\"}]", path);
	CU_ASSERT_EQUAL(files_of(buf_text(&text), &spec, &blob, shown), good ? 0 : -1);
	spec_release(&spec);
	buf_release(&blob);
}

static void test_files(void)
{
	struct run_spec spec;
	struct buf blob;
	char shown[256];

	CU_ASSERT_EQUAL(files_of("[{\"path\":\"a\",\"content_b64\":\"RU9GCiRIT01FDQo=\"},{\"path\":"
				 "\"d/b c\",\"content_b64\":\"\"},{\"path\":\"c\",\"content_b64\":"
				 "\"AP8=\",\"mode\":7}]",
				 &spec, &blob, shown),
			0);
	CU_ASSERT_EQUAL_FATAL(spec.file_count, 3);
	ASSERT_TEXT(spec.files[1].path, "d/b c");
	CU_ASSERT_EQUAL(spec.files[0].size_bytes, 11);
	CU_ASSERT_EQUAL(spec.files[1].size_bytes, 0);
	CU_ASSERT_EQUAL(spec.files[2].size_bytes, 2);
	CU_ASSERT_EQUAL(blob.len, 13);
	CU_ASSERT_EQUAL(memcmp(blob.data, "EOF\n$HOME\r\n\0\xff", 13), 0);
	spec_release(&spec);
	buf_release(&blob);
	CU_ASSERT_EQUAL(files_of("[]", &spec, &blob, shown), 0);
	CU_ASSERT_EQUAL(spec.file_count, 0);
	spec_release(&spec);
	buf_release(&blob);
	files_refused("[1]", "files[0].path");
	files_refused("[{\"content_b64\":\"\"}]", "files[0].path");
	files_refused("[{\"path\":\"a\"}]", "files[0].content_b64");
	files_refused("[{\"path\":\"a\",\"content_b64\":\"Zg\"}]", "files[0].content_b64");
	files_refused("[{\"path\":\"a\",\"content_b64\":\"Z g=\"}]", "files[0].content_b64");
	files_refused("[{\"path\":\"a\",\"content_b64\":null}]", "files[0].content_b64");
	files_refused("[{\"path\":\"a\",\"content_b64\":\"Zm9v\\u0000Zm9\"}]",
		      "files[0].content_b64");
	files_refused(
	    "[{\"path\":\"a\",\"content_b64\":\"\"},{\"path\":\"a\",\"content_b64\":\"\"}]",
	    "files[1].path is there twice");
}

static void test_b14_file_paths(void)
{
	char name[1100];

	path_is("a", true);
	path_is("a/b/c.txt", true);
	path_is("...", true);
	path_is("a..b", true);
	path_is(".hidden", true);
	path_is("a\\\\b", true);
	path_is("caf\xc3\xa9", true);
	path_is("", false);
	path_is("/abs", false);
	path_is("a/", false);
	path_is("a//b", false);
	path_is(".", false);
	path_is("..", false);
	path_is("../x", false);
	path_is("a/..", false);
	path_is("a/./b", false);
	path_is("a/../b", false);
	path_is("a\\u0000b", false);
	/* 1,024 bytes in segments of 255 */
	memset(name, 'n', sizeof(name));
	name[255] = name[511] = name[767] = '/';
	name[1023] = '/';
	name[1024] = '\0';
	path_is(name, false);
	name[1023] = '\0';
	path_is(name, true);
	name[1023] = 'n';
	name[1000] = '/';
	path_is(name, true);
	name[1024] = 'n';
	name[1025] = '\0';
	path_is(name, false);
	memset(name, 'n', 256);
	name[256] = '\0';
	path_is(name, false);
}

static void many_files(size_t count, size_t triples, bool good)
{
	scope_buf struct buf text;
	scope_free char *content = mem_zalloc(triples * 4 + 1, 1);
	struct run_spec spec;
	struct buf blob;
	char shown[256];

	memset(content, 'A', triples * 4);
	buf_init(&text, 64U << 20);
	for (size_t i = 0; i < count; i++)
		buf_addf(&text, "%s{\"path\":\"%zu\",\"content_b64\":\"%s\"}", i == 0 ? "[" : ",",
			 i, content);
	buf_add_str(&text, "]");
	CU_ASSERT_EQUAL(files_of(buf_text(&text), &spec, &blob, shown), good ? 0 : -1);
	if (!good)
		CU_ASSERT(strstr(shown, "files may have at most") != NULL);
	spec_release(&spec);
	buf_release(&blob);
}

static void test_file_limits(void)
{
	many_files(1000, 1, true);
	many_files(1001, 1, false);
	/* 4 MiB decoded in all */
	many_files(1, (4U << 20) / 3, true);
	many_files(1, (4U << 20) / 3 + 1, false);
	many_files(4, (1U << 20) / 3, true);
	many_files(5, (1U << 20) / 3, false);
}

/* --- fingerprint ---------------------------------------------------------------------------- */

static void fingerprint(const char *text, char hex[65])
{
	json_t *root = parse(text);
	unsigned char hash[32];
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(codec_fingerprint_run(root, hash, &e), 0);
	str_hex(hex, hash, sizeof(hash));
	json_decref(root);
}

static void same(const char *a, const char *b, bool equal)
{
	char x[65];
	char y[65];

	fingerprint(a, x);
	fingerprint(b, y);
	CU_ASSERT_EQUAL(str_equal(x, y), equal);
}

#define RUN "\"base_image\":\"host\",\"command\":[\"true\"]"

static void test_fingerprint(void)
{
	char hex[65];

	/* the vector of contract 2.6 */
	fingerprint("{\"spec_version\":\"1.0\",\"runtime\":\"docker\",\"base_image\":"
		    "\"python:3.11-slim\",\"command\":[\"python\",\"-c\",\"print('hello')\"],"
		    "\"timeout_sec\":60}",
		    hex);
	ASSERT_TEXT(hex, "d06264916d4ffe6a5421c6ea4be50648c3b88180e6e4d79d575156843a223801");
	same("{" RUN "}", "{" RUN ",\"timeout_sec\":300}", true);
	same("{" RUN "}", "{" RUN ",\"spec_version\":\"1.0\",\"trust_level\":\"standard\"}", true);
	same("{" RUN "}", "{" RUN ",\"timeout_sec\":301}", false);
	same("{" RUN "}", "{" RUN ",\"timeout_sec\":null}", false);
	same("{" RUN "}", "{" RUN ",\"env\":null,\"interactive\":null}", true);
	same("{" RUN "}", "{" RUN ",\"unknown\":1}", true);
	same("{" RUN ",\"timeout_sec\":60}", "{" RUN ",\"timeout_sec\":60.0}", true);
	same("{" RUN ",\"resources\":{\"cpu\":1}}", "{" RUN ",\"resources\":{\"cpu\":1.0}}", true);
	same("{" RUN ",\"resources\":{\"cpu\":1}}",
	     "{" RUN ",\"resources\":{\"cpu\":1,\"x\":2,\"memory_mb\":null}}", true);
	same("{" RUN ",\"resources\":{\"cpu\":1}}", "{" RUN ",\"resources\":{\"cpu\":2}}", false);
	same("{" RUN ",\"env\":{\"A\":\"1\",\"B\":\"2\"}}",
	     "{" RUN ",\"env\":{\"B\":\"2\",\"A\":\"1\"}}", true);
	same("{" RUN ",\"env\":{\"A\":\"1\"}}", "{" RUN ",\"env\":{\"A\":\"2\"}}", false);
	same("{\"base_image\":\"host\",\"command\":[\"a\",\"b\"]}",
	     "{\"base_image\":\"host\",\"command\":[\"b\",\"a\"]}", false);
	same("{" RUN ",\"files\":[{\"path\":\"a\",\"content_b64\":\"\"}]}",
	     "{" RUN ",\"files\":[{\"content_b64\":\"\",\"path\":\"a\",\"unknown\":5}]}", true);
	same("{" RUN ",\"files\":[{\"path\":\"a\",\"content_b64\":\"\"}]}",
	     "{" RUN ",\"files\":[{\"path\":\"b\",\"content_b64\":\"\"}]}", false);
}

/* --- the status object ---------------------------------------------------------------------- */

static void test_status(void)
{
	static const char *const members[] = {"id",
					      "spec_version",
					      "runtime",
					      "runtime_version",
					      "base_image",
					      "image_digest",
					      "policy_hash",
					      "phase",
					      "status_reason_code",
					      "status_reason_details",
					      "exit_code",
					      "started_at",
					      "finished_at",
					      "message",
					      "resource_usage",
					      "estimated_start_time",
					      "log_stream_url",
					      "session_id",
					      "persona_id",
					      "workspace_id",
					      "workspace_group_id",
					      "scope_snapshot_id"};
	struct run_row row;
	json_t *run;

	load_policy();
	memset(&row, 0, sizeof(row));
	(void)snprintf(row.id, sizeof(row.id), ID);
	row.phase = RUN_QUEUED;
	row.resume_from_seq = 7;
	run = codec_run(policy, &row);
	CU_ASSERT_PTR_NOT_NULL_FATAL(run);
	/* every key is always there */
	for (size_t i = 0; i < ARRAY_LEN(members); i++)
		CU_ASSERT_PTR_NOT_NULL(json_object_get(run, members[i]));
	CU_ASSERT(json_is_null(json_object_get(run, "exit_code")));
	CU_ASSERT(json_is_null(json_object_get(run, "started_at")));
	ASSERT_TEXT(json_text(json_object_get(run, "log_stream_url")),
		    "wss://localhost:8443/api/v1/sandbox/runs/" ID "/stream?from_seq=7");
	json_decref(run);
	row.phase = RUN_FAILED;
	row.has_exit = true;
	row.exit_code = 3;
	row.resume_from_seq = 0;
	(void)snprintf(row.message, sizeof(row.message), "exit=3");
	(void)snprintf(row.resource_usage, sizeof(row.resource_usage),
		       "{\"log_bytes\":9007199254740993}");
	(void)snprintf(row.estimated_start_at, sizeof(row.estimated_start_at), "x");
	run = codec_run(policy, &row);
	ASSERT_TEXT(json_text(json_object_get(run, "status_reason_code")), "nonzero_exit");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(run, "exit_code")), 3);
	CU_ASSERT_EQUAL(json_integer_value(
			    json_object_get(json_object_get(run, "resource_usage"), "log_bytes")),
			9007199254740993);
	CU_ASSERT(json_is_null(json_object_get(run, "estimated_start_time")));
	ASSERT_TEXT(json_text(json_object_get(run, "log_stream_url")),
		    "wss://localhost:8443/api/v1/sandbox/runs/" ID "/stream");
	json_decref(run);
	/* a row that is broken is no answer, and no half of one */
	(void)snprintf(row.resource_usage, sizeof(row.resource_usage), "{\"log_bytes\":");
	CU_ASSERT_PTR_NULL(codec_run(policy, &row));
}

/* --- faults --------------------------------------------------------------------------------- */

static int whole_path(void *context, struct err *e)
{
	json_t *root = context;
	struct run_body body;
	struct run_spec spec;
	struct problems p;
	struct buf blob;
	struct run_row row;
	unsigned char hash[32];
	json_t *run = NULL;
	int result;

	spec_init(&spec);
	buf_init(&blob, 0);
	problems_init(&p);
	codec_decode_run(root, &body, &p);
	result = codec_fill_spec(&body, &spec, &p, e);
	if (result == 0 && problems_any(&p)) {
		CU_ASSERT(p.failed);
		result = err_set(e, ERR_NOMEM, 0, "problems");
	}
	if (result == 0)
		result = codec_decode_files(&body, policy, &spec, &blob, e);
	if (result == 0)
		result = codec_fingerprint_run(root, hash, e);
	if (result == 0) {
		memset(&row, 0, sizeof(row));
		(void)snprintf(row.resource_usage, sizeof(row.resource_usage), "{\"a\":1}");
		run = codec_run(policy, &row);
		if (run == NULL)
			result = err_set(e, ERR_NOMEM, 0, "run");
		else
			CU_ASSERT_EQUAL(json_object_size(run), 23);
	}
	/* lack of memory is not the client's fault */
	CU_ASSERT_EQUAL(e->code, result == 0 ? ERR_NONE : ERR_NOMEM);
	json_decref(run);
	problems_release(&p);
	buf_release(&blob);
	spec_release(&spec);
	return result;
}

static void test_faults(void)
{
	json_t *root;

	json_setup();
	load_policy();
	root =
	    parse("{" RUN ",\"env\":{\"A\":\"1\"},\"files\":[{\"path\":\"a\",\"content_b64\":"
		  "\"Zm9v\"}],\"capture_patterns\":[\"*\"],\"resources\":{\"cpu\":1,\"memory_mb\":"
		  "64.0},\"timeout_sec\":60.0}");
	fault_loop(whole_path, root);
	json_decref(root);
	policy_free(policy);
	policy = NULL;
}

static const struct test tests[] = {
    {"codec", "B11 integers", test_b11_integers},
    {"codec", "types", test_types},
    {"codec", "B12 bodies", test_b12_bodies},
    {"codec", "a blank session is none", test_blank_session},
    {"codec", "limits", test_limits},
    {"codec", "B13 values untouched", test_b13_untouched},
    {"codec", "B13 files", test_files},
    {"codec", "B14 file paths", test_b14_file_paths},
    {"codec", "file limits", test_file_limits},
    {"codec", "fingerprint", test_fingerprint},
    {"codec", "status object", test_status},
    {"codec", "faults", test_faults},
};

TEST_MAIN(tests)
