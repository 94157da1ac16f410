/*
 * op_session.h: face-free operations on sessions: workspaces that runs share. A session is a row;
 * snapshot, restore, clone, upload and delete are operations that a runner carries out and that can
 * be waited for. Callers are checked: another owner's session is ERR_NOT_FOUND, like a missing one.
 */
#ifndef CORDON_HANDLERS_OPS_OP_SESSION_H
#define CORDON_HANDLERS_OPS_OP_SESSION_H

#include "handlers/handler.h"
#include "runners/base/clock.h"
#include "runners/base/state.h"
#include "runners/core/store_session.h"

#define OP_SESSION_LIST_MAX  100
#define OP_SNAPSHOT_LIST_MAX 1000

/* A row of `session`. An empty text stands for NULL. */
struct session_row {
	char id[IDENT_UUID_SIZE];
	char tenant[65];
	char user[65];
	char node[65];
	enum session_state state;
	char name[256];
	char spec_version[17];
	char runtime[33];
	char base_image[256];
	int64_t cpu_milli;
	int64_t memory_mb;
	int64_t timeout_sec;
	char network_policy[17];
	char trust_level[17];
	char policy_hash[65];
	json_t *env; /* objects, the row's */
	json_t *labels;
	char persona_id[256];
	char workspace_id[256];
	char workspace_group_id[256];
	char scope_snapshot_id[256];
	int64_t workspace_bytes;
	int64_t workspace_inodes;
	char created_at[CLOCK_ISO_SIZE];
	char expires_at[CLOCK_ISO_SIZE];
	bool expired;
};

void op_session_release(struct session_row *row);

struct session_create {
	const char *idempotency_key; /* NULL if none */
	unsigned char fingerprint[32];
	const char *request_id;
	struct session_row row; /* what is to be stored; id, node and times are made here */
};

enum session_result { SESSION_CREATED, SESSION_REPLAYED, SESSION_CONFLICT, SESSION_FULL };

struct session_created {
	enum session_result result;
	struct session_row row; /* created, replayed: to be released */
	char prior_id[IDENT_UUID_SIZE];
	char prior_created_at[CLOCK_ISO_SIZE];
	int64_t limit; /* full */
};

int op_session_create(struct handler_context *context, const struct principal *caller,
		      struct session_create *request, struct session_created *out, struct err *e);
/* One that can be used: active, and its time is not over. */
int op_session_get(struct handler_context *context, const struct principal *caller, const char *id,
		   struct session_row *out, struct err *e);
/* Only whether the caller may see it, whatever its state. */
int op_session_check(struct handler_context *context, const struct principal *caller,
		     const char *id, struct err *e);
int op_session_active_runs(struct handler_context *context, const char *id, int64_t *out,
			   struct err *e);
/* ERR_STORAGE when the disk is too full for anything new. */
int op_session_room(struct handler_context *context, struct err *e);
/* Own ones, newest first. cursor: only ids below it, NULL from the top. rows has room for
 * limit + 1. */
int op_session_list(struct handler_context *context, const struct principal *caller,
		    const char *cursor, size_t limit, struct session_row *rows, size_t *out_count,
		    struct err *e);

/* An operation on a session that the caller may see. Fill session, kind, request_id and what the
 * kind needs in wish->job; what was refused is told in it (store_session.h). Tells runner and gate.
 */
int op_session_do(struct handler_context *context, struct session_wish *wish, struct err *e);

struct snapshot_row {
	char id[SNAPSHOT_ID_SIZE];
	uint64_t size_bytes;
	char created_at[CLOCK_ISO_SIZE];
};
/* Newest first; rows has room for OP_SNAPSHOT_LIST_MAX. */
int op_snapshot_list(struct handler_context *context, const char *session,
		     struct snapshot_row *rows, size_t *out_count, struct err *e);
int op_snapshot_get(struct handler_context *context, const char *session, const char *id,
		    struct snapshot_row *out, struct err *e);

/* What an operation has to say: a JSON object to be released, NULL if nothing. */
int op_operation_result(struct handler_context *context, const char *operation, json_t **out,
			struct err *e);

#endif
