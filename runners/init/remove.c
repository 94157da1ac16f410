#include "runners/init/server.h"

#include "runners/base/agentfiles.h"
#include "runners/base/fdio.h"
#include "runners/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/*
 * REMOVE of a tree, by descriptors, however deep it is. One directory is open at a time, beside the
 * root of the tree. Its names are removed as they are read; a directory that is not empty is
 * entered, and what was above is opened again through ".." when it is done, if that is the
 * directory by device and inode: a process in the box may move it meanwhile. Then the walk starts
 * again at the root of the tree, where less is left than before. No link is followed, and no name
 * has a slash.
 *
 * A directory is read from its beginning after each child, which costs little because what was
 * removed is gone. What could not be removed is remembered by the inodes of its directory and its
 * own, counted once and passed over.
 *
 * Whoever acts may have closed their own directories: they are opened first (u+rwx).
 */

#define NAMES_BYTES  ((size_t)16 << 20) /* of all open levels; with short names a million deep */
#define MAX_LEVELS   ((size_t)1 << 20)
#define SKIP_SLOTS   65536U
#define SKIP_MOST    32768U /* names that stay, then it gives up */
#define MOST_STARTS  1000U  /* from the root, after a directory moved */
#define MOST_ROUNDS  100U   /* through one directory while others fill it */
#define MOST_REMOVED UINT64_C(16000000)

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

struct level {
	uint64_t inode;
	uint64_t entry_inode; /* as its directory named it */
	size_t name;          /* offset in names */
	bool dirty;           /* something in it stays */
};

struct failure {
	uint64_t dir; /* 0: free */
	uint64_t inode;
};

struct removal {
	struct task task;
	int parent; /* of the tree's root, O_PATH; -1: the workspace, which stays */
	char name[AGENT_NAME_BYTES + 1];
	int root;
	int at; /* the directory of the last level */
	dev_t device;
	uint32_t root_mode; /* to be set again; UINT32_MAX: not */
	struct level *levels;
	size_t depth;
	size_t capacity;
	struct buf names;
	struct name_reader reader;
	uint64_t removed_here; /* since this directory was read from its beginning */
	unsigned int rounds;
	unsigned int starts;
	struct failure *skip; /* SKIP_SLOTS, when there is one */
	unsigned int remembered;
	unsigned int failures;
	int reason; /* of the first */
	bool gave_up;
	uint64_t files;
	uint64_t dirs;
	uint64_t bytes;
};

static void remove_release(struct task *t)
{
	struct removal *w = (struct removal *)t;

	fd_close_at(&w->parent);
	fd_close_at(&w->root);
	fd_close_at(&w->at);
	buf_release(&w->names);
	mem_free(w->levels);
	mem_free(w->skip);
	mem_free(w);
}

/* --- failures ------------------------------------------------------------------------------- */

/* Its slot, or the free one where it belongs. */
static struct failure *skip_slot(const struct removal *w, uint64_t dir, uint64_t inode)
{
	uint64_t i =
	    (dir * UINT64_C(0x9E3779B97F4A7C15) ^ inode * UINT64_C(0xC2B2AE3D27D4EB4F)) >> 17;

	while (w->skip[i % SKIP_SLOTS].dir != 0 &&
	       (w->skip[i % SKIP_SLOTS].dir != dir || w->skip[i % SKIP_SLOTS].inode != inode))
		i++;
	return &w->skip[i % SKIP_SLOTS];
}

static bool skipped(struct removal *w, uint64_t inode)
{
	struct level *dir = &w->levels[w->depth - 1];

	if (w->skip == NULL || skip_slot(w, dir->inode, inode)->dir == 0)
		return false;
	dir->dirty = true;
	return true;
}

/* That this stays in that directory. */
static void remember(struct removal *w, struct level *dir, uint64_t inode)
{
	dir->dirty = true;
	if (w->skip == NULL)
		w->skip = mem_zalloc(SKIP_SLOTS, sizeof(*w->skip));
	if (w->skip == NULL || ++w->remembered > SKIP_MOST) {
		w->gave_up = true;
		return;
	}
	*skip_slot(w, dir->inode, inode) = (struct failure){.dir = dir->inode, .inode = inode};
}

static void count_failure(struct removal *w, int reason)
{
	if (w->failures++ == 0)
		w->reason = reason;
}

static void fail(struct removal *w, struct level *dir, uint64_t inode, int reason)
{
	count_failure(w, reason);
	remember(w, dir, inode);
}

static struct level *here(struct removal *w)
{
	return &w->levels[w->depth - 1];
}

/* --- directories ---------------------------------------------------------------------------- */

/* By the descriptor; on kernels before 6.6 by the name, as the user could do it. */
static void open_up(int path_fd, int at, const char *name, uint32_t mode)
{
	if (syscall(SYS_fchmodat2, path_fd, "", mode | 0700U, AT_EMPTY_PATH) != 0 &&
	    errno == ENOSYS)
		(void)!fchmodat(at, name, mode | 0700U, 0);
}

