/*
 * test_box_files.c: LIST, STAT, REMOVE, MKDIR, RENAME and COLLECT on awkward trees, in real boxes.
 * CORDON_TEST_FILES: how many files the large trees have (100,000; to 980,000).
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/clock.h"
#include "runners/base/num.h"

#include <CUnit/CUnit.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define SLOTS   2
#define TAG     700
#define USER    1000
#define OTHER   1001
#define WAIT_MS 120000

static struct rig rig;
static struct rig_box box;
static uint64_t large = 100000;

static void open_box(void)
{
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, NULL), 0);
}

/* Room for a large tree. */
static void open_large_box(void)
{
	struct box_limits limits;

	rig_limits(&limits);
	limits.workspace_inodes = large + 20000;
	limits.memory_bytes = UINT64_C(512) << 20;
	if (large > 200000)
		limits.memory_bytes = UINT64_C(3) << 30;
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, &limits), 0);
}

static void close_box(void)
{
	CU_ASSERT_EQUAL_FATAL(rig_destroy(&rig, &box, NULL), 0);
}

static void sh(const char *script)
{
	CU_ASSERT_EQUAL(rig_sh(&rig, &box, script), 0);
	CU_ASSERT_EQUAL(box.status.code, 0);
	if (box.status.code != 0)
		(void)printf("%s\n", buf_text(&box.out[1]));
}

static void python(const char *script)
{
	char program[] = "python3";
	char option[] = "-c";
	char *argv[] = {program, option, (char *)(uintptr_t)script, NULL};

	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	CU_ASSERT_EQUAL(rig_wait_exit(&rig, &box, WAIT_MS), 0);
	CU_ASSERT_EQUAL(box.status.code, 0);
	if (box.status.code != 0)
		(void)printf("%s\n", buf_text(&box.out[1]));
}

static void expect_out(const char *script, const char *text)
{
	sh(script);
	CU_ASSERT_TRUE(rig_out_is(&box, 0, text));
	if (!rig_out_is(&box, 0, text))
		(void)printf("%s: %s\n", script, buf_text(&box.out[0]));
}

static void begin(void)
{
	box.result_tag = 0;
	box.error_tag = 0;
	box.info_count = 0;
	buf_reset(&box.info_names);
}

/* 0: a result; else the code of the error. */
static int end(void)
{
	int64_t until = clock_monotonic_us() + WAIT_MS * CLOCK_US_PER_MS;

	while (box.result_tag != TAG && box.error_tag != TAG && box.connected &&
	       clock_monotonic_us() < until)
		rig_step(&rig, 50);
	CU_ASSERT_TRUE(box.result_tag == TAG || box.error_tag == TAG);
	return box.result_tag == TAG ? 0 : (int)box.error.code;
}

static int ask_stat(const char *path)
{
	struct err e = ERR_INIT;

	begin();
	CU_ASSERT_EQUAL(agent_stat(&box.agent, TAG, USER, USER, path, &e), 0);
	return end();
}

static int ask_list(const char *path, uint64_t limit)
{
	struct err e = ERR_INIT;

	begin();
	CU_ASSERT_EQUAL(agent_list(&box.agent, TAG, USER, USER, path, limit, &e), 0);
	return end();
}

static int ask_remove_as(uint32_t uid, const char *path, bool recursive)
{
	struct err e = ERR_INIT;

	begin();
	CU_ASSERT_EQUAL(agent_remove(&box.agent, TAG, uid, uid, path, recursive, &e), 0);
	return end();
}

static int ask_remove(const char *path, bool recursive)
{
	return ask_remove_as(USER, path, recursive);
}

static int ask_mkdir(const char *path, uint32_t mode, bool parents)
{
	struct err e = ERR_INIT;

	begin();
	CU_ASSERT_EQUAL(agent_mkdir(&box.agent, TAG, USER, USER, path, mode, parents, &e), 0);
	return end();
}

static int ask_rename(const char *from, const char *to)
{
	struct err e = ERR_INIT;

	begin();
	CU_ASSERT_EQUAL(agent_rename(&box.agent, TAG, USER, USER, from, to, &e), 0);
	return end();
}

