/* The folder in which an upload grows, and its move into the workspace (unpack.h). */
#include "runners/init/unpack.h"

#include "runners/base/fdio.h"
#include "runners/base/ksys.h"
#include "runners/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INSIDE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

static int no_room(struct err *e, int reason, const char *what)
{
	enum err_code code = reason == ENOSPC || reason == EDQUOT || reason == EFBIG ? ERR_STORAGE
			     : reason == ENOMEM                                      ? ERR_NOMEM
										     : ERR_IO;

	return err_set(e, code, reason, "%s", what);
}

int tree_open(struct unpack_tree *t, struct err *e)
{
	memset(t, 0, sizeof(*t));
	buf_init(&t->names, UNPACK_NAMES_BYTES);
	t->folder = -1;
	t->top = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->top < 0)
		return no_room(e, errno, "open the workspace");
	if (mkdirat(t->top, UNPACK_FOLDER, 0700) != 0)
		return no_room(e, errno, "make a folder for the upload");
	t->folder = openat(t->top, UNPACK_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return t->folder < 0 ? no_room(e, errno, "open the folder of the upload") : 0;
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

static int remember(struct unpack_tree *t, char kind, const char *path, size_t length,
		    struct err *e)
{
	buf_add(&t->names, &kind, 1);
	buf_add(&t->names, path, length);
	buf_add(&t->names, "", 1);
	if (buf_ok(&t->names))
		return 0;
	return err_set(e, ERR_LIMIT, 0, "the archive has too many names");
}

/* The folder of that path, made where it is missing; 0, 1 a file is in the way, -1. */
static int make_folder(struct unpack_tree *t, const char *path, size_t length, struct err *e)
{
	char room[UNPACK_PATH_BYTES];

	memcpy(room, path, length);
	room[length] = '\0';
	if (mkdirat(t->folder, room, 0700) == 0)
		return remember(t, 'd', path, length, e);
	if (errno == EEXIST) {
		struct stat st;

		return fstatat(t->folder, room, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
			       !S_ISDIR(st.st_mode)
			   ? 1
			   : 0;
	}
	return errno == ENOTDIR ? 1 : no_room(e, errno, "make a folder");
}

static int make_folders(struct unpack_tree *t, const char *path, size_t length, struct err *e)
{
	for (size_t i = 1; i <= length; i++) {
		int got;

		if (i < length && path[i] != '/')
			continue;
		got = make_folder(t, path, i, e);
		if (got != 0)
			return got;
	}
	return 0;
}

int tree_add_folder(struct unpack_tree *t, const char *path, struct err *e)
{
	int got = make_folders(t, path, strlen(path), e);

	t->skipped += got > 0 ? 1 : 0;
	return got < 0 ? -1 : 0;
}

int tree_add_file(struct unpack_tree *t, const char *path, mode_t mode, int *out_fd, struct err *e)
{
	const char *slash = strrchr(path, '/');
	bool again = false;
	int got = slash == NULL ? 0 : make_folders(t, path, (size_t)(slash - path), e);
	int fd;

	if (got < 0)
		return -1;
	fd = got > 0 ? -1
		     : openat(t->folder, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			      0600);
	if (fd < 0 && got == 0 && errno == EEXIST) {
		/* twice in one archive: the last one counts */
		fd = openat(t->folder, path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
		again = true;
	}
	if (got > 0 || (fd < 0 && (errno == EISDIR || errno == ENOTDIR))) {
		t->skipped++;
		return 0;
	}
	if (fd < 0)
		return no_room(e, errno, "make a file");
	if (fchmod(fd, mode & 0777) != 0 ||
	    (!again && remember(t, 'f', path, strlen(path), e) != 0)) {
		(void)close(fd);
		return e->code != ERR_NONE ? -1 : no_room(e, errno, "mode of a file");
	}
	*out_fd = fd;
	return 1;
}

/* --- the move -------------------------------------------------------------------------------- */

/* The folder above a name, in the workspace or in ours; -1 with errno. */
static int open_above(int top, const char *path, const char **out_name)
{
	const char *slash = strrchr(path, '/');
	char room[UNPACK_PATH_BYTES];

	*out_name = slash == NULL ? path : slash + 1;
	if (slash == NULL)
		return ksys_openat2(top, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0, INSIDE);
	memcpy(room, path, (size_t)(slash - path));
	room[slash - path] = '\0';
	return ksys_openat2(top, room, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, INSIDE);
}

/* What stands there now: 'f', 'd', 'l' a link (or beyond one), 0 nothing. */
static char kind_of(int top, const char *path)
{
	const char *name;
	scope_close int above = open_above(top, path, &name);
	struct stat st;

	if (above < 0)
		return errno == ENOENT ? '\0' : errno == ENOTDIR ? 'f' : 'l';
	if (fstatat(above, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return '\0';
	return S_ISDIR(st.st_mode) ? 'd' : S_ISLNK(st.st_mode) ? 'l' : 'f';
}

/* Nothing is moved when one of them cannot be. */
static int check_places(struct unpack_tree *t, struct err *e)
{
	for (size_t at = 0; at < t->names.len; at += strlen(t->names.data + at) + 1) {
		const char *path = t->names.data + at + 1;
		char there = kind_of(t->top, path);

		if ((t->names.data[at] == 'd' && there == 'f') ||
		    (t->names.data[at] == 'f' && there == 'd'))
			return err_set(e, ERR_CONFLICT, 0, "%s is a %s in the workspace", path,
				       there == 'd' ? "folder" : "file");
	}
	return 0;
}

static int place_folder(struct unpack_tree *t, const char *path, struct err *e)
{
	const char *name;
	scope_close int above = open_above(t->top, path, &name);

	if (above < 0 || (mkdirat(above, name, 0755) != 0 && errno != EEXIST))
		return errno == ELOOP || errno == EXDEV || errno == ENOTDIR
			   ? 1
			   : no_room(e, errno, "make a folder");
	return 0;
}

static int place_file(struct unpack_tree *t, const char *path, struct err *e)
{
	const char *name;
	const char *same;
	scope_close int to = open_above(t->top, path, &name);
	scope_close int from = open_above(t->folder, path, &same);

	if (from < 0)
		return no_room(e, errno, "find a file");
	/* beyond a link of the workspace */
	if (to < 0)
		return errno == ELOOP || errno == EXDEV || errno == ENOTDIR || errno == ENOENT
			   ? 1
			   : no_room(e, errno, "find a folder");
	return renameat(from, same, to, name) == 0 ? 0 : no_room(e, errno, "place a file");
}

static uint64_t size_of(const struct unpack_tree *t, const char *path)
{
	struct stat st;

	return fstatat(t->folder, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

int tree_move(struct unpack_tree *t, struct err *e)
{
	if (check_places(t, e) != 0)
		return -1;
	for (size_t at = 0; at < t->names.len; at += strlen(t->names.data + at) + 1) {
		const char *path = t->names.data + at + 1;
		bool folder = t->names.data[at] == 'd';
		uint64_t size = folder ? 0 : size_of(t, path);
		int got = folder ? place_folder(t, path, e) : place_file(t, path, e);

		if (got < 0)
			return -1;
		/* of a folder that cannot be, the files in it are counted */
		if (got > 0 && !folder) {
			t->skipped++;
		} else if (got == 0 && !folder) {
			t->files++;
			t->bytes += size;
		}
	}
	return 0;
}

void tree_close(struct unpack_tree *t)
{
	/* backwards: what is in a folder before the folder */
	for (size_t end = t->names.len; end > 0;) {
		size_t at = end - 1;

		while (at > 0 && t->names.data[at - 1] != '\0')
			at--;
		(void)unlinkat(t->folder, t->names.data + at + 1,
			       t->names.data[at] == 'd' ? AT_REMOVEDIR : 0);
		end = at;
	}
	fd_close_at(&t->folder);
	(void)unlinkat(t->top, UNPACK_FOLDER, AT_REMOVEDIR);
	fd_close_at(&t->top);
	buf_release(&t->names);
}
