/*
 * op_sandbox.h: face-free operations on sandboxes: create, read, list, start, stop, delete, and
 * commands in one. Each change is one transaction and ends with a notice. Another owner's object is
 * ERR_NOT_FOUND, like a missing one; so is one of another face.
 */
#ifndef CORDON_HANDLERS_OPS_OP_SANDBOX_H
#define CORDON_HANDLERS_OPS_OP_SANDBOX_H

#include "handlers/handler.h"
#include "handlers/ops/op_run.h"
#include "runners/base/clock.h"
#include "runners/base/state.h"
#include "runners/core/spec.h"

/* A row of `sandbox`. Release with op_sandbox_release. */
struct sandbox_row {
	char id[IDENT_UUID_SIZE];
	char face[17];
	char tenant[65];
	char user[65];
	char node[65];
	enum sandbox_state state;
	char error[256];
	bool persistent;
	int64_t lifetime_sec;
	struct run_spec spec; /* what starts its box */
	json_t *request;      /* the face's own text; NULL if it cannot be read */
	char created_at[CLOCK_ISO_SIZE];
	char started_at[CLOCK_ISO_SIZE];
	char stopped_at[CLOCK_ISO_SIZE];
	char expires_at[CLOCK_ISO_SIZE];
	char deleted_at[CLOCK_ISO_SIZE];
};

void op_sandbox_release(struct sandbox_row *row);

struct sandbox_create {
	const char *face;
	const char *request_id;
	int64_t lifetime_sec;
	struct run_spec *spec; /* limits resolved; its sandbox is filled in */
	const json_t *request; /* what the face wants to see again */
};

enum sandbox_result { SANDBOX_DONE, SANDBOX_FULL_TENANT, SANDBOX_FULL_NODE, SANDBOX_REFUSED };

struct sandbox_made {
	enum sandbox_result result;
	char id[IDENT_UUID_SIZE];
	char operation[IDENT_UUID_SIZE]; /* to wait for */
	enum sandbox_state state;        /* SANDBOX_REFUSED: which does not accept that */
	int64_t used;                    /* full: so many of */
	int64_t limit;
};

/* Stores sandbox, its start and the job, and tells the runner. */
int op_sandbox_create(struct handler_context *context, const struct principal *caller,
		      struct sandbox_create *request, struct sandbox_made *out, struct err *e);
int op_sandbox_get(struct handler_context *context, const struct principal *caller,
		   const char *face, const char *id, struct sandbox_row *out, struct err *e);
/* Newest first, without deleted ones; rows has room for limit. */
int op_sandbox_list(struct handler_context *context, const struct principal *caller,
		    const char *face, size_t limit, struct sandbox_row *rows, size_t *out_count,
		    struct err *e);
/* start, stop or delete of a sandbox that the caller may see. */
int op_sandbox_do(struct handler_context *context, const char *id, enum job_kind kind,
		  const char *request_id, struct sandbox_made *out, struct err *e);

struct operation_row {
	char id[IDENT_UUID_SIZE];
	enum job_kind kind;
	char sandbox[IDENT_UUID_SIZE];
	char node[65];
	enum operation_state state;
	char error[256];
};
/* Of a sandbox that the caller may see. */
int op_operation_get(struct handler_context *context, const char *id, struct operation_row *out,
		     struct err *e);

/* A run in a sandbox: create->spec gets the sandbox's environment below its own. create->row needs
 * no more than its descriptive columns. */
int op_sandbox_exec(struct handler_context *context, const struct principal *caller,
		    const struct sandbox_row *sandbox, struct run_create *create,
		    struct run_created *out, struct err *e);
/* The output that the answer holds: an object to be released, NULL if there is none. */
int op_run_result(struct handler_context *context, const char *run, json_t **out, struct err *e);

#endif
