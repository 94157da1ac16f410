/* test_runtime: the tables of the runtimes, what follows from facts, the 15 reasons. */
#include "handlers/admit.h"
#include "handlers/runs/runtime_reason.h"
#include "handlers/runs/runtimes.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

struct reason_row {
	const char *code;
	const char *category;
	const char *action;
};

static const struct reason_row reasons[] = {
    {"runtime_unavailable", "runtime", "use_different_runtime"},
    {"unsupported_os", "platform", "prepare_host"},
    {"unsupported_arch", "platform", "prepare_host"},
    {"helper_unavailable", "helper", "check_helper"},
    {"helper_protocol_mismatch", "helper", "check_helper"},
    {"helper_missing", "helper", "check_helper"},
    {"template_missing", "template", "configure_template"},
    {"template_unconfigured", "template", "configure_template"},
    {"network_policy_unsupported", "network", "adjust_request_policy"},
    {"trust_policy_denied", "policy", "adjust_request_policy"},
    {"host_prerequisite_missing", "host", "prepare_host"},
    {"host_permission_denied", "host", "prepare_host"},
    {"feature_not_implemented", "implementation", "use_different_runtime"},
    {"image_store_unavailable", "image_store", "prepare_host"},
    {"unknown", "unknown", "inspect_reasons"},
};

static void test_reason_details(void)
{
	CU_ASSERT_EQUAL(ARRAY_LEN(reasons), 15);
	for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
		scope_json json_t *codes = json_pack("[s]", reasons[i].code);
		scope_json json_t *list = runtime_reason_details(codes);
		const json_t *d = json_array_get(list, 0);
		char key[100];

		(void)snprintf(key, sizeof(key), "sandbox.runtime.reason.%s", reasons[i].code);
		CU_ASSERT_EQUAL_FATAL(json_object_size(d), 6);
		ASSERT_TEXT(json_text(json_object_get(d, "code")), reasons[i].code);
		ASSERT_TEXT(json_text(json_object_get(d, "category")), reasons[i].category);
		ASSERT_TEXT(json_text(json_object_get(d, "operator_action")), reasons[i].action);
		ASSERT_TEXT(json_text(json_object_get(d, "user_message_key")), key);
		ASSERT_TEXT(json_text(json_object_get(d, "severity")),
			    str_equal(reasons[i].code, "unknown") ? "warning" : "error");
		CU_ASSERT(json_is_true(json_object_get(d, "availability_blocking")));
	}
	CU_ASSERT_PTR_NULL(runtime_reason_find("docker_unavailable"));
}

/* raw and what it means, "a b c" and the code */
static void means(const char *raw, const char *code)
{
	char text[600];
	char *at = text;

	(void)snprintf(text, sizeof(text), "%s", raw);
	while (at != NULL) {
		char *space = strchr(at, ' ');

		if (space != NULL)
			*space = '\0';
		if (!str_equal(runtime_reason_of(at)->code, code))
			CU_assertImplementation(CU_FALSE, __LINE__, at, __FILE__, "", CU_FALSE);
		at = space == NULL ? NULL : space + 1;
	}
}

static void test_reasons(void)
{
	means(
	    "docker_unavailable firecracker_unavailable seatbelt_unavailable vz_linux_unavailable "
	    "vz_macos_unavailable worktree_unavailable namespace_unavailable",
	    "runtime_unavailable");
	means("macos_required unsupported_platform", "unsupported_os");
	means("apple_silicon_required", "unsupported_arch");
	means("macos_virtualization_helper_unavailable", "helper_unavailable");
	means(
	    "macos_virtualization_helper_protocol_mismatch macos_virtualization_helper_protocol_x "
	    "macos_virtualization_helper_empty_response macos_virtualization_helper_invalid_json",
	    "helper_protocol_mismatch");
	means("macos_helper_missing macos_helper_not_executable macos_helper_path_missing "
	      "macos_helper_path_unconfigured",
	      "helper_missing");
	means("macos_template_missing template_missing vz_linux_template_missing",
	      "template_missing");
	means("template_unconfigured", "template_unconfigured");
	means("strict_allowlist_not_supported strict_deny_all_not_supported "
	      "unsupported_network_policy",
	      "network_policy_unsupported");
	means(
	    "seatbelt_standard_disabled trust_level_not_supported trust_level_requires_vm_runtime",
	    "trust_policy_denied");
	means("/dev/kvm_missing firecracker_binary_missing git_too_old_or_missing limactl_missing "
	      "sandbox_exec_missing unshare_required_on_linux virtiofsd_missing",
	      "host_prerequisite_missing");
	means("permission_denied_host_enforcement", "host_permission_denied");
	means("real_execution_not_implemented", "feature_not_implemented");
	means("image_store_root_missing image_store_root_not_directory image_store_unavailable "
	      "image_store_unavailable_denied",
	      "image_store_unavailable");
	means("linux_required docker_unavailable_ macos_requiredx Docker_unavailable", "unknown");
	ASSERT_TEXT(runtime_reason_of("")->code, "unknown");
}

