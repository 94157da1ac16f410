/* Which hierarchies there are, the instance's own groups, and sweeping. */
#include "runners/exec/cgroup.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define TEXT_BYTES     ((size_t)1 << 20)
#define SWEEP_US       (5 * CLOCK_US_PER_S)
#define SWEEP_PAUSE_US 2000
#define MIN_MEMORY     (UINT64_C(64) << 20)

static const char *const tree_names[CG__MAX] = {
    [CG_MEMORY] = "memory",   [CG_PIDS] = "pids",     [CG_CPU] = "cpu",
    [CG_CPUACCT] = "cpuacct", [CG_CPUSET] = "cpuset", [CG_FREEZER] = "freezer",
    [CG_BLKIO] = "blkio",
};
static const enum cg_tree needed_v1[] = {CG_MEMORY, CG_PIDS, CG_CPU, CG_CPUACCT};
static const char *const needed_v2[] = {"memory", "pids", "cpu"};
/* v2 controllers that are used where they are */
static const char *const wished_v2[] = {"cpuset", "io"};

/* How good the mount is that was found for a tree. */
enum rank { RANK_NONE, RANK_READ_ONLY, RANK_PART, RANK_WHOLE };
struct mounts {
	struct cgroups *g;
	enum rank ranks[CG__MAX];
};

/* True if the comma-separated list has the word. */
static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *p = list; p != NULL; p = strchr(p, ',')) {
		if (*p == ',')
			p++;
		if (strncmp(p, word, length) == 0 && (p[length] == ',' || p[length] == '\0'))
			return true;
	}
	return false;
}

/* The names of mountinfo have blanks and the like as \040. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *p = text; *p != '\0'; p++) {
		if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' &&
		    p[3] >= '0' && p[3] <= '7') {
			*to++ = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
			p += 3;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
}

static void remember(struct mounts *m, enum cg_tree tree, const char *mount, enum rank rank)
{
	char *to = m->g->mounts[tree];

	if (rank > m->ranks[tree] && str_copy(to, sizeof(m->g->mounts[tree]), mount) == 0)
		m->ranks[tree] = rank;
}

/* Whether one of the later lines mounts something on the same place (its fifth field). */
static bool is_hidden(const char *later, const char *mount)
{
	size_t length = strlen(mount);

	while (later != NULL && *later != '\0') {
		const char *p = later;

		for (int i = 0; i < 4; i++) {
			p += strcspn(p, " \n");
			p += *p == ' ' ? 1 : 0;
		}
		if (strncmp(p, mount, length) == 0 && p[length] == ' ')
			return true;
		later = strchr(later, '\n');
		if (later != NULL)
			later++;
	}
	return false;
}

/* One line of mountinfo: "id parent dev root mountpoint options [optional] - type source super". */
static void take_mount(struct mounts *m, char *line, const char *later)
{
	char *fields[6];
	char *rest = line;
	char *type;
	const char *super;
	enum rank rank;

	for (int i = 0; i < 6; i++) {
		fields[i] = strsep(&rest, " ");
		if (rest == NULL)
			return;
	}
	/* without optional fields the separator comes at once */
	type = str_starts(rest, "- ") ? rest + 2 : strstr(rest, " - ");
	if (type == NULL)
		return;
	if (type[0] == ' ')
		type += 3;
	super = strrchr(type, ' ');
	if (super == NULL)
		return;
	super++;
	if (!str_starts(type, "cgroup") || is_hidden(later, fields[4]))
		return;
	unescape(fields[4]);
	rank = str_equal(fields[3], "/") ? RANK_WHOLE : RANK_PART;
	if (has_word(fields[5], "ro") || has_word(super, "ro"))
		rank = RANK_READ_ONLY;
	if (str_starts(type, "cgroup2 "))
		remember(m, CG_UNIFIED, fields[4], rank);
	if (!str_starts(type, "cgroup "))
		return;
	for (enum cg_tree tree = 0; tree < CG_UNIFIED; tree++)
		if (has_word(super, tree_names[tree]))
			remember(m, tree, fields[4], rank);
}

