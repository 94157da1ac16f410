/* test_box_pty.c: commands at a terminal, in real boxes, on a private cordon-box. */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/clock.h"

#include <CUnit/CUnit.h>
#include <errno.h>

#define SLOTS 2

static struct rig rig;
static struct rig_box box;

static void open_box(void)
{
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
}

static void close_box(void)
{
	CU_ASSERT_EQUAL_FATAL(rig_destroy(&rig, &box, NULL), 0);
}

static void run(const char *script)
{
	CU_ASSERT_EQUAL(rig_exec_pty(&box, script, false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, RIG_WAIT_MS), 0);
	CU_ASSERT_EQUAL(box.out[1].len, 0);
	CU_ASSERT_EQUAL(box.status.err_bytes, 0);
}

static void type(const void *data, size_t length, bool eof)
{
	int64_t until = clock_monotonic_us() + 10 * CLOCK_US_PER_S * rig_slow();
	const char *p = data;
	size_t at = 0;
	struct err e = ERR_INIT;

	do {
		ssize_t took = agent_stdin(&box.agent, box.channel, p + at, length - at, eof, &e);

		if (took < 0)
			break;
		at += (size_t)took;
		rig_step(&rig, took == 0 ? 20 : 0);
	} while (at < length && clock_monotonic_us() < until);
	CU_ASSERT_EQUAL(at, length);
}

static void type_text(const char *text, bool eof)
{
	type(text, strlen(text), eof);
}

static void wait_for(const char *text)
{
	for (int i = 0; i < 200 && !rig_out_has(&box, 0, text) && !box.exited; i++)
		rig_step(&rig, 50);
	CU_ASSERT_TRUE(rig_out_has(&box, 0, text));
}

static int ask_resize(uint16_t rows, uint16_t cols)
{
	struct err e = ERR_INIT;

	box.result_tag = 0;
	box.error_tag = 0;
	CU_ASSERT_EQUAL(agent_resize(&box.agent, box.channel, rows, cols, &e), 0);
	return rig_result(&rig, &box, box.channel);
}

/* --- what it is ----------------------------------------------------------------------------- */

static void test_is_a_terminal(void)
{
	open_box();
	run("tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo three; echo err >&2; "
	    "stat -c '%U %a' $(tty); echo mine >/dev/tty; echo out >/dev/stdout");
	CU_ASSERT_TRUE(rig_out_is(&box, 0,
				  "/dev/pts/0\r\n40 101\r\nthree\r\nerr\r\nuser 620\r\nmine\r\n"
				  "out\r\n"));
	run("exec python3 -c 'import os; print(os.getsid(0) == os.getpid(), os.tcgetpgrp(0) == "
	    "os.getpid(), sorted(os.listdir(\"/dev/pts\")))'");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "True True ['0', 'ptmx']\r\n"));
	/* all of them are given back, and a command without one has none */
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "ls /dev/pts; tty; echo x > /dev/tty"), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "ptmx\nnot a tty\n"));
	close_box();
}

static void test_not_started(void)
{
	open_box();
	run("exec /nonexistent");
	CU_ASSERT_EQUAL(box.status.code, 127);
	run("exit 7");
	CU_ASSERT_EQUAL(box.status.how, AGENT_EXITED);
	CU_ASSERT_EQUAL(box.status.code, 7);
	run("kill -9 $$");
	CU_ASSERT_EQUAL(box.status.how, AGENT_SIGNALED);
	CU_ASSERT_EQUAL(box.status.code, SIGKILL);
	close_box();
}

static void test_sudden_end_loses_nothing(void)
{
	open_box();
	for (int i = 0; i < 20; i++) {
		CU_ASSERT_EQUAL(rig_exec_pty(&box, "exec seq 1 60000", false), 0);
		CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, RIG_WAIT_MS), 0);
		CU_ASSERT_EQUAL(box.out[0].len, 348894 + 60000);
		CU_ASSERT_EQUAL(box.status.out_bytes, 348894 + 60000);
		CU_ASSERT_EQUAL(memcmp(box.out[0].data + box.out[0].len - 7, "60000\r\n", 7), 0);
	}
	close_box();
}

static void test_window_blocks_program(void)
{
	struct err e = ERR_INIT;

	open_box();
	box.hold = true;
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "stty raw -echo; head -c 1000000 /dev/zero", false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 500), -1);
	CU_ASSERT_EQUAL(box.out[0].len, AGENT_WINDOW_BYTES);
	box.hold = false;
	CU_ASSERT_EQUAL(agent_ack(&box.agent, box.channel, AGENT_STREAM_OUT, box.out_bytes[0], &e),
			0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_EQUAL(box.out[0].len, 1000000);
	close_box();
}

