/*
 * What clients type into interactive runs: from the gate's connections (core/input.h) through the
 * limits (typing.h) to the agent.
 *
 * A record that cannot go on, because its command does not run yet or has not taken what came
 * before, stays with its connection, which is not read until then: the gate notices that its socket
 * is full. Limits are judged when a record goes on. For runs that are not interactive, and commands
 * that have ended or closed their input, bytes are dropped.
 */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/input.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define RECORDS_A_TURN 16
#define TOLD_MAX       1000 /* truncated records of one run's input: its log stays bounded */
#define GONE_US        CLOCK_US_PER_S

struct input_conn {
	int fd; /* -1: free */
	bool held;
	struct typing_frame frame;
	struct input_record *record; /* mem, while one is held */
};

struct inputs {
	int listen_fd;
	size_t held;
	int64_t gone_us; /* when held connections are looked at for peers that left */
	size_t room;
	struct input_record record; /* scratch */
	struct input_conn conns[];
};

/* --- a run's input ---------------------------------------------------------------------------- */

void input_begin(struct task *task, uint64_t taken)
{
	const struct run_spec *spec = &task->spec;
	struct typing_limits limits = {.max_bytes = spec->stdin_max_bytes,
				       .max_frame_bytes = spec->stdin_max_frame_bytes,
				       .bytes_per_second = spec->stdin_bytes_per_second,
				       .idle_sec = spec->stdin_idle_timeout_sec};

	if (!spec->interactive)
		return;
	typing_begin(&task->typing, &limits, taken, clock_monotonic_us());
	buf_init(&task->typed, INPUT_BYTES + 1);
	task->typing_on = true;
}

void input_end(struct task *task)
{
	task->typing_on = false;
	buf_release(&task->typed);
}

static void tell(struct task *task, const char *reason)
{
	struct err e = ERR_INIT;

	if (task->typing_told >= TOLD_MAX)
		return;
	task->typing_told++;
	if (output_truncated(&task->output, reason, &e) != 0)
		task_store_broke(task, &e);
	else
		task_output_changed(task);
}

/* Gives the agent what it has room for. */
static void forward(struct task *task)
{
	struct err e = ERR_INIT;
	ssize_t taken;

	if (task->typed.len == 0 || !task->agent_open)
		return;
	taken =
	    agent_stdin(&task->agent, task->channel, task->typed.data, task->typed.len, false, &e);
	if (taken < 0) {
		/* it was never promised to arrive */
		log_err(LOG_WARNING, "input", &e, "run=%s", task->claim.run_id);
		buf_reset(&task->typed);
		return;
	}
	buf_consume(&task->typed, (size_t)taken);
	task_agent_watch(task);
}

void input_taken(struct task *task)
{
	if (task->typing_on)
		forward(task);
}

/* --- records ---------------------------------------------------------------------------------- */

/* False: not now. */
static bool go_on(struct supervisor *sup, struct input_conn *conn,
		  const struct input_record *record)
{
	struct task *task = task_find(sup, record->run_id);
	const char *reason;
	size_t length;

	if (task == NULL || task->state < TASK_RUNNING)
		return false;
	if (!task->typing_on || task->state != TASK_RUNNING || task->exited)
		return true;
	if (task->typed.len > 0)
		return false;
	if (record->first)
		conn->frame = (struct typing_frame){.taken = 0};
	length = typing_judge(&task->typing, &conn->frame, record->length, clock_monotonic_us(),
			      &reason);
	buf_add(&task->typed, record->bytes, length);
	forward(task);
	if (reason != NULL)
		tell(task, reason);
	return true;
}

static void close_conn(struct inputs *in, struct input_conn *conn)
{
	if (conn->held)
		in->held--;
	conn->held = false;
	mem_free(conn->record);
	conn->record = NULL;
	/* closing takes it out of the epoll set */
	fd_close_at(&conn->fd);
}

static bool watch(struct supervisor *sup, struct input_conn *conn)
{
	struct epoll_event want = {.events = EPOLLIN, .data.ptr = conn};

	return epoll_ctl(sup->epoll_fd, EPOLL_CTL_ADD, conn->fd, &want) == 0;
}

