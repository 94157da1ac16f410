/*
 * One run from its claim to its result: box, inputs, command, output, artifacts, end. A state
 * machine driven by replies of cordon-box, events of the agent and the clock; nothing here waits.
 *
 * The phase `starting` was committed with the claim, before anything of this file happens, and a
 * command is started by exactly one EXEC: a run that was started is never started again.
 */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <errno.h>
#include <sys/epoll.h>

#define WHAT_CREATE        0U
#define WHAT_DESTROY       1U
#define WHAT_STATS         2U
#define STATS_MS           2000U
#define DESTROY_MS         20000U
#define CREATE_DEADLINE_MS 30000U

static bool hand_over(struct task *task);

/* --- the agent's socket in the loop
 * ------------------------------------------------------------------------------ */

void agent_watch(int epoll_fd, int fd, bool writes, void *mark, int *registered_fd,
		 bool *registered_writes)
{
	struct epoll_event want = {.events = EPOLLIN | (writes ? (uint32_t)EPOLLOUT : 0U),
				   .data.ptr = mark};

	if (fd == *registered_fd && writes == *registered_writes)
		return;
	if (fd < 0) {
		/* closing took it out of the epoll set */
		*registered_fd = -1;
		return;
	}
	(void)epoll_ctl(epoll_fd, fd == *registered_fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &want);
	*registered_fd = fd;
	*registered_writes = writes;
}

void task_agent_watch(struct task *task)
{
	int fd = task->agent_open ? agent_fd(&task->agent) : -1;

	agent_watch(task->sup->epoll_fd, fd, fd >= 0 && agent_wants_write(&task->agent), task,
		    &task->agent_registered_fd, &task->agent_writes);
}

static void agent_drop(struct task *task)
{
	if (!task->agent_open)
		return;
	agent_release(&task->agent);
	task->agent_open = false;
	task_agent_watch(task);
}

/* --- events of the agent
 * ----------------------------------------------------------------------------------------- */

static void on_started(void *ctx, uint32_t channel, uint32_t pid)
{
	struct task *task = ctx;
	int64_t now = clock_monotonic_us();
	struct err e = ERR_INIT;

	(void)pid;
	if (channel != task->channel || task->state != TASK_STARTING)
		return;
	task->state = TASK_RUNNING;
	trace_mark_at(&task->trace, TRACE_STARTED, now);
	task->started = true;
	if (output_start(&task->output, now, &e) != 0) {
		task_store_broke(task, &e);
		return;
	}
	task->run_deadline_us =
	    task->output.spool.start.monotonic_us + task->spec.timeout_ms * CLOCK_US_PER_MS;
	task_output_changed(task);
	input_begin(task, 0);
	jobs_running(task->sup->jobs, &task->claim, task->spec.interactive);
}

static void on_input(void *ctx, uint32_t channel, uint64_t offset, bool closed)
{
	struct task *task = ctx;

	(void)offset;
	(void)closed;
	if (channel == task->channel)
		input_taken(task);
}

static void on_output(void *ctx, uint32_t channel, enum agent_stream stream, uint64_t offset,
		      const void *data, size_t length)
{
	struct task *task = ctx;
	bool changed = false;
	struct err e = ERR_INIT;

	if (channel != task->channel || task->store_failed)
		return;
	if (output_bytes(&task->output, stream == AGENT_STREAM_OUT ? 0 : 1, data, length,
			 clock_monotonic_us(), &changed, &e) != 0) {
		task_store_broke(task, &e);
		return;
	}
	if (changed)
		task_output_changed(task);
	/* a tail that waits for the rest of its character is not safe yet */
	(void)agent_ack(&task->agent, channel, stream,
			offset + length -
			    output_waiting(&task->output, stream == AGENT_STREAM_OUT ? 0 : 1),
			&e);
}

static void on_exited(void *ctx, uint32_t channel, const struct agent_exit *status)
{
	struct task *task = ctx;
	bool changed = false;
	struct err e = ERR_INIT;

	if (channel != task->channel || task->exited ||
	    (task->state != TASK_STARTING && task->state != TASK_RUNNING))
		return;
	trace_mark(&task->trace, TRACE_EXITED);
	task->exited = true;
	task->exit = *status;
	task->kill_deadline_us = 0;
	task->term_deadline_us = 0;
	if ((!task->started && output_start(&task->output, clock_monotonic_us(), &e) != 0) ||
	    output_tick(&task->output, clock_monotonic_us(), true, &changed, &e) != 0) {
		task_store_broke(task, &e);
		return;
	}
	trace_mark(&task->trace, TRACE_DRAINED);
	task->output.heartbeat_us = 0;
	/* The status stays with the agent until the box goes: a runner that comes after us finds it
	 * there. */
	if (task->spec.pattern_count > 0 && status->how != AGENT_NOT_STARTED)
		collect_begin(task);
	else
		task_conclude(task);
}