static void test_reopens_its_terminal(void)
{
	open_box();
	run("exec <&- >&- 2>&-; sleep 0.2; echo again >/dev/tty; sleep 0.2; echo more >/dev/tty");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "again\r\nmore\r\n"));
	close_box();
}

/* --- input ---------------------------------------------------------------------------------- */

static void test_input_and_end(void)
{
	open_box();
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "stty -echo; echo go; cat; echo end", true), 0);
	wait_for("go");
	type_text("hello\n", false);
	wait_for("hello");
	type_text("two\n", true);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "go\r\nhello\r\ntwo\r\nend\r\n"));
	CU_ASSERT_TRUE(box.in_closed);
	/* in the middle of a line, with echo */
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "echo go; cat; echo end", true), 0);
	wait_for("go");
	type_text("abc", true);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "go\r\nabcabcend\r\n"));
	/* at once, and none at all */
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "cat; echo end", true), 0);
	type_text("", true);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "end\r\n"));
	run("cat; echo end");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "end\r\n"));
	close_box();
}

static void test_raw_megabyte(void)
{
	static char data[1 << 20];
	unsigned long sum = 0;
	char want[64];

	for (size_t i = 0; i < sizeof(data); i++) {
		data[i] = (char)(i * 7 + i / 251);
		sum += (unsigned char)data[i] * (i % 1000 + 1);
	}
	(void)snprintf(want, sizeof(want), "1048576 %lu", sum);
	open_box();
	CU_ASSERT_EQUAL(
	    rig_exec_pty(&box,
			 "exec python3 -c \"\n"
			 "import os, tty\n"
			 "tty.setraw(0); os.write(1, b'go'); n = s = 0\n"
			 "while n < 1048576:\n"
			 "  for b in os.read(0, 65536): s += b * (n % 1000 + 1); n += 1\n"
			 "os.write(1, b'%d %d' % (n, s))\"",
			 true),
	    0);
	wait_for("go");
	type(data, sizeof(data), false);
	wait_for(want);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 10000), 0);
	close_box();
}

static void test_control_characters(void)
{
	open_box();
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "echo go; exec sleep 1000", true), 0);
	wait_for("go");
	type_text("\003", false);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_EQUAL(box.status.how, AGENT_SIGNALED);
	CU_ASSERT_EQUAL(box.status.code, SIGINT);
	CU_ASSERT_TRUE(rig_out_has(&box, 0, "^C"));
	/* job control: the shell stops its job and goes on */
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "exec bash --norc -i", true), 0);
	wait_for("$ ");
	type_text("cat\n", false);
	wait_for("cat\r\n");
	clock_sleep_us(200000);
	type_text("\032", false);
	wait_for("Stopped");
	type_text("echo $((40 + 2))\n", false);
	wait_for("42\r\n");
	/* the first only warns of the job */
	type_text("exit\nexit 5\n", false);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_EQUAL(box.status.code, 5);
	close_box();
}

/* --- size ----------------------------------------------------------------------------------- */