/* Keeps the record and stops reading. Out of the epoll set, because a hang-up is always told. */
static void hold(struct supervisor *sup, struct input_conn *conn)
{
	conn->record = mem_zalloc(1, sizeof(*conn->record));
	if (conn->record == NULL) {
		close_conn(sup->inputs, conn);
		return;
	}
	*conn->record = sup->inputs->record;
	conn->held = true;
	sup->inputs->held++;
	(void)epoll_ctl(sup->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
}

static void read_some(struct supervisor *sup, struct input_conn *conn)
{
	for (int i = 0; i < RECORDS_A_TURN; i++) {
		struct err e = ERR_INIT;
		int got = input_receive(conn->fd, &sup->inputs->record, &e);

		if (got == 0)
			return;
		if (got < 0) {
			if (e.code == ERR_PROTOCOL)
				log_err(LOG_WARNING, "input", &e, "%s", "");
			close_conn(sup->inputs, conn);
			return;
		}
		if (!go_on(sup, conn, &sup->inputs->record)) {
			hold(sup, conn);
			return;
		}
	}
}

static void resume(struct supervisor *sup, struct input_conn *conn)
{
	mem_free(conn->record);
	conn->record = NULL;
	conn->held = false;
	sup->inputs->held--;
	if (!watch(sup, conn))
		close_conn(sup->inputs, conn);
}

/* The client left before its run was there to take the bytes. */
static bool is_gone(const struct supervisor *sup, const struct input_conn *conn)
{
	struct pollfd look = {.fd = conn->fd};

	return poll(&look, 1, 0) == 1 && (look.revents & (POLLHUP | POLLERR)) != 0 &&
	       task_find(sup, conn->record->run_id) == NULL;
}

void inputs_tick(struct supervisor *sup, int64_t now_us)
{
	struct inputs *in = sup->inputs;
	bool look = now_us >= in->gone_us;

	for (struct task *t = sup->tasks; t != NULL; t = t->next)
		if (t->typing_on && t->state == TASK_RUNNING && !t->exited &&
		    typing_is_idle(&t->typing, now_us))
			tell(t, "stdin_idle");
	for (size_t i = 0; in->held > 0 && i < in->room; i++) {
		struct input_conn *conn = &in->conns[i];

		if (!conn->held)
			continue;
		if (go_on(sup, conn, conn->record))
			resume(sup, conn);
		else if (look && is_gone(sup, conn))
			close_conn(in, conn);
	}
	if (look)
		in->gone_us = now_us + GONE_US;
}

int64_t inputs_due_us(const struct supervisor *sup)
{
	int64_t due = INT64_MAX;

	for (const struct task *t = sup->tasks; t != NULL; t = t->next)
		if (t->typing_on && t->state == TASK_RUNNING && t->typing.idle_at_us < due)
			due = t->typing.idle_at_us;
	return due;
}

/* --- connections ------------------------------------------------------------------------------ */

static void accept_some(struct supervisor *sup)
{
	struct inputs *in = sup->inputs;

	for (;;) {
		size_t i = 0;
		int fd = accept4(in->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		while (i < in->room && in->conns[i].fd >= 0)
			i++;
		if (i == in->room) {
			/* the gate tries again */
			(void)close(fd);
			continue;
		}
		in->conns[i].fd = fd;
		if (!watch(sup, &in->conns[i]))
			close_conn(in, &in->conns[i]);
	}
}

bool inputs_ready(struct supervisor *sup, void *mark)
{
	struct inputs *in = sup->inputs;
	struct input_conn *conn;

	if (mark == in) {
		accept_some(sup);
		return true;
	}
	if ((uintptr_t)mark < (uintptr_t)in->conns ||
	    (uintptr_t)mark >= (uintptr_t)(in->conns + in->room))
		return false;
	conn = mark;
	if (conn->fd >= 0 && !conn->held)
		read_some(sup, conn);
	return true;
}

int inputs_start(struct supervisor *sup, struct err *e)
{
	size_t room = (size_t)sup->policy->gate.ws_max_total;
	struct epoll_event want = {.events = EPOLLIN};

	sup->inputs = mem_zalloc(1, sizeof(*sup->inputs) + room * sizeof(sup->inputs->conns[0]));
	if (sup->inputs == NULL)
		return err_set(e, ERR_NOMEM, 0, "inputs");
	sup->inputs->room = room;
	for (size_t i = 0; i < room; i++)
		sup->inputs->conns[i].fd = -1;
	want.data.ptr = sup->inputs;
	sup->inputs->listen_fd = input_listen(sup->policy->paths.run, e);
	if (sup->inputs->listen_fd < 0)
		return -1;
	if (epoll_ctl(sup->epoll_fd, EPOLL_CTL_ADD, sup->inputs->listen_fd, &want) != 0)
		return err_set(e, ERR_IO, errno, "epoll_ctl");
	return 0;
}

void inputs_free(struct supervisor *sup)
{
	if (sup->inputs == NULL)
		return;
	for (size_t i = 0; i < sup->inputs->room; i++)
		close_conn(sup->inputs, &sup->inputs->conns[i]);
	fd_close_at(&sup->inputs->listen_fd);
	mem_free(sup->inputs);
	sup->inputs = NULL;
}
