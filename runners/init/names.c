#include "runners/init/server.h"

#include "runners/base/agentfiles.h"
#include "runners/base/fdio.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* STAT, MKDIR, RENAME: as the user that they name, beneath the workspace, through no link. */

int name_next(struct name_reader *r, int fd, const char **out_name, uint64_t *out_inode)
{
	for (;;) {
		const struct raw_entry *entry = (const void *)(r->raw + r->at);

		if (r->at >= r->length) {
			r->at = 0;
			r->length = syscall(SYS_getdents64, fd, r->raw, sizeof(r->raw));
			if (r->length <= 0)
				return r->length < 0 ? -1 : 0;
			continue;
		}
		r->at += entry->length;
		if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
			continue;
		*out_name = entry->name;
		if (out_inode != NULL)
			*out_inode = entry->inode;
		return 1;
	}
}

static int64_t time_us(const struct timespec *t)
{
	return t->tv_sec * INT64_C(1000000) + t->tv_nsec / 1000;
}

void name_describe(struct agent_info *out, const struct stat *st)
{
	memset(out, 0, sizeof(*out));
	if (S_ISREG(st->st_mode))
		out->kind = AGENT_KIND_REGULAR;
	else if (S_ISDIR(st->st_mode))
		out->kind = AGENT_KIND_DIRECTORY;
	else if (S_ISLNK(st->st_mode))
		out->kind = AGENT_KIND_SYMLINK;
	else
		out->kind = AGENT_KIND_OTHER;
	out->mode = st->st_mode & 07777U;
	out->uid = st->st_uid;
	out->gid = st->st_gid;
	out->links = (uint32_t)st->st_nlink;
	out->inode = st->st_ino;
	out->size = (uint64_t)st->st_size;
	out->allocated = (uint64_t)st->st_blocks * 512;
	out->mtime_us = time_us(&st->st_mtim);
	out->ctime_us = time_us(&st->st_ctim);
	out->atime_us = time_us(&st->st_atim);
}

static int fail(const char *what, struct err *e)
{
	return err_set(e, file_error_code(errno), errno, "%s", what);
}

static int stat_of(const struct server *s, const char *path, struct stat *out, struct err *e)
{
	scope_close int fd = -1;

	/* needs no right to search the workspace itself */
	if (path[0] == '\0')
		return fstat(s->workspace, out) == 0 ? 0 : fail("stat", e);
	fd = file_open_beneath(s, path, O_PATH | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, out) != 0)
		return fail("stat", e);
	return 0;
}

int name_stat(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct agent_name_request want;
	struct agent_info info;
	const char *slash;
	struct stat st;
	int result;

	if (agent_get_name_request(f, &want, e) != 0 || file_act_as(want.uid, want.gid, e) != 0)
		return -1;
	result = stat_of(s, want.path, &st, e);
	file_act_as_self();
	if (result != 0)
		return -1;
	name_describe(&info, &st);
	slash = strrchr(want.path, '/');
	info.name = slash == NULL ? want.path : slash + 1;
	info.name_length = strlen(info.name);
	agent_put_info(&c->out, &f->head, &info);
	agent_put_result(&c->out, &f->head, NULL);
	return 0;
}

/* One directory of the path, and into it; the number of those made, or -1. */
static int enter(const struct server *s, int *at, const char *name, const char *path, uint32_t mode,
		 struct err *e)
{
	int made = 1;
	int next;

	if (mkdirat(*at, name, mode) != 0) {
		if (errno != EEXIST)
			return fail("mkdir", e);
		made = 0;
	}
	next = file_open_beneath(s, path, O_PATH | O_DIRECTORY);
	if (next < 0)
		return fail("open directory", e);
	(void)close(*at);
	*at = next;
	return made;
}

/* With all that is missing above. */
static int make_path(const struct server *s, const struct agent_name_request *want,
		     uint64_t *out_made, struct err *e)
{
	char path[LIMIT_PATH_BYTES + 1];
	scope_close int at = fcntl(s->workspace, F_DUPFD_CLOEXEC, 0);
	size_t start = 0;

	if (at < 0)
		return fail("dup", e);
	for (size_t i = 0;; i++) {
		bool last = want->path[i] == '\0';
		int made;

		path[i] = want->path[i];
		if (!last && path[i] != '/')
			continue;
		path[i] = '\0';
		made = enter(s, &at, path + start, path, last ? want->mode : 0755, e);
		if (made < 0)
			return -1;
		*out_made += (uint64_t)made;
		if (last)
			return 0;
		path[i] = '/';
		start = i + 1;
	}
}

static int make_one(const struct server *s, const struct agent_name_request *want,
		    uint64_t *out_made, struct err *e)
{
	const char *name;
	scope_close int parent = file_open_parent(s, want->path, &name);

	if (parent < 0)
		return fail("open directory", e);
	if (mkdirat(parent, name, want->mode) != 0)
		return fail("mkdir", e);
	*out_made = 1;
	return 0;
}

int name_mkdir(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	uint64_t values[AGENT_RESULT_VALUES] = {0};
	struct agent_name_request want;
	int result;

	if (agent_get_name_request(f, &want, e) != 0 || file_act_as(want.uid, want.gid, e) != 0)
		return -1;
	if ((want.flags & AGENT_F_PARENTS) != 0)
		result = make_path(s, &want, &values[0], e);
	else
		result = make_one(s, &want, &values[0], e);
	file_act_as_self();
	if (result != 0)
		return -1;
	agent_put_result(&c->out, &f->head, values);
	return 0;
}

static int move(const struct server *s, const struct agent_name_request *want, struct err *e)
{
	const char *from;
	const char *to;
	scope_close int from_fd = file_open_parent(s, want->path, &from);
	scope_close int to_fd = -1;

	if (from_fd < 0)
		return fail("open directory", e);
	to_fd = file_open_parent(s, want->to, &to);
	if (to_fd < 0)
		return fail("open directory", e);
	return renameat(from_fd, from, to_fd, to) == 0 ? 0 : fail("rename", e);
}

int name_rename(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct agent_name_request want;
	int result;

	if (agent_get_name_request(f, &want, e) != 0 || file_act_as(want.uid, want.gid, e) != 0)
		return -1;
	result = move(s, &want, e);
	file_act_as_self();
	if (result != 0)
		return -1;
	agent_put_result(&c->out, &f->head, NULL);
	return 0;
}
