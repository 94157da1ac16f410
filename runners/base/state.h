/*
 * state.h: the states of runs and jobs, their names (the same as in the SQL CHECKs and in face 1)
 * and the allowed changes.
 */
#ifndef CORDON_BASE_STATE_H
#define CORDON_BASE_STATE_H

#include <stdbool.h>

enum run_phase {
	RUN_QUEUED,
	RUN_STARTING,
	RUN_RUNNING,
	RUN_COMPLETED,
	RUN_FAILED,
	RUN_KILLED,
	RUN_TIMED_OUT,
	RUN__MAX
};

enum job_state { JOB_QUEUED, JOB_DELAYED, JOB_PARKED, JOB_CLAIMED, JOB__MAX };

/* What a job asks of a runner. */
enum job_kind {
	JOB_RUN,
	JOB_EXEC,
	JOB_START,
	JOB_STOP,
	JOB_DELETE,
	/* of the host's stores */
	JOB_STORE_PLAN,
	JOB_STORE_CLEANUP,
	/* of sessions */
	JOB_UPLOAD,
	JOB_SNAPSHOT,
	JOB_RESTORE,
	JOB_CLONE,
	JOB_SNAPSHOT_DELETE,
	JOB_SESSION_DELETE,
	JOB_KIND__MAX
};

/* A sandbox is a box that lives until it is stopped; its workspace can stay. */
enum sandbox_state {
	SANDBOX_PENDING,      /* accepted, waits for a runner */
	SANDBOX_PROVISIONING, /* its box is being made */
	SANDBOX_RUNNING,
	SANDBOX_STOPPING,
	SANDBOX_STOPPED, /* no box; the workspace is there if it stays */
	SANDBOX_FAILED,  /* it could not be started, or was lost without a workspace */
	SANDBOX_DELETING,
	SANDBOX_DELETED,
	SANDBOX__MAX
};

/* start, stop and delete of a sandbox are operations that somebody can wait for. */
enum operation_state {
	OPERATION_ACCEPTED,
	OPERATION_RUNNING,
	OPERATION_SUCCEEDED,
	OPERATION_FAILED,
	OPERATION__MAX
};

/* A session is there until it is deleted; one that could not be deleted is active again. */
enum session_state { SESSION_ACTIVE, SESSION_DELETING, SESSION_DELETED, SESSION__MAX };

const char *session_state_name(enum session_state state);
int session_state_parse(const char *name, enum session_state *out);
bool session_allowed(enum session_state from, enum session_state to);
const char *job_kind_name(enum job_kind kind);
int job_kind_parse(const char *name, enum job_kind *out);
/* All but run and exec: their object is an operation. */
bool job_kind_is_operation(enum job_kind kind);
/* Of the host's own stores: neither sandbox nor session is concerned. */
bool job_kind_is_store(enum job_kind kind);
/* They act on a session. */
bool job_kind_is_session(enum job_kind kind);
const char *sandbox_state_name(enum sandbox_state state);
int sandbox_state_parse(const char *name, enum sandbox_state *out);
bool sandbox_allowed(enum sandbox_state from, enum sandbox_state to);
/* Whether that operation may begin in this state. */
bool sandbox_accepts(enum sandbox_state state, enum job_kind operation);
/* Where it leads: while a runner works on it, and behind it. */
enum sandbox_state sandbox_during(enum job_kind operation);
enum sandbox_state sandbox_after(enum job_kind operation, bool success);
const char *operation_state_name(enum operation_state state);
int operation_state_parse(const char *name, enum operation_state *out);
bool operation_terminal(enum operation_state state);
bool operation_allowed(enum operation_state from, enum operation_state to);

const char *run_phase_name(enum run_phase phase);
/* 0, or -1 for an unknown name. */
int run_phase_parse(const char *name, enum run_phase *out);
bool run_phase_terminal(enum run_phase phase);
bool run_phase_allowed(enum run_phase from, enum run_phase to);
const char *job_state_name(enum job_state state);
bool job_state_allowed(enum job_state from, enum job_state to);

#endif
