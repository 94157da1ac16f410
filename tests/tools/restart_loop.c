/*
 * restart_loop: stands for systemd's Restart=always in the private stack.
 *
 *	restart_loop --name N --log FILE --pids DIR --off DIR [--cgroup DIR] [--stop-s S]
 *		[--rest kill|keep] [--socket WORD=PATH]... -- PROGRAM ARGS
 *
 * It becomes a daemon that holds the lock of DIR/N.loop, writes its own pid there and the
 * program's to DIR/N, appends the program's stdout and stderr to FILE and starts the program again
 * whenever it ends: after 50 ms, then twice as long each time up to 2 s; a program that lived 3 s
 * starts at 50 ms again. While OFF/N exists it starts nothing. HUP is handed on. TERM ends the
 * program (KILL after S seconds, 10) and then the loop. A log above 16 MiB becomes FILE.1.
 *
 * What is left of the program's process group when it ends is killed (workers whose master died),
 * as systemd does; with --rest keep it lives on (the boxes of cordon-box).
 *
 * --socket stands for a socket unit: the loop listens on PATH, mode 0660, and the program gets the
 * descriptor, named by two further words: WORD and its number. Connections wait in it while the
 * program restarts.
 *
 * The program gets no descriptor but 0 (/dev/null), 1, 2 and those, and a session of its own. With
 * --cgroup the loop enters that group first, so that everything it starts can be found.
 */
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/num.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define DELAY_FIRST_US (50 * CLOCK_US_PER_MS)
#define DELAY_MOST_US  (2 * CLOCK_US_PER_S)
#define LIVED_US       (3 * CLOCK_US_PER_S)
#define TICK_US        (100 * CLOCK_US_PER_MS)
#define LOG_BYTES_MOST (16 << 20)
#define EXIT_USAGE     64
#define SOCKETS_MOST   4
#define WORDS_MOST     64
#define BACKLOG        4096

struct loop {
	const char *name;
	const char *log;
	const char *pids;
	const char *off;
	const char *cgroup;
	uint64_t stop_s;
	bool keep_rest;
	const char *sockets[SOCKETS_MOST]; /* WORD=PATH */
	int socket_fds[SOCKETS_MOST];
	size_t socket_count;
	char **argv;
	char child_file[256];
	char loop_file[256];
	char off_file[256];
	int log_fd;
	pid_t child; /* 0: none */
	int64_t started_us;
	int64_t next_us;
	int64_t delay_us;
	int64_t kill_us; /* 0: not stopping */
};

static void note(const struct loop *l, const char *text, long value)
{
	char now[CLOCK_ISO_SIZE];
	char line[512];
	int length;
	struct err e = ERR_INIT;

	clock_iso(now, clock_real_us());
	length =
	    snprintf(line, sizeof(line), "%s restart_loop %s: %s %ld\n", now, l->name, text, value);
	if (length > 0 && (size_t)length < sizeof(line))
		(void)fd_write_full(l->log_fd, line, (size_t)length, &e);
}

static int usage(const char *what)
{
	(void)fprintf(stderr, "restart_loop: %s\n", what);
	return -1;
}

static int parse(struct loop *l, int argc, char **argv)
{
	struct err e = ERR_INIT;

	l->stop_s = 10;
	for (int i = 1; i < argc; i += 2) {
		if (str_equal(argv[i], "--")) {
			l->argv = argv + i + 1;
			break;
		}
		if (i + 1 >= argc)
			return usage("an option without a value");
		if (str_equal(argv[i], "--name"))
			l->name = argv[i + 1];
		else if (str_equal(argv[i], "--log"))
			l->log = argv[i + 1];
		else if (str_equal(argv[i], "--pids"))
			l->pids = argv[i + 1];
		else if (str_equal(argv[i], "--off"))
			l->off = argv[i + 1];
		else if (str_equal(argv[i], "--cgroup"))
			l->cgroup = argv[i + 1];
		else if (str_equal(argv[i], "--socket") && l->socket_count < SOCKETS_MOST &&
			 strchr(argv[i + 1], '=') != NULL)
			l->sockets[l->socket_count++] = argv[i + 1];
		else if (str_equal(argv[i], "--rest"))
			l->keep_rest = str_equal(argv[i + 1], "keep");
		else if (!str_equal(argv[i], "--stop-s"))
			return usage("unknown option");
		else if (num_u64("--stop-s", argv[i + 1], 1, 600, &l->stop_s, &e) != 0)
			return usage(e.text);
	}
	if (l->name == NULL || l->log == NULL || l->pids == NULL || l->off == NULL ||
	    l->argv == NULL || l->argv[0] == NULL)
		return usage("needs --name, --log, --pids, --off and a program");
	(void)snprintf(l->child_file, sizeof(l->child_file), "%s/%s", l->pids, l->name);
	(void)snprintf(l->loop_file, sizeof(l->loop_file), "%s/%s.loop", l->pids, l->name);
	(void)snprintf(l->off_file, sizeof(l->off_file), "%s/%s", l->off, l->name);
	return 0;
}

