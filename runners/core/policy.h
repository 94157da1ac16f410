/*
 * policy.h: the one YAML file that says what this installation allows.
 *
 * Calling sequence:
 *	scope_policy struct policy *policy = NULL;
 *	if (policy_load(path, &policy, &e) != 0)
 *		... e.text is "file:line:col: key: reason"
 *	wait_ms = policy->runs.sync_wait_ms;
 *
 * Field names are the key names; docs/policy.md lists every key with unit, range and default (it is
 * made from the same table by policy_doc). Every number is an int64_t, never negative and within
 * its range. Texts are never NULL. Unknown keys, duplicate keys, wrong kinds, values out of range
 * and values that contradict each other are refused: a loaded policy is whole.
 *
 * Nothing here is global, so a reload is: load the new file, swap a const pointer, free the old one
 * when its last reader is gone. A file that is refused changes nothing.
 */
#ifndef CORDON_CORE_POLICY_H
#define CORDON_CORE_POLICY_H

#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A policy file, and what policy_dump and policy_doc write, is at most this long. */
#define POLICY_FILE_BYTES ((size_t)1 << 20)

/* Memory of the box that takes an upload, besides the upload itself. */
#define POLICY_UPLOAD_MEMORY_MB INT64_C(256)

struct policy_list {
	char **items;
	size_t count;
};

struct policy_pair {
	char *key;
	char *value;
};

struct policy_map {
	struct policy_pair *items;
	size_t count;
};

/* What one trust level may have. The effective ceiling is the lower of this and runs.*. */
struct policy_tier {
	int64_t max_cpu_milli;
	int64_t max_mem_mb;
	int64_t timeout_sec;
	char *network_default; /* "deny_all" or "allowlist" */
	int64_t workspace_cap_mb;
	int64_t pids;
	int64_t nofile;
	bool fresh_network;
	bool require_vm_grade; /* a key of tiers.untrusted only */
};

struct policy {
	char *public_url; /* https://host[:port] */
	char *stream_url; /* derived: wss://host[:port] */
	char *node;
	struct {
		int64_t body_bytes;
	} http;
	struct {
		char *socket;
		char *name;
	} database;
	struct {
		char *run;
		char *data;
	} paths;
	struct {
		char *level; /* a name that log_level_parse knows */
	} log;
	struct {
		int64_t workers;
		int64_t max_requests;
		int64_t request_timeout_ms;
	} pool;
	struct {
		int64_t release_per_ms;
		int64_t heartbeat_ms;
		int64_t ws_max_total;
		int64_t ws_max_per_user;
		int64_t ws_max_per_run;
		int64_t ws_max_per_persona;
		int64_t ws_max_per_session;
		int64_t sweep_ms;
	} gate;
	struct {
		bool signed_urls;
		char *secret_file; /* "" none; as every file of secrets */
		int64_t url_ttl_sec;
	} streams;
	struct {
		struct {
			char *secret_file;
			char *jwks_file;
			char *issuer;
			char *audience;
			char *user_claim;
			char *roles_claim;
			char *admin_role;
			char *tenant_claim; /* "": always `tenant` */
			char *tenant;
			int64_t leeway_sec;
		} jwt;
	} auth;
	struct {
		int64_t concurrency; /* resolved: never 0 */
		int64_t poll_ms;
		int64_t beat_ms;
		int64_t dead_after_ms;
		int64_t drain_grace_ms;
	} runner;
	struct {
		int64_t max_length;
		int64_t ttl_sec;
		int64_t max_per_user;
		int64_t max_per_persona;
		int64_t max_per_workspace;
		int64_t max_per_workspace_group;
		int64_t estimated_wait_per_run_ms;
	} queue;
	struct {
		int64_t max_per_user;
		int64_t max_per_persona;
		int64_t max_per_workspace;
		int64_t max_per_workspace_group;
	} active;
	struct {
		int64_t sync_wait_ms;
		int64_t default_timeout_sec;
		int64_t null_timeout_sec;
		int64_t max_timeout_sec;
		int64_t default_startup_timeout_sec;
		int64_t cancel_grace_ms;
		int64_t max_log_bytes;
		int64_t inline_files_bytes;
		int64_t artifact_file_bytes;
		int64_t artifact_run_bytes;
		int64_t artifact_user_bytes;
		int64_t artifact_ttl_hours;
		int64_t row_ttl_days;
		int64_t max_cpu_milli;
		int64_t max_mem_mb;
		struct policy_list spec_versions;
		int64_t workspace_inodes;
		int64_t tmp_mb;
	} runs;
	struct {
		int64_t ttl_sec;
	} idempotency;
	struct {
		struct policy_tier trusted;
		struct policy_tier standard;
		struct policy_tier untrusted;
	} tiers;
	struct policy_map images; /* requested base_image -> image below paths.data/images */
	/* "default" is a word of C */
	struct {
		char *default_;
		struct {
			bool accept_unenforced_network;
		} worktree;
		struct {
			bool accept_unenforced_network;
			bool standard;
		} seatbelt;
	} runtimes;
	struct {
		int64_t uid_base;
		int64_t host_reserve_mb;
		int64_t slots_max;
		int64_t pool;
		int64_t pool_fresh;
		int64_t io_weight;
		bool netns_ring;
		int64_t disk_max_mb;
		bool usr_local;
	} box;
	struct {
		int64_t max;
		int64_t max_per_tenant;
		int64_t default_lifetime_sec;
		int64_t max_lifetime_sec;
		int64_t disk_mb;
		int64_t disk_inodes;
		int64_t output_bytes;
	} sandbox;
	struct {
		int64_t ttl_sec;
		int64_t max_per_tenant;
		int64_t delete_drain_ms;
		int64_t upload_mb;
		int64_t snapshot_max_count;
		int64_t snapshot_max_mb;
	} sessions;
	struct {
		int64_t min_free_pct;
	} data;
};

/*
 * Reads, checks and completes a policy. ERR_INVALID: refused, e->text is
 * "file:line:col: key: reason"; ERR_LIMIT: larger than POLICY_FILE_BYTES; else ERR_NOT_FOUND,
 * ERR_IO, ERR_NOMEM.
 */
int policy_load(const char *path, struct policy **out, struct err *e)
    __attribute__((warn_unused_result));
/* The same from memory; name stands for the file in messages. */
int policy_parse(const char *name, const char *text, size_t length, struct policy **out,
		 struct err *e) __attribute__((warn_unused_result));
/* NULL is allowed. */
void policy_free(struct policy *policy);

static inline void policy_scope_free(struct policy **policy)
{
	policy_free(*policy);
}

#define scope_policy __attribute__((cleanup(policy_scope_free)))

/* Appends the effective values as YAML that policy_load takes back. */
void policy_dump(const struct policy *policy, struct buf *out);
/* Appends the markdown text of docs/policy.md. */
void policy_doc(struct buf *out);
/* Appends box.limits: key=number lines, the ceilings that cordon-box checks again. */
void policy_box_limits(const struct policy *policy, struct buf *out);

/* The limits of a trust level by name, NULL when there is none of that name. */
const struct policy_tier *policy_tier_find(const struct policy *policy, const char *name);
/* The image that a requested base_image stands for, NULL when it is unknown. */
const char *policy_image_find(const struct policy *policy, const char *requested);

#endif