static void on_entry(void *ctx, uint32_t tag, const struct agent_entry *entry)
{
	(void)tag;
	collect_entry(ctx, entry);
}

static void on_data(void *ctx, uint32_t tag, uint64_t offset, const void *data, size_t length)
{
	(void)tag;
	(void)offset;
	collect_data(ctx, data, length);
}

static void on_result(void *ctx, uint32_t tag, const uint64_t values[AGENT_RESULT_VALUES])
{
	collect_result(ctx, tag, values);
}

static void on_error(void *ctx, uint32_t tag, const struct agent_error *error)
{
	struct task *task = ctx;

	if (task->state == TASK_STARTING) {
		/* an input or EXEC was refused: a full workspace is the command's own limit, all
		 * else ours */
		log_event(LOG_WARNING, "start_refused", "req=%s run=%s tag=%u error=\"%s\"",
			  task->claim.request_id, task->claim.run_id, tag, error->text);
		task_stop(task, task->claim.kind != JOB_EXEC || error->code != ERR_LIMIT
				    ? STOP_BACKEND
				: error->sys == EAGAIN ? STOP_FULL
						       : STOP_BUSY);
		return;
	}
	collect_error(task, tag, error);
}

static void on_welcome(void *ctx, const struct agent_welcome *welcome)
{
	struct task *task = ctx;

	if (task->state == TASK_ATTACHING)
		adopt_welcome(task, welcome);
}

static const struct agent_events agent_events = {.welcome = on_welcome,
						 .started = on_started,
						 .output = on_output,
						 .exited = on_exited,
						 .input = on_input,
						 .entry = on_entry,
						 .data = on_data,
						 .result = on_result,
						 .error = on_error};

/* --- begin
 * -------------------------------------------------------------------------------------------------------
 */

static struct task *task_new(struct supervisor *sup, const struct claim *claim)
{
	struct task *task = mem_zalloc(1, sizeof(*task));

	if (task == NULL)
		return NULL;
	task->sup = sup;
	task->serial = ++sup->next_serial;
	task->claim = *claim;
	task->channel = exec_channel(claim);
	task->agent_registered_fd = -1;
	task->collection.fd = -1;
	task->output.spool.fd = -1;
	spec_init(&task->spec);
	task->next = sup->tasks;
	sup->tasks = task;
	sup->task_count++;
	return task;
}

/* A box for a run, or the sandbox's for a command in one. */
void task_send_create(struct task *task)
{
	struct box_limits limits = {.memory_bytes = (uint64_t)task->spec.memory_bytes,
				    .workspace_bytes = (uint64_t)task->spec.workspace_bytes,
				    .workspace_inodes = (uint64_t)task->spec.workspace_inodes,
				    .tmp_bytes = (uint64_t)task->spec.tmp_bytes,
				    .pids = (uint32_t)task->spec.pids,
				    .cpu_millis = (uint32_t)task->spec.cpu_milli};
	struct box_wish wish = {.run_id = task->claim.run_id,
				.image = task->spec.image,
				.limits = &limits,
				.fresh_net = task->spec.fresh_network,
				.deadline_ms = CREATE_DEADLINE_MS};
	bool in_session = task->spec.session != NULL && task->spec.session[0] != '\0';
	struct err e = ERR_INIT;

	if (task->claim.kind == JOB_EXEC) {
		exec_begin(task);
		return;
	}
	if (!task->sup->box_open)
		return;
	if (in_session && !session_gives(task, &wish, &limits))
		return;
	trace_mark(&task->trace, TRACE_BOX_ASKED);
	if (boxclient_make(&task->sup->box, task->serial * 4 + WHAT_CREATE, &wish, &e) == 0)
		task->state = TASK_CREATING;
	else
		log_err(LOG_WARNING, "box_create", &e, "run=%s", task->claim.run_id);
}

