/*
 * test_box_survive.c: boxes and their commands outlive cordon-box, killed or stopped, and are taken
 * over by the next one; what no slot file explains is removed.
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/str.h"
#include "runners/exec/slot_file.h"

#include <CUnit/CUnit.h>
#include <fcntl.h>
#include <sys/stat.h>

#define SLOTS 24
#define MANY  16

static struct rig rig;
static struct rig_box box;

static void verb(enum box_verb name, const struct rig_box *b, struct box_reply *out)
{
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	memset(out, 0, sizeof(*out));
	CU_ASSERT_EQUAL(boxclient_verb(&rig.client, name, tag, b->slot, b->run_id, 0, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, out), 0);
}

static unsigned int list(void)
{
	struct err e = ERR_INIT;
	struct box_reply reply;
	uint64_t tag = ++rig.next_tag;

	rig.entries = 0;
	CU_ASSERT_EQUAL(boxclient_list(&rig.client, tag, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	CU_ASSERT_EQUAL(reply.slots, rig.entries);
	return rig.entries;
}

/* Starts a shell script in a fresh box and waits until it runs. */
static void start_with(struct rig_box *b, const struct box_limits *limits, const char *script)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char *argv[] = {shell, option, (char *)(uintptr_t)script, NULL};

	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, b, limits), 0);
	CU_ASSERT_EQUAL(rig_exec(b, argv, false), 0);
	for (int i = 0; i < 100 && !b->started; i++)
		rig_step(&rig, 20);
	CU_ASSERT_TRUE(b->started);
}

static void start(struct rig_box *b, const char *script)
{
	start_with(b, NULL, script);
}

/* A process in the middle of execve shows no command line. */
static int sleepers(const char *word)
{
	int count = rig_processes_left(word);

	for (int i = 0; i < 50 && count == 0; i++) {
		clock_sleep_us(10000);
		count = rig_processes_left(word);
	}
	return count;
}

static bool is_counted_to(const struct rig_box *b, int last)
{
	struct buf want;
	bool same;

	buf_init(&want, (size_t)1 << 20);
	for (int i = 1; i <= last; i++)
		buf_addf(&want, "%d\n", i);
	same = want.len == b->out[0].len &&
	       memcmp(buf_text(&want), buf_text(&b->out[0]), want.len) == 0;
	buf_release(&want);
	return same;
}

static void slot_path(unsigned int slot, char out[128])
{
	(void)snprintf(out, 128, "%s/run/boxes/s%u", rig.dir, slot);
}

static int count_files(void)
{
	char path[128];
	int count = 0;

	for (unsigned int i = 0; i < SLOTS; i++) {
		slot_path(i, path);
		count += access(path, F_OK) == 0 ? 1 : 0;
	}
	return count;
}

/* How many slot files there are. A box that is gone is answered before its file is removed, so a
 * count above the expected one is asked for again for a while. */
static int files_left(int expected)
{
	int count = count_files();

	for (int i = 0; i < 100 && count > expected; i++) {
		clock_sleep_us(10000);
		count = count_files();
	}
	return count;
}

