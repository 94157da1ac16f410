/*
 * test_cgroup.c: control groups on a fake tree of plain files: which hierarchies are chosen by a
 * text of mountinfo, what is written where and in which order, what counters are read.
 *
 * The linker sends write, mkdir, mkdirat, rmdir and unlinkat of the code under test to the
 * functions below (Makefile, --wrap). They do what the kernel does with groups: a new folder has
 * the files of its hierarchy, a write replaces the value, a removed folder takes its files along,
 * and writing to one of a removed group gives ENODEV.
 */
#include "tests/lib/test.h"

#include "runners/base/fdio.h"
#include "runners/base/str.h"
#include "runners/exec/cgroup.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define HIERARCHIES 8
#define TEXT_BYTES  8192

struct file {
	const char *name;
	const char *value;
};
/* A mounted hierarchy: the files of each of its groups, up to one without a name. */
struct hierarchy {
	const char *folder;
	const struct file *files;
	const char *without; /* a file that this kernel does not have */
};

static char base[300]; /* of the present fake tree; has a blank */
static struct hierarchy trees[HIERARCHIES];
static size_t tree_count;
static bool busy; /* processes live in the top group */
static char written[TEXT_BYTES];
static char mounts[TEXT_BYTES];
static struct cgroups groups;
static struct cgroup_slot slot;
static struct err error;

#define V1_FILES              \
	{"cgroup.procs", ""}, \
	{                     \
		"tasks", ""   \
	}
static const struct file memory_files[] = {
    V1_FILES,
    {"memory.limit_in_bytes", "9223372036854771712\n"},
    {"memory.memsw.limit_in_bytes", "9223372036854771712\n"},
    {"memory.swappiness", "60\n"},
    {"memory.kmem.tcp.limit_in_bytes", "9223372036854771712\n"},
    {"memory.max_usage_in_bytes", "0\n"},
    {"memory.usage_in_bytes", "4096\n"},
    {"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"},
    {NULL, NULL}};
static const struct file pids_files[] = {V1_FILES,
					 {"pids.max", "max\n"},
					 {"pids.current", "0\n"},
					 {"pids.events", "max 1\n"},
					 {NULL, NULL}};
static const struct file cpu_files[] = {
    V1_FILES, {"cpu.cfs_quota_us", "-1\n"}, {"cpuacct.usage", "5000\n"}, {NULL, NULL}};
static const struct file cpuset_files[] = {V1_FILES,
					   {"cpuset.cpus", "0-1,4\n"},
					   {"cpuset.mems", "0\n"},
					   {"cpuset.sched_load_balance", "1\n"},
					   {NULL, NULL}};
static const struct file freezer_files[] = {V1_FILES, {"freezer.state", "THAWED\n"}, {NULL, NULL}};
static const struct file blkio_files[] = {V1_FILES, {"blkio.bfq.weight", "100\n"}, {NULL, NULL}};
#define V2_FILES                                                             \
	{"cgroup.procs", ""}, {"cgroup.kill", ""}, {"cgroup.freeze", "0\n"}, \
	{                                                                    \
		"cgroup.events", "populated 0\nfrozen 0\n"                   \
	}
static const struct file bare_v2_files[] = {
    V2_FILES, {"cgroup.controllers", "\n"}, {"cgroup.subtree_control", "\n"}, {NULL, NULL}};
static const struct file v2_files[] = {
    V2_FILES,
    {"cgroup.controllers", "cpuset cpu io memory pids\n"},
    {"cgroup.subtree_control", "memory\n"},
    {"memory.max", "max\n"},
    {"memory.swap.max", "max\n"},
    {"memory.peak", "0\n"},
    {"memory.current", "0\n"},
    {"memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 1\n"},
    {"pids.max", "max\n"},
    {"pids.current", "0\n"},
    {"pids.events", "max 0\n"},
    {"cpu.max", "max 100000\n"},
    {"cpu.stat", "usage_usec 0\nuser_usec 0\n"},
    {"cpuset.cpus", "\n"},
    {"cpuset.cpus.effective", "0-3\n"},
    {"io.weight", "default 100\n"},
    {NULL, NULL}};

/* --- the kernel's part ---------------------------------------------------------------------- */

ssize_t __wrap_write(int fd, const void *data, size_t length);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdirat(int dir, const char *path, mode_t mode);
int __wrap_rmdir(const char *path);
int __wrap_unlinkat(int dir, const char *path, int flags);
ssize_t __real_write(int fd, const void *data, size_t length);
int __real_mkdirat(int dir, const char *path, mode_t mode);
int __real_unlinkat(int dir, const char *path, int flags);

/* The path of a descriptor below the fake tree, or NULL. */
static const char *below(int fd, char *path, size_t size)
{
	char link[64];
	ssize_t length;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, size - 1);
	if (base[0] == '\0' || length <= 0)
		return NULL;
	path[length] = '\0';
	return str_starts(path, base) && path[strlen(base)] == '/' ? path + strlen(base) + 1 : NULL;
}

ssize_t __wrap_write(int fd, const void *data, size_t length)
{
	char path[1024];
	const char *name = below(fd, path, sizeof(path));
	size_t used = strlen(written);

	if (name == NULL)
		return __real_write(fd, data, length);
	if (strstr(name, " (deleted)") != NULL) {
		errno = ENODEV;
		return -1;
	}
	if (busy && strchr(strchr(name, '/') + 1, '/') == NULL) {
		errno = EBUSY;
		return -1;
	}
	(void)snprintf(written + used, sizeof(written) - used, "%s=%.*s\n", name, (int)length,
		       (const char *)data);
	if (ftruncate(fd, 0) != 0)
		return -1;
	return pwrite(fd, data, length, 0);
}

