/* test_reason: status_reason_code: the 15 rows and the derivation of contract 2.2 and 2.3. */
#include "handlers/runs/reason.h"
#include "runners/base/mem.h"
#include "tests/lib/test.h"

struct row {
	const char *code;
	const char *category;
	const char *severity;
	bool terminal;
	bool retryable;
	const char *action;
};

static const struct row rows[] = {
    {"queued", "lifecycle", "info", false, false, "none"},
    {"starting", "lifecycle", "info", false, false, "none"},
    {"running", "lifecycle", "info", false, false, "none"},
    {"completed", "success", "info", true, false, "none"},
    {"limits_applied", "limits", "warning", true, false, "review_limits"},
    {"nonzero_exit", "execution", "error", true, true, "review_exit_code"},
    {"policy_failed", "policy", "error", true, false, "review_policy"},
    {"runtime_unavailable", "runtime", "error", true, true, "check_runtime_readiness"},
    {"startup_timeout", "timeout", "error", true, true, "check_runtime_readiness"},
    {"execution_timeout", "timeout", "error", true, true, "retry_later"},
    {"canceled_by_user", "cancellation", "warning", true, false, "none"},
    {"killed", "cancellation", "error", true, true, "inspect_logs"},
    {"queue_ttl_expired", "lifecycle", "warning", true, true, "retry_later"},
    {"runtime_error", "execution", "error", true, true, "inspect_logs"},
    {"unknown", "unknown", "warning", false, false, "unknown"},
};

static void test_rows(void)
{
	CU_ASSERT_EQUAL(ARRAY_LEN(rows), 15);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct reason *r = reason_find(rows[i].code);
		scope_json json_t *details = NULL;
		char key[100];

		CU_ASSERT_PTR_NOT_NULL_FATAL(r);
		details = reason_details(r);
		(void)snprintf(key, sizeof(key), "sandbox.status.%s", rows[i].code);
		CU_ASSERT_EQUAL(json_object_size(details), 7);
		ASSERT_TEXT(json_text(json_object_get(details, "code")), rows[i].code);
		ASSERT_TEXT(json_text(json_object_get(details, "category")), rows[i].category);
		ASSERT_TEXT(json_text(json_object_get(details, "severity")), rows[i].severity);
		CU_ASSERT_EQUAL(json_is_true(json_object_get(details, "terminal")),
				rows[i].terminal);
		CU_ASSERT_EQUAL(json_is_true(json_object_get(details, "retryable")),
				rows[i].retryable);
		ASSERT_TEXT(json_text(json_object_get(details, "operator_action")), rows[i].action);
		ASSERT_TEXT(json_text(json_object_get(details, "user_message_key")), key);
	}
	CU_ASSERT_PTR_NULL(reason_find("nothing"));
}

static void code_is(const char *phase, const char *message, int exit_code, const char *want)
{
	/* -1: no exit code */
	const struct reason *r = reason_derive(phase, message, exit_code >= 0, exit_code, NULL);

	ASSERT_TEXT(r->code, want);
}

static void test_phases(void)
{
	code_is("queued", NULL, -1, "queued");
	code_is("starting", "policy_failed", -1, "starting");
	code_is("running", NULL, 1, "running");
	code_is("completed", "exit=0", 0, "completed");
	code_is("completed", NULL, -1, "completed");
	code_is(" Completed\n", "exit=0", 0, "completed");
	code_is("timed_out", "startup_timeout", -1, "startup_timeout");
	code_is("timed_out", " The STARTUP took long", -1, "startup_timeout");
	code_is("timed_out", "execution_timeout", -1, "execution_timeout");
	code_is("timed_out", NULL, -1, "execution_timeout");
	code_is("killed", "canceled_by_user", -1, "canceled_by_user");
	code_is("killed", "Cancelled", -1, "canceled_by_user");
	code_is("killed", "signal=SIGSEGV", 139, "killed");
	code_is("killed", "out_of_memory", 137, "killed");
	code_is("killed", NULL, -1, "killed");
	code_is("", NULL, -1, "unknown");
	code_is("paused", "exit=0", 0, "unknown");
	code_is("a phase that is far longer than any that there is", NULL, 1, "unknown");
}

