/*
 * The operators' summary (contract section 4.2): seven sections from the other diagnostics, what is
 * wrong over all, and what to do about it. The inputs are taken as they come: a member of a wrong
 * kind makes its section unknown.
 */
#include "handlers/runs/diagnostics.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

enum verdict {
	FAILED_RUNTIMES = 1U << 0,
	NO_RUNTIME = 1U << 1,
	BROKEN = 1U << 2,   /* something must be done */
	REPAIR = 1U << 3,   /* a repair should be looked at */
	DEGRADED = 1U << 4, /* somebody should look */
};

struct status {
	json_t *sections;
	json_t *actions;
	unsigned int verdict;
	int bad;
};

/* false: it is no boolean. */
static bool flag(const json_t *object, const char *name, bool *out)
{
	const json_t *value = json_object_get(object, name);

	*out = json_is_true(value);
	return json_is_boolean(value);
}

static json_int_t count_of(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);
	json_int_t count = json_is_integer(value) ? json_integer_value(value) : 0;

	return count < 0 ? 0 : count;
}

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_text(json_object_get(object, name));

	return text == NULL ? "" : text;
}

/* The texts of a list; what is none is left out. */
static json_t *texts_of(const json_t *object, const char *name)
{
	const json_t *from = json_object_get(object, name);
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(from); i++) {
		if (json_text(json_array_get(from, i)) == NULL ||
		    json_array_append(list, json_array_get(from, i)) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}

/* Steals more. */
static void section(struct status *s, const char *name, const char *status, const char *severity,
		    json_t *more)
{
	scope_json json_t *extras = more;
	json_t *out = json_pack("{s:s, s:s}", "status", status, "severity", severity);

	if (json_object_update(out, extras) != 0) {
		json_decref(out);
		s->bad = -1;
		return;
	}
	s->bad |= json_object_set_new(s->sections, name, out);
	if (str_equal(status, "unknown"))
		s->verdict |= DEGRADED;
}

static void action(struct status *s, const char *code, const char *severity, const char *where,
		   const char *message, const char *endpoint, bool dry_run)
{
	s->bad |= json_array_append_new(
	    s->actions, json_pack("{s:s, s:s, s:s, s:s, s:s?, s:b}", "code", code, "severity",
				  severity, "section", where, "message", message, "endpoint",
				  endpoint, "dry_run_required", dry_run));
}

/* --- the sections ---------------------------------------------------------------------------- */

static void runtime_readiness(struct status *s, const json_t *runtimes)
{
	const json_t *summary = json_object_get(runtimes, "summary");
	json_int_t ready = count_of(summary, "ready");
	json_t *more = json_pack(
	    "{s:I, s:I, s:o, s:o, s:o}", "ready", ready, "total", count_of(summary, "total"),
	    "host_local_warning_runtimes", texts_of(summary, "host_local_warning_runtimes"),
	    "repair_supported_runtimes", texts_of(summary, "repair_supported_runtimes"), "reasons",
	    runtimes == NULL ? json_pack("[s]", "runtime_diagnostics_failed") : json_array());

	if (runtimes == NULL) {
		s->verdict |= FAILED_RUNTIMES;
		section(s, "runtime_readiness", "unknown", "warning", more);
	} else if (ready == 0) {
		s->verdict |= NO_RUNTIME;
		section(s, "runtime_readiness", "unavailable", "error", more);
	} else {
		section(s, "runtime_readiness", "ready", "info", more);
	}
}

/* The names of the templates that are configured; bad: only those that are not ready. */
static json_t *template_names(const json_t *macos, bool bad, bool *fits)
{
	const json_t *templates = json_object_get(macos, "templates");
	const char *name;
	json_t *one;
	json_t *list = json_array();

	json_object_foreach ((json_t *)(uintptr_t)templates, name, one) {
		bool configured;
		bool ready;

		*fits = flag(one, "configured", &configured) && *fits;
		*fits = flag(one, "ready", &ready) && *fits;
		if (!configured || (bad && ready))
			continue;
		if (json_array_append_new(list, json_string(name)) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* True when a helper for Macs is configured. */
static bool macos_vz(struct status *s, const json_t *macos)
{
	const json_t *helper = json_object_get(macos, "helper");
	bool configured;
	bool ready;
	bool fits = flag(helper, "configured", &configured);
	json_t *unready;
	json_t *more;
	bool whole;

	fits = flag(helper, "ready", &ready) && fits;
	unready = template_names(macos, true, &fits);
	whole = json_array_size(unready) == 0;
	more = json_pack("{s:b, s:b, s:o, s:o, s:o}", "configured", configured, "helper_ready",
			 ready, "reasons",
			 macos == NULL ? json_pack("[s]", "macos_diagnostics_failed")
				       : texts_of(helper, "reasons"),
			 "configured_templates", template_names(macos, false, &fits),
			 "unready_templates", unready);
	if (macos == NULL || !fits) {
		section(s, "macos_vz", "unknown", "warning", more);
	} else if (!configured) {
		section(s, "macos_vz", "not_configured", "info", more);
	} else if (ready && whole) {
		section(s, "macos_vz", "ready", "info", more);
	} else {
		s->verdict |= BROKEN;
		section(s, "macos_vz", "action_required", "error", more);
		action(s, "restore_helper_readiness", "error", "macos_vz",
		       "The helper for Macs is configured and not ready.",
		       "/api/v1/sandbox/admin/macos-diagnostics", false);
	}
	return configured;
}

static bool names_a_lost_store(const json_t *reasons)
{
	for (size_t i = 0; i < json_array_size(reasons); i++) {
		const char *text = json_text(json_array_get(reasons, i));

		if (text != NULL && (str_starts(text, "image_store_unavailable") ||
				     str_starts(text, "image_store_root_")))
			return true;
	}
	return false;
}

static void image_store(struct status *s, const json_t *macos)
{
	const json_t *store = json_object_get(macos, "image_store");
	json_int_t candidates = count_of(store, "gc_candidates");
	bool configured;
	bool fits = flag(store, "configured", &configured);
	bool lost = names_a_lost_store(json_object_get(store, "reasons"));
	json_t *more = json_pack("{s:b, s:I, s:o}", "configured", configured, "gc_candidates",
				 candidates, "reasons",
				 macos == NULL ? json_pack("[s]", "macos_diagnostics_failed")
					       : texts_of(store, "reasons"));

	if (!fits) {
		section(s, "image_store", "unknown", "warning", more);
	} else if (!configured) {
		section(s, "image_store", "not_configured", "info", more);
	} else if (lost) {
		s->verdict |= BROKEN;
		section(s, "image_store", "unavailable", "error", more);
		action(s, "restore_image_store", "error", "image_store",
		       "Nobody has looked at the stores of this host lately: its runner is away.",
		       NULL, false);
	} else if (candidates > 0) {
		s->verdict |= DEGRADED;
		section(s, "image_store", "degraded", "warning", more);
		action(s, "inspect_image_store_cleanup_plan", "warning", "image_store",
		       "The stores hold what no row explains.", DIAGNOSTICS_PLAN, false);
	} else {
		section(s, "image_store", "ready", "info", more);
	}
}

static json_t *text_or_null(const json_t *object, const char *name)
{
	const char *text = json_text(json_object_get(object, name));

	return text == NULL ? json_null() : json_string(text);
}

static json_t *counts_of(const json_t *recovery)
{
	const json_t *from = json_object_get(recovery, "counts");
	const char *name;
	json_t *value;
	json_t *out = json_object();

	json_object_foreach ((json_t *)(uintptr_t)from, name, value) {
		if (json_object_set_new(out, name, json_integer(count_of(from, name))) == 0)
			continue;
		json_decref(out);
		return NULL;
	}
	return out;
}

static void reconciliation(struct status *s, const json_t *macos, bool configured)
{
	const json_t *recovery = json_object_get(macos, "recovery_summary");
	const char *status = text_of(recovery, "status");
	const char *severity = text_of(recovery, "severity");
	bool repair = json_is_string(json_object_get(recovery, "repair_endpoint"));
	bool cleanup = json_is_string(json_object_get(recovery, "cleanup_plan_endpoint"));
	bool known = str_equal(status, "healthy") || str_equal(status, "action_recommended") ||
		     str_equal(status, "unavailable");
	json_t *more =
	    json_pack("{s:o, s:o, s:o, s:o}", "counts", counts_of(recovery), "repair_endpoint",
		      text_or_null(recovery, "repair_endpoint"), "cleanup_plan_endpoint",
		      text_or_null(recovery, "cleanup_plan_endpoint"), "reasons",
		      macos == NULL                  ? json_pack("[s]", "macos_diagnostics_failed")
		      : str_equal(status, "healthy") ? json_array()
						     : texts_of(recovery, "codes"));

	if (macos == NULL || !known) {
		section(s, "reconciliation", "unknown", "warning", more);
		return;
	}
	if (str_equal(status, "unavailable") && !configured) {
		section(s, "reconciliation", "not_configured", "info", more);
		return;
	}
	if (repair) {
		s->verdict |= REPAIR;
		action(s, "run_repair_dry_run", "warning", "reconciliation",
		       "Session controls or machines are left over.", DIAGNOSTICS_REPAIR, true);
	} else if (str_equal(status, "unavailable") || str_equal(status, "action_recommended")) {
		s->verdict |= DEGRADED;
	}
	if (str_equal(status, "action_recommended") && !repair && cleanup)
		status = "cleanup_recommended";
	section(s, "reconciliation", status,
		str_equal(severity, "warning") || str_equal(severity, "error") ? severity : "info",
		more);
}

static void evidence_section(struct status *s, const json_t *evidence)
{
	const char *status = text_of(evidence, "status");
	const json_t *skips = json_object_get(evidence, "skip_flags");

	s->bad |= json_object_set(s->sections, "evidence", (json_t *)(uintptr_t)evidence);
	if (str_equal(status, "ready") || str_equal(status, "not_configured"))
		return;
	if (str_equal(status, "action_required")) {
		s->verdict |= BROKEN;
		action(s, "inspect_host_gated_evidence", "error", "evidence",
		       "The last smoke test of this host failed.", NULL, false);
		return;
	}
	s->verdict |= DEGRADED;
	if (json_is_true(json_object_get(evidence, "stale")))
		action(s, "run_host_gated_smoke", "warning", "evidence",
		       "The last smoke test of this host is old.", NULL, false);
	else if (json_is_true(json_object_get(skips, "skip_build")) ||
		 json_is_true(json_object_get(skips, "skip_sign")))
		action(s, "review_expected_skips", "warning", "evidence",
		       "The last smoke test of this host left steps out.", NULL, false);
}

static void security_boundaries(struct status *s, const json_t *runtimes)
{
	json_t *names =
	    texts_of(json_object_get(runtimes, "summary"), "host_local_warning_runtimes");
	bool any = json_array_size(names) > 0;

	if (any)
		s->verdict |= DEGRADED;
	section(s, "security_boundaries", any ? "degraded" : "ready", any ? "warning" : "info",
		json_pack("{s:o}", "host_local_warning_runtimes", names));
}

static void startup_warnings(struct status *s, const json_t *runtimes)
{
	const json_t *warnings = json_object_get(runtimes, "startup_warning_summary");
	bool present = false;
	bool blocking = false;
	bool fits = warnings == NULL || json_is_null(warnings) ||
		    (flag(warnings, "present", &present) & flag(warnings, "blocking", &blocking));
	json_t *more = json_pack("{s:b, s:b, s:o}", "present", present, "blocking", blocking,
				 "codes", texts_of(warnings, "codes"));

	if (!fits) {
		section(s, "startup_warnings", "unknown", "warning", more);
	} else if (blocking) {
		s->verdict |= BROKEN;
		section(s, "startup_warnings", "action_required", "error", more);
		action(s, "resolve_startup_warnings", "error", "startup_warnings",
		       "A warning of the start keeps runs from being taken.", NULL, false);
	} else {
		if (present)
			s->verdict |= DEGRADED;
		section(s, "startup_warnings", present ? "degraded" : "ready",
			present ? "warning" : "info", more);
	}
}

/* --- the answer ------------------------------------------------------------------------------ */

static json_t *overall(const struct status *s, const json_t *runtimes)
{
	const json_t *summary = json_object_get(runtimes, "summary");
	unsigned int v = s->verdict;
	const char *status = "ready";
	const char *severity = "info";

	if ((v & FAILED_RUNTIMES) != 0) {
		status = "unknown";
		severity = "warning";
	} else if ((v & NO_RUNTIME) != 0) {
		status = "unavailable";
		severity = "error";
	} else if ((v & (BROKEN | REPAIR)) != 0) {
		status = "action_required";
		severity = (v & BROKEN) != 0 ? "error" : "warning";
	} else if ((v & DEGRADED) != 0) {
		status = "degraded";
		severity = "warning";
	}
	return json_pack("{s:s, s:s, s:s, s:{s:I, s:I, s:I}, s:O, s:O, s:[]}", "source",
			 "sandbox_operator_status", "overall_status", status, "overall_severity",
			 severity, "summary", "runtime_total", count_of(summary, "total"),
			 "runtime_ready", count_of(summary, "ready"), "actions",
			 (json_int_t)json_array_size(s->actions), "sections", s->sections,
			 "recommended_actions", s->actions, "notes");
}

json_t *diagnostics_operator(const json_t *runtimes, const json_t *macos, const json_t *evidence)
{
	struct status s = {.sections = json_object(), .actions = json_array()};
	json_t *out = NULL;
	bool configured;

	runtime_readiness(&s, runtimes);
	configured = macos_vz(&s, macos);
	image_store(&s, macos);
	reconciliation(&s, macos, configured);
	evidence_section(&s, evidence);
	security_boundaries(&s, runtimes);
	startup_warnings(&s, runtimes);
	if (s.bad == 0)
		out = overall(&s, runtimes);
	json_decref(s.sections);
	json_decref(s.actions);
	return out;
}

json_t *diagnostics_no_evidence(void)
{
	return json_pack(
	    "{s:s, s:s, s:b, s:s, s:n, s:n, s:n, s:n, s:b, s:n, s:n, s:[], s:n, s:[], s:[], "
	    "s:{s:b, s:b, s:b}, s:[s]}",
	    "status", "not_configured", "severity", "info", "configured", 0, "source",
	    "host_smoke_evidence", "evidence_dir", "schema_version", "created_at", "age_seconds",
	    "stale", 0, "smoke_run_id", "final_exit_code", "phases", "cleanup", "runtime_pointers",
	    "expected_files", "skip_flags", "skip_build", 0, "skip_sign", 0,
	    "include_failure_drills", 0, "reasons", "evidence_not_configured");
}