static void fill(int parent, const char *path)
{
	scope_close int dir = openat(parent, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[1024];
	const char *name = dir < 0 ? NULL : below(dir, text, sizeof(text));

	for (size_t i = 0; name != NULL && i < tree_count; i++) {
		size_t length = strlen(trees[i].folder);

		if (strncmp(name, trees[i].folder, length) != 0 ||
		    (name[length] != '\0' && name[length] != '/'))
			continue;
		for (const struct file *f = trees[i].files; f->name != NULL; f++) {
			scope_close int fd = -1;

			if (trees[i].without != NULL && str_equal(f->name, trees[i].without))
				continue;
			fd = openat(dir, f->name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
			(void)!__real_write(fd, f->value, strlen(f->value));
		}
	}
}

int __wrap_mkdirat(int dir, const char *path, mode_t mode)
{
	int result = __real_mkdirat(dir, path, mode);

	if (result == 0)
		fill(dir, path);
	return result;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
	return __wrap_mkdirat(AT_FDCWD, path, mode);
}

int __wrap_unlinkat(int dir, const char *path, int flags)
{
	scope_close int child = -1;
	const struct dirent *entry;
	DIR *list;

	if (flags != AT_REMOVEDIR)
		return __real_unlinkat(dir, path, flags);
	child = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list = child < 0 ? NULL : fdopendir(child);
	if (list == NULL)
		return -1;
	while ((entry = readdir(list)) != NULL)
		if (entry->d_type == DT_REG)
			(void)__real_unlinkat(child, entry->d_name, 0);
	child = -1; /* the list's */
	(void)closedir(list);
	return __real_unlinkat(dir, path, flags);
}

int __wrap_rmdir(const char *path)
{
	return __wrap_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* --- a fake tree ---------------------------------------------------------------------------- */

static void fresh(void)
{
	static unsigned int number;

	base[0] = '\0';
	(void)snprintf(base, sizeof(base), "%s/fake %u", test_dir(), number++);
	CU_ASSERT_EQUAL_FATAL(mkdir(base, 0700), 0);
	tree_count = 0;
	busy = false;
	written[0] = '\0';
	err_clear(&error);
	(void)snprintf(mounts, sizeof(mounts), "%s",
		       "22 1 0:20 / /proc rw,nosuid shared:5 - proc proc rw\n"
		       "23 1 0:21 / / rw - ext4 /dev/root rw\n");
}

/* A line of mountinfo: the names that a blank needs are escaped, as the kernel does. */
static void add_line(const char *folder, const char *root, const char *options, const char *type,
		     const char *super)
{
	size_t used = strlen(mounts);
	char path[400];

	(void)snprintf(path, sizeof(path), "%s/%s", base, folder);
	used += (size_t)snprintf(mounts + used, sizeof(mounts) - used, "40 23 0:30 %s ", root);
	for (const char *p = path; *p != '\0'; p++)
		used += (size_t)snprintf(mounts + used, sizeof(mounts) - used,
					 *p == ' ' ? "\\040" : "%c", *p);
	(void)snprintf(mounts + used, sizeof(mounts) - used, " %s shared:9 - %s cgroup %s\n",
		       options, type, super);
}

static void add_tree(const char *folder, const struct file *files, const char *type,
		     const char *super)
{
	char path[400];

	CU_ASSERT_FATAL(tree_count < HIERARCHIES);
	trees[tree_count++] = (struct hierarchy){.folder = folder, .files = files};
	(void)snprintf(path, sizeof(path), "%s/%s", base, folder);
	CU_ASSERT_EQUAL_FATAL(mkdir(path, 0700), 0);
	add_line(folder, "/", "rw,nosuid", type, super);
}

static void add_v1(bool with_blkio)
{
	add_tree("memory", memory_files, "cgroup", "rw,memory");
	add_tree("pids", pids_files, "cgroup", "rw,pids");
	add_tree("cpu,cpuacct", cpu_files, "cgroup", "rw,cpu,cpuacct");
	add_tree("cpuset", cpuset_files, "cgroup", "rw,cpuset");
	add_tree("freezer", freezer_files, "cgroup", "rw,freezer");
	if (with_blkio)
		add_tree("blkio", blkio_files, "cgroup", "rw,blkio");
	add_tree("systemd", freezer_files, "cgroup", "rw,xattr,name=systemd");
}

static void lose(const char *folder, const char *file)
{
	char path[400];

	for (size_t i = 0; i < tree_count; i++)
		if (str_equal(trees[i].folder, folder))
			trees[i].without = file;
	(void)snprintf(path, sizeof(path), "%s/%s/%s", base, folder, file);
	(void)unlink(path);
}

static void put(const char *path, const char *text)
{
	char whole[500];
	scope_close int fd = -1;

	(void)snprintf(whole, sizeof(whole), "%s/%s", base, path);
	fd = open(whole, O_WRONLY | O_TRUNC | O_CLOEXEC);
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

static bool is_there(const char *path)
{
	char whole[500];

	(void)snprintf(whole, sizeof(whole), "%s/%s", base, path);
	return access(whole, F_OK) == 0;
}

static void expect_mode(enum box_mode mode)
{
	CU_ASSERT_EQUAL_FATAL(cgroups_probe_text(&groups, mounts, &error), 0);
	CU_ASSERT_EQUAL(groups.mode, mode);
}

static void expect_refusal(const char *text)
{
	CU_ASSERT_EQUAL(cgroups_probe_text(&groups, mounts, &error), -1);
	CU_ASSERT_EQUAL(error.code, ERR_UNAVAILABLE);
	ASSERT_TEXT(error.text, text);
}

/* More reserve than any host has, so that the instance gets the least. */
static int open_groups(void)
{
	const struct cgroups_wish wish = {
	    .instance = "t", .host_reserve_mb = UINT64_C(1) << 40, .io_weight = 250};

	written[0] = '\0';
	return cgroups_open(&groups, &wish, NULL, &error);
}

static void open_slot(unsigned int number)
{
	written[0] = '\0';
	memset(&slot, 0, sizeof(slot));
	slot.number = number;
	CU_ASSERT_EQUAL_FATAL(cgroup_slot_ready(&groups, &slot, &error), 0);
}

static void set_limits(uint32_t cpu_millis)
{
	struct box_limits limits = {
	    .memory_bytes = UINT64_C(64) << 20, .pids = 20, .cpu_millis = cpu_millis};

	written[0] = '\0';
	CU_ASSERT_EQUAL(cgroup_slot_set(&groups, &slot, &limits, &error), 0);
}

static void close_all(void)
{
	cgroup_slot_close(&groups, &slot);
	CU_ASSERT_EQUAL(cgroups_sweep(&groups, NULL, &error), 0);
	cgroups_close(&groups);
}

/* --- v2 ------------------------------------------------------------------------------------- */

static void start_v2(void)
{
	fresh();
	add_tree("two", v2_files, "cgroup2", "rw,nsdelegate");
	expect_mode(BOX_MODE_V2);
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
}

static void test_v2_writes(void)
{
	int tasks[CG__MAX];

	start_v2();
	/* memory is delegated already; the files of the fake group say the same */
	ASSERT_TEXT(written, "two/cgroup.subtree_control=+pids\n"
			     "two/cgroup.subtree_control=+cpu\n"
			     "two/cgroup.subtree_control=+cpuset\n"
			     "two/cgroup.subtree_control=+io\n"
			     "two/cordon-t/cgroup.subtree_control=+pids\n"
			     "two/cordon-t/cgroup.subtree_control=+cpu\n"
			     "two/cordon-t/cgroup.subtree_control=+cpuset\n"
			     "two/cordon-t/cgroup.subtree_control=+io\n"
			     "two/cordon-t/memory.max=67108864\n");
	open_slot(3);
	ASSERT_TEXT(written, "");
	CU_ASSERT_TRUE(is_there("two/cordon-t/s3"));
	CU_ASSERT_EQUAL(cgroup_slot_tasks(&slot, tasks), 0);
	CU_ASSERT_TRUE(cgroup_slot_unified(&slot) >= 0);
	set_limits(500);
	ASSERT_TEXT(written, "two/cordon-t/s3/memory.swap.max=0\n"
			     "two/cordon-t/s3/memory.max=67108864\n"
			     "two/cordon-t/s3/pids.max=21\n"
			     "two/cordon-t/s3/cpu.max=50000 100000\n"
			     "two/cordon-t/s3/cpuset.cpus=3\n"
			     "two/cordon-t/s3/io.weight=250\n");
	/* again without a limit of time; the weight stays */
	set_limits(0);
	ASSERT_TEXT(written, "two/cordon-t/s3/memory.swap.max=0\n"
			     "two/cordon-t/s3/memory.max=67108864\n"
			     "two/cordon-t/s3/pids.max=21\n"
			     "two/cordon-t/s3/cpu.max=max\n"
			     "two/cordon-t/s3/cpuset.cpus=0,1,2,3\n");
	written[0] = '\0';
	CU_ASSERT_EQUAL(cgroup_slot_freeze(&slot, true, &error), 0);
	put("two/cordon-t/s3/cgroup.events", "populated 1\nfrozen 1\n");
	CU_ASSERT_TRUE(cgroup_slot_is_frozen(&slot, true));
	CU_ASSERT_FALSE(cgroup_slot_empty(&slot));
	cgroup_slot_kill(&slot);
	ASSERT_TEXT(written, "two/cordon-t/s3/cgroup.freeze=1\n"
			     "two/cordon-t/s3/cgroup.kill=1\n");
	/* its counters cannot be reset: the next box has a new group */
	cgroup_slot_rest(&groups, &slot);
	CU_ASSERT_FALSE(is_there("two/cordon-t/s3"));
	close_all();
	CU_ASSERT_FALSE(is_there("two/cordon-t"));
}

static void test_v2_counters(void)
{
	struct box_stats stats;

	start_v2();
	open_slot(0);
	put("two/cordon-t/s0/memory.current", "1000\n");
	put("two/cordon-t/s0/cpu.stat", "usage_usec 50\nuser_usec 9\n");
	set_limits(0);
	put("two/cordon-t/s0/memory.current", "5000\n");
	put("two/cordon-t/s0/memory.peak", "9000\n");
	put("two/cordon-t/s0/memory.events", "low 0\noom 7\noom_kill 4\noom_group_kill 0\n");
	put("two/cordon-t/s0/pids.events", "max 5\n");
	put("two/cordon-t/s0/pids.current", "2\n");
	put("two/cordon-t/s0/cpu.stat", "usage_usec 750\nuser_usec 9\n");
	memset(&stats, 0, sizeof(stats));
	cgroup_slot_stats(&groups, &slot, &stats);
	CU_ASSERT_EQUAL(stats.cpu_us, 700);
	CU_ASSERT_EQUAL(stats.oom_kills, 3);
	CU_ASSERT_EQUAL(stats.pids_limit_hits, 5);
	CU_ASSERT_EQUAL(stats.memory_bytes, 4000);
	CU_ASSERT_EQUAL(stats.memory_peak_bytes, 8000);
	CU_ASSERT_EQUAL(stats.pids, 2);
	CU_ASSERT_TRUE(cgroup_slot_is_charged(&slot));
	close_all();
}

/* An older kernel: no peak, no cpuset, no weights, no swap. */
static void test_v2_without(void)
{
	static const struct file few[] = {V2_FILES,
					  {"cgroup.controllers", "cpu memory pids\n"},
					  {"cgroup.subtree_control", "cpu memory pids\n"},
					  {"memory.max", "max\n"},
					  {"memory.current", "0\n"},
					  {"memory.events", "oom_kill 0\n"},
					  {"pids.max", "max\n"},
					  {"pids.current", "0\n"},
					  {"cpu.max", "max 100000\n"},
					  {"cpu.stat", "usage_usec 0\n"},
					  {NULL, NULL}};
	struct box_stats stats;

	fresh();
	add_tree("two", few, "cgroup2", "rw");
	expect_mode(BOX_MODE_V2);
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
	ASSERT_TEXT(written, "two/cordon-t/memory.max=67108864\n");
	open_slot(0);
	set_limits(1000);
	ASSERT_TEXT(written, "two/cordon-t/s0/memory.max=67108864\n"
			     "two/cordon-t/s0/pids.max=21\n"
			     "two/cordon-t/s0/cpu.max=100000 100000\n");
	put("two/cordon-t/s0/memory.current", "5000\n");
	memset(&stats, 0, sizeof(stats));
	cgroup_slot_stats(&groups, &slot, &stats);
	CU_ASSERT_EQUAL(stats.memory_peak_bytes, 5000);
	CU_ASSERT_EQUAL(stats.pids_limit_hits, 0);
	close_all();
}

static void test_v2_broken(void)
{
	fresh();
	add_tree("two", v2_files, "cgroup2", "rw");
	put("two/cgroup.controllers", "cpuset cpu io\n");
	expect_refusal("no control groups that limit boxes: cgroup v1 lacks memory, pids, cpu, "
		       "cpuacct; cgroup v2 lacks memory, pids");
	/* a kernel that has no limit of memory in its groups after all */
	fresh();
	add_tree("two", v2_files, "cgroup2", "rw");
	lose("two", "memory.max");
	expect_mode(BOX_MODE_V2);
	CU_ASSERT_EQUAL(open_groups(), -1);
	CU_ASSERT_EQUAL(error.sys, ENOENT);
	cgroups_close(&groups);
	/* a file that every slot needs */
	fresh();
	add_tree("two", v2_files, "cgroup2", "rw");
	lose("two", "pids.max");
	expect_mode(BOX_MODE_V2);
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
	memset(&slot, 0, sizeof(slot));
	CU_ASSERT_EQUAL(cgroup_slot_ready(&groups, &slot, &error), -1);
	ASSERT_TEXT(error.text, "open pids.max: No such file or directory");
	CU_ASSERT_FALSE(slot.open);
	cgroups_close(&groups);
	/* a group with processes of its own, as a container's is */
	fresh();
	add_tree("two", v2_files, "cgroup2", "rw");
	expect_mode(BOX_MODE_V2);
	busy = true;
	CU_ASSERT_EQUAL(open_groups(), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "processes live in the group"));
	cgroups_close(&groups);
}

/* --- v1 ------------------------------------------------------------------------------------- */

static void start_v1(bool with_blkio)
{
	fresh();
	add_v1(with_blkio);
	expect_mode(BOX_MODE_V1);
	/* mounted together: one hierarchy, one group */
	CU_ASSERT_STRING_EQUAL(groups.mounts[CG_CPUACCT], "=");
	put("cpuset/cpuset.cpus", "0-1,4\n");
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
}

static void test_v1_writes(void)
{
	int tasks[CG__MAX];

	start_v1(true);
	ASSERT_TEXT(written, "cpuset/cordon-t/cpuset.mems=0\n\n"
			     "cpuset/cordon-t/cpuset.cpus=0-1,4\n\n"
			     "cpuset/cordon-t/cpuset.sched_load_balance=0\n"
			     "memory/cordon-t/memory.limit_in_bytes=67108864\n");
	CU_ASSERT_FALSE(is_there("systemd/cordon-t"));
	open_slot(2);
	ASSERT_TEXT(written, "cpuset/cordon-t/s2/cpuset.mems=0\n\n"
			     "cpuset/cordon-t/s2/cpuset.cpus=0-1,4\n\n"
			     "cpuset/cordon-t/s2/cpuset.sched_load_balance=0\n");
	/* memory, pids, cpu with cpuacct, cpuset, freezer, blkio */
	CU_ASSERT_EQUAL(cgroup_slot_tasks(&slot, tasks), 6);
	CU_ASSERT_EQUAL(cgroup_slot_unified(&slot), -1);
	set_limits(500);
	/* never more memory than memory and swap together */
	ASSERT_TEXT(written, "memory/cordon-t/s2/memory.memsw.limit_in_bytes=-1\n"
			     "memory/cordon-t/s2/memory.limit_in_bytes=67108864\n"
			     "memory/cordon-t/s2/memory.memsw.limit_in_bytes=67108864\n"
			     "memory/cordon-t/s2/memory.kmem.tcp.limit_in_bytes=16777216\n"
			     "memory/cordon-t/s2/memory.max_usage_in_bytes=0\n"
			     "pids/cordon-t/s2/pids.max=21\n"
			     "cpu,cpuacct/cordon-t/s2/cpu.cfs_quota_us=50000\n"
			     "cpuset/cordon-t/s2/cpuset.cpus=4\n"
			     "blkio/cordon-t/s2/blkio.bfq.weight=250\n");
	set_limits(0);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "cpu.cfs_quota_us=-1\n"
					       "cpuset/cordon-t/s2/cpuset.cpus=0,1,4\n"));
	CU_ASSERT_PTR_NULL(strstr(written, "blkio"));
	written[0] = '\0';
	CU_ASSERT_EQUAL(cgroup_slot_freeze(&slot, true, &error), 0);
	CU_ASSERT_TRUE(cgroup_slot_is_frozen(&slot, true));
	/* no cgroup.kill: thawed, then each process */
	cgroup_slot_kill(&slot);
	ASSERT_TEXT(written, "freezer/cordon-t/s2/freezer.state=FROZEN\n"
			     "freezer/cordon-t/s2/freezer.state=THAWED\n");
	/* the groups are kept for the next box */
	cgroup_slot_rest(&groups, &slot);
	CU_ASSERT_TRUE(is_there("memory/cordon-t/s2"));
	close_all();
	CU_ASSERT_FALSE(is_there("memory/cordon-t"));
	CU_ASSERT_FALSE(is_there("blkio/cordon-t"));
}

static void test_v1_counters(void)
{
	struct box_stats stats;

	start_v1(false);
	open_slot(0);
	/* what an earlier box of the slot left is not this one's */
	put("cpu,cpuacct/cordon-t/s0/cpuacct.usage", "7000000\n");
	set_limits(0);
	put("cpu,cpuacct/cordon-t/s0/cpuacct.usage", "9000000\n");
	put("memory/cordon-t/s0/memory.usage_in_bytes", "6096\n");
	put("memory/cordon-t/s0/memory.max_usage_in_bytes", "7096\n");
	put("memory/cordon-t/s0/memory.oom_control",
	    "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n");
	put("pids/cordon-t/s0/pids.events", "max 4\n");
	put("pids/cordon-t/s0/pids.current", "1\n");
	memset(&stats, 0, sizeof(stats));
	cgroup_slot_stats(&groups, &slot, &stats);
	CU_ASSERT_EQUAL(stats.cpu_us, 2000);
	CU_ASSERT_EQUAL(stats.oom_kills, 1);
	CU_ASSERT_EQUAL(stats.pids_limit_hits, 3);
	CU_ASSERT_EQUAL(stats.memory_bytes, 2000);
	CU_ASSERT_EQUAL(stats.memory_peak_bytes, 3000);
	CU_ASSERT_EQUAL(stats.pids, 1);
	CU_ASSERT_FALSE(cgroup_slot_empty(&slot));
	close_all();
}

static void test_v1_without(void)
{
	/* swap is not counted: then it is not used */
	fresh();
	add_v1(true);
	lose("memory", "memory.memsw.limit_in_bytes");
	lose("blkio", "blkio.bfq.weight");
	lose("cpuset", "cpuset.mems");
	expect_mode(BOX_MODE_V1);
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
	/* no weights and no usable cpuset: no groups there */
	CU_ASSERT_FALSE(is_there("blkio/cordon-t"));
	CU_ASSERT_EQUAL(groups.cpu_count, 0);
	open_slot(0);
	set_limits(500);
	ASSERT_TEXT(written, "memory/cordon-t/s0/memory.swappiness=0\n"
			     "memory/cordon-t/s0/memory.limit_in_bytes=67108864\n"
			     "memory/cordon-t/s0/memory.kmem.tcp.limit_in_bytes=16777216\n"
			     "memory/cordon-t/s0/memory.max_usage_in_bytes=0\n"
			     "pids/cordon-t/s0/pids.max=21\n"
			     "cpu,cpuacct/cordon-t/s0/cpu.cfs_quota_us=50000\n");
	close_all();
	/* without the freezer all else works */
	fresh();
	add_tree("memory", memory_files, "cgroup", "rw,memory");
	add_tree("pids", pids_files, "cgroup", "rw,pids");
	add_tree("cpu", cpu_files, "cgroup", "rw,cpu");
	add_tree("cpuacct", cpu_files, "cgroup", "rw,cpuacct");
	expect_mode(BOX_MODE_V1);
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
	open_slot(0);
	set_limits(0);
	CU_ASSERT_EQUAL(cgroup_slot_freeze(&slot, true, &error), -1);
	CU_ASSERT_EQUAL(error.code, ERR_UNAVAILABLE);
	close_all();
}

/* All in one hierarchy. */
static void test_v1_together(void)
{
	static const struct file files[] = {V1_FILES,
					    {"memory.limit_in_bytes", "0\n"},
					    {"memory.usage_in_bytes", "0\n"},
					    {"memory.max_usage_in_bytes", "0\n"},
					    {"memory.oom_control", "oom_kill 0\n"},
					    {"pids.max", "max\n"},
					    {"pids.current", "0\n"},
					    {"cpu.cfs_quota_us", "-1\n"},
					    {"cpuacct.usage", "0\n"},
					    {"freezer.state", "THAWED\n"},
					    {"blkio.weight", "500\n"},
					    {NULL, NULL}};
	int tasks[CG__MAX];
	pid_t pid;
	char text[32];

	fresh();
	add_tree("all", files, "cgroup", "rw,cpu,cpuacct,blkio,memory,freezer,pids");
	expect_mode(BOX_MODE_V1);
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
	open_slot(0);
	CU_ASSERT_EQUAL(cgroup_slot_tasks(&slot, tasks), 1);
	set_limits(500);
	ASSERT_TEXT(written, "all/cordon-t/s0/memory.limit_in_bytes=67108864\n"
			     "all/cordon-t/s0/memory.max_usage_in_bytes=0\n"
			     "all/cordon-t/s0/pids.max=21\n"
			     "all/cordon-t/s0/cpu.cfs_quota_us=50000\n"
			     "all/cordon-t/s0/blkio.weight=250\n");
	written[0] = '\0';
	CU_ASSERT_EQUAL(cgroup_slot_freeze(&slot, true, &error), 0);
	put("all/cordon-t/s0/freezer.state", "FREEZING\n");
	CU_ASSERT_FALSE(cgroup_slot_is_frozen(&slot, true));
	cgroup_slot_freeze_again(&slot);
	CU_ASSERT_TRUE(cgroup_slot_is_frozen(&slot, true));
	pid = fork();
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	(void)snprintf(text, sizeof(text), "%ld\n", (long)pid);
	put("all/cordon-t/s0/cgroup.procs", text);
	cgroup_slot_kill(&slot);
	CU_ASSERT_EQUAL(waitpid(pid, NULL, 0), pid);
	ASSERT_TEXT(written, "all/cordon-t/s0/freezer.state=FROZEN\n"
			     "all/cordon-t/s0/freezer.state=FROZEN\n"
			     "all/cordon-t/s0/freezer.state=THAWED\n");
	put("all/cordon-t/s0/cgroup.procs", "\n");
	/* a try that does not help: a moment without */
	CU_ASSERT_EQUAL(cgroup_slot_freeze(&slot, true, &error), 0);
	written[0] = '\0';
	for (int i = 0; i < 50; i++)
		cgroup_slot_freeze_again(&slot);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "freezer.state=THAWED\n"));
	close_all();
}