static void test_failed(void)
{
	/* the vectors of the original's tests */
	code_is("failed", "command not found in PATH: python", -1, "runtime_error");
	code_is("failed", "artifact manifest missing", -1, "runtime_error");
	code_is("failed", "runtime provisioning template missing", -1, "runtime_unavailable");
	code_is("failed", "lima_policy_failed runtime_unavailable", -1, "policy_failed");
	/* an exit code that is no number is none */
	code_is("failed", NULL, -1, "runtime_error");
	/* in the order of the rules */
	code_is("failed", "queue_ttl_expired", 5, "queue_ttl_expired");
	code_is("failed", " Queue_TTL_expired ", -1, "queue_ttl_expired");
	code_is("failed", "queue_ttl_expired now", -1, "runtime_error");
	code_is("failed", "worktree_policy_failed", -1, "policy_failed");
	code_is("failed", "namespace_policy_failed", -1, "policy_failed");
	code_is("failed", "the policy check has failed", 3, "policy_failed");
	code_is("failed", "policy", 3, "nonzero_exit");
	code_is("failed", "docker_unavailable", -1, "runtime_unavailable");
	code_is("failed", "firecracker_unavailable", -1, "runtime_unavailable");
	code_is("failed", "limactl_missing", -1, "runtime_unavailable");
	code_is("failed", "vz_linux_unavailable", -1, "runtime_unavailable");
	code_is("failed", "vz_macos_unavailable", -1, "runtime_unavailable");
	code_is("failed", "seatbelt_unavailable", -1, "runtime_unavailable");
	code_is("failed", "worktree_unavailable", -1, "runtime_unavailable");
	code_is("failed", "runtime unavailable", -1, "runtime_unavailable");
	code_is("failed", "x runtime_unavailable y", -1, "runtime_unavailable");
	code_is("failed", "runtime_provisioning_image", -1, "runtime_unavailable");
	code_is("failed", "image of the runtime not found", -1, "runtime_unavailable");
	code_is("failed", "docker_unavailable now", -1, "runtime_error");
	code_is("failed", "startup_timeout", 3, "startup_timeout");
	code_is("failed", "an execution_timeout", 3, "execution_timeout");
	code_is("failed", "timeout", -1, "execution_timeout");
	code_is("failed", "timeout of something", -1, "runtime_error");
	code_is("failed", "exit=3", 3, "nonzero_exit");
	code_is("failed", "exit=0", 0, "runtime_error");
	code_is("failed", "box_lost", -1, "runtime_error");
	code_is("failed", "namespace_failed", -1, "runtime_error");
	code_is("failed", "exit=127", 127, "nonzero_exit");
}

static void test_limits(void)
{
	static const char *const counters[] = {"stdout_truncated",
					       "stderr_truncated",
					       "log_truncated",
					       "guest_output_limit_exceeded",
					       "artifact_files_skipped",
					       "artifact_skip_file_limit",
					       "artifact_skip_total_limit",
					       "artifact_skip_symlink",
					       "artifact_skip_invalid",
					       "artifact_skip_read_error"};
	static const char *const masked[] = {"completed", "failed", "timed_out"};

	for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
		scope_json json_t *usage = json_pack("{s:i, s:i}", "log_bytes", 5, counters[i], 1);
		scope_json json_t *zero = json_pack("{s:i}", counters[i], 0);

		for (size_t k = 0; k < ARRAY_LEN(masked); k++)
			ASSERT_TEXT(
			    reason_derive(masked[k], "startup_timeout", true, 1, usage)->code,
			    "limits_applied");
		ASSERT_TEXT(reason_derive("killed", "x", true, 137, usage)->code, "killed");
		ASSERT_TEXT(reason_derive("running", NULL, false, 0, usage)->code, "running");
		ASSERT_TEXT(reason_derive("completed", NULL, true, 0, zero)->code, "completed");
	}
}

static void test_other_counters(void)
{
	scope_json json_t *usage = json_pack("{s:i, s:i, s:i}", "oom_kills", 1, "pids_limit_hits",
					     7, "artifact_files_collected", 3);
	scope_json json_t *null = json_null();

	ASSERT_TEXT(reason_derive("completed", "exit=0", true, 0, usage)->code, "completed");
	ASSERT_TEXT(reason_derive("failed", "exit=1", true, 1, null)->code, "nonzero_exit");
}

static const struct test tests[] = {
    {"reason", "the 15 rows", test_rows},
    {"reason", "phases", test_phases},
    {"reason", "failed", test_failed},
    {"reason", "limits mask", test_limits},
    {"reason", "other counters do not", test_other_counters},
};

TEST_MAIN(tests)
