#include "handlers/runtime.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

#define NOT_IMPLEMENTED "real_execution_not_implemented"

#define NET(support, strict, readiness)    \
	{                                  \
		support, strict, readiness \
	}
#define NO_NET NET("unsupported", false, "not_applicable")
#define SESSION(support, reuse, health, recovery, repair) \
	{                                                 \
		support, reuse, health, recovery, repair  \
	}

const struct runtime_kind runtime_kinds[RUNTIME__MAX] = {
    [RUNTIME_DOCKER] = {.name = "docker",
			.implementation = "supported",
			.boundary = BOUNDARY_CONTAINER,
			.untrusted = true,
			.suggests = true,
			.interactive = true,
			.images = {"python:3.11-slim", "node:20-alpine"},
			.unknown = {"docker_unavailable"},
			.deny_all = NET("supported", true, "config"),
			.allowlist = NET("host_gated", true, "config"),
			.session = SESSION("supported", "workspace_only", false, "unsupported",
					   "unsupported")},
    [RUNTIME_FIRECRACKER] = {.name = "firecracker",
			     .implementation = "host_gated",
			     .boundary = BOUNDARY_VM,
			     .vm_grade = true,
			     .untrusted = true,
			     .suggests = true,
			     .images = {"python:3.11-slim", "node:20-alpine"},
			     .unknown = {"firecracker_unavailable"},
			     .deny_all = NET("host_gated", true, "runtime_preflight"),
			     .allowlist = NET("scaffold", false, "runtime_preflight"),
			     .session = SESSION("scaffold", "scaffold", false, "unsupported",
						"unsupported")},
    [RUNTIME_LIMA] = {.name = "lima",
		      .implementation = "host_gated",
		      .boundary = BOUNDARY_VM,
		      .vm_grade = true,
		      .untrusted = true,
		      .images = {"ubuntu:24.04"},
		      .unknown = {"limactl_missing"},
		      .deny_all = NET("host_gated", true, "runtime_preflight"),
		      .allowlist = NO_NET,
		      .session =
			  SESSION("scaffold", "scaffold", false, "unsupported", "unsupported")},
    [RUNTIME_VZ_LINUX] = {.name = "vz_linux",
			  .implementation = "host_gated",
			  .boundary = BOUNDARY_VM,
			  .vm_grade = true,
			  .untrusted = true,
			  .images = {"ubuntu-24.04"},
			  .unknown = {"macos_required", "apple_silicon_required"},
			  .deny_all = NET("host_gated", true, "runtime_preflight"),
			  .allowlist = NO_NET,
			  .session =
			      SESSION("host_gated", "warm_vm", true, "host_gated", "host_gated")},
    [RUNTIME_VZ_MACOS] = {.name = "vz_macos",
			  .implementation = "scaffold",
			  .boundary = BOUNDARY_SCAFFOLD,
			  .images = {"macos-15"},
			  .unknown = {"macos_required", "apple_silicon_required"},
			  .notes = "A scaffold: it is shown, and does not run anything.",
			  .deny_all = NET("scaffold", false, "runtime_preflight"),
			  .allowlist = NO_NET,
			  .session =
			      SESSION("scaffold", "scaffold", false, "scaffold", "scaffold")},
    [RUNTIME_SEATBELT] = {.name = "seatbelt",
			  .implementation = "host_gated",
			  .boundary = BOUNDARY_HOST_LOCAL,
			  .suggests = true,
			  .images = {"host-local"},
			  .unknown = {"macos_required", "apple_silicon_required"},
			  .deny_all = NO_NET,
			  .allowlist = NO_NET,
			  .session = SESSION("scaffold", "workspace_only", false, "unsupported",
					     "unsupported")},
    [RUNTIME_WORKTREE] = {.name = "worktree",
			  .implementation = "supported",
			  .boundary = BOUNDARY_HOST_LOCAL,
			  .suggests = true,
			  .images = {"host-local"},
			  .unknown = {"worktree_unavailable"},
			  .deny_all = NO_NET,
			  .allowlist = NO_NET,
			  .session = SESSION("scaffold", "workspace_only", false, "unsupported",
					     "unsupported")},
    [RUNTIME_NAMESPACE] = {.name = "namespace",
			   .implementation = "supported",
			   .boundary = BOUNDARY_CONTAINER,
			   .untrusted = true,
			   .driven = true,
			   .suggests = true,
			   .interactive = true,
			   .unknown = {"namespace_unavailable"},
			   .deny_all = NET("supported", true, "runtime_preflight"),
			   .allowlist = NET("host_gated", true, "runtime_preflight"),
			   .session = SESSION("supported", "workspace_only", false, "unsupported",
					      "unsupported")},
};

