/*
 * test_box.c: commands, bytes, limits and files in real boxes, on a private cordon-box.
 * Tests that bear a case's number are named after it (cases B01 to B10, B22).
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/str.h"

#include <CUnit/CUnit.h>
#include <sys/stat.h>

#define MIB(n) ((uint64_t)(n) << 20)
#define SLOTS  4

static struct rig rig;
static struct rig_box box; /* of the tests that need one only */

static void open_box(const struct box_limits *limits)
{
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, limits), 0);
}

static void close_box(struct box_reply *out)
{
	CU_ASSERT_EQUAL_FATAL(rig_destroy(&rig, &box, out), 0);
}

/* Runs a script in a fresh box and leaves the box open. */
static void run(const char *script)
{
	open_box(NULL);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, script), 0);
}

/* --- commands ------------------------------------------------------------------------------- */

static void test_true(void)
{
	struct box_reply end;
	char program[] = "true";
	char *argv[] = {program, NULL};

	open_box(NULL);
	CU_ASSERT_EQUAL(rig_run(&rig, &box, argv), 0);
	CU_ASSERT_EQUAL(box.status.how, AGENT_EXITED);
	CU_ASSERT_EQUAL(box.status.code, 0);
	CU_ASSERT_TRUE(box.started);
	close_box(&end);
	CU_ASSERT_TRUE(end.stats.wall_us > 0);
	CU_ASSERT_TRUE(end.stats.cpu_us > 0);
	CU_ASSERT_EQUAL(end.stats.oom_kills, 0);
	CU_ASSERT_EQUAL(end.stats.pids_limit_hits, 0);
}

static void test_b09_exit_codes(void)
{
	static const struct {
		const char *script;
		enum agent_how how;
		int code;
	} cases[] = {
	    {"exit 0", AGENT_EXITED, 0},
	    {"exit 1", AGENT_EXITED, 1},
	    {"exit 126", AGENT_EXITED, 126},
	    {"exit 127", AGENT_EXITED, 127},
	    {"exit 137", AGENT_EXITED, 137},
	    {"exit 255", AGENT_EXITED, 255},
	    {"kill -SEGV $$", AGENT_SIGNALED, SIGSEGV},
	    {"kill -KILL $$", AGENT_SIGNALED, SIGKILL},
	    {"kill -TERM $$", AGENT_SIGNALED, SIGTERM},
	    {"exec /nonexistent", AGENT_EXITED, 127},
	    {"exec /etc/hostname", AGENT_EXITED, 126},
	    {"python3 -c 'import os; os.abort()'; exit $?", AGENT_EXITED, 128 + SIGABRT},
	};

	open_box(NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, cases[i].script), 0);
		CU_ASSERT_EQUAL(box.status.how, cases[i].how);
		CU_ASSERT_EQUAL(box.status.code, cases[i].code);
	}
	close_box(NULL);
}

static void start_and_expect(const char *program, int code, enum agent_stage stage, int sys)
{
	char name[64];
	char *argv[] = {name, NULL};

	CU_ASSERT_EQUAL(str_copy(name, sizeof(name), program), 0);
	CU_ASSERT_EQUAL(rig_run(&rig, &box, argv), 0);
	CU_ASSERT_EQUAL(box.status.how, AGENT_NOT_STARTED);
	CU_ASSERT_EQUAL(box.status.code, code);
	CU_ASSERT_EQUAL(box.status.stage, stage);
	CU_ASSERT_EQUAL(box.status.sys, sys);
	CU_ASSERT_FALSE(box.started);
}

static void test_b09_not_started(void)
{
	open_box(NULL);
	start_and_expect("/nonexistent", 127, AGENT_STAGE_EXEC, ENOENT);
	start_and_expect("nosuchprogram", 127, AGENT_STAGE_EXEC, ENOENT);
	start_and_expect("/etc/hostname", 126, AGENT_STAGE_EXEC, EACCES);
	start_and_expect("/workspace", 126, AGENT_STAGE_EXEC, EACCES);
	start_and_expect("", 127, AGENT_STAGE_EXEC, ENOENT);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "noformat", 0755, "hello\n", 6), 0);
	start_and_expect("/workspace/noformat", 126, AGENT_STAGE_EXEC, ENOEXEC);
	close_box(NULL);
}

/* --- output --------------------------------------------------------------------------------- */

