#include "runners/init/server.h"

#include "runners/base/fdio.h"
#include "runners/base/ksys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>

/*
 * File requests act as the user that they name (fsuid, and no DAC capability is left in pid 1), so
 * they can do no more than a command could. RESOLVE_BENEATH keeps them in the workspace; a link
 * that leads out of it is an error.
 */

#define BENEATH (RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)

int file_act_as(uint32_t uid, uint32_t gid, struct err *e)
{
	if (geteuid() == 0 && ksys_fsid(uid, gid) != 0)
		return err_set(e, ERR_IO, errno, "fsuid %u", uid);
	return 0;
}

void file_act_as_self(void)
{
	if (geteuid() == 0)
		(void)ksys_fsid(0, 0);
}

enum err_code file_error_code(int reason)
{
	switch (reason) {
	case ENOENT:
		return ERR_NOT_FOUND;
	case ENOSPC:
	case EDQUOT:
		return ERR_STORAGE;
	case EACCES:
	case EPERM:
		return ERR_DENIED;
	case EEXIST:
	case ENOTEMPTY:
	case EBUSY:
		return ERR_CONFLICT;
	case EXDEV:
	case ELOOP:
	case ENOTDIR:
	case EISDIR:
	case EINVAL:
	case ENAMETOOLONG:
		return ERR_INVALID;
	default:
		return ERR_IO;
	}
}

int file_open_beneath(const struct server *s, const char *path, uint64_t flags)
{
	if (path[0] == '\0')
		return openat(s->workspace, ".", (int)flags | O_CLOEXEC);
	return ksys_openat2(s->workspace, path, flags, 0, BENEATH | RESOLVE_NO_SYMLINKS);
}

int file_open_parent(const struct server *s, const char *path, const char **out_name)
{
	const char *slash = strrchr(path, '/');
	char parent[LIMIT_PATH_BYTES + 1] = "";

	*out_name = slash == NULL ? path : slash + 1;
	if (slash == NULL)
		return fcntl(s->workspace, F_DUPFD_CLOEXEC, 0);
	memcpy(parent, path, (size_t)(slash - path));
	return file_open_beneath(s, parent, O_PATH | O_DIRECTORY);
}

/* Makes the directories above path. */
static int make_parents(int workspace, const char *path, struct err *e)
{
	char part[LIMIT_PATH_BYTES + 1];
	scope_close int at = fcntl(workspace, F_DUPFD_CLOEXEC, 0);
	size_t start = 0;

	if (at < 0)
		return err_set(e, ERR_IO, errno, "dup");
	for (size_t i = 0; path[i] != '\0'; i++) {
		int next;

		part[i] = path[i];
		if (path[i] != '/')
			continue;
		part[i] = '\0';
		if (mkdirat(at, part + start, 0755) != 0 && errno != EEXIST)
			return err_set(e, file_error_code(errno), errno, "mkdir");
		next = ksys_openat2(workspace, part, O_PATH | O_DIRECTORY, 0, BENEATH);
		if (next < 0)
			return err_set(e, file_error_code(errno), errno, "open directory");
		(void)close(at);
		at = next;
		part[i] = '/';
		start = i + 1;
	}
	return 0;
}

static int write_part(struct server *s, const struct agent_file_write *part, uint64_t offset,
		      bool last, struct err *e)
{
	uint64_t flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | (offset == 0 ? O_TRUNC : 0U);
	const char *data = part->data;
	scope_close int fd = -1;
	size_t done = 0;
	struct stat st;

	if (offset == 0 && make_parents(s->workspace, part->path, e) != 0)
		return -1;
	fd = ksys_openat2(s->workspace, part->path, flags, part->mode & 0777U, BENEATH);
	if (fd < 0)
		return err_set(e, file_error_code(errno), errno, "open");
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, 0, "not a regular file");
	while (done < part->length) {
		ssize_t wrote =
		    pwrite(fd, data + done, part->length - done, (off_t)(offset + done));

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return err_set(e, file_error_code(errno), errno, "write");
		done += (size_t)wrote;
	}
	if (last && fchmod(fd, part->mode & 0777U) != 0)
		return err_set(e, file_error_code(errno), errno, "chmod");
	return 0;
}

static struct failed_write *find_failed(struct conn *c, const struct agent_header *head)
{
	for (int i = 0; i < SERVER_MAX_FAILED; i++) {
		struct failed_write *f = &c->failed_writes[i];

		if (f->used && f->client == head->client && f->tag == head->channel)
			return f;
	}
	return NULL;
}

static void remember_failed(struct conn *c, const struct agent_header *head)
{
	struct failed_write *f = &c->failed_writes[c->next_failed++ % SERVER_MAX_FAILED];

	*f = (struct failed_write){.used = true, .client = head->client, .tag = head->channel};
}

