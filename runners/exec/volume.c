/* Image files of workspaces, loop devices, mounts. Runs in keepers only: it may block. */
#include "runners/exec/workspace.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEMPLATES      ".templates"
#define TEMPLATES_MAX  64
#define BLOCK_BYTES    4096U
#define INODE_BYTES    256U
#define JOURNAL_MB     4U
#define GROUP_BYTES    (128ULL << 20) /* one block group: descriptors and bitmaps per group */
#define GROUP_OVERHEAD (16U * BLOCK_BYTES)
#define LOOP_TRIES     16
#define LOOP_MAX       4096
#define MKE2FS         "/usr/sbin/mke2fs"
#define PATH_BYTES     160
#define COPY_PREFIX    ".copy-"
#define UNMOUNT_TRIES  1500U
#define UNMOUNT_GAP_US 2000

/* The image is larger than what it holds: inode table, journal, descriptors. */
static uint64_t image_bytes(uint64_t bytes, uint64_t inodes)
{
	uint64_t all = bytes + inodes * INODE_BYTES + ((uint64_t)JOURNAL_MB << 20) +
		       (bytes / GROUP_BYTES + 1) * GROUP_OVERHEAD + (256U << 10);

	return (all + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

/* --- templates ------------------------------------------------------------------------------- */

static int run_mke2fs(int file, uint64_t inodes, struct err *e)
{
	char path[64];
	char count[32];
	char journal[32];
	char owner[64];
	const char *const words[] = {"mke2fs", "-q", "-F",    "-t", "ext4",          "-b",
				     "4096",   "-I", "256",   "-N", count,           "-m",
				     "0",      "-J", journal, "-O", "^resize_inode", "-E",
				     owner,    path, NULL};
	const char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
	struct proc_options options = PROC_OPTIONS_INIT;
	scope_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int status;
	pid_t pid;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	(void)snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes);
	(void)snprintf(journal, sizeof(journal), "size=%u", JOURNAL_MB);
	(void)snprintf(owner, sizeof(owner),
		       "lazy_itable_init=0,lazy_journal_init=0,root_owner=%u:%u", WORKSPACE_OWNER,
		       WORKSPACE_OWNER);
	options.program = MKE2FS;
	options.argv = (char *const *)(uintptr_t)words;
	options.environment = (char *const *)(uintptr_t)environment;
	options.stdout_fd = null;
	options.stderr_fd = null;
	options.keep_fds = &file;
	options.keep_count = 1;
	options.die_with_parent = true;
	if (proc_spawn(&options, &pid, e) != 0 || proc_wait(pid, &status, e) != 0)
		return err_wrap(e, "mke2fs");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, ERR_IO, 0, "mke2fs ended with status %d", status);
	return 0;
}

/* A file without a name that holds an empty file system. */
static int make_empty(int folder, uint64_t bytes, uint64_t inodes, int *out_fd, struct err *e)
{
	scope_close int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)image_bytes(bytes, inodes)) != 0)
		return err_set(e, ERR_IO, errno, "a new image");
	if (run_mke2fs(fd, inodes, e) != 0)
		return -1;
	*out_fd = fd_steal(&fd);
	return 0;
}

static int link_as(int fd, int folder, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW);
}

static unsigned int count_templates(int folder)
{
	scope_close int fd = openat(folder, TEMPLATES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	unsigned int count = 0;

	if (list == NULL)
		return TEMPLATES_MAX;
	(void)fd_steal(&fd);
	while (readdir(list) != NULL)
		count++;
	(void)closedir(list);
	return count;
}

/* The template of that size, made at its first use. */
static int open_template(int folder, uint64_t bytes, uint64_t inodes, int *out_fd, struct err *e)
{
	scope_close int fd = -1;
	char name[PATH_BYTES];

	if (mkdirat(folder, TEMPLATES, 0700) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "the folder of templates");
	(void)snprintf(name, sizeof(name), TEMPLATES "/1-%llu-%llu", (unsigned long long)bytes,
		       (unsigned long long)inodes);
	fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		if (errno != ENOENT)
			return err_set(e, ERR_IO, errno, "a template");
		if (make_empty(folder, bytes, inodes, &fd, e) != 0)
			return -1;
		/* kept for the next one of that size, but not for ever */
		if (count_templates(folder) < TEMPLATES_MAX && link_as(fd, folder, name) != 0 &&
		    errno != EEXIST)
			return err_set(e, ERR_IO, errno, "a template");
	}
	*out_fd = fd_steal(&fd);
	return 0;
}

/* --- image files ----------------------------------------------------------------------------- */

static int copy_range(int from, int to, off_t at, off_t end, struct err *e)
{
	off_t out = at;

	while (at < end) {
		ssize_t done = copy_file_range(from, &at, to, &out, (size_t)(end - at), 0);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return err_set(e, ERR_IO, done < 0 ? errno : EIO, "copy of an image");
	}
	return 0;
}

