#include "runners/init/server.h"
#include "runners/init/unpack.h"

#include "runners/base/ksys.h"
#include "runners/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define ERROR_FD     3
#define KEEP_FD      4
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static int report_fd;
static int ruleset_fd = -1;

void command_fail(int stage)
{
	struct command_failure failure = {.stage = stage, .sys = errno};

	(void)!write(report_fd, &failure, sizeof(failure));
	_exit(127);
}

/* The commands go first when memory ends. Needs a dumpable process: /proc/self of another belongs
 * to the host's root. Failure is harmless (no /proc in a plain agent's root). */
static void prefer_for_oom(void)
{
	int fd;

	(void)prctl(PR_SET_DUMPABLE, 1);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!write(fd, "1000", 4);
		(void)close(fd);
	}
}

static int limit(__rlimit_resource_t resource, uint64_t value)
{
	struct rlimit now;

	if (getrlimit(resource, &now) != 0)
		return -1;
	if (now.rlim_max != RLIM_INFINITY && value > now.rlim_max)
		value = now.rlim_max;
	now.rlim_cur = value;
	now.rlim_max = value;
	return setrlimit(resource, &now);
}

static int apply_limits(const struct agent_exec *spec)
{
	if (spec->nofile != 0 && limit(RLIMIT_NOFILE, spec->nofile) != 0)
		return -1;
	if (spec->nproc != 0 && limit(RLIMIT_NPROC, spec->nproc) != 0)
		return -1;
	/* 1 for none: a core_pattern that is a pipe would start its program with 0 too (core(5)) */
	return limit(RLIMIT_CORE, spec->core_bytes == 0 ? 1 : spec->core_bytes);
}

static int become_user(uint32_t uid, uint32_t gid)
{
	if (geteuid() != 0 && uid == geteuid())
		return 0; /* a plain agent that is no root: it can only be itself */
	if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 ||
	    setresuid(uid, uid, uid) != 0)
		return -1;
	if (ksys_capset(0, 0) != 0)
		return -1;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static const char *path_of(char *const *env)
{
	for (; *env != NULL; env++) {
		const char *value = str_after(*env, "PATH=");

		if (value != NULL)
			return value;
	}
	return DEFAULT_PATH;
}

/* execve along PATH, as execvpe does but without a shell for files that are no program. */
static void search_and_exec(const struct agent_exec *spec)
{
	const char *name = spec->argv[0];
	const char *path = path_of(spec->env);
	int reason = ENOENT;

	if (name[0] == '\0' || strchr(name, '/') != NULL) {
		(void)execve(name, spec->argv, spec->env);
		return;
	}
	for (;;) {
		size_t length = strcspn(path, ":");
		char whole[4096];
		int used = snprintf(whole, sizeof(whole), "%.*s%s%s", (int)length, path,
				    length == 0 ? "" : "/", name);

		if (used > 0 && (size_t)used < sizeof(whole)) {
			(void)execve(whole, spec->argv, spec->env);
			if (errno == EACCES)
				reason = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR)
				return;
		}
		if (path[length] == '\0')
			break;
		path += length + 1;
	}
	errno = reason;
}

void command_use_ruleset(int fd)
{
	if (fd <= KEEP_FD)
		_exit(76); /* no command without its fence */
	ruleset_fd = fd;
}

void command_enter(const int fds[3], int error_fd, int *keep)
{
	struct sigaction standard = {.sa_handler = SIG_DFL};
	sigset_t none;

	report_fd = error_fd;
	(void)sigaction(SIGPIPE, &standard, NULL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (setsid() < 0)
		command_fail(AGENT_STAGE_SESSION);
	for (int i = 0; i < 3; i++)
		if (dup2(fds[i], i) < 0)
			command_fail(AGENT_STAGE_FDS);
	/* may be in the place of the other */
	if (keep != NULL && (*keep = fcntl(*keep, F_DUPFD_CLOEXEC, KEEP_FD + 1)) < 0)
		command_fail(AGENT_STAGE_FDS);
	if (error_fd != ERROR_FD && dup3(error_fd, ERROR_FD, O_CLOEXEC) < 0)
		command_fail(AGENT_STAGE_FDS);
	report_fd = ERROR_FD;
	if (keep != NULL && dup3(*keep, KEEP_FD, O_CLOEXEC) < 0)
		command_fail(AGENT_STAGE_FDS);
	if (keep != NULL)
		*keep = KEEP_FD;
	prefer_for_oom();
	(void)umask(022);
	if (ruleset_fd >= 0 && syscall(SYS_landlock_restrict_self, ruleset_fd, 0) != 0)
		command_fail(AGENT_STAGE_IDENTITY);
	if (close_range(keep != NULL ? KEEP_FD + 1 : ERROR_FD + 1, ~0U, 0) != 0)
		command_fail(AGENT_STAGE_FDS);
}

void command_take_user(uint32_t uid, uint32_t gid)
{
	if (become_user(uid, gid) != 0)
		command_fail(AGENT_STAGE_IDENTITY);
}

void command_exec(const struct agent_exec *spec)
{
	if (apply_limits(spec) != 0)
		command_fail(AGENT_STAGE_LIMITS);
	if (chdir(spec->cwd) != 0)
		command_fail(AGENT_STAGE_CHDIR);
	if (spec->unpack) {
		(void)close(ERROR_FD); /* it runs */
		_exit(unpack_main(spec->argv));
	}
	search_and_exec(spec);
	command_fail(AGENT_STAGE_EXEC);
}

void command_become(const struct agent_exec *spec, const int fds[3], int error_fd)
{
	command_enter(fds, error_fd, NULL);
	if (spec->pty != 0 && ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0)
		command_fail(AGENT_STAGE_SESSION);
	command_take_user(spec->uid, spec->gid);
	command_exec(spec);
}
