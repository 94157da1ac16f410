/* What operators are told about Macs and the image store (contract section 4.3). No helper for Macs
 * is built: everything that would come from one says so and is empty. */
#include "handlers/runs/diagnostics.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

json_t *diagnostics_helper(void)
{
	return json_pack("{s:b, s:n, s:b, s:b, s:b, s:n, s:n, s:n, s:[s, s]}", "configured", 0,
			 "path", "exists", 0, "executable", 0, "ready", 0, "transport",
			 "protocol_version", "helper_version", "reasons",
			 "macos_helper_path_unconfigured", DIAGNOSTICS_HELPER_AWAY);
}

static const json_t *row_of(const json_t *rows, const char *name)
{
	for (size_t i = 0; i < json_array_size(rows); i++) {
		const json_t *row = json_array_get(rows, i);

		if (str_equal(json_string_value(json_object_get(row, "name")), name))
			return row;
	}
	return NULL;
}

static json_t *host(const json_t *rows)
{
	const json_t *facts = json_object_get(row_of(rows, "vz_linux"), "host");
	const char *os = json_text(json_object_get(facts, "os"));
	const char *arch = json_text(json_object_get(facts, "arch"));

	return json_pack("{s:s, s:s, s:b, s:n, s:b, s:[s, s]}", "os", os == NULL ? "unknown" : os,
			 "arch", arch == NULL ? "unknown" : arch, "apple_silicon",
			 json_is_true(json_object_get(facts, "apple_silicon")), "macos_version",
			 "supported", 0, "reasons", "macos_required", "apple_silicon_required");
}

static json_t *template_of(const char *reason)
{
	return json_pack("{s:b, s:b, s:n, s:[s]}", "configured", 0, "ready", 0, "source", "reasons",
			 reason);
}

static json_t *runtime_of(const json_t *rows, const char *name)
{
	const json_t *row = row_of(rows, name);

	return json_pack("{s:b, s:O, s:O, s:s, s:s}", "available",
			 json_is_true(json_object_get(row, "available")), "supported_trust_levels",
			 json_object_get(row, "supported_trust_levels"), "reasons",
			 json_object_get(row, "reasons"), "execution_mode", "none", "remediation",
			 "It needs a Mac with Apple silicon; use a runtime that is ready.");
}

static json_t *no_reconciliation(void)
{
	return json_pack(
	    "{s:b, s:i, s:i, s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[s]}",
	    "computed", 0, "persisted_sessions", 0, "live_vms", 0, "healthy_session_ids",
	    "stale_session_ids", "unhealthy_session_ids", "skipped_active_session_ids",
	    "orphaned_vm_ids", "owned_orphaned_vm_ids", "unknown_orphaned_vm_ids",
	    "foreign_orphaned_vm_ids", "items", "reasons", DIAGNOSTICS_HELPER_AWAY);
}

static json_t *no_observability(void)
{
	return json_pack("{s:b, s:n, s:n, s:s, s:{s:{s:n, s:b, s:n}, s:{s:n, s:b, s:n}}, s:i, "
			 "s:[], s:[s]}",
			 "configured", 0, "serial_log_dir", "helper_log_dir",
			 "helper_log_dir_source", "default", "helper_logs", "stdout", "path",
			 "exists", 0, "size_bytes", "stderr", "path", "exists", 0, "size_bytes",
			 "live_vms", 0, "vms", "reasons", DIAGNOSTICS_HELPER_AWAY);
}

/* One per image that the policy names. */
static json_t *templates(const struct policy *policy)
{
	json_t *list = json_array();

	for (size_t i = 0; i < policy->images.count; i++) {
		const char *image = policy->images.items[i].value;
		bool seen = false;
		char id[300];

		for (size_t j = 0; j < i && !seen; j++)
			seen = str_equal(policy->images.items[j].value, image);
		if (seen)
			continue;
		(void)snprintf(id, sizeof(id), "namespace:%s", image);
		if (json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:s, s:s, s:n, s:i, s:i, s:n, s:n, s:n, s:n, s:[], "
				  "s:n, s:n, s:s}",
				  "template_id", id, "runtime", "namespace", "template_name", image,
				  "artifact_format", "unknown", "source_path", "artifact_count", 0,
				  "artifact_size_bytes", 0, "oci_image_ref", "oci_platform",
				  "oci_manifest_digest", "oci_config_digest", "oci_layer_digests",
				  "registry", "imported_at", "provenance",
				  str_equal(image, "host") ? "host" : "policy")) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}

static json_int_t count_of(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);
	json_int_t count = json_is_integer(value) ? json_integer_value(value) : 0;

	return count < 0 ? 0 : count;
}

json_t *diagnostics_store_item(const json_t *item)
{
	static const char *const kept[] = {"run_id", "run_manifest_path", "run_manifest_present",
					   "gc_reason", "gc_path"};
	json_t *out = json_pack("{s:n, s:n, s:n, s:n}", "template_id", "matched_vm_id",
				"matched_reconciliation_status", "matched_reconciliation_reason");
	int bad = 0;

	for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
		json_t *value = json_object_get(item, kept[i]);

		bad |= value == NULL ? json_object_set_new(out, kept[i], json_null())
				     : json_object_set(out, kept[i], value);
	}
	if (bad == 0)
		return out;
	json_decref(out);
	return NULL;
}