static void test_reasons_once(void)
{
	scope_json json_t *raw = json_pack("[s, s, s, s, i]", "macos_helper_missing",
					   "unsupported_platform", "macos_required", "nobody", 5);
	scope_json json_t *codes = runtime_reason_codes(raw);
	scope_json json_t *want =
	    json_pack("[s, s, s]", "helper_missing", "unsupported_os", "unknown");

	CU_ASSERT(json_equal(codes, want));
}

/* A fact with that one reason, or a good one. */
static struct runtime_fact fact_of(const char *reason)
{
	struct runtime_fact fact = {.known = true, .found = reason == NULL, .host = "{}"};

	if (reason != NULL)
		(void)snprintf(fact.reasons[fact.count++], RUNTIME_REASON_BYTES, "%s", reason);
	return fact;
}

static void reasons_are(const struct runtime_state *state, const char *want)
{
	char got[400] = "";

	for (size_t i = 0; i < state->count; i++)
		(void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s",
			       i == 0 ? "" : " ", state->reasons[i]);
	ASSERT_TEXT(got, want);
}

static void test_judge(void)
{
	struct runtime_fact good = fact_of(NULL);
	struct runtime_fact bad = fact_of("docker_unavailable");
	struct runtime_fact twice = fact_of("real_execution_not_implemented");
	struct runtime_state state;

	for (int i = 0; i < RUNTIME__MAX; i++) {
		runtime_judge((enum runtime_id)i, NULL, &state);
		CU_ASSERT(!state.available);
		CU_ASSERT(!state.strict_deny_all && !state.strict_allowlist);
		CU_ASSERT(!state.ready_deny_all && !state.ready_allowlist);
		CU_ASSERT(state.count > 0);
		runtime_judge((enum runtime_id)i, &good, &state);
		CU_ASSERT_EQUAL(state.available, i == RUNTIME_NAMESPACE);
		CU_ASSERT_EQUAL(state.strict_deny_all, i == RUNTIME_NAMESPACE);
		CU_ASSERT(!state.strict_allowlist);
		reasons_are(&state, i == RUNTIME_NAMESPACE ? "" : "real_execution_not_implemented");
		good.known = false;
		runtime_judge((enum runtime_id)i, &good, &state);
		CU_ASSERT(!state.available);
		good.known = true;
	}
	runtime_judge(RUNTIME_DOCKER, &bad, &state);
	reasons_are(&state, "docker_unavailable real_execution_not_implemented");
	runtime_judge(RUNTIME_VZ_MACOS, &twice, &state);
	reasons_are(&state, "real_execution_not_implemented");
}

static void test_admits(void)
{
	scope_free struct runtime_facts *facts = mem_zalloc(1, sizeof(*facts));
	struct runtime_state state;

	CU_ASSERT_PTR_NOT_NULL_FATAL(facts);
	/* nobody has looked: runs wait in the queue */
	runtime_admits(RUNTIME_NAMESPACE, NULL, &state);
	CU_ASSERT(state.available && state.strict_deny_all && state.count == 0);
	runtime_admits(RUNTIME_NAMESPACE, facts, &state);
	CU_ASSERT(state.available);
	runtime_admits(RUNTIME_DOCKER, facts, &state);
	CU_ASSERT(!state.available);
	/* somebody has, and found it missing */
	facts->of[RUNTIME_NAMESPACE] = fact_of("namespace_unavailable");
	runtime_admits(RUNTIME_NAMESPACE, facts, &state);
	CU_ASSERT(!state.available && !state.strict_deny_all);
	reasons_are(&state, "namespace_unavailable");
}

