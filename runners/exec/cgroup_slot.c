/* The groups of one slot: limits, counters, kill, freeze. */
#include "runners/exec/cgroup.h"

#include "runners/base/fdio.h"
#include "runners/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define CPU_PERIOD_US 100000U
/* init itself */
#define OWN_TASKS         1U
#define CHARGED_MOST      (UINT64_C(8) << 20) /* kept groups may hold that much */
#define THAW_EACH         50U                 /* tries to freeze */
#define CPUS_UNKNOWN      UINT32_MAX
#define SOCKET_BYTES_MOST (UINT64_C(16) << 20) /* of socket buffers in one box */

struct file_name {
	enum cg_tree tree; /* of v1 */
	const char *v1;    /* NULL: not there */
	const char *v2;    /* in the unified group */
	bool hybrid;       /* in hybrid mode the v2 file is meant */
	bool optional;
	bool settles; /* only an assignment needs it */
};

static const struct file_name file_names[CF__MAX] = {
    [CF_MEMORY_LIMIT] = {CG_MEMORY, "memory.limit_in_bytes", "memory.max", false, false, true},
    [CF_SWAP_LIMIT] = {CG_MEMORY, "memory.memsw.limit_in_bytes", "memory.swap.max", false, true,
		       true},
    [CF_SWAPPINESS] = {CG_MEMORY, "memory.swappiness", NULL, false, true, true},
    [CF_SOCKET_LIMIT] = {CG_MEMORY, "memory.kmem.tcp.limit_in_bytes", NULL, false, true, true},
    [CF_MEMORY_PEAK] = {CG_MEMORY, "memory.max_usage_in_bytes", "memory.peak", false, true},
    [CF_MEMORY_NOW] = {CG_MEMORY, "memory.usage_in_bytes", "memory.current", false, false},
    [CF_MEMORY_EVENTS] = {CG_MEMORY, "memory.oom_control", "memory.events", false, false},
    [CF_PIDS_LIMIT] = {CG_PIDS, "pids.max", "pids.max", false, false, true},
    [CF_PIDS_EVENTS] = {CG_PIDS, "pids.events", "pids.events", false, true},
    [CF_PIDS_NOW] = {CG_PIDS, "pids.current", "pids.current", false, false},
    [CF_CPU_LIMIT] = {CG_CPU, "cpu.cfs_quota_us", "cpu.max", false, false, true},
    [CF_CPU_USAGE] = {CG_CPUACCT, "cpuacct.usage", "cpu.stat", false, false},
    [CF_CPUS] = {CG_CPUSET, "cpuset.cpus", "cpuset.cpus", false, true, true},
    [CF_IO_WEIGHT] = {CG_BLKIO, "blkio.weight", "io.weight", false, true, true},
    [CF_IO_WEIGHT_BFQ] = {CG_BLKIO, "blkio.bfq.weight", "io.bfq.weight", false, true, true},
    [CF_KILL] = {CG_UNIFIED, NULL, "cgroup.kill", true, false},
    [CF_FREEZE] = {CG_FREEZER, "freezer.state", "cgroup.freeze", true, true},
    [CF_EVENTS] = {CG_UNIFIED, NULL, "cgroup.events", true, false},
};

static void clear(struct cgroup_slot *s)
{
	memset(s, 0, sizeof(*s));
	for (int i = 0; i < CG__MAX; i++) {
		s->dirs[i] = -1;
		s->tasks[i] = -1;
	}
	for (int i = 0; i < CF__MAX; i++)
		s->files[i] = -1;
}

/* The directory of a v1 file; controllers that are mounted together share one. */
static int dir_of(const struct cgroup_slot *s, const struct file_name *f)
{
	if (s->dirs[f->tree] >= 0 || f->v1 == NULL)
		return s->dirs[f->tree];
	for (int i = 0; i < CG_UNIFIED; i++)
		if (s->dirs[i] >= 0 && faccessat(s->dirs[i], f->v1, F_OK, 0) == 0)
			return s->dirs[i];
	return -1;
}

/* Each process is in all trees; pids may share that of memory. */
static int members_tree(const struct cgroup_slot *s)
{
	return s->dirs[CG_PIDS] >= 0 ? CG_PIDS : CG_MEMORY;
}

