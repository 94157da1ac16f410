/*
 * test_box_workspace.c: workspaces that stay (runners/exec/workspace.h), maintenance boxes, and
 * what is left of them when something ends.
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define SLOTS 12
#define MIB   (UINT64_C(1) << 20)

static struct rig rig;
static struct rig_box box;
static struct rig_box other;

static enum box_code workspace(enum box_verb verb, const char *id, uint64_t bytes, uint64_t inodes,
			       struct box_reply *out)
{
	struct box_reply reply;
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	memset(&reply, 0, sizeof(reply));
	reply.code = BOX_CODE__MAX;
	CU_ASSERT_EQUAL_FATAL(boxclient_workspace(&rig.client, verb, tag, id, bytes, inodes, &e),
			      0);
	CU_ASSERT_EQUAL_FATAL(rig_reply(&rig, tag, &reply), 0);
	CU_ASSERT_EQUAL(reply.verb, verb);
	if (out != NULL)
		*out = reply;
	return (enum box_code)reply.code;
}

static void make(const char *id, uint64_t bytes, uint64_t inodes)
{
	CU_ASSERT_EQUAL_FATAL(workspace(BOX_WORKSPACE_MAKE, id, bytes, inodes, NULL), BOX_OK);
}

/* It may still be written back: an answer "busy" is asked again. */
static void delete (const char *id)
{
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;
	enum box_code code;

	while ((code = workspace(BOX_WORKSPACE_DELETE, id, 0, 0, NULL)) == BOX_ERR_BUSY &&
	       clock_monotonic_us() < until)
		clock_sleep_us(20000);
	CU_ASSERT_EQUAL(code, BOX_OK);
}

static void open_box(struct rig_box *b, const char *id)
{
	struct box_wish wish = {.workspace = id};

	CU_ASSERT_EQUAL_FATAL(rig_make(&rig, b, &wish), 0);
}

static void close_box(struct rig_box *b)
{
	CU_ASSERT_EQUAL_FATAL(rig_destroy(&rig, b, NULL), 0);
}

/* Runs a script and wants its output. */
static void says(struct rig_box *b, const char *script, const char *output)
{
	CU_ASSERT_EQUAL(rig_sh(&rig, b, script), 0);
	CU_ASSERT_TRUE(rig_out_is(b, 0, output));
	if (!rig_out_is(b, 0, output))
		(void)printf("\n    %s: \"%.*s\" \"%.*s\"", script, (int)b->out[0].len,
			     (const char *)b->out[0].data, (int)b->out[1].len,
			     (const char *)b->out[1].data);
}

/* Loop devices whose file is below the rig's folder. */
static int loops(void)
{
	DIR *list = opendir("/sys/block");
	const struct dirent *entry;
	int count = 0;

	while (list != NULL && (entry = readdir(list)) != NULL) {
		struct buf text;
		struct err e = ERR_INIT;
		char path[300];

		if (!str_starts(entry->d_name, "loop"))
			continue;
		(void)snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file",
			       entry->d_name);
		buf_init(&text, 4096);
		if (fd_read_file(AT_FDCWD, path, &text, &e) == 0 && text.len > strlen(rig.dir) &&
		    memcmp(text.data, rig.dir, strlen(rig.dir)) == 0)
			count++;
		buf_release(&text);
	}
	if (list != NULL)
		(void)closedir(list);
	return count;
}

static bool loops_become(int wanted)
{
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;

	while (loops() != wanted && clock_monotonic_us() < until)
		rig_step(&rig, 20);
	return loops() == wanted;
}

/* --- what it is ------------------------------------------------------------------------------ */

static void test_stays(void)
{
	make("stays", 64 * MIB, 1000);
	open_box(&box, "stays");
	says(&box,
	     "stat -c '%u %g %a' . && ls -A && echo kept > a && mkdir -p d/e && ln -s a l && "
	     "chmod 600 a && id -u",
	     "1000 1000 755\n1000\n");
	close_box(&box);
	open_box(&box, "stays");
	says(&box, "cat a l && stat -c '%u %a' a d && readlink l",
	     "kept\nkept\n1000 600\n1000 755\na\n");
	says(&box,
	     "grep -c ' /workspace ' /proc/mounts; grep ' /workspace ext4 ' /proc/mounts | "
	     "grep -o 'nosuid,nodev'",
	     "2\nnosuid,nodev\n");
	close_box(&box);
	delete ("stays");
}

static void test_bytes_end(void)
{
	make("bytes", 32 * MIB, 1000);
	open_box(&box, "bytes");
	/* 30 MiB fit, 34 do not */
	says(&box,
	     "head -c 31457280 /dev/zero > a && stat -c %s a; rm a; head -c 35651584 /dev/zero > a "
	     "2>/dev/null || echo full; rm a; echo again > b && cat b",
	     "31457280\nfull\nagain\n");
	close_box(&box);
	delete ("bytes");
}