/* A command prints on while cordon-box ends by that signal and comes back. */
static void outlive(int signal)
{
	struct box_reply reply;

	start(&box, "i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 6");
	(void)rig_wait_exit(&rig, &box, 200);
	rig_end_daemon(&rig, signal);
	clock_sleep_us(100000);
	CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
	CU_ASSERT_EQUAL(list(), 1);
	CU_ASSERT_STRING_EQUAL(rig.entry.run_id, box.run_id);
	CU_ASSERT_STRING_EQUAL(rig.entry.agent_path, box.path);
	CU_ASSERT_EQUAL(rig.entry.state, BOX_LIVE);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, RIG_WAIT_MS), 0);
	CU_ASSERT_EQUAL(box.status.how, AGENT_EXITED);
	CU_ASSERT_EQUAL(box.status.code, 6);
	CU_ASSERT_TRUE(is_counted_to(&box, 100));
	/* a connection that is made now is served */
	agent_close(&box.agent);
	CU_ASSERT_EQUAL(rig_connect(&box), 0);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "echo again"), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "again\n"));
	verb(BOX_STATS, &box, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	CU_ASSERT_TRUE(reply.stats.cpu_us > 20000);
	CU_ASSERT_TRUE(reply.stats.wall_us > 900000);
	CU_ASSERT_EQUAL(rig_destroy(&rig, &box, &reply), 0);
	CU_ASSERT_TRUE(reply.stats.cpu_us > 20000);
	CU_ASSERT_TRUE(reply.stats.memory_peak_bytes > 0);
	CU_ASSERT_EQUAL(reply.stats.pids, 0);
	CU_ASSERT_EQUAL(list(), 0);
	CU_ASSERT_EQUAL(files_left(0), 0);
	/* the slot serves again */
	CU_ASSERT_EQUAL(rig_create(&rig, &box, NULL), 0);
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, "exit 3"), 0);
	CU_ASSERT_EQUAL(box.status.code, 3);
	CU_ASSERT_EQUAL(rig_destroy(&rig, &box, NULL), 0);
}

static void test_kill_of_cordon_box(void)
{
	outlive(SIGKILL);
}

static void test_term_of_cordon_box(void)
{
	outlive(SIGTERM);
}

static void test_verbs_on_adopted(void)
{
	static struct rig_box other;
	struct box_limits limits;
	struct slot_record record;
	struct box_reply reply;
	struct err e = ERR_INIT;
	char folder[128];
	scope_close int dir = -1;
	unsigned int died = rig.died_count;

	rig_limits(&limits);
	limits.cpu_millis = 1000;
	start_with(&box, &limits, "exec sleep 98763");
	start(&other, "exec sleep 98763");
	verb(BOX_FREEZE, &other, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	rig_end_daemon(&rig, SIGKILL);
	CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
	if (access("/sys/fs/cgroup/cpuset/cpuset.cpus", F_OK) == 0 ||
	    access("/sys/fs/cgroup/cpuset.cpus.effective", F_OK) == 0) {
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, "nproc"), 0);
		CU_ASSERT_TRUE(rig_out_is(&box, 0, "1\n"));
	}
	verb(BOX_STATS, &other, &reply);
	CU_ASSERT_EQUAL(reply.state, BOX_FROZEN);
	verb(BOX_THAW, &other, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	CU_ASSERT_EQUAL(reply.state, BOX_LIVE);
	verb(BOX_KILL, &other, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	CU_ASSERT_EQUAL(reply.state, BOX_DEAD);
	CU_ASSERT_EQUAL(reply.end_status, BOX_STATUS_UNKNOWN);
	CU_ASSERT_EQUAL(rig.died_count, died);
	CU_ASSERT_EQUAL(rig_destroy(&rig, &other, &reply), 0);
	/* its own death is told */
	(void)snprintf(folder, sizeof(folder), "%s/run/boxes", rig.dir);
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CU_ASSERT_EQUAL_FATAL(slot_file_read(dir, box.slot, &record, &e), 0);
	CU_ASSERT_EQUAL(kill(record.pid, SIGKILL), 0);
	for (int i = 0; i < 100 && rig.died_count == died; i++)
		rig_step(&rig, 20);
	CU_ASSERT_EQUAL(rig.died_count, died + 1);
	CU_ASSERT_STRING_EQUAL(rig.died.run_id, box.run_id);
	CU_ASSERT_EQUAL(rig_destroy(&rig, &box, &reply), 0);
	CU_ASSERT_EQUAL(rig_processes_left("98763"), 0);
}

/* Ends cordon-box, changes the slot file of a live box, starts it again: the box must be gone. */
static void spoil(void (*change)(const char *path, struct slot_record *r))
{
	struct slot_record record;
	struct err e = ERR_INIT;
	struct box_reply reply;
	char path[128];
	char folder[128];
	scope_close int dir = -1;

	start(&box, "exec sleep 98764");
	slot_path(box.slot, path);
	(void)snprintf(folder, sizeof(folder), "%s/run/boxes", rig.dir);
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CU_ASSERT_EQUAL(slot_file_read(dir, box.slot, &record, &e), 0);
	rig_end_daemon(&rig, SIGKILL);
	CU_ASSERT_EQUAL(sleepers("98764"), 1);
	change(path, &record);
	CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
	CU_ASSERT_EQUAL(rig_processes_left("98764"), 0);
	CU_ASSERT_EQUAL(list(), 0);
	CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
	verb(BOX_STATS, &box, &reply);
	CU_ASSERT_EQUAL(reply.code, BOX_ERR_NOT_FOUND);
	(void)rig_destroy(&rig, &box, NULL);
}

static void rewrite(const char *path, struct slot_record *r)
{
	struct err e = ERR_INIT;

	slot_record_seal(r);
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, path, r, sizeof(*r), 0600, &e), 0);
}