struct task *task_enter(struct supervisor *sup, struct jobs_event *event)
{
	struct task *task = task_new(sup, &event->claim);
	struct err e = ERR_INIT;

	if (task == NULL) {
		mem_free(event->spec);
		log_event(LOG_ERROR, "claim_dropped", "run=%s reason=memory", event->claim.run_id);
		return NULL;
	}
	task->other_boot = event->other_boot;
	task->trace = event->trace;
	if (spec_decode(event->spec, event->spec_length, &task->spec, &e) != 0) {
		log_err(LOG_ERROR, "run_begin", &e, "req=%s run=%s", task->claim.request_id,
			task->claim.run_id);
		mem_free(event->spec);
		task->stop = STOP_BACKEND;
		task_finish(task);
		return NULL;
	}
	mem_free(event->spec);
	return task;
}

int task_open_output(struct task *task)
{
	const struct policy *policy = task->sup->policy;
	struct err e = ERR_INIT;

	if (output_open(&task->output, policy->paths.data, task->claim.run_id,
			(uint64_t)task->spec.log_bytes, policy->gate.heartbeat_ms * CLOCK_US_PER_MS,
			&e) != 0) {
		log_err(LOG_ERROR, "run_begin", &e, "req=%s run=%s", task->claim.request_id,
			task->claim.run_id);
		return -1;
	}
	task->output_open = true;
	return 0;
}

void task_begin(struct supervisor *sup, struct jobs_event *event)
{
	struct task *task;

	log_event(LOG_INFO, "run_claimed", "req=%s run=%s", event->claim.request_id,
		  event->claim.run_id);
	task = task_enter(sup, event);
	if (task == NULL)
		return;
	task->state = TASK_WANTS_BOX;
	task->startup_deadline_us =
	    clock_monotonic_us() + task->spec.startup_timeout_ms * CLOCK_US_PER_MS;
	/* the box is made, or the command started, while the log is opened: nothing of it is read
	 * before the loop's next turn */
	task_send_create(task);
	if (task->state != TASK_DONE && task_open_output(task) != 0)
		task_stop(task, STOP_BACKEND);
}

int task_open_agent(struct task *task, const char *path, struct err *e)
{
	agent_init(&task->agent, &agent_events, task, 1);
	task->agent_open = true;
	return agent_connect(&task->agent, path, e);
}

static int start_command(struct task *task, const char *agent_path, struct err *e)
{
	if (task_open_agent(task, agent_path, e) != 0)
		return -1;
	return task_send_command(task, e);
}

/* --- replies of cordon-box
 * --------------------------------------------------------------------------------------- */

static void created(struct task *task, const struct box_reply *reply)
{
	struct err e = ERR_INIT;

	if (reply->code == BOX_ERR_BUSY) {
		task->state = TASK_WANTS_BOX;
		task->retry_us = clock_monotonic_us() + BUSY_AGAIN_US;
		return;
	}
	if (reply->code != BOX_OK && task->unclaimed) {
		/* asked again, and told, when the claim is there */
		task->state = TASK_WANTS_BOX;
		task->retry_us = clock_monotonic_us() + BUSY_AGAIN_US;
		return;
	}
	if (reply->code != BOX_OK) {
		log_event(LOG_ERROR, "box_create", "req=%s run=%s code=%s errno=%d text=\"%s\"",
			  task->claim.request_id, task->claim.run_id,
			  box_code_name((enum box_code)reply->code), reply->sys, reply->text);
		if (task->stop == STOP_NONE)
			task->stop = reply->code == BOX_ERR_UNSUPPORTED ? STOP_IMAGE
				     : reply->code == BOX_ERR_TIMEOUT   ? STOP_STARTUP
									: STOP_BACKEND;
		task_finish(task);
		return;
	}
	trace_mark(&task->trace, reply->warm != 0 ? TRACE_BOX_WARM : TRACE_BOX_COLD);
	task->has_box = true;
	task->slot = reply->slot;
	if (task->stop != STOP_NONE) {
		/* it was canceled or timed out while the box was made */
		task_destroy(task);
		return;
	}
	if (task->unclaimed) {
		task->state = TASK_BOXED;
		if (task_open_agent(task, reply->agent_path, &e) != 0)
			task_destroy(task);
		else
			task_agent_watch(task);
		return;
	}
	if (start_command(task, reply->agent_path, &e) != 0) {
		log_err(LOG_ERROR, "start", &e, "req=%s run=%s", task->claim.request_id,
			task->claim.run_id);
		/* there will be no further reply to find the stop */
		task->stop = STOP_BACKEND;
		task_destroy(task);
	}
}