/* A directory for reading and removing in it, and what it was; -1 with errno. */
static int open_directory(int at, const char *name, struct stat *out)
{
	scope_close int path_fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (path_fd < 0 || fstat(path_fd, out) != 0)
		return -1;
	if ((out->st_mode & 0700U) != 0700U)
		open_up(path_fd, at, name, out->st_mode & 07777U);
	return openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The workspace itself, which its owner may have closed. */
static int open_workspace(const struct server *s, struct stat *out)
{
	if (fstat(s->workspace, out) != 0)
		return -1;
	if ((out->st_mode & 0700U) != 0700U)
		open_up(s->workspace, AT_FDCWD, s->workspace_path, out->st_mode & 07777U);
	return openat(s->workspace, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Takes fd: it is where the walk is now. */
static void stand_in(struct removal *w, int fd)
{
	fd_close_at(&w->at);
	w->at = fd;
	w->reader.at = 0;
	w->reader.length = 0;
	w->removed_here = 0;
	w->rounds = 0;
}

static int push(struct removal *w, const char *name, uint64_t inode, uint64_t entry_inode)
{
	size_t offset = w->names.len;

	if (w->depth == w->capacity) {
		size_t capacity = w->capacity == 0 ? 64 : w->capacity * 2;
		struct level *levels = NULL;

		if (capacity <= MAX_LEVELS)
			levels = mem_resize(w->levels, capacity, sizeof(*levels));
		if (levels == NULL)
			return -1;
		w->levels = levels;
		w->capacity = capacity;
	}
	buf_add(&w->names, name, strlen(name) + 1);
	if (!buf_ok(&w->names)) {
		w->names.failed = false;
		return -1;
	}
	w->levels[w->depth++] =
	    (struct level){.inode = inode, .entry_inode = entry_inode, .name = offset};
	return 0;
}

static void enter(struct removal *w, const char *name, uint64_t entry_inode)
{
	struct stat st;
	scope_close int fd = open_directory(w->at, name, &st);

	if (fd < 0) {
		if (errno != ENOENT)
			fail(w, here(w), entry_inode, errno);
		return;
	}
	if (st.st_dev != w->device)
		fail(w, here(w), entry_inode, EXDEV);
	else if (push(w, name, st.st_ino, entry_inode) != 0)
		fail(w, here(w), entry_inode, ENOMEM);
	else
		stand_in(w, fd_steal(&fd));
}

/* Lost: again from the root of the tree. */
static void restart(struct removal *w, int reason)
{
	int fd = openat(w->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || ++w->starts > MOST_STARTS) {
		fd_close_at(&fd);
		count_failure(w, reason);
		w->gave_up = true;
		return;
	}
	w->depth = 1;
	w->names.len = 0;
	stand_in(w, fd);
}

/* This directory is read; up, and away with it. */
static void leave(struct removal *w)
{
	struct level done = w->levels[w->depth - 1];
	struct level *above = &w->levels[w->depth - 2];
	scope_close int fd = openat(w->at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *name = w->names.data + done.name;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0) {
		int reason = errno;

		fail(w, above, done.entry_inode, reason);
		restart(w, reason);
		return;
	}
	if (st.st_dev != w->device || st.st_ino != above->inode) {
		restart(w, ESTALE);
		return;
	}
	if (unlinkat(fd, name, AT_REMOVEDIR) == 0)
		w->dirs++;
	else if (done.dirty)
		remember(w, above, done.entry_inode); /* counted is what is in it */
	else if (errno != ENOENT)
		fail(w, above, done.entry_inode, errno);
	w->depth--;
	w->names.len = done.name;
	stand_in(w, fd_steal(&fd));
}

/* --- names ---------------------------------------------------------------------------------- */

static void take_file(struct removal *w, const char *name, uint64_t entry_inode,
		      const struct stat *st)
{
	if (unlinkat(w->at, name, 0) == 0) {
		w->files++;
		w->removed_here++;
		if (st->st_nlink <= 1)
			w->bytes += (uint64_t)st->st_blocks * 512;
	} else if (errno != ENOENT) {
		fail(w, here(w), entry_inode, errno);
	}
}

static void take_name(struct removal *w, const char *name, uint64_t entry_inode)
{
	struct stat st;

	if (skipped(w, entry_inode))
		return;
	if (fstatat(w->at, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		if (errno != ENOENT)
			fail(w, here(w), entry_inode, errno);
		return;
	}
	if (!S_ISDIR(st.st_mode)) {
		take_file(w, name, entry_inode, &st);
		return;
	}
	if (unlinkat(w->at, name, AT_REMOVEDIR) == 0) {
		w->dirs++;
		w->removed_here++;
		return;
	}
	if (errno == ENOTEMPTY || errno == EEXIST)
		enter(w, name, entry_inode);
	else if (errno != ENOENT)
		fail(w, here(w), entry_inode, errno);
}

static bool finish(struct conn *c, struct removal *w)
{
	uint64_t values[AGENT_RESULT_VALUES] = {0};

	if (w->root_mode != UINT32_MAX)
		(void)fchmod(w->root, w->root_mode);
	if (w->parent >= 0) {
		if (unlinkat(w->parent, w->name, AT_REMOVEDIR) == 0)
			w->dirs++;
		else if (errno != ENOENT && !w->levels[0].dirty)
			count_failure(w, errno);
	}
	values[0] = w->files;
	values[1] = w->dirs;
	values[2] = w->bytes;
	values[3] = w->failures;
	values[4] = (uint64_t)w->reason;
	values[5] = w->gave_up ? 1 : 0;
	agent_put_result(&c->out, &w->task.head, values);
	return false;
}

static bool remove_step(struct server *s, struct conn *c, struct task *t)
{
	struct removal *w = (struct removal *)t;
	const char *name;
	uint64_t inode;

	(void)s;
	if (w->gave_up || w->files + w->dirs > MOST_REMOVED) {
		w->gave_up = true;
		return finish(c, w);
	}
	if (name_next(&w->reader, w->at, &name, &inode) > 0) {
		take_name(w, name, inode);
		return true;
	}
	/* what came meanwhile, and what a file system passes over while it shrinks */
	if (w->removed_here > 0 && w->rounds++ < MOST_ROUNDS && lseek(w->at, 0, SEEK_SET) == 0) {
		w->removed_here = 0;
		w->reader.length = 0;
		return true;
	}
	if (w->depth > 1) {
		leave(w);
		return true;
	}
	return finish(c, w);
}

/* --- the start ------------------------------------------------------------------------------ */

/* One file or one empty directory; 1: a directory with something in it, and the rest is to be
 * walked; 0: done, answered; -1. */
static int remove_one(struct removal *w, struct conn *c, struct err *e)
{
	uint64_t values[AGENT_RESULT_VALUES] = {0};
	bool recursive = (w->task.head.flags & AGENT_F_RECURSIVE) != 0;
	struct stat st;
	bool dir;

	if (fstatat(w->parent, w->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return err_set(e, file_error_code(errno), errno, "stat");
	dir = S_ISDIR(st.st_mode);
	if (unlinkat(w->parent, w->name, dir ? AT_REMOVEDIR : 0) != 0) {
		if (dir && recursive && errno != ENOENT)
			return 1;
		return err_set(e, file_error_code(errno), errno, "remove");
	}
	values[dir ? 1 : 0] = 1;
	if (!dir && st.st_nlink <= 1)
		values[2] = (uint64_t)st.st_blocks * 512;
	agent_put_result(&c->out, &w->task.head, values);
	return 0;
}

/* As remove_one. */
static int prepare(struct server *s, struct removal *w, struct conn *c, const char *path,
		   struct err *e)
{
	const char *name;
	struct stat st;
	int result;

	if (path[0] == '\0') {
		w->root = open_workspace(s, &st);
		if (w->root >= 0 && (st.st_mode & 0700U) != 0700U)
			w->root_mode = st.st_mode & 07777U;
	} else {
		w->parent = file_open_parent(s, path, &name);
		if (w->parent < 0)
			return err_set(e, file_error_code(errno), errno, "open directory");
		(void)snprintf(w->name, sizeof(w->name), "%s", name);
		if (strlen(name) >= sizeof(w->name))
			return err_set(e, ERR_INVALID, ENAMETOOLONG, "name");
		result = remove_one(w, c, e);
		if (result <= 0)
			return result;
		w->root = open_directory(w->parent, w->name, &st);
	}
	if (w->root < 0)
		return err_set(e, file_error_code(errno), errno, "open directory");
	w->at = openat(w->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->at < 0)
		return err_set(e, file_error_code(errno), errno, "open directory");
	w->device = st.st_dev;
	if (push(w, "", st.st_ino, st.st_ino) != 0)
		return err_set(e, ERR_NOMEM, 0, "no memory for a walk");
	w->names.len = 0;
	return 1;
}

int remove_start(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct agent_name_request want;
	struct removal *w;
	int result;

	if (agent_get_name_request(f, &want, e) != 0)
		return -1;
	w = mem_zalloc(1, sizeof(*w));
	if (w == NULL)
		return err_set(e, ERR_NOMEM, 0, "no memory for a walk");
	w->task = (struct task){.head = f->head,
				.uid = want.uid,
				.gid = want.gid,
				.step = remove_step,
				.release = remove_release};
	w->parent = -1;
	w->root = -1;
	w->at = -1;
	w->root_mode = UINT32_MAX;
	buf_init(&w->names, NAMES_BYTES);
	result = file_act_as(want.uid, want.gid, e);
	if (result == 0) {
		result = prepare(s, w, c, want.path, e);
		file_act_as_self();
	}
	if (result <= 0) {
		remove_release(&w->task);
		return result;
	}
	return task_start(c, &w->task, false, e);
}