static bool listed(const char *name)
{
	const char *p = box.info_names.data;
	const char *last = p + box.info_names.len;

	for (; p < last; p += strlen(p) + 1)
		if (strcmp(p, name) == 0)
			return true;
	return false;
}

static void collect(const char *pattern)
{
	struct err e = ERR_INIT;

	begin();
	box.entry_count = 0;
	CU_ASSERT_EQUAL(agent_collect(&box.agent, TAG, USER, USER, &pattern, 1, &e), 0);
	CU_ASSERT_EQUAL(end(), 0);
}

/* --- STAT, LIST ----------------------------------------------------------------------------- */

static void test_stat(void)
{
	open_box();
	sh("mkdir -m 2750 d; printf 12345 > d/f; chmod 4640 d/f; ln d/f d/g; ln -s /etc d/out; "
	   "ln -s . d/in; touch -d @1234567.5 d/f; mkfifo d/p; chmod 0 d/p");
	CU_ASSERT_EQUAL(ask_stat("d/f"), 0);
	CU_ASSERT_EQUAL(box.info_count, 1);
	CU_ASSERT_STRING_EQUAL(box.info_name, "f");
	CU_ASSERT_EQUAL(box.info.kind, AGENT_KIND_REGULAR);
	CU_ASSERT_EQUAL(box.info.mode, 04640);
	CU_ASSERT_EQUAL(box.info.uid, USER);
	CU_ASSERT_EQUAL(box.info.gid, USER);
	CU_ASSERT_EQUAL(box.info.links, 2);
	CU_ASSERT_EQUAL(box.info.size, 5);
	CU_ASSERT_EQUAL(box.info.allocated, 4096);
	CU_ASSERT_EQUAL(box.info.mtime_us, 1234567500000);
	CU_ASSERT_EQUAL(ask_stat("d"), 0);
	CU_ASSERT_EQUAL(box.info.kind, AGENT_KIND_DIRECTORY);
	CU_ASSERT_EQUAL(box.info.mode, 02750);
	CU_ASSERT_EQUAL(ask_stat("d/out"), 0);
	CU_ASSERT_EQUAL(box.info.kind, AGENT_KIND_SYMLINK);
	CU_ASSERT_EQUAL(box.info.size, 4);
	CU_ASSERT_EQUAL(ask_stat("d/p"), 0);
	CU_ASSERT_EQUAL(box.info.kind, AGENT_KIND_OTHER);
	CU_ASSERT_EQUAL(box.info.mode, 0);
	CU_ASSERT_EQUAL(ask_stat(""), 0);
	CU_ASSERT_EQUAL(box.info.kind, AGENT_KIND_DIRECTORY);
	CU_ASSERT_STRING_EQUAL(box.info_name, "");
	CU_ASSERT_EQUAL(box.info.mode, 0755);
	/* through no link, neither out nor inside */
	CU_ASSERT_EQUAL(ask_stat("d/out/passwd"), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_stat("d/in/f"), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_stat("d/f/x"), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_stat("d/missing"), ERR_NOT_FOUND);
	CU_ASSERT_EQUAL(box.info_count, 0);
	sh("chmod 0 d");
	CU_ASSERT_EQUAL(ask_stat("d/f"), ERR_DENIED);
	CU_ASSERT_EQUAL(ask_stat("d"), 0);
	close_box();
}

