/*
 * The stub: a child of pid 1 that is a command already, but for its execve. It has its session, its
 * pipes, the command's user, no capability and (like all here) the filter; it waits on a socket for
 * the bytes of EXEC. There is one, for the first command of a box; later ones are forked. Whoever
 * sends to it was no command: nothing of the box's user runs before it.
 */
#include "runners/init/server.h"

#include "runners/base/fdio.h"
#include "runners/base/ksys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define TOUCHED_BYTES 16384

static char stub_bytes[STUB_MAX_BYTES];
static char *stub_pointers[AGENT_EXEC_POINTERS];

static __attribute__((noreturn)) void stub_main(const int fds[3], int error_fd, int socket,
						uint32_t uid)
{
	struct agent_exec spec;
	struct err e = ERR_INIT;
	uint32_t length;

	command_enter(fds, error_fd, &socket);
	command_take_user(uid, uid);
	/* the pages that it will need */
	memset(stub_bytes, 1, TOUCHED_BYTES);
	memset(stub_pointers, 1, sizeof(stub_pointers));
	if (fd_read_full(socket, &length, sizeof(length), &e) != 0 || length > STUB_MAX_BYTES ||
	    fd_read_full(socket, stub_bytes, length, &e) != 0)
		_exit(0);
	memset(stub_pointers, 0, sizeof(stub_pointers));
	if (agent_exec_parse(stub_bytes, length, stub_pointers, &spec, &e) != 0)
		command_fail(AGENT_STAGE_FDS);
	command_exec(&spec);
}

static int open_pair(int out[2], struct err *e)
{
	return pipe2(out, O_CLOEXEC) == 0 ? 0 : err_set(e, ERR_IO, errno, "pipe");
}

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		fd_close_at(&fds[i]);
}

void stub_start(struct server *s, uint32_t uid)
{
	/* in, out, err, error: read end, write end */
	int p[4][2] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	int pair[2] = {-1, -1};
	int theirs[3];
	struct stub *stub = &s->stub;
	struct err e = ERR_INIT;
	pid_t pid = -1;

	/* the pipes belong to the command, or it could not open /dev/stdout and /dev/stderr */
	if (ksys_fsid(uid, uid) != 0)
		return;
	for (int i = 0; i < 4; i++)
		if (open_pair(p[i], &e) != 0)
			break;
	if (ksys_fsid(0, 0) != 0)
		_exit(77); /* never go on as another */
	if (p[3][1] >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0)
		pid = fork();
	theirs[0] = p[0][0];
	theirs[1] = p[1][1];
	theirs[2] = p[2][1];
	if (pid == 0)
		stub_main(theirs, p[3][1], pair[1], uid);
	if (pid > 0) {
		*stub = (struct stub){.pid = pid,
				      .uid = uid,
				      .socket = fd_steal(&pair[0]),
				      .in = fd_steal(&p[0][1]),
				      .out = {fd_steal(&p[1][0]), fd_steal(&p[2][0])},
				      .error = fd_steal(&p[3][0])};
		if (fd_set_nonblock(stub->in, true, &e) != 0 ||
		    fd_set_nonblock(stub->out[0], true, &e) != 0 ||
		    fd_set_nonblock(stub->out[1], true, &e) != 0 ||
		    fd_set_nonblock(stub->error, true, &e) != 0)
			stub_drop(s);
	}
	/* without one commands are forked as they come */
	for (int i = 0; i < 4; i++)
		close_all(p[i], 2);
	close_all(pair, 2);
}

static void forget(struct stub *stub)
{
	fd_close_at(&stub->socket);
	fd_close_at(&stub->in);
	fd_close_at(&stub->error);
	close_all(stub->out, 2);
	stub->pid = 0;
}

void stub_drop(struct server *s)
{
	pid_t pid = s->stub.pid;

	if (pid <= 0)
		return;
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	forget(&s->stub);
}

bool stub_died(struct server *s, pid_t pid)
{
	if (s->stub.pid != pid || pid <= 0)
		return false;
	forget(&s->stub);
	return true;
}

bool stub_take(struct server *s, const struct agent_exec *spec, const char *bytes, size_t length,
	       struct channel *ch)
{
	struct stub *stub = &s->stub;
	uint32_t prefix = (uint32_t)length;
	struct err e = ERR_INIT;

	if (stub->pid <= 0)
		return false;
	/* it fits the socket's buffer, so nothing here waits */
	if (spec->pty != 0 || spec->unpack || spec->uid != stub->uid || spec->gid != stub->uid ||
	    length > STUB_MAX_BYTES ||
	    fd_write_full(stub->socket, &prefix, sizeof(prefix), &e) != 0 ||
	    fd_write_full(stub->socket, bytes, length, &e) != 0) {
		stub_drop(s);
		return false;
	}
	ch->pid = stub->pid;
	ch->in_fd = fd_steal(&stub->in);
	ch->out[0].fd = fd_steal(&stub->out[0]);
	ch->out[1].fd = fd_steal(&stub->out[1]);
	ch->error_fd = fd_steal(&stub->error);
	if (spec->stdin_mode == AGENT_STDIN_NONE)
		fd_close_at(&ch->in_fd);
	forget(stub);
	return true;
}