static void test_v1_broken(void)
{
	fresh();
	add_tree("memory", memory_files, "cgroup", "rw,memory");
	add_tree("cpu,cpuacct", cpu_files, "cgroup", "rw,cpu,cpuacct");
	expect_refusal("no control groups that limit boxes: cgroup v1 lacks pids; cgroup v2 lacks "
		       "memory, pids, cpu");
	/* the rest is in v2: one or the other must have all */
	err_clear(&error);
	add_tree("two", v2_files, "cgroup2", "rw");
	put("two/cgroup.controllers", "pids io\n");
	expect_refusal("no control groups that limit boxes: cgroup v1 lacks pids; cgroup v2 lacks "
		       "memory, cpu");
}

/* --- hybrid --------------------------------------------------------------------------------- */

static void test_hybrid(void)
{
	fresh();
	add_v1(true);
	add_tree("unified", bare_v2_files, "cgroup2", "rw");
	expect_mode(BOX_MODE_HYBRID);
	CU_ASSERT_STRING_EQUAL(groups.mounts[CG_FREEZER], "");
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
	CU_ASSERT_PTR_NULL(strstr(written, "unified"));
	open_slot(1);
	CU_ASSERT_FALSE(is_there("freezer/cordon-t"));
	CU_ASSERT_TRUE(cgroup_slot_unified(&slot) >= 0);
	set_limits(1500);
	ASSERT_TEXT(written, "memory/cordon-t/s1/memory.memsw.limit_in_bytes=-1\n"
			     "memory/cordon-t/s1/memory.limit_in_bytes=67108864\n"
			     "memory/cordon-t/s1/memory.memsw.limit_in_bytes=67108864\n"
			     "memory/cordon-t/s1/memory.kmem.tcp.limit_in_bytes=16777216\n"
			     "memory/cordon-t/s1/memory.max_usage_in_bytes=0\n"
			     "pids/cordon-t/s1/pids.max=21\n"
			     "cpu,cpuacct/cordon-t/s1/cpu.cfs_quota_us=150000\n"
			     "cpuset/cordon-t/s1/cpuset.cpus=4,0\n"
			     "blkio/cordon-t/s1/blkio.bfq.weight=250\n");
	written[0] = '\0';
	CU_ASSERT_EQUAL(cgroup_slot_freeze(&slot, true, &error), 0);
	cgroup_slot_kill(&slot);
	ASSERT_TEXT(written, "unified/cordon-t/s1/cgroup.freeze=1\n"
			     "unified/cordon-t/s1/cgroup.kill=1\n");
	/* a group that saw cgroup.kill is not used again */
	cgroup_slot_rest(&groups, &slot);
	CU_ASSERT_FALSE(is_there("unified/cordon-t/s1"));
	CU_ASSERT_FALSE(is_there("memory/cordon-t/s1"));
	close_all();
}

