/* test_diagnostics: readiness, what to do, recovery, the operators' summary. */
#include "handlers/runs/diagnostics.h"
#include "handlers/runs/runtimes.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

static json_t *parse(const char *text)
{
	json_error_t error;
	json_t *value = json_loads(text, JSON_DECODE_ANY, &error);

	if (value == NULL)
		CU_assertImplementation(CU_FALSE, __LINE__, text, __FILE__, "", CU_TRUE);
	return value;
}

static const char *text_at(const json_t *value, const char *a, const char *b)
{
	value = json_object_get(value, a);
	if (b != NULL)
		value = json_object_get(value, b);
	return json_text(value) == NULL ? "-" : json_text(value);
}

/* --- rows ------------------------------------------------------------------------------------ */

static void row_is(const char *text, const char *readiness, const char *action)
{
	scope_json json_t *row = parse(text);

	ASSERT_TEXT(diagnostics_readiness(row), readiness);
	ASSERT_TEXT(diagnostics_action(row), action);
}

static void test_readiness(void)
{
	row_is("{\"available\": true, \"implementation_state\": \"scaffold\"}", "ready", "none");
	row_is("{\"available\": false, \"implementation_state\": \"supported\"}", "unavailable",
	       "inspect_reasons");
	row_is("{\"available\": false, \"implementation_state\": \"host_gated\"}", "host_gated",
	       "inspect_reasons");
	row_is("{\"available\": false, \"implementation_state\": \"scaffold\"}", "scaffold",
	       "use_different_runtime");
	row_is("{\"available\": false, \"implementation_state\": \"unsupported\"}", "unsupported",
	       "use_different_runtime");
	row_is("{\"available\": false, \"implementation_state\": \"not_applicable\"}",
	       "not_applicable", "use_different_runtime");
	/* "true" is not true */
	row_is("{\"available\": \"true\"}", "unavailable", "inspect_reasons");
	row_is("{}", "unavailable", "inspect_reasons");
}

static void test_action(void)
{
	static const char *const ranked[] = {"check_helper",    "configure_template",
					     "prepare_host",    "adjust_request_policy",
					     "inspect_reasons", "use_different_runtime"};

	/* each before all that follow it, whatever the order of the reasons */
	for (size_t i = 0; i < ARRAY_LEN(ranked); i++)
		for (size_t j = i; j < ARRAY_LEN(ranked); j++) {
			scope_json json_t *row =
			    json_pack("{s:s, s:[{s:s}, {s:s}]}", "implementation_state", "scaffold",
				      "normalized_reason_details", "operator_action", ranked[j],
				      "operator_action", ranked[i]);

			ASSERT_TEXT(diagnostics_action(row), ranked[i]);
		}
}

static json_t *rows_of(bool namespace_found)
{
	scope_policy struct policy *policy = NULL;
	scope_free struct runtime_facts *facts = mem_zalloc(1, sizeof(*facts));
	static const char text[] = "public_url: https://localhost:8443\n";
	struct err e = ERR_INIT;

	if (facts == NULL || policy_parse("p", text, strlen(text), &policy, &e) != 0)
		return NULL;
	facts->of[RUNTIME_NAMESPACE].known = namespace_found;
	facts->of[RUNTIME_NAMESPACE].found = namespace_found;
	return runtimes_encode(policy, facts, "mariadb");
}

static void list_is(const json_t *list, const char *want)
{
	char got[300] = "";

	for (size_t i = 0; i < json_array_size(list); i++)
		(void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s",
			       i == 0 ? "" : " ", json_text(json_array_get(list, i)));
	ASSERT_TEXT(got, want);
}

static json_int_t number_at(const json_t *value, const char *name)
{
	return json_integer_value(json_object_get(value, name));
}

static void test_runtimes(void)
{
	scope_json json_t *rows = rows_of(true);
	scope_json json_t *all = diagnostics_runtimes(rows);
	const json_t *summary = json_object_get(all, "summary");

	CU_ASSERT_EQUAL(json_object_size(all), 4);
	CU_ASSERT_EQUAL(number_at(summary, "total"), 8);
	CU_ASSERT_EQUAL(number_at(summary, "ready"), 1);
	/* docker and worktree */
	CU_ASSERT_EQUAL(number_at(summary, "unavailable"), 2);
	/* firecracker, lima, vz_linux, seatbelt */
	CU_ASSERT_EQUAL(number_at(summary, "host_gated"), 4);
	CU_ASSERT_EQUAL(number_at(summary, "scaffold"), 1);
	list_is(json_object_get(summary, "host_local_warning_runtimes"), "seatbelt worktree");
	list_is(json_object_get(summary, "repair_supported_runtimes"), "vz_linux");
	CU_ASSERT_EQUAL(json_array_size(json_object_get(all, "runtimes")), 8);
	CU_ASSERT_EQUAL(json_object_size(json_array_get(json_object_get(all, "runtimes"), 0)), 17);
}

