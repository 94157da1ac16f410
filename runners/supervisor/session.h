/*
 * session.h: what session.c and upload.c share. An operation on a session lives from its claim
 * until its end is handed to the SQL thread; an upload has a maintenance box besides.
 */
#ifndef CORDON_SUPERVISOR_SESSION_H
#define CORDON_SUPERVISOR_SESSION_H

#include "runners/core/store_session.h"
#include "runners/supervisor/supervisor.h"

enum session_op_state {
	SESSION_OP_AGAIN,   /* asked (again) at retry_us */
	SESSION_OP_ASKED,   /* cordon-box works */
	SESSION_OP_UPLOADS, /* upload.c has it */
	SESSION_OP_DONE     /* freed by the loop */
};

struct upload;

struct session_op {
	struct session_op *next;
	struct supervisor *sup;
	uint64_t serial; /* as a task's, out of the same numbers */
	struct claim claim;
	struct session_job job;
	enum session_op_state state;
	int64_t drain_until_us; /* of a delete */
	int64_t deadline_us;
	int64_t retry_us;
	unsigned int tries;
	uint64_t used_bytes;
	struct upload *upload; /* NULL: none */
};

/* Hands the end over; text: the result, JSON, mem, taken; NULL for none. */
void session_op_end(struct session_op *op, bool good, const char *message, char *text);
void session_op_again(struct session_op *op);

/* --- upload.c -------------------------------------------------------------------------------- */

void upload_begin(struct session_op *op);
/* The session goes: an upload that has not ended does so. */
void upload_cancel(struct session_op *op);
void upload_reply(struct session_op *op, const struct box_reply *reply);
/* cordon-box came back. */
void upload_again(struct session_op *op);
void upload_tick(struct session_op *op, int64_t now_us);
int64_t upload_due_us(const struct session_op *op);
/* Its box is gone. */
bool upload_is_over(const struct session_op *op);
void upload_free(struct session_op *op);

#endif
