#include "runners/core/spool.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/base/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define BLOCK_BYTES (LIMIT_RECORD_BYTES + SPOOL_HEADER_BYTES)

int spool_folder(char out[SPOOL_PATH_BYTES], const char *data_dir, const char *kind, const char *id,
		 struct err *e)
{
	int length;

	if (!ident_is_uuid(id))
		return err_set(e, ERR_INVALID, 0, "not an id");
	length = snprintf(out, SPOOL_PATH_BYTES, "%s/%s/%s/%s", data_dir, kind, id + 34, id);
	if (length < 0 || length >= SPOOL_PATH_BYTES)
		return err_set(e, ERR_INTERNAL, 0, "the data folder's path is too long");
	return 0;
}

/* Makes the two folders of a run below data_dir/kind, which exists. */
static int make_folders(const char *folder, struct err *e)
{
	char parent[SPOOL_PATH_BYTES];
	char *slash;

	(void)snprintf(parent, sizeof(parent), "%s", folder);
	slash = strrchr(parent, '/');
	if (slash == NULL)
		return err_set(e, ERR_INTERNAL, 0, "bad folder");
	*slash = '\0';
	if (mkdir(folder, 02750) == 0 || errno == EEXIST)
		return 0;
	if (errno == ENOENT && (mkdir(parent, 02750) == 0 || errno == EEXIST) &&
	    (mkdir(folder, 02750) == 0 || errno == EEXIST))
		return 0;
	return err_set(e, errno == ENOSPC ? ERR_STORAGE : ERR_IO, errno, "mkdir %s", folder);
}

int spool_open(struct spool_reader *r, const char *data_dir, const char *id, struct err *e)
{
	char path[SPOOL_PATH_BYTES];
	char file[SPOOL_PATH_BYTES + 8];

	memset(r, 0, sizeof(*r));
	r->fd = -1;
	if (spool_folder(path, data_dir, "spool", id, e) != 0)
		return -1;
	(void)snprintf(file, sizeof(file), "%s/log", path);
	r->fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (r->fd < 0)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s", file);
	r->block = mem_alloc(BLOCK_BYTES);
	if (r->block == NULL) {
		fd_close_at(&r->fd);
		return err_set(e, ERR_NOMEM, 0, "spool");
	}
	return 0;
}

void spool_reader_close(struct spool_reader *r)
{
	fd_close_at(&r->fd);
	mem_free(r->block);
	r->block = NULL;
}

/* Makes at least `need` bytes available in the block if the file has them; the bytes available or
 * -1. */
static ssize_t fill(struct spool_reader *r, size_t need, struct err *e)
{
	ssize_t got;

	if (r->block_length >= need)
		return (ssize_t)r->block_length;
	memmove(r->block, r->block + r->block_start, r->block_length);
	r->block_start = 0;
	do
		got = pread(r->fd, r->block + r->block_length, BLOCK_BYTES - r->block_length,
			    (off_t)(r->offset + r->block_length));
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_set(e, ERR_IO, errno, "read the spool");
	r->block_length += (size_t)got;
	return (ssize_t)r->block_length;
}

static bool known_kind(unsigned char kind)
{
	return kind >= SPOOL_START && kind <= SPOOL_TRUNCATED;
}

int spool_next(struct spool_reader *r, struct spool_record *out, struct err *e)
{
	const unsigned char *head;
	uint32_t length;
	ssize_t have = fill(r, SPOOL_HEADER_BYTES, e);

	if (have < SPOOL_HEADER_BYTES)
		return have < 0 ? -1 : 0;
	head = r->block + r->block_start;
	length = wire_load_u32(head);
	if (length > LIMIT_RECORD_BYTES || !known_kind(head[24]) ||
	    wire_load_u64(head + 8) != r->last_seq + 1) {
		/* what was read ahead may have been half written */
		r->block_length = 0;
		return 0;
	}
	have = fill(r, SPOOL_HEADER_BYTES + length, e);
	if (have < 0)
		return -1;
	head = r->block + r->block_start;
	if ((size_t)have < SPOOL_HEADER_BYTES + length ||
	    wire_crc32c(0, head + 8, SPOOL_HEADER_BYTES - 8 + length) != wire_load_u32(head + 4)) {
		r->block_length = 0;
		return 0;
	}
	out->seq = wire_load_u64(head + 8);
	out->time_us = (int64_t)wire_load_u64(head + 16);
	out->kind = (enum spool_kind)head[24];
	out->length = length;
	memcpy(out->bytes, head + SPOOL_HEADER_BYTES, length);
	r->last_seq = out->seq;
	r->offset += SPOOL_HEADER_BYTES + length;
	r->block_start += SPOOL_HEADER_BYTES + length;
	r->block_length -= SPOOL_HEADER_BYTES + length;
	return 1;
}

void spool_boot_id(unsigned char out[16])
{
	scope_buf struct buf text = BUF_NONE;
	struct err ignored = ERR_INIT;
	char hex[33];
	size_t used = 0;

	memset(out, 0, 16);
	buf_init(&text, 128);
	if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &text, &ignored) != 0)
		return;
	for (size_t i = 0; i < text.len && used < 32; i++)
		if (text.data[i] != '-' && text.data[i] != '\n')
			hex[used++] = text.data[i];
	hex[used] = '\0';
	if (str_unhex(out, 16, hex) != 0)
		memset(out, 0, 16);
}

