#include "runners/init/server.h"

#include "runners/base/clock.h"
#include "runners/base/err.h"
#include "runners/base/fdio.h"
#include "runners/base/zygoteproto.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MAX_POLL (3 + SERVER_MAX_CONNS + 4 * AGENT_MAX_CHANNELS)

/* What a poll entry stands for. */
enum role {
	ROLE_SIGNAL,
	ROLE_LISTENER,
	ROLE_CONTROL,
	ROLE_CONN,
	ROLE_OUT,
	ROLE_ERR,
	ROLE_IN,
	ROLE_ERROR_PIPE
};

struct watch {
	enum role role;
	unsigned int index;
};

struct poll_set {
	struct pollfd fds[MAX_POLL];
	struct watch watches[MAX_POLL];
	nfds_t count;
};

static struct server server;
static struct poll_set poll_set;

static void watch(struct poll_set *p, int fd, int events, enum role role, unsigned int index)
{
	if (fd < 0 || p->count >= MAX_POLL)
		return;
	p->fds[p->count] = (struct pollfd){.fd = fd, .events = (short)events};
	p->watches[p->count] = (struct watch){.role = role, .index = index};
	p->count++;
}

static void watch_channel(struct poll_set *p, const struct channel *ch, unsigned int index)
{
	if (ch->state == CHANNEL_FREE)
		return;
	watch(p, ch->error_fd, POLLIN, ROLE_ERROR_PIPE, index);
	if (channel_wants_output(ch, 0))
		watch(p, ch->out[0].fd, POLLIN, ROLE_OUT, index);
	if (channel_wants_output(ch, 1))
		watch(p, ch->out[1].fd, POLLIN, ROLE_ERR, index);
	/* without events: POLLERR tells that the reader is gone */
	watch(p, ch->in_fd, channel_wants_to_write(ch) ? POLLOUT : 0, ROLE_IN, index);
}

static void watch_all(struct server *s, struct poll_set *p)
{
	p->count = 0;
	watch(p, s->signal_fd, POLLIN, ROLE_SIGNAL, 0);
	watch(p, s->listener, POLLIN, ROLE_LISTENER, 0);
	watch(p, s->control, POLLIN, ROLE_CONTROL, 0);
	for (unsigned int i = 0; i < SERVER_MAX_CONNS; i++) {
		const struct conn *c = &s->conns[i];
		int events = conn_pending(c) > 0 ? POLLOUT : 0;

		if (conn_has_room(c))
			events |= POLLIN;
		watch(p, c->fd, events, ROLE_CONN, i);
	}
	for (unsigned int i = 0; i < AGENT_MAX_CHANNELS; i++)
		watch_channel(p, &s->channels[i], i);
}

static void accept_clients(struct server *s)
{
	for (;;) {
		int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0)
			return;
		conn_open(s, fd);
	}
}

/* Another file system is at /workspace now: what was made for the first one is made anew. */
static void take_workspace(struct server *s)
{
	stub_drop(s);
	fd_close_at(&s->workspace);
	s->workspace = open(s->workspace_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->workspace < 0 || landlock_use() != 0)
		_exit(70);
	if (s->stub_uid != 0 && !s->maintain)
		stub_start(s, s->stub_uid);
}

/* ASSIGN, or the end of a box that nobody wanted. */
static void read_control(struct server *s)
{
	struct zygote_assign assign;
	ssize_t got;

	do
		got = recv(s->control, &assign, sizeof(assign), MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		return;
	if (got != (ssize_t)sizeof(assign) || assign.version != ZYGOTE_VERSION ||
	    assign.verb != ZYGOTE_ASSIGN)
		_exit(0);
	(void)prctl(PR_SET_PDEATHSIG, 0);
	fd_close_at(&s->control);
	s->maintain = (assign.flags & ZYGOTE_MAINTAIN) != 0;
	if ((assign.flags & ZYGOTE_WORKSPACE) != 0)
		take_workspace(s);
}

static void reap(struct server *s)
{
	struct signalfd_siginfo info[8];
	struct rusage usage;
	int status;
	pid_t pid;

	ssize_t got;

	while ((got = read(s->signal_fd, info, sizeof(info))) > 0)
		for (size_t i = 0; i < (size_t)got / sizeof(info[0]); i++)
			if (info[i].ssi_signo == SIGTERM && s->control >= 0)
				read_control(s); /* cordon-box died; an ASSIGN may wait there */
	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
		if (stub_died(s, pid))
			continue;
		for (int i = 0; i < AGENT_MAX_CHANNELS; i++) {
			struct channel *ch = &s->channels[i];

			if (ch->state != CHANNEL_FREE && !ch->reaped && ch->pid == pid)
				channel_reaped(ch, status, &usage);
		}
	}
}

