/* The folder in which an upload grows (unpack.h). */
#include "runners/init/unpack.h"

#include "runners/base/fdio.h"
#include "runners/base/ksys.h"
#include "runners/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int tree_failed(struct err *e, int reason, const char *path, const char *what)
{
	switch (reason) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return err_set(e, ERR_STORAGE, reason, "%s", what);
	case ENOMEM:
		return err_set(e, ERR_NOMEM, reason, "%s", what);
	case EACCES:
	case EPERM:
	case EROFS:
		return err_set(e, ERR_CONFLICT, 0, "%s: no right to write there in the workspace",
			       path);
	case ENOENT:
	case EEXIST:
	case ENOTDIR:
	case EISDIR:
	case ENOTEMPTY:
	case ELOOP:
	case EXDEV:
	case EINVAL:
		return err_set(e, ERR_CONFLICT, 0, "%s: changed by another meanwhile", path);
	default:
		return err_set(e, ERR_IO, reason, "%s", what);
	}
}

/* A run may have made one, of a file or without rights. */
static void clear_old(int top)
{
	scope_close int old = -1;

	(void)unlinkat(top, UNPACK_FOLDER, 0);
	(void)!fchmodat(top, UNPACK_FOLDER, 0700, 0);
	old = openat(top, UNPACK_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (old >= 0)
		walk_remove(old);
	(void)unlinkat(top, UNPACK_FOLDER, AT_REMOVEDIR);
}

int tree_open(struct unpack_tree *t, struct err *e)
{
	int got;

	memset(t, 0, sizeof(*t));
	buf_init(&t->folders, UNPACK_NAMES_BYTES);
	buf_init(&t->paths, UNPACK_NAMES_BYTES);
	t->folder = -1;
	t->parent = -1;
	t->top = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (t->top < 0)
		return tree_failed(e, errno, ".", "open the workspace");
	got = mkdirat(t->top, UNPACK_FOLDER, 0700);
	if (got != 0 && errno == EEXIST) {
		clear_old(t->top);
		got = mkdirat(t->top, UNPACK_FOLDER, 0700);
	}
	if (got != 0)
		return tree_failed(e, errno, UNPACK_FOLDER, "make a folder for the upload");
	t->folder = openat(t->top, UNPACK_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return t->folder < 0 ? tree_failed(e, errno, UNPACK_FOLDER, "open the folder of the upload")
			     : 0;
}

void tree_close(struct unpack_tree *t)
{
	fd_close_at(&t->parent);
	if (t->folder >= 0) {
		walk_remove(t->folder);
		(void)unlinkat(t->top, UNPACK_FOLDER, AT_REMOVEDIR);
	}
	fd_close_at(&t->folder);
	fd_close_at(&t->top);
	buf_release(&t->folders);
	buf_release(&t->paths);
}

/* --- names ----------------------------------------------------------------------------------- */

const char *tree_path(const char *name, char *room)
{
	size_t used = 0;

	if (name == NULL || name[0] == '/')
		return NULL;
	while (*name != '\0') {
		size_t length = strcspn(name, "/");

		if (length == 2 && name[0] == '.' && name[1] == '.')
			return NULL;
		if (length > 255 || used + length + 2 > UNPACK_PATH_BYTES)
			return NULL;
		if (length > 0 && !(length == 1 && name[0] == '.')) {
			if (used > 0)
				room[used++] = '/';
			memcpy(room + used, name, length);
			used += length;
		}
		name += length + strspn(name + length, "/");
	}
	room[used] = '\0';
	/* our own folder is nobody's to name */
	if (used == 0 || str_equal(room, UNPACK_FOLDER) || str_starts(room, UNPACK_FOLDER "/"))
		return NULL;
	return room;
}

/* --- folders --------------------------------------------------------------------------------- */

/* A folder of ours as it is, by the first `length` bytes of a path; -1 with errno. */
static int open_ours(const struct unpack_tree *t, const char *path, size_t length)
{
	char room[UNPACK_PATH_BYTES] = ".";

	if (length > 0) {
		memcpy(room, path, length);
		room[length] = '\0';
	}
	return ksys_openat2(t->folder, room, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, UNPACK_INSIDE);
}

/* The deepest folder of the path that is there, in steps that double: a path may have 2,000
 * segments, and each look resolves all that is there. */
static int open_deepest(const struct unpack_tree *t, const char *path, size_t *length)
{
	for (size_t step = 1;; step *= 2) {
		int fd = open_ours(t, path, *length);

		if (fd >= 0 || errno != ENOENT || *length == 0)
			return fd;
		for (size_t i = 0; i<step && * length> 0; i++) {
			do
				(*length)--;
			while (*length > 0 && path[*length] != '/');
		}
	}
}

/* t->parent becomes the folder of the first `length` bytes of the path, made where it is missing;
 * 0, 1 a file is in the way, -1. */
static int enter(struct unpack_tree *t, const char *path, size_t length, struct err *e)
{
	scope_close int fd = -1;
	size_t at = length;

	if (t->parent >= 0 && strlen(t->parent_path) == length &&
	    memcmp(t->parent_path, path, length) == 0)
		return 0;
	fd = open_deepest(t, path, &at);
	while (fd >= 0 && at < length) {
		char name[256];
		int below;

		at += path[at] == '/' ? 1 : 0;
		below = (int)strcspn(path + at, "/");
		(void)snprintf(name, sizeof(name), "%.*s", below, path + at);
		at += (size_t)below;
		if (mkdirat(fd, name, 0755) != 0 && errno != EEXIST)
			return tree_failed(e, errno, UNPACK_FOLDER, "make a folder");
		below = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		fd_close_at(&fd);
		fd = below;
	}
	if (fd < 0)
		return errno == ENOTDIR
			   ? 1
			   : tree_failed(e, errno, UNPACK_FOLDER, "find a folder of the upload");
	fd_close_at(&t->parent);
	t->parent = fd_steal(&fd);
	memcpy(t->parent_path, path, length);
	t->parent_path[length] = '\0';
	return 0;
}

/* The folder above a path; out_name is its last segment. */
static int enter_above(struct unpack_tree *t, const char *path, const char **out_name,
		       struct err *e)
{
	const char *slash = strrchr(path, '/');

	*out_name = slash == NULL ? path : slash + 1;
	return enter(t, path, slash == NULL ? 0 : (size_t)(slash - path), e);
}

static int note_folder(struct unpack_tree *t, const char *path, mode_t mode, struct timespec mtime,
		       struct err *e)
{
	struct unpack_folder f = {.path = t->paths.len,
				  .length = strlen(path),
				  .order = t->folders.len / sizeof(f),
				  .mode = mode & 0777,
				  .mtime = mtime};

	buf_add(&t->paths, path, f.length + 1);
	buf_add(&t->folders, &f, sizeof(f));
	if (buf_ok(&t->paths) && buf_ok(&t->folders))
		return 0;
	return err_set(e, ERR_LIMIT, 0, "the archive has too many names");
}

int tree_add_folder(struct unpack_tree *t, const char *path, mode_t mode, struct timespec mtime,
		    struct err *e)
{
	const char *name;
	struct stat st;
	int got = enter_above(t, path, &name, e);

	if (got < 0)
		return -1;
	if (got == 0 && mkdirat(t->parent, name, 0755) != 0) {
		if (errno != EEXIST)
			return tree_failed(e, errno, UNPACK_FOLDER, "make a folder");
		if (fstatat(t->parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
			got = 1;
	}
	if (got == 0)
		return note_folder(t, path, mode, mtime, e);
	t->skipped++;
	return 0;
}

static int make_file(int parent, const char *name)
{
	return openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int tree_add_file(struct unpack_tree *t, const char *path, mode_t mode, int *out_fd, struct err *e)
{
	scope_close int fd = -1;
	const char *name;
	int got = enter_above(t, path, &name, e);

	if (got < 0)
		return -1;
	if (got == 0)
		fd = make_file(t->parent, name);
	/* twice in one archive: the last one counts */
	if (got == 0 && fd < 0 && errno == EEXIST && unlinkat(t->parent, name, 0) == 0) {
		fd = make_file(t->parent, name);
		t->made--;
	}
	if (got > 0 || (fd < 0 && errno == EISDIR)) {
		t->skipped++;
		return 0;
	}
	if (fd < 0)
		return tree_failed(e, errno, UNPACK_FOLDER, "make a file");
	if (fchmod(fd, mode & 0777) != 0)
		return tree_failed(e, errno, UNPACK_FOLDER, "mode of a file");
	t->made++;
	*out_fd = fd_steal(&fd);
	return 1;
}
