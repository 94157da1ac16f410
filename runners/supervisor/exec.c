/*
 * A command in a sandbox: a run without a box of its own. It has a connection to the agent of the
 * sandbox's box for itself, and a channel number made from the run's id, so that an EXEC that is
 * sent again never runs twice. The agent keeps the status until the database has the end.
 */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

#define WAIT_US      (50 * CLOCK_US_PER_MS)
#define ID_DIGITS    8
#define CHANNEL_MASK 0x7FFFFFFFU /* the gate's are above */

uint32_t exec_channel(const struct claim *claim)
{
	size_t length = strlen(claim->run_id);
	unsigned char bytes[4];
	uint32_t number;

	if (claim->kind != JOB_EXEC)
		return EXEC_CHANNEL;
	if (length < ID_DIGITS ||
	    str_unhex(bytes, sizeof(bytes), claim->run_id + length - ID_DIGITS) != 0)
		return EXEC_CHANNEL;
	number = ((uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
		  bytes[3]) &
		 CHANNEL_MASK;
	return number == 0 ? EXEC_CHANNEL : number;
}

/* In that sandbox, the one that asks included. */
static unsigned int count_commands(const struct supervisor *sup, const char *sandbox)
{
	unsigned int count = 0;

	for (const struct task *t = sup->tasks; t != NULL; t = t->next)
		if (t->claim.kind == JOB_EXEC && t->state != TASK_DONE &&
		    str_equal(t->spec.sandbox, sandbox))
			count++;
	return count;
}

void exec_begin(struct task *task)
{
	const struct sandbox *s = sandbox_live(task->sup, task->spec.sandbox);
	struct err e = ERR_INIT;

	if (!task->sup->boxes_known) {
		task->state = TASK_WANTS_BOX;
		task->retry_us = clock_monotonic_us() + WAIT_US;
		return;
	}
	if (s == NULL) {
		task->stop = STOP_SANDBOX;
		task_finish(task);
		return;
	}
	if (count_commands(task->sup, s->id) > SANDBOX_COMMANDS) {
		task->stop = STOP_BUSY;
		task_finish(task);
		return;
	}
	task->slot = s->slot;
	if (task_open_agent(task, s->agent_path, &e) == 0 && task_send_command(task, &e) == 0)
		return;
	log_err(LOG_ERROR, "exec", &e, "req=%s run=%s", task->claim.request_id, task->claim.run_id);
	task->stop = STOP_BACKEND;
	task_finish(task);
}

bool exec_adopt(struct task *task)
{
	const struct sandbox *s = sandbox_live(task->sup, task->spec.sandbox);
	struct err e = ERR_INIT;

	if (s == NULL)
		return false;
	task->slot = s->slot;
	task->startup_deadline_us =
	    clock_monotonic_us() + task->spec.startup_timeout_ms * CLOCK_US_PER_MS;
	task->state = TASK_ATTACHING;
	if (task_open_agent(task, s->agent_path, &e) == 0) {
		task_agent_watch(task);
		return true;
	}
	log_err(LOG_WARNING, "exec_adopt", &e, "run=%s", task->claim.run_id);
	return false;
}

void exec_saved(struct task *task)
{
	struct err e = ERR_INIT;

	/* the agent may forget it; one that is gone has nothing to forget */
	if (task->agent_open && agent_ack_exit(&task->agent, task->channel, &e) == 0)
		(void)agent_ready(&task->agent, &e);
	task_finish(task);
}

bool exec_asks_usage(const struct task *task)
{
	if (task->stop != STOP_NONE || !task->exited)
		return false;
	if (task->exit.how == AGENT_EXITED)
		return task->exit.code == 128 + SIGKILL; /* a shell tells so of its child */
	return task->exit.how == AGENT_SIGNALED && task->exit.code == SIGKILL;
}

void exec_blame_memory(struct task *task, const struct box_reply *reply)
{
	struct sandbox *s = sandbox_find(task->sup, task->spec.sandbox);

	if (s == NULL)
		return;
	if (reply->stats.oom_kills > s->oom_kills)
		task->exec_oom_kills = reply->stats.oom_kills - s->oom_kills;
	s->oom_kills = reply->stats.oom_kills;
}

/* --- the answer's output --------------------------------------------------------------------- */

struct kept {
	struct buf bytes;
	bool cut;
};

static void keep(struct kept *k, const void *data, size_t length, size_t most)
{
	size_t room = most - k->bytes.len;

	if (length > room) {
		k->cut = true;
		length = room;
	}
	buf_add(&k->bytes, data, length);
}

/* Text for JSON: what is no UTF-8 becomes U+FFFD. A character cut by the limit is left out. */
static json_t *text_of(const struct kept *k)
{
	scope_buf struct buf out = BUF_NONE;
	const char *data = buf_text(&k->bytes);
	size_t at = 0;

	buf_init(&out, k->bytes.len * 3 + 16);
	while (at < k->bytes.len) {
		bool bad = false;
		size_t good = str_utf8_prefix(data + at, k->bytes.len - at, &bad);
		/* jansson refuses NUL in text that we parse again */
		const char *nul = memchr(data + at, '\0', good);

		if (nul != NULL)
			good = (size_t)(nul - (data + at));
		buf_add(&out, data + at, good);
		at += good;
		if (at == k->bytes.len || (!bad && nul == NULL && k->cut))
			break;
		buf_add_str(&out, "\xEF\xBF\xBD");
		at++;
	}
	return buf_ok(&out) ? json_stringn(buf_text(&out), out.len) : NULL;
}

char *exec_result(struct task *task)
{
	struct kept kept[2] = {{.cut = false}, {.cut = false}};
	size_t most = (size_t)task->spec.result_bytes;
	scope_json json_t *root = NULL;
	scope_buf struct buf text = BUF_NONE;
	struct spool_reader reader;
	struct spool_record record;
	struct err e = ERR_INIT;
	int got = -1;

	if (task->claim.kind != JOB_EXEC)
		return NULL;
	for (int i = 0; i < 2; i++)
		buf_init(&kept[i].bytes, most + 1);
	if (spool_open(&reader, task->sup->policy->paths.data, task->claim.run_id, &e) == 0) {
		while ((got = spool_next(&reader, &record, &e)) == 1)
			if (record.kind == SPOOL_STDOUT || record.kind == SPOOL_STDERR)
				keep(&kept[record.kind == SPOOL_STDERR ? 1 : 0], record.bytes,
				     record.length, most);
		spool_reader_close(&reader);
	}
	root = json_pack(
	    "{s:o, s:o, s:b, s:b, s:I}", "stdout", text_of(&kept[0]), "stderr", text_of(&kept[1]),
	    "stdout_truncated", kept[0].cut || task->output.truncated, "stderr_truncated",
	    kept[1].cut || task->output.truncated, "duration_us", (json_int_t)task->exit.wall_us);
	buf_release(&kept[0].bytes);
	buf_release(&kept[1].bytes);
	buf_init(&text, most * 16 + 4096);
	if (got < 0)
		log_err(LOG_WARNING, "exec_result", &e, "run=%s", task->claim.run_id);
	if (root == NULL || json_write(&text, root, &e) != 0)
		return NULL;
	return buf_steal(&text, NULL);
}