/* Whether a v2 group has the word in one of its lists. */
static bool lists(int dir, const char *file, const char *word)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;

	buf_init(&text, 4096);
	if (fd_read_file(dir, file, &text, &e) != 0)
		return false;
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] == ' ' || text.data[i] == '\n')
			text.data[i] = ',';
	return has_word(buf_text(&text), word);
}

static void add_word(char *list, size_t size, const char *word)
{
	size_t used = strlen(list);

	(void)snprintf(list + used, size - used, "%s%s", used == 0 ? "" : ", ", word);
}

/* The needed controllers that are not there; "" when all are. */
static void missing_v1(const struct mounts *m, char *out, size_t size)
{
	out[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(needed_v1); i++)
		if (m->ranks[needed_v1[i]] < RANK_PART)
			add_word(out, size, tree_names[needed_v1[i]]);
}

static void missing_v2(const struct mounts *m, char *out, size_t size)
{
	scope_close int dir = -1;

	out[0] = '\0';
	if (m->ranks[CG_UNIFIED] >= RANK_PART)
		dir = open(m->g->mounts[CG_UNIFIED], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_LEN(needed_v2); i++)
		if (dir < 0 || !lists(dir, "cgroup.controllers", needed_v2[i]))
			add_word(out, size, needed_v2[i]);
}

static int find_mode(struct mounts *m, struct err *e)
{
	char v1[64];
	char v2[64];
	bool read_only = false;

	for (enum cg_tree tree = 0; tree < CG__MAX; tree++)
		read_only |= m->ranks[tree] == RANK_READ_ONLY;
	missing_v1(m, v1, sizeof(v1));
	missing_v2(m, v2, sizeof(v2));
	if (v1[0] == '\0')
		m->g->mode = m->ranks[CG_UNIFIED] >= RANK_PART ? BOX_MODE_HYBRID : BOX_MODE_V1;
	else if (v2[0] == '\0')
		m->g->mode = BOX_MODE_V2;
	else
		return err_set(e, ERR_UNAVAILABLE, 0,
			       "no control groups that limit boxes: cgroup v1 lacks %s; cgroup v2 "
			       "lacks %s%s",
			       v1, v2, read_only ? " (some are mounted read-only)" : "");
	return 0;
}

int cgroups_probe_text(struct cgroups *g, const char *mountinfo, struct err *e)
{
	struct mounts m = {.g = g};
	scope_buf struct buf text = BUF_NONE;
	char *rest;

	memset(g, 0, sizeof(*g));
	for (int i = 0; i < CG__MAX; i++)
		g->roots[i] = -1;
	buf_init(&text, TEXT_BYTES);
	buf_add_str(&text, mountinfo);
	if (!buf_ok(&text))
		return err_set(e, buf_error(&text), 0, "the list of mounts");
	rest = text.data;
	while (rest != NULL && *rest != '\0') {
		char *line = strsep(&rest, "\n");

		take_mount(&m, line, rest);
	}
	if (find_mode(&m, e) != 0)
		return -1;
	/* hierarchies that cannot be used, or that this mode does not use */
	for (enum cg_tree tree = 0; tree < CG__MAX; tree++)
		if (m.ranks[tree] < RANK_PART || (g->mode == BOX_MODE_V2 && tree != CG_UNIFIED) ||
		    (g->mode != BOX_MODE_V1 && tree == CG_FREEZER))
			g->mounts[tree][0] = '\0';
	/* v1 controllers mounted together are one hierarchy */
	for (enum cg_tree a = 1; a < CG_UNIFIED; a++)
		for (enum cg_tree b = 0; b < a; b++)
			if (str_equal(g->mounts[a], g->mounts[b]) && g->mounts[a][0] != '\0')
				(void)!str_copy(g->mounts[a], sizeof(g->mounts[a]), "=");
	return 0;
}