static void test_b01_bytes(void)
{
	size_t wrong = 0;

	run("printf 'A\\377\\376B'");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "A\377\376B"));
	CU_ASSERT_EQUAL(rig_sh(&rig, &box,
			       "python3 -c \"import sys,time; w=sys.stdout.buffer; "
			       "w.write(b'caf\\xc3'); w.flush(); time.sleep(0.05); "
			       "w.write(b'\\xa9'); w.flush()\""),
			0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "caf\303\251"));
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "python3 -c \"print('\\u2615' * 100000, end='')\""), 0);
	CU_ASSERT_EQUAL(box.out[0].len, 300000);
	for (size_t i = 0; i < box.out[0].len; i++)
		wrong += box.out[0].data[i] == "\342\230\225"[i % 3] ? 0 : 1;
	CU_ASSERT_EQUAL(wrong, 0);
	close_box(NULL);
}

static void test_b02_enormous_line(void)
{
	static const size_t sizes[] = {65535, 65536, 65537, 5U << 20, 20U << 20};

	open_box(NULL);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char script[128];
		size_t wrong = 0;

		(void)snprintf(script, sizeof(script), "head -c %zu /dev/zero | tr '\\0' x; exit 7",
			       sizes[i]);
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, script), 0);
		CU_ASSERT_EQUAL(box.status.code, 7);
		CU_ASSERT_EQUAL(box.out[0].len, sizes[i]);
		CU_ASSERT_EQUAL(box.status.out_bytes, sizes[i]);
		for (size_t k = 0; k < box.out[0].len; k++)
			wrong += box.out[0].data[k] == 'x' ? 0 : 1;
		CU_ASSERT_EQUAL(wrong, 0);
	}
	close_box(NULL);
}

static void test_b03_blank_lines(void)
{
	run("printf 'a\\n\\nb\\r\\n\\r\\n\\n\\nc'");
	/* the case says 13; these are 11 */
	CU_ASSERT_EQUAL(box.out[0].len, 11);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "a\n\nb\r\n\r\n\n\nc"));
	close_box(NULL);
}

static void test_b04_tail(void)
{
	int wrong = 0;

	open_box(NULL);
	for (int i = 0; i < 100; i++)
		if (rig_sh(&rig, &box, "printf x; printf y >&2; exit 3") != 0 ||
		    !rig_out_is(&box, 0, "x") || !rig_out_is(&box, 1, "y") || box.status.code != 3)
			wrong++;
	CU_ASSERT_EQUAL(wrong, 0);
	close_box(NULL);
}

static void test_b05_background_child(void)
{
	int64_t start = clock_monotonic_us();

	run("sleep 300 & echo hi");
	CU_ASSERT_EQUAL(box.status.code, 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "hi\n"));
	CU_ASSERT_TRUE(clock_monotonic_us() - start < CLOCK_US_PER_S);
	close_box(NULL);
	/* one that never stops writing */
	start = clock_monotonic_us();
	run("yes & echo hi >&2");
	CU_ASSERT_EQUAL(box.status.code, 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 1, "hi\n"));
	CU_ASSERT_TRUE(clock_monotonic_us() - start < 2 * CLOCK_US_PER_S);
	close_box(NULL);
}

/* --- runaways and limits -------------------------------------------------------------------- */

static void test_b06_runaway_children(void)
{
	struct box_reply end;

	run("setsid sh -c 'while :; do date >> /workspace/t; sleep 0.1; done' >/dev/null 2>&1 & "
	    "(setsid sh -c 'sleep 1000 & exit' >/dev/null 2>&1 &) ; exit 0");
	CU_ASSERT_EQUAL(box.status.code, 0);
	close_box(&end);
	CU_ASSERT_EQUAL(end.stats.pids, 0);
}

static void test_kill_all_and_group(void)
{
	char program[] = "sleep";
	char seconds[] = "1000";
	char *argv[] = {program, seconds, NULL};
	struct err e = ERR_INIT;

	open_box(NULL);
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	CU_ASSERT_EQUAL(agent_signal(&box.agent, box.channel, SIGTERM, &e), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 2000), 0);
	CU_ASSERT_EQUAL(box.status.how, AGENT_SIGNALED);
	CU_ASSERT_EQUAL(box.status.code, SIGTERM);
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	CU_ASSERT_EQUAL(agent_signal_all(&box.agent, 4711, SIGKILL, &e), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 2000), 0);
	CU_ASSERT_EQUAL(box.status.code, SIGKILL);
	/* pid 1 lives on */
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "echo alive"), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "alive\n"));
	close_box(NULL);
}