int spool_append_start(struct spool_writer *w, struct err *e)
{
	unsigned char bytes[24];

	w->start.monotonic_us = clock_monotonic_us();
	spool_boot_id(w->start.boot_id);
	wire_store_u64(bytes, (uint64_t)w->start.monotonic_us);
	memcpy(bytes + 8, w->start.boot_id, sizeof(w->start.boot_id));
	if (spool_append(w, SPOOL_START, bytes, sizeof(bytes), e) != 0)
		return -1;
	w->has_start = true;
	return 0;
}

bool spool_started_us(const struct spool_writer *w, int64_t *out_us)
{
	unsigned char now[16];

	spool_boot_id(now);
	if (!w->has_start || memcmp(now, w->start.boot_id, sizeof(now)) != 0)
		return false;
	*out_us = w->start.monotonic_us;
	return true;
}

static void note_record(struct spool_writer *w, const struct spool_record *record)
{
	switch (record->kind) {
	case SPOOL_START:
		w->has_start = record->length == 24;
		if (w->has_start) {
			w->start.monotonic_us = (int64_t)wire_load_u64(record->bytes);
			memcpy(w->start.boot_id, record->bytes + 8, sizeof(w->start.boot_id));
		}
		return;
	case SPOOL_STDOUT:
		w->stream_bytes[0] += record->length;
		return;
	case SPOOL_STDERR:
		w->stream_bytes[1] += record->length;
		return;
	case SPOOL_TRUNCATED:
		w->cut =
		    w->cut || (record->length == 7 && memcmp(record->bytes, "log_cap", 7) == 0);
		return;
	case SPOOL_HEARTBEAT:
		return;
	}
}

int spool_create(struct spool_writer *w, const char *data_dir, const char *id, struct err *e)
{
	char folder[SPOOL_PATH_BYTES];
	char file[SPOOL_PATH_BYTES + 8];
	scope_close int fd = -1;
	struct stat info;

	memset(w, 0, sizeof(*w));
	w->fd = -1;
	if (spool_folder(folder, data_dir, "spool", id, e) != 0 || make_folders(folder, e) != 0)
		return -1;
	(void)snprintf(file, sizeof(file), "%s/log", folder);
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (fd < 0 || fstat(fd, &info) != 0)
		return err_set(e, errno == ENOSPC ? ERR_STORAGE : ERR_IO, errno, "open %s", file);
	if (info.st_size > 0) {
		struct spool_record *record = mem_alloc(sizeof(*record));
		struct spool_reader r;
		int got = -1;

		if (record == NULL)
			(void)err_set(e, ERR_NOMEM, 0, "spool");
		else if (spool_open(&r, data_dir, id, e) == 0) {
			while ((got = spool_next(&r, record, e)) == 1)
				note_record(w, record);
			w->last_seq = r.last_seq;
			w->size = r.offset;
			spool_reader_close(&r);
		}
		mem_free(record);
		if (got != 0)
			return err_set(e, ERR_IO, 0, "cannot continue the spool of %s", id);
		if (ftruncate(fd, (off_t)w->size) != 0)
			return err_set(e, ERR_IO, errno, "cut the spool of %s", id);
	}
	if (lseek(fd, (off_t)w->size, SEEK_SET) < 0)
		return err_set(e, ERR_IO, errno, "lseek");
	w->fd = fd_steal(&fd);
	return 0;
}

int spool_append(struct spool_writer *w, enum spool_kind kind, const void *data, size_t length,
		 struct err *e)
{
	unsigned char head[SPOOL_HEADER_BYTES] = {0};
	struct iovec parts[2];
	ssize_t done;

	if (length > LIMIT_RECORD_BYTES)
		return err_set(e, ERR_INTERNAL, 0, "a spool record has %zu bytes", length);
	wire_store_u32(head, (uint32_t)length);
	wire_store_u64(head + 8, w->last_seq + 1);
	wire_store_u64(head + 16, (uint64_t)clock_real_us());
	head[24] = (unsigned char)kind;
	wire_store_u32(head + 4,
		       wire_crc32c(wire_crc32c(0, head + 8, sizeof(head) - 8), data, length));
	parts[0].iov_base = head;
	parts[0].iov_len = sizeof(head);
	parts[1].iov_base = (void *)(uintptr_t)data;
	parts[1].iov_len = length;
	do
		done = pwritev(w->fd, parts, length > 0 ? 2 : 1, (off_t)w->size);
	while (done < 0 && errno == EINTR);
	if (done != (ssize_t)(sizeof(head) + length))
		return err_set(e, done >= 0 || errno == ENOSPC ? ERR_STORAGE : ERR_IO,
			       done < 0 ? errno : 0, "write the spool");
	w->size += sizeof(head) + length;
	w->last_seq++;
	return 0;
}

void spool_writer_close(struct spool_writer *w)
{
	fd_close_at(&w->fd);
}

int spool_remove(const char *data_dir, const char *kind, const char *id, struct err *e)
{
	char folder[SPOOL_PATH_BYTES];
	DIR *dir;
	struct dirent *entry;

	if (spool_folder(folder, data_dir, kind, id, e) != 0)
		return -1;
	/* our own flat folder: the files in it have names that we chose */
	dir = opendir(folder);
	if (dir == NULL) {
		if (errno == ENOTDIR && unlink(folder) == 0)
			return 0;
		return errno == ENOENT ? 0 : err_set(e, ERR_IO, errno, "open %s", folder);
	}
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.' && unlinkat(dirfd(dir), entry->d_name, 0) != 0 &&
		    errno != ENOENT)
			(void)err_set(e, ERR_IO, errno, "unlink in %s", folder);
	(void)closedir(dir);
	if (rmdir(folder) != 0 && errno != ENOENT)
		return err_set(e, ERR_IO, errno, "rmdir %s", folder);
	return e->code == ERR_NONE ? 0 : -1;
}