static void workspace_is(const json_t *rows, const char *state, const char *admission,
			 const char *reason)
{
	scope_json json_t *both = diagnostics_workspace(rows);

	ASSERT_TEXT(text_at(both, "runtime", "state"), state);
	ASSERT_TEXT(text_at(both, "admission", "state"), admission);
	ASSERT_TEXT(text_at(both, "runtime", "reason_code"), reason);
	ASSERT_TEXT(text_at(both, "admission", "reason_code"), reason);
	ASSERT_TEXT(text_at(both, "runtime", "management_surface"), "sandbox_settings");
	CU_ASSERT_EQUAL(json_object_size(json_object_get(both, "admission")), 4);
}

static void test_workspace(void)
{
	scope_json json_t *ready = rows_of(true);
	scope_json json_t *mixed = rows_of(false);
	scope_json json_t *none = json_array();
	scope_json json_t *away = parse("[{\"implementation_state\": \"supported\"}]");

	workspace_is(ready, "available", "available", "-");
	workspace_is(mixed, "unknown", "blocked", "sandbox_not_available");
	workspace_is(none, "not_configured", "blocked", "sandbox_no_runtimes_discovered");
	workspace_is(away, "unavailable", "blocked", "sandbox_runtime_unavailable");
}

/* --- recovery -------------------------------------------------------------------------------- */

static void recovery_is(const char *reconciliation, int gc, const char *status,
			const char *severity, const char *codes, const char *action, bool repair)
{
	scope_json json_t *in = parse(reconciliation);
	scope_json json_t *r = diagnostics_recovery(in, gc);

	ASSERT_TEXT(text_at(r, "status", NULL), status);
	ASSERT_TEXT(text_at(r, "severity", NULL), severity);
	list_is(json_object_get(r, "codes"), codes);
	ASSERT_TEXT(text_at(r, "recommended_action", NULL), action);
	CU_ASSERT_EQUAL(json_is_string(json_object_get(r, "repair_endpoint")), repair);
	CU_ASSERT_EQUAL(json_is_string(json_object_get(r, "cleanup_plan_endpoint")), gc > 0);
	CU_ASSERT_EQUAL(json_object_size(json_object_get(r, "counts")), 11);
	CU_ASSERT_EQUAL(number_at(json_object_get(r, "counts"), "image_store_gc_candidates"), gc);
}

static void test_recovery(void)
{
	recovery_is("{\"computed\": false}", 0, "unavailable", "error", "vz_recovery_unavailable",
		    "restore_helper_readiness", false);
	recovery_is("{\"computed\": \"true\"}", 2, "unavailable", "error",
		    "vz_recovery_unavailable vz_image_store_gc_candidates",
		    "restore_helper_readiness", false);
	recovery_is("{\"computed\": true, \"healthy_session_ids\": [\"a\"], \"live_vms\": 3}", 0,
		    "healthy", "ok", "", "none", false);
	recovery_is("{\"computed\": true, \"stale_session_ids\": [\"a\"]}", 0, "action_recommended",
		    "warning", "vz_stale_session_controls", "run_repair_dry_run", true);
	recovery_is("{\"computed\": true, \"unhealthy_session_ids\": [\"a\"], "
		    "\"owned_orphaned_vm_ids\": [\"b\"]}",
		    1, "action_recommended", "warning",
		    "vz_unhealthy_session_controls vz_owned_orphaned_vms "
		    "vz_image_store_gc_candidates",
		    "run_repair_dry_run", true);
	recovery_is(
	    "{\"computed\": true, \"unknown_orphaned_vm_ids\": [\"a\"], "
	    "\"foreign_orphaned_vm_ids\": [\"b\"], \"skipped_active_session_ids\": [\"c\"]}",
	    0, "action_recommended", "warning",
	    "vz_active_session_controls_skipped vz_unknown_orphaned_vms "
	    "vz_foreign_orphaned_vms",
	    "none", false);
	recovery_is("{\"computed\": true}", 5, "action_recommended", "warning",
		    "vz_image_store_gc_candidates", "inspect_image_store_cleanup_plan", false);
}

