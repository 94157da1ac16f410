/* Runtime diagnostics and what a workspace is told (contract sections 4.1 and 1.10). */
#include "handlers/runs/diagnostics.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_text(json_object_get(object, name));

	return text == NULL ? "" : text;
}

const char *diagnostics_readiness(const json_t *row)
{
	static const char *const states[] = {"host_gated", "scaffold", "unsupported",
					     "not_applicable"};

	if (json_is_true(json_object_get(row, "available")))
		return "ready";
	for (size_t i = 0; i < ARRAY_LEN(states); i++)
		if (str_equal(text_of(row, "implementation_state"), states[i]))
			return states[i];
	return "unavailable";
}

const char *diagnostics_action(const json_t *row)
{
	static const char *const ranked[] = {"check_helper",    "configure_template",
					     "prepare_host",    "adjust_request_policy",
					     "inspect_reasons", "use_different_runtime"};
	const json_t *details = json_object_get(row, "normalized_reason_details");
	const char *readiness = diagnostics_readiness(row);

	if (str_equal(readiness, "ready"))
		return "none";
	for (size_t r = 0; r < ARRAY_LEN(ranked); r++)
		for (size_t i = 0; i < json_array_size(details); i++)
			if (str_equal(text_of(json_array_get(details, i), "operator_action"),
				      ranked[r]))
				return ranked[r];
	if (str_equal(readiness, "scaffold") || str_equal(readiness, "unsupported") ||
	    str_equal(readiness, "not_applicable"))
		return "use_different_runtime";
	return "inspect_reasons";
}

static bool repair_supported(const json_t *row)
{
	const char *state = text_of(json_object_get(row, "session_contract"), "repair_state");

	return str_equal(state, "supported") || str_equal(state, "host_gated");
}

static json_t *encode_row(const json_t *row)
{
	static const char *const kept[] = {"name",
					   "available",
					   "implementation_state",
					   "reasons",
					   "normalized_reasons",
					   "normalized_reason_details",
					   "boundary_class",
					   "vm_grade_isolation",
					   "untrusted_eligible",
					   "isolation_warnings",
					   "strict_deny_all_supported",
					   "strict_allowlist_supported"};
	const json_t *session = json_object_get(row, "session_contract");
	json_t *out =
	    json_pack("{s:s, s:O, s:O, s:b, s:s}", "readiness", diagnostics_readiness(row),
		      "session_reuse_model", json_object_get(session, "reuse_model"),
		      "requires_live_health_check",
		      json_object_get(session, "requires_live_health_check"), "repair_supported",
		      repair_supported(row), "recommended_action", diagnostics_action(row));
	int bad = 0;

	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		bad |= json_object_set(out, kept[i], json_object_get(row, kept[i]));
	if (bad == 0)
		return out;
	json_decref(out);
	return NULL;
}

struct counted {
	json_int_t ready;
	json_int_t host_gated;
	json_int_t scaffold;
	json_int_t unavailable;
};

static void count_row(struct counted *c, const char *readiness)
{
	if (str_equal(readiness, "ready"))
		c->ready++;
	else if (str_equal(readiness, "host_gated"))
		c->host_gated++;
	else if (str_equal(readiness, "scaffold"))
		c->scaffold++;
	else
		c->unavailable++;
}

static int by_text(const void *a, const void *b)
{
	const char *const *x = a;
	const char *const *y = b;

	return strcmp(*x, *y);
}

/* The names of the rows that fit, sorted. */
static json_t *names_of(const json_t *rows, bool (*fits)(const json_t *row))
{
	const char *names[32];
	size_t count = 0;
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(rows) && count < ARRAY_LEN(names); i++)
		if (fits(json_array_get(rows, i)))
			names[count++] = text_of(json_array_get(rows, i), "name");
	qsort(names, count, sizeof(names[0]), by_text);
	for (size_t i = 0; i < count; i++) {
		if (json_array_append_new(list, json_string(names[i])) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}

static bool is_host_local(const json_t *row)
{
	return str_equal(text_of(row, "boundary_class"), "host_local");
}

json_t *diagnostics_runtimes(const json_t *rows)
{
	scope_json json_t *list = json_array();
	struct counted c;

	memset(&c, 0, sizeof(c));
	for (size_t i = 0; i < json_array_size(rows); i++) {
		const json_t *row = json_array_get(rows, i);

		count_row(&c, diagnostics_readiness(row));
		if (json_array_append_new(list, encode_row(row)) != 0)
			return NULL;
	}
	return json_pack("{s:s, s:{s:I, s:I, s:I, s:I, s:I, s:o, s:o}, s:O, s:{s:b, s:b, s:[]}}",
			 "source", "feature_discovery", "summary", "total",
			 (json_int_t)json_array_size(rows), "ready", c.ready, "unavailable",
			 c.unavailable, "host_gated", c.host_gated, "scaffold", c.scaffold,
			 "host_local_warning_runtimes", names_of(rows, is_host_local),
			 "repair_supported_runtimes", names_of(rows, repair_supported), "runtimes",
			 list, "startup_warning_summary", "present", 0, "blocking", 0, "codes");
}

/* --- of a workspace -------------------------------------------------------------------------- */

static json_t *state_of(const char *state, const char *reason, const char *message)
{
	return json_pack("{s:s, s:s?, s:s, s:s}", "state", state, "reason_code", reason, "message",
			 message, "management_surface", "sandbox_settings");
}

json_t *diagnostics_workspace(const json_t *rows)
{
	size_t ready = 0;
	size_t unavailable = 0;
	size_t total = json_array_size(rows);
	const char *state = "unknown";
	const char *reason = "sandbox_not_available";
	const char *message = "No runtime is ready. Some depend on what the host has.";

	for (size_t i = 0; i < total; i++) {
		const char *readiness = diagnostics_readiness(json_array_get(rows, i));

		ready += str_equal(readiness, "ready") ? 1 : 0;
		unavailable += str_equal(readiness, "unavailable") ? 1 : 0;
	}
	if (ready > 0)
		return json_pack("{s:o, s:o}", "runtime",
				 state_of("available", NULL, "A runtime is ready."), "admission",
				 state_of("available", NULL, "Runs are accepted."));
	if (total == 0) {
		state = "not_configured";
		reason = "sandbox_no_runtimes_discovered";
		message = "This installation has no runtime.";
	} else if (unavailable == total) {
		state = "unavailable";
		reason = "sandbox_runtime_unavailable";
		message = "No runtime of this installation can be used now.";
	}
	return json_pack("{s:o, s:o}", "runtime", state_of(state, reason, message), "admission",
			 state_of("blocked", reason, message));
}
