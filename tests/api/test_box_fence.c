/*
 * test_box_fence.c: case B22, inside a box and outside for comparison, and who may talk to
 * cordon-box.
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/buf.h"
#include "runners/base/fdio.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"

#include <CUnit/CUnit.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NOBODY       65534
#define OUTPUT_BYTES ((size_t)4 << 20)
#define SLOTS        24
#define BURST        12 /* more than wait */

static struct rig rig;
static struct rig_box box;

static int read_program(struct buf *out)
{
	char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	struct err e = ERR_INIT;
	char *where;

	if (length < 0)
		return -1;
	path[length] = '\0';
	where = strstr(path, "/tests/");
	if (where == NULL)
		return -1;
	(void)snprintf(where, sizeof(path) - (size_t)(where - path), "/tests/probe/probe_box");
	return fd_read_file(AT_FDCWD, path, out, &e);
}

static void test_b22_inside(void)
{
	struct buf program;
	char name[] = "/workspace/probe_box";
	char *argv[] = {name, NULL};

	buf_init(&program, (size_t)16 << 20);
	CU_ASSERT_EQUAL_FATAL(read_program(&program), 0);
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "probe_box", 0755, program.data, program.len), 0);
	/* the first command is the stub, the second is forked by pid 1 */
	for (int i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(rig_run(&rig, &box, argv), 0);
		CU_ASSERT_EQUAL(box.status.how, AGENT_EXITED);
		CU_ASSERT_EQUAL(box.status.code, 0);
		if (box.status.code != 0 || box.status.how != AGENT_EXITED)
			(void)printf("%s%s\n", buf_text(&box.out[0]), buf_text(&box.out[1]));
	}
	CU_ASSERT_EQUAL(rig_destroy(&rig, &box, NULL), 0);
	buf_release(&program);
}

/* Runs the probe on the host as nobody; its output. */
static int run_outside(const struct buf *program, struct buf *out)
{
	char path[] = "/tmp/probe-XXXXXX";
	char option[] = "--outside";
	char *argv[] = {path, option, NULL};
	struct proc_options options = PROC_OPTIONS_INIT;
	scope_close int reader = -1;
	scope_close int writer = -1;
	struct err e = ERR_INIT;
	int fd = mkstemp(path);
	int pair[2];
	int status = -1;
	pid_t pid;
	ssize_t got;

	CU_ASSERT_TRUE_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(fd_write_full(fd, program->data, program->len, &e), 0);
	CU_ASSERT_EQUAL(fchmod(fd, 0755), 0);
	(void)close(fd);
	CU_ASSERT_EQUAL_FATAL(pipe2(pair, O_CLOEXEC), 0);
	reader = pair[0];
	writer = pair[1];
	options.program = path;
	options.argv = argv;
	options.stdout_fd = writer;
	options.uid = NOBODY;
	options.gid = NOBODY;
	CU_ASSERT_EQUAL(proc_spawn(&options, &pid, &e), 0);
	fd_close_at(&writer);
	while (buf_reserve(out, 65536) == 0 &&
	       (got = read(reader, out->data + out->len, 65536)) > 0)
		out->len += (size_t)got;
	CU_ASSERT_EQUAL(proc_wait(pid, &status, &e), 0);
	out->data[out->len] = '\0';
	(void)unlink(path);
	return status;
}

/* What a box refuses or hides and a plain user of the host gets: if one of these were no FAIL, its
 * check could never fail. */
