/* test_base_os: fdio proc log state: what touches descriptors, processes and the log line. */
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/proc.h"
#include "runners/base/state.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* --- fdio ----------------------------------------------------------------------------------- */

static void test_files(void)
{
	scope_buf struct buf text;
	struct err e = ERR_INIT;
	const char *path = test_file("one", "old", 3);
	struct stat info;
	char other[600];

	buf_init(&text, 10);
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, path, "0123456789", 10, 0640, &e), 0);
	CU_ASSERT_EQUAL(stat(path, &info), 0);
	CU_ASSERT_EQUAL(info.st_mode & 07777, 0640);
	CU_ASSERT_EQUAL(fd_read_file(AT_FDCWD, path, &text, &e), 0);
	ASSERT_TEXT(buf_text(&text), "0123456789");
	/* it appends: no room is left */
	CU_ASSERT_EQUAL(fd_read_file(AT_FDCWD, path, &text, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	err_clear(&e);
	(void)snprintf(other, sizeof(other), "%s/missing", test_dir());
	CU_ASSERT_EQUAL(fd_read_file(AT_FDCWD, other, &text, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_NOT_FOUND);
	err_clear(&e);
	/* a target that cannot be replaced leaves no temporary file behind */
	CU_ASSERT_EQUAL(mkdir(other, 0700), 0);
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, other, "x", 1, 0600, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_IO);
	CU_ASSERT_EQUAL(rmdir(other), 0);
	err_clear(&e);
	CU_ASSERT_EQUAL(fd_write_value(AT_FDCWD, other, "1", &e), -1);
	CU_ASSERT_EQUAL(e.sys, ENOENT);
	CU_ASSERT_EQUAL(access(other, F_OK), -1);
	err_clear(&e);
	CU_ASSERT_EQUAL(fd_write_value(AT_FDCWD, "/dev/full", "1", &e), -1);
	CU_ASSERT_EQUAL(e.sys, ENOSPC);
}

static int read_whole(void *context, struct err *e)
{
	scope_buf struct buf text;

	buf_init(&text, 1 << 20);
	if (fd_read_file(AT_FDCWD, context, &text, e) != 0) {
		CU_ASSERT_EQUAL(e->code, ERR_NOMEM);
		return -1;
	}
	CU_ASSERT_EQUAL(text.len, 100000);
	return 0;
}

static void test_file_faults(void)
{
	scope_free char *data = mem_zalloc(100000, 1);
	char path[600];

	(void)snprintf(path, sizeof(path), "%s", test_file("big", data, 100000));
	fault_loop(read_whole, path);
}

static void test_full_reads(void)
{
	struct err e = ERR_INIT;
	int pair[2];
	char text[8] = "";

	CU_ASSERT_EQUAL_FATAL(pipe2(pair, O_CLOEXEC), 0);
	CU_ASSERT_EQUAL(fd_write_full(pair[1], "abcde", 5, &e), 0);
	CU_ASSERT_EQUAL(fd_read_full(pair[0], text, 3, &e), 0);
	(void)close(pair[1]);
	CU_ASSERT_EQUAL(fd_read_full(pair[0], text + 3, 3, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
	ASSERT_TEXT(text, "abcde");
	err_clear(&e);
	CU_ASSERT_EQUAL(fd_set_nonblock(pair[0], true, &e), 0);
	CU_ASSERT((fcntl(pair[0], F_GETFL) & O_NONBLOCK) != 0);
	CU_ASSERT_EQUAL(fd_set_nonblock(pair[0], false, &e), 0);
	CU_ASSERT((fcntl(pair[0], F_GETFL) & O_NONBLOCK) == 0);
	CU_ASSERT_EQUAL(fd_set_cloexec(pair[0], false, &e), 0);
	CU_ASSERT_EQUAL(fcntl(pair[0], F_GETFD), 0);
	(void)close(pair[0]);
	CU_ASSERT_EQUAL(fd_set_cloexec(pair[0], true, &e), -1);
	err_clear(&e);
	pair[0] = open("/dev/full", O_WRONLY | O_CLOEXEC);
	CU_ASSERT_EQUAL(fd_write_full(pair[0], "x", 1, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_STORAGE);
	(void)close(pair[0]);
}

static void test_unix_sockets(void)
{
	struct err e = ERR_INIT;
	char path[600];
	char long_path[109];
	scope_close int listener = -1;
	scope_close int client = -1;
	scope_close int server = -1;
	struct stat info;
	uid_t uid = 1;

	(void)snprintf(path, sizeof(path), "%s/s", test_dir());
	CU_ASSERT_EQUAL(fd_unix_connect(path, SOCK_STREAM, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	listener = fd_unix_listen(path, SOCK_STREAM, 0620, 5, &e);
	CU_ASSERT(listener >= 0);
	CU_ASSERT_EQUAL(stat(path, &info), 0);
	CU_ASSERT_EQUAL(info.st_mode & 07777, 0620);
	/* an old file is replaced */
	fd_close_at(&listener);
	listener = fd_unix_listen(path, SOCK_STREAM, 0600, 5, &e);
	client = fd_unix_connect(path, SOCK_STREAM, &e);
	CU_ASSERT(client >= 0);
	server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	CU_ASSERT_EQUAL(fd_peer_uid(server, &uid, &e), 0);
	CU_ASSERT_EQUAL(uid, geteuid());
	CU_ASSERT_EQUAL(fcntl(listener, F_GETFD), FD_CLOEXEC);
	CU_ASSERT_EQUAL(fcntl(client, F_GETFD), FD_CLOEXEC);
	/* 107 bytes is the longest path, one more an error and never a cut */
	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[0] = '/';
	long_path[108] = '\0';
	CU_ASSERT_EQUAL(fd_unix_listen(long_path, SOCK_STREAM, 0600, 5, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
	err_clear(&e);
	CU_ASSERT_EQUAL(fd_unix_connect(long_path, SOCK_STREAM, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
}

static void test_descriptors(void)
{
	struct err e = ERR_INIT;
	int pair[2];
	int fds[FDIO_MAX_FDS + 1];
	char text[16];
	size_t count = 0;
	int before = fd_count();

	CU_ASSERT_EQUAL_FATAL(
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	CU_ASSERT_EQUAL(fd_receive(pair[1], text, sizeof(text), fds, 2, &count, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	CU_ASSERT_EQUAL(fd_send(pair[0], "ab", 2, pair, 2, &e), 2);
	CU_ASSERT_EQUAL(fd_receive(pair[1], text, sizeof(text), fds, 2, &count, &e), 2);
	CU_ASSERT_EQUAL(count, 2);
	CU_ASSERT_EQUAL(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	(void)close(fds[0]);
	(void)close(fds[1]);
	/* more than asked for: closed, not leaked */
	CU_ASSERT_EQUAL(fd_send(pair[0], "ab", 2, pair, 2, &e), 2);
	CU_ASSERT_EQUAL(fd_receive(pair[1], text, sizeof(text), fds, 0, &count, &e), 2);
	CU_ASSERT_EQUAL(count, 0);
	CU_ASSERT_EQUAL(fd_count(), before + 2);
	/* a message that does not fit is refused with its descriptors */
	CU_ASSERT_EQUAL(fd_send(pair[0], "0123456789", 10, pair, 2, &e), 10);
	CU_ASSERT_EQUAL(fd_receive(pair[1], text, 4, fds, 2, &count, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
	CU_ASSERT_EQUAL(fd_count(), before + 2);
	err_clear(&e);
	CU_ASSERT_EQUAL(fd_send(pair[0], "x", 1, fds, FDIO_MAX_FDS + 1, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INTERNAL);
	err_clear(&e);
	/* a full socket does not block */
	for (int i = 0; i < 100000 && e.code == ERR_NONE; i++)
		(void)fd_send(pair[0], "0123456789abcdef", 16, NULL, 0, &e);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	(void)close(pair[1]);
	/* no SIGPIPE */
	CU_ASSERT_EQUAL(fd_send(pair[0], "x", 1, NULL, 0, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_IO);
	(void)close(pair[0]);
}

/* --- proc ----------------------------------------------------------------------------------- */

static char shell[] = "/bin/sh";
static char dash_c[] = "-c";

/* Runs a shell line; its stdout in out. The status of waitpid. */
static int run_shell(char *line, struct proc_options *options, char *out, size_t size)
{
	char *argv[] = {shell, dash_c, line, NULL};
	struct err e = ERR_INIT;
	int pair[2];
	pid_t pid;
	int status = -1;
	size_t used = 0;
	ssize_t got;

	if (pipe2(pair, O_CLOEXEC) != 0)
		return -1;
	options->program = shell;
	options->argv = argv;
	options->stdout_fd = pair[1];
	if (proc_spawn(options, &pid, &e) != 0)
		return -1;
	(void)close(pair[1]);
	while (used + 1 < size && (got = read(pair[0], out + used, size - used - 1)) > 0)
		used += (size_t)got;
	out[used] = '\0';
	(void)close(pair[0]);
	CU_ASSERT_EQUAL(proc_wait(pid, &status, &e), 0);
	return status;
}

static void test_spawn(void)
{
	struct proc_options options = PROC_OPTIONS_INIT;
	char out[512];
	char line[] = "echo out; cat; exit 3";
	char kill_line[] = "kill -SEGV $$";
	int status = run_shell(line, &options, out, sizeof(out));

	/* stdin is /dev/null, so cat ends at once */
	CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	ASSERT_TEXT(out, "out\n");
	status = run_shell(kill_line, &options, out, sizeof(out));
	CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void test_spawn_error(void)
{
	static char program[] = "/nonexistent/program";
	char *argv[] = {program, NULL};
	struct proc_options options = PROC_OPTIONS_INIT;
	struct err e = ERR_INIT;
	pid_t pid = 77;
	int before = fd_count();

	options.program = program;
	options.argv = argv;
	CU_ASSERT_EQUAL(proc_spawn(&options, &pid, &e), -1);
	CU_ASSERT_EQUAL(e.sys, ENOENT);
	CU_ASSERT_EQUAL(pid, 77);
	CU_ASSERT_EQUAL(waitpid(-1, NULL, WNOHANG), -1);
	CU_ASSERT_EQUAL(fd_count(), before);
	err_clear(&e);
	options.program = "/etc/passwd";
	CU_ASSERT_EQUAL(proc_spawn(&options, &pid, &e), -1);
	CU_ASSERT_EQUAL(e.sys, EACCES);
}

static void test_spawn_inherits_nothing(void)
{
	struct proc_options options = PROC_OPTIONS_INIT;
	static char only[] = "ONLY=this";
	char *environment[] = {only, NULL};
	char out[512];
	char fds[] = "cd /proc/self/fd && echo *";
	char env[] = "/usr/bin/env";
	char kept[] = "cat <&7";
	scope_close int open_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int seven;
	int hidden;
	char name[16];

	hidden = fcntl(open_fd, F_DUPFD_CLOEXEC, 50);
	CU_ASSERT_FATAL(hidden >= 50);
	(void)snprintf(name, sizeof(name), " %d", hidden);
	(void)run_shell(fds, &options, out, sizeof(out));
	CU_ASSERT(str_starts(out, "0 1"));
	CU_ASSERT(strstr(out, name) == NULL);
	(void)close(hidden);
	options.environment = environment;
	(void)run_shell(env, &options, out, sizeof(out));
	CU_ASSERT(strstr(out, "ONLY=this\n") != NULL);
	CU_ASSERT(strstr(out, "HOME=") == NULL);
	/* one that is named stays, under its number */
	seven = fcntl(open_fd, F_DUPFD_CLOEXEC, 7);
	CU_ASSERT_EQUAL_FATAL(seven, 7);
	options.keep_fds = &seven;
	options.keep_count = 1;
	CU_ASSERT_EQUAL(run_shell(kept, &options, out, sizeof(out)), 0);
	(void)close(seven);
}

static void test_spawn_user(void)
{
	struct proc_options options = PROC_OPTIONS_INIT;
	char out[512];
	char line[] = "id -u; id -g; id -G";
	char session[] = "echo $$ $(cut -d ' ' -f 6 /proc/self/stat)";
	char *space;

	options.new_session = true;
	(void)run_shell(session, &options, out, sizeof(out));
	space = strchr(out, ' ');
	CU_ASSERT_PTR_NOT_NULL_FATAL(space);
	*space = '\0';
	CU_ASSERT(str_starts(space + 1, out));
	if (geteuid() != 0)
		return;
	options.uid = 65534;
	options.gid = 65533;
	(void)run_shell(line, &options, out, sizeof(out));
	ASSERT_TEXT(out, "65534\n65533\n65533\n");
}

static volatile sig_atomic_t signals_seen;

static void on_signal(int number)
{
	(void)number;
	signals_seen++;
}

static void test_signals(void)
{
	struct err e = ERR_INIT;
	struct sigaction now;
	int pair[2];
	char byte;
	pid_t pid;
	int status;

	CU_ASSERT_EQUAL(proc_on_signal(SIGUSR1, on_signal, &e), 0);
	CU_ASSERT_EQUAL(raise(SIGUSR1), 0);
	CU_ASSERT_EQUAL(signals_seen, 1);
	CU_ASSERT_EQUAL(sigaction(SIGUSR1, NULL, &now), 0);
	CU_ASSERT_EQUAL(now.sa_flags & SA_RESTART, 0);
	CU_ASSERT_EQUAL(proc_on_signal(SIGKILL, on_signal, &e), -1);
	/* a forked child has the default again, though this process ignores or handles it */
	CU_ASSERT_EQUAL_FATAL(pipe2(pair, O_CLOEXEC), 0);
	pid = proc_fork();
	if (pid == 0) {
		(void)close(pair[1]);
		(void)!read(pair[0], &byte, 1);
		(void)raise(SIGUSR1);
		_exit(0);
	}
	(void)close(pair[0]);
	(void)close(pair[1]);
	err_clear(&e);
	CU_ASSERT_EQUAL(proc_wait(pid, &status, &e), 0);
	CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
	CU_ASSERT_EQUAL(proc_on_signal(SIGUSR1, NULL, &e), 0);
	CU_ASSERT_EQUAL(raise(SIGUSR1), 0);
	CU_ASSERT_EQUAL(signals_seen, 1);
}

/* --- log ------------------------------------------------------------------------------------ */

/* stderr goes into a pipe while an event is written. */
static void capture(void (*write_it)(void *), void *arg, char *out, size_t size)
{
	int pair[2];
	int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	ssize_t got;

	out[0] = '\0';
	if (saved < 0 || pipe2(pair, O_CLOEXEC | O_NONBLOCK) != 0)
		return;
	(void)dup2(pair[1], STDERR_FILENO);
	write_it(arg);
	(void)dup2(saved, STDERR_FILENO);
	(void)close(saved);
	(void)close(pair[1]);
	got = read(pair[0], out, size - 1);
	out[got > 0 ? got : 0] = '\0';
	(void)close(pair[0]);
}

static size_t count_of(const char *text, char c)
{
	size_t n = 0;

	for (; *text != '\0'; text++)
		n += *text == c;
	return n;
}

static void write_event(void *arg)
{
	log_event(LOG_INFO, "thing", "req=%s name=\"%s\"", "r1", (const char *)arg);
}

static void test_log_forged(void)
{
	char line[4096];
	char forged[] = "x\n2026-01-01T00:00:00.000000Z info cordon pid=1 run_done\r\x1b[2Jy\\\x7f";

	log_open("prog", "i1", LOG_INFO);
	capture(write_event, forged, line, sizeof(line));
	CU_ASSERT_EQUAL(count_of(line, '\n'), 1);
	CU_ASSERT_EQUAL(count_of(line, '\r'), 0);
	CU_ASSERT_EQUAL(count_of(line, '\x1b'), 0);
	CU_ASSERT_EQUAL(count_of(line, '\x7f'), 0);
	CU_ASSERT(strstr(line, " info prog/i1 pid=") != NULL);
	CU_ASSERT(strstr(line, " thing req=r1 name=\"x\\x0a2026") != NULL);
	CU_ASSERT(strstr(line, "\\x0d\\x1b[2Jy\\x5c\\x7f\"\n") != NULL);
}

static void write_err(void *arg)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, ERR_IO, 0, "open %s", (const char *)arg);
	log_err(LOG_ERROR, "failed", &e, "req=%s", "r2");
}

static void test_log_err_forged(void)
{
	char line[4096];
	char forged[] = "a\" code=none run=\"b";

	capture(write_err, forged, line, sizeof(line));
	CU_ASSERT(strstr(line, " failed req=r2 code=io error=\"open a") != NULL);
	/* the text cannot end its own quotes */
	CU_ASSERT_EQUAL(count_of(line, '"'), 2);
	CU_ASSERT(str_ends(line, "b\"\n"));
}

static void test_log_long(void)
{
	char line[8192];
	scope_free char *text = mem_zalloc(6000, 1);

	memset(text, '\n', 5999);
	capture(write_event, text, line, sizeof(line));
	CU_ASSERT_EQUAL(count_of(line, '\n'), 1);
	CU_ASSERT(str_ends(line, "\n"));
	CU_ASSERT(strlen(line) <= 2048);
	/* also when only the error is long */
	capture(write_err, text, line, sizeof(line));
	CU_ASSERT_EQUAL(count_of(line, '\n'), 1);
	CU_ASSERT(str_ends(line, "\"\n"));
}

static void test_log_levels(void)
{
	enum log_level level = LOG_ERROR;
	char line[512];
	char text[] = "x";

	CU_ASSERT_EQUAL(log_level_parse("debug", &level), 0);
	CU_ASSERT_EQUAL(level, LOG_DEBUG);
	CU_ASSERT_EQUAL(log_level_parse("Debug", &level), -1);
	log_open("prog", "", LOG_WARNING);
	capture(write_event, text, line, sizeof(line));
	ASSERT_TEXT(line, "");
	log_open("prog", "", LOG_INFO);
	capture(write_event, text, line, sizeof(line));
	CU_ASSERT(strstr(line, " info prog pid=") != NULL);
}

/* --- state ---------------------------------------------------------------------------------- */

/* The names of CONSTRAINT <name> CHECK (... IN ('a', 'b')) of the newest migration that has it. */
static void check_list(const char *constraint, char *out, size_t size)
{
	DIR *folder = opendir("sql/migrations");
	struct dirent *entry;
	char best[300] = "";
	char head[128];
	size_t used = 0;

	out[0] = '\0';
	CU_ASSERT_PTR_NOT_NULL_FATAL(folder);
	(void)snprintf(head, sizeof(head), "CONSTRAINT %s CHECK", constraint);
	while ((entry = readdir(folder)) != NULL) {
		scope_buf struct buf text;
		struct err e = ERR_INIT;
		char path[300];
		const char *at;
		const char *end;

		buf_init(&text, 1 << 20);
		(void)snprintf(path, sizeof(path), "sql/migrations/%.200s", entry->d_name);
		if (!str_ends(path, ".sql") || strcmp(path, best) < 0 ||
		    fd_read_file(AT_FDCWD, path, &text, &e) != 0)
			continue;
		at = strstr(buf_text(&text), head);
		if (at == NULL)
			continue;
		(void)snprintf(best, sizeof(best), "%s", path);
		used = 0;
		at = strstr(at, " IN (");
		CU_ASSERT_PTR_NOT_NULL_FATAL(at);
		end = strchr(at, ')');
		for (at = strchr(at, '\''); at != NULL && at < end; at = strchr(at + 1, '\'')) {
			size_t length = strcspn(at + 1, "'");

			used += (size_t)snprintf(out + used, size - used, "%s%.*s",
						 used == 0 ? "" : " ", (int)length, at + 1);
			at += length + 1;
		}
	}
	(void)closedir(folder);
}

static void test_state_names_match_sql(void)
{
	char in_sql[512];
	char ours[512] = "";
	size_t used = 0;

	check_list("run_phase", in_sql, sizeof(in_sql));
	for (int i = 0; i < RUN__MAX; i++)
		used += (size_t)snprintf(ours + used, sizeof(ours) - used, "%s%s",
					 i == 0 ? "" : " ", run_phase_name((enum run_phase)i));
	ASSERT_TEXT(in_sql, ours);
	used = 0;
	check_list("job_state", in_sql, sizeof(in_sql));
	for (int i = 0; i < JOB__MAX; i++)
		used += (size_t)snprintf(ours + used, sizeof(ours) - used, "%s%s",
					 i == 0 ? "" : " ", job_state_name((enum job_state)i));
	ASSERT_TEXT(in_sql, ours);
	used = 0;
	check_list("sandbox_state", in_sql, sizeof(in_sql));
	for (int i = 0; i < SANDBOX__MAX; i++)
		used +=
		    (size_t)snprintf(ours + used, sizeof(ours) - used, "%s%s", i == 0 ? "" : " ",
				     sandbox_state_name((enum sandbox_state)i));
	ASSERT_TEXT(in_sql, ours);
	used = 0;
	check_list("operation_state", in_sql, sizeof(in_sql));
	for (int i = 0; i < OPERATION__MAX; i++)
		used +=
		    (size_t)snprintf(ours + used, sizeof(ours) - used, "%s%s", i == 0 ? "" : " ",
				     operation_state_name((enum operation_state)i));
	ASSERT_TEXT(in_sql, ours);
}

/* One row per old phase, one column per new one: Q S R C F K T. */
static const char *const phase_matrix[RUN__MAX] = {
    /* queued    */ ".x..xx.",
    /* starting  */ "x.xxxxx",
    /* running   */ "...xxxx",
    /* completed */ ".......",
    /* failed    */ ".......",
    /* killed    */ ".......",
    /* timed_out */ ".......",
};

/* Q D P C */
static const char *const job_matrix[JOB__MAX] = {
    /* queued  */ ".xxx",
    /* delayed */ "x...",
    /* parked  */ "x...",
    /* claimed */ "x.x.",
};

/* pending provisioning running stopping stopped failed deleting deleted */
static const char *const sandbox_matrix[SANDBOX__MAX] = {
    /* pending      */ ".x...xx.",
    /* provisioning */ "..x..x..",
    /* running      */ "...xxxx.",
    /* stopping     */ "....xx..",
    /* stopped      */ "x.....x.",
    /* failed       */ "x.....x.",
    /* deleting     */ ".....x.x",
    /* deleted      */ "........",
};

/* accepted running succeeded failed */
static const char *const operation_matrix[OPERATION__MAX] = {
    /* accepted  */ ".x.x",
    /* running   */ "..xx",
    /* succeeded */ "....",
    /* failed    */ "....",
};

static void test_sandbox_states(void)
{
	static const enum job_kind kinds[] = {JOB_START, JOB_STOP, JOB_DELETE};
	/* which state accepts start, stop, delete */
	static const char *const accepts[SANDBOX__MAX] = {"...", "...", ".xx", "...",
							  "x.x", "x.x", "...", "..."};

	for (int a = 0; a <= SANDBOX__MAX; a++)
		for (int b = 0; b <= SANDBOX__MAX; b++)
			CU_ASSERT_EQUAL(
			    sandbox_allowed((enum sandbox_state)a, (enum sandbox_state)b),
			    a < SANDBOX__MAX && b < SANDBOX__MAX && sandbox_matrix[a][b] == 'x');
	for (int a = 0; a <= OPERATION__MAX; a++)
		for (int b = 0; b <= OPERATION__MAX; b++)
			CU_ASSERT_EQUAL(
			    operation_allowed((enum operation_state)a, (enum operation_state)b),
			    a < OPERATION__MAX && b < OPERATION__MAX &&
				operation_matrix[a][b] == 'x');
	for (int a = 0; a < SANDBOX__MAX; a++) {
		enum sandbox_state state = (enum sandbox_state)a;

		CU_ASSERT_FALSE(sandbox_accepts(state, JOB_RUN));
		CU_ASSERT_FALSE(sandbox_accepts(state, JOB_EXEC));
		for (int k = 0; k < 3; k++) {
			enum sandbox_state during = sandbox_during(kinds[k]);

			CU_ASSERT_EQUAL(sandbox_accepts(state, kinds[k]), accepts[a][k] == 'x');
			/* where an accepted operation leads is an allowed way */
			if (accepts[a][k] == 'x' && kinds[k] != JOB_START)
				CU_ASSERT_TRUE(sandbox_allowed(state, during));
			CU_ASSERT_TRUE(sandbox_allowed(during, sandbox_after(kinds[k], true)));
			CU_ASSERT_TRUE(sandbox_allowed(during, sandbox_after(kinds[k], false)));
		}
	}
}

static void test_sandbox_names(void)
{
	enum sandbox_state state = SANDBOX_RUNNING;
	enum operation_state operation = OPERATION_RUNNING;
	enum job_kind kind = JOB_STOP;

	for (int i = 0; i < SANDBOX__MAX; i++) {
		CU_ASSERT_EQUAL(
		    sandbox_state_parse(sandbox_state_name((enum sandbox_state)i), &state), 0);
		CU_ASSERT_EQUAL(state, (enum sandbox_state)i);
	}
	for (int i = 0; i < OPERATION__MAX; i++) {
		CU_ASSERT_EQUAL(operation_state_parse(operation_state_name((enum operation_state)i),
						      &operation),
				0);
		CU_ASSERT_EQUAL(operation, (enum operation_state)i);
		CU_ASSERT_EQUAL(operation_terminal(operation), i >= OPERATION_SUCCEEDED);
	}
	for (int i = 0; i < JOB_KIND__MAX; i++) {
		CU_ASSERT_EQUAL(job_kind_parse(job_kind_name((enum job_kind)i), &kind), 0);
		CU_ASSERT_EQUAL(kind, (enum job_kind)i);
		CU_ASSERT_EQUAL(job_kind_is_operation(kind), i >= JOB_START);
		CU_ASSERT_EQUAL(job_kind_is_store(kind),
				kind == JOB_STORE_PLAN || kind == JOB_STORE_CLEANUP);
	}
	CU_ASSERT_EQUAL(sandbox_state_parse("Running", &state), -1);
	CU_ASSERT_EQUAL(operation_state_parse("", &operation), -1);
	CU_ASSERT_EQUAL(job_kind_parse("unknown", &kind), -1);
	ASSERT_TEXT(sandbox_state_name(SANDBOX__MAX), "unknown");
	ASSERT_TEXT(operation_state_name(OPERATION__MAX), "unknown");
	ASSERT_TEXT(job_kind_name(JOB_KIND__MAX), "unknown");
}

static void test_state_pairs(void)
{
	for (int a = 0; a <= RUN__MAX; a++)
		for (int b = 0; b <= RUN__MAX; b++)
			CU_ASSERT_EQUAL(run_phase_allowed((enum run_phase)a, (enum run_phase)b),
					a < RUN__MAX && b < RUN__MAX && phase_matrix[a][b] == 'x');
	for (int a = 0; a <= JOB__MAX; a++)
		for (int b = 0; b <= JOB__MAX; b++)
			CU_ASSERT_EQUAL(job_state_allowed((enum job_state)a, (enum job_state)b),
					a < JOB__MAX && b < JOB__MAX && job_matrix[a][b] == 'x');
	/* nothing leaves a terminal phase, everything else can */
	for (int a = 0; a < RUN__MAX; a++)
		CU_ASSERT_EQUAL(run_phase_terminal((enum run_phase)a),
				strchr(phase_matrix[a], 'x') == NULL);
	CU_ASSERT_FALSE(run_phase_terminal(RUN__MAX));
}

static void test_state_parse(void)
{
	enum run_phase phase = RUN_KILLED;

	for (int i = 0; i < RUN__MAX; i++) {
		CU_ASSERT_EQUAL(run_phase_parse(run_phase_name((enum run_phase)i), &phase), 0);
		CU_ASSERT_EQUAL(phase, (enum run_phase)i);
	}
	CU_ASSERT_EQUAL(run_phase_parse("Queued", &phase), -1);
	CU_ASSERT_EQUAL(run_phase_parse("", &phase), -1);
	CU_ASSERT_EQUAL(run_phase_parse("unknown", &phase), -1);
	ASSERT_TEXT(run_phase_name(RUN__MAX), "unknown");
	ASSERT_TEXT(job_state_name(JOB__MAX), "unknown");
}

static const struct test tests[] = {
    {"fdio", "files", test_files},
    {"fdio", "file faults", test_file_faults},
    {"fdio", "whole reads and writes", test_full_reads},
    {"fdio", "unix sockets", test_unix_sockets},
    {"fdio", "descriptors over sockets", test_descriptors},
    {"proc", "spawn", test_spawn},
    {"proc", "spawn error", test_spawn_error},
    {"proc", "B22 nothing is inherited", test_spawn_inherits_nothing},
    {"proc", "user and session", test_spawn_user},
    {"proc", "signals", test_signals},
    {"log", "forged lines", test_log_forged},
    {"log", "forged pairs in an error", test_log_err_forged},
    {"log", "long lines", test_log_long},
    {"log", "levels", test_log_levels},
    {"state", "names match the CHECKs", test_state_names_match_sql},
    {"state", "all pairs", test_state_pairs},
    {"state", "parse", test_state_parse},
    {"state", "sandboxes and operations", test_sandbox_states},
    {"state", "names of sandboxes and operations", test_sandbox_names},
};

TEST_MAIN(tests)
