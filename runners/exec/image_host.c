/*
 * The image `host`: a read-only view of this host's /usr with a minimal /etc, made once in a mount
 * namespace of the zygote's own. Runs in the child between fork and exec; see zygote.c.
 */
#include "runners/exec/image.h"

#include "runners/base/fdio.h"
#include "runners/base/ksys.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define COPY_MAX_BYTES   ((size_t)8 << 20)
#define COPY_MAX_DEPTH   6
#define TEMPLATE_OPTIONS "mode=0755,size=64m,nr_inodes=65536"

/* Taken from the host's /etc where they are there; nothing in them names this host's users. */
static const char *const etc_entries[] = {
    "alternatives",
    "ca-certificates.conf",
    "debian_version",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "magic",
    "magic.mime",
    "mime.types",
    "networks",
    "os-release",
    "perl",
    "protocols",
    "rpc",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "fonts",
};
static const char *const etc_prefixes[] = {"java-", "python"};

static const struct {
	const char *name;
	const char *text;
} etc_files[] = {
    {"passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
	       "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	       "user:x:1000:1000:user:/workspace:/bin/sh\n"},
    {"group", "root:x:0:\nnogroup:x:65534:\nuser:x:1000:\n"},
    {"hosts", "127.0.0.1 localhost box\n::1 localhost box\n"},
    {"hostname", "box\n"},
    {"nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
		      "networks: files\nprotocols: files\nservices: files\n"},
    {"resolv.conf", ""},
    {"shells", "/bin/sh\n/bin/bash\n"},
};

static const struct {
	const char *target;
	const char *name;
} root_links[] = {
    {"/tmp", "var/tmp"},
    {"/run", "var/run"},
    {"/proc/self/mounts", "etc/mtab"},
    {"/proc/self/fd", "dev/fd"},
    {"pts/ptmx", "dev/ptmx"},
    {"/proc/self/fd/0", "dev/stdin"},
    {"/proc/self/fd/1", "dev/stdout"},
    {"/proc/self/fd/2", "dev/stderr"},
};

static const char *const root_dirs[] = {
    "dev", "etc",     "etc/ssl", "home",      "proc",      "root", "run", "tmp", "usr",
    "var", "var/log", "var/lib", "var/cache", "workspace", "sys",  "opt", "mnt"};

/* Links of a merged /usr: made as the host has them. */
static const char *const merged_links[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

static const struct {
	const char *name;
	unsigned int minor;
	unsigned int major;
} devices[] = {
    {"null", 3, 1},   {"zero", 5, 1},    {"full", 7, 1},
    {"random", 8, 1}, {"urandom", 9, 1}, {"tty", 0, 5},
};

/* --- copying -------------------------------------------------------------------------------- */

static int copy_file(int from, const char *name, int to, const char *as, mode_t mode, struct err *e)
{
	struct buf text scope_buf;
	scope_close int out = -1;

	buf_init(&text, COPY_MAX_BYTES);
	if (fd_read_file(from, name, &text, e) != 0)
		return -1;
	out = openat(to, as, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, (mode & 0555U) | 0644U);
	if (out < 0)
		return err_set(e, ERR_IO, errno, "create %s", as);
	return fd_write_full(out, buf_text(&text), text.len, e);
}

static int copy_link(int from, const char *name, int to, const char *as, struct err *e)
{
	char target[4096];
	ssize_t length = readlinkat(from, name, target, sizeof(target) - 1);

	if (length < 0)
		return err_set(e, ERR_IO, errno, "readlink %s", name);
	target[length] = '\0';
	if (symlinkat(target, to, as) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "symlink %s", as);
	return 0;
}

static int copy_entry(int from, const char *name, int to, const char *as, int depth, struct err *e);

/* The names of a directory; NULL with an error set. */
static DIR *list_dir(int from, const char *name, struct err *e)
{
	scope_close int fd = openat(from, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (list == NULL)
		(void)err_set(e, ERR_IO, errno, "list %s", name);
	else
		(void)fd_steal(&fd);
	return list;
}

static int copy_dir(int from, const char *name, int to, const char *as, int depth, struct err *e)
{
	scope_close int target = -1;
	const struct dirent *entry;
	int result = 0;
	DIR *list;

	if (mkdirat(to, as, 0755) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "mkdir %s", as);
	target = openat(to, as, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (target < 0)
		return err_set(e, ERR_IO, errno, "open %s", as);
	list = list_dir(from, name, e);
	if (list == NULL)
		return -1;
	while (result == 0 && (entry = readdir(list)) != NULL)
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			result = copy_entry(dirfd(list), entry->d_name, target, entry->d_name,
					    depth + 1, e);
	(void)closedir(list);
	return result;
}

/* Copies a file, link or directory; what is not there, or is something else, is left out. Depth is
 * at most COPY_MAX_DEPTH. NOLINTNEXTLINE(misc-no-recursion) */
static int copy_entry(int from, const char *name, int to, const char *as, int depth, struct err *e)
{
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || depth > COPY_MAX_DEPTH)
		return 0;
	if (S_ISLNK(st.st_mode))
		return copy_link(from, name, to, as, e);
	if (S_ISREG(st.st_mode) && (st.st_mode & 0004) != 0)
		return copy_file(from, name, to, as, st.st_mode, e);
	if (S_ISDIR(st.st_mode) && (st.st_mode & 0005) != 0)
		return copy_dir(from, name, to, as, depth, e);
	return 0;
}

/* --- parts ---------------------------------------------------------------------------------- */

static int fill_etc(int root, struct err *e)
{
	scope_close int host = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scope_close int etc = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct dirent *entry;
	int result = 0;
	DIR *list;

	if (host < 0 || etc < 0)
		return err_set(e, ERR_IO, errno, "open etc");
	for (size_t i = 0; i < ARRAY_LEN(etc_entries); i++)
		if (copy_entry(host, etc_entries[i], etc, etc_entries[i], 0, e) != 0)
			return -1;
	list = list_dir(host, ".", e);
	if (list == NULL)
		return -1;
	while (result == 0 && (entry = readdir(list)) != NULL)
		for (size_t i = 0; i < ARRAY_LEN(etc_prefixes); i++)
			if (str_starts(entry->d_name, etc_prefixes[i]))
				result = copy_entry(host, entry->d_name, etc, entry->d_name, 0, e);
	(void)closedir(list);
	for (size_t i = 0; i < ARRAY_LEN(etc_files) && result == 0; i++)
		result = fd_replace_file(etc, etc_files[i].name, etc_files[i].text,
					 strlen(etc_files[i].text), 0644, e);
	return result;
}

static int fill_dev(int root, struct err *e)
{
	char name[64];

	for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
		(void)snprintf(name, sizeof(name), "dev/%s", devices[i].name);
		if (mknodat(root, name, S_IFCHR | 0666,
			    makedev(devices[i].major, devices[i].minor)) != 0)
			return err_set(e, ERR_IO, errno, "mknod %s", name);
	}
	if (mkdirat(root, "dev/shm", 0755) != 0 || mkdirat(root, "dev/pts", 0755) != 0)
		return err_set(e, ERR_IO, errno, "mkdir below dev");
	return 0;
}

static int make_links(int root, struct err *e)
{
	char target[256];
	char path[64];

	for (size_t i = 0; i < ARRAY_LEN(merged_links); i++) {
		ssize_t length;

		(void)snprintf(path, sizeof(path), "/%s", merged_links[i]);
		length = readlinkat(AT_FDCWD, path, target, sizeof(target) - 1);
		if (length <= 0)
			continue;
		target[length] = '\0';
		if (symlinkat(target, root, merged_links[i]) != 0)
			return err_set(e, ERR_IO, errno, "symlink %s", merged_links[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(root_links); i++)
		if (symlinkat(root_links[i].target, root, root_links[i].name) != 0)
			return err_set(e, ERR_IO, errno, "symlink %s", root_links[i].name);
	return 0;
}

static int attach_usr(int usr, bool with_local, struct err *e)
{
	if (move_mount(usr, "", AT_FDCWD, "t/usr", MOVE_MOUNT_F_EMPTY_PATH) != 0)
		return err_set(e, ERR_IO, errno, "attach usr");
	/* an empty directory of the template hides it */
	if (!with_local && mount("t/opt", "t/usr/local", NULL, MS_BIND, NULL) != 0 &&
	    errno != ENOENT)
		return err_set(e, ERR_IO, errno, "hide usr/local");
	return 0;
}

static int protect(const char *path, uint64_t flags, struct err *e)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | flags};

	if (mount_setattr(AT_FDCWD, path, 0, &attr, sizeof(attr)) != 0)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "protect %s",
			       path);
	return 0;
}

static int protect_all(bool with_local, struct err *e)
{
	if (protect("t/usr", MOUNT_ATTR_NODEV, e) != 0 ||
	    protect("t/dev", MOUNT_ATTR_NOEXEC, e) != 0 || protect("t", MOUNT_ATTR_NODEV, e) != 0)
		return -1;
	if (!with_local && access("t/usr/local", F_OK) == 0 &&
	    protect("t/usr/local", MOUNT_ATTR_NODEV, e) != 0)
		return -1;
	/* the file systems themselves too: no mount of them can ever be made writable */
	if (mount(NULL, "t", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, "") != 0 ||
	    mount(NULL, "t/dev", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC, "") != 0)
		return err_set(e, ERR_IO, errno, "make the template read-only");
	return 0;
}

static int fill_template(int usr, bool with_local, struct err *e)
{
	scope_close int root = -1;

	if (mount("root", "t", "tmpfs", MS_NOSUID, TEMPLATE_OPTIONS) != 0)
		return err_set(e, ERR_IO, errno, "mount the template");
	root = open("t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_set(e, ERR_IO, errno, "open the template");
	for (size_t i = 0; i < ARRAY_LEN(root_dirs); i++)
		if (mkdirat(root, root_dirs[i], 0755) != 0)
			return err_set(e, ERR_IO, errno, "mkdir %s", root_dirs[i]);
	if (mount("dev", "t/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") != 0)
		return err_set(e, ERR_IO, errno, "mount dev");
	if (fill_dev(root, e) != 0 || make_links(root, e) != 0 || fill_etc(root, e) != 0 ||
	    attach_usr(usr, with_local, e) != 0)
		return -1;
	return protect_all(with_local, e);
}

int image_host_enter(const char *scratch, bool with_local, struct err *e)
{
	scope_close int usr = -1;

	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return err_set(e, ERR_IO, errno, "mount namespace");
	/* without its submounts: only the files of the system itself */
	usr = open_tree(AT_FDCWD, "/usr", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (usr < 0)
		return err_set(e, ERR_IO, errno, "open_tree /usr");
	(void)umask(0);
	if (mount("zygote", scratch, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "mode=0755,size=64k") != 0 ||
	    chdir(scratch) != 0)
		return err_set(e, ERR_IO, errno, "mount the zygote's root");
	if (mkdir("t", 0755) != 0 || mkdir("n", 0755) != 0 || mkdir("proc", 0755) != 0)
		return err_set(e, ERR_IO, errno, "mkdir");
	if (fill_template(usr, with_local, e) != 0)
		return -1;
	/* fully visible, or the kernel refuses a new proc to the boxes */
	if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
		return err_set(e, ERR_IO, errno, "mount proc");
	if (ksys_pivot_root(".", ".") != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
		return err_set(e, ERR_IO, errno, "pivot_root");
	return 0;
}
