/*
 * test_box_copy.c: copies of workspaces (BOX_WORKSPACE_COPY): snapshot, restore and clone are made
 * of them. Also workspaces that a create makes by itself.
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/clock.h"
#include "runners/base/str.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SLOTS  8
#define MIB    (UINT64_C(1) << 20)
#define ROOM   (64 * MIB)
#define INODES UINT64_C(20000)

static struct rig rig;
static struct rig_box box;
static struct rig_box other;

/* One try; BOX_CODE__MAX when the reply did not come. */
static enum box_code copy_once(const char *from, const char *to, uint64_t make_bytes,
			       struct box_reply *out)
{
	struct box_reply reply;
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	memset(&reply, 0, sizeof(reply));
	reply.code = BOX_CODE__MAX;
	CU_ASSERT_EQUAL_FATAL(boxclient_copy(&rig.client, tag, from, to, make_bytes,
					     make_bytes == 0 ? 0 : INODES, &e),
			      0);
	(void)rig_reply(&rig, tag, &reply);
	if (out != NULL)
		*out = reply;
	return (enum box_code)reply.code;
}

/* A keeper that is just closing is no reason: it is asked again, as the runner does. */
static enum box_code copy(const char *from, const char *to, struct box_reply *out)
{
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;
	enum box_code code;

	while ((code = copy_once(from, to, 0, out)) == BOX_ERR_BUSY && clock_monotonic_us() < until)
		clock_sleep_us(20000);
	return code;
}

static enum box_code remove_all(const char *id)
{
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;
	struct box_reply reply;
	struct err e = ERR_INIT;

	do {
		uint64_t tag = ++rig.next_tag;

		clock_sleep_us(5000);
		CU_ASSERT_EQUAL_FATAL(boxclient_workspace_remove(&rig.client, tag, id, &e), 0);
		CU_ASSERT_EQUAL_FATAL(rig_reply(&rig, tag, &reply), 0);
	} while (reply.code == BOX_ERR_BUSY && clock_monotonic_us() < until);
	return (enum box_code)reply.code;
}

static void open_box(struct rig_box *b, const char *id)
{
	struct box_wish wish = {.workspace = id, .make_bytes = ROOM, .make_inodes = INODES};

	CU_ASSERT_EQUAL_FATAL(rig_make(&rig, b, &wish), 0);
}

static void close_box(struct rig_box *b)
{
	CU_ASSERT_EQUAL_FATAL(rig_destroy(&rig, b, NULL), 0);
}

static void says(struct rig_box *b, const char *script, const char *output)
{
	CU_ASSERT_EQUAL(rig_sh(&rig, b, script), 0);
	CU_ASSERT_TRUE(rig_out_is(b, 0, output));
	if (!rig_out_is(b, 0, output))
		(void)printf("\n    %s: \"%.*s\" \"%.*s\"", script, (int)b->out[0].len,
			     (const char *)b->out[0].data, (int)b->out[1].len,
			     (const char *)b->out[1].data);
}

/* In a box of its own with that workspace. */
static void in_workspace(const char *id, const char *script, const char *output)
{
	open_box(&box, id);
	says(&box, script, output);
	close_box(&box);
}

/* Files of the workspaces' folder whose name begins so. */
static int images(const char *prefix)
{
	char path[600];
	DIR *list;
	const struct dirent *entry;
	int count = 0;

	(void)snprintf(path, sizeof(path), "%s/data/workspaces", rig.dir);
	list = opendir(path);
	CU_ASSERT_PTR_NOT_NULL_FATAL(list);
	while ((entry = readdir(list)) != NULL)
		count += str_starts(entry->d_name, prefix) ? 1 : 0;
	(void)closedir(list);
	return count;
}

/* --- what a create makes --------------------------------------------------------------------- */

