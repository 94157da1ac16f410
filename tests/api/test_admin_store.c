/* test_admin_store: plans and cleanups as operations: what is stored, what a released request is
 * answered, and who may see it. */
#include "fcgi/router.h"
#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/callrig.h"

#define PLAN    BASE "/admin/macos-image-store/cleanup-plan"
#define CLEANUP BASE "/admin/macos-image-store/cleanup"
#define RESULT                                                                                    \
	"{\"run_manifests\":5,\"gc_candidates\":4,\"blocked_live_matches\":1,\"truncated\":true," \
	"\"items\":[{\"run_id\":\"a\",\"gc_reason\":\"inactive_run\",\"gc_path\":\"spool/aa/a\"," \
	"\"run_manifest_path\":\"spool/aa/a/log\",\"run_manifest_present\":true,\"live\":false,"  \
	"\"status\":\"deleted\",\"error\":null},{\"run_id\":\"b\",\"gc_reason\":"                 \
	"\"planning_only_run_manifest\",\"gc_path\":\"staging/bb/b\",\"run_manifest_path\":"      \
	"\"staging/bb/b\",\"run_manifest_present\":true,\"live\":false,\"status\":\"error\","     \
	"\"error\":\"permission_denied\"},{\"run_id\":\"c\",\"gc_reason\":\"inactive_run\","      \
	"\"gc_path\":\"spool/cc/c\",\"run_manifest_path\":null,\"run_manifest_present\":false,"   \
	"\"live\":true,\"status\":null,\"error\":null}]}"

static void runner_lives(bool yes)
{
	api_sql(api.db, "DELETE FROM runner WHERE node = '" NODE "'");
	if (yes)
		api_sql(
		    api.db,
		    "INSERT INTO runner (instance, node, beat, boot_id, started_at, beat_at) VALUES ('test-admin-store', '" NODE
		    "', 1, REPEAT('b', 16), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))");
}

/* The id of the operation that the answer waits for. */
static void begun(const char *key, const char *method, const char *path, const char *body,
		  char id[IDENT_UUID_SIZE])
{
	struct answer a;
	const char *url;

	call(&(struct call){.method = method, .path = path, .key = key, .body = body}, &a);
	url = http_response_get(&a.response, "X-Accel-Redirect");
	CU_ASSERT_PTR_NOT_NULL_FATAL(url);
	CU_ASSERT_FATAL(str_starts(url, "/internal/hold/" NODE "/store/"));
	(void)snprintf(id, IDENT_UUID_SIZE, "%s", url + strlen("/internal/hold/" NODE "/store/"));
	answer_release(&a);
}

static void test_stored(void)
{
	char id[IDENT_UUID_SIZE];

	runner_lives(true);
	begun(admin, "GET", PLAN, NULL, id);
	CU_ASSERT_EQUAL(api_number(api.db,
				   "SELECT COUNT(*) FROM operation WHERE id = '%s' AND kind = "
				   "'store_plan' AND state = 'accepted' AND sandbox_id = ''",
				   id),
			1);
	CU_ASSERT_EQUAL(
	    api_number(
		api.db,
		"SELECT COUNT(*) FROM job WHERE object_id = '%s' AND kind = 'store_plan' AND "
		"node = '" NODE "' AND rank < 0 AND spec = "
		"'{\"action_types\":null,\"run_ids\":null}'",
		id),
	    1);
	/* not removing is the default */
	begun(admin, "POST", CLEANUP, "{\"confirm_all\":true}", id);
	CU_ASSERT_EQUAL(
	    api_number(api.db,
		       "SELECT COUNT(*) FROM job WHERE object_id = '%s' AND kind = 'store_plan'",
		       id),
	    1);
	begun(operator_, "POST", CLEANUP,
	      "{\"dry_run\":false,\"action_types\":[\"remove_run_manifest\"],\"run_ids\":[\"x\"]}",
	      id);
	CU_ASSERT_EQUAL(
	    api_number(api.db,
		       "SELECT COUNT(*) FROM job WHERE object_id = '%s' AND kind = 'store_cleanup' "
		       "AND spec = "
		       "'{\"action_types\":[\"remove_run_manifest\"],\"run_ids\":[\"x\"]}'",
		       id),
	    1);
}