static void test_list(void)
{
	open_box();
	CU_ASSERT_EQUAL(ask_list("", 0), 0);
	CU_ASSERT_EQUAL(box.info_count, 0);
	python("import os\n"
	       "os.mkdir('d'); os.chdir('d'); os.mkdir('sub'); open('sub/no', 'w')\n"
	       "for n in ['-rf', '--', ' ', 'new\\nline', b'\\377', '.hidden', 'x' * 255]:\n"
	       "  open(n, 'w').write('1')\n"
	       "os.symlink('/etc', 'link'); os.mkfifo('pipe')\n"
	       "os.mkdir('only', 0o400); os.chmod('only', 0o700); open('only/a', 'w')\n"
	       "os.chmod('only', 0o400); os.mkdir('closed', 0)");
	CU_ASSERT_EQUAL(ask_list("d", 0), 0);
	CU_ASSERT_EQUAL(box.info_count, 12);
	CU_ASSERT_EQUAL(box.values[0], 12);
	CU_ASSERT_EQUAL(box.values[1], 0);
	CU_ASSERT_TRUE(listed("-rf") && listed("--") && listed(" ") && listed("new\nline"));
	CU_ASSERT_TRUE(listed("\377") && listed(".hidden") && listed("sub") && listed("link"));
	CU_ASSERT_FALSE(listed("no") || listed(".") || listed(".."));
	/* cut and not cut */
	CU_ASSERT_EQUAL(ask_list("d", 11), 0);
	CU_ASSERT_EQUAL(box.info_count, 11);
	CU_ASSERT_EQUAL(box.values[1], 1);
	CU_ASSERT_EQUAL(ask_list("d", 12), 0);
	CU_ASSERT_EQUAL(box.info_count, 12);
	CU_ASSERT_EQUAL(box.values[1], 0);
	/* names without a right to look at them */
	CU_ASSERT_EQUAL(ask_list("d/only", 0), 0);
	CU_ASSERT_EQUAL(box.info_count, 1);
	CU_ASSERT_EQUAL(box.info.kind, AGENT_KIND_UNREADABLE);
	CU_ASSERT_STRING_EQUAL(box.info_name, "a");
	CU_ASSERT_EQUAL(ask_list("d/closed", 0), ERR_DENIED);
	CU_ASSERT_EQUAL(ask_list("d/link", 0), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_list("d/-rf", 0), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_list("d/none", 0), ERR_NOT_FOUND);
	close_box();
}

/* Pings while the request TAG is under way; the longest wait for one. */
static int64_t ping_until_end(unsigned int *out_count)
{
	int64_t until = clock_monotonic_us() + WAIT_MS * CLOCK_US_PER_MS;
	int64_t longest = 0;
	uint32_t tag = RIG_PING_TAG;
	struct err e = ERR_INIT;

	*out_count = 0;
	while (box.result_tag != TAG && box.connected && clock_monotonic_us() < until) {
		int64_t start = clock_monotonic_us();
		unsigned int infos = box.info_count;

		CU_ASSERT_EQUAL(agent_ping(&box.agent, ++tag, &e), 0);
		while (box.ping_tag != tag && box.connected && clock_monotonic_us() < until)
			rig_step(&rig, 50);
		/* behind what a list sends it stands in line */
		if (infos == box.info_count && clock_monotonic_us() - start > longest)
			longest = clock_monotonic_us() - start;
		(*out_count)++;
	}
	CU_ASSERT_EQUAL(box.result_tag, TAG);
	return longest;
}

static void make_large(void)
{
	char script[512];

	(void)snprintf(script, sizeof(script),
		       "import os\n"
		       "os.mkdir('w')\n"
		       "for i in range(%llu): os.close(os.open('w/-%%06d' %% i, os.O_CREAT))",
		       (unsigned long long)large);
	python(script);
}

static void test_list_large(void)
{
	int64_t start;
	unsigned int pings;
	struct err e = ERR_INIT;

	open_large_box();
	make_large();
	start = clock_monotonic_us();
	CU_ASSERT_EQUAL(ask_list("w", 0), 0);
	CU_ASSERT_EQUAL(box.info_count, large);
	CU_ASSERT_EQUAL(box.values[0], large);
	(void)printf("%u names in %lld ms, ", box.info_count,
		     (long long)(clock_monotonic_us() - start) / 1000);
	/* five at once: the fifth is refused, pings get through */
	begin();
	for (uint32_t i = 0; i < 5; i++)
		CU_ASSERT_EQUAL(
		    agent_list(&box.agent, i == 0 ? TAG : RIG_DEAF_TAG + i, USER, USER, "w", 0, &e),
		    0);
	(void)ping_until_end(&pings);
	CU_ASSERT_TRUE(pings > 3);
	CU_ASSERT_EQUAL(box.error_tag, RIG_DEAF_TAG + 4);
	CU_ASSERT_EQUAL(box.error.code, ERR_LIMIT);
	close_box();
}

/* --- REMOVE --------------------------------------------------------------------------------- */