int cgroups_probe(struct cgroups *g, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, TEXT_BYTES);
	if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &text, e) != 0)
		return -1;
	return cgroups_probe_text(g, buf_text(&text), e);
}

/* --- sweeping ------------------------------------------------------------------------------- */

void cgroup_kill_members(int dir)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	char *rest;

	buf_init(&text, TEXT_BYTES);
	if (fd_read_file(dir, "cgroup.procs", &text, &e) != 0 || text.len == 0)
		return;
	rest = text.data;
	while (rest != NULL && *rest != '\0') {
		uint64_t pid;

		err_clear(&e);
		if (num_u64("pid", strsep(&rest, "\n"), 2, INT32_MAX, &pid, &e) == 0)
			(void)kill((pid_t)pid, SIGKILL);
	}
}

/* With everything below, where the kernel can do that. */
static void kill_tree(int dir)
{
	struct err e = ERR_INIT;

	(void)fd_write_value(dir, "cgroup.kill", "1", &e);
	cgroup_kill_members(dir);
}

/* The slot of a group's name, when it is kept. */
static bool is_kept(const char *name, const bool *keep)
{
	struct err ignored = ERR_INIT;
	uint64_t slot;

	return keep != NULL && name[0] == 's' &&
	       num_u64("slot", name + 1, 0, BOX_MAX_SLOTS - 1, &slot, &ignored) == 0 && keep[slot];
}

/* Removes the directories below dir (two levels are all that we make); true when none is left but
 * the kept ones. */
static bool remove_children(int dir, const bool *keep)
{
	scope_close int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct dirent *entry;
	bool left = false;
	DIR *list;

	if (copy < 0)
		return false;
	list = fdopendir(copy);
	if (list == NULL)
		return false;
	copy = -1; /* the list's */
	while ((entry = readdir(list)) != NULL) {
		scope_close int child = -1;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
		    is_kept(entry->d_name, keep))
			continue;
		child = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (child >= 0) {
			struct err e = ERR_INIT;

			(void)fd_write_value(child, "freezer.state", "THAWED", &e);
			kill_tree(child);
		}
		if (unlinkat(dir, entry->d_name, AT_REMOVEDIR) != 0 && errno != ENOENT)
			left = true;
	}
	(void)closedir(list);
	return !left;
}

static int sweep_tree(const char *mount, const char *name, const bool *keep, struct err *e)
{
	int64_t until = clock_monotonic_us() + SWEEP_US;
	char path[400];

	(void)snprintf(path, sizeof(path), "%s/%s", mount, name);
	for (;;) {
		scope_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (dir < 0)
			return errno == ENOENT ? 0 : err_set(e, ERR_IO, errno, "open %s", path);
		if (keep == NULL)
			kill_tree(dir);
		else
			cgroup_kill_members(dir);
		if (remove_children(dir, keep) && (keep != NULL || rmdir(path) == 0))
			return 0;
		if (clock_monotonic_us() > until)
			return err_set(e, ERR_TIMEOUT, errno, "cannot remove %s", path);
		clock_sleep_us(SWEEP_PAUSE_US);
	}
}

int cgroups_sweep(const struct cgroups *g, const bool keep[BOX_MAX_SLOTS], struct err *e)
{
	int result = 0;
	bool any = false;

	for (unsigned int i = 0; keep != NULL && i < BOX_MAX_SLOTS; i++)
		any |= keep[i];
	if (!any)
		keep = NULL;

	/* the v2 tree first: its kill ends everything at once */
	for (int tree = CG__MAX - 1; tree >= 0; tree--)
		if (g->mounts[tree][0] == '/' && sweep_tree(g->mounts[tree], g->name, keep, e) != 0)
			result = -1;
	return result;
}