static void test_inodes_end(void)
{
	make("inodes", 32 * MIB, 200);
	open_box(&box, "inodes");
	says(&box,
	     "i=0; while [ $i -lt 400 ] && true 2>/dev/null > f$i; do i=$((i+1)); done; "
	     "[ $i -gt 150 ] && [ $i -lt 260 ] && echo ended",
	     "ended\n");
	close_box(&box);
	delete ("inodes");
}

static void test_two_boxes(void)
{
	make("two", 32 * MIB, 1000);
	open_box(&box, "two");
	open_box(&other, "two");
	CU_ASSERT_TRUE(loops_become(1));
	says(&box, "echo from one > x", "");
	says(&other, "cat x && echo from two >> x && stat -c %u x", "from one\n1000\n");
	says(&box, "cat x", "from one\nfrom two\n");
	close_box(&box);
	says(&other, "cat x", "from one\nfrom two\n");
	close_box(&other);
	delete ("two");
}

static void test_other_boxes_do_not_see_it(void)
{
	make("mine", 32 * MIB, 1000);
	make("yours", 32 * MIB, 1000);
	open_box(&box, "mine");
	open_box(&other, "yours");
	says(&box, "echo secret > s", "");
	says(&other, "ls -A /workspace", "");
	says(&other, "ls /dev/loop* 2>/dev/null; cat /proc/mounts | grep -c workspaces", "0\n");
	close_box(&box);
	close_box(&other);
	CU_ASSERT_EQUAL(rig_create(&rig, &box, NULL), 0);
	says(&box, "ls -A /workspace", "");
	close_box(&box);
	delete ("mine");
	delete ("yours");
}

/* A program that the box's root leaves with the bit set is no help to anybody. */
static void test_nothing_is_setuid(void)
{
	make("suid", 32 * MIB, 1000);
	open_box(&box, "suid");
	says(&box,
	     "cp /usr/bin/id . && chmod 4755 id && ./id -u && touch t && chown 0 t 2>/dev/null || "
	     "echo no",
	     "1000\nno\n");
	close_box(&box);
	delete ("suid");
}

/* --- verbs ----------------------------------------------------------------------------------- */

static void test_verbs(void)
{
	struct box_reply reply;

	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_INFO, "verbs", 0, 0, NULL), BOX_ERR_NOT_FOUND);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_DELETE, "verbs", 0, 0, NULL), BOX_ERR_NOT_FOUND);
	make("verbs", 64 * MIB, 1000);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_MAKE, "verbs", 64 * MIB, 1000, NULL), BOX_ERR_BUSY);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_INFO, "verbs", 0, 0, &reply), BOX_OK);
	CU_ASSERT_TRUE(reply.workspace_bytes > 64 * MIB && reply.workspace_bytes < 80 * MIB);
	CU_ASSERT_TRUE(reply.workspace_used < 8 * MIB);
	open_box(&box, "verbs");
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_DELETE, "verbs", 0, 0, NULL), BOX_ERR_BUSY);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_INFO, "verbs", 0, 0, NULL), BOX_OK);
	close_box(&box);
	delete ("verbs");
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_DELETE, "verbs", 0, 0, NULL), BOX_ERR_NOT_FOUND);
	/* a new one of that name has nothing of the old one */
	make("verbs", 32 * MIB, 500);
	open_box(&box, "verbs");
	says(&box, "ls -A; echo old > x", "");
	close_box(&box);
	delete ("verbs");
	make("verbs", 32 * MIB, 500);
	open_box(&box, "verbs");
	says(&box, "ls -A", "");
	close_box(&box);
	delete ("verbs");
}

static void refuse(struct box_wish *wish, enum box_code code)
{
	static struct rig_box refused;
	struct box_reply reply;
	uint64_t tag = rig_make_send(&rig, &refused, wish);

	memset(&reply, 0, sizeof(reply));
	CU_ASSERT_EQUAL(rig_reply(&rig, tag, &reply), 0);
	CU_ASSERT_EQUAL(reply.code, code);
	CU_ASSERT_TRUE(reply.text[0] != '\0');
}