static int open_dir(const struct cgroups *g, struct cgroup_slot *s, enum cg_tree tree,
		    struct err *e)
{
	char name[16];
	bool made;

	if (g->roots[tree] < 0)
		return 0;
	(void)snprintf(name, sizeof(name), "s%u", s->number);
	made = mkdirat(g->roots[tree], name, 0755) == 0;
	if (!made && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "mkdir group %s", name);
	s->dirs[tree] = openat(g->roots[tree], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dirs[tree] < 0)
		return err_set(e, ERR_IO, errno, "open group %s", name);
	if (tree == CG_UNIFIED) {
		if (g->mode == BOX_MODE_V2 && !made)
			s->cpus_set = CPUS_UNKNOWN;
		return 0;
	}
	/* an empty set refuses members; that of a box that lives stays as it is */
	if (tree == CG_CPUSET && !made)
		s->cpus_set = CPUS_UNKNOWN;
	else if (tree == CG_CPUSET && cpuset_prepare(g->roots[tree], s->dirs[tree], e) != 0)
		return -1;
	s->tasks[tree] = openat(s->dirs[tree], "tasks", O_WRONLY | O_CLOEXEC);
	if (s->tasks[tree] < 0)
		return err_set(e, ERR_IO, errno, "open tasks of group %s", name);
	return 0;
}

static int open_file(const struct cgroups *g, struct cgroup_slot *s, enum cg_file file,
		     struct err *e)
{
	const struct file_name *f = &file_names[file];
	bool unified = g->mode == BOX_MODE_V2 || (g->mode == BOX_MODE_HYBRID && f->hybrid);
	const char *name = unified ? f->v2 : f->v1;
	int dir = unified ? s->dirs[CG_UNIFIED] : dir_of(s, f);

	if (name == NULL || (dir < 0 && f->optional))
		return 0;
	if (dir < 0)
		return err_set(e, ERR_IO, 0, "no group has %s", name);
	s->files[file] = openat(dir, name, O_RDWR | O_CLOEXEC);
	if (s->files[file] < 0)
		s->files[file] = openat(dir, name, O_WRONLY | O_CLOEXEC);
	if (s->files[file] < 0)
		s->files[file] = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (s->files[file] < 0 && !f->optional)
		return err_set(e, ERR_IO, errno, "open %s", name);
	return 0;
}

int cgroup_slot_open(const struct cgroups *g, unsigned int number, struct cgroup_slot *s,
		     struct err *e)
{
	int result = 0;

	clear(s);
	s->number = number;
	s->open = true;
	for (enum cg_tree tree = 0; tree < CG__MAX && result == 0; tree++)
		result = open_dir(g, s, tree, e);
	for (enum cg_file file = 0; file < CF__MAX && result == 0; file++)
		result = open_file(g, s, file, e);
	if (result != 0)
		cgroup_slot_close(g, s);
	return result;
}

void cgroup_slot_settle(struct cgroup_slot *s)
{
	if (!s->open)
		return;
	for (int i = 0; i < CF__MAX; i++)
		if (file_names[i].settles)
			fd_close_at(&s->files[i]);
	for (int i = 0; i < CG_UNIFIED; i++) {
		fd_close_at(&s->tasks[i]);
		if (i != members_tree(s))
			fd_close_at(&s->dirs[i]);
	}
	s->settled = true;
}

static int unsettle(const struct cgroups *g, struct cgroup_slot *s, struct err *e)
{
	for (enum cg_tree tree = 0; tree < CG_UNIFIED; tree++) {
		fd_close_at(&s->dirs[tree]);
		if (open_dir(g, s, tree, e) != 0)
			return -1;
	}
	for (enum cg_file file = 0; file < CF__MAX; file++)
		if (file_names[file].settles && open_file(g, s, file, e) != 0)
			return -1;
	s->settled = false;
	return 0;
}

static bool is_whole(const struct cgroup_slot *s)
{
	for (int i = 0; i < CG__MAX; i++)
		if (s->dirs[i] >= 0 && !cgroup_is_there(s->dirs[i]))
			return false;
	return true;
}