static void test_remove_one(void)
{
	open_box();
	sh("mkdir -p d/full e; head -c 10000 /dev/zero > d/f; ln -s e d/link; echo > d/full/x; "
	   "echo > e/keep; ln e/keep d/second; ln -s /tmp d/out; echo > /tmp/keep");
	CU_ASSERT_EQUAL(ask_remove("d/f", false), 0);
	CU_ASSERT_EQUAL(box.values[0], 1);
	CU_ASSERT_EQUAL(box.values[2], 12288);
	CU_ASSERT_EQUAL(ask_remove("d/second", true), 0);
	CU_ASSERT_EQUAL(box.values[2], 0); /* its bytes stay */
	CU_ASSERT_EQUAL(ask_remove("d/link", true), 0);
	CU_ASSERT_EQUAL(ask_remove("d/out/keep", true), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_remove("d/out", true), 0);
	CU_ASSERT_EQUAL(ask_remove("d/full", false), ERR_CONFLICT);
	CU_ASSERT_EQUAL(box.error.sys, ENOTEMPTY);
	CU_ASSERT_EQUAL(ask_remove("missing", true), ERR_NOT_FOUND);
	CU_ASSERT_EQUAL(ask_remove("d/full/x/y", true), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_remove("d/full/x", false), 0);
	CU_ASSERT_EQUAL(ask_remove("d/full", false), 0);
	CU_ASSERT_EQUAL(box.values[0], 0);
	CU_ASSERT_EQUAL(box.values[1], 1);
	expect_out("ls -A d; ls e /tmp", "/tmp:\nkeep\n\ne:\nkeep\n");
	close_box();
}

static const char awkward[] =
    "import os, socket\n"
    "os.mkdir('t'); os.mkdir('keep'); open('keep/precious', 'w').write('x')\n"
    "os.chdir('t')\n"
    "top = os.open('.', os.O_RDONLY)\n"
    "for i in range(4000):\n"
    "  n = ['d', '-rf', 'new\\nline', 'x' * 250][i % 4]\n"
    "  os.mkdir(n); os.chdir(n)\n"
    "  if i % 500 == 0: open('f', 'w').write('x' * 5000)\n"
    "for i in range(2000):\n"
    "  os.chdir('..')\n"
    "os.chmod([n for n in os.listdir('.') if n != 'f'][0], 0)\n"
    "os.fchdir(top)\n"
    "for n in ['-', '--', '-rf *', '\\n', ' ', b'\\377\\376', '*']: open(n, 'w')\n"
    "os.symlink('/etc', 'etc'); os.symlink('../keep', 'link'); os.link('../keep/precious', 'hard')\n"
    "os.mkfifo('pipe'); s = socket.socket(socket.AF_UNIX); s.bind('sock')\n"
    "for m in (0, 0o100, 0o200, 0o300, 0o400, 0o500, 0o600):\n"
    "  n = 'm%o' % m; os.mkdir(n); open(n + '/in', 'w'); os.mkdir(n + '/sub')\n"
    "  open(n + '/sub/in', 'w'); os.chmod(n + '/sub', m); os.chmod(n, m)\n"
    "os.mkdir('empty', 0)";

static void open_awkward_box(void)
{
	struct box_limits limits;

	rig_limits(&limits);
	limits.workspace_inodes = 20000;
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, &limits), 0);
	python(awkward);
}

static void test_remove_awkward_tree(void)
{
	open_awkward_box();
	CU_ASSERT_EQUAL(ask_remove("t", true), 0);
	/* 8 in depth, 7 names, 2 links, 1 hard link, pipe, socket, 14 */
	CU_ASSERT_EQUAL(box.values[0], 8 + 7 + 2 + 1 + 2 + 14);
	CU_ASSERT_EQUAL(box.values[1], 1 + 4000 + 14 + 1);
	CU_ASSERT_EQUAL(box.values[2], 8 * 8192);
	CU_ASSERT_EQUAL(box.values[3], 0);
	CU_ASSERT_EQUAL(box.values[5], 0);
	expect_out("ls -A; cat keep/precious; df --output=iused . | tail -n 1 | tr -d ' '",
		   "keep\nx3\n");
	close_box();
}