bool cgroups_has_member(const struct cgroups *g, const char *instance, unsigned int slot, pid_t pid)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	enum cg_tree tree = g->mode == BOX_MODE_V1 ? CG_PIDS : CG_UNIFIED;
	char path[400];
	char *rest;

	/* a controller that shares the hierarchy of an earlier one is mounted where that one is */
	if (g->mounts[tree][0] != '/')
		tree = CG_MEMORY;
	(void)snprintf(path, sizeof(path), "%s/cordon-%s/s%u/cgroup.procs", g->mounts[tree],
		       instance, slot);
	buf_init(&text, TEXT_BYTES);
	if (fd_read_file(AT_FDCWD, path, &text, &e) != 0 || text.len == 0)
		return false;
	rest = text.data;
	while (rest != NULL && *rest != '\0') {
		uint64_t member;

		err_clear(&e);
		if (num_u64("pid", strsep(&rest, "\n"), 1, INT32_MAX, &member, &e) == 0 &&
		    (pid_t)member == pid)
			return true;
	}
	return false;
}

/* --- the instance's groups ------------------------------------------------------------------ */

static int host_memory(uint64_t *out_bytes, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;
	const char *found;
	char digits[32];
	size_t length;
	uint64_t kib;

	buf_init(&text, TEXT_BYTES);
	if (fd_read_file(AT_FDCWD, "/proc/meminfo", &text, e) != 0)
		return -1;
	found = strstr(buf_text(&text), "MemTotal:");
	if (found == NULL)
		return err_set(e, ERR_INTERNAL, 0, "no MemTotal in /proc/meminfo");
	found += strlen("MemTotal:");
	found += strspn(found, " ");
	length = strspn(found, "0123456789");
	if (length >= sizeof(digits))
		return err_set(e, ERR_INTERNAL, 0, "MemTotal is no number");
	memcpy(digits, found, length);
	digits[length] = '\0';
	if (num_u64("MemTotal", digits, 1, UINT64_MAX >> 10, &kib, e) != 0)
		return -1;
	*out_bytes = kib << 10;
	return 0;
}

static int copy_value(int from, int to, const char *name, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, TEXT_BYTES);
	if (fd_read_file(from, name, &text, e) != 0)
		return -1;
	return fd_write_value(to, name, buf_text(&text), e);
}

int cpuset_prepare(int parent, int dir, struct err *e)
{
	if (copy_value(parent, dir, "cpuset.mems", e) != 0 ||
	    copy_value(parent, dir, "cpuset.cpus", e) != 0)
		return -1;
	return fd_write_value(dir, "cpuset.sched_load_balance", "0", e);
}

/* The number at *text, which is moved behind it; CG_MAX_CPUS when it is larger or none. */
static unsigned int take_cpu(const char **text)
{
	unsigned int value = 0;

	if (**text < '0' || **text > '9')
		return CG_MAX_CPUS;
	for (; **text >= '0' && **text <= '9'; (*text)++)
		if (value < CG_MAX_CPUS)
			value = value * 10 + (unsigned int)(**text - '0');
	return value < CG_MAX_CPUS ? value : CG_MAX_CPUS;
}

/* "0-3,8": the numbers, each once and rising as the kernel writes them; false for anything else. */
static bool parse_cpus(struct cgroups *g, const char *text)
{
	for (;;) {
		unsigned int first = take_cpu(&text);
		unsigned int last = first;

		if (*text == '-') {
			text++;
			last = take_cpu(&text);
		}
		if (first == CG_MAX_CPUS || last == CG_MAX_CPUS)
			return false;
		for (unsigned int cpu = first; cpu <= last && g->cpu_count < CG_MAX_CPUS; cpu++)
			g->cpus[g->cpu_count++] = (uint16_t)cpu;
		if (*text != ',')
			return *text == '\n' || *text == '\0';
		text++;
	}
}

/* The instance's cpuset, and which processors there are. A host where that does not work is served
 * without cpusets. */