/* --- which mounts --------------------------------------------------------------------------- */

static const char *chosen(enum cg_tree tree)
{
	return groups.mounts[tree] + strlen(base);
}

static void test_several_mounts(void)
{
	fresh();
	add_line("ro", "/", "ro,nosuid", "cgroup", "rw,memory");
	add_line("part", "/docker/x", "rw", "cgroup", "rw,memory");
	add_v1(false);
	add_line("again", "/", "rw", "cgroup", "rw,memory");
	add_line("late", "/", "rw", "cgroup", "rw,pids");
	expect_mode(BOX_MODE_V1);
	/* the first that can be written and shows the whole hierarchy */
	CU_ASSERT_STRING_EQUAL(chosen(CG_MEMORY), "/memory");
	CU_ASSERT_STRING_EQUAL(chosen(CG_PIDS), "/pids");
	/* another file system on the same place hides it */
	add_line("memory", "/", "rw", "tmpfs", "rw");
	expect_mode(BOX_MODE_V1);
	CU_ASSERT_STRING_EQUAL(chosen(CG_MEMORY), "/again");
	/* one that can only be read is as good as none */
	fresh();
	add_tree("two", v2_files, "cgroup2", "rw");
	mounts[0] = '\0';
	add_line("two", "/", "ro,nosuid", "cgroup2", "rw");
	expect_refusal("no control groups that limit boxes: cgroup v1 lacks memory, pids, cpu, "
		       "cpuacct; cgroup v2 lacks memory, pids, cpu (some are mounted read-only)");
}