enum runtime_id runtime_find(const char *name)
{
	for (int i = 0; i < RUNTIME__MAX; i++)
		if (str_equal(runtime_kinds[i].name, name))
			return (enum runtime_id)i;
	return RUNTIME__MAX;
}

const char *runtime_boundary_name(enum runtime_boundary boundary)
{
	static const char *const names[] = {[BOUNDARY_HOST_LOCAL] = "host_local",
					    [BOUNDARY_CONTAINER] = "container",
					    [BOUNDARY_SCAFFOLD] = "vm_grade_scaffold",
					    [BOUNDARY_VM] = "vm_grade"};

	return names[boundary];
}

/* What is promised, can be kept strictly, and is ready on this host. */
static bool effective(const struct runtime_network *network, bool ready)
{
	return ready && network->strict &&
	       (str_equal(network->support, "supported") ||
		str_equal(network->support, "host_gated"));
}

static void add_reason(struct runtime_state *out, const char *reason)
{
	if (out->count < ARRAY_LEN(out->reasons))
		out->reasons[out->count++] = reason;
}

static void fill_ready(const struct runtime_kind *kind, struct runtime_state *out)
{
	/* what host-local runtimes leave open, nothing on the host can close; no egress is built
	 * yet, so no allow list is */
	out->ready_deny_all = out->available && kind->boundary != BOUNDARY_HOST_LOCAL;
	out->ready_allowlist = false;
	out->strict_deny_all = effective(&kind->deny_all, out->ready_deny_all);
	out->strict_allowlist = effective(&kind->allowlist, out->ready_allowlist);
}

void runtime_judge(enum runtime_id id, const struct runtime_fact *fact, struct runtime_state *out)
{
	const struct runtime_kind *kind = &runtime_kinds[id];

	memset(out, 0, sizeof(*out));
	if (fact != NULL && fact->known) {
		out->available = kind->driven && fact->found;
		for (size_t i = 0; i < fact->count; i++)
			add_reason(out, fact->reasons[i]);
	} else {
		for (size_t i = 0; i < ARRAY_LEN(kind->unknown) && kind->unknown[i] != NULL; i++)
			add_reason(out, kind->unknown[i]);
	}
	if (!kind->driven &&
	    (out->count == 0 || !str_equal(out->reasons[out->count - 1], NOT_IMPLEMENTED)))
		add_reason(out, NOT_IMPLEMENTED);
	fill_ready(kind, out);
}

void runtime_admits(enum runtime_id id, const struct runtime_facts *facts,
		    struct runtime_state *out)
{
	const struct runtime_fact *fact = facts == NULL ? NULL : &facts->of[id];

	runtime_judge(id, fact, out);
	/* a runner that is away for a moment refuses nobody: its runs wait in the queue */
	if (id != RUNTIME_NAMESPACE || (fact != NULL && fact->known))
		return;
	out->available = true;
	out->count = 0;
	fill_ready(&runtime_kinds[id], out);
}

bool runtime_trusts(const struct policy *policy, enum runtime_id id, const char *trust_level)
{
	if (str_equal(trust_level, "untrusted"))
		return runtime_kinds[id].boundary != BOUNDARY_HOST_LOCAL;
	if (str_equal(trust_level, "standard"))
		return id != RUNTIME_SEATBELT || policy->runtimes.seatbelt.standard;
	return str_equal(trust_level, "trusted");
}

json_t *runtime_suggested(enum runtime_id id, const struct runtime_facts *facts)
{
	json_t *list = json_array();

	for (int i = 0; runtime_kinds[id].suggests && i < RUNTIME__MAX; i++) {
		struct runtime_state state;

		if (i == (int)id || runtime_kinds[i].boundary < runtime_kinds[id].boundary)
			continue;
		runtime_admits((enum runtime_id)i, facts, &state);
		if (state.available &&
		    json_array_append_new(list, json_string(runtime_kinds[i].name)) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

json_t *runtime_reasons(const struct runtime_state *state)
{
	json_t *list = json_array();

	for (size_t i = 0; i < state->count; i++) {
		if (json_array_append_new(list, json_string(state->reasons[i])) == 0)
			continue;
		json_decref(list);
		return NULL;
	}
	return list;
}
