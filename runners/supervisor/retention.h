/*
 * retention.h: logs and artifacts end runs.artifact_ttl_hours after their run, rows after
 * runs.row_ttl_days. The rows go first, in transactions of a few runs each; then gone() is called
 * per run, and its files may be removed.
 */
#ifndef CORDON_SUPERVISOR_RETENTION_H
#define CORDON_SUPERVISOR_RETENTION_H

#include "runners/core/policy.h"
#include "runners/core/store.h"

typedef void retention_gone(const char *run_id, void *arg);

int retention_sweep(struct store *db, const struct policy *policy, retention_gone *gone, void *arg,
		    struct err *e);

#endif