static void test_odd_lines(void)
{
	static const char *const lines[] = {"",
					    "\n\n",
					    "40",
					    "40 23 0:30 / /x rw",
					    "40 23 0:30 / /x rw shared:1 cgroup2",
					    " - ",
					    "a b c d e f - cgroup2",
					    "40 23 0:30 / /\\04 rw - cgroup2 cgroup rw",
					    "40 23 0:30 / \\999\\ rw - cgroup rw,memory",
					    "40 23 0:30 / /x rw -  cgroup memory "};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		err_clear(&error);
		CU_ASSERT_EQUAL(cgroups_probe_text(&groups, lines[i], &error), -1);
		CU_ASSERT_EQUAL(error.code, ERR_UNAVAILABLE);
	}
	/* without optional fields, and a name that is too long */
	fresh();
	add_tree("two", v2_files, "cgroup2", "rw");
	(void)snprintf(mounts, sizeof(mounts), "40 23 0:30 / %s/two rw - cgroup2 cgroup rw\n",
		       base);
	err_clear(&error);
	CU_ASSERT_EQUAL(cgroups_probe_text(&groups, mounts, &error), -1);
	for (char *p = strstr(mounts, "fake "); p != NULL; p = NULL) {
		memmove(p + 8, p + 5, strlen(p + 5) + 1);
		memcpy(p + 4, "\\040", 4);
	}
	expect_mode(BOX_MODE_V2);
	memset(mounts, 'x', 600);
	memcpy(mounts, "40 23 0:30 / /", 14);
	(void)snprintf(mounts + 600, sizeof(mounts) - 600, " rw - cgroup2 cgroup rw\n");
	CU_ASSERT_EQUAL(cgroups_probe_text(&groups, mounts, &error), -1);
}

