/*
 * Going on with what an earlier runner of this node began. Its claims are ours already
 * (takeover.c). For each one: the box that still answers is taken over, with output from the last
 * byte in the spool and the time limit by the start that the spool holds; a run whose box is gone
 * has its saved result; one whose command was never sent goes back to the queue; any other is lost.
 */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"

static void hand_over(struct task *task, struct run_result *result)
{
	jobs_end(task->sup->jobs, result);
	task->handed = true;
	task->state = TASK_DONE;
}

void task_adopt(struct supervisor *sup, struct jobs_event *event)
{
	struct task *task;

	log_event(LOG_INFO, "run_adopting", "req=%s run=%s", event->claim.request_id,
		  event->claim.run_id);
	task = task_enter(sup, event);
	if (task == NULL)
		return;
	task->state = TASK_ADOPTING;
	if (task_open_output(task) != 0) {
		task->stop = STOP_BACKEND;
		task_finish(task);
	}
}

void adopt_box(struct task *task, const struct box_reply *entry)
{
	struct err e = ERR_INIT;

	task->has_box = true;
	task->slot = entry->slot;
	task->startup_deadline_us =
	    clock_monotonic_us() + task->spec.startup_timeout_ms * CLOCK_US_PER_MS;
	task->state = TASK_ATTACHING;
	if (task->stop == STOP_NONE && entry->state != BOX_DEAD && entry->state != BOX_ENDING &&
	    task_open_agent(task, entry->agent_path, &e) == 0) {
		task_agent_watch(task);
		return;
	}
	log_event(LOG_WARNING, "adopt_dead_box", "run=%s slot=%u error=\"%s\"", task->claim.run_id,
		  entry->slot, e.text);
	task_destroy(task);
}

static const struct agent_channel_info *find_channel(const struct agent_welcome *welcome,
						     uint32_t channel)
{
	for (uint32_t i = 0; i < welcome->count; i++)
		if (welcome->channels[i].channel == channel)
			return &welcome->channels[i];
	return NULL;
}

static int attach(struct task *task, const struct agent_channel_info *channel, struct err *e)
{
	uint64_t offsets[2];
	int64_t now = clock_monotonic_us();
	int64_t started_us;

	for (int i = 0; i < 2; i++) {
		/* past the cap bytes were acknowledged that the spool does not hold */
		offsets[i] =
		    task->output.truncated || task->output.spool.stream_bytes[i] < channel->base[i]
			? channel->base[i]
			: task->output.spool.stream_bytes[i];
	}
	if (output_start(&task->output, now, e) != 0)
		return -1;
	task->started = true;
	task->state = TASK_RUNNING;
	if (!spool_started_us(&task->output.spool, &started_us))
		started_us = now;
	task->run_deadline_us = started_us + task->spec.timeout_ms * CLOCK_US_PER_MS;
	log_event(LOG_INFO, "run_adopted", "req=%s run=%s seq=%llu", task->claim.request_id,
		  task->claim.run_id, (unsigned long long)task->output.spool.last_seq);
	jobs_running(task->sup->jobs, &task->claim, task->spec.interactive);
	if (agent_attach(&task->agent, task->channel, offsets[0], offsets[1], e) != 0)
		return -1;
	agent_resume_stdin(&task->agent, task->channel, channel->in_received);
	input_begin(task, channel->in_received);
	return 0;
}

void adopt_welcome(struct task *task, const struct agent_welcome *welcome)
{
	const struct agent_channel_info *channel = find_channel(welcome, task->channel);
	struct err e = ERR_INIT;
	int result;

	/* The agent keeps the status until the box goes, so a channel that it does not know was
	 * never started. */
	if (channel == NULL)
		result = task_send_command(task, &e);
	else
		result = attach(task, channel, &e);
	if (result != 0) {
		log_err(LOG_ERROR, "adopt", &e, "run=%s", task->claim.run_id);
		task_stop(task, STOP_BACKEND);
		return;
	}
	/* a wish that the earlier runner had not carried out */
	jobs_look_wishes(task->sup->jobs);
}

void adopt_settle(struct task *task)
{
	struct run_result *result = NULL;
	struct err e = ERR_INIT;
	int got;

	if (task->claim.kind == JOB_EXEC && task->stop == STOP_NONE && exec_adopt(task))
		return;
	got = result_load(task->sup->policy, &task->claim, &result, &e);
	if (got == 1) {
		hand_over(task, result);
		return;
	}
	if (got < 0)
		log_err(LOG_WARNING, "result_load", &e, "run=%s", task->claim.run_id);
	if (task->stop == STOP_NONE && !task->other_boot && !task->output.spool.has_start &&
	    !task_was_sent(task)) {
		result = mem_zalloc(1, sizeof(*result));
		if (result != NULL) {
			result->claim = task->claim;
			result->release = true;
			hand_over(task, result);
			return;
		}
	}
	if (task->stop == STOP_NONE)
		task->stop = STOP_LOST;
	task_finish(task);
}
