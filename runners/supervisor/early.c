/*
 * The box of a run is made while its claim is being committed: both take about as long. Nothing
 * else happens before the claim is there but that its empty log is opened and its agent greeted: no
 * input, no command. A claim that does not succeed ends the box.
 */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"

bool task_is_early(const struct task *task)
{
	return task->unclaimed && (task->state == TASK_WANTS_BOX || task->state == TASK_CREATING ||
				   task->state == TASK_BOXED);
}

void task_early(struct supervisor *sup, struct jobs_event *event)
{
	struct task *task = task_enter(sup, event);

	if (task == NULL)
		return;
	task->unclaimed = true;
	task->state = TASK_WANTS_BOX;
	/* not judged before the claim is there */
	task->startup_deadline_us =
	    clock_monotonic_us() + task->spec.startup_timeout_ms * CLOCK_US_PER_MS;
	task_send_create(task);
	/* a log of nothing harms nobody; one that cannot be opened is told when the claim is there
	 */
	if (task->state != TASK_DONE)
		(void)task_open_output(task);
}

void task_unclaim(struct task *task)
{
	task->unclaimed = false;
	task->handed = true; /* there is no run of ours to end */
	task_stop(task, STOP_LOST);
}

void task_confirm(struct task *task, struct jobs_event *event)
{
	struct err e = ERR_INIT;
	int64_t asked_us = task->trace.at_us[TRACE_BOX_ASKED];
	int64_t warm_us = task->trace.at_us[TRACE_BOX_WARM];
	int64_t cold_us = task->trace.at_us[TRACE_BOX_COLD];

	log_event(LOG_INFO, "run_claimed", "req=%s run=%s", event->claim.request_id,
		  event->claim.run_id);
	mem_free(event->spec);
	task->unclaimed = false;
	task->claim = event->claim;
	task->trace = event->trace;
	trace_mark_at(&task->trace, TRACE_BOX_ASKED, asked_us);
	trace_mark_at(&task->trace, TRACE_BOX_WARM, warm_us);
	trace_mark_at(&task->trace, TRACE_BOX_COLD, cold_us);
	task->startup_deadline_us =
	    clock_monotonic_us() + task->spec.startup_timeout_ms * CLOCK_US_PER_MS;
	if (!task->output_open && task_open_output(task) != 0) {
		task_stop(task, STOP_BACKEND);
	} else if (task->state == TASK_BOXED && task_send_command(task, &e) != 0) {
		log_err(LOG_ERROR, "start", &e, "req=%s run=%s", task->claim.request_id,
			task->claim.run_id);
		task->stop = STOP_BACKEND;
		task_destroy(task);
	}
}