static void test_b07_fork_bomb(void)
{
	struct box_reply end;
	struct box_limits limits;

	rig_limits(&limits);
	limits.pids = 32;
	open_box(&limits);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box,
			       "python3 -c \"\n"
			       "import os,sys\n"
			       "n=0\n"
			       "try:\n"
			       "  while True:\n"
			       "    if os.fork()==0:\n"
			       "      import time; time.sleep(1000)\n"
			       "    n+=1\n"
			       "except OSError as e: print(n, e.errno)\n\""),
			0);
	CU_ASSERT_EQUAL(box.status.code, 0);
	/* the shell (if it did not exec) and python itself are the others */
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "31 11\n") || rig_out_is(&box, 0, "30 11\n"));
	close_box(&end);
	CU_ASSERT_TRUE(end.stats.pids_limit_hits >= 1);
}

static void test_b07_endless_fork_loop(void)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char script[] = "f() { f | f & }; f; sleep 1000";
	char *argv[] = {shell, option, script, NULL};
	struct box_reply end;
	int64_t start;

	open_box(NULL);
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 1000), -1);
	start = clock_monotonic_us();
	close_box(&end);
	CU_ASSERT_TRUE(clock_monotonic_us() - start < CLOCK_US_PER_S);
	CU_ASSERT_TRUE(end.stats.pids_limit_hits >= 1);
}

static void test_b08_out_of_memory(void)
{
	struct box_reply end;
	struct box_limits limits;

	rig_limits(&limits);
	limits.memory_bytes = MIB(64);
	open_box(&limits);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "exec python3 -c \"x = bytearray(256 << 20)\""), 0);
	CU_ASSERT_EQUAL(box.status.how, AGENT_SIGNALED);
	CU_ASSERT_EQUAL(box.status.code, SIGKILL);
	/* the shell survives its child */
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "python3 -c \"x = bytearray(256 << 20)\"; echo alive"),
			0);
	CU_ASSERT_EQUAL(box.status.how, AGENT_EXITED);
	CU_ASSERT_TRUE(rig_out_has(&box, 0, "alive"));
	close_box(&end);
	CU_ASSERT_TRUE(end.stats.oom_kills >= 2);
	CU_ASSERT_TRUE(end.stats.memory_peak_bytes > MIB(32));
	CU_ASSERT_TRUE(end.stats.memory_peak_bytes <= MIB(64));
	/* the next box of the slot starts from zero */
	open_box(&limits);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "true"), 0);
	close_box(&end);
	CU_ASSERT_EQUAL(end.stats.oom_kills, 0);
	CU_ASSERT_TRUE(end.stats.memory_peak_bytes < MIB(32));
}

static void read_stats(struct box_reply *out)
{
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	CU_ASSERT_EQUAL(boxclient_verb(&rig.client, BOX_STATS, tag, box.slot, box.run_id, 0, &e),
			0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, out), 0);
	CU_ASSERT_EQUAL(out->code, BOX_OK);
}

/* What a box used is known when its command has exited, before the box goes. */
static void test_stats_at_exit(void)
{
	static const char *const scripts[] = {
	    "true", "python3 -c \"x = bytearray(30 << 20)\"",
	    "python3 -c \"x = bytearray(256 << 20)\"",
	    "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done", "seq 300000 >/dev/null"};
	struct box_limits limits;
	struct box_reply early;
	struct box_reply late;

	rig_limits(&limits);
	limits.memory_bytes = MIB(64);
	limits.pids = 20;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		open_box(&limits);
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, scripts[i]), 0);
		read_stats(&early);
		close_box(&late);
		CU_ASSERT_EQUAL(early.stats.oom_kills, late.stats.oom_kills);
		CU_ASSERT_EQUAL(early.stats.oom_kills > 0, i == 2);
		CU_ASSERT_EQUAL(early.stats.pids_limit_hits > 0, i == 3);
		CU_ASSERT_TRUE(i == 3 ? early.stats.pids > 10 : early.stats.pids == 1);
		CU_ASSERT_TRUE(early.stats.pids_limit_hits <= late.stats.pids_limit_hits);
		CU_ASSERT_TRUE(early.stats.cpu_us > 0);
		CU_ASSERT_TRUE(early.stats.cpu_us <= late.stats.cpu_us);
		if (i != 3)
			CU_ASSERT_TRUE(late.stats.cpu_us <
				       early.stats.cpu_us + 3000 * (uint64_t)rig_slow());
		CU_ASSERT_EQUAL(early.stats.memory_peak_bytes, late.stats.memory_peak_bytes);
	}
}