static void test_refusals(void)
{
	struct box_wish none = {.workspace = "never-made"};
	struct box_wish hidden = {.workspace = ".templates"};
	struct box_wish nothing = {.maintain = true, .lifetime_ms = 1000};
	struct box_wish endless = {.workspace = "never-made", .maintain = true};
	struct box_wish slash = {.workspace = "a/b"};
	struct err e = ERR_INIT;

	refuse(&none, BOX_ERR_NOT_FOUND);
	refuse(&hidden, BOX_ERR_INVALID);
	refuse(&nothing, BOX_ERR_INVALID);
	refuse(&endless, BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(rig_make_send(&rig, &box, &slash), 0);
	CU_ASSERT_EQUAL(boxclient_workspace(&rig.client, BOX_WORKSPACE_MAKE, ++rig.next_tag,
					    "../../etc", MIB, 100, &e),
			-1);
	err_clear(&e);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_MAKE, ".x", 32 * MIB, 100, NULL), BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_MAKE, "x", 0, 100, NULL), BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_MAKE, "x", 32 * MIB, 1, NULL), BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_MAKE, "x", UINT64_MAX, 100, NULL), BOX_ERR_INVALID);
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_MAKE, "x", 32 * MIB, UINT64_MAX, NULL),
			BOX_ERR_INVALID);
}

/* --- maintenance ----------------------------------------------------------------------------- */

static void test_maintenance(void)
{
	struct box_wish wish = {.workspace = "files", .maintain = true, .lifetime_ms = 60000};

	make("files", 32 * MIB, 1000);
	CU_ASSERT_EQUAL_FATAL(rig_make(&rig, &box, &wish), 0);
	CU_ASSERT_EQUAL(rig_put_file(&rig, &box, "sub/put.txt", 0640, "by hand\n", 8), 0);
	{
		char program[] = "true";
		char *argv[] = {program, NULL};

		CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
		CU_ASSERT_EQUAL(rig_result(&rig, &box, box.channel), -1);
		CU_ASSERT_EQUAL(box.error.code, ERR_DENIED);
	}
	close_box(&box);
	open_box(&box, "files");
	says(&box, "cat sub/put.txt && stat -c '%u %a' sub/put.txt", "by hand\n1000 640\n");
	close_box(&box);
	delete ("files");
}

static void test_lifetime(void)
{
	struct box_wish wish = {.workspace = "short", .maintain = true, .lifetime_ms = 300};
	struct box_wish timed = {.lifetime_ms = 300};
	int64_t begun;
	unsigned int died = rig.died_count;

	make("short", 32 * MIB, 1000);
	begun = clock_monotonic_us();
	CU_ASSERT_EQUAL_FATAL(rig_make(&rig, &box, &wish), 0);
	CU_ASSERT_EQUAL_FATAL(rig_make(&rig, &other, &timed), 0);
	while (rig.died_count < died + 2 && clock_monotonic_us() < begun + 3 * CLOCK_US_PER_S)
		rig_step(&rig, 20);
	CU_ASSERT_EQUAL(rig.died_count, died + 2);
	CU_ASSERT_TRUE(clock_monotonic_us() >= begun + 300 * CLOCK_US_PER_MS);
	close_box(&box);
	close_box(&other);
	delete ("short");
}

/* --- what dies ------------------------------------------------------------------------------- */

/* The one keeper of this cordon-box; 0: none. */
static pid_t find_keeper(void)
{
	DIR *list = opendir("/proc");
	const struct dirent *entry;
	uint64_t pid = 0;

	while (list != NULL && (entry = readdir(list)) != NULL) {
		struct buf text;
		struct err e = ERR_INIT;
		char path[300];
		char wanted[64];
		const char *end;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		buf_init(&text, 4096);
		if (fd_read_file(AT_FDCWD, path, &text, &e) == 0) {
			buf_add(&text, "", 1);
			end = strrchr(text.data, ')');
			(void)snprintf(wanted, sizeof(wanted), " S %d ", rig.pid);
			if (end != NULL && strstr(text.data, "(cordon-keeper)") != NULL &&
			    strncmp(end + 1, wanted, strlen(wanted)) == 0)
				CU_ASSERT_EQUAL(
				    num_u64("pid", entry->d_name, 1, INT32_MAX, &pid, &e), 0);
		}
		buf_release(&text);
	}
	if (list != NULL)
		(void)closedir(list);
	return (pid_t)pid;
}

static void test_keeper_death(void)
{
	pid_t keeper;

	CU_ASSERT_TRUE(loops_become(0));
	make("keeper", 32 * MIB, 1000);
	open_box(&box, "keeper");
	says(&box, "echo one > x && cat x", "one\n");
	keeper = find_keeper();
	CU_ASSERT_TRUE_FATAL(keeper > 0);
	(void)kill(keeper, SIGKILL);
	/* the box does not notice; the next one gets the same file system */
	says(&box, "cat x && echo two >> x", "one\n");
	open_box(&other, "keeper");
	CU_ASSERT_EQUAL(loops(), 1);
	says(&other, "cat x && echo three >> x", "one\ntwo\n");
	says(&box, "cat x", "one\ntwo\nthree\n");
	close_box(&box);
	close_box(&other);
	CU_ASSERT_TRUE(loops_become(0));
	open_box(&box, "keeper");
	says(&box, "cat x", "one\ntwo\nthree\n");
	close_box(&box);
	delete ("keeper");
}

