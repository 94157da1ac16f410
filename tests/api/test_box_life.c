/*
 * test_box_life.c: the verbs of cordon-box, many boxes, and what is
 * left when something ends: the caller, a box, the zygote, cordon-box itself.
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/str.h"

#include <CUnit/CUnit.h>
#include <fcntl.h>

#define SLOTS 24

static struct rig rig;
static struct rig_box box; /* of the tests that need one only */

static void open_box(void)
{
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
}

static void close_box(struct box_reply *out)
{
	CU_ASSERT_EQUAL_FATAL(rig_destroy(&rig, &box, out), 0);
}

/* Runs a script in a fresh box and leaves the box open. */
static void run(const char *script)
{
	open_box();
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, script), 0);
}

/* --- cordon-box ----------------------------------------------------------------------------- */

static void verb(enum box_verb name, struct box_reply *out)
{
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	memset(out, 0, sizeof(*out));
	CU_ASSERT_EQUAL(boxclient_verb(&rig.client, name, tag, box.slot, box.run_id, 0, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, out), 0);
}

static void test_kill_keeps_box(void)
{
	struct box_reply reply;
	unsigned int died = rig.died_count;

	run("echo x");
	verb(BOX_KILL, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	CU_ASSERT_EQUAL(reply.state, BOX_DEAD);
	verb(BOX_STATS, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	CU_ASSERT_TRUE(reply.stats.cpu_us > 0);
	verb(BOX_FREEZE, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_ERR_BUSY);
	CU_ASSERT_EQUAL(rig.died_count, died);
	close_box(&reply);
	CU_ASSERT_TRUE(reply.stats.cpu_us > 0);
	verb(BOX_STATS, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_ERR_NOT_FOUND);
}

static void test_freeze(void)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char script[] = "while :; do echo x; sleep 0.02; done";
	char *argv[] = {shell, option, script, NULL};
	struct box_reply reply;
	size_t before;

	open_box();
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, 300), -1);
	CU_ASSERT_TRUE(box.out[0].len > 0);
	verb(BOX_FREEZE, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	CU_ASSERT_EQUAL(reply.state, BOX_FROZEN);
	(void)rig_wait_exit(&rig, &box, 100);
	before = box.out[0].len;
	(void)rig_wait_exit(&rig, &box, 300);
	CU_ASSERT_EQUAL(box.out[0].len, before);
	verb(BOX_THAW, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	(void)rig_wait_exit(&rig, &box, 300);
	CU_ASSERT_TRUE(box.out[0].len > before);
	verb(BOX_FREEZE, &reply);
	close_box(NULL); /* a frozen box can be destroyed */
}

static void test_death_is_told(void)
{
	unsigned int died = rig.died_count;
	struct box_reply reply;

	run("echo x");
	CU_ASSERT_TRUE_FATAL(rig_init_pid(&rig, box.slot) > 1);
	CU_ASSERT_EQUAL(kill(rig_init_pid(&rig, box.slot), SIGKILL), 0);
	for (int i = 0; i < 100 && rig.died_count == died; i++)
		rig_step(&rig, 20);
	CU_ASSERT_EQUAL(rig.died_count, died + 1);
	CU_ASSERT_STRING_EQUAL(rig.died.run_id, box.run_id);
	CU_ASSERT_FALSE(box.connected);
	CU_ASSERT_NOT_EQUAL(rig_connect(&box), 0);
	verb(BOX_STATS, &reply);
	CU_ASSERT_EQUAL(reply.state, BOX_DEAD);
	CU_ASSERT_EQUAL(reply.end_status, SIGKILL);
	close_box(&reply);
	CU_ASSERT_EQUAL(reply.end_status, SIGKILL);
}

static void test_list_and_foreign_ids(void)
{
	struct err e = ERR_INIT;
	struct box_reply reply;
	uint64_t tag;

	run("true");
	tag = ++rig.next_tag;
	rig.entries = 0;
	CU_ASSERT_EQUAL(boxclient_list(&rig.client, tag, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	CU_ASSERT_EQUAL(reply.slots, 1);
	CU_ASSERT_EQUAL(rig.entries, 1);
	CU_ASSERT_STRING_EQUAL(rig.entry.run_id, box.run_id);
	CU_ASSERT_STRING_EQUAL(rig.entry.agent_path, box.path);
	CU_ASSERT_EQUAL(rig.entry.state, BOX_LIVE);
	tag = ++rig.next_tag;
	CU_ASSERT_EQUAL(boxclient_destroy(&rig.client, tag, box.slot, "another", 0, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	CU_ASSERT_EQUAL(reply.code, BOX_ERR_NOT_FOUND);
	verb(BOX_LISTENERS, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_ERR_UNSUPPORTED);
	close_box(NULL);
}

static void refuse(const char *image, const struct box_limits *limits, enum box_code code)
{
	struct err e = ERR_INIT;
	struct box_reply reply;
	uint64_t tag = ++rig.next_tag;

	memset(&reply, 0, sizeof(reply));
	CU_ASSERT_EQUAL(boxclient_create(&rig.client, tag, "refused", image, limits, 0, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	CU_ASSERT_EQUAL(reply.code, code);
	CU_ASSERT_TRUE(reply.text[0] != '\0');
}

static void test_create_refusals(void)
{
	struct box_limits limits;

	rig_limits(&limits);
	refuse("nosuch", &limits, BOX_ERR_UNSUPPORTED);
	limits.memory_bytes = 0;
	refuse("host", &limits, BOX_ERR_INVALID);
	rig_limits(&limits);
	limits.memory_bytes = UINT64_MAX;
	refuse("host", &limits, BOX_ERR_INVALID);
	rig_limits(&limits);
	limits.pids = 0;
	refuse("host", &limits, BOX_ERR_INVALID);
	rig_limits(&limits);
	limits.workspace_inodes = UINT64_MAX;
	refuse("host", &limits, BOX_ERR_INVALID);
	rig_limits(&limits);
	limits.cpu_millis = 1;
	refuse("host", &limits, BOX_ERR_INVALID);
}

static void test_caller_comes_back(void)
{
	char path[128];
	struct err e = ERR_INIT;

	run("echo before");
	(void)snprintf(path, sizeof(path), "%s/run/box/box.sock", rig.dir);
	CU_ASSERT_EQUAL(boxclient_connect(&rig.client, path, &e), 0);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "echo after"), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "after\n"));
	close_box(NULL);
}

static void test_200_in_a_row(void)
{
	char program[] = "true";
	char *argv[] = {program, NULL};
	int wrong = 0;

	for (int i = 0; i < 200; i++) {
		if (rig_create(&rig, &box, NULL) != 0 || rig_run(&rig, &box, argv) != 0 ||
		    box.status.how != AGENT_EXITED || box.status.code != 0)
			wrong++;
		if (rig_destroy(&rig, &box, NULL) != 0)
			wrong++;
	}
	CU_ASSERT_EQUAL(wrong, 0);
}

static void test_16_at_once(void)
{
	static struct rig_box boxes[16];
	uint64_t tags[16];
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char script[] = "echo $$ > mine; head -c 300000 /dev/zero; exit 5";
	char *argv[] = {shell, option, script, NULL};
	int wrong = 0;

	for (int i = 0; i < 16; i++)
		tags[i] = rig_create_send(&rig, &boxes[i], NULL);
	for (int i = 0; i < 16; i++)
		if (rig_created(&rig, &boxes[i], tags[i]) != 0 ||
		    rig_exec(&boxes[i], argv, false) != 0)
			wrong++;
	for (int i = 0; i < 16; i++)
		if (rig_wait_exit(&rig, &boxes[i], 20000) != 0 || boxes[i].status.code != 5 ||
		    boxes[i].out[0].len != 300000)
			wrong++;
	for (int i = 0; i < 16; i++)
		if (rig_destroy(&rig, &boxes[i], NULL) != 0)
			wrong++;
	CU_ASSERT_EQUAL(wrong, 0);
}

static void test_busy_when_full(void)
{
	static struct rig_box boxes[SLOTS];
	struct box_limits limits;
	int wrong = 0;

	for (int i = 0; i < SLOTS; i++)
		wrong += rig_create(&rig, &boxes[i], NULL) == 0 ? 0 : 1;
	rig_limits(&limits);
	refuse("host", &limits, BOX_ERR_BUSY);
	for (int i = 0; i < SLOTS; i++)
		wrong += rig_destroy(&rig, &boxes[i], NULL) == 0 ? 0 : 1;
	CU_ASSERT_EQUAL(wrong, 0);
}

/* --- what a box may see --------------------------------------------------------------------- */

static void test_environment(void)
{
	run("env | sort; pwd; id -u; hostname; tty");
	CU_ASSERT_TRUE(rig_out_has(&box, 0, "HOME=/workspace\n"));
	CU_ASSERT_TRUE(rig_out_has(&box, 0, "/workspace\n1000\nbox\nnot a tty\n"));
	CU_ASSERT_FALSE(rig_out_has(&box, 0, "CORDON"));
	close_box(NULL);
}

static void start_sleeper(struct rig *r, struct rig_box *b, const char *seconds)
{
	char program[] = "sleep";
	char argument[32];
	char *argv[] = {program, argument, NULL};

	CU_ASSERT_EQUAL(str_copy(argument, sizeof(argument), seconds), 0);
	CU_ASSERT_EQUAL_FATAL(rig_create(r, b, NULL), 0);
	CU_ASSERT_EQUAL(rig_exec(b, argv, false), 0);
	for (int i = 0; i < 100 && !b->started; i++)
		rig_step(r, 20);
	CU_ASSERT_TRUE(b->started);
}

static void test_second_instance_is_refused(void)
{
	char free_ids[64];

	/* far from the ids of this rig */
	(void)snprintf(free_ids, sizeof(free_ids), "uid_base=%u\nslots=2\n", 0xE0000000U);
	CU_ASSERT_EQUAL(rig_probe(&rig, NULL, "another", free_ids), 1); /* the run directory */
	CU_ASSERT_EQUAL(rig_probe(&rig, "run2", NULL, free_ids), 1);    /* the instance */
	CU_ASSERT_EQUAL(rig_probe(&rig, "run2", "another", NULL), 1);   /* the ids */
	CU_ASSERT_EQUAL(rig_probe(&rig, "run2", "another", free_ids), 0);
	run("echo unharmed");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "unharmed\n"));
	close_box(NULL);
}

static void test_limits_file_refusals(void)
{
	static const char *const wrong[] = {"slots=2\nunknown=1\n",
					    "slots=2\nslots=2\n",
					    "slots=0\n",
					    "slots=2x\n",
					    "slots\n",
					    "slots=99999999999999999999\n",
					    "uid_base=268435457\n",
					    "slots=-1\n"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CU_ASSERT_EQUAL(rig_probe(&rig, "run2", "another", wrong[i]), 1);
	CU_ASSERT_EQUAL(rig_probe(&rig, "run2", "a/b", NULL), 2);
}

static void test_int_leaves_nothing(void)
{
	static struct rig_box boxes[3];
	int mounts = rig_count_mounts();
	pid_t zygote = rig_zygote_pid(&rig);

	CU_ASSERT_TRUE_FATAL(zygote > 1);
	for (int i = 0; i < 3; i++)
		start_sleeper(&rig, &boxes[i], "98761");
	CU_ASSERT_EQUAL(rig_processes_left("98761"), 3);
	CU_ASSERT_TRUE(rig_groups_left(rig.instance) > 0);
	CU_ASSERT_TRUE(rig_stop(&rig));
	CU_ASSERT_EQUAL(rig_processes_left("98761"), 0);
	CU_ASSERT_EQUAL(rig_groups_left(rig.instance), 0);
	CU_ASSERT_EQUAL(rig_processes_left(rig.dir), 0);
	CU_ASSERT_NOT_EQUAL(kill(zygote, 0), 0);
	CU_ASSERT_EQUAL(rig_count_mounts(), mounts);
	CU_ASSERT_NOT_EQUAL(access(rig.dir, F_OK), 0);
	CU_ASSERT_EQUAL_FATAL(rig_start(&rig, SLOTS), 0);
}

/* The slot's group is below the slice. */
static bool group_is(const char *slice, unsigned int slot)
{
	static const char *const trees[] = {"pids/", "memory/", ""};
	char path[200];

	for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
		(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s/cordon-%s/s%u/memory.%s",
			       trees[i], slice, rig.instance, slot,
			       i == 2 ? "max" : "limit_in_bytes");
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static void test_below_a_slice(void)
{
	struct box_reply reply;
	char name[64];
	int full = 0;

	(void)snprintf(name, sizeof(name), "cordontest%ld.slice", (long)getpid());
	CU_ASSERT_TRUE(rig_stop(&rig));
	CU_ASSERT_EQUAL(setenv("CORDON_BOX_SLICE", name, 1), 0);
	CU_ASSERT_EQUAL_FATAL(rig_start(&rig, SLOTS), 0);
	run("echo in a slice");
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "in a slice\n"));
	CU_ASSERT_TRUE(group_is(name, box.slot));
	CU_ASSERT_EQUAL(rig_groups_left(rig.instance), 0);
	close_box(&reply);
	CU_ASSERT_TRUE(reply.stats.cpu_us > 0);
	CU_ASSERT_TRUE(rig_stop(&rig));
	CU_ASSERT_EQUAL(unsetenv("CORDON_BOX_SLICE"), 0);
	CU_ASSERT_TRUE(rig_remove_slice(name, &full) > 0);
	CU_ASSERT_EQUAL(full, 0);
	CU_ASSERT_EQUAL_FATAL(rig_start(&rig, SLOTS), 0);
}

static void test_zygote_death(void)
{
	struct box_limits limits;
	struct box_reply reply;
	struct err e = ERR_INIT;
	uint64_t tag;
	int tries = 0;

	rig_limits(&limits);
	run("true");
	CU_ASSERT_TRUE(rig_zygote_pid(&rig) > 1);
	CU_ASSERT_EQUAL(kill(rig_zygote_pid(&rig), SIGKILL), 0);
	/* a live box goes on */
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "echo still here"), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "still here\n"));
	close_box(NULL);
	do {
		tag = ++rig.next_tag;
		memset(&reply, 0, sizeof(reply));
		clock_sleep_us(50000);
		CU_ASSERT_EQUAL(boxclient_create(&rig.client, tag, "again", "host", &limits, 0, &e),
				0);
		CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	} while (reply.code != BOX_OK && ++tries < 100);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	tag = ++rig.next_tag;
	CU_ASSERT_EQUAL(boxclient_destroy(&rig.client, tag, reply.slot, "again", 0, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
}

/* Somebody tidies up below us: the next boxes have groups, limits and counters all the same. */
static void test_groups_removed(void)
{
	static struct rig_box boxes[8]; /* more than wait built */
	struct box_reply reply;
	int removed = rig_remove_groups(rig.instance, SLOTS);
	struct box_limits limits;

	/* v2 alone makes the groups of a slot for each box anyway */
	CU_ASSERT_TRUE(removed > 0 || access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0);
	rig_limits(&limits);
	limits.memory_bytes = UINT64_C(64) << 20;
	for (size_t i = 0; i < 8; i++)
		CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &boxes[i], &limits), 0);
	for (size_t i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(
		    rig_sh(&rig, &boxes[i], "python3 -c \"x = bytearray(256 << 20)\"; echo alive"),
		    0);
		CU_ASSERT_TRUE(rig_out_is(&boxes[i], 0, "alive\n"));
		CU_ASSERT_EQUAL(rig_destroy(&rig, &boxes[i], &reply), 0);
		CU_ASSERT_EQUAL(reply.stats.oom_kills, 1);
		CU_ASSERT_TRUE(reply.stats.cpu_us > 0);
	}
}

static const struct test tests[] = {
    {"box_life", "kill keeps the box", test_kill_keeps_box},
    {"box_life", "freeze", test_freeze},
    {"box_life", "a death is told", test_death_is_told},
    {"box_life", "list and foreign ids", test_list_and_foreign_ids},
    {"box_life", "create refusals", test_create_refusals},
    {"box_life", "caller comes back", test_caller_comes_back},
    {"box_life", "200 in a row", test_200_in_a_row},
    {"box_life", "16 at once", test_16_at_once},
    {"box_life", "busy when full", test_busy_when_full},
    {"box_life", "groups that somebody removed", test_groups_removed},
    {"box_life", "environment", test_environment},
    {"box_life", "a second instance is refused", test_second_instance_is_refused},
    {"box_life", "limits file refusals", test_limits_file_refusals},
    {"box_life", "INT leaves nothing", test_int_leaves_nothing},
    {"box_life", "below a slice", test_below_a_slice},
    {"box_life", "zygote death", test_zygote_death},
};

int main(int argc, char **argv)
{
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
