/*
 * diagnostics.h: what operators are told, made from discovery and from what the host found. Plain
 * functions over JSON: nothing is read or changed here. NULL without memory.
 */
#ifndef CORDON_HANDLERS_RUNS_DIAGNOSTICS_H
#define CORDON_HANDLERS_RUNS_DIAGNOSTICS_H

#include "handlers/handler.h"

#define DIAGNOSTICS_HELPER_AWAY "macos_virtualization_helper_unavailable"
#define DIAGNOSTICS_PLAN        "/api/v1/sandbox/admin/macos-image-store/cleanup-plan"
#define DIAGNOSTICS_REPAIR      "/api/v1/sandbox/admin/macos-reconciliation/repair"

/* ready, unavailable, host_gated, scaffold, unsupported or not_applicable: of a row of discovery.
 */
const char *diagnostics_readiness(const json_t *row);
/* What an operator should do about it. */
const char *diagnostics_action(const json_t *row);
/* The whole answer of runtime-diagnostics, from the rows of discovery. */
json_t *diagnostics_runtimes(const json_t *rows);

/* The whole answer of macos-diagnostics; seen: what the runner found in the stores, NULL if
 * nobody has looked. */
json_t *diagnostics_macos(const struct policy *policy, const json_t *rows, const json_t *seen);
/* Its parts that others need too. */
json_t *diagnostics_helper(void);
json_t *diagnostics_image_store(const struct policy *policy, const json_t *seen);
/* An item of the store as the runner found it, with the members that only Macs fill. */
json_t *diagnostics_store_item(const json_t *item);
/* From a reconciliation and the number of candidates. */
json_t *diagnostics_recovery(const json_t *reconciliation, int64_t gc_candidates);

/* The whole answer of operator-status. runtimes, macos: the answers above, NULL where they failed;
 * evidence: its section as it is shown. Members of a wrong kind make a section unknown, never the
 * answer fail. */
json_t *diagnostics_operator(const json_t *runtimes, const json_t *macos, const json_t *evidence);
/* The section of an installation that collects no evidence. */
json_t *diagnostics_no_evidence(void);

/* {runtime, admission} of a workspace's diagnostics, from the rows of discovery. */
json_t *diagnostics_workspace(const json_t *rows);

#endif