static void change_start(const char *path, struct slot_record *r)
{
	r->start_ticks++;
	rewrite(path, r);
}

static void change_pid(const char *path, struct slot_record *r)
{
	/* a process that lives, with its right start time, but not of this box */
	struct err e = ERR_INIT;

	r->pid = getpid();
	CU_ASSERT_EQUAL(proc_start_ticks(r->pid, &r->start_ticks, &e), 0);
	rewrite(path, r);
}

static void change_slot(const char *path, struct slot_record *r)
{
	r->slot++;
	rewrite(path, r);
}

static void change_instance(const char *path, struct slot_record *r)
{
	r->instance[0] ^= 1;
	rewrite(path, r);
}

static void change_sum(const char *path, struct slot_record *r)
{
	struct err e = ERR_INIT;

	r->limits.pids++;
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, path, r, sizeof(*r), 0600, &e), 0);
}

static void change_short(const char *path, struct slot_record *r)
{
	(void)r;
	CU_ASSERT_EQUAL(truncate(path, 100), 0);
}

static void change_mode(const char *path, struct slot_record *r)
{
	(void)r;
	CU_ASSERT_EQUAL(chmod(path, 0622), 0);
}

static void change_link(const char *path, struct slot_record *r)
{
	(void)r;
	CU_ASSERT_EQUAL(unlink(path), 0);
	CU_ASSERT_EQUAL(symlink("/dev/zero", path), 0);
}

static void change_gone(const char *path, struct slot_record *r)
{
	(void)r;
	CU_ASSERT_EQUAL(unlink(path), 0);
}

static void test_spoiled_slot_files(void)
{
	spoil(change_start);
	spoil(change_pid);
	spoil(change_slot);
	spoil(change_instance);
	spoil(change_sum);
	spoil(change_short);
	spoil(change_mode);
	spoil(change_link);
	spoil(change_gone);
}

static void test_garbage_files_are_removed(void)
{
	struct err e = ERR_INIT;
	char path[128];

	start(&box, "echo in; sleep 1; echo out");
	rig_end_daemon(&rig, SIGTERM);
	(void)snprintf(path, sizeof(path), "%s/run/boxes/s23", rig.dir);
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, path, "x", 1, 0600, &e), 0);
	(void)snprintf(path, sizeof(path), "%s/run/boxes/nonsense", rig.dir);
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, path, "x", 1, 0600, &e), 0);
	(void)snprintf(path, sizeof(path), "%s/run/agents/23-old.sock", rig.dir);
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, path, "x", 1, 0600, &e), 0);
	CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
	CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
	(void)snprintf(path, sizeof(path), "%s/run/boxes/nonsense", rig.dir);
	CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
	CU_ASSERT_EQUAL(files_left(1), 1);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, RIG_WAIT_MS), 0);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, "in\nout\n"));
	CU_ASSERT_EQUAL(rig_destroy(&rig, &box, NULL), 0);
}