/* Without a runner nothing is stored that somebody might do later. */
static void test_no_runner(void)
{
	int64_t before = api_number(api.db, "SELECT COUNT(*) FROM operation");
	struct answer a;

	runner_lives(false);
	call(&(struct call){.method = "POST",
			    .path = CLEANUP,
			    .key = operator_,
			    .body = "{\"dry_run\":false,\"confirm_all\":true}"},
	     &a);
	CU_ASSERT_EQUAL(a.response.status, 503);
	ASSERT_TEXT(a.code, "image_store_cleanup_unavailable");
	answer_release(&a);
	CU_ASSERT_EQUAL(api_number(api.db, "SELECT COUNT(*) FROM operation"), before);
}

/* What the gate's release makes of the request; left_ms: until it must be answered. */
static void rendered(const char *key, const char *id, const char *as, int64_t left_ms,
		     struct answer *a)
{
	char path[200];
	char query[200];
	long long now_ms = clock_real_us() / CLOCK_US_PER_MS;
	struct http_request request = {.method = "POST",
				       .path = path,
				       .query = query,
				       .request_id = "req-test",
				       .internal = true,
				       .body = ""};
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "/internal/render/" NODE "/store/%s", id);
	(void)snprintf(query, sizeof(query), "as=%s&t0=%lld&until=%lld&f=e&n=0", as, now_ms,
		       now_ms + (long long)left_ms);
	if (key != NULL)
		request.headers[request.header_count++] = (struct http_header){"X-API-KEY", key};
	memset(a, 0, sizeof(*a));
	a->code = "";
	http_response_init(&a->response);
	router_serve(&api.context, &request, &a->response);
	if (a->response.body.len > 0)
		CU_ASSERT_EQUAL(
		    json_parse(buf_text(&a->response.body), a->response.body.len, &a->body, &e), 0);
	if (a->response.status >= 400)
		a->code = json_text(json_object_get(json_object_get(a->body, "error"), "code"));
	check_no_leak(a, key);
}

static void render_is(const char *key, const char *id, const char *as, int64_t left_ms, int status,
		      const char *code)
{
	struct answer a;

	rendered(key, id, as, left_ms, &a);
	CU_ASSERT_EQUAL(a.response.status, status);
	ASSERT_TEXT(a.code, code);
	answer_release(&a);
}

static void ends(const char *id, const char *state, const char *error, const char *result)
{
	api_sql(api.db,
		"UPDATE operation SET state = '%s', error = NULLIF('%s', ''), result = "
		"NULLIF('%s', '') WHERE id = '%s'",
		state, error, result, id);
}

static void test_waiting(void)
{
	char plan[IDENT_UUID_SIZE];
	char cleanup[IDENT_UUID_SIZE];
	struct answer a;

	runner_lives(true);
	begun(admin, "GET", PLAN, NULL, plan);
	begun(operator_, "POST", CLEANUP, "{\"dry_run\":false,\"confirm_all\":true}", cleanup);
	rendered(admin, plan, "plan", 60000, &a);
	CU_ASSERT(str_starts(http_response_get(&a.response, "X-Accel-Redirect"),
			     "/internal/hold/" NODE "/store/"));
	answer_release(&a);
	/* nobody came: a plan is nothing; a cleanup may still happen */
	render_is(admin, plan, "plan", -1, 503, "image_store_cleanup_unavailable");
	rendered(operator_, cleanup, "cleanup", -1, &a);
	CU_ASSERT_EQUAL(a.response.status, 502);
	ASSERT_TEXT(a.code, "outcome_unknown");
	ASSERT_TEXT(json_text(json_object_get(details(&a), "id")), cleanup);
	answer_release(&a);
	ends(plan, "failed", "host_lost", "");
	rendered(admin, plan, "plan", 60000, &a);
	CU_ASSERT_EQUAL(a.response.status, 503);
	ASSERT_TEXT(json_text(json_array_get(json_object_get(details(&a), "reasons"), 0)),
		    "host_lost");
	answer_release(&a);
	ends(plan, "succeeded", "", "");
	render_is(admin, plan, "plan", 60000, 503, "image_store_cleanup_unavailable");
}

static json_int_t number_at(const json_t *object, const char *name)
{
	return json_is_integer(json_object_get(object, name))
		   ? json_integer_value(json_object_get(object, name))
		   : -1;
}

