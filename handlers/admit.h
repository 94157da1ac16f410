/*
 * admit.h: admission: turns what a caller asked for into limits that hold, or a refusal.
 *
 * The tiers and the installation's ceilings come from the policy; missing values become the
 * ceiling, larger ones are lowered to it (contract of face 1, section 2.11). Nothing here touches
 * the database.
 */
#ifndef CORDON_HANDLERS_ADMIT_H
#define CORDON_HANDLERS_ADMIT_H

#include "handlers/handler.h"
#include "handlers/runtime.h"
#include "runners/core/spec.h"

struct admit_request {
	const char *runtime;        /* NULL: the policy's default */
	const char *base_image;     /* NULL: none yet, of a session */
	const char *trust_level;    /* NULL: standard */
	const char *network_policy; /* NULL: the tier's default */
	bool has_cpu;
	double cpu;
	int64_t memory_mb;                 /* 0: not given */
	int64_t timeout_sec;               /* 0: not given, -1: null */
	int64_t startup_timeout_sec;       /* 0: not given */
	const struct runtime_facts *facts; /* of the host; NULL: none are known */
};

struct admitted {
	const char *runtime;
	const char *trust_level;
	const char *network_policy;
	const char *image;
	char policy_hash[17];
};

/* Fills the limits, runtime, image and network of spec. On refusal returns -1 and *refusal (details
 * are the caller's). */
int admit_run(const struct policy *policy, const struct admit_request *request,
	      struct run_spec *spec, struct admitted *out, struct api_error *refusal,
	      struct err *e);

/* Whether a runtime in this state takes the request (sections 2.11, 2.12); *network becomes what is
 * recorded. named: the request names its network policy. -1 and *refusal as admit_run. */
int admit_judge(const struct policy *policy, enum runtime_id id, const struct runtime_state *state,
		const struct admit_request *request, const char *trust, const char **network,
		struct api_error *refusal, struct err *e);

/* What every command has unless the caller says otherwise, as NAME=value. */
#define ADMIT_ENVIRONMENT 5
extern const char *const admit_environment[ADMIT_ENVIRONMENT];

/* The names of all runtimes that face 1 knows, NULL at the end. */
extern const char *const admit_runtimes[];

#endif
