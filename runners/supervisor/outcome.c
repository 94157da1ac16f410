/* What a run's end is called: phase, message, exit code, usage (face 1's decisions on outcomes).
 * Blame is kept apart: what the command did is `finished`, what we failed to do is `failed`. */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

#define MIB (1024 * 1024)

static void set(struct run_result *r, enum run_phase phase, bool ours, const char *message)
{
	r->phase = phase;
	r->ours = ours;
	(void)snprintf(r->message, sizeof(r->message), "%s", message);
}

static void set_exit(struct run_result *r, int64_t code)
{
	r->has_exit = true;
	r->exit_code = code;
}

static bool out_of_memory(const struct task *task)
{
	return task->exec_oom_kills > 0 || (task->has_stats && task->stats.oom_kills > 0);
}

/* The command ended by itself, or by a signal that was not ours. */
static void judge_exit(const struct task *task, struct run_result *r)
{
	const struct agent_exit *x = &task->exit;
	char text[64];
	const char *name;

	if (x->how == AGENT_SIGNALED) {
		if (x->code == SIGKILL && out_of_memory(task)) {
			set(r, RUN_KILLED, false, "out_of_memory");
		} else {
			name = sigabbrev_np(x->code);
			if (name != NULL)
				(void)snprintf(text, sizeof(text), "signal=SIG%s", name);
			else
				(void)snprintf(text, sizeof(text), "signal=%d", (int)x->code);
			set(r, RUN_KILLED, false, text);
		}
		set_exit(r, 128 + x->code);
		return;
	}
	if (x->how == AGENT_NOT_STARTED && x->stage == AGENT_STAGE_CHDIR) {
		/* only a command in a sandbox can name a folder */
		set(r, RUN_FAILED, false, "cwd_failed");
		set_exit(r, x->code);
		return;
	}
	if (x->how == AGENT_NOT_STARTED && x->code != 126 && x->code != 127) {
		set(r, RUN_FAILED, true, "namespace_failed");
		return;
	}
	(void)snprintf(text, sizeof(text), "exit=%d", (int)x->code);
	set(r, x->code == 0 ? RUN_COMPLETED : RUN_FAILED, false, text);
	set_exit(r, x->code);
}

static void judge(const struct task *task, struct run_result *r)
{
	switch (task->stop) {
	case STOP_CANCEL:
		set(r, RUN_KILLED, false, "canceled_by_user");
		return;
	case STOP_STARTUP:
		set(r, RUN_TIMED_OUT, false, "startup_timeout");
		return;
	case STOP_TIMEOUT:
		set(r, RUN_TIMED_OUT, false, "execution_timeout");
		return;
	case STOP_IMAGE:
		set(r, RUN_FAILED, true, "runtime_provisioning_image");
		return;
	case STOP_BACKEND:
		set(r, RUN_FAILED, true, "namespace_failed");
		return;
	case STOP_SANDBOX:
		set(r, RUN_FAILED, false, "sandbox_not_running");
		return;
	case STOP_BUSY:
		set(r, RUN_FAILED, false, "sandbox_busy");
		return;
	case STOP_FULL:
		set(r, RUN_FAILED, false, "sandbox_full");
		return;
	case STOP_LOST:
	case STOP_NONE:
		break;
	}
	if (task->exited && !task->store_failed) {
		judge_exit(task, r);
	} else if (task->store_failed) {
		set(r, RUN_FAILED, true, "namespace_failed");
	} else if (out_of_memory(task)) {
		/* the box as a whole fell to its memory limit */
		set(r, RUN_KILLED, false, "out_of_memory");
		set_exit(r, 128 + SIGKILL);
	} else if (task->claim.kind == JOB_EXEC &&
		   sandbox_live(task->sup, task->spec.sandbox) == NULL) {
		/* the sandbox was stopped beneath it */
		set(r, RUN_KILLED, false, "sandbox_stopped");
		set_exit(r, 128 + SIGKILL);
	} else {
		set(r, RUN_FAILED, true, "box_lost");
	}
}

static void put(json_t *usage, const char *name, int64_t value, int *bad)
{
	*bad |= json_object_set_new(usage, name, json_integer((json_int_t)value));
}

static void put_if(json_t *usage, const char *name, int64_t value, int *bad)
{
	if (value > 0)
		put(usage, name, value, bad);
}

