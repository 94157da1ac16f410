/* The unpacker: a child of the agent, in the box's user's place (unpack.h). */
#include "runners/init/unpack.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 65536
#define SPARE       "/tmp"

static int write_all(int fd, const char *data, size_t length, int64_t at, struct err *e)
{
	while (length > 0) {
		ssize_t done = pwrite(fd, data, length, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return err_set(e,
				       errno == ENOSPC || errno == EDQUOT || errno == EFBIG
					   ? ERR_STORAGE
					   : ERR_IO,
				       errno, "write a file");
		data += done;
		length -= (size_t)done;
		at += done;
	}
	return 0;
}

/* --- one file -------------------------------------------------------------------------------- */

static int copy_input(int fd, struct err *e)
{
	static char block[BLOCK_BYTES];
	int64_t at = 0;

	for (;;) {
		ssize_t got = read(STDIN_FILENO, block, sizeof(block));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(e, ERR_IO, errno, "read the upload");
		if (got == 0)
			return 0;
		if (write_all(fd, block, (size_t)got, at, e) != 0)
			return -1;
		at += got;
	}
}

static int take_file(struct unpack_tree *t, const char *name, struct err *e)
{
	scope_close int fd = -1;
	char room[UNPACK_PATH_BYTES];
	const char *path = tree_path(name, room);
	int got;

	if (path == NULL) {
		t->skipped++;
		return 0;
	}
	got = tree_add_file(t, path, 0644, &fd, e);
	return got <= 0 ? got : copy_input(fd, e);
}

/* --- archives -------------------------------------------------------------------------------- */

static int broken(struct err *e, struct archive *a)
{
	const char *why = archive_error_string(a);

	if (archive_errno(a) == ENOMEM)
		return err_set(e, ERR_NOMEM, 0, "memory");
	return err_set(e, ERR_INVALID, 0, "%s", why == NULL ? "the archive is damaged" : why);
}

/* A zip's checksum and sizes are compared at the end of the data; that they differ is a warning. */
static int take_data(struct archive *a, int fd, la_int64_t *out_end, struct err *e)
{
	const void *data;
	size_t length;
	la_int64_t at;
	la_int64_t end = 0;

	for (;;) {
		int got = archive_read_data_block(a, &data, &length, &at);

		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK)
			return broken(e, a);
		if (at < 0 || write_all(fd, data, length, at, e) != 0)
			return e->code != ERR_NONE ? -1 : broken(e, a);
		end = at + (la_int64_t)length;
	}
	*out_end = end;
	return 0;
}

/* A hole at the end of a tar's file has no block; a zip has no holes. */
static int check_size(struct archive *a, struct archive_entry *entry, int fd, la_int64_t end,
		      struct err *e)
{
	la_int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : end;
	bool zip = (archive_format(a) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_ZIP;

	if (zip && size != end)
		return err_set(e, ERR_INVALID, 0, "a file of %lld bytes has %lld", (long long)size,
			       (long long)end);
	if (ftruncate(fd, size > end ? size : end) != 0)
		return err_set(e, ERR_STORAGE, errno, "size of a file");
	return 0;
}

/* "." and the like: the workspace itself, which is nothing that is left out. */
static bool is_top(const char *name)
{
	return name != NULL && name[0] == '.' && name[strspn(name, "./")] == '\0' &&
	       strstr(name, "..") == NULL;
}

static int take_entry(struct unpack_tree *t, struct archive *a, struct archive_entry *entry,
		      struct err *e)
{
	const char *name = archive_entry_pathname(entry);
	const struct timespec times[2] = {
	    {.tv_nsec = UTIME_OMIT},
	    {.tv_sec = (time_t)archive_entry_mtime(entry),
	     .tv_nsec = archive_entry_mtime_nsec(entry)},
	};
	scope_close int fd = -1;
	char room[UNPACK_PATH_BYTES];
	const char *path;
	la_int64_t end = 0;
	int got;