static void suggested_is(enum runtime_id id, const struct runtime_facts *facts, const char *want)
{
	scope_json json_t *list = runtime_suggested(id, facts);

	CU_ASSERT_EQUAL(json_array_size(list), want == NULL ? 0 : 1);
	if (want != NULL)
		ASSERT_TEXT(json_text(json_array_get(list, 0)), want);
}

static void test_suggested(void)
{
	scope_free struct runtime_facts *facts = mem_zalloc(1, sizeof(*facts));

	CU_ASSERT_PTR_NOT_NULL_FATAL(facts);
	suggested_is(RUNTIME_DOCKER, NULL, "namespace");
	suggested_is(RUNTIME_SEATBELT, NULL, "namespace");
	suggested_is(RUNTIME_WORKTREE, facts, "namespace");
	/* a weaker boundary is none to suggest */
	suggested_is(RUNTIME_FIRECRACKER, NULL, NULL);
	suggested_is(RUNTIME_LIMA, NULL, NULL);
	suggested_is(RUNTIME_VZ_LINUX, NULL, NULL);
	suggested_is(RUNTIME_VZ_MACOS, NULL, NULL);
	suggested_is(RUNTIME_NAMESPACE, NULL, NULL);
	facts->of[RUNTIME_NAMESPACE] = fact_of("namespace_unavailable");
	suggested_is(RUNTIME_DOCKER, facts, NULL);
}

/* --- admission to a runtime that could be there ---------------------------------------------- */

struct judged {
	const char *policy; /* more lines of it */
	enum runtime_id id;
	const char *trust;
	const char *network; /* NULL: not named */
	bool strict;         /* deny_all and allowlist can be kept */
	const char *want;    /* requirement and reason, or what is recorded */
};

static const struct judged judgements[] = {
    {"", RUNTIME_DOCKER, "standard", NULL, true, "deny_all"},
    {"", RUNTIME_DOCKER, "untrusted", NULL, true, "deny_all"},
    {"", RUNTIME_DOCKER, "trusted", NULL, true, "allowlist"},
    {"", RUNTIME_DOCKER, "standard", "allowlist", false,
     "allowlist strict_allowlist_not_supported"},
    {"", RUNTIME_DOCKER, "standard", "deny_all", false, "deny_all strict_deny_all_not_supported"},
    {"tiers: {untrusted: {require_vm_grade: true}}\n", RUNTIME_DOCKER, "untrusted", NULL, true,
     "untrusted_requires_vm_runtime trust_level_requires_vm_runtime"},
    {"tiers: {untrusted: {require_vm_grade: true}}\n", RUNTIME_DOCKER, "standard", NULL, true,
     "deny_all"},
    {"tiers: {untrusted: {require_vm_grade: true}}\n", RUNTIME_FIRECRACKER, "untrusted", NULL, true,
     "deny_all"},
    {"tiers: {untrusted: {require_vm_grade: true}}\n", RUNTIME_VZ_MACOS, "untrusted", NULL, true,
     "untrusted_requires_vm_runtime trust_level_requires_vm_runtime"},
    {"", RUNTIME_WORKTREE, "standard", NULL, false, "deny_all strict_deny_all_not_supported"},
    {"", RUNTIME_WORKTREE, "trusted", NULL, false, "allowlist strict_allowlist_not_supported"},
    {"runtimes: {worktree: {accept_unenforced_network: true}}\n", RUNTIME_WORKTREE, "standard",
     NULL, false, "unenforced"},
    {"runtimes: {worktree: {accept_unenforced_network: true}}\n", RUNTIME_WORKTREE, "trusted", NULL,
     false, "unenforced"},
    {"runtimes: {worktree: {accept_unenforced_network: true}}\n", RUNTIME_WORKTREE, "standard",
     "deny_all", false, "deny_all strict_deny_all_not_supported"},
    {"runtimes: {worktree: {accept_unenforced_network: true}}\n", RUNTIME_WORKTREE, "untrusted",
     NULL, false, "untrusted_requires_vm_runtime trust_level_requires_vm_runtime"},
    {"runtimes: {worktree: {accept_unenforced_network: true}}\n", RUNTIME_SEATBELT, "trusted", NULL,
     false, "allowlist strict_allowlist_not_supported"},
    {"runtimes: {seatbelt: {accept_unenforced_network: true}}\n", RUNTIME_SEATBELT, "trusted", NULL,
     false, "unenforced"},
    {"runtimes: {seatbelt: {accept_unenforced_network: true}}\n", RUNTIME_SEATBELT, "standard",
     NULL, false, "standard_not_enabled seatbelt_standard_disabled"},
    {"runtimes: {seatbelt: {accept_unenforced_network: true, standard: true}}\n", RUNTIME_SEATBELT,
     "standard", NULL, false, "unenforced"},
    {"", RUNTIME_SEATBELT, "untrusted", NULL, false,
     "untrusted_requires_vm_runtime trust_level_requires_vm_runtime"},
};