static void handle_conn(struct server *s, struct conn *c, int events)
{
	if (c->fd < 0)
		return;
	if ((events & POLLOUT) != 0)
		conn_flush(c);
	if ((events & (POLLIN | POLLHUP | POLLERR)) != 0)
		conn_read(s, c);
}

static void handle(struct server *s, const struct watch *w, int events)
{
	struct channel *ch = &s->channels[w->index % AGENT_MAX_CHANNELS];

	switch (w->role) {
	case ROLE_SIGNAL:
		reap(s);
		break;
	case ROLE_LISTENER:
		accept_clients(s);
		break;
	case ROLE_CONTROL:
		read_control(s);
		break;
	case ROLE_CONN:
		handle_conn(s, &s->conns[w->index % SERVER_MAX_CONNS], events);
		break;
	case ROLE_OUT:
		channel_read(ch, 0);
		break;
	case ROLE_ERR:
		channel_read(ch, 1);
		break;
	case ROLE_IN:
		channel_stdin_event(ch, (events & POLLERR) != 0);
		break;
	case ROLE_ERROR_PIPE:
		channel_read_error(ch);
		break;
	}
}

/* Turns of all channels and connections; true when something can go on at once. */
static bool take_turns(struct server *s)
{
	int64_t now = clock_monotonic_us();
	bool more = false;

	for (int i = 0; i < AGENT_MAX_CHANNELS; i++)
		if (s->channels[i].state != CHANNEL_FREE)
			channel_turn(&s->channels[i], now);
	task_turn(s);
	for (int i = 0; i < SERVER_MAX_CONNS; i++) {
		struct conn *c = &s->conns[i];
		bool full;

		if (c->fd < 0)
			continue;
		conn_turn(s, c);
		file_turn(c);
		full = !conn_has_room(c);
		conn_flush(c);
		/* what waited for room gets no event when all of it went at once */
		more |= full && conn_has_room(c);
		if (c->broken || !buf_ok(&c->out))
			conn_close(s, c);
	}
	return more || task_waits(s);
}

/* Milliseconds until the next drain deadline, -1 for none. */
static int next_timeout(const struct server *s)
{
	int64_t next = INT64_MAX;
	int64_t now;

	for (int i = 0; i < AGENT_MAX_CHANNELS; i++)
		if (s->channels[i].state == CHANNEL_DRAINING &&
		    s->channels[i].drain_until_us < next)
			next = s->channels[i].drain_until_us;
	if (next == INT64_MAX)
		return -1;
	now = clock_monotonic_us();
	return next <= now ? 0 : (int)((next - now) / CLOCK_US_PER_MS + 1);
}

static void prepare(struct server *s, int listener, int control, const char *workspace)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct err e = ERR_INIT;
	sigset_t set;

	s->listener = listener;
	s->control = control;
	s->stub = (struct stub){.socket = -1, .in = -1, .out = {-1, -1}, .error = -1};
	s->is_init = getpid() == 1;
	s->born_us = clock_monotonic_us();
	for (int i = 0; i < SERVER_MAX_CONNS; i++)
		s->conns[i].fd = -1;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	if (control >= 0) {
		/* Not SIGKILL any more: what cordon-box assigned before it died must live. Here the
		 * signal wakes, and the control socket decides. */
		(void)sigaddset(&set, SIGTERM);
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	}
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)sigaction(SIGPIPE, &ignore, NULL);
	(void)umask(0);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	s->workspace_path = workspace;
	s->workspace = open(workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->signal_fd < 0 || s->workspace < 0 || fd_set_nonblock(listener, true, &e) != 0)
		_exit(70);
	if (!s->is_init)
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void server_run(int listener, int control, const char *workspace, uint32_t stub_uid)
{
	struct server *s = &server;
	struct poll_set *p = &poll_set;
	bool more = false;

	prepare(s, listener, control, workspace);
	s->stub_uid = stub_uid;
	if (stub_uid != 0)
		stub_start(s, stub_uid);
	for (;;) {
		watch_all(s, p);
		if (poll(p->fds, p->count, more ? 0 : next_timeout(s)) < 0 && errno != EINTR)
			_exit(71);
		for (nfds_t i = 0; i < p->count; i++)
			if (p->fds[i].revents != 0)
				handle(s, &p->watches[i], p->fds[i].revents);
		more = take_turns(s);
	}
}