/* --- the summary ----------------------------------------------------------------------------- */

#define RUNTIMES                                                                           \
	"{\"summary\": {\"total\": 8, \"ready\": 1, \"host_local_warning_runtimes\": [], " \
	"\"repair_supported_runtimes\": [\"vz_linux\"]}, \"startup_warning_summary\": "    \
	"{\"present\": false, \"blocking\": false, \"codes\": []}}"
#define MACOS(helper, store, recovery)                                                    \
	"{\"helper\": " helper ", \"templates\": {\"vz_linux\": {\"configured\": false, " \
	"\"ready\": false}}, \"image_store\": " store ", \"recovery_summary\": " recovery "}"
#define NO_HELPER "{\"configured\": false, \"ready\": false, \"reasons\": [\"x\"]}"
#define STORE     "{\"configured\": true, \"gc_candidates\": 0, \"reasons\": []}"
#define HEALTHY                                                                           \
	"{\"status\": \"healthy\", \"severity\": \"ok\", \"codes\": [], \"counts\": {}, " \
	"\"repair_endpoint\": null, \"cleanup_plan_endpoint\": null}"
#define NO_RECOVERY "{\"status\": \"unavailable\", \"severity\": \"error\", \"codes\": [\"c\"]}"
#define QUIET       MACOS(NO_HELPER, STORE, NO_RECOVERY)

static json_t *operator_of(const char *runtimes, const char *macos, const char *evidence)
{
	scope_json json_t *r = runtimes == NULL ? NULL : parse(runtimes);
	scope_json json_t *m = macos == NULL ? NULL : parse(macos);
	scope_json json_t *v = evidence == NULL ? diagnostics_no_evidence() : parse(evidence);

	return diagnostics_operator(r, m, v);
}

/* Status and severity over all, and the codes of what is to be done. */
static void overall_is(const char *runtimes, const char *macos, const char *evidence,
		       const char *want)
{
	scope_json json_t *all = operator_of(runtimes, macos, evidence);
	const json_t *actions = json_object_get(all, "recommended_actions");
	char got[300];

	CU_ASSERT_EQUAL(json_object_size(all), 7);
	CU_ASSERT_EQUAL(json_object_size(json_object_get(all, "sections")), 7);
	CU_ASSERT_EQUAL(number_at(json_object_get(all, "summary"), "actions"),
			(json_int_t)json_array_size(actions));
	(void)snprintf(got, sizeof(got), "%s %s", text_at(all, "overall_status", NULL),
		       text_at(all, "overall_severity", NULL));
	for (size_t i = 0; i < json_array_size(actions); i++)
		(void)snprintf(got + strlen(got), sizeof(got) - strlen(got), " %s",
			       text_at(json_array_get(actions, i), "code", NULL));
	ASSERT_TEXT(got, want);
}

static void section_is(const char *runtimes, const char *macos, const char *evidence,
		       const char *name, const char *status, const char *severity)
{
	scope_json json_t *all = operator_of(runtimes, macos, evidence);
	const json_t *section = json_object_get(json_object_get(all, "sections"), name);

	ASSERT_TEXT(text_at(section, "status", NULL), status);
	ASSERT_TEXT(text_at(section, "severity", NULL), severity);
}

