/*
 * store_sandbox.h: an operation on a sandbox, as rows: who wants one (a face, a sweep) writes it
 *here, a runner claims its job.
 *
 *	struct sandbox_wish wish = {.sandbox = id, .kind = JOB_STOP, .request_id = "..."};
 *	store_retry(db, store_sandbox_body, &wish, &e);	or call it inside a transaction
 *	wish.refused: the sandbox is in wish.state, which does not accept that
 *	wish.operation: the id to wait for; then a notice NOTICE_QUEUED to the runner
 */
#ifndef CORDON_CORE_STORE_SANDBOX_H
#define CORDON_CORE_STORE_SANDBOX_H

#include "runners/base/ident.h"
#include "runners/base/state.h"
#include "runners/core/store.h"

#include <stdbool.h>

struct sandbox_wish {
	const char *sandbox;
	enum job_kind kind; /* start, stop or delete */
	const char *request_id;
	int64_t most; /* start: sandboxes that may run on its node; 0: not judged */
	/* filled */
	char operation[IDENT_UUID_SIZE];
	enum sandbox_state state; /* as it was found */
	bool missing;
	bool refused;
	bool full; /* so many run */
	int64_t running;
};

/* A transaction body (store_body): 0 also when it is missing or refused. */
int store_sandbox_body(struct store *db, void *wish, struct err *e);

/* Rows of an operation and its job; the sandbox's row is locked or new. */
struct operation_rows {
	const char *operation;
	enum job_kind kind;
	const char *sandbox;
	const char *tenant;
	const char *user;
	const char *node;
	const char *request_id;
	const char *spec;
	size_t spec_length;
};
int store_operation_insert(struct store *db, const struct operation_rows *rows, struct err *e);

/* Stops what has lived long enough on this node; *out_count operations were made (at most 100). */
int sweep_sandboxes(struct store *db, const char *node, size_t *out_count, struct err *e);

#endif