/* The end of a command in a sandbox; the agent forgets it when the database has it. */
static void save_exec(struct task *task)
{
	if (task->exited && !task->store_failed && hand_over(task))
		task->state = TASK_SAVING;
	else
		task_finish(task);
}

/* The usage is known: the result goes to the database, and the box when that is done. */
static void counted(struct task *task, const struct box_reply *reply)
{
	struct err e = ERR_INIT;

	if (reply->code != BOX_OK) {
		task_destroy(task);
		return;
	}
	trace_mark(&task->trace, TRACE_COUNTED);
	if (!task->has_box) {
		exec_blame_memory(task, reply);
		save_exec(task);
		return;
	}
	task->stats = reply->stats;
	task->has_stats = true;
	/* what the command left running ends now, not when the database has answered */
	if (reply->stats.pids > 1)
		(void)agent_signal_all(&task->agent, TAG_KILL, SIGKILL, &e);
	task->state = TASK_SAVING;
	if (hand_over(task))
		task_agent_watch(task);
	else
		task_destroy(task);
}

void task_saved(struct task *task, const struct trace *trace)
{
	if (task->state != TASK_SAVING)
		return;
	trace_mark_at(&task->trace, TRACE_END_COMMITTED, trace->at_us[TRACE_END_COMMITTED]);
	if (task->has_box)
		task_destroy(task);
	else
		exec_saved(task);
}

void task_tell_trace(struct supervisor *sup, const char *run_id, const struct trace *trace)
{
	char part[TRACE_PART_BYTES];

	if (trace->at_us[TRACE_END_COMMITTED] != 0 &&
	    trace_encode(trace, TRACE_END_COMMITTED, TRACE_BOX_DESTROYED, part))
		trace_mail_add(&sup->mail, &sup->to_gate, run_id, part);
}

void task_box_reply(struct task *task, unsigned int what, const struct box_reply *reply)
{
	if (what == WHAT_CREATE && task->state == TASK_CREATING) {
		created(task, reply);
	} else if (what == WHAT_STATS && task->state == TASK_COUNTING) {
		counted(task, reply);
	} else if (what == WHAT_DESTROY && task->state == TASK_DESTROYING) {
		trace_mark(&task->trace, TRACE_BOX_DESTROYED);
		if (reply->code == BOX_OK) {
			task->stats = reply->stats;
			task->has_stats = true;
		} else if (reply->code != BOX_ERR_NOT_FOUND) {
			/* cordon-box goes on trying; the run is over all the same */
			log_event(LOG_ERROR, "box_destroy", "run=%s code=%s text=\"%s\"",
				  task->claim.run_id, box_code_name((enum box_code)reply->code),
				  reply->text);
		}
		task_finish(task);
	}
}

void task_box_died(struct task *task)
{
	/* what the agent sent before its end was read or is still in the socket: read it first */
	if (task->agent_open && task->state != TASK_DESTROYING)
		task_agent_ready(task);
	if (task->state == TASK_ATTACHING || task->state == TASK_STARTING ||
	    task->state == TASK_RUNNING || task->state == TASK_COLLECTING ||
	    task->state == TASK_COUNTING || task->state == TASK_BOXED)
		task_destroy(task);
}

void task_box_again(struct task *task)
{
	switch (task->state) {
	case TASK_WANTS_BOX:
		task_send_create(task);
		return;
	case TASK_CREATING:
		/* nobody knows what became of it: cordon-box has cleared away what it had */
		task_send_create(task);
		return;
	case TASK_DESTROYING:
		task_destroy(task);
		return;
	case TASK_ADOPTING:
	case TASK_ATTACHING:
	case TASK_BOXED:
	case TASK_STARTING:
	case TASK_RUNNING:
	case TASK_COLLECTING:
	case TASK_SAVING:
	case TASK_DONE:
		return;
	case TASK_COUNTING:
		/* the answer got lost with the connection */
		task_destroy(task);
		return;
	}
}