static void test_overall(void)
{
	overall_is(RUNTIMES, QUIET, NULL, "ready info");
	overall_is(NULL, QUIET, NULL, "unknown warning");
	overall_is("{\"summary\": {\"total\": 8, \"ready\": 0}}", QUIET, NULL, "unavailable error");
	/* host-local runtimes are always a warning */
	overall_is("{\"summary\": {\"ready\": 1, \"host_local_warning_runtimes\": [\"worktree\"]}}",
		   QUIET, NULL, "degraded warning");
	overall_is(RUNTIMES, NULL, NULL, "degraded warning");
	/* a helper that is configured and not ready */
	overall_is(RUNTIMES, MACOS("{\"configured\": true, \"ready\": false}", STORE, NO_RECOVERY),
		   NULL, "action_required error restore_helper_readiness");
	overall_is(RUNTIMES, MACOS("{\"configured\": true, \"ready\": true}", STORE, HEALTHY), NULL,
		   "ready info");
	/* what it has with recovery away */
	overall_is(RUNTIMES, MACOS("{\"configured\": true, \"ready\": true}", STORE, NO_RECOVERY),
		   NULL, "degraded warning");
	/* only a repair: a warning */
	overall_is(RUNTIMES,
		   MACOS(NO_HELPER, STORE,
			 "{\"status\": \"action_recommended\", \"severity\": \"warning\", "
			 "\"repair_endpoint\": \"/x\"}"),
		   NULL, "action_required warning run_repair_dry_run");
	overall_is(RUNTIMES,
		   MACOS(NO_HELPER, "{\"configured\": true, \"gc_candidates\": 2}", HEALTHY), NULL,
		   "degraded warning inspect_image_store_cleanup_plan");
	overall_is(RUNTIMES,
		   MACOS(NO_HELPER,
			 "{\"configured\": true, \"gc_candidates\": 2, \"reasons\": "
			 "[\"image_store_unavailable\"]}",
			 HEALTHY),
		   NULL, "action_required error restore_image_store");
	overall_is("{\"summary\": {\"ready\": 1}, \"startup_warning_summary\": {\"present\": true, "
		   "\"blocking\": true, \"codes\": [\"c\"]}}",
		   QUIET, NULL, "action_required error resolve_startup_warnings");
	overall_is("{\"summary\": {\"ready\": 1}, \"startup_warning_summary\": {\"present\": true, "
		   "\"blocking\": false}}",
		   QUIET, NULL, "degraded warning");
	overall_is("{\"summary\": {\"ready\": 1}, \"startup_warning_summary\": null}", QUIET, NULL,
		   "ready info");
	/* the first that applies counts */
	overall_is("{\"summary\": {\"ready\": 0}, \"startup_warning_summary\": {\"present\": true, "
		   "\"blocking\": true}}",
		   QUIET, NULL, "unavailable error resolve_startup_warnings");
}

static void test_evidence(void)
{
	overall_is(RUNTIMES, QUIET, "{\"status\": \"ready\", \"severity\": \"info\"}",
		   "ready info");
	overall_is(RUNTIMES, QUIET, "{\"status\": \"action_required\", \"severity\": \"error\"}",
		   "action_required error inspect_host_gated_evidence");
	overall_is(RUNTIMES, QUIET,
		   "{\"status\": \"degraded\", \"severity\": \"warning\", \"stale\": true}",
		   "degraded warning run_host_gated_smoke");
	overall_is(RUNTIMES, QUIET,
		   "{\"status\": \"degraded\", \"skip_flags\": {\"skip_sign\": true}}",
		   "degraded warning review_expected_skips");
	overall_is(RUNTIMES, QUIET, "{\"status\": \"unavailable\"}", "degraded warning");
	overall_is(RUNTIMES, QUIET, "{\"status\": 5}", "degraded warning");
}

static void test_sections(void)
{
	section_is(NULL, QUIET, NULL, "runtime_readiness", "unknown", "warning");
	section_is(RUNTIMES, QUIET, NULL, "runtime_readiness", "ready", "info");
	section_is("{\"summary\": {\"ready\": 0}}", QUIET, NULL, "runtime_readiness", "unavailable",
		   "error");
	section_is(RUNTIMES, QUIET, NULL, "macos_vz", "not_configured", "info");
	section_is(RUNTIMES, NULL, NULL, "macos_vz", "unknown", "warning");
	section_is(RUNTIMES, NULL, NULL, "image_store", "unknown", "warning");
	section_is(RUNTIMES, NULL, NULL, "reconciliation", "unknown", "warning");
	section_is(RUNTIMES, QUIET, NULL, "image_store", "ready", "info");
	section_is(RUNTIMES, MACOS(NO_HELPER, "{\"configured\": false}", HEALTHY), NULL,
		   "image_store", "not_configured", "info");
	section_is(RUNTIMES, QUIET, NULL, "reconciliation", "not_configured", "info");
	section_is(RUNTIMES, MACOS(NO_HELPER, STORE, HEALTHY), NULL, "reconciliation", "healthy",
		   "info");
	section_is(RUNTIMES,
		   MACOS(NO_HELPER, STORE,
			 "{\"status\": \"action_recommended\", \"severity\": \"warning\", "
			 "\"cleanup_plan_endpoint\": \"/x\"}"),
		   NULL, "reconciliation", "cleanup_recommended", "warning");
	section_is(RUNTIMES,
		   MACOS(NO_HELPER, STORE,
			 "{\"status\": \"action_recommended\", \"severity\": \"warning\", "
			 "\"cleanup_plan_endpoint\": \"/x\", \"repair_endpoint\": \"/y\"}"),
		   NULL, "reconciliation", "action_recommended", "warning");
	section_is(RUNTIMES, QUIET, NULL, "security_boundaries", "ready", "info");
	section_is("{\"summary\": {\"host_local_warning_runtimes\": [\"x\"]}}", QUIET, NULL,
		   "security_boundaries", "degraded", "warning");
	section_is(RUNTIMES, QUIET, NULL, "evidence", "not_configured", "info");
	section_is(RUNTIMES, QUIET, NULL, "startup_warnings", "ready", "info");
}

