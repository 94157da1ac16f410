/* test_fleet: face 3's bodies, and the sandbox object. */
#include "handlers/fleet/fleet.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

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

static void fields_of(const struct problems *p, char *out, size_t size)
{
	size_t used = 0;
	size_t index;
	json_t *item;

	out[0] = '\0';
	json_array_foreach (p->list, index, item)
		used += (size_t)snprintf(out + used, size - used, "%s%s", used == 0 ? "" : " ",
					 json_text(json_object_get(item, "field")));
}

static void create_problems(const char *text, const char *want)
{
	scope_json json_t *root = parse(text);
	struct fleet_body body;
	struct problems p;
	char got[500];

	problems_init(&p);
	fleet_decode_create(root, &body, &p);
	fields_of(&p, got, sizeof(got));
	ASSERT_TEXT(got, want);
	problems_release(&p);
}

static void command_problems(const char *text, const char *want)
{
	scope_json json_t *root = parse(text);
	struct fleet_command_body body;
	struct problems p;
	char got[500];

	problems_init(&p);
	fleet_decode_command(root, &body, &p);
	fields_of(&p, got, sizeof(got));
	ASSERT_TEXT(got, want);
	problems_release(&p);
}

static void test_create_body(void)
{
	json_setup();
	create_problems("{}", "");
	create_problems("{\"name\":null,\"env\":null,\"resources\":null,\"unknown\":{\"a\":1}}",
			"");
	create_problems("{\"resources\":{\"cpuCores\":0.5,\"memoryMB\":64,\"diskGB\":16384}}", "");
	create_problems("{\"resources\":{\"cpuCores\":0}}", "resources.cpuCores");
	create_problems("{\"resources\":{\"cpuCores\":-1}}", "resources.cpuCores");
	create_problems("{\"resources\":{\"memoryMB\":63}}", "resources.memoryMB");
	create_problems("{\"resources\":{\"memoryMB\":1.5,\"diskGB\":16385}}",
			"resources.memoryMB resources.diskGB");
	create_problems("{\"maxLifetimeSeconds\":31536001,\"ephemeral\":0}",
			"maxLifetimeSeconds ephemeral");
	create_problems("{\"name\":[],\"metadata\":[],\"env\":[]}", "name env metadata");
}

static void test_command_body(void)
{
	command_problems("{\"command\":\"true\"}", "");
	command_problems("{\"command\":\"true\",\"timeout\":86400000,\"cwd\":\"/\"}", "");
	command_problems("{}", "command command");
	command_problems("{\"command\":\"\"}", "command");
	command_problems("{\"command\":\"x\",\"timeout\":86400001,\"cwd\":\"\",\"env\":1}",
			 "env timeout cwd");
}

static void test_unsupported(void)
{
	scope_json json_t *plain = parse("{\"git\":null,\"name\":\"x\",\"billingOwnerId\":\"b\"}");
	scope_json json_t *git = parse("{\"name\":\"x\",\"git\":{\"url\":\"u\"}}");

	CU_ASSERT_PTR_NULL(fleet_unsupported(plain));
	ASSERT_TEXT(fleet_unsupported(git), "git");
}

static void environment_is(const char *text, size_t count, bool good)
{
	scope_json json_t *root = parse(text);
	struct run_spec spec;
	struct problems p;
	struct err e = ERR_INIT;

	spec_init(&spec);
	problems_init(&p);
	CU_ASSERT_EQUAL(fleet_environment(root, &spec, &p, &e), 0);
	CU_ASSERT_EQUAL(problems_any(&p), !good);
	if (good)
		CU_ASSERT_EQUAL(spec.environment_count, count);
	problems_release(&p);
	spec_release(&spec);
}

static void test_environment(void)
{
	environment_is("{}", 0, true);
	environment_is("{\"A\":\"\",\"_b9\":\"x=y\"}", 2, true);
	environment_is("{\"9A\":\"x\"}", 0, false);
	environment_is("{\"A B\":\"x\"}", 0, false);
	environment_is("{\"A=\":\"x\"}", 0, false);
	environment_is("{\"\":\"x\"}", 0, false);
	environment_is("{\"A\":1}", 0, false);
	environment_is("{\"A\":null}", 0, false);
	environment_is("{\"A\":\"a\\u0000b\"}", 0, false);
}

static struct sandbox_row sample(void)
{
	struct sandbox_row row;

	memset(&row, 0, sizeof(row));
	spec_init(&row.spec);
	(void)snprintf(row.id, sizeof(row.id), "0190a5c0-0000-7000-8000-0123456789ab");
	(void)snprintf(row.created_at, sizeof(row.created_at), "2026-01-01T00:00:00.000000Z");
	row.persistent = true;
	row.spec.cpu_milli = 1500;
	row.spec.memory_bytes = INT64_C(512) << 20;
	row.spec.workspace_bytes = INT64_C(2) << 30;
	return row;
}

static void test_object(void)
{
	static char url[] = "https://h:1";
	static const char *const words[SANDBOX__MAX] = {"pending", "provisioning", "running",
							"running", "stopped",      "failed",
							"stopped", "deleted"};
	struct policy policy = {.public_url = url};
	struct sandbox_row row = sample();

	for (int i = 0; i < SANDBOX__MAX; i++) {
		json_t *object;

		row.state = (enum sandbox_state)i;
		object = fleet_sandbox(&policy, &row);
		CU_ASSERT_PTR_NOT_NULL_FATAL(object);
		ASSERT_TEXT(json_text(json_object_get(object, "status")), words[i]);
		/* an address only where somebody listens */
		CU_ASSERT_EQUAL(json_object_get(object, "connection") != NULL,
				i == SANDBOX_RUNNING);
		CU_ASSERT_PTR_NULL(json_object_get(object, "error"));
		CU_ASSERT_PTR_NULL(json_object_get(object, "name"));
		json_decref(object);
	}
	row.request = parse("{\"name\":\"n\",\"metadata\":{\"a\":[1]}}");
	(void)snprintf(row.error, sizeof(row.error), "box_lost");
	{
		scope_json json_t *object = fleet_sandbox(&policy, &row);

		ASSERT_TEXT(json_text(json_object_get(object, "error")), "box_lost");
		ASSERT_TEXT(json_text(json_object_get(object, "name")), "n");
		CU_ASSERT_EQUAL(json_object_size(json_object_get(object, "metadata")), 1);
	}
	op_sandbox_release(&row);
}

static void test_errors(void)
{
	scope_buf struct buf text = BUF_NONE;
	struct api_error error = {.status = 409,
				  .code = "sandbox_not_ready",
				  .message = "no \xff",
				  .details = parse("{\"retryable\":true}")};

	buf_init(&text, 4096);
	face_fleet.error_body(&text, &error);
	ASSERT_TEXT(
	    buf_text(&text),
	    "{\"success\":false,\"error\":{\"code\":\"SANDBOX_NOT_READY\",\"message\":\"The "
	    "request was refused.\",\"retryable\":true},\"retryable\":true}");
	json_decref(error.details);
}

static const struct test tests[] = {
    {"fleet", "create", test_create_body},
    {"fleet", "command", test_command_body},
    {"fleet", "what is not there", test_unsupported},
    {"fleet", "environment", test_environment},
    {"fleet", "object", test_object},
    {"fleet", "errors", test_errors},
};

TEST_MAIN(tests)