static void test_remove_workspace(void)
{
	open_awkward_box();
	sh("chmod 0 /workspace");
	CU_ASSERT_EQUAL(ask_remove("", true), 0);
	CU_ASSERT_EQUAL(box.values[3], 0);
	CU_ASSERT_EQUAL(box.values[0], 34 + 1);
	/* it is there, and closed as it was */
	CU_ASSERT_EQUAL(ask_stat(""), 0);
	CU_ASSERT_EQUAL(box.info.mode, 0);
	CU_ASSERT_EQUAL(ask_list("", 0), ERR_DENIED);
	CU_ASSERT_EQUAL(ask_remove("", true), 0);
	CU_ASSERT_EQUAL(box.values[0] + box.values[1], 0);
	close_box();
}

static void test_remove_what_is_not_mine(void)
{
	open_box();
	sh("mkdir -p t/open t/shut/in t/half; touch t/open/a t/open/b t/shut/c t/shut/in/d "
	   "t/half/e t/f; mkdir -p t/open/deep/er; touch t/open/deep/er/g; "
	   "chmod 777 t t/open t/half t/open/deep t/open/deep/er; chmod 1777 t/half; chmod 0 t/shut/in");
	CU_ASSERT_EQUAL(ask_remove_as(OTHER, "t", true), 0);
	CU_ASSERT_EQUAL(box.values[0], 4); /* a b g f */
	CU_ASSERT_EQUAL(box.values[1], 3); /* er deep open */
	CU_ASSERT_EQUAL(box.values[3], 3); /* c, in, e */
	CU_ASSERT_TRUE(box.values[4] == EACCES || box.values[4] == EPERM);
	CU_ASSERT_EQUAL(box.values[5], 0);
	expect_out("chmod 700 t/shut/in; find t -type f | sort",
		   "t/half/e\nt/shut/c\nt/shut/in/d\n");
	CU_ASSERT_EQUAL(ask_remove("t", true), 0);
	CU_ASSERT_EQUAL(box.values[0], 3);
	CU_ASSERT_EQUAL(box.values[1], 4);
	CU_ASSERT_EQUAL(box.values[3], 0);
	close_box();
}

static void test_remove_large(void)
{
	int64_t start;
	int64_t longest;
	unsigned int pings;
	struct err e = ERR_INIT;

	open_large_box();
	make_large();
	sh("mkdir w/many; cd w/many; for i in 1 2 3; do mkdir -p $i/a; touch $i/a/f; done");
	begin();
	start = clock_monotonic_us();
	CU_ASSERT_EQUAL(agent_remove(&box.agent, TAG, USER, USER, "w", true, &e), 0);
	longest = ping_until_end(&pings);
	CU_ASSERT_EQUAL(box.values[0], large + 3);
	CU_ASSERT_EQUAL(box.values[1], 8);
	CU_ASSERT_EQUAL(box.values[3], 0);
	(void)printf("%llu files in %lld ms, longest ping of %u %lld us, ",
		     (unsigned long long)large, (long long)(clock_monotonic_us() - start) / 1000,
		     pings, (long long)longest);
	CU_ASSERT_TRUE(pings > 10);
	CU_ASSERT_TRUE(longest < 500000);
	expect_out("ls -A", "");
	close_box();
}

/* No deeper, for making it takes the square: Landlock looks at all that is above a name. */
static void test_remove_deep(void)
{
	int64_t start;

	open_large_box();
	python("import os\n"
	       "os.mkdir('w'); os.chdir('w')\n"
	       "for i in range(8000): os.mkdir('d'); os.chdir('d')\n"
	       "open('f', 'w')");
	start = clock_monotonic_us();
	CU_ASSERT_EQUAL(ask_remove("w", true), 0);
	CU_ASSERT_EQUAL(box.values[0], 1);
	CU_ASSERT_EQUAL(box.values[1], 8001);
	CU_ASSERT_EQUAL(box.values[3], 0);
	(void)printf("%lld ms, ", (long long)(clock_monotonic_us() - start) / 1000);
	expect_out("ls -A", "");
	close_box();
}

/* Directories that are not empty, each of which is entered. */
static void test_remove_many_directories(void)
{
	int64_t start;

	open_large_box();
	python("import os\n"
	       "os.mkdir('w')\n"
	       "for i in range(20000): os.mkdir('w/%d' % i); os.symlink('x', 'w/%d/l' % i)");
	start = clock_monotonic_us();
	CU_ASSERT_EQUAL(ask_remove("w", true), 0);
	CU_ASSERT_EQUAL(box.values[0], 20000);
	CU_ASSERT_EQUAL(box.values[1], 20001);
	(void)printf("%lld ms, ", (long long)(clock_monotonic_us() - start) / 1000);
	close_box();
}

