/* What follows when a run's spool has grown, or cannot. */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"

void task_output_changed(struct task *task)
{
	int64_t now = clock_monotonic_us();

	if (now - task->last_notice_us >= NOTICE_GAP_US) {
		(void)notify_send(&task->sup->to_gate, "run", task->claim.run_id, NOTICE_OUTPUT);
		task->last_notice_us = now;
		task->notice_us = 0;
	} else if (task->notice_us == 0) {
		task->notice_us = task->last_notice_us + NOTICE_GAP_US;
	}
}

void task_store_broke(struct task *task, const struct err *e)
{
	if (!task->store_failed)
		log_err(LOG_ERROR, "spool", e, "req=%s run=%s", task->claim.request_id,
			task->claim.run_id);
	task->store_failed = true;
	task_destroy(task);
}