static void put_artifacts(json_t *usage, const struct task *task, int *bad)
{
	const struct collection *c = &task->collection;
	int64_t skipped = c->skip_file_limit + c->skip_total_limit + c->skip_symlink +
			  c->skip_invalid + c->skip_read_error;

	if (task->spec.pattern_count == 0)
		return;
	put(usage, "artifact_files_collected", (int64_t)c->done_count, bad);
	put(usage, "artifact_bytes_collected", (int64_t)c->done_bytes, bad);
	if (skipped == 0)
		return;
	put(usage, "artifact_files_skipped", skipped, bad);
	put_if(usage, "artifact_skip_file_limit", c->skip_file_limit, bad);
	put_if(usage, "artifact_skip_total_limit", c->skip_total_limit, bad);
	put_if(usage, "artifact_skip_symlink", c->skip_symlink, bad);
	put_if(usage, "artifact_skip_invalid", c->skip_invalid, bad);
	put_if(usage, "artifact_skip_read_error", c->skip_read_error, bad);
	if (c->skip_file_limit > 0)
		put(usage, "artifact_limit_file_bytes", task->spec.artifact_file_bytes, bad);
	if (c->skip_total_limit > 0)
		put(usage, "artifact_limit_total_bytes", task->spec.artifact_run_bytes, bad);
}

static char *usage_text(const struct task *task)
{
	scope_json json_t *usage = json_object();
	const struct box_stats *s = &task->stats;
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	/* a command in a sandbox has no box to be counted by: its own processes then */
	bool own = task->claim.kind == JOB_EXEC;
	uint64_t cpu_us = own ? task->exit.user_us + task->exit.system_us : s->cpu_us;
	uint64_t peak_bytes = own ? task->exit.maxrss_kib * 1024 : s->memory_peak_bytes;
	int bad = 0;

	put(usage, "cpu_time_sec", (int64_t)(cpu_us / CLOCK_US_PER_S), &bad);
	put(usage, "cpu_time_ms", (int64_t)(cpu_us / CLOCK_US_PER_MS), &bad);
	put(usage, "wall_time_sec", (int64_t)(task->exit.wall_us / CLOCK_US_PER_S), &bad);
	put(usage, "wall_time_ms", (int64_t)(task->exit.wall_us / CLOCK_US_PER_MS), &bad);
	put(usage, "peak_rss_mb", (int64_t)((peak_bytes + MIB - 1) / MIB), &bad);
	put(usage, "log_bytes", (int64_t)task->output.kept_bytes, &bad);
	put(usage, "artifact_bytes", (int64_t)task->collection.done_bytes, &bad);
	put_if(usage, "oom_kills", (int64_t)(own ? task->exec_oom_kills : s->oom_kills), &bad);
	put_if(usage, "pids_limit_hits", (int64_t)s->pids_limit_hits, &bad);
	if (task->output.truncated) {
		put(usage, "log_truncated", 1, &bad);
		put(usage, "log_limit_bytes", task->spec.log_bytes, &bad);
		put(usage, "log_bytes_observed", (int64_t)task->output.seen_bytes, &bad);
	}
	put_artifacts(usage, task, &bad);
	buf_init(&text, 2047);
	if (bad != 0 || json_write(&text, usage, &e) != 0)
		return NULL;
	return buf_steal(&text, NULL);
}

struct run_result *outcome_make(struct task *task)
{
	struct run_result *r = mem_zalloc(1, sizeof(*r));
	size_t used;

	if (r == NULL)
		return NULL;
	r->claim = task->claim;
	r->trace = task->trace;
	judge(task, r);
	used = strlen(r->message);
	if (task->has_stats && task->stats.pids_limit_hits > 0 && !r->ours)
		(void)snprintf(r->message + used, sizeof(r->message) - used,
			       " (pids limit %lld reached)", (long long)task->spec.pids);
	r->usage = usage_text(task);
	r->last_seq = task->output.spool.last_seq;
	r->log_bytes = task->output.kept_bytes;
	r->artifacts = task->collection.done;
	r->artifact_count = task->collection.done_count;
	r->artifact_bytes = task->collection.done_bytes;
	task->collection.done = NULL;
	task->collection.done_count = 0;
	return r;
}
