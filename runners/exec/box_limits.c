#include "runners/exec/box_limits.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define FILE_BYTES (64U << 10)
#define MIB(n)     ((n) << 20)

static const struct key {
	const char *name;
	size_t offset;
	uint64_t standard;
	uint64_t lo;
	uint64_t hi;
} keys[] = {
    {"uid_base", offsetof(struct box_config, uid_base), 0x10000000, 0x10000, 0xF0000000},
    {"slots", offsetof(struct box_config, slots), 64, 1, BOX_MAX_SLOTS},
    {"host_reserve_mb", offsetof(struct box_config, host_reserve_mb), 2048, 0, 1U << 20},
    {"usr_local", offsetof(struct box_config, usr_local), 0, 0, 1},
    {"memory_max_mb", offsetof(struct box_config, memory_max_mb), 16384, 16, 1U << 20},
    {"pids_max", offsetof(struct box_config, pids_max), 4096, 1, 65536},
    {"cpu_max_millis", offsetof(struct box_config, cpu_max_millis), 64000, 10, 1024000},
    {"workspace_max_mb", offsetof(struct box_config, workspace_max_mb), 16384, 1, 1U << 20},
    {"workspace_inodes_max", offsetof(struct box_config, workspace_inodes_max), 1000000, 16,
     10000000},
    {"tmp_max_mb", offsetof(struct box_config, tmp_max_mb), 4096, 1, 1U << 20},
    {"disk_max_mb", offsetof(struct box_config, disk_max_mb), 65536, 1, 1U << 24},
    {"pool", offsetof(struct box_config, pool), 4, 0, 64},
    {"pool_fresh", offsetof(struct box_config, pool_fresh), 1, 0, 64},
    {"io_weight", offsetof(struct box_config, io_weight), 100, 10, 1000},
    {"netns_ring", offsetof(struct box_config, netns_ring), 1, 0, 1},
};

static const struct key *find_key(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (str_equal(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static uint64_t *field(struct box_config *c, const struct key *key)
{
	return (uint64_t *)(void *)((char *)c + key->offset);
}

/* line: NUL terminated, changed. seen: one flag per key. */
static int take_line(struct box_config *c, char *line, bool *seen, struct err *e)
{
	char *equals;
	const struct key *key;

	if (line[0] == '\0' || line[0] == '#')
		return 0;
	equals = strchr(line, '=');
	if (equals == NULL)
		return err_set(e, ERR_INVALID, 0, "not key=number: %s", line);
	*equals = '\0';
	key = find_key(line);
	if (key == NULL)
		return err_set(e, ERR_INVALID, 0, "unknown key: %s", line);
	if (seen[key - keys])
		return err_set(e, ERR_INVALID, 0, "repeated key: %s", line);
	seen[key - keys] = true;
	return num_u64(key->name, equals + 1, key->lo, key->hi, field(c, key), e);
}

static int check_owner(int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return err_set(e, ERR_IO, errno, "stat");
	if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022) != 0)
		return err_set(e, ERR_DENIED, 0,
			       "must be a regular file of root that nobody else can write");
	return 0;
}

static int read_all(const char *path, struct buf *out, struct err *e)
{
	scope_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t got;

	if (fd < 0)
		return err_set(e, ERR_IO, errno, "open");
	if (check_owner(fd, e) != 0 || buf_reserve(out, FILE_BYTES) != 0)
		return err_set(e, ERR_NOMEM, 0, "no memory");
	got = read(fd, out->data, FILE_BYTES);
	if (got < 0 || got == (ssize_t)FILE_BYTES)
		return err_set(e, ERR_INVALID, got < 0 ? errno : 0, "cannot be read or too long");
	out->len = (size_t)got;
	out->data[got] = '\0';
	if (strlen(out->data) != out->len)
		return err_set(e, ERR_INVALID, 0, "holds a NUL byte");
	return 0;
}

int box_config_load(const char *path, struct box_config *out, struct err *e)
{
	struct buf text scope_buf;
	bool seen[ARRAY_LEN(keys)] = {false};
	struct box_config c;
	char *rest;
	int number = 0;

	buf_init(&text, FILE_BYTES);
	memset(&c, 0, sizeof(c));
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		*field(&c, &keys[i]) = keys[i].standard;
	if (read_all(path, &text, e) != 0)
		return err_wrap(e, "%s", path);
	rest = text.data;
	while (rest != NULL && *rest != '\0') {
		char *line = strsep(&rest, "\n");

		number++;
		if (take_line(&c, line, seen, e) != 0)
			return err_wrap(e, "%s:%d", path, number);
	}
	if (c.uid_base % 65536 != 0 || c.uid_base + c.slots * 65536 > UINT32_MAX - 65536)
		return err_set(e, ERR_INVALID, 0,
			       "%s: uid_base must be a multiple of 65536 with room for all slots",
			       path);
	*out = c;
	return 0;
}

void box_config_ceilings(const struct box_config *c, struct box_limits *out)
{
	memset(out, 0, sizeof(*out));
	out->memory_bytes = MIB(c->memory_max_mb);
	out->workspace_bytes = MIB(c->workspace_max_mb);
	out->workspace_inodes = c->workspace_inodes_max;
	out->tmp_bytes = MIB(c->tmp_max_mb);
	out->pids = (uint32_t)c->pids_max;
	out->cpu_millis = (uint32_t)c->cpu_max_millis;
}

static int within(const char *name, uint64_t value, uint64_t lo, uint64_t hi, struct err *e)
{
	if (value < lo || value > hi)
		return err_set(e, ERR_INVALID, 0, "%s must be %llu to %llu, not %llu", name,
			       (unsigned long long)lo, (unsigned long long)hi,
			       (unsigned long long)value);
	return 0;
}

int box_limits_check(const struct box_limits *asked, const struct box_limits *ceilings,
		     struct err *e)
{
	if (within("memory_bytes", asked->memory_bytes, MIB(8U), ceilings->memory_bytes, e) != 0 ||
	    within("workspace_bytes", asked->workspace_bytes, 4096, ceilings->workspace_bytes, e) !=
		0 ||
	    within("workspace_inodes", asked->workspace_inodes, 2, ceilings->workspace_inodes, e) !=
		0 ||
	    within("tmp_bytes", asked->tmp_bytes, 4096, ceilings->tmp_bytes, e) != 0 ||
	    within("pids", asked->pids, 1, ceilings->pids, e) != 0)
		return -1;
	if (asked->cpu_millis != 0)
		return within("cpu_millis", asked->cpu_millis, 10, ceilings->cpu_millis, e);
	return 0;
}

void box_config_help(void)
{
	(void)printf("keys of the limits file (key=number):\n");
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		(void)printf("  %-22s default %llu, %llu to %llu\n", keys[i].name,
			     (unsigned long long)keys[i].standard, (unsigned long long)keys[i].lo,
			     (unsigned long long)keys[i].hi);
}