/* All data of an image, its holes kept; a clone where the file system can. */
static int copy_sparse(int from, int to, struct err *e)
{
	struct stat st;
	off_t at = 0;

	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (fstat(from, &st) != 0 || ftruncate(to, st.st_size) != 0)
		return err_set(e, ERR_IO, errno, "size of an image");
	for (;;) {
		off_t data = lseek(from, at, SEEK_DATA);
		off_t hole;

		if (data < 0 && errno == ENXIO)
			return 0;
		hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return err_set(e, ERR_IO, errno, "holes of an image");
		if (copy_range(from, to, data, hole, e) != 0)
			return -1;
		at = hole;
	}
}

int volume_make(int folder, const char *id, uint64_t bytes, uint64_t inodes, struct err *e)
{
	scope_close int from = -1;
	scope_close int fd = -1;
	struct stat st;

	if (fstatat(folder, id, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return err_set(e, ERR_CONFLICT, 0, "there is such a workspace");
	if (open_template(folder, bytes, inodes, &from, e) != 0)
		return -1;
	fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, ERR_IO, errno, "a new image");
	if (copy_sparse(from, fd, e) != 0)
		return -1;
	if (link_as(fd, folder, id) != 0)
		return err_set(e, errno == EEXIST ? ERR_CONFLICT : ERR_IO, errno,
			       "the name of a new image");
	return 0;
}

static int open_image(int folder, const char *id, struct err *e)
{
	int fd = openat(folder, id, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
			       errno == ENOENT ? "no such workspace" : "open an image");
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		(void)close(fd);
		return err_set(e, ERR_IO, 0, "an image is no regular file");
	}
	return fd;
}

int volume_delete(int folder, const char *id, struct err *e)
{
	if (unlinkat(folder, id, 0) != 0)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
			       errno == ENOENT ? "no such workspace" : "remove an image");
	return 0;
}

int volume_delete_copies(int folder, const char *id, struct err *e)
{
	scope_close int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	size_t length = strlen(id);
	const struct dirent *entry;
	int result = 0;

	if (list == NULL)
		return err_set(e, ERR_IO, errno, "list the workspaces");
	(void)fd_steal(&fd);
	while (result == 0 && (entry = readdir(list)) != NULL)
		if (strncmp(entry->d_name, id, length) == 0 && entry->d_name[length] == '.' &&
		    unlinkat(folder, entry->d_name, 0) != 0 && errno != ENOENT)
			result = err_set(e, ERR_IO, errno, "remove a copy");
	(void)closedir(list);
	return result;
}

int volume_info(int folder, const char *id, uint64_t *out_bytes, uint64_t *out_used, struct err *e)
{
	scope_close int fd = open_image(folder, id, e);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) != 0)
		return err_set(e, ERR_IO, errno, "stat of an image");
	*out_bytes = (uint64_t)st.st_size;
	*out_used = (uint64_t)st.st_blocks * 512;
	return 0;
}

/* --- loop devices ---------------------------------------------------------------------------- */

/* Opens /dev/loop<number>; where /dev does not show it, through a node of our own. */
static int open_loop(int folder, unsigned int number)
{
	char path[32];
	char name[32];
	int fd;

	(void)snprintf(path, sizeof(path), "/dev/loop%u", number);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 || errno != ENOENT)
		return fd;
	(void)snprintf(name, sizeof(name), ".loop-%ld", (long)getpid());
	(void)unlinkat(folder, name, 0);
	if (mknodat(folder, name, S_IFBLK | 0600, makedev(LOOP_MAJOR, number)) != 0)
		return -1;
	fd = openat(folder, name, O_RDWR | O_CLOEXEC);
	(void)unlinkat(folder, name, 0);
	return fd;
}

static bool loop_has(int loop, const struct stat *image)
{
	struct loop_info64 info;

	return ioctl(loop, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == image->st_ino &&
	       info.lo_device == image->st_dev;
}

/* The loop device that has this file, as the kernel lists them; -1: none. */
static int find_loop(int folder, const struct stat *image)
{
	for (unsigned int i = 0; i < LOOP_MAX; i++) {
		char path[64];
		int fd;

		(void)snprintf(path, sizeof(path), "/sys/block/loop%u", i);
		if (access(path, F_OK) != 0)
			break;
		(void)snprintf(path, sizeof(path), "/sys/block/loop%u/loop/backing_file", i);
		if (access(path, F_OK) != 0)
			continue; /* bound to nothing */
		fd = open_loop(folder, i);
		if (fd < 0)
			continue;
		if (loop_has(fd, image))
			return fd;
		(void)close(fd);
	}
	return -1;
}

static int bind_loop(int folder, int image, int *out_fd, struct err *e)
{
	struct loop_config config = {
	    .fd = (unsigned int)image,
	    .block_size = BLOCK_BYTES,
	    .info = {.lo_flags = LO_FLAGS_AUTOCLEAR},
	};
	scope_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control < 0)
		return err_set(e, ERR_UNAVAILABLE, errno,
			       "loop devices are not there (kernel module loop)");
	for (int i = 0; i < LOOP_TRIES; i++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		scope_close int loop = number < 0 ? -1 : open_loop(folder, (unsigned int)number);

		if (loop < 0)
			return err_set(e, ERR_IO, errno, "a free loop device");
		if (ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
			*out_fd = fd_steal(&loop);
			return 0;
		}
		if (errno != EBUSY) /* somebody else was quicker */
			return err_set(e, ERR_IO, errno, "bind a loop device");
	}
	return err_set(e, ERR_UNAVAILABLE, 0, "no free loop device");
}

