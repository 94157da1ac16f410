/*
 * op_run.h: face-free operations on runs: create, read, list, cancel, artifacts. Each change is one
 * transaction (store_retry) and ends with a notice. Callers are checked: another owner's object is
 * ERR_NOT_FOUND, like a missing one.
 */
#ifndef CORDON_HANDLERS_OPS_OP_RUN_H
#define CORDON_HANDLERS_OPS_OP_RUN_H

#include "handlers/handler.h"
#include "runners/base/clock.h"
#include "runners/base/state.h"
#include "runners/core/spec.h"

#define OP_LIST_MAX 100

/* A row of `run` as a face shows it. An empty text stands for NULL. */
struct run_row {
	char id[IDENT_UUID_SIZE];
	char tenant[65];
	char user[65];
	char node[65];
	uint64_t job_id;
	char session_id[IDENT_UUID_SIZE];
	char spec_version[17];
	char runtime[33];
	char runtime_version[65];
	char base_image[256];
	char image_digest[81];
	char policy_hash[65];
	char trust_level[17];
	bool interactive;
	int64_t resume_from_seq; /* 0 if none */
	char persona_id[256];
	char workspace_id[256];
	char workspace_group_id[256];
	char scope_snapshot_id[256];
	enum run_phase phase;
	char outcome[17];
	char message[256];
	bool has_exit;
	int64_t exit_code;
	bool has_last_seq;
	uint64_t last_seq;
	char resource_usage[2048];
	bool cancel_requested;
	char created_at[CLOCK_ISO_SIZE]; /* ISO 8601; "" if NULL */
	char estimated_start_at[CLOCK_ISO_SIZE];
	char started_at[CLOCK_ISO_SIZE];
	char finished_at[CLOCK_ISO_SIZE];
	char request_id[65];
};

/* What admission wants stored. row.id is made by op_run_create unless this is a replay. */
struct run_create {
	const char *face;
	const char *endpoint;        /* scope of the idempotency key */
	const char *idempotency_key; /* NULL if none */
	unsigned char fingerprint[32];
	const char *request_id;
	const char *network;
	struct run_row row; /* the descriptive columns */
	struct run_spec *spec;
	const char *blob; /* inline files' bytes, one behind the other; NULL if none */
	size_t blob_length;
};

enum run_create_result {
	RUN_CREATED,
	RUN_REPLAYED,
	RUN_CONFLICT,
	RUN_QUEUE_FULL,
	RUN_NO_SESSION /* it went meanwhile */
};

struct run_created {
	enum run_create_result result;
	struct run_row row; /* replayed; created: id, node, phase and what was asked for */
	char prior_id[IDENT_UUID_SIZE]; /* conflict */
	char prior_created_at[CLOCK_ISO_SIZE];
	const char *queue_reason; /* queue full */
	const char *queue_scope;
	int64_t queue_limit;
};

/* Reserves the key, judges the queue's limits under the tenant's lock, stores run and job. Then
 * op_run_announce tells the runner of a created one; who shows the row first finds it queued. */
void op_run_announce(struct handler_context *context, const char *id);
int op_run_create(struct handler_context *context, const struct principal *caller,
		  struct run_create *request, struct run_created *out, struct err *e);

/* Reads a row of RUN_GET's columns. */
int op_run_read(const struct store *db, struct run_row *row, struct err *e);
/* Keeps a row of RUN_GET's columns, from `base` on, for the request's first op_run_get. */
void op_run_keep(struct handler_context *context, unsigned int base);
int op_run_get(struct handler_context *context, const struct principal *caller, const char *id,
	       struct run_row *out, struct err *e);

/* The row, and the moments of the run as far as they are known. */
int op_run_trace(struct handler_context *context, const struct principal *caller, const char *id,
		 struct run_row *out, struct trace_list *out_trace, struct err *e);

/* Newest first. cursor: only ids below it, NULL from the top. rows has room for limit + 1. */
int op_run_list(struct handler_context *context, const struct principal *caller, const char *cursor,
		const char *phase, size_t limit, struct run_row *rows, size_t *out_count,
		struct err *e);

/* Writes the wish; a queued run ends at once. *out is the row afterwards. */
int op_run_cancel(struct handler_context *context, const struct principal *caller, const char *id,
		  struct run_row *out, struct err *e);

struct artifact_row {
	uint32_t ordinal;
	uint64_t size_bytes;
	int64_t mtime_sec;
	size_t path_length;
	char path[4097];
};

/* Calls each() per artifact in the order of the paths' bytes. */
int op_artifact_list(struct handler_context *context, const char *run_id,
		     void (*each)(const struct artifact_row *row, void *arg), void *arg,
		     struct err *e);
int op_artifact_find(struct handler_context *context, const char *run_id, const char *path,
		     size_t path_length, struct artifact_row *out, struct err *e);

/* ERR_STORAGE when less than that part of the disk is free. */
int op_check_space(const char *data_dir, int64_t min_free_pct, struct err *e);

/* "2026-01-31 12:00:00.000000" of the database to ISO 8601; "" stays "". */
void op_iso_time(char out[CLOCK_ISO_SIZE], const char *text);

#endif