/* The lock that says "this loop lives"; it stays open for the life of the process. */
static int lock_loop(const struct loop *l)
{
	int fd = open(l->loop_file, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
		(void)fprintf(stderr, "restart_loop: %s: %s\n", l->loop_file, strerror(errno));
		return -1;
	}
	return fd;
}

static int write_pid(int fd, pid_t pid, struct err *e)
{
	char text[32];
	int length = snprintf(text, sizeof(text), "%ld\n", (long)pid);

	if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0)
		return err_set(e, ERR_IO, errno, "pid file");
	return fd_write_full(fd, text, (size_t)length, e);
}

/* fork; the parent waits for the word that the loop stands. Returns the write end in the child. */
static int become_daemon(void)
{
	int pair[2];
	char word = 0;
	pid_t pid;
	ssize_t got;

	if (pipe2(pair, O_CLOEXEC) != 0)
		return -1;
	pid = fork();
	if (pid < 0)
		return -1;
	if (pid > 0) {
		(void)close(pair[1]);
		do
			got = read(pair[0], &word, 1);
		while (got < 0 && errno == EINTR);
		_exit(got == 1 ? 0 : 1);
	}
	(void)close(pair[0]);
	(void)setsid();
	return pair[1];
}

static int set_up(struct loop *l, int lock_fd, struct err *e)
{
	scope_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t mine;

	l->log_fd = open(l->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
	if (l->log_fd < 0 || null_fd < 0)
		return err_set(e, ERR_IO, errno, "open %s", l->log);
	if (l->cgroup != NULL) {
		char path[512];
		char pid[32];

		(void)snprintf(path, sizeof(path), "%s/cgroup.procs", l->cgroup);
		(void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
		if (fd_write_value(AT_FDCWD, path, pid, e) != 0)
			return -1;
	}
	if (write_pid(lock_fd, getpid(), e) != 0)
		return -1;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		return err_set(e, ERR_IO, errno, "prctl");
	(void)sigemptyset(&mine);
	(void)sigaddset(&mine, SIGCHLD);
	(void)sigaddset(&mine, SIGTERM);
	(void)sigaddset(&mine, SIGINT);
	(void)sigaddset(&mine, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &mine, NULL);
	if (dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0 || dup2(null_fd, 2) < 0)
		return err_set(e, ERR_IO, errno, "dup2");
	return 0;
}

/* Listens on the sockets and appends their words to the program's arguments. */
static int open_sockets(struct loop *l, struct err *e)
{
	static char *words[WORDS_MOST];
	static char texts[SOCKETS_MOST][2][128];
	size_t n = 0;

	while (l->argv[n] != NULL && n < WORDS_MOST - 2 * SOCKETS_MOST - 1) {
		words[n] = l->argv[n];
		n++;
	}
	for (size_t i = 0; i < l->socket_count; i++) {
		const char *equals = strchr(l->sockets[i], '=');

		l->socket_fds[i] = fd_unix_listen(equals + 1, SOCK_STREAM, 0660, BACKLOG, e);
		if (l->socket_fds[i] < 0)
			return -1;
		(void)snprintf(texts[i][0], sizeof(texts[i][0]), "%.*s",
			       (int)(equals - l->sockets[i]), l->sockets[i]);
		(void)snprintf(texts[i][1], sizeof(texts[i][1]), "%d", l->socket_fds[i]);
		words[n++] = texts[i][0];
		words[n++] = texts[i][1];
	}
	l->argv = words;
	return 0;
}

static void start_program(struct loop *l)
{
	struct proc_options options = PROC_OPTIONS_INIT;
	struct err e = ERR_INIT;
	char text[32];

	options.program = l->argv[0];
	options.argv = l->argv;
	options.stdout_fd = l->log_fd;
	options.stderr_fd = l->log_fd;
	options.new_session = true;
	options.keep_fds = l->socket_fds;
	options.keep_count = l->socket_count;
	l->started_us = clock_monotonic_us();
	if (proc_spawn(&options, &l->child, &e) != 0) {
		l->child = 0;
		note(l, "cannot start, errno", e.sys);
		l->delay_us = l->delay_us * 2 > DELAY_MOST_US ? DELAY_MOST_US : l->delay_us * 2;
		l->next_us = l->started_us + l->delay_us;
		return;
	}
	(void)snprintf(text, sizeof(text), "%ld\n", (long)l->child);
	if (fd_replace_file(AT_FDCWD, l->child_file, text, strlen(text), 0644, &e) != 0)
		note(l, "cannot write the pid file, errno", e.sys);
	note(l, "started pid", (long)l->child);
}

static void program_ended(struct loop *l)
{
	int64_t now = clock_monotonic_us();
	int status;

	/* the group is killed while the dead leader still holds its number */
	if (!l->keep_rest)
		(void)kill(-l->child, SIGKILL);
	if (waitpid(l->child, &status, WNOHANG) != l->child)
		return;
	if (WIFSIGNALED(status))
		note(l, "ended by signal", WTERMSIG(status));
	else
		note(l, "ended with status", WEXITSTATUS(status));
	l->child = 0;
	(void)unlink(l->child_file);
	if (now - l->started_us >= LIVED_US)
		l->delay_us = DELAY_FIRST_US;
	l->next_us = now + l->delay_us;
	l->delay_us = l->delay_us * 2 > DELAY_MOST_US ? DELAY_MOST_US : l->delay_us * 2;
}

/* The loop is the parent of the program's orphans too, and reads their ends. */
static void reap(struct loop *l)
{
	for (;;) {
		siginfo_t info = {.si_pid = 0};

		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
			return;
		if (info.si_pid == l->child)
			program_ended(l);
		else
			(void)waitpid(info.si_pid, NULL, WNOHANG);
	}
}

/* O_APPEND writers go on at the new end, so the file can be cut under them. */
static void rotate_log(const struct loop *l)
{
	struct stat status;
	char old[512];
	scope_close int from = -1;
	scope_close int to = -1;
	off_t at = 0;

	if (fstat(l->log_fd, &status) != 0 || status.st_size <= LOG_BYTES_MOST)
		return;
	(void)snprintf(old, sizeof(old), "%s.1", l->log);
	from = open(l->log, O_RDONLY | O_CLOEXEC);
	to = open(old, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	while (from >= 0 && to >= 0 && at < status.st_size &&
	       copy_file_range(from, &at, to, NULL, (size_t)(status.st_size - at), 0) > 0)
		;
	(void)!ftruncate(l->log_fd, 0);
}

static void take_signal(struct loop *l, int number)
{
	if (number == SIGHUP && l->child != 0)
		(void)kill(l->child, SIGHUP);
	if ((number == SIGTERM || number == SIGINT) && l->kill_us == 0) {
		l->kill_us = clock_monotonic_us() + (int64_t)l->stop_s * CLOCK_US_PER_S;
		if (l->child != 0)
			(void)kill(l->child, SIGTERM);
	}
}

static void run(struct loop *l)
{
	sigset_t mine;
	struct timespec tick = {.tv_nsec = TICK_US * 1000};

	(void)sigemptyset(&mine);
	(void)sigaddset(&mine, SIGCHLD);
	(void)sigaddset(&mine, SIGTERM);
	(void)sigaddset(&mine, SIGINT);
	(void)sigaddset(&mine, SIGHUP);
	l->delay_us = DELAY_FIRST_US;
	for (;;) {
		int64_t now = clock_monotonic_us();
		int64_t left = TICK_US;

		reap(l);
		rotate_log(l);
		if (l->kill_us != 0 && l->child == 0)
			return;
		if (l->kill_us != 0 && now >= l->kill_us)
			(void)kill(l->child, SIGKILL);
		if (l->child == 0 && now >= l->next_us && access(l->off_file, F_OK) != 0)
			start_program(l);
		if (l->child == 0 && l->next_us > now && l->next_us - now < left)
			left = l->next_us - now;
		tick.tv_nsec = left * 1000;
		take_signal(l, sigtimedwait(&mine, NULL, &tick));
	}
}

int main(int argc, char **argv)
{
	static struct loop loop;
	struct err e = ERR_INIT;
	int lock_fd;
	int ready_fd;

	if (parse(&loop, argc, argv) != 0)
		return EXIT_USAGE;
	/* what the caller left open (its lock, for one) must not live as long as a daemon */
	if (close_range(3, ~0U, 0) != 0)
		return 1;
	lock_fd = lock_loop(&loop);
	if (lock_fd < 0)
		return 1;
	if (open_sockets(&loop, &e) != 0) {
		(void)fprintf(stderr, "restart_loop: %s\n", e.text);
		return 1;
	}
	ready_fd = become_daemon();
	if (ready_fd < 0)
		return 1;
	if (set_up(&loop, lock_fd, &e) != 0) {
		(void)fprintf(stderr, "restart_loop: %s\n", e.text);
		return 1;
	}
	(void)!write(ready_fd, "1", 1);
	(void)close(ready_fd);
	note(&loop, "loop pid", (long)getpid());
	run(&loop);
	note(&loop, "loop ends, pid", (long)getpid());
	(void)unlink(loop.loop_file);
	return 0;
}