static void test_death_of_cordon_box(void)
{
	struct box_wish wish = {.workspace = "survives", .maintain = true, .lifetime_ms = 2500};
	unsigned int died;

	CU_ASSERT_TRUE(loops_become(0));
	make("survives", 32 * MIB, 1000);
	open_box(&box, "survives");
	CU_ASSERT_EQUAL_FATAL(rig_make(&rig, &other, &wish), 0);
	says(&box, "echo before > x", "");
	rig_end_daemon(&rig, SIGKILL);
	says(&box, "cat x && echo between >> x", "before\n");
	CU_ASSERT_EQUAL_FATAL(rig_restart(&rig), 0);
	died = rig.died_count;
	/* in use, and still one file system */
	CU_ASSERT_EQUAL(workspace(BOX_WORKSPACE_DELETE, "survives", 0, 0, NULL), BOX_ERR_BUSY);
	{
		static struct rig_box third;

		open_box(&third, "survives");
		CU_ASSERT_EQUAL(loops(), 1);
		says(&third, "cat x && echo after >> x", "before\nbetween\n");
		close_box(&third);
	}
	says(&box, "cat x", "before\nbetween\nafter\n");
	/* a lifetime goes on counting */
	for (int i = 0; i < 250 && rig.died_count == died; i++)
		rig_step(&rig, 20);
	CU_ASSERT_EQUAL(rig.died_count, died + 1);
	close_box(&other);
	close_box(&box);
	CU_ASSERT_TRUE(loops_become(0));
	delete ("survives");
}

/* Opening while the last one closes, again and again: nothing is lost, nothing is there twice. */
static void test_again_and_again(void)
{
	int wrong = 0;

	CU_ASSERT_TRUE(loops_become(0));
	make("again", 32 * MIB, 2000);
	for (int i = 0; i < 40; i++) {
		char script[128];
		char wanted[16];

		open_box(&box, "again");
		(void)snprintf(script, sizeof(script), "echo %d >> n; wc -l < n", i);
		(void)snprintf(wanted, sizeof(wanted), "%d\n", i + 1);
		wrong += rig_sh(&rig, &box, script) == 0 && rig_out_is(&box, 0, wanted) ? 0 : 1;
		wrong += loops() == 1 ? 0 : 1;
		close_box(&box);
		/* some of them just when it is being closed */
		if (i % 10 == 9)
			for (int64_t until = clock_monotonic_us() + 1990000 + i * 500;
			     clock_monotonic_us() < until;)
				rig_step(&rig, 1);
	}
	CU_ASSERT_EQUAL(wrong, 0);
	delete ("again");
}

static void test_shared_proc(void)
{
	struct box_wish wish = {.shared_proc = true};

	for (int i = 0; i < 2; i++) {
		/* warm, then cold */
		CU_ASSERT_EQUAL_FATAL(rig_make(&rig, &box, &wish), 0);
		says(&box, "setsid sleep 100 >/dev/null 2>&1 &", "");
		says(&box,
		     "pgrep -x sleep | wc -l; cat /proc/1/environ 2>/dev/null | wc -c; "
		     "ls /proc/1/fd 2>/dev/null | wc -l",
		     "1\n0\n0\n");
		close_box(&box);
	}
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
	says(&box, "ls -d /proc/1 2>/dev/null; echo hidden", "hidden\n");
	close_box(&box);
}

static void test_fresh_network(void)
{
	struct box_wish fresh = {.fresh_net = true};

	for (int i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL_FATAL(rig_make(&rig, &box, &fresh), 0);
		says(&box, "ls /sys/class/net 2>/dev/null; cat /proc/net/dev | grep -c lo:", "1\n");
		close_box(&box);
	}
}

static const struct test tests[] = {
    {"box_workspace", "it stays", test_stays},
    {"box_workspace", "bytes end", test_bytes_end},
    {"box_workspace", "inodes end", test_inodes_end},
    {"box_workspace", "two boxes, one workspace", test_two_boxes},
    {"box_workspace", "others do not see it", test_other_boxes_do_not_see_it},
    {"box_workspace", "nothing is setuid", test_nothing_is_setuid},
    {"box_workspace", "verbs", test_verbs},
    {"box_workspace", "refusals", test_refusals},
    {"box_workspace", "maintenance box", test_maintenance},
    {"box_workspace", "lifetime", test_lifetime},
    {"box_workspace", "a keeper dies", test_keeper_death},
    {"box_workspace", "cordon-box dies", test_death_of_cordon_box},
    {"box_workspace", "again and again", test_again_and_again},
    {"box_workspace", "fresh network", test_fresh_network},
    {"box_workspace", "shared proc", test_shared_proc},
};

int main(int argc, char **argv)
{
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