/* --- groups that somebody removed ----------------------------------------------------------- */

static void take_away(const char *path)
{
	char whole[500];

	(void)snprintf(whole, sizeof(whole), "%s/%s", base, path);
	CU_ASSERT_EQUAL(rmdir(whole), 0);
}

static void test_removed(void)
{
	start_v1(false);
	open_slot(0);
	/* one of a slot's */
	take_away("pids/cordon-t/s0");
	CU_ASSERT_EQUAL(cgroup_slot_ready(&groups, &slot, &error), 0);
	CU_ASSERT_TRUE(is_there("pids/cordon-t/s0"));
	set_limits(500);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "pids/cordon-t/s0/pids.max=21\n"));
	/* a whole tree of ours: the limit of the instance comes back too */
	take_away("memory/cordon-t/s0");
	take_away("memory/cordon-t");
	take_away("cpuset/cordon-t/s0");
	take_away("cpuset/cordon-t");
	written[0] = '\0';
	CU_ASSERT_EQUAL(cgroup_slot_ready(&groups, &slot, &error), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "memory/cordon-t/memory.limit_in_bytes=67108864\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "cpuset/cordon-t/cpuset.cpus=0-1,4\n"));
	set_limits(500);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "memory/cordon-t/s0/memory.limit_in_bytes="));
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "cpuset/cordon-t/s0/cpuset.cpus=0\n"));
	/* the hierarchy itself: an error, never a slot without its limits */
	take_away("memory/cordon-t/s0");
	take_away("memory/cordon-t");
	take_away("memory");
	CU_ASSERT_EQUAL(cgroup_slot_ready(&groups, &slot, &error), -1);
	CU_ASSERT_FALSE(slot.open);
	CU_ASSERT_EQUAL(cgroup_slot_ready(&groups, &slot, &error), -1);
	cgroups_close(&groups);

	start_v2();
	open_slot(0);
	take_away("two/cordon-t/s0");
	take_away("two/cordon-t");
	written[0] = '\0';
	CU_ASSERT_EQUAL(cgroup_slot_ready(&groups, &slot, &error), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "two/cordon-t/cgroup.subtree_control=+pids\n"));
	set_limits(500);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "two/cordon-t/s0/memory.max=67108864\n"));
	close_all();
}

