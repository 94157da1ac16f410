/*
 * store_session.h: operations on sessions, as rows: who wants one (a face, a sweep) writes it here,
 * a runner claims its job.
 *
 *	struct session_wish wish = {.session = id, .kind = JOB_SNAPSHOT, .request_id = "...",
 *				    .job = {...}};
 *	store_retry(db, store_session_body, &wish, &e);
 *	wish.missing, wish.active_runs: why nothing was written
 *	wish.operation: the id to wait for; then a notice NOTICE_QUEUED to the runner
 *
 * Locks: session, then jobs and runs. A session that is locked takes no new run and no other
 * operation; what was accepted earlier is carried out earlier, by one runner, in the order of the
 * jobs.
 */
#ifndef CORDON_CORE_STORE_SESSION_H
#define CORDON_CORE_STORE_SESSION_H

#include "runners/base/buf.h"
#include "runners/base/ident.h"
#include "runners/base/state.h"
#include "runners/core/store.h"

#include <stdbool.h>
#include <stdint.h>

#define SNAPSHOT_ID_SIZE 18 /* "snap-" and 12 hex digits */
/* Runs of one session that one delete cancels; more are left to the runner's drain. */
#define SESSION_RUNS_MAX 1024

/* The text in job.spec: all that the runner needs. Empty texts are left out. */
struct session_job {
	char session[IDENT_UUID_SIZE];
	char snapshot[SNAPSHOT_ID_SIZE]; /* snapshot, restore, snapshot_delete */
	char clone[IDENT_UUID_SIZE];     /* clone: the new session */
	char name[256];                  /* clone: its name; "" is none */
	char upload[IDENT_UUID_SIZE];    /* upload: the folder of its parts */
	int64_t workspace_bytes;         /* of the session: what is made when it is not there */
	int64_t workspace_inodes;
};

int session_job_encode(const struct session_job *job, struct buf *out, struct err *e);
int session_job_decode(const char *text, size_t length, struct session_job *out, struct err *e);

/* "snap-" and 12 hex digits, and nothing else. */
bool snapshot_id_is_good(const char *id);
int snapshot_id_make(char out[SNAPSHOT_ID_SIZE], struct err *e);

/* One that a delete ended, or wants to end. */
struct session_run {
	char run[IDENT_UUID_SIZE];
	bool ended; /* it was queued: its row is terminal now */
};

struct session_wish {
	const char *session;
	enum job_kind kind;
	const char *request_id;
	struct session_job job; /* in: what the kind needs; the session's part is filled */
	int64_t max_sessions;   /* in: clone: of a tenant; 0: no limit */
	/* filled */
	char operation[IDENT_UUID_SIZE];
	bool missing;             /* no such session, or it is deleted or has lived its time */
	bool full;                /* clone: the tenant has max_sessions, those under way counted */
	bool no_snapshot;         /* restore, snapshot_delete: it has no such snapshot */
	int64_t active_runs;      /* above 0: the kind is not possible while it has runs */
	struct session_run *runs; /* session_delete: mem, the caller's to free; NULL: nobody asks */
	size_t run_count;
	char node[65];
};

/* A transaction body (store_body): 0 also when it was refused. A delete of a session that is being
 * deleted gives the operation that does it. */
int store_session_body(struct store *db, void *wish, struct err *e);

/* Deletes what has lived its time on this node and has no runs; *out_count operations were made. */
int sweep_sessions(struct store *db, const char *node, size_t *out_count, struct err *e);

#endif