static void test_b22_outside(void)
{
	static const char *const can_fail[] = {"own processes only",
					       "Seccomp 2",
					       "an id range of its own",
					       "unshare user",

					       "clone3",
					       "io_uring_setup",
					       "keyctl",
					       "host name is box",
					       "uid 1000",
					       "personality",
					       "AF_ALG",
					       "ptrace traceme",
					       "oom_score_adj 1000",
					       "Landlock: write below /proc"};
	struct buf program;
	struct buf out;
	int status;
	int failures = 0;

	buf_init(&program, (size_t)16 << 20);
	buf_init(&out, OUTPUT_BYTES);
	CU_ASSERT_EQUAL_FATAL(read_program(&program), 0);
	status = run_outside(&program, &out);
	CU_ASSERT_TRUE(WIFEXITED(status));
	CU_ASSERT_EQUAL(WEXITSTATUS(status), 1);
	for (const char *p = buf_text(&out); (p = strstr(p, "FAIL ")) != NULL; p++)
		failures++;
	CU_ASSERT_TRUE(failures >= 30);
	for (size_t i = 0; i < sizeof(can_fail) / sizeof(can_fail[0]); i++) {
		char line[96];

		(void)snprintf(line, sizeof(line), "FAIL %s:", can_fail[i]);
		CU_ASSERT_PTR_NOT_NULL(strstr(buf_text(&out), line));
		if (strstr(buf_text(&out), line) == NULL)
			(void)printf("outside this passes too: %s\n", can_fail[i]);
	}
	(void)printf("outside: %d of the checks fail\n", failures);
	buf_release(&out);
	buf_release(&program);
}

/* 0: refused, 1: answered, other: the test itself failed. */
static int ask_as(uid_t uid, int socket_fd)
{
	char path[64];
	struct box_request request = {
	    .version = BOX_VERSION, .verb = BOX_PROBE, .tag = 1, .slot = BOX_NO_SLOT};
	struct box_reply reply;
	struct err e = ERR_INIT;
	struct pollfd p = {.events = POLLIN};
	scope_close int fd = -1;
	ssize_t got;

	if (uid != 0 && (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0 ||
			 setresuid(uid, uid, uid) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0))
		return 10;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", socket_fd);
	fd = fd_unix_connect(path, SOCK_SEQPACKET, &e);
	if (fd < 0)
		return 11;
	(void)send(fd, &request, sizeof(request), MSG_NOSIGNAL);
	p.fd = fd;
	if (poll(&p, 1, 5000) <= 0)
		return 12;
	got = recv(fd, &reply, sizeof(reply), 0);
	return got == (ssize_t)sizeof(reply) ? 1 : got <= 0 ? 0 : 13;
}

static int ask_in_child(uid_t uid, int socket_fd)
{
	struct err e = ERR_INIT;
	pid_t pid = proc_fork();
	int status = -1;

	if (pid == 0)
		_exit(ask_as(uid, socket_fd));
	CU_ASSERT_EQUAL(proc_wait(pid, &status, &e), 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The folder keeps foreign users away; when it does not, their credentials do. */
static void test_foreign_user_is_refused(void)
{
	char path[128];
	scope_close int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/run/box/box.sock", rig.dir);
	fd = open(path, O_PATH | O_CLOEXEC);
	CU_ASSERT_TRUE_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(ask_in_child(NOBODY, fd), 11); /* the mode of the socket */
	CU_ASSERT_EQUAL(chmod(path, 0666), 0);
	CU_ASSERT_EQUAL(ask_in_child(NOBODY, fd), 0); /* SO_PEERCRED */
	CU_ASSERT_EQUAL(ask_in_child(0, fd), 1);
	CU_ASSERT_EQUAL(chmod(path, 0660), 0);
}

/* --- what the kernel counts for a user ---------------------------------------------------------
 */

/* Takes all inotify instances and queued signals that it gets, and says how many; then holds. */
static const char greedy[] =
    "exec python3 -c '\n"
    "import ctypes, os, signal, sys, time\n"
    "c = ctypes.CDLL(None, use_errno=True)\n"
    "n = sum(c.inotify_init() >= 0 for _ in range(200))\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, {40})\n"
    "s = 0\n"
    "while s < 200000 and c.sigqueue(os.getpid(), 40, ctypes.c_void_p()) == 0:\n"
    "    s += 1\n"
    "aio = ctypes.c_ulong(0)\n"
    "c.syscall(206 if os.uname().machine == \"x86_64\" else 0, 1, ctypes.byref(aio))\n"
    "print(n > 0, s > 0, ctypes.get_errno() == 38, flush=True)\n"
    "time.sleep(float(sys.argv[1]))' ";

static int start_greedy(struct rig_box *b, const char *seconds)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char script[2048];
	char *argv[] = {shell, option, script, NULL};

	(void)snprintf(script, sizeof(script), "%s%s", greedy, seconds);
	return rig_exec(b, argv, false);
}

static void test_counters_are_its_own(void)
{
	static struct rig_box other;
	union sigval value = {.sival_int = 0};
	const struct timespec wait = {.tv_sec = 2};
	sigset_t set;
	int fd;

	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &other, NULL), 0);
	CU_ASSERT_EQUAL(start_greedy(&box, "60"), 0);
	for (int i = 0; i < 200 && !rig_out_has(&box, 0, "\n"); i++)
		(void)rig_wait_exit(&rig, &box, 100);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "True True True\n"));
	/* the first one has all it can get: neither another box nor the host's root feels it */
	CU_ASSERT_EQUAL(start_greedy(&other, "0"), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &other, 20000), 0);
	CU_ASSERT_TRUE(rig_out_is(&other, 0, "True True True\n"));
	fd = inotify_init();
	CU_ASSERT_TRUE(fd >= 0);
	(void)close(fd);
	CU_ASSERT_EQUAL(sigemptyset(&set), 0);
	CU_ASSERT_EQUAL(sigaddset(&set, SIGRTMIN + 6), 0);
	CU_ASSERT_EQUAL(sigprocmask(SIG_BLOCK, &set, NULL), 0);
	CU_ASSERT_EQUAL(sigqueue(getpid(), SIGRTMIN + 6, value), 0);
	CU_ASSERT_EQUAL(sigtimedwait(&set, NULL, &wait), SIGRTMIN + 6);
	CU_ASSERT_EQUAL(rig_destroy(&rig, &other, NULL), 0);
	CU_ASSERT_EQUAL(rig_destroy(&rig, &box, NULL), 0);
}

