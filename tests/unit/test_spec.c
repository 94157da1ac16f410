/* test_spec: what admission writes is what the runner reads, and nothing else is taken. */
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"
#include "runners/core/spec.h"
#include "tests/lib/test.h"

static char argv0[] = "sh";
static char argv1[] = "-c";
static char argv2[] = "printf 'a\nb' \"$X\" `id` \\ \xe2\x98\x95\r\n";
static char variable[] = "A=a'b\"c $(id)=d";
static char pattern[] = "out/*.[!x]";
static char path0[] = "in.txt";
static char path1[] = "d/caf\xc3\xa9";
static char runtime[] = "namespace";
static char image[] = "host";
static char network[] = "deny_all";
static char *command[] = {argv0, argv1, argv2, NULL};
static char *environment[] = {variable, NULL};
static char *patterns[] = {pattern, NULL};
static char cwd[] = "/workspace/a b";
static char sandbox[] = "";
static struct spec_file files[] = {{path0, 3}, {path1, 0}};

static struct run_spec sample(void)
{
	struct run_spec spec;

	spec_init(&spec);
	spec.command = command;
	spec.command_count = 3;
	spec.environment = environment;
	spec.environment_count = 1;
	spec.patterns = patterns;
	spec.pattern_count = 1;
	spec.files = files;
	spec.file_count = 2;
	spec.blob_bytes = 3;
	memset(spec.blob_sha256, 0xA5, sizeof(spec.blob_sha256));
	spec.runtime = runtime;
	spec.image = image;
	spec.network = network;
	spec.cwd = cwd;
	spec.sandbox = sandbox;
	spec.persistent = true;
	spec.fresh_network = false;
	spec.interactive = true;
	spec.stdin_max_bytes = 0;
	spec.stdin_bytes_per_second = 9007199254740991;
	spec.timeout_ms = 60000;
	spec.startup_timeout_ms = 20000;
	spec.cancel_grace_ms = 0;
	spec.cpu_milli = 4000;
	spec.memory_bytes = INT64_C(8) << 30;
	spec.workspace_bytes = 1;
	spec.workspace_inodes = 2;
	spec.tmp_bytes = 3;
	spec.pids = 64;
	spec.nofile = 256;
	spec.log_bytes = 4;
	spec.artifact_file_bytes = 5;
	spec.artifact_run_bytes = 6;
	spec.artifact_user_bytes = INT64_MAX;
	return spec;
}

static int round_trip(void *context, struct err *e)
{
	struct run_spec spec = sample();
	struct run_spec back;
	scope_buf struct buf text;

	(void)context;
	buf_init(&text, LIMIT_SPEC_BYTES);
	if (spec_encode(&spec, &text, e) != 0 ||
	    spec_decode(buf_text(&text), text.len, &back, e) != 0) {
		CU_ASSERT_EQUAL(e->code, ERR_NOMEM);
		return -1;
	}
	CU_ASSERT_EQUAL_FATAL(back.command_count, 3);
	ASSERT_TEXT(back.command[2], argv2);
	CU_ASSERT_PTR_NULL(back.command[3]);
	CU_ASSERT_EQUAL_FATAL(back.environment_count, 1);
	ASSERT_TEXT(back.environment[0], variable);
	CU_ASSERT_EQUAL_FATAL(back.pattern_count, 1);
	ASSERT_TEXT(back.patterns[0], pattern);
	CU_ASSERT_EQUAL_FATAL(back.file_count, 2);
	ASSERT_TEXT(back.files[1].path, path1);
	CU_ASSERT_EQUAL(back.files[0].size_bytes, 3);
	CU_ASSERT_EQUAL(back.blob_bytes, 3);
	CU_ASSERT_EQUAL(memcmp(back.blob_sha256, spec.blob_sha256, 32), 0);
	ASSERT_TEXT(back.runtime, runtime);
	ASSERT_TEXT(back.image, image);
	ASSERT_TEXT(back.network, network);
	CU_ASSERT(back.interactive);
	/* every number from the first to the last, as bytes */
	CU_ASSERT_EQUAL(memcmp(&back.stdin_max_bytes, &spec.stdin_max_bytes,
			       sizeof(spec) - offsetof(struct run_spec, stdin_max_bytes)),
			0);
	spec_release(&back);
	CU_ASSERT_EQUAL(back.stdin_max_bytes, -1);
	CU_ASSERT_PTR_NULL(back.command);
	return 0;
}

static void test_round_trip(void)
{
	json_setup();
	fault_loop(round_trip, NULL);
}