static void test_cpu_limit(void)
{
	struct box_reply end;
	struct box_limits limits;

	rig_limits(&limits);
	limits.cpu_millis = 200;
	open_box(&limits);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "timeout -s KILL 1 sh -c 'while :; do :; done'"), 0);
	close_box(&end);
	CU_ASSERT_TRUE(end.stats.cpu_us > 100000);
	CU_ASSERT_TRUE(end.stats.cpu_us < 400000);
}

/* A limit below the host's processors shows in what a box can count. */
static void test_nproc(void)
{
	static const uint32_t millis[] = {0, 500, 1000, 1500, 0, 1000};
	long host = sysconf(_SC_NPROCESSORS_ONLN);
	struct box_limits limits;
	struct stat st;

	rig_limits(&limits);
	if (stat("/sys/fs/cgroup/cpuset/cpuset.cpus", &st) != 0 &&
	    stat("/sys/fs/cgroup/cpuset.cpus.effective", &st) != 0)
		return; /* no controller for it */
	for (size_t i = 0; i < sizeof(millis) / sizeof(millis[0]); i++) {
		long cpus = (millis[i] + 999) / 1000;
		char want[32];

		limits.cpu_millis = millis[i];
		(void)snprintf(want, sizeof(want), "%ld\n", cpus == 0 || cpus > host ? host : cpus);
		open_box(&limits);
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, "nproc"), 0);
		CU_ASSERT_TRUE(rig_out_is(&box, 0, want));
		/* it cannot take more */
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, "taskset -p ffff $$ >/dev/null; nproc"), 0);
		CU_ASSERT_TRUE(rig_out_is(&box, 0, want));
		close_box(NULL);
	}
}

static void test_space_ends(void)
{
	struct box_limits limits;

	rig_limits(&limits);
	limits.workspace_bytes = MIB(8);
	limits.workspace_inodes = 100;
	open_box(&limits);
	CU_ASSERT_EQUAL(
	    rig_sh(&rig, &box, "head -c 16M /dev/zero > f; echo $?; stat -c %s f; rm f"), 0);
	CU_ASSERT_TRUE(rig_out_has(&box, 1, "No space left on device"));
	CU_ASSERT_TRUE(rig_out_has(&box, 0, "8388608"));
	CU_ASSERT_EQUAL(
	    rig_sh(&rig, &box, "i=0; while true > f$i; do i=$((i+1)); done 2>/dev/null; echo $i"),
	    0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "99\n"));
	close_box(NULL);
}

/* --- input ---------------------------------------------------------------------------------- */

static void test_b10_no_stdin(void)
{
	run("cat; echo end");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "end\n"));
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "python3 -c 'input()'"), 0);
	CU_ASSERT_TRUE(rig_out_has(&box, 1, "EOFError"));
	close_box(NULL);
}

static void send_all(const char *data, size_t length)
{
	int64_t until = clock_monotonic_us() + 10 * CLOCK_US_PER_S * rig_slow();
	size_t at = 0;

	while (at < length && clock_monotonic_us() < until) {
		struct err e = ERR_INIT;
		size_t part = length - at < 2049 ? length - at : 2049;
		ssize_t took =
		    agent_stdin(&box.agent, box.channel, data + at, part, at + part == length, &e);

		if (took < 0)
			break;
		at += (size_t)took;
		rig_step(&rig, took == 0 ? 20 : 0);
	}
	CU_ASSERT_EQUAL(at, length);
}

static void test_b10_stdin(void)
{
	static char data[1 << 20];
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char cat[] = "cat";
	char closes[] = "exec 0<&-; sleep 0.3; echo done";
	char *echo_argv[] = {shell, option, cat, NULL};
	char *close_argv[] = {shell, option, closes, NULL};

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / 251);
	open_box(NULL);
	CU_ASSERT_EQUAL(rig_exec(&box, echo_argv, true), 0);
	send_all(data, sizeof(data));
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 10000), 0);
	CU_ASSERT_EQUAL(box.out[0].len, sizeof(data));
	CU_ASSERT_EQUAL(memcmp(buf_text(&box.out[0]), data, sizeof(data)), 0);
	/* the program closes its input while a megabyte comes */
	CU_ASSERT_EQUAL(rig_exec(&box, close_argv, true), 0);
	send_all(data, sizeof(data));
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 10000), 0);
	CU_ASSERT_TRUE(box.in_closed);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "done\n"));
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "echo alive"), 0);
	close_box(NULL);
}

