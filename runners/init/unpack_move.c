/* The move of an upload into the workspace, all or nothing (unpack.h). */
#include "runners/init/unpack.h"

#include "runners/base/fdio.h"
#include "runners/base/ksys.h"
#include "runners/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES 3

/* One name that was moved; the way back. */
struct moved {
	size_t parent; /* in move->texts */
	size_t name;
	bool exchanged;
};

struct move {
	struct unpack_tree *tree;
	struct buf done; /* struct moved */
	struct buf texts;
	size_t parent; /* the one of the last, in texts */
};

/* The path of a name of the walk, for a message. */
static const char *path_of(const struct walk *w, const char *name, char *room, size_t size)
{
	(void)snprintf(room, size, "%s%s%s", w->path, w->path[0] == '\0' ? "" : "/", name);
	return room;
}

static int failed(const struct walk *w, const char *name, int reason, const char *what,
		  struct err *e)
{
	char room[300];

	return tree_failed(e, reason, path_of(w, name, room, sizeof(room)), what);
}

/* The modes of a name on both sides; 0 in the workspace: it is not there. ERR_CONFLICT when a
 * folder meets a file. */
static int look(const struct walk *w, const char *name, struct stat *ours, mode_t *there,
		struct err *e)
{
	struct stat st;
	char room[300];

	*there = 0;
	if (fstatat(w->from, name, ours, AT_SYMLINK_NOFOLLOW) != 0)
		return failed(w, UNPACK_FOLDER, errno, "find a file", e);
	if (w->place != WALK_BOTH)
		return 0;
	if (fstatat(w->to, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : failed(w, name, errno, "look at the workspace", e);
	*there = st.st_mode;
	if (S_ISDIR(ours->st_mode) == S_ISDIR(*there) ||
	    (S_ISDIR(ours->st_mode) && S_ISLNK(*there)))
		return 0;
	return err_set(e, ERR_CONFLICT, 0, "%s is a %s in the workspace",
		       path_of(w, name, room, sizeof(room)), S_ISDIR(*there) ? "folder" : "file");
}

/* Into a folder that both have. */
static enum walk_step enter_both(struct walk *w, const char *name, struct err *e)
{
	w->next_place = WALK_BOTH;
	w->next_to = ksys_openat2(w->to, name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, UNPACK_INSIDE);
	if (w->next_to >= 0)
		return WALK_ENTER;
	(void)failed(w, name, errno, "open a folder", e);
	return WALK_FAIL;
}

/* --- before: count, and see what cannot be -----------------------------------------------------
 */

static enum walk_step check(struct walk *w, const char *name, struct err *e)
{
	struct unpack_tree *t = w->ctx;
	struct stat ours;
	mode_t there;

	if (look(w, name, &ours, &there, e) != 0)
		return WALK_FAIL;
	if (!S_ISDIR(ours.st_mode)) {
		if (w->place == WALK_BEYOND) {
			t->skipped++;
			return WALK_NEXT;
		}
		t->files++;
		t->bytes += (uint64_t)ours.st_size;
		if (t->bytes > UNPACK_BYTES_MOST || (uint64_t)ours.st_size > UNPACK_BYTES_MOST)
			t->bytes = UNPACK_BYTES_MOST;
		return WALK_NEXT;
	}
	if (w->place == WALK_BOTH && S_ISDIR(there))
		return enter_both(w, name, e);
	w->next_place = w->place != WALK_BOTH ? w->place : S_ISLNK(there) ? WALK_BEYOND : WALK_NEW;
	return WALK_ENTER;
}

/* --- modes and times of folders ----------------------------------------------------------------
 */

/* What is in a folder before the folder; of the same one the last at the end. */
static int deeper_first(const void *left, const void *right)
{
	const struct unpack_folder *a = left;
	const struct unpack_folder *b = right;

	if (a->length != b->length)
		return a->length > b->length ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order ? 1 : 0;
}

static int dress_folder(struct unpack_tree *t, const struct unpack_folder *f, struct err *e)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, f->mtime};
	const char *path = t->paths.data + f->path;
	const char *slash = strrchr(path, '/');
	const char *name = slash == NULL ? path : slash + 1;
	scope_close int above = -1;
	char room[UNPACK_PATH_BYTES] = ".";

	if (slash != NULL) {
		memcpy(room, path, (size_t)(slash - path));
		room[slash - path] = '\0';
	}
	above = ksys_openat2(t->folder, room, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, UNPACK_INSIDE);
	if (above < 0 || fchmodat(above, name, f->mode, 0) != 0)
		return tree_failed(e, errno, UNPACK_FOLDER, "mode of a folder");
	(void)utimensat(above, name, times, AT_SYMLINK_NOFOLLOW);
	return 0;
}

static int dress_folders(struct unpack_tree *t, struct err *e)
{
	size_t count = t->folders.len / sizeof(struct unpack_folder);
	struct unpack_folder *all = mem_zalloc(count + 1, sizeof(*all));
	int result = 0;

	if (all == NULL)
		return err_set(e, ERR_NOMEM, 0, "memory");
	if (count > 0)
		memcpy(all, t->folders.data, count * sizeof(*all));
	qsort(all, count, sizeof(*all), deeper_first);
	for (size_t i = 0; i < count && result == 0; i++)
		result = dress_folder(t, &all[i], e);
	mem_free(all);
	return result;
}

