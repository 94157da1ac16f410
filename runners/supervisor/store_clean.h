/*
 * store_clean.h: what lies in the host's own stores and no row explains: found, and removed on
 * demand. Judged are the entries of
 *
 *	<data>/staging/<2 hex>/<run>	 no job waits for it: planning_only_run_manifest
 *	<data>/spool/<2 hex>/<run>	 there is no such run: inactive_run
 *	<data>/artifacts/<2 hex>/<run>
 *	anything else in these three, and what <data>/images holds and the policy does not name:
 *	legacy_run_directory
 *
 * Nothing young is judged: a request stages its files before its row is there. A folder whose run
 * has a job, though no row, is live and never removed. The row is looked for right before the
 * removal. Links are not followed; paths in results are relative to <data>.
 */
#ifndef CORDON_SUPERVISOR_STORE_CLEAN_H
#define CORDON_SUPERVISOR_STORE_CLEAN_H

#include "runners/core/json.h"
#include "runners/core/policy.h"
#include "runners/core/store.h"

#include <stdbool.h>

#define STORE_ITEMS_MAX      1000
#define STORE_LEGACY_AGE_SEC 86400

struct store_clean {
	const struct policy *policy;
	struct store *db;
	bool remove;
	/* arrays of texts, NULL: any; an empty one fits nothing */
	const json_t *action_types;
	const json_t *run_ids;
	bool (*stopped)(void *arg); /* asked now and then; may be NULL */
	void *arg;
};

/*
 * {run_manifests, gc_candidates, blocked_live_matches, truncated, items: [{run_id, gc_reason,
 * gc_path, run_manifest_path, run_manifest_present, live, status, error}]}. gc_candidates counts
 * all, the items are those that fit, at most STORE_ITEMS_MAX. NULL: e says why (ERR_CONFLICT: it
 * was stopped).
 */
json_t *store_clean(const struct store_clean *want, struct err *e);

/* The action that a reason leads to; NULL for an unknown one. */
const char *store_action(const char *gc_reason);

#endif