/* --- files ---------------------------------------------------------------------------------- */

static const char *entry_name(unsigned int i)
{
	return i < box.entry_count ? box.entries[i].path : "";
}

static void test_files_in(void)
{
	static char large[700000];

	memset(large, 'z', sizeof(large));
	open_box(NULL);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "a/b/c.txt", 0640, "hello", 5), 0);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "empty", 0644, "", 0), 0);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "large", 0755, large, sizeof(large)), 0);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "a/b/c.txt", 0640, "hi", 2), 0);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box,
			       "cat a/b/c.txt; stat -c ' %U %a %s' a/b/c.txt empty large; "
			       "stat -c '%U %a' a; echo x >> a/b/c.txt && ln -s /etc out && "
			       "ln -s a in"),
			0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0,
				  "hi user 640 2\n user 644 0\n user 755 700000\n"
				  "user 755\n"));
	/* a link that leads out is refused, one that stays is followed */
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "out/x", 0644, "x", 1), -1);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "in/x", 0644, "x", 1), 0);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "../x", 0644, "x", 1), -1);
	close_box(NULL);
}

static void test_files_in_no_space(void)
{
	struct box_limits limits;
	static char large[3 << 20];

	rig_limits(&limits);
	limits.workspace_bytes = MIB(1);
	open_box(&limits);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "large", 0644, large, sizeof(large)), -1);
	CU_ASSERT_EQUAL(box.error.code, ERR_STORAGE);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "small", 0644, "x", 1), -1);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "rm large; echo ok"), 0);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "small", 0644, "x", 1), 0);
	close_box(NULL);
}

static void collect(const char *first, const char *second)
{
	const char *patterns[] = {first, second};
	struct err e = ERR_INIT;

	box.entry_count = 0;
	CU_ASSERT_EQUAL(
	    agent_collect(&box.agent, 900, 1000, 1000, patterns, second == NULL ? 1 : 2, &e), 0);
	CU_ASSERT_EQUAL(rig_result(&rig, &box, 900), 0);
	box.result_tag = 0;
}

static void test_collect(void)
{
	run("mkdir -p out/deep/er b; echo 1 > out/r.csv; echo 22 > out/deep/er/q.csv; echo > b/x.txt; "
	    "ln -s /etc/passwd out/link.csv; mkfifo out/pipe.csv; echo s > out/secret.csv; "
	    "chmod 0 out/secret.csv; ln -s /etc b/etc; printf x > \"$(printf 'out/\\377.csv')\"; "
	    "mkdir closed; echo > closed/a.csv; chmod 0 closed");
	collect("*.csv", NULL);
	CU_ASSERT_EQUAL(box.entry_count, 6);
	CU_ASSERT_STRING_EQUAL(entry_name(0), "out/deep/er/q.csv");
	CU_ASSERT_EQUAL(box.entries[0].size, 3);
	CU_ASSERT_STRING_EQUAL(entry_name(1), "out/link.csv");
	CU_ASSERT_EQUAL(box.entries[1].kind, AGENT_KIND_SYMLINK);
	CU_ASSERT_STRING_EQUAL(entry_name(2), "out/pipe.csv");
	CU_ASSERT_EQUAL(box.entries[2].kind, AGENT_KIND_OTHER);
	CU_ASSERT_STRING_EQUAL(entry_name(3), "out/r.csv");
	CU_ASSERT_EQUAL(box.entries[3].kind, AGENT_KIND_REGULAR);
	CU_ASSERT_STRING_EQUAL(entry_name(4), "out/secret.csv");
	CU_ASSERT_EQUAL(box.entries[4].kind, AGENT_KIND_UNREADABLE);
	CU_ASSERT_STRING_EQUAL(entry_name(5), "out/\377.csv");
	CU_ASSERT_EQUAL(box.values[3], 1); /* closed */
	collect("out/r.csv", "b/[w-y].*");
	CU_ASSERT_EQUAL(box.entry_count, 2);
	CU_ASSERT_STRING_EQUAL(entry_name(0), "b/x.txt");
	collect("*.CSV", NULL);
	CU_ASSERT_EQUAL(box.entry_count, 0);
	close_box(NULL);
}