static void test_made_at_its_first_use(void)
{
	struct box_wish small = {.workspace = "first", .make_bytes = 1, .make_inodes = INODES};
	struct box_wish few = {.workspace = "first", .make_bytes = ROOM, .make_inodes = 1};
	struct box_wish *const wrong[] = {&small, &few};

	for (size_t i = 0; i < 2; i++) {
		struct box_reply reply;
		uint64_t tag = rig_make_send(&rig, &box, wrong[i]);

		CU_ASSERT_EQUAL_FATAL(rig_reply(&rig, tag, &reply), 0);
		CU_ASSERT_EQUAL(reply.code, BOX_ERR_INVALID);
	}
	CU_ASSERT_EQUAL(images("first"), 0);
	in_workspace("first", "ls -A; echo one > x", "");
	/* the next one finds it */
	in_workspace("first", "cat x", "one\n");
	CU_ASSERT_EQUAL(images("first"), 1);
	CU_ASSERT_EQUAL(remove_all("first"), BOX_OK);
	CU_ASSERT_EQUAL(remove_all("first"), BOX_ERR_NOT_FOUND);
}

/* Two boxes at once make one. */
static void test_made_once(void)
{
	struct box_wish wish = {.workspace = "both", .make_bytes = ROOM, .make_inodes = INODES};
	struct box_wish same = wish;
	uint64_t first = rig_make_send(&rig, &box, &wish);
	uint64_t second = rig_make_send(&rig, &other, &same);

	CU_ASSERT_EQUAL_FATAL(rig_created(&rig, &box, first), 0);
	CU_ASSERT_EQUAL_FATAL(rig_created(&rig, &other, second), 0);
	says(&box, "echo mine > x", "");
	says(&other, "cat x", "mine\n");
	close_box(&box);
	close_box(&other);
	CU_ASSERT_EQUAL(remove_all("both"), BOX_OK);
}

/* --- copies ---------------------------------------------------------------------------------- */

static const char fill[] =
    "mkdir -p d/empty d/sub && echo text > d/sub/f && chmod 640 d/sub/f && ln -s d/sub/f link && "
    "ln d/sub/f hard && touch -d '2020-02-02 02:02:02.123456789' d/sub/f && chmod 1700 d/empty && "
    "truncate -s 20M sparse && mkfifo pipe && setfattr -n user.word -v value d/sub/f 2>/dev/null; "
    "echo \"$(seq 1000)\" > n";

static const char look[] =
    "find . -printf '%p %y %m %s %T@ %n %l\\n' | LC_ALL=C sort | grep -v '^\\. ' | md5sum; "
    "cat n d/sub/f | md5sum; stat -c '%b' sparse; [ d/sub/f -ef hard ] && echo hard; "
    "python3 -c \"import os; print(os.listxattr('d/sub/f'))\"";

static void test_everything_is_kept(void)
{
	struct box_reply reply;
	char wanted[1024];

	open_box(&box, "all");
	says(&box, fill, "");
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, look), 0);
	(void)snprintf(wanted, sizeof(wanted), "%.*s", (int)box.out[0].len,
		       (const char *)box.out[0].data);
	CU_ASSERT_PTR_NOT_NULL(strstr(wanted, "\n0\nhard\n"));
	close_box(&box);
	CU_ASSERT_EQUAL(copy("all", "all.copy", &reply), BOX_OK);
	CU_ASSERT_TRUE(reply.workspace_bytes > ROOM);
	/* holes stay holes: 20 MiB of them take no room */
	CU_ASSERT_TRUE(reply.workspace_used > 0 && reply.workspace_used < 16 * MIB);
	in_workspace("all.copy", look, wanted);
	in_workspace("all", look, wanted);
	CU_ASSERT_EQUAL(remove_all("all"), BOX_OK);
	CU_ASSERT_EQUAL(images("all"), 0);
}