/* The reply to a create may be lost with cordon-box; the caller then asks again. */
static void test_create_again(void)
{
	struct box_limits limits;
	struct box_reply reply;
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	start(&box, "exec sleep 98765");
	rig_end_daemon(&rig, SIGKILL);
	CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
	rig_limits(&limits);
	CU_ASSERT_EQUAL(boxclient_create(&rig.client, tag, box.run_id, "host", &limits, 0, &e), 0);
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	CU_ASSERT_EQUAL(reply.code, BOX_OK);
	for (int i = 0; i < 100 && list() != 1; i++)
		clock_sleep_us(20000);
	CU_ASSERT_EQUAL(list(), 1);
	CU_ASSERT_EQUAL(rig_processes_left("98765"), 0);
	box.slot = reply.slot;
	CU_ASSERT_EQUAL(rig_destroy(&rig, &box, NULL), 0);
}

static void test_16_boxes_5_restarts(void)
{
	static struct rig_box boxes[MANY];
	int wrong = 0;

	for (int i = 0; i < MANY; i++)
		start(
		    &boxes[i],
		    "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo $i; sleep 0.02; done; exit 9");
	for (int round = 0; round < 5; round++) {
		(void)rig_wait_exit(&rig, &boxes[0], 200);
		rig_end_daemon(&rig, round % 2 == 0 ? SIGKILL : SIGTERM);
		CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
		CU_ASSERT_EQUAL(list(), MANY);
		/* others come and go meanwhile */
		CU_ASSERT_EQUAL(rig_create(&rig, &box, NULL), 0);
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, "exit 2"), 0);
		CU_ASSERT_EQUAL(rig_destroy(&rig, &box, NULL), 0);
	}
	for (int i = 0; i < MANY; i++)
		if (rig_wait_exit(&rig, &boxes[i], RIG_WAIT_MS) != 0 || boxes[i].status.code != 9 ||
		    !is_counted_to(&boxes[i], 200))
			wrong++;
	CU_ASSERT_EQUAL(wrong, 0);
	for (int i = 0; i < MANY; i++)
		wrong += rig_destroy(&rig, &boxes[i], NULL) == 0 ? 0 : 1;
	CU_ASSERT_EQUAL(wrong, 0);
	CU_ASSERT_EQUAL(files_left(0), 0);
}

static void test_end_all(void)
{
	int mounts = rig_count_mounts();

	start(&box, "exec sleep 98766");
	rig_end_daemon(&rig, SIGTERM);
	CU_ASSERT_EQUAL(sleepers("98766"), 1);
	CU_ASSERT_TRUE(rig_groups_left(rig.instance) > 0);
	CU_ASSERT_EQUAL(rig_end_all(&rig), 0);
	CU_ASSERT_EQUAL(rig_processes_left("98766"), 0);
	CU_ASSERT_EQUAL(rig_groups_left(rig.instance), 0);
	CU_ASSERT_EQUAL(files_left(0), 0);
	CU_ASSERT_EQUAL(rig_count_mounts(), mounts);
	CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
	CU_ASSERT_EQUAL(list(), 0);
	(void)rig_destroy(&rig, &box, NULL);
	/* TERM without boxes leaves nothing either */
	rig_end_daemon(&rig, SIGTERM);
	CU_ASSERT_EQUAL(rig_groups_left(rig.instance), 0);
	CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
}

static const struct test tests[] = {
    {"box_survive", "SIGKILL of cordon-box", test_kill_of_cordon_box},
    {"box_survive", "TERM of cordon-box", test_term_of_cordon_box},
    {"box_survive", "verbs on an adopted box", test_verbs_on_adopted},
    {"box_survive", "spoiled slot files", test_spoiled_slot_files},
    {"box_survive", "garbage files are removed", test_garbage_files_are_removed},
    {"box_survive", "a create is repeated", test_create_again},
    {"box_survive", "16 boxes, 5 restarts", test_16_boxes_5_restarts},
    {"box_survive", "end all", test_end_all},
};

int main(int argc, char **argv)
{
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