	if (name == NULL)
		name = archive_entry_pathname_utf8(entry);
	path = tree_path(name, room);
	if (archive_entry_filetype(entry) == AE_IFDIR && path != NULL)
		return tree_add_folder(t, path, archive_entry_perm(entry),
				       archive_entry_mtime_is_set(entry) ? times[1] : times[0], e);
	if (path == NULL || archive_entry_filetype(entry) != AE_IFREG ||
	    archive_entry_hardlink(entry) != NULL) {
		if (archive_entry_filetype(entry) != AE_IFDIR || !is_top(name))
			t->skipped++;
		return 0;
	}
	got = tree_add_file(t, path, archive_entry_perm(entry), &fd, e);
	if (got <= 0)
		return got;
	if (take_data(a, fd, &end, e) != 0 || check_size(a, entry, fd, end, e) != 0)
		return -1;
	if (archive_entry_mtime_is_set(entry))
		(void)futimens(fd, times);
	return 0;
}

static bool is_inconsistent(struct archive *a)
{
	const char *why = archive_error_string(a);

	return why != NULL && str_starts(why, "Inconsistent");
}

static int take_entries(struct unpack_tree *t, struct archive *a, struct err *e)
{
	struct archive_entry *entry;

	for (;;) {
		int got = archive_read_next_header(a, &entry);

		if (got == ARCHIVE_EOF)
			return 0;
		if (got == ARCHIVE_RETRY)
			continue;
		/* a warning is about a name's alphabet, or that a zip says two things of a file */
		if (got != ARCHIVE_OK && (got != ARCHIVE_WARN || is_inconsistent(a)))
			return broken(e, a);
		if (take_entry(t, a, entry, e) != 0)
			return -1;
	}
}

/* A zip has its list at its end: it is read from a file. */
static int spool_input(int *out_fd, struct err *e)
{
	scope_close int fd = open(SPARE, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_set(e, ERR_IO, errno, "a file for the archive");
	if (copy_input(fd, e) != 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) != 0)
		return err_set(e, ERR_IO, errno, "read the archive");
	*out_fd = fd_steal(&fd);
	return 0;
}

static int take_zip(struct unpack_tree *t, struct archive *a, struct err *e)
{
	scope_close int spooled = -1;

	(void)archive_read_support_format_zip(a);
	if (spool_input(&spooled, e) != 0)
		return -1;
	if (archive_read_open_fd(a, spooled, BLOCK_BYTES) != ARCHIVE_OK)
		return broken(e, a);
	return take_entries(t, a, e);
}

static int take_tar(struct unpack_tree *t, struct archive *a, struct err *e)
{
	struct gunzip *g = gunzip_open();
	int result;

	if (g == NULL)
		return err_set(e, ERR_NOMEM, 0, "memory");
	(void)archive_read_support_filter_bzip2(a);
	(void)archive_read_support_format_tar(a);
	result = archive_read_open(a, g, NULL, gunzip_read, NULL) == ARCHIVE_OK
		     ? take_entries(t, a, e)
		     : broken(e, a);
	/* what follows the last entry is judged too */
	if (result == 0 && gunzip_finish(g, a) != 0)
		result = broken(e, a);
	gunzip_close(g);
	return result;
}

static int take_archive(struct unpack_tree *t, bool zip, struct err *e)
{
	struct archive *a = archive_read_new();
	int result;

	if (a == NULL)
		return err_set(e, ERR_NOMEM, 0, "memory");
	result = zip ? take_zip(t, a, e) : take_tar(t, a, e);
	(void)archive_read_free(a);
	return result;
}

/* --- the command ----------------------------------------------------------------------------- */

static int end_of(const struct err *e)
{
	if (e->code == ERR_NONE)
		return AGENT_UNPACKED;
	if (e->code == ERR_INVALID || e->code == ERR_LIMIT)
		return AGENT_UNPACK_BROKEN;
	if (e->code == ERR_STORAGE)
		return AGENT_UNPACK_FULL;
	return e->code == ERR_CONFLICT ? AGENT_UNPACK_CONFLICT : AGENT_UNPACK_FAILED;
}

static int take(struct unpack_tree *t, char *const *argv, struct err *e)
{
	if (str_equal(argv[0], "file") && argv[1] != NULL)
		return take_file(t, argv[1], e);
	if (str_equal(argv[0], "tar"))
		return take_archive(t, false, e);
	if (str_equal(argv[0], "zip"))
		return take_archive(t, true, e);
	return err_set(e, ERR_PROTOCOL, 0, "file NAME, tar or zip");
}

int unpack_main(char *const *argv)
{
	struct unpack_tree tree;
	struct err e = ERR_INIT;

	(void)umask(022);
	/* names of archives come in UTF-8, whatever the box's image has else */
	if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
		(void)setlocale(LC_CTYPE, "en_US.UTF-8");
	if (tree_open(&tree, &e) == 0 && take(&tree, argv, &e) == 0)
		(void)tree_move(&tree, &e);
	tree_close(&tree);
	if (e.code == ERR_NONE)
		(void)dprintf(STDOUT_FILENO, AGENT_UNPACK_REPORT, (unsigned long long)tree.files,
			      (unsigned long long)tree.bytes, (unsigned long long)tree.skipped);
	else
		(void)dprintf(STDERR_FILENO, "%s\n", e.text);
	return end_of(&e);
}