static int mount_loop(int loop, int *out_mount, struct err *e)
{
	scope_close int fs = fsopen("ext4", FSOPEN_CLOEXEC);
	scope_close int mount = -1;
	char source[64];

	(void)snprintf(source, sizeof(source), "/proc/self/fd/%d", loop);
	if (fs < 0)
		return err_set(e, ERR_UNAVAILABLE, errno, "ext4");
	if (fsconfig(fs, FSCONFIG_SET_STRING, "source", source, 0) != 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "errors", "remount-ro", 0) != 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
		return err_set(e, ERR_IO, errno, "mount of a workspace");
	mount =
	    fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
	if (mount < 0)
		return err_set(e, ERR_IO, errno, "fsmount of a workspace");
	(void)unlinkat(mount, "lost+found", AT_REMOVEDIR);
	*out_mount = fd_steal(&mount);
	return 0;
}

int volume_mount(int folder, const char *id, int *out_mount, struct err *e)
{
	scope_close int image = open_image(folder, id, e);
	scope_close int loop = -1;
	struct stat st;

	if (image < 0)
		return -1;
	if (fstat(image, &st) != 0)
		return err_set(e, ERR_IO, errno, "stat of an image");
	loop = find_loop(folder, &st);
	if (loop < 0 && bind_loop(folder, image, &loop, e) != 0)
		return -1;
	/* the mount holds the device; when the last mount goes, the kernel frees it */
	return mount_loop(loop, out_mount, e);
}

/* --- copies ---------------------------------------------------------------------------------- */

/* Waits until no loop device has the file: what was in it is written back then. */
static int wait_unmounted(int folder, int image, struct err *e)
{
	struct stat st;

	if (fstat(image, &st) != 0)
		return err_set(e, ERR_IO, errno, "stat of an image");
	for (unsigned int i = 0; i < UNMOUNT_TRIES; i++) {
		scope_close int loop = find_loop(folder, &st);

		if (loop < 0)
			return 0;
		/* open, we would keep it bound ourselves */
		fd_close_at(&loop);
		clock_sleep_us(UNMOUNT_GAP_US);
	}
	return err_set(e, ERR_CONFLICT, 0, "the workspace is mounted");
}

static int wait_name_unmounted(int folder, const char *id, struct err *e)
{
	struct err missing = ERR_INIT;
	scope_close int image = open_image(folder, id, &missing);

	if (image >= 0)
		return wait_unmounted(folder, image, e);
	if (missing.code == ERR_NOT_FOUND)
		return 0;
	*e = missing;
	return -1;
}

int volume_copy(int folder, const char *source, const char *id, struct err *e)
{
	scope_close int from = open_image(folder, source, e);
	scope_close int to = -1;
	char name[PATH_BYTES];
	struct stat st;

	if (from < 0 || wait_unmounted(folder, from, e) != 0 ||
	    wait_name_unmounted(folder, id, e) != 0)
		return -1;
	(void)snprintf(name, sizeof(name), COPY_PREFIX "%s", id);
	if (unlinkat(folder, name, 0) != 0 && errno != ENOENT)
		return err_set(e, ERR_IO, errno, "remove an unfinished copy");
	to = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (to < 0)
		return err_set(e, ERR_IO, errno, "a new image");
	if (copy_sparse(from, to, e) == 0) {
		/* on disk before it has the name, and the name before anybody is told */
		if (fstat(from, &st) != 0 || ftruncate(to, st.st_size) != 0 || fdatasync(to) != 0 ||
		    renameat(folder, name, folder, id) != 0 || fsync(folder) != 0)
			(void)err_set(e, ERR_IO, errno, "keep a copy");
	}
	if (e->code == ERR_NONE)
		return 0;
	(void)unlinkat(folder, name, 0);
	return -1;
}

void volume_tidy(int folder)
{
	scope_close int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (list == NULL)
		return;
	(void)fd_steal(&fd);
	while ((entry = readdir(list)) != NULL)
		if (strncmp(entry->d_name, COPY_PREFIX, strlen(COPY_PREFIX)) == 0)
			(void)unlinkat(folder, entry->d_name, 0);
	(void)closedir(list);
}

void volume_trim(int mount)
{
	struct fstrim_range range = {.len = UINT64_MAX};

	(void)ioctl(mount, FITRIM, &range);
}
