#include "handlers/admit.h"

#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

const char *const admit_environment[ADMIT_ENVIRONMENT] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/workspace",
    "LANG=C.UTF-8",
    "TMPDIR=/tmp",
    "USER=box",
};

const char *const admit_runtimes[] = {"docker",   "firecracker", "lima",
				      "vz_linux", "vz_macos",    "seatbelt",
				      "worktree", "namespace",   NULL};

static int refuse(struct api_error *refusal, struct err *e, int status, const char *code,
		  const char *message, json_t *details)
{
	refusal->status = status;
	refusal->code = code;
	refusal->message = message;
	refusal->details = details;
	return err_set(e, ERR_INVALID, 0, "%s", message);
}

static int refuse_trust(const struct runtime_kind *kind, const char *requirement,
			const char *reason, const char *message, struct api_error *refusal,
			struct err *e)
{
	return refuse(refusal, e, 422, "policy_unsupported", message,
		      json_pack("{s:s, s:s, s:[s]}", "runtime", kind->name, "requirement",
				requirement, "reasons", reason));
}

static int check_trust(const struct policy *policy, enum runtime_id id, const char *trust,
		       struct api_error *refusal, struct err *e)
{
	const struct runtime_kind *kind = &runtime_kinds[id];
	const struct policy_tier *tier = policy_tier_find(policy, trust);
	char requirement[64];

	if (tier != NULL && tier->require_vm_grade && !kind->vm_grade)
		return refuse_trust(
		    kind, "untrusted_requires_vm_runtime", "trust_level_requires_vm_runtime",
		    "This installation runs untrusted code only in virtual machines.", refusal, e);
	if (runtime_trusts(policy, id, trust))
		return 0;
	if (id == RUNTIME_SEATBELT && str_equal(trust, "standard"))
		return refuse_trust(kind, "standard_not_enabled", "seatbelt_standard_disabled",
				    "This installation takes only trusted code for this runtime.",
				    refusal, e);
	(void)snprintf(requirement, sizeof(requirement), "trust_level:%.32s", trust);
	return refuse_trust(kind, requirement, "trust_level_not_supported",
			    "The runtime does not take this trust level.", refusal, e);
}

/* Host-local runtimes fence no network: only an operator who says so makes that acceptable. */
static bool accepts_unenforced(const struct policy *policy, enum runtime_id id)
{
	return (id == RUNTIME_WORKTREE && policy->runtimes.worktree.accept_unenforced_network) ||
	       (id == RUNTIME_SEATBELT && policy->runtimes.seatbelt.accept_unenforced_network);
}

static const char *network_message(bool allowlist, bool named)
{
	if (!allowlist)
		return "The runtime cannot fence the network on this host.";
	return named ? "This host cannot enforce an allow list. Use network_policy deny_all."
		     : "The default network policy of this trust level is allowlist, which this "
		       "host cannot enforce. Name network_policy deny_all.";
}

static int check_network(const struct policy *policy, enum runtime_id id,
			 const struct runtime_state *state, const struct admit_request *request,
			 const char **network, struct api_error *refusal, struct err *e)
{
	bool allowlist = str_equal(*network, "allowlist");
	bool named = request->network_policy != NULL;
	json_t *allowed;

	if (allowlist ? state->strict_allowlist : state->strict_deny_all)
		return 0;
	if (!named && accepts_unenforced(policy, id)) {
		*network = "unenforced";
		return 0;
	}
	allowed = json_array();
	if (state->strict_deny_all)
		(void)json_array_append_new(allowed, json_string("deny_all"));
	return refuse(refusal, e, 422, "policy_unsupported", network_message(allowlist, named),
		      json_pack("{s:s, s:s, s:[s], s:o}", "runtime", runtime_kinds[id].name,
				"requirement", *network, "reasons",
				allowlist ? "strict_allowlist_not_supported"
					  : "strict_deny_all_not_supported",
				"allowed", allowed));
}

int admit_judge(const struct policy *policy, enum runtime_id id, const struct runtime_state *state,
		const struct admit_request *request, const char *trust, const char **network,
		struct api_error *refusal, struct err *e)
{
	const struct runtime_kind *kind = &runtime_kinds[id];

	/* whatever the host can do: such a boundary is none for code that nobody trusts */
	if (kind->boundary == BOUNDARY_HOST_LOCAL && str_equal(trust, "untrusted"))
		return refuse_trust(
		    kind, "untrusted_requires_vm_runtime", "trust_level_requires_vm_runtime",
		    "Untrusted code needs a runtime with its own boundary.", refusal, e);
	if (!state->available)
		return refuse(refusal, e, 503, "runtime_unavailable",
			      "This host cannot run the requested runtime.",
			      json_pack("{s:s, s:b, s:o, s:o}", "runtime", kind->name, "available",
					0, "suggested", runtime_suggested(id, request->facts),
					"reasons", runtime_reasons(state)));
	if (check_trust(policy, id, trust, refusal, e) != 0)
		return -1;
	return check_network(policy, id, state, request, network, refusal, e);
}

static int unknown_image(const struct policy *policy, const char *name, struct api_error *refusal,
			 struct err *e)
{
	json_t *known = json_array();

	for (size_t i = 0; i < policy->images.count; i++)
		(void)json_array_append_new(known, json_string(policy->images.items[i].key));
	return refuse(refusal, e, 422, "unknown_base_image",
		      "This installation has no such image. details.known lists those it has.",
		      json_pack("{s:s, s:o}", "base_image", name, "known", known));
}