static void test_remove_beside_renames(void)
{
	char program[] = "python3";
	char option[] = "-c";
	char script[] = "import os, time\n"
			"os.makedirs('keep/safe'); open('keep/safe/precious', 'w').write('x')\n"
			"def grow():\n"
			"  for i in range(20):\n"
			"    p = 't/a%d/b/c/d/e' % i\n"
			"    os.makedirs(p, exist_ok=True)\n"
			"    for k in range(20): open(p + '/%d' % k, 'w')\n"
			"end = time.time() + 4; n = 0\n"
			"print('go', flush=True)\n"
			"while time.time() < end:\n"
			"  n += 1\n"
			"  for f in (grow,\n"
			"      lambda: os.rename('t/a%d/b/c' % (n % 20), 'keep/moved'),\n"
			"      lambda: os.rename('keep/moved', 't/a%d/back' % (n % 20)),\n"
			"      lambda: os.rename('t/a3/b', 't/a4/x'),\n"
			"      lambda: os.rename('t/a5', 't/a6/b/c/deeper'),\n"
			"      lambda: os.symlink('../../keep', 't/a7/b'),\n"
			"      lambda: os.symlink('/tmp', 't/a8')):\n"
			"    try: f()\n"
			"    except OSError: pass\n"
			"print('done')\n";
	char *argv[] = {program, option, script, NULL};
	unsigned int rounds = 0;
	struct err e = ERR_INIT;

	open_box();
	sh("echo > /tmp/keep");
	CU_ASSERT_EQUAL(rig_exec(&box, argv, false), 0);
	while (!rig_out_has(&box, 0, "go"))
		rig_step(&rig, 50);
	while (!box.exited && box.connected) {
		begin();
		CU_ASSERT_EQUAL(agent_remove(&box.agent, TAG, USER, USER, "t", true, &e), 0);
		(void)end();
		rounds++;
	}
	CU_ASSERT_TRUE(rig_out_has(&box, 0, "done"));
	(void)printf("%u rounds, ", rounds);
	CU_ASSERT_TRUE(rounds > 5);
	expect_out("cat keep/safe/precious; ls /tmp/keep", "x/tmp/keep\n");
	(void)ask_remove("t", true);
	expect_out("ls", "keep\n");
	close_box();
}

/* --- COLLECT on the same -------------------------------------------------------------------- */

static void test_collect_awkward_tree(void)
{
	open_awkward_box();
	sh("echo x > t/-found; chmod 000 keep/precious");
	collect("t/-*");
	CU_ASSERT_EQUAL(box.entry_count, 4); /* - -- "-rf *" -found */
	CU_ASSERT_TRUE(box.values[2] >= 1);  /* where the path became too long */
	/* four closed and an empty one, two names each in two that can only be read */
	CU_ASSERT_EQUAL(box.values[3], 9);
	collect("keep/*");
	CU_ASSERT_EQUAL(box.entry_count, 1);
	CU_ASSERT_EQUAL(box.entries[0].kind, AGENT_KIND_UNREADABLE);
	close_box();
}

static void test_collect_large(void)
{
	int64_t start;
	int64_t longest;
	unsigned int pings;
	const char *patterns[] = {"w/-00000?"};
	struct err e = ERR_INIT;

	open_large_box();
	make_large();
	begin();
	box.entry_count = 0;
	start = clock_monotonic_us();
	CU_ASSERT_EQUAL(agent_collect(&box.agent, TAG, USER, USER, patterns, 1, &e), 0);
	longest = ping_until_end(&pings);
	CU_ASSERT_EQUAL(box.entry_count, 10);
	CU_ASSERT_EQUAL(box.values[1], large + 1);
	CU_ASSERT_EQUAL(box.values[2], 0);
	(void)printf("%llu names in %lld ms, longest ping of %u %lld us, ",
		     (unsigned long long)large, (long long)(clock_monotonic_us() - start) / 1000,
		     pings, (long long)longest);
	CU_ASSERT_TRUE(longest < 500000);
	close_box();
}

/* --- MKDIR, RENAME -------------------------------------------------------------------------- */

