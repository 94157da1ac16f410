/* A walk over a tree of any depth (unpack.h), and the removal of one. */
#include "runners/init/unpack.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct walk_identity {
	dev_t dev;
	ino_t ino;
};

/* A folder of the way down. */
struct walk_level {
	struct walk_identity above_from; /* what ".." must be */
	struct walk_identity above_to;
	enum walk_place place;
	size_t names; /* its names in walk->names: from here to the end */
	size_t next;
};

static int read_names(struct walk *w, int folder, struct err *e)
{
	int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = own < 0 ? NULL : fdopendir(own);
	const struct dirent *entry;

	if (list == NULL) {
		(void)tree_failed(e, errno, UNPACK_FOLDER, "read a folder");
		fd_close_at(&own);
		return -1;
	}
	while ((entry = readdir(list)) != NULL) {
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			buf_add(&w->names, entry->d_name, strlen(entry->d_name) + 1);
	}
	(void)closedir(list);
	if (buf_ok(&w->names))
		return 0;
	return err_set(e, ERR_LIMIT, 0, "the archive has too many names");
}

static int identify(int fd, struct walk_identity *out)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return -1;
	out->dev = st.st_dev;
	out->ino = st.st_ino;
	return 0;
}

static int go_up(int *fd, const struct walk_identity *above, struct err *e)
{
	scope_close int up = openat(*fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct walk_identity is = {0};

	if (up < 0 || identify(up, &is) != 0)
		return tree_failed(e, errno, UNPACK_FOLDER, "leave a folder");
	if (is.dev != above->dev || is.ino != above->ino)
		return tree_failed(e, ENOENT, UNPACK_FOLDER, "leave a folder");
	fd_close_at(fd);
	*fd = fd_steal(&up);
	return 0;
}

/* Into a folder of w->from, and w->next_to. */
static int go_down(struct walk *w, const char *name, struct err *e)
{
	scope_close int from =
	    openat(w->from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	scope_close int to = fd_steal(&w->next_to);
	struct walk_level level = {.place = w->next_place, .names = w->names.len};
	size_t used = strlen(w->path);

	if (from < 0)
		return tree_failed(e, errno, UNPACK_FOLDER, "open a folder");
	if (read_names(w, from, e) != 0)
		return -1;
	/* nothing to do in it: then no right to leave it is needed */
	if (w->names.len == level.names) {
		if (w->leave != NULL)
			w->leave(w, name);
		return 0;
	}
	if (w->depth == UNPACK_DEPTH || used + strlen(name) + 2 > sizeof(w->path))
		return err_set(e, ERR_LIMIT, 0, "a path is too long");
	if (identify(w->from, &level.above_from) != 0 ||
	    (w->to >= 0 && identify(w->to, &level.above_to) != 0))
		return tree_failed(e, errno, UNPACK_FOLDER, "open a folder");
	(void)snprintf(w->path + used, sizeof(w->path) - used, "%s%s", used > 0 ? "/" : "", name);
	fd_close_at(&w->from);
	w->from = fd_steal(&from);
	if (level.place == WALK_BOTH && to >= 0) {
		fd_close_at(&w->to);
		w->to = fd_steal(&to);
	}
	level.next = level.names;
	w->place = level.place;
	w->levels[w->depth++] = level;
	return 0;
}

static int leave(struct walk *w, struct err *e)
{
	const struct walk_level *level = &w->levels[--w->depth];
	char *slash = strrchr(w->path, '/');
	char name[256];

	if (w->depth == 0)
		return 0;
	if (go_up(&w->from, &level->above_from, e) != 0)
		return -1;
	if (level->place == WALK_BOTH && w->to >= 0 && go_up(&w->to, &level->above_to, e) != 0)
		return -1;
	(void)snprintf(name, sizeof(name), "%s", slash == NULL ? w->path : slash + 1);
	*(slash == NULL ? w->path : slash) = '\0';
	w->names.len = level->names;
	w->place = w->levels[w->depth - 1].place;
	if (w->leave != NULL)
		w->leave(w, name);
	return 0;
}

static int walk_on(struct walk *w, struct err *e)
{
	while (w->depth > 0) {
		struct walk_level *level = &w->levels[w->depth - 1];
		enum walk_step step;
		char name[256];

		if (level->next == w->names.len) {
			if (leave(w, e) != 0)
				return -1;
			continue;
		}
		(void)snprintf(name, sizeof(name), "%s", w->names.data + level->next);
		level->next += strlen(name) + 1;
		step = w->visit(w, name, e);
		if (step == WALK_FAIL || (step == WALK_ENTER && go_down(w, name, e) != 0))
			return -1;
	}
	return 0;
}

int walk_run(struct walk *w, int from, int to, struct err *e)
{
	int result = -1;

	buf_init(&w->names, UNPACK_NAMES_BYTES);
	w->levels = mem_zalloc(UNPACK_DEPTH, sizeof(*w->levels));
	w->next_to = -1;
	w->from = fcntl(from, F_DUPFD_CLOEXEC, 0);
	w->to = to < 0 ? -1 : fcntl(to, F_DUPFD_CLOEXEC, 0);
	if (w->levels == NULL)
		(void)err_set(e, ERR_NOMEM, 0, "memory");
	else if (w->from < 0 || (to >= 0 && w->to < 0))
		(void)err_set(e, ERR_IO, errno, "descriptors");
	else if (read_names(w, w->from, e) == 0) {
		w->depth = 1;
		result = walk_on(w, e);
	}
	fd_close_at(&w->from);
	fd_close_at(&w->to);
	fd_close_at(&w->next_to);
	buf_release(&w->names);
	mem_free(w->levels);
	return result;
}

/* --- removal --------------------------------------------------------------------------------- */

static enum walk_step remove_one(struct walk *w, const char *name, struct err *e)
{
	(void)e;
	if (unlinkat(w->from, name, 0) == 0 || errno != EISDIR)
		return WALK_NEXT;
	if (unlinkat(w->from, name, AT_REMOVEDIR) == 0)
		return WALK_NEXT;
	(void)!fchmodat(w->from, name, 0700, 0);
	w->next_place = WALK_NEW;
	return WALK_ENTER;
}

static void remove_folder(struct walk *w, const char *name)
{
	(void)unlinkat(w->from, name, AT_REMOVEDIR);
}

void walk_remove(int folder)
{
	struct walk w = {.visit = remove_one, .leave = remove_folder};
	struct err ignored = ERR_INIT;

	(void)!fchmod(folder, 0700);
	(void)walk_run(&w, folder, -1, &ignored);
}