static void test_resize(void)
{
	struct err e = ERR_INIT;

	open_box();
	CU_ASSERT_EQUAL(rig_exec_pty(&box,
				     "trap 'stty size; exit 3' WINCH; echo go; "
				     "while :; do sleep 0.1; done",
				     true),
			0);
	wait_for("go");
	CU_ASSERT_EQUAL(ask_resize(33, 222), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_EQUAL(box.status.code, 3);
	CU_ASSERT_TRUE(rig_out_has(&box, 0, "33 222\r\n"));
	/* the channel is forgotten */
	CU_ASSERT_EQUAL(ask_resize(1, 1), -1);
	CU_ASSERT_EQUAL(box.error.code, ERR_NOT_FOUND);
	/* ended, not forgotten */
	box.hold = true;
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "true", false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_EQUAL(ask_resize(1, 1), -1);
	CU_ASSERT_EQUAL(box.error.code, ERR_CONFLICT);
	CU_ASSERT_EQUAL(agent_ack_exit(&box.agent, box.channel, &e), 0);
	box.hold = false;
	/* no terminal */
	{
		char program[] = "sleep";
		char seconds[] = "1000";
		char *argv[] = {program, seconds, NULL};

		CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
		CU_ASSERT_EQUAL(ask_resize(1, 1), -1);
		CU_ASSERT_EQUAL(box.error.code, ERR_INVALID);
	}
	close_box();
}

/* --- the end -------------------------------------------------------------------------------- */

static uint32_t processes(void)
{
	struct box_reply reply;
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	CU_ASSERT_EQUAL(boxclient_verb(&rig.client, BOX_STATS, tag, box.slot, box.run_id, 0, &e),
			0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	return (uint32_t)reply.stats.pids;
}

static void test_background_holders(void)
{
	int64_t start;

	open_box();
	/* the terminal's group is hung up with the command */
	start = clock_monotonic_us();
	run("sleep 300 & echo hi");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "hi\r\n"));
	CU_ASSERT_TRUE(clock_monotonic_us() - start < CLOCK_US_PER_S);
	for (int i = 0; i < 50 && processes() != 1; i++)
		clock_sleep_us(10000);
	CU_ASSERT_EQUAL(processes(), 1);
	/* one that does not care is waited for, for the grace, and what it writes comes */
	start = clock_monotonic_us();
	run("(trap '' HUP; sleep 0.1; echo late; exec sleep 300) & sleep 0.02; echo hi");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "hi\r\nlate\r\n"));
	CU_ASSERT_TRUE(clock_monotonic_us() - start >= AGENT_GRACE_MS * CLOCK_US_PER_MS);
	CU_ASSERT_TRUE(clock_monotonic_us() - start < CLOCK_US_PER_S);
	/* one that never stops writing */
	start = clock_monotonic_us();
	run("(trap '' HUP; exec yes) & sleep 0.02; exit 4");
	CU_ASSERT_EQUAL(box.status.code, 4);
	CU_ASSERT_TRUE(box.out[0].len > 0);
	CU_ASSERT_EQUAL(box.out[0].len, box.status.out_bytes);
	CU_ASSERT_TRUE(clock_monotonic_us() - start < 2 * CLOCK_US_PER_S);
	close_box();
}

static void test_reattach(void)
{
	struct err e = ERR_INIT;

	open_box();
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "echo go; read x; echo got $x", true), 0);
	wait_for("go\r\n");
	/* a client that is gone does not hang the command up */
	agent_close(&box.agent);
	clock_sleep_us(100000);
	box.welcomed = false;
	CU_ASSERT_EQUAL_FATAL(rig_connect(&box), 0);
	for (int i = 0; i < 100 && !box.welcomed; i++)
		rig_step(&rig, 20);
	CU_ASSERT_EQUAL(box.welcome.count, 1);
	CU_ASSERT_EQUAL(agent_attach(&box.agent, box.channel, box.out_bytes[0], 0, &e), 0);
	type_text("it\n", false);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "go\r\nit\r\ngot it\r\n"));
	close_box();
}

static void test_no_terminal_left(void)
{
	char python[] = "python3";
	char option[] = "-c";
	char script[] = "import os, time\n"
			"try:\n"
			"  while True: os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)\n"
			"except OSError: print('full', flush=True)\n"
			"time.sleep(1000)\n";
	char *argv[] = {python, option, script, NULL};
	uint32_t first;

	open_box();
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	wait_for("full");
	first = box.channel;
	CU_ASSERT_EQUAL(rig_exec_pty(&box, "echo never", false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 5000), -1);
	CU_ASSERT_EQUAL(box.error_tag, box.channel);
	CU_ASSERT_EQUAL(box.error.code, ERR_LIMIT);
	CU_ASSERT_EQUAL(box.error.sys, ENOSPC);
	CU_ASSERT_NOT_EQUAL(first, box.channel);
	close_box();
}

static const struct test tests[] = {
    {"pty", "is a terminal", test_is_a_terminal},
    {"pty", "how it ends", test_not_started},
    {"pty", "a sudden end loses nothing", test_sudden_end_loses_nothing},
    {"pty", "window blocks the program", test_window_blocks_program},
    {"pty", "a program reopens its terminal", test_reopens_its_terminal},
    {"pty", "input and its end", test_input_and_end},
    {"pty", "a raw megabyte", test_raw_megabyte},
    {"pty", "control characters", test_control_characters},
    {"pty", "resize", test_resize},
    {"pty", "background holders", test_background_holders},
    {"pty", "reattach", test_reattach},
    {"pty", "no terminal left", test_no_terminal_left},
};

int main(int argc, char **argv)
{
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
