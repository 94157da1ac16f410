/*
 * store_park.h: limits of active runs (policy active.*). A run over one of them is accepted with
 * its job `parked`: it waits like a queued one (its phase is queued, its time in the queue counts),
 * but no runner claims it. When a run ends, the oldest parked jobs that fit become `queued`.
 *
 * Active is what is queued or claimed; whoever judges or changes that holds the tenant's lock, so
 * the limits hold exactly.
 */
#ifndef CORDON_CORE_STORE_PARK_H
#define CORDON_CORE_STORE_PARK_H

#include "runners/core/policy.h"
#include "runners/core/store.h"

/* Whose run it is; a tag that is empty has no limit. */
struct park_tags {
	const char *tenant;
	const char *user;
	const char *persona;
	const char *workspace;
	const char *group;
};

/* Any limit is set. */
bool park_is_on(const struct policy *policy);
/* 1: it must wait, 0: it may go, -1. */
int park_judge(struct store *db, const struct policy *policy, const struct park_tags *tags,
	       struct err *e);
/* Lets go what fits, oldest first; *out_count jobs. */
int park_release(struct store *db, const struct policy *policy, size_t *out_count, struct err *e);

#endif
