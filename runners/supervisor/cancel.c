/* Ending a command before its time: TERM and KILL through the agent, so that output and artifacts
 * are still read. */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"

/* To all of a run's box; in a sandbox, to the group of the command. */
static int signal_command(struct task *task, uint32_t tag, int number, struct err *e)
{
	if (task->claim.kind == JOB_EXEC)
		return agent_signal(&task->agent, task->channel, number, e);
	return agent_signal_all(&task->agent, tag, number, e);
}

/* KILL to every process of the box, through the agent, so that output and artifacts are still read;
 * the box itself follows if that does not end it. */
void task_kill_inside(struct task *task, int64_t now)
{
	struct err e = ERR_INIT;

	task->term_deadline_us = 0;
	task->run_deadline_us = 0;
	task->kill_deadline_us = now + KILL_WAIT_US;
	if (!task->agent_open || signal_command(task, TAG_KILL, SIGKILL, &e) != 0)
		task_destroy(task);
	else
		task_agent_watch(task);
}

void task_cancel(struct task *task)
{
	int64_t now = clock_monotonic_us();
	struct err e = ERR_INIT;

	/* it has ended by itself: only the reading of its artifacts can be cut short */
	if (task->state == TASK_COLLECTING && task->exited)
		task_conclude(task);
	if (task->stop != STOP_NONE || task->exited || task->unclaimed)
		return; /* or the wish is read again */
	log_event(LOG_INFO, "run_canceling", "req=%s run=%s", task->claim.request_id,
		  task->claim.run_id);
	if (task->state != TASK_RUNNING) {
		task_stop(task, STOP_CANCEL);
		return;
	}
	task->stop = STOP_CANCEL;
	task->term_deadline_us = now + task->spec.cancel_grace_ms * CLOCK_US_PER_MS;
	if (signal_command(task, TAG_TERM, SIGTERM, &e) != 0)
		task_destroy(task);
	else
		task_agent_watch(task);
}
