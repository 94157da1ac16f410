/*
 * Landlock: a second fence around the files of a command, on top of the mounts. Where the mounts
 * are as they should be it refuses next to nothing; it is there for the day when one is not.
 *
 * Read and execute: /usr /etc /bin /sbin /lib* /proc /dev. All: /workspace /tmp /dev/shm /var/tmp.
 * Read and write: the device nodes and terminals. Names of directories can be listed everywhere
 * (`ls /`): the root is the box's own template. Needs ABI 2 (Linux 5.19): with ABI 1 every rename
 * between directories fails, which breaks more programs than it protects.
 *
 * No scopes (ABI 6): each command is a domain of its own, and commands of one box may signal and
 * talk to each other; other boxes are out of reach by their namespaces.
 */
#include "runners/init/server.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>

#define ABI_LEAST 2
#define HIGH_FD   100 /* above the numbers that commands get */

/* newer than the headers of Debian 12 */
#define FS_TRUNCATE  (UINT64_C(1) << 14) /* ABI 3 */
#define FS_IOCTL_DEV (UINT64_C(1) << 15) /* ABI 5 */

#define ALL_OF_ABI_2 ((UINT64_C(1) << 14) - 1)
#define READ_AND_RUN \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define USE_DEVICE \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV)

static const struct {
	const char *path;
	uint64_t rights;
} rules[] = {
    {"/", LANDLOCK_ACCESS_FS_READ_DIR},
    {"/usr", READ_AND_RUN},
    {"/etc", READ_AND_RUN},
    {"/bin", READ_AND_RUN},
    {"/sbin", READ_AND_RUN},
    {"/lib", READ_AND_RUN},
    {"/lib32", READ_AND_RUN},
    {"/lib64", READ_AND_RUN},
    {"/libx32", READ_AND_RUN},
    {"/proc", READ_AND_RUN},
    {"/dev", READ_AND_RUN},
    {"/dev/null", USE_DEVICE},
    {"/dev/zero", USE_DEVICE},
    {"/dev/full", USE_DEVICE},
    {"/dev/random", USE_DEVICE},
    {"/dev/urandom", USE_DEVICE},
    {"/dev/tty", USE_DEVICE},
    {"/dev/pts", USE_DEVICE},
    {"/workspace", UINT64_MAX},
    {"/tmp", UINT64_MAX},
    {"/dev/shm", UINT64_MAX},
    {"/var/tmp", UINT64_MAX},
};

/* A link of a merged /usr, or /var/tmp: the rule of its target is in the list. */
static bool is_link(const char *path)
{
	char target[8];

	return readlink(path, target, sizeof(target)) >= 0;
}

static int add_rule(int ruleset, const char *path, uint64_t rights)
{
	scope_close int fd = -1;
	struct landlock_path_beneath_attr attr = {.allowed_access = rights};

	if (is_link(path))
		return 0;
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	attr.parent_fd = fd;
	return (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0);
}

static int make_ruleset(int *out_fd)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct landlock_ruleset_attr attr = {.handled_access_fs = ALL_OF_ABI_2};
	scope_close int ruleset = -1;

	*out_fd = -1;
	if (abi < ABI_LEAST)
		return 0;
	if (abi >= 3)
		attr.handled_access_fs |= FS_TRUNCATE;
	if (abi >= 5)
		attr.handled_access_fs |= FS_IOCTL_DEV;
	ruleset =
	    (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);
	if (ruleset < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		if (add_rule(ruleset, rules[i].path, rules[i].rights & attr.handled_access_fs) != 0)
			return -1;
	*out_fd = fd_steal(&ruleset);
	return 0;
}

int landlock_use(void)
{
	scope_close int ruleset = -1;
	int kept;

	if (make_ruleset(&ruleset) != 0)
		return -1;
	if (ruleset < 0)
		return 0;
	kept = fcntl(ruleset, F_DUPFD_CLOEXEC, HIGH_FD);
	if (kept < 0)
		return -1;
	command_use_ruleset(kept);
	return 0;
}
