#include "handlers/runs/reason.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <ctype.h>

static const struct reason reasons[] = {
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

static const char *const limit_counters[] = {
    "stdout_truncated",
    "stderr_truncated",
    "log_truncated",
    "guest_output_limit_exceeded",
    "artifact_files_skipped",
    "artifact_skip_file_limit",
    "artifact_skip_total_limit",
    "artifact_skip_symlink",
    "artifact_skip_invalid",
    "artifact_skip_read_error",
};

static const char *const policy_literals[] = {
    "lima_policy_failed",     "vz_linux_policy_failed", "vz_macos_policy_failed",
    "seatbelt_policy_failed", "worktree_policy_failed", "namespace_policy_failed",
};

static const char *const unavailable_literals[] = {
    "runtime_unavailable",     "runtime unavailable",  "docker_unavailable",
    "firecracker_unavailable", "limactl_missing",      "vz_linux_unavailable",
    "vz_macos_unavailable",    "seatbelt_unavailable", "worktree_unavailable",
};

const struct reason *reason_find(const char *code)
{
	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (str_equal(reasons[i].code, code))
			return &reasons[i];
	return NULL;
}

/* Trimmed and lower-cased, cut to size. */
static void normal(char *out, size_t size, const char *text)
{
	size_t used = 0;
	size_t length;

	while (*text != '\0' && isspace((unsigned char)*text))
		text++;
	length = strlen(text);
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		length--;
	for (; used < length && used + 1 < size; used++)
		out[used] = (char)tolower((unsigned char)text[used]);
	out[used] = '\0';
}

static bool one_of(const char *text, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (str_equal(text, list[i]))
			return true;
	return false;
}

static bool has(const char *text, const char *part)
{
	return strstr(text, part) != NULL;
}

static bool limits_hit(const json_t *usage)
{
	for (size_t i = 0; i < ARRAY_LEN(limit_counters); i++)
		if (json_integer_value(json_object_get(usage, limit_counters[i])) > 0)
			return true;
	return false;
}

static bool runtime_unavailable(const char *message)
{
	return one_of(message, unavailable_literals, ARRAY_LEN(unavailable_literals)) ||
	       has(message, "runtime_unavailable") || str_starts(message, "runtime_provisioning") ||
	       ((has(message, "runtime") || has(message, "provision")) &&
		(has(message, "unavailable") || has(message, "not found") ||
		 has(message, "missing")));
}

static const char *failed_code(const char *message, bool has_exit, int64_t exit_code)
{
	if (str_equal(message, "queue_ttl_expired"))
		return "queue_ttl_expired";
	if (one_of(message, policy_literals, ARRAY_LEN(policy_literals)) ||
	    has(message, "policy_failed") || (has(message, "policy") && has(message, "failed")))
		return "policy_failed";
	if (runtime_unavailable(message))
		return "runtime_unavailable";
	if (has(message, "startup_timeout"))
		return "startup_timeout";
	if (has(message, "execution_timeout") || str_equal(message, "timeout"))
		return "execution_timeout";
	if (has_exit && exit_code != 0)
		return "nonzero_exit";
	return "runtime_error";
}

static const char *derive(const char *phase, const char *message, bool has_exit, int64_t exit_code,
			  const json_t *usage)
{
	bool completed = str_equal(phase, "completed");
	bool failed = str_equal(phase, "failed");
	bool timed_out = str_equal(phase, "timed_out");

	if (str_equal(phase, "queued") || str_equal(phase, "starting") ||
	    str_equal(phase, "running"))
		return phase;
	if ((completed || failed || timed_out) && limits_hit(usage))
		return "limits_applied";
	if (completed)
		return "completed";
	if (timed_out)
		return has(message, "startup") ? "startup_timeout" : "execution_timeout";
	if (str_equal(phase, "killed"))
		return has(message, "cancel") ? "canceled_by_user" : "killed";
	if (failed)
		return failed_code(message, has_exit, exit_code);
	return "unknown";
}

const struct reason *reason_derive(const char *phase, const char *message, bool has_exit,
				   int64_t exit_code, const json_t *usage)
{
	char phase_text[32];
	char message_text[512];
	const struct reason *found;

	normal(phase_text, sizeof(phase_text), phase);
	normal(message_text, sizeof(message_text), message == NULL ? "" : message);
	found = reason_find(derive(phase_text, message_text, has_exit, exit_code, usage));
	return found == NULL ? reason_find("unknown") : found;
}

json_t *reason_details(const struct reason *reason)
{
	char key[64];

	(void)snprintf(key, sizeof(key), "sandbox.status.%s", reason->code);
	return json_pack("{s:s, s:s, s:s, s:b, s:b, s:s, s:s}", "code", reason->code, "category",
			 reason->category, "severity", reason->severity, "terminal",
			 reason->terminal, "retryable", reason->retryable, "operator_action",
			 reason->operator_action, "user_message_key", key);
}