static void open_cpuset(struct cgroups *g)
{
	bool v2 = g->mode == BOX_MODE_V2;
	int *root = &g->roots[v2 ? CG_UNIFIED : CG_CPUSET];
	scope_buf struct buf text = BUF_NONE;
	scope_close int parent = -1;
	struct err e = ERR_INIT;

	g->cpu_count = 0;
	if (*root < 0)
		return;
	buf_init(&text, TEXT_BYTES);
	if (v2) {
		if (fd_read_file(*root, "cpuset.cpus.effective", &text, &e) != 0 ||
		    !parse_cpus(g, buf_text(&text)))
			g->cpu_count = 0;
		return;
	}
	parent = open(g->mounts[CG_CPUSET], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0 || cpuset_prepare(parent, *root, &e) != 0 ||
	    fd_read_file(*root, "cpuset.cpus", &text, &e) != 0 || !parse_cpus(g, buf_text(&text))) {
		g->cpu_count = 0;
		fd_close_at(root);
	}
}

/* A host whose disks have no weights needs no group for them. */
static void open_weights(struct cgroups *g)
{
	char path[400];

	if (g->roots[CG_BLKIO] < 0 || faccessat(g->roots[CG_BLKIO], "blkio.weight", F_OK, 0) == 0 ||
	    faccessat(g->roots[CG_BLKIO], "blkio.bfq.weight", F_OK, 0) == 0)
		return;
	fd_close_at(&g->roots[CG_BLKIO]);
	(void)snprintf(path, sizeof(path), "%s/%s", g->mounts[CG_BLKIO], g->name);
	(void)rmdir(path);
}

bool cgroup_is_there(int dir)
{
	return faccessat(dir, "cgroup.procs", F_OK, 0) == 0;
}

static int open_root(struct cgroups *g, enum cg_tree tree, struct err *e)
{
	char path[400];
	int dir;

	if (g->mounts[tree][0] != '/')
		return 0;
	(void)snprintf(path, sizeof(path), "%s/%s", g->mounts[tree], g->name);
	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "mkdir %s", path);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(e, ERR_IO, errno, "open %s", path);
	/* a failure keeps the old one: a slot must never do without the limits of a tree */
	fd_close_at(&g->roots[tree]);
	g->roots[tree] = dir;
	return 0;
}

static int limit_memory(const struct cgroups *g, struct err *e)
{
	uint64_t total = 0;
	char text[32];
	uint64_t reserve = g->host_reserve_mb << 20;

	if (host_memory(&total, e) != 0)
		return -1;
	total = total > reserve + MIN_MEMORY ? total - reserve : MIN_MEMORY;
	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)total);
	if (g->mode == BOX_MODE_V2)
		return fd_write_value(g->roots[CG_UNIFIED], "memory.max", text, e);
	return fd_write_value(g->roots[CG_MEMORY], "memory.limit_in_bytes", text, e);
}

static int delegate_one(int dir, const char *name, struct err *e)
{
	char text[16];

	/* what is delegated already may be another's to write */
	if (lists(dir, "cgroup.subtree_control", name))
		return 0;
	(void)snprintf(text, sizeof(text), "+%s", name);
	return fd_write_value(dir, "cgroup.subtree_control", text, e);
}

/* Gives the groups below dir the controllers of v2. */
static int delegate(int dir, const char *path, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(needed_v2); i++)
		if (delegate_one(dir, needed_v2[i], e) != 0)
			return e->sys == EBUSY
				   ? err_wrap(e,
					      "processes live in the group %s itself, so that "
					      "groups in it get no controllers",
					      path)
				   : err_wrap(e, "%s", path);
	for (size_t i = 0; i < ARRAY_LEN(wished_v2); i++) {
		struct err ignored = ERR_INIT;

		if (lists(dir, "cgroup.controllers", wished_v2[i]))
			(void)delegate_one(dir, wished_v2[i], &ignored);
	}
	return 0;
}