void task_agent_ready(struct task *task)
{
	struct err e = ERR_INIT;

	if (!task->agent_open)
		return;
	if (agent_ready(&task->agent, &e) == 0) {
		/* the events may have ended it */
		if (task->agent_open)
			task_agent_watch(task);
		return;
	}
	task_agent_watch(task);
	if (task->state == TASK_ATTACHING || task->state == TASK_BOXED ||
	    task->state == TASK_STARTING || task->state == TASK_RUNNING ||
	    task->state == TASK_COLLECTING) {
		if (e.code == ERR_PROTOCOL)
			log_err(LOG_WARNING, "agent", &e, "run=%s", task->claim.run_id);
		task_destroy(task);
	}
}

/* --- the end
 * -----------------------------------------------------------------------------------------------------
 */

/* What is known before the box goes; the usage of the box is missing in it. */
static void save_result(struct task *task)
{
	struct run_result *result = outcome_make(task);
	struct err e = ERR_INIT;

	if (result == NULL || result_save(task->sup->policy, result, &e) != 0)
		log_err(LOG_WARNING, "result_save", &e, "run=%s", task->claim.run_id);
	if (result == NULL)
		return;
	trace_mark(&task->trace, TRACE_RESULT_SAVED);
	/* the list of artifacts goes on with the task */
	task->collection.done = result->artifacts;
	task->collection.done_count = result->artifact_count;
	result->artifacts = NULL;
	result->artifact_count = 0;
	run_result_free(result);
}

/* Nothing more comes from the box: tails are written, deadlines are over. */
static void close_run(struct task *task)
{
	struct err e = ERR_INIT;
	bool changed = false;

	collect_end(task);
	if (task->output_open && !task->store_failed)
		(void)output_tick(&task->output, clock_monotonic_us(), true, &changed, &e);
	task->output.heartbeat_us = 0;
	task->collect_deadline_us = 0;
	task->kill_deadline_us = 0;
	task->term_deadline_us = 0;
	task->run_deadline_us = 0;
}

void task_conclude(struct task *task)
{
	struct err e = ERR_INIT;

	if (task->state == TASK_COLLECTING)
		trace_mark(&task->trace, TRACE_COLLECTED);
	close_run(task);
	if (!task->has_box && !exec_asks_usage(task)) {
		save_exec(task);
		return;
	}
	if (task->exited && !task->store_failed && task->agent_open && task->sup->box_open &&
	    boxclient_verb(&task->sup->box, BOX_STATS, task->serial * 4 + WHAT_STATS, task->slot,
			   task->has_box ? task->claim.run_id : task->spec.sandbox, STATS_MS,
			   &e) == 0) {
		task->state = TASK_COUNTING;
		task->count_deadline_us = clock_monotonic_us() + STATS_MS * CLOCK_US_PER_MS;
		return;
	}
	task_destroy(task);
}

void task_destroy(struct task *task)
{
	struct err e = ERR_INIT;

	if (task->state == TASK_DONE)
		return;
	close_run(task);
	if (!task->has_box) {
		task_finish(task);
		return;
	}
	/* until the database has it the result is on disk, because the box's own memory of it ends
	 * here */
	if (task->state != TASK_DESTROYING && !task->handed && !task->unclaimed)
		save_result(task);
	task->state = TASK_DESTROYING;
	if (task->sup->box_open &&
	    boxclient_destroy(&task->sup->box, task->serial * 4 + WHAT_DESTROY, task->slot,
			      task->claim.run_id, DESTROY_MS, &e) != 0)
		log_err(LOG_ERROR, "box_destroy", &e, "run=%s", task->claim.run_id);
}

/* The result to the SQL thread; false when memory is short. */
static bool hand_over(struct task *task)
{
	struct run_result *result;
	struct err e = ERR_INIT;

	if (task->output_open)
		output_close(&task->output);
	task->output_open = false;
	result = outcome_make(task);
	if (result != NULL && task->exited)
		result->result = exec_result(task);
	if (result == NULL)
		log_event(LOG_ERROR, "end_lost", "run=%s reason=memory", task->claim.run_id);
	else
		jobs_end(task->sup->jobs, result);
	task->handed = true;
	if (task->spec.blob_bytes > 0)
		(void)spool_remove(task->sup->policy->paths.data, "staging", task->claim.run_id,
				   &e);
	return result != NULL;
}

/* The task itself is freed by the loop, because callers above still hold it. */
void task_finish(struct task *task)
{
	if (task->state == TASK_DONE)
		return;
	task->state = TASK_DONE;
	agent_drop(task);
	if (task->unclaimed)
		return; /* it is not ours to end */
	if (!task->handed)
		(void)hand_over(task);
	else
		task_tell_trace(task->sup, task->claim.run_id, &task->trace);
}

