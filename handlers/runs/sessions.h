/* sessions.h: what sessions.c, snapshots.c and uploads.c share. */
#ifndef CORDON_HANDLERS_RUNS_SESSIONS_H
#define CORDON_HANDLERS_RUNS_SESSIONS_H

#include "handlers/fields.h"
#include "handlers/ops/op_sandbox.h"
#include "handlers/ops/op_session.h"

/* Writes an operation on a session that the caller may use. -1: refused and answered. A missing
 * snapshot (wish->no_snapshot) is the caller's to answer. */
int sessions_begin(struct handler_context *context, const struct http_request *request,
		   const struct principal *caller, const char *id, struct session_wish *wish,
		   struct http_response *response);
/* The answer waits for it; as: which answer (sessions_render). */
void sessions_wait(const struct session_wish *wish, const char *as, const struct principal *caller,
		   struct http_response *response);

extern const struct field_table snapshots_restore_table;
extern const struct field_table snapshots_clone_table;

/* snapshots.c: the answer after snapshot, restore, clone, snapshot_delete and upload. */
void snapshots_answer(struct handler_context *context, const struct http_request *request,
		      const char *as, const struct operation_row *operation, json_t *result,
		      struct http_response *response);

#endif