static void test_collect_large_tree(void)
{
	struct box_limits limits;

	rig_limits(&limits);
	limits.workspace_inodes = 60000;
	open_box(&limits);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box,
			       "python3 -c \"\n"
			       "import os\n"
			       "os.mkdir('w')\n"
			       "for i in range(30000): open('w/%05d' % i, 'w').close()\n"
			       "p = ''\n"
			       "for i in range(300): p += 'd/'; os.mkdir(p)\n"
			       "open(p + 'bottom', 'w').close()\n"
			       "\""),
			0);
	collect("*bottom", "w/0000?");
	CU_ASSERT_EQUAL(box.entry_count, 11);
	CU_ASSERT_TRUE(str_ends(entry_name(0), "d/bottom"));
	CU_ASSERT_STRING_EQUAL(entry_name(10), "w/00009");
	CU_ASSERT_EQUAL(box.values[1], 30000 + 300 + 2);
	close_box(NULL);
}

static void get_file(const char *path, uint64_t offset, uint64_t length)
{
	struct err e = ERR_INIT;

	buf_reset(&box.data);
	box.result_tag = 0;
	box.error_tag = 0;
	CU_ASSERT_EQUAL(
	    agent_get_file(&box.agent, 901, 1000, 1000, path, strlen(path), offset, length, &e), 0);
	(void)rig_result(&rig, &box, 901);
}

static void test_file_read(void)
{
	run("python3 -c \"open('big','wb').write(bytes(range(256)) * 40960)\"; ln -s big link; "
	    "mkfifo pipe; ln -s /etc etc");
	get_file("big", 0, UINT64_MAX);
	CU_ASSERT_EQUAL(box.result_tag, 901);
	CU_ASSERT_EQUAL(box.data.len, 10485760);
	CU_ASSERT_EQUAL(box.values[0], 10485760);
	CU_ASSERT_EQUAL((unsigned char)box.data.data[1000003], 1000003 % 256);
	get_file("big", 10485750, 100);
	CU_ASSERT_EQUAL(box.data.len, 10);
	get_file("big", 20000000, 100);
	CU_ASSERT_EQUAL(box.result_tag, 901);
	CU_ASSERT_EQUAL(box.data.len, 0);
	get_file("link", 0, 100);
	CU_ASSERT_EQUAL(box.error_tag, 901);
	get_file("pipe", 0, 100);
	CU_ASSERT_EQUAL(box.error_tag, 901);
	get_file("etc/passwd", 0, 100);
	CU_ASSERT_EQUAL(box.error_tag, 901);
	get_file("missing", 0, 100);
	CU_ASSERT_EQUAL(box.error_tag, 901);
	CU_ASSERT_EQUAL(box.error.code, ERR_NOT_FOUND);
	close_box(NULL);
}

/* --- reconnect ------------------------------------------------------------------------------ */

static void reconnect(bool fresh)
{
	struct err e = ERR_INIT;

	agent_close(&box.agent);
	if (fresh) {
		/* as a restarted runner: it knows nothing but the offsets of its spool */
		const struct agent_events *events = box.agent.events;

		agent_release(&box.agent);
		agent_init(&box.agent, events, &box, 1);
	}
	box.welcomed = false;
	CU_ASSERT_EQUAL_FATAL(rig_connect(&box), 0);
	for (int i = 0; i < 100 && !box.welcomed; i++)
		rig_step(&rig, 20);
	CU_ASSERT_TRUE_FATAL(box.welcomed);
	CU_ASSERT_EQUAL(box.welcome.count, 1);
	CU_ASSERT_EQUAL(
	    agent_attach(&box.agent, box.channel, box.out_bytes[0], box.out_bytes[1], &e), 0);
}

static void test_reconnect(void)
{
	char python[] = "python3";
	char option[] = "-c";
	char script[] = "import sys\n"
			"for i in range(400000): sys.stdout.write('%07d\\n' % i)\n"
			"sys.stderr.write('end')\n";
	char *argv[] = {python, option, script, NULL};
	size_t wrong = 0;

	open_box(NULL);
	box.out_bytes[0] = 0;
	box.out_bytes[1] = 0;
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	for (int i = 0; i < 12; i++) {
		size_t before = box.out[0].len;

		for (int k = 0; k < 200 && box.out[0].len == before && !box.exited; k++)
			rig_step(&rig, 20);
		if (box.exited)
			break;
		reconnect(i % 2 == 0);
	}
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 20000), 0);
	CU_ASSERT_EQUAL(box.out[0].len, 3200000);
	CU_ASSERT_TRUE(rig_out_is(&box, 1, "end"));
	for (size_t i = 0; i + 8 <= box.out[0].len; i += 8) {
		char line[16];

		(void)snprintf(line, sizeof(line), "%07zu\n", i / 8);
		wrong += memcmp(box.out[0].data + i, line, 8) == 0 ? 0 : 1;
	}
	CU_ASSERT_EQUAL(wrong, 0);
	close_box(NULL);
}