static void check_summary(const struct answer *a)
{
	const json_t *summary = json_object_get(a->body, "summary");

	CU_ASSERT_EQUAL(number_at(summary, "total_candidates"), 3);
	CU_ASSERT_EQUAL(number_at(summary, "planned_actions"), 2);
	CU_ASSERT_EQUAL(number_at(summary, "blocked_live_matches"), 1);
	CU_ASSERT_EQUAL(number_at(summary, "planning_only_run_manifests"), 1);
	CU_ASSERT_EQUAL(number_at(summary, "inactive_runs"), 2);
	CU_ASSERT_EQUAL(number_at(summary, "legacy_run_directories"), 0);
}

static void test_answer(void)
{
	char id[IDENT_UUID_SIZE];
	const json_t *actions;
	const json_t *store;
	struct answer a;

	runner_lives(true);
	begun(operator_, "POST", CLEANUP, "{\"dry_run\":false,\"confirm_all\":true}", id);
	ends(id, "succeeded", "", RESULT);
	rendered(operator_, id, "cleanup", 60000, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	CU_ASSERT_EQUAL(json_object_size(a.body), 5);
	CU_ASSERT(json_is_false(json_object_get(a.body, "dry_run")));
	check_summary(&a);
	CU_ASSERT_EQUAL(number_at(json_object_get(a.body, "summary"), "deleted_actions"), 1);
	actions = json_object_get(a.body, "actions");
	CU_ASSERT_EQUAL_FATAL(json_array_size(actions), 2);
	CU_ASSERT_EQUAL(json_object_size(json_array_get(actions, 0)), 12);
	ASSERT_TEXT(json_text(json_object_get(json_array_get(actions, 0), "type")),
		    "remove_run_directory");
	ASSERT_TEXT(json_text(json_object_get(json_array_get(actions, 0), "status")), "deleted");
	ASSERT_TEXT(json_text(json_object_get(json_array_get(actions, 1), "type")),
		    "remove_run_manifest");
	ASSERT_TEXT(json_text(json_object_get(json_array_get(actions, 1), "error")),
		    "permission_denied");
	store = json_object_get(a.body, "image_store");
	CU_ASSERT_EQUAL(number_at(store, "gc_candidates"), 4);
	CU_ASSERT_EQUAL(number_at(store, "run_manifests"), 5);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(store, "items")), 3);
	CU_ASSERT_EQUAL(json_object_size(json_array_get(json_object_get(store, "items"), 0)), 9);
	ASSERT_TEXT(json_text(json_array_get(json_object_get(a.body, "reasons"), 0)),
		    "live_vm_matches_blocked_cleanup");
	ASSERT_TEXT(json_text(json_array_get(json_object_get(a.body, "reasons"), 1)),
		    "candidates_truncated");
	answer_release(&a);
	begun(admin, "GET", PLAN, NULL, id);
	ends(id, "succeeded", "", RESULT);
	rendered(admin, id, "plan", 60000, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	CU_ASSERT(json_is_true(json_object_get(a.body, "dry_run")));
	check_summary(&a);
	CU_ASSERT_EQUAL(number_at(json_object_get(a.body, "summary"), "deleted_actions"), -1);
	answer_release(&a);
}

static void test_who_may_see(void)
{
	char id[IDENT_UUID_SIZE];
	char foreign[IDENT_UUID_SIZE];

	runner_lives(true);
	begun(admin, "GET", PLAN, NULL, id);
	begun(operator_, "GET", PLAN, NULL, foreign);
	ends(id, "succeeded", "", RESULT);
	ends(foreign, "succeeded", "", RESULT);
	render_is(operator_, id, "plan", 60000, 200, "");
	render_is(admin, foreign, "plan", 60000, 404, "not_found");
	render_is(alice, id, "plan", 60000, 403, "forbidden");
	render_is(NULL, id, "plan", 60000, 401, "unauthorized");
	render_is(admin, "not-an-id", "plan", 60000, 404, "not_found");
	/* an operation of another kind */
	api_sql(api.db, "UPDATE operation SET kind = 'stop' WHERE id = '%s'", id);
	render_is(admin, id, "plan", 60000, 404, "not_found");
}

static void test_clear(void)
{
	runner_lives(false);
}

static const struct test tests[] = {
    {"admin store", "clean", callrig_clean},
    {"admin store", "what is stored", test_stored},
    {"admin store", "no runner", test_no_runner},
    {"admin store", "waiting", test_waiting},
    {"admin store", "the answer", test_answer},
    {"admin store", "who may see it", test_who_may_see},
    {"admin store", "clear", test_clear},
    {"admin store", "leave nothing", callrig_leave_nothing},
};

int main(int argc, char **argv)
{
	return api_main(argc, argv, tests, ARRAY_LEN(tests));
}
