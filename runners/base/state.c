#include "runners/base/state.h"

#include "runners/base/str.h"

static const char *const phase_names[RUN__MAX] = {
    [RUN_QUEUED] = "queued",       [RUN_STARTING] = "starting", [RUN_RUNNING] = "running",
    [RUN_COMPLETED] = "completed", [RUN_FAILED] = "failed",     [RUN_KILLED] = "killed",
    [RUN_TIMED_OUT] = "timed_out",
};

/* A queued run can be canceled or expire; a starting one can fail or end before `running` is
 * written. */
static const bool phase_changes[RUN__MAX][RUN__MAX] = {
    [RUN_QUEUED] = {[RUN_STARTING] = true, [RUN_FAILED] = true, [RUN_KILLED] = true},
    [RUN_STARTING] = {[RUN_QUEUED] = true,
		      [RUN_RUNNING] = true,
		      [RUN_COMPLETED] = true,
		      [RUN_FAILED] = true,
		      [RUN_KILLED] = true,
		      [RUN_TIMED_OUT] = true},
    [RUN_RUNNING] =
	{[RUN_COMPLETED] = true, [RUN_FAILED] = true, [RUN_KILLED] = true, [RUN_TIMED_OUT] = true},
};

static const char *const job_names[JOB__MAX] = {
    [JOB_QUEUED] = "queued",
    [JOB_DELAYED] = "delayed",
    [JOB_PARKED] = "parked",
    [JOB_CLAIMED] = "claimed",
};

static const bool job_changes[JOB__MAX][JOB__MAX] = {
    [JOB_QUEUED] = {[JOB_CLAIMED] = true, [JOB_PARKED] = true, [JOB_DELAYED] = true},
    [JOB_DELAYED] = {[JOB_QUEUED] = true},
    [JOB_PARKED] = {[JOB_QUEUED] = true},
    [JOB_CLAIMED] = {[JOB_QUEUED] = true, [JOB_PARKED] = true},
};

const char *run_phase_name(enum run_phase phase)
{
	return phase < RUN__MAX ? phase_names[phase] : "unknown";
}

int run_phase_parse(const char *name, enum run_phase *out)
{
	for (int i = 0; i < RUN__MAX; i++) {
		if (str_equal(name, phase_names[i])) {
			*out = (enum run_phase)i;
			return 0;
		}
	}
	return -1;
}

bool run_phase_terminal(enum run_phase phase)
{
	return phase >= RUN_COMPLETED && phase < RUN__MAX;
}

bool run_phase_allowed(enum run_phase from, enum run_phase to)
{
	return from < RUN__MAX && to < RUN__MAX && phase_changes[from][to];
}

const char *job_state_name(enum job_state state)
{
	return state < JOB__MAX ? job_names[state] : "unknown";
}

bool job_state_allowed(enum job_state from, enum job_state to)
{
	return from < JOB__MAX && to < JOB__MAX && job_changes[from][to];
}
