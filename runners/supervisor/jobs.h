/*
 * jobs.h: the runner's SQL thread: claims, beats, ends. It owns the connection; the loop never
 * waits for it.
 *
 * The loop says how many runs it can take (jobs_capacity) and hands over ends; the thread puts
 * events and makes the eventfd readable. An end is kept until the database has it, however long
 * that takes: a run's result is never lost while this process lives.
 *
 * The claim token is in the WHERE of every later write of that claim, so a writer that comes too
 * late matches nothing (JOBS_LOST).
 */
#ifndef CORDON_SUPERVISOR_JOBS_H
#define CORDON_SUPERVISOR_JOBS_H

#include "runners/base/ident.h"
#include "runners/base/state.h"
#include "runners/core/policy.h"
#include "runners/core/trace.h"

#include <stdbool.h>
#include <stdint.h>

#define JOBS_TOKEN_BYTES 16

struct claim {
	uint64_t job_id;
	enum job_kind kind;
	unsigned char token[JOBS_TOKEN_BYTES];
	char run_id[IDENT_UUID_SIZE]; /* of the operation, for those kinds */
	char tenant[65];
	char user[65];
	char request_id[65];
	uint64_t user_artifact_bytes; /* what this user has stored already */
};

struct session_job;

struct ended_artifact {
	char *path; /* mem */
	size_t path_length;
	uint64_t size_bytes;
	int64_t mtime_sec;
};

/* The end of a run, or of an operation (phase completed or failed, and message); all memory belongs
 * to it. */
struct run_result {
	struct claim claim;
	enum run_phase phase;
	bool release; /* no end: nothing was started, the job goes back to the queue */
	bool ours;    /* we failed to do it: outcome `failed`, else `finished` */
	char message[256];
	bool has_exit;
	int64_t exit_code;
	uint64_t last_seq;
	char *usage;  /* JSON text, mem */
	char *result; /* of a command in a sandbox, of an operation on the stores: JSON text,
		       * mem; NULL if none */
	uint64_t log_bytes;
	uint64_t artifact_bytes;
	struct ended_artifact *artifacts; /* mem; ordinal = index */
	size_t artifact_count;
	struct session_job *session; /* of an operation on a session, mem; NULL of others */
	uint64_t session_bytes;      /* snapshot: what it takes on the disk */
	struct trace trace;
};

enum jobs_event_kind {
	JOBS_EARLY, /* claim and spec of a run that is being claimed: its box may be made, no more
		     */
	JOBS_UNCLAIMED, /* that claim did not succeed */
	JOBS_CLAIMED,   /* claim and spec */
	JOBS_ADOPTED,   /* the same of a claim that an earlier runner of this node held */
	JOBS_SANDBOX,   /* run_id is a sandbox that should have a box here */
	JOBS_READY,     /* all adopted claims have been told; boxes of no claim may go */
	JOBS_WISH,      /* somebody wants this run canceled */
	JOBS_SAVED,     /* the end is in the database */
	JOBS_LOST,      /* the claim is not ours any more */
	JOBS_OUTLAWED,  /* this instance's row is gone: all claims are lost */
	JOBS_EXPIRED,   /* files of this run are to be removed */
	JOBS_ARTIFACTS  /* only its artifacts */
};

struct jobs_event {
	enum jobs_event_kind kind;
	struct claim claim; /* JOBS_CLAIMED; else only run_id */
	char *spec;         /* JOBS_CLAIMED: job.spec, mem, the receiver's */
	size_t spec_length;
	bool other_boot;    /* JOBS_ADOPTED: the host was started anew since the claim */
	struct trace trace; /* JOBS_CLAIMED, JOBS_SAVED: what this thread saw of the run */
};

struct jobs;

/* instance: this process's id. Starts the thread, which registers the runner and takes over what
 * earlier runners of the node held. */
int jobs_start(const struct policy *policy, const char *instance, struct jobs **out, struct err *e);
/* Tries for up to wait_us to save what is left, then ends the thread. keep_row: claims are left for
 * the next runner of this node. */
void jobs_stop(struct jobs *jobs, int64_t wait_us, bool keep_row);
/* Readable when events wait. */
int jobs_fd(const struct jobs *jobs);
/* The next event: true, or false when there is none now. */
bool jobs_next(struct jobs *jobs, struct jobs_event *out);
/* How many more runs the loop takes; with 0 only jobs of sandboxes are claimed, closed: nothing.
 * Raising it looks at once. */
void jobs_capacity(struct jobs *jobs, unsigned int free, bool closed);
/* Look for queued jobs now: a notice of this run came. */
void jobs_look(struct jobs *jobs, const char *run_id);
/* Write phase running: now, or with the next beat. */
void jobs_running(struct jobs *jobs, const struct claim *claim, bool now);
/* Look for cancel wishes now. */
void jobs_look_wishes(struct jobs *jobs);
/* A sandbox's box is gone, and nobody asked for that. */
void jobs_sandbox_lost(struct jobs *jobs, const char *sandbox, const char *why);
/* Saves an end; takes the result over (mem). */
void jobs_end(struct jobs *jobs, struct run_result *result);
void run_result_free(struct run_result *result);

#endif
