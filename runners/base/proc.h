/*
 * proc.h: starting programs. The only place that may call fork and exec (with runners/init and
 * runners/exec).
 *
 * proc_spawn tells exec failures apart from the program's own exit: the child writes its errno to a
 * close-on-exec pipe, and an end of file there means that exec worked.
 */
#ifndef CORDON_BASE_PROC_H
#define CORDON_BASE_PROC_H

#include "runners/base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct proc_options {
	const char *program;      /* path, no search in PATH */
	char *const *argv;        /* argv[0] included, NULL at the end */
	char *const *environment; /* NULL: this process's */
	int stdin_fd;             /* -1: /dev/null */
	int stdout_fd;            /* -1: inherited */
	int stderr_fd;            /* -1: inherited */
	const int *keep_fds;      /* further descriptors that stay open, same numbers */
	size_t keep_count;
	bool new_session;
	bool die_with_parent;
	uid_t uid; /* changed to when not (uid_t)-1, with gid and the user's groups emptied */
	gid_t gid;
};

#define PROC_OPTIONS_INIT                                                           \
	{                                                                           \
		.stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .uid = (uid_t)-1, \
		.gid = (gid_t)-1                                                    \
	}

int proc_spawn(const struct proc_options *options, pid_t *out_pid, struct err *e)
    __attribute__((warn_unused_result));

/* waitpid with EINTR repeated; *out_status as of waitpid. */
int proc_wait(pid_t pid, int *out_status, struct err *e);

/* fork, with the child's signal dispositions and mask set back to the default. Returns as fork. */
pid_t proc_fork(void);

/* Installs a handler without SA_RESTART (handler NULL: ignore). */
int proc_on_signal(int number, void (*handler)(int), struct err *e);

/* Non-dumpable, and oom_score_adj -500 where allowed. Called once by every program of ours. */
void proc_harden(void);

#endif
