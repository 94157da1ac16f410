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

static const char *const kind_names[JOB_KIND__MAX] = {
    [JOB_RUN] = "run",
    [JOB_EXEC] = "exec",
    [JOB_START] = "start",
    [JOB_STOP] = "stop",
    [JOB_DELETE] = "delete",
    [JOB_STORE_PLAN] = "store_plan",
    [JOB_STORE_CLEANUP] = "store_cleanup",
    [JOB_UPLOAD] = "upload",
    [JOB_SNAPSHOT] = "snapshot",
    [JOB_RESTORE] = "restore",
    [JOB_CLONE] = "clone",
    [JOB_SNAPSHOT_DELETE] = "snapshot_delete",
    [JOB_SESSION_DELETE] = "session_delete",
};

static const char *const session_names[SESSION__MAX] = {
    [SESSION_ACTIVE] = "active",
    [SESSION_DELETING] = "deleting",
    [SESSION_DELETED] = "deleted",
};

static const char *const sandbox_names[SANDBOX__MAX] = {
    [SANDBOX_PENDING] = "pending",   [SANDBOX_PROVISIONING] = "provisioning",
    [SANDBOX_RUNNING] = "running",   [SANDBOX_STOPPING] = "stopping",
    [SANDBOX_STOPPED] = "stopped",   [SANDBOX_FAILED] = "failed",
    [SANDBOX_DELETING] = "deleting", [SANDBOX_DELETED] = "deleted",
};

/* A box can be lost at any time; a stop or delete that fails leaves it as failed. */
static const bool sandbox_changes[SANDBOX__MAX][SANDBOX__MAX] = {
    [SANDBOX_PENDING] =
	{[SANDBOX_PROVISIONING] = true, [SANDBOX_FAILED] = true, [SANDBOX_DELETING] = true},
    [SANDBOX_PROVISIONING] = {[SANDBOX_RUNNING] = true, [SANDBOX_FAILED] = true},
    [SANDBOX_RUNNING] = {[SANDBOX_STOPPING] = true,
			 [SANDBOX_STOPPED] = true,
			 [SANDBOX_FAILED] = true,
			 [SANDBOX_DELETING] = true},
    [SANDBOX_STOPPING] = {[SANDBOX_STOPPED] = true, [SANDBOX_FAILED] = true},
    [SANDBOX_STOPPED] = {[SANDBOX_PENDING] = true, [SANDBOX_DELETING] = true},
    [SANDBOX_FAILED] = {[SANDBOX_PENDING] = true, [SANDBOX_DELETING] = true},
    [SANDBOX_DELETING] = {[SANDBOX_DELETED] = true, [SANDBOX_FAILED] = true},
};

static const char *const operation_names[OPERATION__MAX] = {
    [OPERATION_ACCEPTED] = "accepted",
    [OPERATION_RUNNING] = "running",
    [OPERATION_SUCCEEDED] = "succeeded",
    [OPERATION_FAILED] = "failed",
};

static int find_name(const char *const *names, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (str_equal(name, names[i]))
			return i;
	return -1;
}

const char *run_phase_name(enum run_phase phase)
{
	return phase < RUN__MAX ? phase_names[phase] : "unknown";
}

int run_phase_parse(const char *name, enum run_phase *out)
{
	int found = find_name(phase_names, RUN__MAX, name);

	if (found < 0)
		return -1;
	*out = (enum run_phase)found;
	return 0;
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

const char *job_kind_name(enum job_kind kind)
{
	return kind < JOB_KIND__MAX ? kind_names[kind] : "unknown";
}

int job_kind_parse(const char *name, enum job_kind *out)
{
	int found = find_name(kind_names, JOB_KIND__MAX, name);

	if (found < 0)
		return -1;
	*out = (enum job_kind)found;
	return 0;
}

bool job_kind_is_operation(enum job_kind kind)
{
	return kind > JOB_EXEC && kind < JOB_KIND__MAX;
}

bool job_kind_is_store(enum job_kind kind)
{
	return kind == JOB_STORE_PLAN || kind == JOB_STORE_CLEANUP;
}

bool job_kind_is_session(enum job_kind kind)
{
	return kind >= JOB_UPLOAD && kind <= JOB_SESSION_DELETE;
}

const char *session_state_name(enum session_state state)
{
	return state < SESSION__MAX ? session_names[state] : "unknown";
}

int session_state_parse(const char *name, enum session_state *out)
{
	int found = find_name(session_names, SESSION__MAX, name);

	if (found < 0)
		return -1;
	*out = (enum session_state)found;
	return 0;
}

bool session_allowed(enum session_state from, enum session_state to)
{
	return (from == SESSION_ACTIVE && to == SESSION_DELETING) ||
	       (from == SESSION_DELETING && (to == SESSION_ACTIVE || to == SESSION_DELETED));
}

const char *sandbox_state_name(enum sandbox_state state)
{
	return state < SANDBOX__MAX ? sandbox_names[state] : "unknown";
}

int sandbox_state_parse(const char *name, enum sandbox_state *out)
{
	int found = find_name(sandbox_names, SANDBOX__MAX, name);

	if (found < 0)
		return -1;
	*out = (enum sandbox_state)found;
	return 0;
}

bool sandbox_allowed(enum sandbox_state from, enum sandbox_state to)
{
	return from < SANDBOX__MAX && to < SANDBOX__MAX && sandbox_changes[from][to];
}

bool sandbox_accepts(enum sandbox_state state, enum job_kind operation)
{
	if (operation == JOB_START)
		return state == SANDBOX_STOPPED || state == SANDBOX_FAILED;
	if (operation == JOB_STOP)
		return state == SANDBOX_RUNNING;
	return operation == JOB_DELETE &&
	       (state == SANDBOX_RUNNING || state == SANDBOX_STOPPED || state == SANDBOX_FAILED);
}

enum sandbox_state sandbox_during(enum job_kind operation)
{
	if (operation == JOB_START)
		return SANDBOX_PROVISIONING;
	return operation == JOB_STOP ? SANDBOX_STOPPING : SANDBOX_DELETING;
}

enum sandbox_state sandbox_after(enum job_kind operation, bool success)
{
	if (!success)
		return SANDBOX_FAILED;
	if (operation == JOB_START)
		return SANDBOX_RUNNING;
	return operation == JOB_STOP ? SANDBOX_STOPPED : SANDBOX_DELETED;
}

const char *operation_state_name(enum operation_state state)
{
	return state < OPERATION__MAX ? operation_names[state] : "unknown";
}

int operation_state_parse(const char *name, enum operation_state *out)
{
	int found = find_name(operation_names, OPERATION__MAX, name);

	if (found < 0)
		return -1;
	*out = (enum operation_state)found;
	return 0;
}

bool operation_terminal(enum operation_state state)
{
	return state == OPERATION_SUCCEEDED || state == OPERATION_FAILED;
}

bool operation_allowed(enum operation_state from, enum operation_state to)
{
	return (from == OPERATION_ACCEPTED &&
		(to == OPERATION_RUNNING || to == OPERATION_FAILED)) ||
	       (from == OPERATION_RUNNING && operation_terminal(to));
}