static int64_t lower(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void fill_limits(const struct policy *policy, const struct policy_tier *tier,
			const struct admit_request *request, struct run_spec *spec)
{
	int64_t cpu_max = lower(policy->runs.max_cpu_milli, tier->max_cpu_milli);
	int64_t memory_max = lower(policy->runs.max_mem_mb, tier->max_mem_mb);
	int64_t timeout = request->timeout_sec;
	int64_t startup = request->startup_timeout_sec;

	spec->cpu_milli = cpu_max;
	if (request->has_cpu && request->cpu * 1000.0 < (double)cpu_max)
		spec->cpu_milli = (int64_t)(request->cpu * 1000.0 + 0.5);
	/* a share of less than 1 % of a cpu makes no progress at all */
	if (spec->cpu_milli < 10)
		spec->cpu_milli = 10;
	spec->memory_bytes =
	    (request->memory_mb > 0 ? lower(request->memory_mb, memory_max) : memory_max) << 20;
	if (timeout == 0)
		timeout = policy->runs.default_timeout_sec;
	else if (timeout < 0)
		timeout = policy->runs.null_timeout_sec;
	spec->timeout_ms =
	    lower(lower(timeout, tier->timeout_sec), policy->runs.max_timeout_sec) * 1000;
	spec->startup_timeout_ms =
	    (startup > 0 ? startup : policy->runs.default_startup_timeout_sec) * 1000;
	spec->cancel_grace_ms = policy->runs.cancel_grace_ms;
	spec->workspace_bytes = tier->workspace_cap_mb << 20;
	spec->workspace_inodes = policy->runs.workspace_inodes;
	spec->tmp_bytes = policy->runs.tmp_mb << 20;
	spec->pids = tier->pids;
	spec->nofile = tier->nofile;
	spec->fresh_network = tier->fresh_network;
	spec->log_bytes = policy->runs.max_log_bytes;
	spec->artifact_file_bytes = policy->runs.artifact_file_bytes;
	spec->artifact_run_bytes = policy->runs.artifact_run_bytes;
	spec->artifact_user_bytes = policy->runs.artifact_user_bytes;
}

/* 16 hex digits of the SHA-256 over the canonical JSON of what applies to this request. */
static int hash_policy(const struct run_spec *spec, const struct admitted *admitted, char out[17],
		       struct err *e)
{
	scope_json json_t *all =
	    json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		      "runtime", admitted->runtime, "trust_level", admitted->trust_level,
		      "network_policy", admitted->network_policy, "image", admitted->image,
		      "cpu_milli", (json_int_t)spec->cpu_milli, "memory_bytes",
		      (json_int_t)spec->memory_bytes, "timeout_ms", (json_int_t)spec->timeout_ms,
		      "startup_timeout_ms", (json_int_t)spec->startup_timeout_ms, "workspace_bytes",
		      (json_int_t)spec->workspace_bytes, "pids", (json_int_t)spec->pids, "nofile",
		      (json_int_t)spec->nofile, "log_bytes", (json_int_t)spec->log_bytes,
		      "artifact_file_bytes", (json_int_t)spec->artifact_file_bytes,
		      "artifact_run_bytes", (json_int_t)spec->artifact_run_bytes);
	unsigned char hash[32];

	if (all == NULL)
		return err_set(e, ERR_NOMEM, 0, "policy hash");
	if (json_fingerprint(all, hash, e) != 0)
		return -1;
	str_hex(out, hash, 8);
	return 0;
}

static int set_texts(struct run_spec *spec, const struct admitted *admitted, struct err *e)
{
	mem_free(spec->runtime);
	mem_free(spec->image);
	mem_free(spec->network);
	spec->runtime = mem_dup(admitted->runtime);
	spec->image = mem_dup(admitted->image);
	spec->network = mem_dup(admitted->network_policy);
	if (spec->runtime == NULL || spec->image == NULL || spec->network == NULL)
		return err_set(e, ERR_NOMEM, 0, "admit");
	return 0;
}

int admit_run(const struct policy *policy, const struct admit_request *request,
	      struct run_spec *spec, struct admitted *out, struct api_error *refusal, struct err *e)
{
	const struct policy_tier *tier;
	struct runtime_state state;
	enum runtime_id id =
	    runtime_find(request->runtime == NULL ? policy->runtimes.default_ : request->runtime);

	memset(refusal, 0, sizeof(*refusal));
	memset(out, 0, sizeof(*out));
	out->trust_level = request->trust_level == NULL ? "standard" : request->trust_level;
	tier = policy_tier_find(policy, out->trust_level);
	if (id == RUNTIME__MAX || tier == NULL)
		return err_set(e, ERR_INTERNAL, 0, "no such runtime or tier");
	out->runtime = runtime_kinds[id].name;
	out->network_policy =
	    request->network_policy == NULL ? tier->network_default : request->network_policy;
	runtime_admits(id, request->facts, &state);
	if (admit_judge(policy, id, &state, request, out->trust_level, &out->network_policy,
			refusal, e) != 0)
		return -1;
	out->image =
	    request->base_image == NULL ? "" : policy_image_find(policy, request->base_image);
	if (out->image == NULL)
		return unknown_image(policy, request->base_image, refusal, e);
	fill_limits(policy, tier, request, spec);
	if (set_texts(spec, out, e) != 0)
		return -1;
	return hash_policy(spec, out, out->policy_hash, e);
}
