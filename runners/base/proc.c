#include "runners/base/proc.h"

#include "runners/base/fdio.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

pid_t proc_fork(void)
{
	pid_t pid = fork();
	sigset_t none;

	if (pid != 0)
		return pid;
	for (int number = 1; number < NSIG; number++) {
		struct sigaction standard = {.sa_handler = SIG_DFL};

		(void)sigaction(number, &standard, NULL);
	}
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	return 0;
}

int proc_on_signal(int number, void (*handler)(int), struct err *e)
{
	struct sigaction action = {.sa_handler = handler == NULL ? SIG_IGN : handler};

	(void)sigemptyset(&action.sa_mask);
	if (sigaction(number, &action, NULL) != 0)
		return err_set(e, ERR_IO, errno, "sigaction %d", number);
	return 0;
}

static int place_fd(int fd, int target)
{
	scope_close int null_fd = -1;

	if (fd < 0 && target != STDIN_FILENO)
		return 0;
	if (fd < 0) {
		null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null_fd < 0)
			return -1;
		fd = null_fd;
	}
	if (fd == target)
		return fcntl(fd, F_SETFD, 0);
	return dup2(fd, target) < 0 ? -1 : 0;
}

static int become(const struct proc_options *options)
{
	if (options->gid != (gid_t)-1 &&
	    (setgroups(0, NULL) != 0 || setresgid(options->gid, options->gid, options->gid) != 0))
		return -1;
	if (options->uid != (uid_t)-1 && setresuid(options->uid, options->uid, options->uid) != 0)
		return -1;
	return 0;
}

/* In the child: never returns; the errno goes to the error pipe. */
static __attribute__((noreturn)) void child_run(const struct proc_options *options, int error_fd)
{
	int reason;

	if (options->new_session && setsid() < 0)
		goto failed;
	if (place_fd(options->stdin_fd, STDIN_FILENO) != 0 ||
	    place_fd(options->stdout_fd, STDOUT_FILENO) != 0 ||
	    place_fd(options->stderr_fd, STDERR_FILENO) != 0)
		goto failed;
	for (size_t i = 0; i < options->keep_count; i++)
		if (fcntl(options->keep_fds[i], F_SETFD, 0) != 0)
			goto failed;
	if (become(options) != 0)
		goto failed;
	/* after the change of ids, which clears it */
	if (options->die_with_parent && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		goto failed;
	(void)execve(options->program, options->argv,
		     options->environment == NULL ? environ : options->environment);
failed:
	reason = errno;
	(void)!write(error_fd, &reason, sizeof(reason));
	_exit(127);
}

int proc_spawn(const struct proc_options *options, pid_t *out_pid, struct err *e)
{
	scope_close int read_fd = -1;
	scope_close int write_fd = -1;
	int pair[2];
	int reason = 0;
	ssize_t got;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) != 0)
		return err_set(e, ERR_IO, errno, "pipe");
	read_fd = pair[0];
	write_fd = pair[1];
	pid = proc_fork();
	if (pid < 0)
		return err_set(e, ERR_IO, errno, "fork");
	if (pid == 0)
		child_run(options, write_fd);
	fd_close_at(&write_fd);
	do
		got = read(read_fd, &reason, sizeof(reason));
	while (got < 0 && errno == EINTR);
	if (got != 0) {
		int status;

		(void)proc_wait(pid, &status, e);
		return err_set(e, ERR_IO, reason, "cannot start %s", options->program);
	}
	*out_pid = pid;
	return 0;
}

int proc_wait(pid_t pid, int *out_status, struct err *e)
{
	pid_t got;

	do
		got = waitpid(pid, out_status, 0);
	while (got < 0 && errno == EINTR);
	if (got != pid)
		return err_set(e, ERR_IO, errno, "waitpid");
	return 0;
}

void proc_harden(void)
{
	struct err e = ERR_INIT;

	(void)prctl(PR_SET_DUMPABLE, 0);
	/* a host without the capability for it simply keeps 0 */
	(void)fd_write_value(AT_FDCWD, "/proc/self/oom_score_adj", "-500", &e);
}