static void test_reconnect_after_end(void)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char script[] = "printf 0123456789; printf err >&2; exit 9";
	char *argv[] = {shell, option, script, NULL};

	open_box(NULL);
	box.hold = true;
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	/* nothing was acknowledged: all comes again, from the offset that is asked for */
	box.exited = false;
	buf_reset(&box.out[0]);
	buf_reset(&box.out[1]);
	box.out_bytes[0] = 4;
	box.out_bytes[1] = 0;
	box.hold = false;
	reconnect(true);
	CU_ASSERT_TRUE(box.welcome.channels[0].ended);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_EQUAL(box.status.code, 9);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "456789"));
	CU_ASSERT_TRUE(rig_out_is(&box, 1, "err"));
	close_box(NULL);
}

static void test_window_blocks_program(void)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char script[] = "head -c 1000000 /dev/zero; echo late > /workspace/late";
	char *argv[] = {shell, option, script, NULL};
	struct err e = ERR_INIT;

	open_box(NULL);
	box.hold = true;
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 500), -1);
	CU_ASSERT_EQUAL(box.out[0].len, AGENT_WINDOW_BYTES);
	box.hold = false;
	CU_ASSERT_EQUAL(agent_ack(&box.agent, box.channel, AGENT_STREAM_OUT, box.out_bytes[0], &e),
			0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_EQUAL(box.out[0].len, 1000000);
	close_box(NULL);
}

static void test_repeated_exec_is_refused(void)
{
	char program[] = "sleep";
	char seconds[] = "2";
	char *argv[] = {program, seconds, NULL};

	open_box(NULL);
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	rig_step(&rig, 100);
	agent_close(&box.agent);
	agent_release(&box.agent);
	agent_init(&box.agent, box.agent.events, &box, 1);
	CU_ASSERT_EQUAL(rig_connect(&box), 0);
	box.channel--;
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 1000), -1);
	CU_ASSERT_EQUAL(box.error_tag, box.channel);
	CU_ASSERT_EQUAL(box.error.code, ERR_CONFLICT);
	close_box(NULL);
}

static const struct test tests[] = {
    {"box", "true", test_true},
    {"box", "B01 bytes", test_b01_bytes},
    {"box", "B02 one enormous line", test_b02_enormous_line},
    {"box", "B03 blank lines", test_b03_blank_lines},
    {"box", "B04 tail", test_b04_tail},
    {"box", "B05 background child", test_b05_background_child},
    {"box", "B06 runaway children", test_b06_runaway_children},
    {"box", "signals to a group and to all", test_kill_all_and_group},
    {"box", "B07 fork bomb", test_b07_fork_bomb},
    {"box", "B07 endless fork loop", test_b07_endless_fork_loop},
    {"box", "B08 out of memory", test_b08_out_of_memory},
    {"box", "B09 exit codes and signals", test_b09_exit_codes},
    {"box", "B09 not started", test_b09_not_started},
    {"box", "B10 no stdin", test_b10_no_stdin},
    {"box", "B10 stdin", test_b10_stdin},
    {"box", "stats at exit", test_stats_at_exit},
    {"box", "cpu limit", test_cpu_limit},
    {"box", "nproc", test_nproc},
    {"box", "space ends", test_space_ends},
    {"box", "files in", test_files_in},
    {"box", "files in without space", test_files_in_no_space},
    {"box", "collect", test_collect},
    {"box", "collect a large tree", test_collect_large_tree},
    {"box", "file read", test_file_read},
    {"box", "reconnect", test_reconnect},
    {"box", "reconnect after the end", test_reconnect_after_end},
    {"box", "window blocks the program", test_window_blocks_program},
    {"box", "a repeated exec is refused", test_repeated_exec_is_refused},
};

int main(int argc, char **argv)
{
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