static json_t *store_items(const json_t *seen)
{
	const json_t *from = json_object_get(seen, "items");
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(from); i++) {
		if (json_array_append_new(list, diagnostics_store_item(json_array_get(from, i))) ==
		    0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}

json_t *diagnostics_image_store(const struct policy *policy, const json_t *seen)
{
	scope_json json_t *list = templates(policy);
	json_t *reasons = seen == NULL ? json_pack("[s]", "image_store_unavailable") : json_array();

	return json_pack("{s:b, s:s, s:I, s:I, s:I, s:O, s:o, s:o}", "configured", 1, "root_path",
			 "images", "registered_templates", (json_int_t)json_array_size(list),
			 "run_manifests", count_of(seen, "run_manifests"), "gc_candidates",
			 count_of(seen, "gc_candidates"), "templates", list, "items",
			 store_items(seen), "reasons", reasons);
}

/* --- recovery -------------------------------------------------------------------------------- */

struct recovery_count {
	const char *name; /* in the answer */
	const char *list; /* in the reconciliation; of a list its length */
	const char *code; /* NULL: nothing is wrong with those */
	bool repair;
};

static const struct recovery_count recovery_counts[] = {
    {"persisted_session_controls", "persisted_sessions", NULL, false},
    {"healthy_session_controls", "healthy_session_ids", NULL, false},
    {"stale_session_controls", "stale_session_ids", "vz_stale_session_controls", true},
    {"unhealthy_session_controls", "unhealthy_session_ids", "vz_unhealthy_session_controls", true},
    {"skipped_active_session_controls", "skipped_active_session_ids",
     "vz_active_session_controls_skipped", false},
    {"orphaned_vms", "orphaned_vm_ids", NULL, false},
    {"owned_orphaned_vms", "owned_orphaned_vm_ids", "vz_owned_orphaned_vms", true},
    {"unknown_orphaned_vms", "unknown_orphaned_vm_ids", "vz_unknown_orphaned_vms", false},
    {"foreign_orphaned_vms", "foreign_orphaned_vm_ids", "vz_foreign_orphaned_vms", false},
    {"live_vms", "live_vms", NULL, false},
};

static json_t *optional_text(bool there, const char *text)
{
	return there ? json_string(text) : json_null();
}

static const char *recovery_action(bool computed, bool repair, int64_t gc_candidates)
{
	if (!computed)
		return "restore_helper_readiness";
	if (repair)
		return "run_repair_dry_run";
	return gc_candidates > 0 ? "inspect_image_store_cleanup_plan" : "none";
}

json_t *diagnostics_recovery(const json_t *reconciliation, int64_t gc_candidates)
{
	bool computed = json_is_true(json_object_get(reconciliation, "computed"));
	bool repair = false;
	scope_json json_t *codes = json_array();
	scope_json json_t *counts = json_object();
	bool calm;
	int bad = 0;

	if (!computed)
		bad |= json_array_append_new(codes, json_string("vz_recovery_unavailable"));
	for (size_t i = 0; i < ARRAY_LEN(recovery_counts); i++) {
		const struct recovery_count *c = &recovery_counts[i];
		const json_t *value = json_object_get(reconciliation, c->list);
		json_int_t count = json_is_array(value) ? (json_int_t)json_array_size(value)
							: count_of(reconciliation, c->list);

		bad |= json_object_set_new(counts, c->name, json_integer(count));
		repair = repair || (c->repair && count > 0);
		if (c->code != NULL && count > 0)
			bad |= json_array_append_new(codes, json_string(c->code));
	}
	bad |= json_object_set_new(counts, "image_store_gc_candidates",
				   json_integer((json_int_t)gc_candidates));
	if (gc_candidates > 0)
		bad |= json_array_append_new(codes, json_string("vz_image_store_gc_candidates"));
	calm = json_array_size(codes) == 0;
	if (bad != 0)
		return NULL;
	return json_pack("{s:s, s:s, s:O, s:O, s:s, s:o, s:o, s:[]}", "status",
			 !computed ? "unavailable"
			 : calm    ? "healthy"
				   : "action_recommended",
			 "severity",
			 !computed ? "error"
			 : calm    ? "ok"
				   : "warning",
			 "codes", codes, "counts", counts, "recommended_action",
			 recovery_action(computed, repair, gc_candidates), "repair_endpoint",
			 optional_text(repair, DIAGNOSTICS_REPAIR), "cleanup_plan_endpoint",
			 optional_text(gc_candidates > 0, DIAGNOSTICS_PLAN), "notes");
}

json_t *diagnostics_macos(const struct policy *policy, const json_t *rows, const json_t *seen)
{
	scope_json json_t *reconciliation = no_reconciliation();

	return json_pack(
	    "{s:o, s:o, s:{s:o, s:o}, s:{s:o, s:o, s:o}, s:O, s:o, s:o, s:o, s:{s:b, s:b, s:[]}}",
	    "host", host(rows), "helper", diagnostics_helper(), "templates", "vz_linux",
	    template_of("template_unconfigured"), "vz_macos", template_of("macos_template_missing"),
	    "runtimes", "vz_linux", runtime_of(rows, "vz_linux"), "vz_macos",
	    runtime_of(rows, "vz_macos"), "seatbelt", runtime_of(rows, "seatbelt"),
	    "reconciliation", reconciliation, "image_store", diagnostics_image_store(policy, seen),
	    "observability", no_observability(), "recovery_summary",
	    diagnostics_recovery(reconciliation, count_of(seen, "gc_candidates")),
	    "startup_warning_summary", "present", 0, "blocking", 0, "codes");
}