/* A valid spec as JSON; the caller releases. */
static json_t *valid(void)
{
	struct run_spec spec = sample();
	scope_buf struct buf text;
	struct err e = ERR_INIT;
	json_t *root = NULL;

	buf_init(&text, LIMIT_SPEC_BYTES);
	if (spec_encode(&spec, &text, &e) != 0 ||
	    json_parse(buf_text(&text), text.len, &root, &e) != 0)
		CU_FAIL_FATAL("no sample");
	return root;
}

static void judged(const json_t *root, bool good, const char *what)
{
	struct run_spec back;
	scope_buf struct buf text;
	struct err e = ERR_INIT;
	int result;

	buf_init(&text, LIMIT_SPEC_BYTES);
	CU_ASSERT_EQUAL(json_write(&text, root, &e), 0);
	result = spec_decode(buf_text(&text), text.len, &back, &e);
	if ((result == 0) != good)
		(void)printf("\n    %s\n", what);
	CU_ASSERT_EQUAL(result == 0, good);
	CU_ASSERT_EQUAL(e.code, good ? ERR_NONE : ERR_PROTOCOL);
	if (result == 0)
		spec_release(&back);
}

static void test_missing_and_wrong(void)
{
	scope_json json_t *names = valid();
	const char *name;
	json_t *original;
	size_t members = 0;

	judged(names, true, "as it is");
	json_object_foreach (names, name, original) {
		json_t *wrong[] = {json_null(),           json_pack("{s:i}", "a", 1),
				   json_real(1.5),        json_string("a\xc3\xa9"),
				   json_integer(-2),      json_true(),
				   json_pack("[i]", 1),   json_pack("[n]"),
				   json_pack("[{}]"),     json_stringn("a\0b", 3),
				   json_pack("[[s]]", "")};
		json_t *root = valid();

		members++;
		CU_ASSERT_EQUAL(json_object_del(root, name), 0);
		judged(root, false, name);
		for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
			bool fits = (json_is_boolean(original) && json_is_boolean(wrong[i])) ||
				    (json_is_string(original) && json_text(wrong[i]) != NULL &&
				     !str_equal(name, "blob_sha256"));

			CU_ASSERT_EQUAL(json_object_set(root, name, wrong[i]), 0);
			judged(root, fits, name);
			json_decref(wrong[i]);
		}
		json_decref(root);
	}
	CU_ASSERT_EQUAL(members, 14 + 19);
}

static void set_and_judge(const char *name, json_t *value, bool good)
{
	json_t *root = valid();

	CU_ASSERT_EQUAL(json_object_set_new(root, name, value), 0);
	judged(root, good, name);
	json_decref(root);
}

static void test_values(void)
{
	/* only the four limits of stdin may be "not set" */
	set_and_judge("stdin_max_bytes", json_integer(-1), true);
	set_and_judge("stdin_idle_timeout_sec", json_integer(-1), true);
	set_and_judge("timeout_ms", json_integer(-1), false);
	set_and_judge("memory_bytes", json_integer(-1), false);
	set_and_judge("pids", json_integer(-1), false);
	set_and_judge("command", json_array(), false);
	set_and_judge("environment", json_array(), true);
	set_and_judge("blob_sha256", json_string("00"), false);
	/* the files must fill the blob exactly */
	set_and_judge("blob_bytes", json_integer(4), false);
	set_and_judge("blob_bytes", json_integer(-1), false);
	set_and_judge("files", json_pack("[{s:s,s:i}]", "path", "a", "size", 3), true);
	set_and_judge("files", json_pack("[{s:s,s:i}]", "path", "a", "size", 2), false);
	set_and_judge("files",
		      json_pack("[{s:s,s:I,s:s}]", "path", "a", "size", INT64_MAX, "x", ""), false);
	set_and_judge("files", json_pack("[{s:i,s:i}]", "path", 1, "size", 3), false);
	set_and_judge("files", json_pack("[{s:s}]", "path", "a"), false);
	set_and_judge(
	    "files",
	    json_pack("[{s:s,s:i},{s:s,s:i}]", "path", "a", "size", 4, "path", "b", "size", -1),
	    false);
	/* what it does not know it leaves alone */
	set_and_judge("more", json_true(), true);
}

static void test_not_json(void)
{
	static const char *const texts[] = {"", "{", "[]", "null", "{\"pids\":1e999}"};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct run_spec back;
		struct err e = ERR_INIT;

		CU_ASSERT_EQUAL(spec_decode(texts[i], strlen(texts[i]), &back, &e), -1);
		CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
	}
}

static const struct test tests[] = {
    {"spec", "B13 round trip and faults", test_round_trip},
    {"spec", "each member missing or wrong", test_missing_and_wrong},
    {"spec", "values", test_values},
    {"spec", "no spec", test_not_json},
};

TEST_MAIN(tests)