/* Members of a wrong kind, numbers that are none. */
static void test_wrong_kinds(void)
{
	scope_json json_t *all =
	    operator_of("{\"summary\": {\"total\": -5, \"ready\": true}}", QUIET, NULL);
	const json_t *sections = json_object_get(all, "sections");
	const json_t *summary = json_object_get(all, "summary");

	CU_ASSERT_EQUAL(number_at(summary, "runtime_total"), 0);
	CU_ASSERT_EQUAL(number_at(summary, "runtime_ready"), 0);
	ASSERT_TEXT(text_at(sections, "runtime_readiness", "status"), "unavailable");
	section_is(RUNTIMES, MACOS("{\"configured\": \"yes\", \"ready\": false}", STORE, HEALTHY),
		   NULL, "macos_vz", "unknown", "warning");
	overall_is(RUNTIMES, MACOS("{\"configured\": 1, \"ready\": 1}", STORE, HEALTHY), NULL,
		   "degraded warning");
	section_is(RUNTIMES, MACOS(NO_HELPER, "{\"configured\": \"no\"}", HEALTHY), NULL,
		   "image_store", "unknown", "warning");
	overall_is(RUNTIMES,
		   MACOS(NO_HELPER, "{\"configured\": true, \"gc_candidates\": -1}", HEALTHY), NULL,
		   "ready info");
	overall_is(RUNTIMES,
		   MACOS(NO_HELPER, "{\"configured\": true, \"gc_candidates\": 1e300}", HEALTHY),
		   NULL, "ready info");
	/* a status that nobody knows: the codes become reasons */
	section_is(RUNTIMES,
		   MACOS(NO_HELPER, STORE, "{\"status\": \"melting\", \"codes\": [\"c\"]}"), NULL,
		   "reconciliation", "unknown", "warning");
	section_is("{\"summary\": {\"ready\": 1}, \"startup_warning_summary\": {\"present\": 1}}",
		   QUIET, NULL, "startup_warnings", "unknown", "warning");
	section_is("{}", "{}", NULL, "macos_vz", "unknown", "warning");
	section_is("[]", "[]", NULL, "image_store", "unknown", "warning");
}

static int operator_once(void *context, struct err *e)
{
	scope_json json_t *rows = context;
	scope_json json_t *seen = NULL;
	scope_json json_t *runtimes = NULL;
	scope_json json_t *evidence = diagnostics_no_evidence();
	scope_json json_t *all = NULL;

	json_incref(rows);
	runtimes = diagnostics_runtimes(rows);
	seen = diagnostics_recovery(NULL, 3);
	all = diagnostics_operator(runtimes, NULL, evidence);
	/* what failed for lack of memory is no answer, or one whose sections say unknown */
	if (runtimes == NULL || seen == NULL || evidence == NULL || all == NULL)
		return err_set(e, ERR_NOMEM, 0, "operator");
	return 0;
}

static void test_faults(void)
{
	scope_json json_t *rows = NULL;

	json_setup();
	rows = rows_of(true);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
	fault_loop(operator_once, rows);
}

static const struct test tests[] = {
    {"diagnostics", "readiness", test_readiness},     {"diagnostics", "what to do", test_action},
    {"diagnostics", "runtimes", test_runtimes},       {"diagnostics", "workspace", test_workspace},
    {"diagnostics", "recovery", test_recovery},       {"diagnostics", "over all", test_overall},
    {"diagnostics", "evidence", test_evidence},       {"diagnostics", "sections", test_sections},
    {"diagnostics", "wrong kinds", test_wrong_kinds}, {"diagnostics", "faults", test_faults},
};

TEST_MAIN(tests)