static void judge(const struct judged *j)
{
	scope_policy struct policy *policy = NULL;
	struct admit_request request = {.network_policy = j->network};
	struct runtime_state state = {
	    .available = true, .strict_deny_all = j->strict, .strict_allowlist = j->strict};
	struct api_error refusal = {.status = 0};
	const char *network;
	char text[400];
	char got[200];
	struct err e = ERR_INIT;

	(void)snprintf(text, sizeof(text), "public_url: https://localhost:8443\n%s", j->policy);
	CU_ASSERT_EQUAL_FATAL(policy_parse("p", text, strlen(text), &policy, &e), 0);
	network =
	    j->network != NULL ? j->network : policy_tier_find(policy, j->trust)->network_default;
	if (admit_judge(policy, j->id, &state, &request, j->trust, &network, &refusal, &e) == 0) {
		ASSERT_TEXT(network, j->want);
		return;
	}
	(void)snprintf(got, sizeof(got), "%s %s",
		       json_text(json_object_get(refusal.details, "requirement")),
		       json_text(json_array_get(json_object_get(refusal.details, "reasons"), 0)));
	ASSERT_TEXT(got, j->want);
	CU_ASSERT_EQUAL(refusal.status, 422);
	ASSERT_TEXT(refusal.code, "policy_unsupported");
	json_decref(refusal.details);
}

static void test_admission(void)
{
	for (size_t i = 0; i < ARRAY_LEN(judgements); i++)
		judge(&judgements[i]);
}

static int encode_once(void *context, struct err *e)
{
	scope_json json_t *list = runtimes_encode(context, NULL, "mariadb");

	if (list == NULL)
		return err_set(e, ERR_NOMEM, 0, "encode");
	CU_ASSERT_EQUAL(json_array_size(list), RUNTIME__MAX);
	CU_ASSERT_EQUAL(json_object_size(json_array_get(list, 0)), 33);
	return 0;
}

static void test_encode(void)
{
	static const char text[] = "public_url: https://localhost:8443\n";
	scope_policy struct policy *policy = NULL;
	struct err e = ERR_INIT;

	json_setup();
	CU_ASSERT_EQUAL_FATAL(policy_parse("p", text, strlen(text), &policy, &e), 0);
	CU_ASSERT_EQUAL(encode_once(policy, &e), 0);
	fault_loop(encode_once, policy);
}

static const struct test tests[] = {
    {"runtime", "reason details", test_reason_details},
    {"runtime", "raw to normalised", test_reasons},
    {"runtime", "each reason once", test_reasons_once},
    {"runtime", "judge", test_judge},
    {"runtime", "admits", test_admits},
    {"runtime", "suggested", test_suggested},
    {"runtime", "admission", test_admission},
    {"runtime", "encode", test_encode},
};

TEST_MAIN(tests)
