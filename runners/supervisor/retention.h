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

/*
 * Folders of <data>/uploads that no operation takes, older than two minutes: there is a moment
 * between the gate's last byte and the worker's operation, and either may die in it.
 */
int retention_uploads(struct store *db, const struct policy *policy, bool (*stopped)(void *arg),
		      void *arg, size_t *out_count, struct err *e);

/*
 * Folders of <data>/spool and <data>/artifacts that no row names, and staged files that no job
 * waits for, older than an hour: what a crash between two steps may leave. Removed here;
 * *out_count is how many. It takes a query per folder, so it is the house thread's; stopped() is
 * asked now and then, between two queries, and ends it (not an error).
 */
int retention_strays(struct store *db, const struct policy *policy, bool (*stopped)(void *arg),
		     void *arg, size_t *out_count, struct err *e);

#endif