int cgroup_slot_ready(struct cgroups *g, struct cgroup_slot *s, struct err *e)
{
	/* no process is left in a slot of which somebody could remove a group */
	if (s->open && (!is_whole(s) || (s->settled && unsettle(g, s, e) != 0)))
		cgroup_slot_close(g, s);
	if (s->open)
		return 0;
	err_clear(e);
	if (cgroup_slot_open(g, s->number, s, e) == 0)
		return 0;
	if (e->sys != ENOENT && e->sys != ENODEV)
		return -1;
	err_clear(e);
	return cgroups_renew(g, e) != 0 ? -1 : cgroup_slot_open(g, s->number, s, e);
}

void cgroup_slot_close(const struct cgroups *g, struct cgroup_slot *s)
{
	char name[16];

	if (!s->open)
		return;
	(void)snprintf(name, sizeof(name), "s%u", s->number);
	for (int i = 0; i < CF__MAX; i++)
		fd_close_at(&s->files[i]);
	for (int i = 0; i < CG__MAX; i++) {
		fd_close_at(&s->tasks[i]);
		fd_close_at(&s->dirs[i]);
		if (g->roots[i] >= 0)
			(void)unlinkat(g->roots[i], name, AT_REMOVEDIR);
	}
	s->open = false;
}

/* --- values --------------------------------------------------------------------------------- */

static int set(const struct cgroup_slot *s, enum cg_file file, const char *text, struct err *e)
{
	ssize_t done;

	if (s->files[file] < 0)
		return 0;
	do
		done = write(s->files[file], text, strlen(text));
	while (done < 0 && errno == EINTR);
	if (done < 0)
		return err_set(e, ERR_IO, errno, "write \"%s\" to %s", text,
			       file_names[file].v1 == NULL ? file_names[file].v2
							   : file_names[file].v1);
	return 0;
}

static int set_number(const struct cgroup_slot *s, enum cg_file file, uint64_t value, struct err *e)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return set(s, file, text, e);
}

/* The number behind `key` ("" for a file that is one number); 0 when it is not there. */
static uint64_t get(const struct cgroup_slot *s, enum cg_file file, const char *key)
{
	char text[2048];
	const char *p = text;
	uint64_t value = 0;
	ssize_t got;

	if (s->files[file] < 0)
		return 0;
	got = pread(s->files[file], text, sizeof(text) - 1, 0);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	while (p != NULL && !str_starts(p, key)) {
		p = strchr(p, '\n');
		if (p != NULL)
			p++;
	}
	if (p == NULL)
		return 0;
	for (p += strlen(key); *p >= '0' && *p <= '9'; p++)
		value = value * 10 + (uint64_t)(*p - '0');
	return value;
}

void cgroup_slot_rest(const struct cgroups *g, struct cgroup_slot *s)
{
	/* what is still charged, the page cache of a workspace, would have to be written back and
	 * taken away when a next box has a lower limit: seconds, in our one thread */
	if (g->mode == BOX_MODE_V2 || s->spoiled || get(s, CF_MEMORY_NOW, "") > CHARGED_MOST)
		cgroup_slot_close(g, s);
}

static uint64_t cpu_us(const struct cgroups *g, const struct cgroup_slot *s)
{
	if (g->mode == BOX_MODE_V2)
		return get(s, CF_CPU_USAGE, "usage_usec ");
	return get(s, CF_CPU_USAGE, "") / 1000;
}

static int set_memory(const struct cgroups *g, const struct cgroup_slot *s, uint64_t bytes,
		      struct err *e)
{
	/* without swap first: no moment has a limit that could be passed that way */
	if (g->mode == BOX_MODE_V2)
		return set(s, CF_SWAP_LIMIT, "0", e) != 0 ||
			       set_number(s, CF_MEMORY_LIMIT, bytes, e) != 0
			   ? -1
			   : 0;
	if (s->files[CF_SWAP_LIMIT] < 0 && set(s, CF_SWAPPINESS, "0", e) != 0)
		return -1;
	/* memory and swap together must never be below memory alone */
	if (set(s, CF_SWAP_LIMIT, "-1", e) != 0 || set_number(s, CF_MEMORY_LIMIT, bytes, e) != 0 ||
	    set_number(s, CF_SWAP_LIMIT, bytes, e) != 0)
		return -1;
	/* it is TCP's by name, but sockets of every kind with accounting are charged to it, UDP too
	 */
	if (s->files[CF_SOCKET_LIMIT] >= 0 &&
	    set_number(s, CF_SOCKET_LIMIT,
		       bytes / 4 < SOCKET_BYTES_MOST ? bytes / 4 : SOCKET_BYTES_MOST, e) != 0)
		return -1;
	return set(s, CF_MEMORY_PEAK, "0", e);
}

