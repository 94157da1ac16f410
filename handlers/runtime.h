/*
 * runtime.h: the runtimes of face 1: what is fixed about each one, what its host found out (facts,
 * written by the runner), and what follows from both.
 *
 *	struct runtime_state s;
 *	runtime_judge(RUNTIME_DOCKER, &facts->of[RUNTIME_DOCKER], &s);
 *	s.available, s.reasons[0 .. s.count - 1]
 *
 * Everything fails closed: a fact that nobody has found, or that is old, is no fact, and a runtime
 * without a driver of ours is never available. The one exception is admission to `namespace`, whose
 * runs wait in the queue for a runner anyway (runtime_admits).
 */
#ifndef CORDON_HANDLERS_RUNTIME_H
#define CORDON_HANDLERS_RUNTIME_H

#include "runners/core/json.h"
#include "runners/core/policy.h"

#include <stdbool.h>

/* In the order of discovery. */
enum runtime_id {
	RUNTIME_DOCKER,
	RUNTIME_FIRECRACKER,
	RUNTIME_LIMA,
	RUNTIME_VZ_LINUX,
	RUNTIME_VZ_MACOS,
	RUNTIME_SEATBELT,
	RUNTIME_WORKTREE,
	RUNTIME_NAMESPACE,
	RUNTIME__MAX
};

/* From the weakest to the strongest. */
enum runtime_boundary { BOUNDARY_HOST_LOCAL, BOUNDARY_CONTAINER, BOUNDARY_SCAFFOLD, BOUNDARY_VM };

struct runtime_network {
	const char *support;
	bool strict;
	const char *readiness;
};

struct runtime_session {
	const char *support;
	const char *reuse;
	bool health_check;
	const char *recovery;
	const char *repair;
};

struct runtime_kind {
	const char *name;
	const char *implementation;
	enum runtime_boundary boundary;
	bool vm_grade;
	bool untrusted;
	bool driven;   /* there is a driver of ours */
	bool suggests; /* a refusal may name others */
	bool interactive;
	const char *images[3];  /* NULL at the end */
	const char *unknown[4]; /* reasons as long as nobody has looked; NULL at the end */
	const char *notes;      /* NULL: none */
	struct runtime_network deny_all;
	struct runtime_network allowlist;
	struct runtime_session session;
};

extern const struct runtime_kind runtime_kinds[RUNTIME__MAX];

#define RUNTIME_REASONS      12
#define RUNTIME_REASON_BYTES 64
#define RUNTIME_HOST_BYTES   512

struct runtime_fact {
	bool known; /* and not old */
	bool found; /* the host could run it */
	size_t count;
	char reasons[RUNTIME_REASONS][RUNTIME_REASON_BYTES];
	char host[RUNTIME_HOST_BYTES]; /* a JSON object */
};

struct runtime_facts {
	struct runtime_fact of[RUNTIME__MAX];
};

struct runtime_state {
	bool available;
	size_t count;
	const char *reasons[RUNTIME_REASONS + 1]; /* of the fact and of the table */
	bool ready_deny_all;
	bool ready_allowlist;
	bool strict_deny_all;
	bool strict_allowlist;
};

/* RUNTIME__MAX for an unknown name. */
enum runtime_id runtime_find(const char *name);
const char *runtime_boundary_name(enum runtime_boundary boundary);
/* fact: NULL when there is none. */
void runtime_judge(enum runtime_id id, const struct runtime_fact *fact, struct runtime_state *out);
/* As runtime_judge, for admission. facts may be NULL: none are known. */
void runtime_admits(enum runtime_id id, const struct runtime_facts *facts,
		    struct runtime_state *out);
/* Whether requests of that trust level may use it at all. */
bool runtime_trusts(const struct policy *policy, enum runtime_id id, const char *trust_level);
/* A refusal's `suggested`: those that are available with the same boundary or a better one. NULL
 * without memory. */
json_t *runtime_suggested(enum runtime_id id, const struct runtime_facts *facts);
json_t *runtime_reasons(const struct runtime_state *state);

#endif
