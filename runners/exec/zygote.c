/* The zygote process, from cordon-box's side. */
#include "runners/exec/daemon.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/proc.h"
#include "runners/exec/image.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SOCKET_FD    3
#define SOCKET_BYTES (1 << 20)
#define STEADY_US    (10 * CLOCK_US_PER_S)
#define RESTART_US   (1 * CLOCK_US_PER_S)

static __attribute__((noreturn)) void become_zygote(const struct daemon *d, int socket)
{
	static char name[] = "cordon-init";
	static char mode[] = "--zygote";
	static char option[] = "--fd";
	static char number[] = "3";
	char *const argv[] = {name, mode, option, number, NULL};
	char *const env[] = {NULL};
	struct err e = ERR_INIT;
	int init;
	int null;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* out of the way of the numbers that the zygote expects */
	init = fcntl(d->init_fd, F_DUPFD_CLOEXEC, 100);
	socket = fcntl(socket, F_DUPFD_CLOEXEC, 100);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (init < 0 || socket < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0) {
		(void)err_set(&e, ERR_IO, errno, "descriptors");
	} else if (image_host_enter(d->run_dir, d->config.usr_local != 0, &e) == 0) {
		if (dup2(socket, SOCKET_FD) == SOCKET_FD)
			(void)syscall(SYS_execveat, init, "", argv, env, AT_EMPTY_PATH);
		(void)err_set(&e, ERR_IO, errno, "exec of cordon-init");
	}
	log_err(LOG_ERROR, "zygote", &e, "%s", "");
	_exit(76);
}

static void on_reply(struct daemon *d, const struct zygote_reply *reply, int pidfd)
{
	if (reply->verb == ZYGOTE_CONFIGURE) {
		d->zygote.configured = reply->stage == ZYGOTE_DONE;
		d->zygote.idmap = (reply->flags & ZYGOTE_IDMAP) != 0;
		if (!d->zygote.configured)
			log_event(LOG_ERROR, "zygote", "configure failed stage=%s errno=%d",
				  zygote_stage_name(reply->stage), reply->sys);
		else if (!d->zygote.idmap)
			log_event(LOG_WARNING, "zygote",
				  "idmapped mounts are not possible here: files of the image show "
				  "as nobody's");
		else if ((reply->flags & ZYGOTE_IDMAP_USR) != 0)
			log_event(LOG_INFO, "zygote",
				  "idmapped mounts are possible for /usr alone: other files of the "
				  "image show as nobody's");
		return;
	}
	if (reply->verb == ZYGOTE_NETNS) {
		if (reply->stage != ZYGOTE_DONE)
			log_event(LOG_WARNING, "zygote", "no network namespace errno=%d",
				  reply->sys);
		ring_add(d, pidfd);
		return;
	}
	box_zygote_reply(d, reply, pidfd);
}

static void died(struct daemon *d)
{
	int status = 0;

	watch_close(d, &d->zygote.watch);
	if (d->zygote.pid > 0) {
		(void)kill(d->zygote.pid, SIGKILL);
		(void)waitpid(d->zygote.pid, &status, 0);
	}
	log_event(LOG_ERROR, "zygote_crashed", "%s=%d", WIFSIGNALED(status) ? "signal" : "exit",
		  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	d->zygote.pid = 0;
	d->zygote.configured = false;
	d->ring.asked = false;
	/* at once, but not in a tight loop when it dies at its start */
	d->zygote.restart_us = clock_monotonic_us();
	if (d->zygote.restart_us - d->zygote.started_us < STEADY_US)
		d->zygote.restart_us += RESTART_US;
	box_zygote_died(d);
}

static void on_event(struct daemon *d, void *ctx, uint32_t events)
{
	(void)ctx;
	(void)events;
	for (;;) {
		struct zygote_reply reply;
		struct err e = ERR_INIT;
		int fd = -1;
		size_t count;
		ssize_t got =
		    fd_receive(d->zygote.watch.fd, &reply, sizeof(reply), &fd, 1, &count, &e);

		if (got < 0 && e.code == ERR_UNAVAILABLE)
			return;
		if (got != (ssize_t)sizeof(reply) || reply.version != ZYGOTE_VERSION) {
			if (got > 0 && count > 0)
				(void)close(fd);
			died(d);
			return;
		}
		on_reply(d, &reply, count > 0 ? fd : -1);
	}
}

static int configure(struct daemon *d, struct err *e)
{
	struct zygote_request request = {.version = ZYGOTE_VERSION, .verb = ZYGOTE_CONFIGURE};
	int fds[2] = {d->filter_fd, d->slots[0].userns};

	return zygote_send(d, &request, fds, 2, e);
}

int zygote_start(struct daemon *d, struct err *e)
{
	scope_close int ours = -1;
	scope_close int theirs = -1;
	int size = SOCKET_BYTES;
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return err_set(e, ERR_IO, errno, "socketpair");
	ours = pair[0];
	theirs = pair[1];
	(void)setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (fd_set_nonblock(ours, true, e) != 0)
		return -1;
	pid = proc_fork();
	if (pid < 0)
		return err_set(e, ERR_IO, errno, "fork");
	if (pid == 0)
		become_zygote(d, theirs);
	d->zygote.pid = pid;
	d->zygote.started_us = clock_monotonic_us();
	d->zygote.restart_us = 0;
	if (watch_open(d, &d->zygote.watch, ours, on_event, NULL, e) != 0)
		return -1;
	(void)fd_steal(&ours);
	return configure(d, e);
}

int zygote_wait(struct daemon *d, int64_t timeout_us, struct err *e)
{
	int64_t until = clock_monotonic_us() + timeout_us;

	while (!d->zygote.configured) {
		struct pollfd p = {.fd = d->zygote.watch.fd, .events = POLLIN};
		int64_t left = until - clock_monotonic_us();

		if (d->zygote.watch.fd < 0)
			return err_set(e, ERR_UNAVAILABLE, 0, "the zygote died at its start");
		if (left <= 0)
			return err_set(e, ERR_TIMEOUT, 0, "the zygote does not answer");
		if (poll(&p, 1, (int)(left / CLOCK_US_PER_MS) + 1) > 0)
			on_event(d, NULL, 0);
	}
	return 0;
}

int zygote_send(struct daemon *d, const struct zygote_request *request, const int *fds,
		size_t fd_count, struct err *e)
{
	if (d->zygote.watch.fd < 0)
		return err_set(e, ERR_UNAVAILABLE, 0, "the zygote is being started again");
	return fd_send(d->zygote.watch.fd, request, sizeof(*request), fds, fd_count, e) < 0 ? -1
											    : 0;
}

void zygote_turn(struct daemon *d, int64_t now_us)
{
	struct err e = ERR_INIT;

	if (d->zygote.restart_us == 0 || now_us < d->zygote.restart_us || d->stop_by_us != 0)
		return;
	if (zygote_start(d, &e) != 0) {
		log_err(LOG_ERROR, "zygote", &e, "%s", "");
		d->zygote.restart_us = now_us + RESTART_US;
	}
}

void zygote_stop(struct daemon *d)
{
	int status;

	watch_close(d, &d->zygote.watch);
	if (d->zygote.pid > 0) {
		(void)kill(d->zygote.pid, SIGKILL);
		(void)waitpid(d->zygote.pid, &status, 0);
		d->zygote.pid = 0;
	}
}