static int set_cpu(const struct cgroups *g, const struct cgroup_slot *s, uint32_t millis,
		   struct err *e)
{
	uint64_t quota = (uint64_t)millis * CPU_PERIOD_US / 1000;
	char text[64];

	if (g->mode != BOX_MODE_V2)
		return millis == 0 ? set(s, CF_CPU_LIMIT, "-1", e)
				   : set_number(s, CF_CPU_LIMIT, quota, e);
	if (millis == 0)
		return set(s, CF_CPU_LIMIT, "max", e);
	(void)snprintf(text, sizeof(text), "%llu %u", (unsigned long long)quota, CPU_PERIOD_US);
	return set(s, CF_CPU_LIMIT, text, e);
}

/* The processors of a slot: the next ones after those of the slot before it. */
static int set_cpus(const struct cgroups *g, struct cgroup_slot *s, uint32_t millis, struct err *e)
{
	unsigned int wanted = (millis + 999) / 1000;
	scope_buf struct buf text = BUF_NONE;

	if (s->files[CF_CPUS] < 0 || g->cpu_count == 0)
		return 0;
	if (wanted >= g->cpu_count)
		wanted = 0;
	if (wanted == s->cpus_set)
		return 0;
	buf_init(&text, (size_t)CG_MAX_CPUS * 6);
	/* v2 too: a set that has members refuses to become empty again (ENOSPC, Linux 6.1) */
	for (unsigned int i = 0; wanted == 0 && i < g->cpu_count; i++)
		buf_addf(&text, "%s%u", i == 0 ? "" : ",", g->cpus[i]);
	for (unsigned int i = 0; i < wanted; i++)
		buf_addf(&text, "%s%u", i == 0 ? "" : ",",
			 g->cpus[(s->number * wanted + i) % g->cpu_count]);
	if (!buf_ok(&text))
		return err_set(e, ERR_NOMEM, 0, "a list of processors");
	s->cpus_set = wanted;
	return set(s, CF_CPUS, buf_text(&text), e);
}

/* Once per group. */
static int set_weight(const struct cgroups *g, struct cgroup_slot *s, struct err *e)
{
	if (s->io_weight == g->io_weight)
		return 0;
	if (set_number(s, CF_IO_WEIGHT, g->io_weight, e) != 0 ||
	    set_number(s, CF_IO_WEIGHT_BFQ, g->io_weight, e) != 0)
		return -1;
	s->io_weight = g->io_weight;
	return 0;
}

int cgroup_slot_set(const struct cgroups *g, struct cgroup_slot *s, const struct box_limits *limits,
		    struct err *e)
{
	if (!s->open && cgroup_slot_open(g, s->number, s, e) != 0)
		return -1;
	if (s->frozen && cgroup_slot_freeze(s, false, e) != 0)
		return -1;
	if (set_memory(g, s, limits->memory_bytes, e) != 0 ||
	    set_number(s, CF_PIDS_LIMIT, (uint64_t)limits->pids + OWN_TASKS, e) != 0 ||
	    set_cpu(g, s, limits->cpu_millis, e) != 0 || set_cpus(g, s, limits->cpu_millis, e) != 0)
		return -1;
	if (set_weight(g, s, e) != 0)
		return -1;
	s->base_cpu_us = cpu_us(g, s);
	s->base_oom_kills = get(s, CF_MEMORY_EVENTS, "oom_kill ");
	s->base_pids_hits = get(s, CF_PIDS_EVENTS, "max ");
	s->base_memory = get(s, CF_MEMORY_NOW, "");
	return 0;
}

static uint64_t above(uint64_t value, uint64_t base)
{
	return value > base ? value - base : 0;
}