/* --- what an ended box leaves charged --------------------------------------------------------- */

static void test_charged(void)
{
	start_v1(false);
	open_slot(0);
	put("memory/cordon-t/s0/memory.usage_in_bytes", "1048576\n");
	cgroup_slot_rest(&groups, &slot);
	CU_ASSERT_TRUE(slot.open);
	/* the page cache of a workspace: a lower limit would wait for it */
	put("memory/cordon-t/s0/memory.usage_in_bytes", "104857600\n");
	cgroup_slot_rest(&groups, &slot);
	CU_ASSERT_FALSE(slot.open);
	CU_ASSERT_FALSE(is_there("memory/cordon-t/s0"));
	CU_ASSERT_EQUAL(cgroup_slot_ready(&groups, &slot, &error), 0);
	CU_ASSERT_TRUE(is_there("memory/cordon-t/s0"));
	close_all();
}

/* --- below a slice of systemd's --------------------------------------------------------------- */

static void test_slice(void)
{
	static const char *const bad[] = {"",           ".slice",    "boxes",       "a/b.slice",
					  "../x.slice", "a-b.slice", "boxes.slice/"};

	fresh();
	add_tree("two", v2_files, "cgroup2", "rw,nsdelegate");
	expect_mode(BOX_MODE_V2);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(cgroups_enter_slice(&groups, bad[i], &error), -1);
		err_clear(&error);
	}
	written[0] = '\0';
	CU_ASSERT_EQUAL(cgroups_enter_slice(&groups, "cordonboxes.slice", &error), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "two/cgroup.subtree_control=+pids\n"));
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
	CU_ASSERT_PTR_NOT_NULL(
	    strstr(written, "two/cordonboxes.slice/cgroup.subtree_control=+pids\n"));
	CU_ASSERT_PTR_NOT_NULL(
	    strstr(written, "two/cordonboxes.slice/cordon-t/memory.max=67108864\n"));
	open_slot(0);
	set_limits(500);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "two/cordonboxes.slice/cordon-t/s0/pids.max=21\n"));
	close_all();
	CU_ASSERT_TRUE(is_there("two/cordonboxes.slice"));
	CU_ASSERT_FALSE(is_there("two/cordonboxes.slice/cordon-t"));

	fresh();
	add_v1(true);
	expect_mode(BOX_MODE_V1);
	put("cpuset/cpuset.cpus", "0-1,4\n");
	CU_ASSERT_EQUAL(cgroups_enter_slice(&groups, "cordonboxes.slice", &error), 0);
	CU_ASSERT_EQUAL_FATAL(open_groups(), 0);
	open_slot(0);
	set_limits(500);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "pids/cordonboxes.slice/cordon-t/s0/pids.max=21\n"));
	CU_ASSERT_PTR_NOT_NULL(
	    strstr(written, "cpuset/cordonboxes.slice/cordon-t/s0/cpuset.cpus=0\n"));
	close_all();
}