static int delegate_top(const struct cgroups *g, struct err *e)
{
	scope_close int dir = -1;

	if (g->mode != BOX_MODE_V2)
		return 0;
	dir = open(g->mounts[CG_UNIFIED], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(e, ERR_IO, errno, "open %s", g->mounts[CG_UNIFIED]);
	return delegate(dir, g->mounts[CG_UNIFIED], e);
}

/* --- a slice of systemd's --------------------------------------------------------------------- */

static bool slice_ok(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789:_.";
	size_t length = strlen(name);

	return length > strlen(".slice") && length <= 64 && name[0] != '.' &&
	       strspn(name, allowed) == length && str_equal(name + length - 6, ".slice");
}

static int enter_slice(struct cgroups *g, enum cg_tree tree, const char *name, struct err *e)
{
	char *mount = g->mounts[tree];
	size_t length = strlen(mount);
	scope_close int parent = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scope_close int dir = -1;
	struct err ignored = ERR_INIT;

	if (parent < 0)
		return err_set(e, ERR_IO, errno, "open %s", mount);
	if (mkdirat(parent, name, 0755) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "mkdir %s in %s", name, mount);
	dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(e, ERR_IO, errno, "open %s in %s", name, mount);
	/* without it boxes have no cpusets, as on hosts that have none */
	if (tree == CG_CPUSET)
		(void)cpuset_prepare(parent, dir, &ignored);
	if (length + strlen(name) + 2 > sizeof(g->mounts[tree]))
		return err_set(e, ERR_LIMIT, 0, "the path of %s is too long", name);
	(void)snprintf(mount + length, sizeof(g->mounts[tree]) - length, "/%s", name);
	return 0;
}

int cgroups_enter_slice(struct cgroups *g, const char *name, struct err *e)
{
	if (!slice_ok(name))
		return err_set(e, ERR_INVALID, 0,
			       "a slice is one name of at most 64 of A-Za-z0-9:_. that ends with "
			       ".slice, without a dash (a dash would nest it)");
	if (delegate_top(g, e) != 0)
		return -1;
	for (enum cg_tree tree = 0; tree < CG__MAX; tree++)
		if (g->mounts[tree][0] == '/' && enter_slice(g, tree, name, e) != 0)
			return -1;
	return 0;
}

/* What the instance's groups need before those of slots. */
static int prepare_roots(struct cgroups *g, struct err *e)
{
	open_weights(g);
	open_cpuset(g);
	if (g->mode == BOX_MODE_V2 && delegate(g->roots[CG_UNIFIED], g->name, e) != 0)
		return -1;
	return limit_memory(g, e);
}

int cgroups_open(struct cgroups *g, const struct cgroups_wish *wish, const bool keep[BOX_MAX_SLOTS],
		 struct err *e)
{
	int used = snprintf(g->name, sizeof(g->name), "cordon-%s", wish->instance);

	g->host_reserve_mb = wish->host_reserve_mb;
	g->io_weight = wish->io_weight;
	if (used < 0 || (size_t)used >= sizeof(g->name))
		return err_set(e, ERR_INVALID, 0, "the instance's name is too long");
	if (cgroups_sweep(g, keep, e) != 0 || delegate_top(g, e) != 0)
		return -1;
	for (enum cg_tree tree = 0; tree < CG__MAX; tree++)
		if (open_root(g, tree, e) != 0)
			return -1;
	return prepare_roots(g, e);
}

int cgroups_renew(struct cgroups *g, struct err *e)
{
	bool any = false;

	for (enum cg_tree tree = 0; tree < CG__MAX; tree++) {
		if (g->roots[tree] < 0 || cgroup_is_there(g->roots[tree]))
			continue;
		if (open_root(g, tree, e) != 0)
			return -1;
		any = true;
	}
	return any ? prepare_roots(g, e) : 0;
}

void cgroups_close(struct cgroups *g)
{
	for (int i = 0; i < CG__MAX; i++)
		fd_close_at(&g->roots[i]);
}