/* --- the move ----------------------------------------------------------------------------------
 */

/* Written before the move, so that no move is without its way back. */
static int note(struct move *m, const struct walk *w, const char *name, bool exchanged,
		struct err *e)
{
	struct moved one = {.exchanged = exchanged};

	if (m->texts.len == 0 || strcmp(m->texts.data + m->parent, w->path) != 0) {
		m->parent = m->texts.len;
		buf_add(&m->texts, w->path, strlen(w->path) + 1);
	}
	one.parent = m->parent;
	one.name = m->texts.len;
	buf_add(&m->texts, name, strlen(name) + 1);
	/* without a failure both are whole: the records before stay good */
	if (buf_ok(&m->texts))
		buf_add(&m->done, &one, sizeof(one));
	if (buf_ok(&m->texts) && buf_ok(&m->done))
		return 0;
	return err_set(e, ERR_LIMIT, 0, "the archive has too many names");
}

/* From one folder to the other under the same name. The right to write in a folder is needed to
 * move it: its ".." changes. */
static int rename_new(int from, int to, const char *name, const struct stat *st)
{
	bool folder = S_ISDIR(st->st_mode) && (st->st_mode & 0200) == 0;
	int got;
	int reason;

	if (folder)
		(void)!fchmodat(from, name, (st->st_mode & 0777) | 0200, 0);
	got = renameat2(from, name, to, name, RENAME_NOREPLACE);
	reason = errno;
	if (folder)
		(void)!fchmodat(got == 0 ? to : from, name, st->st_mode & 0777, 0);
	errno = reason;
	return got;
}

static int rename_exchange(int from, int to, const char *name)
{
	struct stat st;

	if (renameat2(from, name, to, name, RENAME_EXCHANGE) != 0)
		return -1;
	/* a folder that took the file's place meanwhile is not ours to remove */
	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
		(void)renameat2(from, name, to, name, RENAME_EXCHANGE);
		errno = EISDIR;
		return -1;
	}
	return 0;
}

static enum walk_step place(struct walk *w, const char *name, struct err *e)
{
	struct move *m = w->ctx;

	for (int tries = 1;; tries++) {
		struct stat ours;
		mode_t there;
		int got;

		if (look(w, name, &ours, &there, e) != 0)
			return WALK_FAIL;
		if (S_ISDIR(ours.st_mode) && there != 0) {
			if (!S_ISDIR(there))
				return WALK_NEXT; /* a link: left out */
			if ((ours.st_mode & 0700) != 0700)
				(void)!fchmodat(w->from, name, 0700, 0);
			return enter_both(w, name, e);
		}
		if (note(m, w, name, there != 0, e) != 0)
			return WALK_FAIL;
		got = there != 0 ? rename_exchange(w->from, w->to, name)
				 : rename_new(w->from, w->to, name, &ours);
		if (got == 0)
			return WALK_NEXT;
		m->done.len -= sizeof(struct moved);
		/* somebody else made or removed it at this moment */
		if ((errno == EEXIST || errno == ENOENT) && tries < TRIES)
			continue;
		(void)failed(w, name, errno, "place a file", e);
		return WALK_FAIL;
	}
}

static int open_at(int top, const char *path)
{
	return ksys_openat2(top, path[0] == '\0' ? "." : path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0,
			    UNPACK_INSIDE);
}

static void undo(struct move *m)
{
	scope_close int from = -1;
	scope_close int to = -1;
	size_t parent = SIZE_MAX;

	for (size_t at = m->done.len; at > 0; at -= sizeof(struct moved)) {
		struct moved one;
		struct stat st;
		const char *name;

		memcpy(&one, m->done.data + at - sizeof(one), sizeof(one));
		name = m->texts.data + one.name;
		if (one.parent != parent) {
			fd_close_at(&from);
			fd_close_at(&to);
			parent = one.parent;
			from = open_at(m->tree->folder, m->texts.data + parent);
			to = open_at(m->tree->top, m->texts.data + parent);
		}
		if (one.exchanged)
			(void)renameat2(to, name, from, name, RENAME_EXCHANGE);
		else if (fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			(void)rename_new(to, from, name, &st);
	}
}

int tree_move(struct unpack_tree *t, struct err *e)
{
	struct move m = {.tree = t};
	struct walk first = {.ctx = t, .visit = check};
	struct walk second = {.ctx = &m, .visit = place};
	uint64_t left_out = t->skipped;
	int result;

	if (walk_run(&first, t->folder, t->top, e) != 0)
		return -1;
	if (t->files + t->skipped - left_out != t->made)
		return tree_failed(e, ENOENT, UNPACK_FOLDER, "count the files");
	if (dress_folders(t, e) != 0)
		return -1;
	buf_init(&m.done, UNPACK_NAMES_BYTES);
	buf_init(&m.texts, UNPACK_NAMES_BYTES);
	result = walk_run(&second, t->folder, t->top, e);
	if (result != 0)
		undo(&m);
	buf_release(&m.done);
	buf_release(&m.texts);
	return result;
}