/* Case B20: write, copy, change, go back, three times; then back to the first one. */
static void test_back_and_forth(void)
{
	char script[256];
	char name[32];

	for (int i = 0; i < 3; i++) {
		char wanted[64];

		(void)snprintf(script, sizeof(script), "echo %d > f; rm -f later; cat f", i);
		(void)snprintf(wanted, sizeof(wanted), "%d\n", i);
		in_workspace("back", script, wanted);
		(void)snprintf(name, sizeof(name), "back.%d", i);
		CU_ASSERT_EQUAL(copy("back", name, NULL), BOX_OK);
		in_workspace("back", "echo changed > f; mkdir later; touch later/x", "");
		CU_ASSERT_EQUAL(copy(name, "back", NULL), BOX_OK);
		(void)snprintf(wanted, sizeof(wanted), "%d\nf\n", i);
		in_workspace("back", "cat f; ls", wanted);
	}
	CU_ASSERT_EQUAL(copy("back.0", "back", NULL), BOX_OK);
	in_workspace("back", "cat f", "0\n");
	CU_ASSERT_EQUAL(copy("back", "clone", NULL), BOX_OK);
	in_workspace("clone", "cat f; echo own > f", "0\n");
	in_workspace("back", "cat f", "0\n");
	CU_ASSERT_EQUAL(remove_all("back.1"), BOX_OK);
	CU_ASSERT_EQUAL(copy("back.1", "back", NULL), BOX_ERR_NOT_FOUND);
	CU_ASSERT_EQUAL(copy("back.2", "back", NULL), BOX_OK);
	in_workspace("back", "cat f", "2\n");
	CU_ASSERT_EQUAL(remove_all("clone"), BOX_OK);
	CU_ASSERT_EQUAL(remove_all("back"), BOX_OK);
	CU_ASSERT_EQUAL(images("back"), 0);
}