static void count_creates(uint64_t *warm, uint64_t *cold)
{
	struct box_reply reply;
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	CU_ASSERT_EQUAL_FATAL(boxclient_probe(&rig.client, tag, &e), 0);
	CU_ASSERT_EQUAL_FATAL(rig_reply(&rig, tag, &reply), 0);
	*warm = reply.warm;
	*cold = reply.cold;
}

/* One that somebody waits for installs its filter behind the answer, one that waits before it. */
static void test_filter_however_it_was_made(void)
{
	static struct rig_box many[BURST];
	uint64_t tags[BURST];
	uint64_t warm[2];
	uint64_t cold[2];
	int without = 0;

	count_creates(&warm[0], &cold[0]);
	for (int i = 0; i < BURST; i++)
		tags[i] = rig_create_send(&rig, &many[i], NULL);
	for (int i = 0; i < BURST; i++) {
		CU_ASSERT_EQUAL_FATAL(rig_created(&rig, &many[i], tags[i]), 0);
		CU_ASSERT_EQUAL(rig_sh(&rig, &many[i],
				       "grep -q '^Seccomp:.2$' /proc/self/status && "
				       "grep -q '^NoNewPrivs:.1$' /proc/self/status"),
				0);
		without += many[i].status.code == 0 ? 0 : 1;
	}
	CU_ASSERT_EQUAL(without, 0);
	count_creates(&warm[1], &cold[1]);
	CU_ASSERT_TRUE(warm[1] > warm[0]);
	CU_ASSERT_TRUE(cold[1] > cold[0]);
	for (int i = 0; i < BURST; i++)
		CU_ASSERT_EQUAL(rig_destroy(&rig, &many[i], NULL), 0);
}

static const struct test tests[] = {
    {"box_fence", "B22 inside", test_b22_inside},
    {"box_fence", "B22 outside", test_b22_outside},
    {"box_fence", "the filter, warm and cold", test_filter_however_it_was_made},
    {"box_fence", "counters are the box's own", test_counters_are_its_own},
    {"box_fence", "a foreign user is refused", test_foreign_user_is_refused},
};

int main(int argc, char **argv)
{
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