/* --- a box that lives long ------------------------------------------------------------------- */

static unsigned int open_files(void)
{
	unsigned int count = 0;

	for (int i = 0; i < CF__MAX; i++)
		count += slot.files[i] >= 0;
	for (int i = 0; i < CG__MAX; i++)
		count += slot.tasks[i] >= 0;
	return count;
}

/* It holds fewer descriptors, its counters and its end work, and the slot serves a next box. */
static void settle_and_come_back(const char *limit)
{
	unsigned int before;

	open_slot(0);
	set_limits(500);
	before = open_files();
	cgroup_slot_settle(&slot);
	CU_ASSERT_TRUE(open_files() * 3 < before * 2);
	CU_ASSERT_TRUE(slot.files[CF_MEMORY_NOW] >= 0 && slot.files[CF_PIDS_NOW] >= 0);
	CU_ASSERT_TRUE(slot.files[CF_FREEZE] >= 0 && slot.files[CF_CPU_USAGE] >= 0);
	CU_ASSERT_EQUAL(cgroup_slot_ready(&groups, &slot, &error), 0);
	CU_ASSERT_EQUAL(open_files(), before);
	set_limits(500);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, limit));
	cgroup_slot_settle(&slot);
}

static void test_settled(void)
{
	start_v2();
	settle_and_come_back("two/cordon-t/s0/pids.max=21\n");
	close_all();
	start_v1(true);
	settle_and_come_back("pids/cordon-t/s0/pids.max=21\n");
	close_all();
}

/* A slot whose old group could not be removed is not believed to have all processors. */
static void test_left_over(void)
{
	start_v2();
	open_slot(0);
	set_limits(1000);
	slot.open = false; /* as after a start anew */
	for (int i = 0; i < CF__MAX; i++)
		fd_close_at(&slot.files[i]);
	fd_close_at(&slot.dirs[CG_UNIFIED]);
	open_slot(0);
	set_limits(0);
	CU_ASSERT_PTR_NOT_NULL(strstr(written, "two/cordon-t/s0/cpuset.cpus=0,1,2,3\n"));
	close_all();
}

static const struct test tests[] = {
    {"cgroup", "v2: what is written, in order", test_v2_writes},
    {"cgroup", "v2: counters", test_v2_counters},
    {"cgroup", "v2: without peak, cpuset, weights, swap", test_v2_without},
    {"cgroup", "v2: broken", test_v2_broken},
    {"cgroup", "v1: what is written, in order", test_v1_writes},
    {"cgroup", "v1: counters", test_v1_counters},
    {"cgroup", "v1: without swap accounting, weights, freezer", test_v1_without},
    {"cgroup", "v1: all in one hierarchy", test_v1_together},
    {"cgroup", "v1: broken", test_v1_broken},
    {"cgroup", "hybrid", test_hybrid},
    {"cgroup", "several mounts", test_several_mounts},
    {"cgroup", "odd lines", test_odd_lines},
    {"cgroup", "groups that somebody removed", test_removed},
    {"cgroup", "what an ended box leaves charged", test_charged},
    {"cgroup", "below a slice", test_slice},
    {"cgroup", "a box that lives long", test_settled},
    {"cgroup", "a group that was left", test_left_over},
};

TEST_MAIN(tests)