void task_stop(struct task *task, enum task_stop why)
{
	if (task->stop == STOP_NONE)
		task->stop = why;
	switch (task->state) {
	case TASK_WANTS_BOX:
		task_finish(task);
		return;
	case TASK_ADOPTING:
	case TASK_CREATING:
		/* the list or the reply will find the stop */
		return;
	case TASK_ATTACHING:
	case TASK_BOXED:
	case TASK_STARTING:
	case TASK_RUNNING:
	case TASK_COLLECTING:
		task_destroy(task);
		return;
	case TASK_COUNTING:
	case TASK_SAVING:
	case TASK_DESTROYING:
	case TASK_DONE:
		return;
	}
}

/* --- time
 * --------------------------------------------------------------------------------------------------------
 */

static void check_deadlines(struct task *task, int64_t now)
{
	bool before_run =
	    !task->unclaimed && (task->state == TASK_WANTS_BOX || task->state == TASK_CREATING ||
				 task->state == TASK_ATTACHING || task->state == TASK_STARTING);

	if (before_run && now >= task->startup_deadline_us)
		task_stop(task, STOP_STARTUP);
	else if (task->state == TASK_WANTS_BOX && task->retry_us != 0 && now >= task->retry_us)
		task_send_create(task);
	else if (task->state == TASK_RUNNING && task->run_deadline_us != 0 &&
		 now >= task->run_deadline_us) {
		if (task->stop == STOP_NONE)
			task->stop = STOP_TIMEOUT;
		task_kill_inside(task, now);
	} else if (task->state == TASK_RUNNING && task->term_deadline_us != 0 &&
		   now >= task->term_deadline_us)
		task_kill_inside(task, now);
	else if (task->state == TASK_RUNNING && task->kill_deadline_us != 0 &&
		 now >= task->kill_deadline_us)
		task_destroy(task);
	else if (task->state == TASK_COLLECTING && now >= task->collect_deadline_us)
		task_conclude(task);
	else if (task->state == TASK_COUNTING && now >= task->count_deadline_us)
		task_destroy(task);
}

void task_tick(struct task *task, int64_t now_us)
{
	bool changed = false;
	struct err e = ERR_INIT;

	check_deadlines(task, now_us);
	if (task->state == TASK_RUNNING && output_due_us(&task->output) <= now_us) {
		if (output_tick(&task->output, now_us, false, &changed, &e) != 0)
			task_store_broke(task, &e);
		else if (changed)
			task_output_changed(task);
	}
	if (task->notice_us != 0 && now_us >= task->notice_us) {
		task->notice_us = 0;
		task->last_notice_us = now_us;
		(void)notify_send(&task->sup->to_gate, "run", task->claim.run_id, NOTICE_OUTPUT);
	}
}

static int64_t earlier(int64_t a, int64_t b)
{
	return b != 0 && b < a ? b : a;
}

int64_t task_due_us(const struct task *task)
{
	int64_t due = INT64_MAX;

	switch (task->state) {
	case TASK_WANTS_BOX:
		due = earlier(task->startup_deadline_us, task->retry_us);
		break;
	case TASK_STARTING:
		due = task->startup_deadline_us;
		break;
	case TASK_CREATING:
		due = task->stop == STOP_NONE ? task->startup_deadline_us : INT64_MAX;
		break;
	case TASK_RUNNING:
		due = earlier(output_due_us(&task->output), task->run_deadline_us);
		due = earlier(due, task->term_deadline_us);
		due = earlier(due, task->kill_deadline_us);
		break;
	case TASK_COLLECTING:
		due = task->collect_deadline_us;
		break;
	case TASK_ATTACHING:
		due = task->startup_deadline_us;
		break;
	case TASK_COUNTING:
		due = task->count_deadline_us;
		break;
	case TASK_ADOPTING:
	case TASK_BOXED:
	case TASK_SAVING:
	case TASK_DESTROYING:
	case TASK_DONE:
		break;
	}
	return earlier(due, task->notice_us);
}

void task_free(struct task *task)
{
	agent_drop(task);
	if (task->output_open)
		output_close(&task->output);
	collect_release(&task->collection);
	input_end(task);
	spec_release(&task->spec);
	mem_free(task);
}
