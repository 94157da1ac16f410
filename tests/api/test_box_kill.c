/*
 * test_box_kill.c: whatever a process in a box does to stay, SIGNAL ALL, KILL and DESTROY end it:
 * stopped, frozen, forked twice, in sessions of their own, away from their terminal, ignoring all
 * that can be ignored, or making others all the time.
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/clock.h"

#include <CUnit/CUnit.h>

#define SLOTS 2
#define TAG   800

static struct rig rig;
static struct rig_box box;
static char seconds[32]; /* what all of them sleep: their mark in /proc */

/* All but the last line of each holds nothing of the command's. */
static const char hide[] =
    "S=%s\n"
    "sleep $S & kill -STOP $!\n"
    "setsid sh -c \"trap '' HUP TERM INT QUIT USR1 USR2 PIPE; sleep $S & exec sleep $S\" &\n"
    "(setsid sh -c \"(setsid sleep $S &) ; exit\" &)\n"
    "(setsid sh -c 'kill -STOP $$; exec sleep '$S &)\n"
    "(setsid sh -c \"while :; do sleep 0.01 & sleep 0.01; done; : $S\" &)\n"
    "(cd /tmp && exec nohup setsid sleep $S >/dev/null 2>&1 </dev/null &)\n"
    "sleep 0.2; echo hidden\n";

static void get_stats(struct box_reply *out, enum box_verb verb)
{
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	CU_ASSERT_EQUAL(boxclient_verb(&rig.client, verb, tag, box.slot, box.run_id, 0, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, out), 0);
	CU_ASSERT_EQUAL(out->code, BOX_OK);
}

static uint64_t processes(void)
{
	struct box_reply reply;

	get_stats(&reply, BOX_STATS);
	return reply.stats.pids;
}

static void wait_for_processes(uint64_t count)
{
	int64_t until = clock_monotonic_us() + 5 * CLOCK_US_PER_S * rig_slow();

	while (processes() != count && clock_monotonic_us() < until)
		clock_sleep_us(5000);
	CU_ASSERT_EQUAL(processes(), count);
}

static void open_hiding_box(bool pty)
{
	char script[1024];

	(void)snprintf(script, sizeof(script), hide, seconds);
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
	if (pty) {
		CU_ASSERT_EQUAL(rig_exec_pty(&box, script, true), 0);
		CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, RIG_WAIT_MS), 0);
	} else {
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, script), 0);
	}
	CU_ASSERT_TRUE(rig_out_has(&box, 0, "hidden"));
	CU_ASSERT_TRUE(processes() >= 7);
	CU_ASSERT_TRUE(rig_processes_left(seconds) >= 5);
}

static void destroy(void)
{
	struct box_reply reply;
	int64_t start = clock_monotonic_us();

	CU_ASSERT_EQUAL(rig_destroy(&rig, &box, &reply), 0);
	CU_ASSERT_EQUAL(reply.stats.pids, 0);
	CU_ASSERT_TRUE(clock_monotonic_us() - start < CLOCK_US_PER_S);
	CU_ASSERT_EQUAL(rig_processes_left(seconds), 0);
}

static void signal_all(int number)
{
	struct err e = ERR_INIT;

	box.result_tag = 0;
	CU_ASSERT_EQUAL(agent_signal_all(&box.agent, TAG, number, &e), 0);
	CU_ASSERT_EQUAL(rig_result(&rig, &box, TAG), 0);
}

static void test_signal_all(void)
{
	for (int pty = 0; pty < 2; pty++) {
		open_hiding_box(pty == 1);
		signal_all(SIGTERM);
		/* those that ignore it, are stopped, or are made again */
		CU_ASSERT_TRUE(processes() > 1);
		signal_all(SIGKILL);
		wait_for_processes(1);
		CU_ASSERT_EQUAL(rig_processes_left(seconds), 0);
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, "echo alive"), 0);
		CU_ASSERT_TRUE(rig_out_is(&box, 0, "alive\n"));
		destroy();
	}
}

static void test_destroy(void)
{
	for (int pty = 0; pty < 2; pty++) {
		open_hiding_box(pty == 1);
		destroy();
	}
}

static void test_destroy_frozen(void)
{
	struct box_reply reply;

	for (int pty = 0; pty < 2; pty++) {
		open_hiding_box(pty == 1);
		get_stats(&reply, BOX_FREEZE);
		destroy();
	}
}

static void test_kill_frozen(void)
{
	struct box_reply reply;

	open_hiding_box(true);
	get_stats(&reply, BOX_FREEZE);
	get_stats(&reply, BOX_KILL);
	for (int i = 0; i < 200 && rig_processes_left(seconds) > 0; i++)
		clock_sleep_us(5000);
	CU_ASSERT_EQUAL(rig_processes_left(seconds), 0);
	destroy();
}

static void test_kill(void)
{
	struct box_reply reply;

	open_hiding_box(false);
	get_stats(&reply, BOX_KILL);
	for (int i = 0; i < 200 && rig_processes_left(seconds) > 0; i++)
		clock_sleep_us(5000);
	CU_ASSERT_EQUAL(rig_processes_left(seconds), 0);
	destroy();
}

static void test_signal_all_while_they_multiply(void)
{
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
	for (int i = 0; i < 20; i++) {
		CU_ASSERT_EQUAL(rig_sh(&rig, &box,
				       "for i in 1 2 3; do setsid sh -c 'while :; do sleep 0.01 & "
				       "sleep 0.005; done' >/dev/null 2>&1 & done; "
				       "f() { f | f & }; f 2>/dev/null; sleep 0.02"),
				0);
		signal_all(SIGKILL);
		wait_for_processes(1);
	}
	destroy();
}

/* A stopped command ends by KILL, and one at a terminal that was left by its session. */
static void test_stopped_command(void)
{
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
	for (int pty = 0; pty < 2; pty++) {
		char shell[] = "/bin/sh";
		char option[] = "-c";
		char script[] = "echo go; kill -STOP $$; echo on; sleep 1000";
		char *argv[] = {shell, option, script, NULL};

		CU_ASSERT_EQUAL(
		    pty == 1 ? rig_exec_pty(&box, script, true) : rig_exec(&box, argv, true), 0);
		for (int i = 0; i < 100 && !rig_out_has(&box, 0, "go"); i++)
			rig_step(&rig, 20);
		clock_sleep_us(50000);
		CU_ASSERT_EQUAL(agent_signal(&box.agent, box.channel, SIGTERM, &e), 0);
		CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 100), -1);
		CU_ASSERT_EQUAL(agent_signal(&box.agent, box.channel, SIGKILL, &e), 0);
		CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 2000), 0);
		CU_ASSERT_EQUAL(box.status.how, AGENT_SIGNALED);
		CU_ASSERT_EQUAL(box.status.code, SIGKILL);
		CU_ASSERT_FALSE(rig_out_has(&box, 0, "on"));
		wait_for_processes(1);
	}
	destroy();
}

static const struct test tests[] = {
    {"kill", "signal all", test_signal_all},
    {"kill", "destroy", test_destroy},
    {"kill", "destroy a frozen box", test_destroy_frozen},
    {"kill", "kill a frozen box", test_kill_frozen},
    {"kill", "kill", test_kill},
    {"kill", "signal all while they multiply", test_signal_all_while_they_multiply},
    {"kill", "a stopped command", test_stopped_command},
};

int main(int argc, char **argv)
{
	(void)snprintf(seconds, sizeof(seconds), "98765.%ld", (long)getpid());
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
