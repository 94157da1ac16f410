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

const char *run_phase_name(enum run_phase phase);
/* 0, or -1 for an unknown name. */
int run_phase_parse(const char *name, enum run_phase *out);
bool run_phase_terminal(enum run_phase phase);
bool run_phase_allowed(enum run_phase from, enum run_phase to);
const char *job_state_name(enum job_state state);
bool job_state_allowed(enum job_state from, enum job_state to);

#endif