static void test_busy_ones_are_refused(void)
{
	CU_ASSERT_EQUAL(copy_once("nowhere", "to", 0, NULL), BOX_ERR_NOT_FOUND);
	CU_ASSERT_EQUAL(images("to"), 0);
	open_box(&box, "busy");
	says(&box, "echo 1 > x", "");
	CU_ASSERT_EQUAL(copy_once("busy", "to", 0, NULL), BOX_ERR_BUSY);
	close_box(&box);
	CU_ASSERT_EQUAL(copy("busy", "to", NULL), BOX_OK);
	open_box(&box, "to");
	CU_ASSERT_EQUAL(copy_once("busy", "to", 0, NULL), BOX_ERR_BUSY);
	says(&box, "cat x", "1\n");
	close_box(&box);
	CU_ASSERT_EQUAL(copy_once("to", "to", 0, NULL), BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(copy_once(".templates", "to", 0, NULL), BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(copy_once("", "to", 0, NULL), BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(copy_once("new", "to", 1, NULL), BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(remove_all("busy"), BOX_OK);
	CU_ASSERT_EQUAL(remove_all("to"), BOX_OK);
}

/* A box that comes while a copy is made waits for it: busy, never half a copy. */
static void test_a_box_during_a_copy(void)
{
	open_box(&box, "race");
	says(&box, "head -c 30M /dev/urandom > big && md5sum < big > sum", "");
	close_box(&box);
	for (int i = 0; i < 10; i++) {
		struct box_wish wish = {.workspace = i % 2 == 0 ? "race" : "race.copy"};
		struct box_reply reply;
		struct err e = ERR_INIT;
		uint64_t make;
		uint64_t tag = ++rig.next_tag;

		CU_ASSERT_EQUAL_FATAL(
		    boxclient_copy(&rig.client, tag, "race", "race.copy", 0, 0, &e), 0);
		make = rig_make_send(&rig, &box, &wish);
		CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
		CU_ASSERT_TRUE(reply.code == BOX_OK || reply.code == BOX_ERR_BUSY);
		CU_ASSERT_EQUAL_FATAL(rig_reply(&rig, make, &reply), 0);
		CU_ASSERT_TRUE(reply.code == BOX_OK || reply.code == BOX_ERR_BUSY ||
			       (i == 1 && reply.code == BOX_ERR_NOT_FOUND));
		if (reply.code == BOX_OK) {
			box.slot = reply.slot;
			CU_ASSERT_EQUAL(rig_destroy(&rig, &box, NULL), 0);
		}
		CU_ASSERT_EQUAL(copy("race", "race.copy", NULL), BOX_OK);
		in_workspace("race.copy", "md5sum < big | cmp - sum && echo same", "same\n");
	}
	CU_ASSERT_EQUAL(remove_all("race"), BOX_OK);
}

static void test_made_for_a_copy(void)
{
	CU_ASSERT_EQUAL(copy_once("empty", "empty.copy", ROOM, NULL), BOX_OK);
	CU_ASSERT_EQUAL(images("empty"), 2);
	in_workspace("empty.copy", "ls -A", "");
	CU_ASSERT_EQUAL(remove_all("empty"), BOX_OK);
}

/* Where the disk's file system can share blocks a copy takes none, however much is in it. */
static void test_blocks_are_shared(void)
{
	char path[600];
	struct statvfs before;
	struct statvfs after;
	struct statfs kind;
	struct box_reply reply;
	uint64_t took;

	(void)snprintf(path, sizeof(path), "%s/data/workspaces", rig.dir);
	CU_ASSERT_EQUAL_FATAL(statfs(path, &kind), 0);
	in_workspace("shared", "head -c 40M /dev/urandom > big; sync", "");
	CU_ASSERT_EQUAL(copy("shared", "shared.first", &reply), BOX_OK); /* it is written back */
	CU_ASSERT_TRUE(reply.workspace_used > 40 * MIB);
	CU_ASSERT_EQUAL_FATAL(statvfs(path, &before), 0);
	CU_ASSERT_EQUAL(copy("shared", "shared.copy", &reply), BOX_OK);
	CU_ASSERT_EQUAL_FATAL(statvfs(path, &after), 0);
	took = (before.f_bfree - after.f_bfree) * before.f_frsize;
	(void)printf(" (%llu KiB)", (unsigned long long)(took >> 10));
	if (kind.f_type == XFS_SUPER_MAGIC || kind.f_type == BTRFS_SUPER_MAGIC)
		CU_ASSERT_TRUE(took < 4 * MIB);
	in_workspace("shared.copy", "echo own > big; cat big", "own\n");
	in_workspace("shared", "stat -c %s big", "41943040\n");
	CU_ASSERT_EQUAL(remove_all("shared"), BOX_OK);
}

/* --- what dies ------------------------------------------------------------------------------- */

/* Case B24, a restore that is killed half way: the old tree is there, or the new one. */
static void test_killed_half_way(void)
{
	bool old = false;
	bool new = false;

	in_workspace("half", "head -c 40M /dev/zero | tr '\\0' b > big; echo new > f", "");
	CU_ASSERT_EQUAL(copy("half", "half.snap", NULL), BOX_OK);
	for (int i = 0; i < 12; i++) {
		struct err e = ERR_INIT;

		in_workspace("half", "head -c 1000 /dev/zero > big; echo old > f", "");
		clock_sleep_us(2200 * CLOCK_US_PER_MS / (i == 0 ? 1 : 100));
		(void)boxclient_copy(&rig.client, ++rig.next_tag, "half.snap", "half", 0, 0, &e);
		clock_sleep_us(i * 20000);
		rig_end_daemon(&rig, SIGKILL);
		CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
		CU_ASSERT_EQUAL(images(".copy-"), 0);
		open_box(&box, "half");
		CU_ASSERT_EQUAL(rig_sh(&rig, &box, "cat f; stat -c %s big"), 0);
		CU_ASSERT_TRUE(rig_out_is(&box, 0, "old\n1000\n") ||
			       rig_out_is(&box, 0, "new\n41943040\n"));
		old = old || rig_out_has(&box, 0, "old");
		new = new || rig_out_has(&box, 0, "new");
		close_box(&box);
	}
	(void)printf(" (%s%s)", old ? "old " : "", new ? "new" : "");
	CU_ASSERT_TRUE(old || new);
	CU_ASSERT_EQUAL(remove_all("half"), BOX_OK);
}

static const struct test tests[] = {
    {"box_copy", "made at its first use", test_made_at_its_first_use},
    {"box_copy", "made once", test_made_once},
    {"box_copy", "everything is kept", test_everything_is_kept},
    {"box_copy", "B20 back and forth", test_back_and_forth},
    {"box_copy", "busy ones are refused", test_busy_ones_are_refused},
    {"box_copy", "a box during a copy", test_a_box_during_a_copy},
    {"box_copy", "made for a copy", test_made_for_a_copy},
    {"box_copy", "blocks are shared", test_blocks_are_shared},
    {"box_copy", "B24 killed half way", test_killed_half_way},
};

int main(int argc, char **argv)
{
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