void cgroup_slot_stats(const struct cgroups *g, const struct cgroup_slot *s, struct box_stats *out)
{
	if (!s->open)
		return;
	out->cpu_us = above(cpu_us(g, s), s->base_cpu_us);
	out->oom_kills = above(get(s, CF_MEMORY_EVENTS, "oom_kill "), s->base_oom_kills);
	out->pids_limit_hits = above(get(s, CF_PIDS_EVENTS, "max "), s->base_pids_hits);
	/* what an earlier box left in the page cache is not this one's */
	out->memory_bytes = above(get(s, CF_MEMORY_NOW, ""), s->base_memory);
	out->memory_peak_bytes = above(get(s, CF_MEMORY_PEAK, ""), s->base_memory);
	/* before Linux 5.19 v2 has no peak: what is there now is the least that it was */
	if (out->memory_peak_bytes < out->memory_bytes)
		out->memory_peak_bytes = out->memory_bytes;
	out->pids = (uint32_t)get(s, CF_PIDS_NOW, "");
}

/* --- joining, ending, freezing -------------------------------------------------------------- */

size_t cgroup_slot_tasks(const struct cgroup_slot *s, int out[CG__MAX])
{
	size_t count = 0;

	for (int i = 0; i < CG__MAX; i++)
		if (s->tasks[i] >= 0)
			out[count++] = s->tasks[i];
	return count;
}

int cgroup_slot_unified(const struct cgroup_slot *s)
{
	return s->dirs[CG_UNIFIED];
}

/* The freezer of v1, alone or in a hierarchy with others. */
static bool has_freezer(const struct cgroup_slot *s)
{
	return s->dirs[CG_UNIFIED] < 0 && s->files[CF_FREEZE] >= 0;
}

void cgroup_slot_kill(struct cgroup_slot *s)
{
	struct err e = ERR_INIT;

	if (!s->open)
		return;
	if (s->files[CF_KILL] >= 0 && set(s, CF_KILL, "1", &e) == 0) {
		s->spoiled = true;
		return;
	}
	if (has_freezer(s)) {
		err_clear(&e);
		(void)set(s, CF_FREEZE, "THAWED", &e);
	}
	cgroup_kill_members(s->dirs[members_tree(s)]);
}

void cgroup_slot_kill_others(const struct cgroup_slot *s)
{
	if (s->open && get(s, CF_PIDS_NOW, "") > OWN_TASKS)
		cgroup_kill_members(s->dirs[members_tree(s)]);
}

bool cgroup_slot_empty(const struct cgroup_slot *s)
{
	if (!s->open)
		return true;
	if (s->files[CF_EVENTS] >= 0)
		return get(s, CF_EVENTS, "populated ") == 0;
	return get(s, CF_PIDS_NOW, "") == 0;
}

bool cgroup_slot_is_charged(const struct cgroup_slot *s)
{
	return s->open && get(s, CF_PIDS_NOW, "") != 0;
}

int cgroup_slot_freeze(struct cgroup_slot *s, bool on, struct err *e)
{
	if (s->files[CF_FREEZE] < 0)
		return err_set(e, ERR_UNAVAILABLE, 0, "this host cannot freeze a group");
	s->frozen = on;
	s->freeze_tries = 0;
	if (has_freezer(s))
		return set(s, CF_FREEZE, on ? "FROZEN" : "THAWED", e);
	return set(s, CF_FREEZE, on ? "1" : "0", e);
}

void cgroup_slot_freeze_again(struct cgroup_slot *s)
{
	struct err e = ERR_INIT;

	if (has_freezer(s) && s->frozen)
		(void)set(s, CF_FREEZE, ++s->freeze_tries % THAW_EACH == 0 ? "THAWED" : "FROZEN",
			  &e);
}

bool cgroup_slot_is_frozen(const struct cgroup_slot *s, bool wished)
{
	char text[64];
	ssize_t got;

	if (s->files[CF_EVENTS] >= 0)
		return (get(s, CF_EVENTS, "frozen ") != 0) == wished;
	if (s->files[CF_FREEZE] < 0)
		return false;
	got = pread(s->files[CF_FREEZE], text, sizeof(text) - 1, 0);
	if (got <= 0)
		return false;
	text[got] = '\0';
	return str_starts(text, wished ? "FROZEN" : "THAWED");
}
