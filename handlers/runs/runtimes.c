/* Face 1: GET /runtimes (contract section 3). What a host can do is read from the facts that its
 * runner wrote; nothing is probed here. */
#include "handlers/runs/runtimes.h"

#include "handlers/reply.h"
#include "handlers/runs/runs.h"
#include "handlers/runs/runtime_reason.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define VZ_LOG_MAX_BYTES (INT64_C(256) << 20)

static json_t *text_list(const char *const *items, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count && items[i] != NULL; i++) {
		if (json_array_append_new(list, json_string(items[i])) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}

/* What the operator allows, which is what admission judges. */
static bool takes(const struct policy *policy, enum runtime_id id, const char *level)
{
	const struct policy_tier *tier = policy_tier_find(policy, level);

	return runtime_trusts(policy, id, level) &&
	       (tier == NULL || !tier->require_vm_grade || runtime_kinds[id].vm_grade);
}

static json_t *trust_levels(const struct policy *policy, enum runtime_id id)
{
	static const char *const levels[] = {"trusted", "standard", "untrusted"};
	const char *list[ARRAY_LEN(levels)];
	size_t count = 0;

	for (size_t i = 0; i < ARRAY_LEN(levels); i++)
		if (takes(policy, id, levels[i]))
			list[count++] = levels[i];
	return text_list(list, count);
}

/* Of `namespace`: the names that this installation has images for. */
static json_t *default_images(const struct policy *policy, enum runtime_id id)
{
	const struct runtime_kind *kind = &runtime_kinds[id];
	json_t *list;

	if (id != RUNTIME_NAMESPACE)
		return text_list(kind->images, ARRAY_LEN(kind->images));
	list = json_array();
	for (size_t i = 0; i < policy->images.count; i++) {
		if (json_array_append_new(list, json_string(policy->images.items[i].key)) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}

static json_t *warnings(const struct runtime_kind *kind)
{
	static const char *const host_local[] = {"host_local_boundary", "not_vm_grade_isolation",
						 "not_untrusted_eligible"};

	return text_list(host_local,
			 kind->boundary == BOUNDARY_HOST_LOCAL ? ARRAY_LEN(host_local) : 0);
}

static json_t *network(const struct runtime_network *n)
{
	return json_pack("{s:s, s:b, s:s}", "support_state", n->support, "strict_enforcement",
			 n->strict, "readiness_source", n->readiness);
}

static json_t *session(const struct runtime_session *s)
{
	return json_pack("{s:s, s:s, s:b, s:s, s:s}", "support_state", s->support, "reuse_model",
			 s->reuse, "requires_live_health_check", s->health_check, "recovery_state",
			 s->recovery, "repair_state", s->repair);
}

static json_t *host_facts(const struct runtime_fact *fact)
{
	json_t *host = NULL;
	struct err ignored = ERR_INIT;

	if (fact != NULL && fact->known &&
	    json_parse(fact->host, strlen(fact->host), &host, &ignored) == 0)
		return host;
	return json_object();
}

static json_t *limits(const struct policy *policy, enum runtime_id id)
{
	int64_t log_bytes = policy->runs.max_log_bytes;

	if (id == RUNTIME_VZ_LINUX && log_bytes > VZ_LOG_MAX_BYTES)
		log_bytes = VZ_LOG_MAX_BYTES;
	return json_pack("{s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "max_cpu",
			 (double)policy->runs.max_cpu_milli / 1000.0, "max_mem_mb",
			 (json_int_t)policy->runs.max_mem_mb, "max_upload_mb",
			 (json_int_t)policy->sessions.upload_mb, "max_log_bytes",
			 (json_int_t)log_bytes, "max_artifact_file_bytes",
			 (json_int_t)policy->runs.artifact_file_bytes, "max_artifact_total_bytes",
			 (json_int_t)policy->runs.artifact_run_bytes, "queue_max_length",
			 (json_int_t)policy->queue.max_length, "queue_ttl_sec",
			 (json_int_t)policy->queue.ttl_sec, "workspace_cap_mb",
			 (json_int_t)policy->tiers.standard.workspace_cap_mb, "artifact_ttl_hours",
			 (json_int_t)policy->runs.artifact_ttl_hours, "supported_spec_versions",
			 text_list((const char *const *)policy->runs.spec_versions.items,
				   policy->runs.spec_versions.count));
}

static json_t *posture(const struct policy *policy, enum runtime_id id)
{
	const struct runtime_kind *kind = &runtime_kinds[id];

	return json_pack(
	    "{s:s, s:s, s:o, s:o, s:s, s:b, s:b, s:o, s:{s:o, s:o}, s:o, s:s?}", "name", kind->name,
	    "implementation_state", kind->implementation, "supported_trust_levels",
	    trust_levels(policy, id), "default_images", default_images(policy, id),
	    "boundary_class", runtime_boundary_name(kind->boundary), "vm_grade_isolation",
	    kind->vm_grade, "untrusted_eligible", kind->untrusted && takes(policy, id, "untrusted"),
	    "isolation_warnings", warnings(kind), "network_policy_contract", "deny_all",
	    network(&kind->deny_all), "allowlist", network(&kind->allowlist), "session_contract",
	    session(&kind->session), "notes", kind->notes);
}

static json_t *encode_row(const struct policy *policy, enum runtime_id id,
			  const struct runtime_fact *fact, const char *store_mode)
{
	const struct runtime_kind *kind = &runtime_kinds[id];
	struct runtime_state state;
	scope_json json_t *reasons = NULL;
	scope_json json_t *codes = NULL;
	scope_json json_t *fixed = posture(policy, id);
	scope_json json_t *numbers = limits(policy, id);
	json_t *row;

	runtime_judge(id, fact, &state);
	reasons = runtime_reasons(&state);
	codes = runtime_reason_codes(reasons);
	row = json_pack("{s:b, s:O, s:O, s:o, s:b, s:b, s:b, s:b, s:{s:b, s:b}, s:o, s:s}",
			"available", state.available, "reasons", reasons, "normalized_reasons",
			codes, "normalized_reason_details", runtime_reason_details(codes),
			"interactive_supported", kind->interactive && state.available,
			"egress_allowlist_supported", state.strict_allowlist,
			"strict_deny_all_supported", state.strict_deny_all,
			"strict_allowlist_supported", state.strict_allowlist, "enforcement_ready",
			"deny_all", state.ready_deny_all, "allowlist", state.ready_allowlist,
			"host", host_facts(fact), "store_mode", store_mode);
	if (row == NULL || json_object_update(row, fixed) != 0 ||
	    json_object_update(row, numbers) != 0) {
		json_decref(row);
		return NULL;
	}
	return row;
}

json_t *runtimes_encode(const struct policy *policy, const struct runtime_facts *facts,
			const char *store_mode)
{
	json_t *list = json_array();

	for (int i = 0; i < RUNTIME__MAX; i++) {
		if (json_array_append_new(list, encode_row(policy, (enum runtime_id)i,
							   facts == NULL ? NULL : &facts->of[i],
							   store_mode)) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}

void runs_runtimes(struct handler_context *context, const struct http_request *request,
		   const struct route_match *match, const struct principal *caller,
		   struct http_response *response)
{
	const struct runtime_facts *facts;
	char mode[OP_STORE_MODE_SIZE];
	struct err e = ERR_INIT;

	(void)match;
	(void)caller;
	facts = op_runtime_facts(context, false, &e);
	if (facts == NULL || op_store_mode(context, mode, &e) != 0) {
		reply_err(response, &face_runs, request, &e);
		return;
	}
	reply_json(response, 200,
		   json_pack("{s:o}", "runtimes", runtimes_encode(context->policy, facts, mode)));
}