static void test_mkdir(void)
{
	struct err e = ERR_INIT;

	open_box();
	CU_ASSERT_EQUAL(ask_mkdir("a", 0700, false), 0);
	CU_ASSERT_EQUAL(box.values[0], 1);
	CU_ASSERT_EQUAL(ask_mkdir("a", 0700, false), ERR_CONFLICT);
	CU_ASSERT_EQUAL(ask_mkdir("b/c/-d", 0711, false), ERR_NOT_FOUND);
	CU_ASSERT_EQUAL(ask_mkdir("b/c/-d", 0711, true), 0);
	CU_ASSERT_EQUAL(box.values[0], 3);
	CU_ASSERT_EQUAL(ask_mkdir("b/c/-d", 0700, true), 0);
	CU_ASSERT_EQUAL(box.values[0], 0);
	expect_out("stat -c '%n %a %U' a b b/c b/c/-d; ln -s /tmp out; ln -s b in; touch f",
		   "a 700 user\nb 755 user\nb/c 755 user\nb/c/-d 711 user\n");
	CU_ASSERT_EQUAL(ask_mkdir("out/x", 0755, true), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_mkdir("out/x", 0755, false), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_mkdir("in/x", 0755, true), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_mkdir("f", 0755, true), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_mkdir("f/x", 0755, true), ERR_INVALID);
	CU_ASSERT_EQUAL(agent_mkdir(&box.agent, TAG, USER, USER, "", 0755, true, &e), -1);
	err_clear(&e);
	CU_ASSERT_EQUAL(agent_mkdir(&box.agent, TAG, USER, USER, "s", 04755, true, &e), -1);
	expect_out("ls /tmp b", "/tmp:\n\nb:\nc\n");
	close_box();
}

static void test_rename(void)
{
	struct err e = ERR_INIT;

	open_box();
	sh("mkdir -p a/b c; echo 1 > a/b/-f; echo 2 > c/g; ln -s /tmp out; ln -s a l; mkdir full; "
	   "touch full/x");
	CU_ASSERT_EQUAL(ask_rename("a/b/-f", "c/g"), 0);
	CU_ASSERT_EQUAL(ask_rename("a/b", "c/h"), 0);
	CU_ASSERT_EQUAL(ask_rename("l", "c/l"), 0);
	CU_ASSERT_EQUAL(ask_rename("c/g", "out/g"), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_rename("out/g", "g"), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_rename("c", "c/h/c"), ERR_INVALID);
	CU_ASSERT_EQUAL(ask_rename("c/h", "full"), ERR_CONFLICT);
	CU_ASSERT_EQUAL(ask_rename("none", "full"), ERR_NOT_FOUND);
	CU_ASSERT_EQUAL(ask_rename("c/g", "none/g"), ERR_NOT_FOUND);
	CU_ASSERT_EQUAL(agent_rename(&box.agent, TAG, USER, USER, "c", "../c", &e), -1);
	expect_out("cat c/g; ls a c; readlink c/l; ls /tmp", "1\na:\n\nc:\ng\nh\nl\na\n");
	close_box();
}

static const struct test tests[] = {
    {"files", "stat", test_stat},
    {"files", "list", test_list},
    {"files", "list a large directory", test_list_large},
    {"files", "remove one name", test_remove_one},
    {"files", "remove an awkward tree", test_remove_awkward_tree},
    {"files", "remove all of a closed workspace", test_remove_workspace},
    {"files", "remove what is not mine", test_remove_what_is_not_mine},
    {"files", "remove a large tree", test_remove_large},
    {"files", "remove a very deep tree", test_remove_deep},
    {"files", "remove many directories", test_remove_many_directories},
    {"files", "remove beside renames", test_remove_beside_renames},
    {"files", "collect an awkward tree", test_collect_awkward_tree},
    {"files", "collect a large tree", test_collect_large},
    {"files", "mkdir", test_mkdir},
    {"files", "rename", test_rename},
};

int main(int argc, char **argv)
{
	const char *count = getenv("CORDON_TEST_FILES");
	struct err e = ERR_INIT;

	if (count != NULL && num_u64("CORDON_TEST_FILES", count, 1000, 980000, &large, &e) != 0)
		return 64;
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