int file_write(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	bool last = (f->head.flags & AGENT_F_LAST) != 0;
	struct failed_write *failed = find_failed(c, &f->head);
	struct agent_file_write part;
	int result;

	if (failed != NULL) {
		if (last || f->head.offset == 0)
			failed->used = false;
		if (f->head.offset != 0)
			return 0; /* its error was answered */
	}
	result = agent_get_file_write(f, &part, e);
	if (result == 0)
		result = file_act_as(part.uid, part.gid, e);
	if (result == 0) {
		result = write_part(s, &part, f->head.offset, last, e);
		file_act_as_self();
	}
	if (result != 0 && !last)
		remember_failed(c, &f->head);
	if (result == 0 && last)
		agent_put_result(&c->out, &f->head, NULL);
	return result;
}

/* --- FILE_READ ------------------------------------------------------------------------------ */

static int open_for_read(struct server *s, const struct agent_file_read *want, struct err *e)
{
	int fd;

	if (file_act_as(want->uid, want->gid, e) != 0)
		return -1;
	fd = ksys_openat2(s->workspace, want->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW,
			  0, BENEATH | RESOLVE_NO_SYMLINKS);
	if (fd < 0)
		(void)err_set(e, file_error_code(errno), errno, "open");
	file_act_as_self();
	return fd;
}

int file_read(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct agent_file_read want;
	struct transfer *t = NULL;
	scope_close int fd = -1;
	struct stat st;
	uint64_t size;

	if (agent_get_file_read(f, &want, e) != 0)
		return -1;
	for (int i = 0; i < SERVER_MAX_TRANSFERS && t == NULL; i++)
		if (c->transfers[i].fd < 0)
			t = &c->transfers[i];
	if (t == NULL)
		return err_set(e, ERR_LIMIT, 0, "%d files are being read", SERVER_MAX_TRANSFERS);
	fd = open_for_read(s, &want, e);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, 0, "not a regular file");
	size = (uint64_t)st.st_size;
	t->head = f->head;
	t->size = size;
	t->at = f->head.offset < size ? f->head.offset : size;
	t->end = want.length < size - t->at ? t->at + want.length : size;
	t->acked = t->at;
	t->fd = fd_steal(&fd);
	return 0;
}

static void finish(struct conn *c, struct transfer *t)
{
	uint64_t values[AGENT_RESULT_VALUES] = {t->at - t->head.offset, t->size};

	if (t->at < t->head.offset)
		values[0] = 0;
	agent_put_result(&c->out, &t->head, values);
	fd_close_at(&t->fd);
}

static void send_part(struct conn *c, struct transfer *t)
{
	unsigned char chunk[AGENT_CHUNK_BYTES];
	struct agent_header head = {.type = AGENT_DATA,
				    .flags = AGENT_STREAM_DATA,
				    .client = t->head.client,
				    .channel = t->head.channel,
				    .offset = t->at};
	size_t part = sizeof(chunk);
	ssize_t got;

	if (t->end - t->at < part)
		part = (size_t)(t->end - t->at);
	do
		got = pread(t->fd, chunk, part, (off_t)t->at);
	while (got < 0 && errno == EINTR);
	if (got < 0) {
		struct err e = ERR_INIT;

		(void)err_set(&e, ERR_IO, errno, "read");
		conn_error(c, &t->head, &e);
		fd_close_at(&t->fd);
		return;
	}
	if (got == 0) {
		t->end = t->at; /* the file became shorter */
		return;
	}
	agent_put(&c->out, &head, chunk, (size_t)got);
	t->at += (uint64_t)got;
}

void file_turn(struct conn *c)
{
	for (int i = 0; i < SERVER_MAX_TRANSFERS; i++) {
		struct transfer *t = &c->transfers[i];

		while (t->fd >= 0 && t->at < t->end && t->at - t->acked < AGENT_READ_WINDOW &&
		       conn_has_room(c))
			send_part(c, t);
		if (t->fd >= 0 && t->at >= t->end)
			finish(c, t);
	}
}

void file_ack(struct conn *c, const struct agent_header *head)
{
	for (int i = 0; i < SERVER_MAX_TRANSFERS; i++) {
		struct transfer *t = &c->transfers[i];

		if (t->fd >= 0 && t->head.client == head->client &&
		    t->head.channel == head->channel && head->offset > t->acked &&
		    head->offset <= t->at)
			t->acked = head->offset;
	}
}

void file_close_all(struct conn *c)
{
	for (int i = 0; i < SERVER_MAX_TRANSFERS; i++)
		fd_close_at(&c->transfers[i].fd);
}
