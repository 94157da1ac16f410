/* test_spool: records survive cuts, lies and crashes; a reader never sees half of one. */
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/spool.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static unsigned int serial;
static char data[200];

/* A new run's id, and its folders' parent. */
static const char *new_id(void)
{
	static char id[40];
	char path[300];

	(void)snprintf(data, sizeof(data), "%s/data", test_dir());
	(void)mkdir(data, 0700);
	(void)snprintf(path, sizeof(path), "%s/spool", data);
	(void)mkdir(path, 0700);
	(void)snprintf(id, sizeof(id), "0190a5c0-0000-7000-8000-%012x", ++serial);
	return id;
}

static void log_path(char *out, size_t size, const char *id)
{
	(void)snprintf(out, size, "%s/spool/%s/%s/log", data, id + 34, id);
}

/* Reads all whole records; their number. The bytes of stdout are appended to out. */
static uint64_t read_all(const char *id, struct buf *out)
{
	scope_free struct spool_record *record = mem_zalloc(1, sizeof(*record));
	struct spool_reader r;
	struct err e = ERR_INIT;
	uint64_t count = 0;
	int got;

	if (spool_open(&r, data, id, &e) != 0)
		return 0;
	while ((got = spool_next(&r, record, &e)) == 1) {
		count++;
		CU_ASSERT_EQUAL_FATAL(record->seq, count);
		if (out != NULL && record->kind == SPOOL_STDOUT)
			buf_add(out, record->bytes, record->length);
	}
	CU_ASSERT_EQUAL(got, 0);
	/* again: still the end */
	CU_ASSERT_EQUAL(spool_next(&r, record, &e), 0);
	spool_reader_close(&r);
	return count;
}

static void test_write_read(void)
{
	const char *id = new_id();
	scope_free struct spool_record *record = mem_zalloc(1, sizeof(*record));
	struct spool_writer w;
	struct spool_reader r;
	struct err e = ERR_INIT;
	int64_t before = clock_real_us();
	struct stat info;
	char path[300];

	CU_ASSERT_EQUAL(spool_open(&r, data, id, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_NOT_FOUND);
	err_clear(&e);
	CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
	CU_ASSERT_EQUAL(spool_open(&r, data, id, &e), 0);
	CU_ASSERT_EQUAL(spool_next(&r, record, &e), 0);
	CU_ASSERT_EQUAL(spool_append(&w, SPOOL_START, NULL, 0, &e), 0);
	/* the reader follows */
	CU_ASSERT_EQUAL(spool_next(&r, record, &e), 1);
	CU_ASSERT_EQUAL(record->kind, SPOOL_START);
	CU_ASSERT_EQUAL(record->length, 0);
	CU_ASSERT_EQUAL(record->seq, 1);
	CU_ASSERT(record->time_us >= before && record->time_us <= clock_real_us());
	CU_ASSERT_EQUAL(spool_next(&r, record, &e), 0);
	CU_ASSERT_EQUAL(spool_append(&w, SPOOL_STDOUT, "a\0\xff", 3, &e), 0);
	CU_ASSERT_EQUAL(spool_append(&w, SPOOL_TRUNCATED, "log_cap", 7, &e), 0);
	CU_ASSERT_EQUAL(spool_next(&r, record, &e), 1);
	CU_ASSERT_EQUAL(record->seq, 2);
	CU_ASSERT_EQUAL(record->length, 3);
	CU_ASSERT_EQUAL(memcmp(record->bytes, "a\0\xff", 3), 0);
	CU_ASSERT_EQUAL(spool_next(&r, record, &e), 1);
	CU_ASSERT_EQUAL(record->kind, SPOOL_TRUNCATED);
	CU_ASSERT_EQUAL(w.last_seq, 3);
	CU_ASSERT_EQUAL(w.size, 3 * SPOOL_HEADER_BYTES + 3 + 7);
	log_path(path, sizeof(path), id);
	CU_ASSERT_EQUAL(stat(path, &info), 0);
	CU_ASSERT_EQUAL(info.st_size, (off_t)w.size);
	CU_ASSERT_EQUAL(info.st_mode & 0777, 0640);
	spool_reader_close(&r);
	spool_writer_close(&w);
}

static void test_big_records(void)
{
	const char *id = new_id();
	scope_free unsigned char *bytes = mem_alloc(LIMIT_RECORD_BYTES + 1);
	scope_buf struct buf want;
	scope_buf struct buf got;
	struct spool_writer w;
	struct err e = ERR_INIT;
	static const size_t sizes[] = {
	    LIMIT_RECORD_BYTES, 1, LIMIT_RECORD_BYTES - 1, 0, LIMIT_RECORD_BYTES, 31, 32, 33,
	    LIMIT_RECORD_BYTES};

	buf_init(&want, 1 << 20);
	buf_init(&got, 1 << 20);
	for (size_t i = 0; i <= LIMIT_RECORD_BYTES; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 251);
	CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		CU_ASSERT_EQUAL(spool_append(&w, SPOOL_STDOUT, bytes + i % 2,
					     sizes[i] - i % 2 * (sizes[i] > 0), &e),
				0);
		buf_add(&want, bytes + i % 2, sizes[i] - i % 2 * (sizes[i] > 0));
	}
	CU_ASSERT_EQUAL(spool_append(&w, SPOOL_STDOUT, bytes, LIMIT_RECORD_BYTES + 1, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INTERNAL);
	CU_ASSERT_EQUAL(w.last_seq, ARRAY_LEN(sizes));
	spool_writer_close(&w);
	CU_ASSERT_EQUAL(read_all(id, &got), ARRAY_LEN(sizes));
	CU_ASSERT_EQUAL(got.len, want.len);
	CU_ASSERT_EQUAL(memcmp(got.data, want.data, want.len), 0);
}

static void test_ten_thousand(void)
{
	const char *id = new_id();
	scope_buf struct buf got;
	scope_buf struct buf want;
	struct spool_writer w;
	struct err e = ERR_INIT;

	buf_init(&got, 1 << 22);
	buf_init(&want, 1 << 22);
	CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
	for (int i = 0; i < 10000; i++) {
		char line[200];
		int length = snprintf(line, sizeof(line), "%d%*s\n", i, i % 150, "");

		buf_add(&want, line, (size_t)length);
		if (spool_append(&w, SPOOL_STDOUT, line, (size_t)length, &e) != 0)
			CU_FAIL_FATAL("append");
	}
	spool_writer_close(&w);
	CU_ASSERT_EQUAL(read_all(id, &got), 10000);
	CU_ASSERT_EQUAL(got.len, want.len);
	CU_ASSERT_EQUAL(memcmp(got.data, want.data, want.len), 0);
}

/* A log of three records; its bytes in out. */
static void three(const char *id, struct buf *out)
{
	struct spool_writer w;
	struct err e = ERR_INIT;
	char path[300];

	CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
	CU_ASSERT_EQUAL(spool_append(&w, SPOOL_START, NULL, 0, &e), 0);
	CU_ASSERT_EQUAL(spool_append(&w, SPOOL_STDOUT, "first", 5, &e), 0);
	CU_ASSERT_EQUAL(spool_append(&w, SPOOL_STDOUT, "second", 6, &e), 0);
	spool_writer_close(&w);
	log_path(path, sizeof(path), id);
	CU_ASSERT_EQUAL_FATAL(fd_read_file(AT_FDCWD, path, out, &e), 0);
	CU_ASSERT_EQUAL_FATAL(out->len, 32 + 37 + 38);
}

static void test_torn_everywhere(void)
{
	scope_buf struct buf whole;

	buf_init(&whole, 1000);
	three(new_id(), &whole);
	for (size_t n = 0; n <= whole.len; n++) {
		const char *id = new_id();
		scope_buf struct buf got;
		struct spool_writer w;
		struct err e = ERR_INIT;
		char path[300];
		uint64_t good = n >= 32 + 37 + 38 ? 3 : n >= 32 + 37 ? 2 : n >= 32 ? 1 : 0;

		buf_init(&got, 1000);
		CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
		spool_writer_close(&w);
		log_path(path, sizeof(path), id);
		CU_ASSERT_EQUAL_FATAL(fd_replace_file(AT_FDCWD, path, whole.data, n, 0640, &e), 0);
		CU_ASSERT_EQUAL(read_all(id, &got), good);
		/* a writer after a crash cuts the tail off and goes on behind it */
		CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
		CU_ASSERT_EQUAL(w.last_seq, good);
		CU_ASSERT_EQUAL(spool_append(&w, SPOOL_STDOUT, "!", 1, &e), 0);
		spool_writer_close(&w);
		buf_reset(&got);
		CU_ASSERT_EQUAL(read_all(id, &got), good + 1);
		ASSERT_TEXT(buf_text(&got), good == 3   ? "firstsecond!"
					    : good == 2 ? "first!"
							: "!");
	}
}

static void test_every_byte_flipped(void)
{
	scope_buf struct buf whole;
	size_t taken = 0;

	buf_init(&whole, 1000);
	three(new_id(), &whole);
	for (size_t n = 0; n < whole.len; n++) {
		const char *id = new_id();
		struct spool_writer w;
		struct err e = ERR_INIT;
		char path[300];
		uint64_t good = n >= 32 + 37 ? 2 : n >= 32 ? 1 : 0;

		CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
		spool_writer_close(&w);
		log_path(path, sizeof(path), id);
		whole.data[n] = (char)(whole.data[n] ^ 0x55);
		CU_ASSERT_EQUAL_FATAL(
		    fd_replace_file(AT_FDCWD, path, whole.data, whole.len, 0640, &e), 0);
		whole.data[n] = (char)(whole.data[n] ^ 0x55);
		taken += read_all(id, NULL) != good;
	}
	CU_ASSERT_EQUAL(taken, 0);
}

/* A reader that met a half-written record takes it when the rest has come. */
static void test_live_tail(void)
{
	const char *id;
	scope_free struct spool_record *record = mem_zalloc(1, sizeof(*record));
	scope_buf struct buf whole;
	struct spool_writer w;
	struct spool_reader r;
	struct err e = ERR_INIT;
	char path[300];
	scope_close int fd = -1;
	uint64_t seen = 0;

	buf_init(&whole, 1000);
	three(new_id(), &whole);
	id = new_id();
	CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
	spool_writer_close(&w);
	log_path(path, sizeof(path), id);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	CU_ASSERT_EQUAL_FATAL(spool_open(&r, data, id, &e), 0);
	for (size_t n = 0; n < whole.len; n++) {
		int got;

		CU_ASSERT_EQUAL(pwrite(fd, whole.data + n, 1, (off_t)n), 1);
		while ((got = spool_next(&r, record, &e)) == 1)
			seen++;
		CU_ASSERT_EQUAL(got, 0);
		CU_ASSERT_EQUAL(seen, (uint64_t)((n >= 31) + (n >= 31 + 37) + (n >= 31 + 37 + 38)));
	}
	spool_reader_close(&r);
}

static void test_paths(void)
{
	struct err e = ERR_INIT;
	struct spool_writer w;
	char folder[SPOOL_PATH_BYTES];
	char path[300];
	const char *id = new_id();
	char long_dir[600];

	CU_ASSERT_EQUAL(spool_folder(folder, data, "spool", id, &e), 0);
	CU_ASSERT_EQUAL(spool_folder(folder, data, "spool", "..", &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
	err_clear(&e);
	memset(long_dir, 'd', sizeof(long_dir) - 1);
	long_dir[sizeof(long_dir) - 1] = '\0';
	CU_ASSERT_EQUAL(spool_folder(folder, long_dir, "spool", id, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INTERNAL);
	err_clear(&e);
	/* no symlink is followed: a log may not lead elsewhere */
	CU_ASSERT_EQUAL_FATAL(spool_create(&w, data, id, &e), 0);
	spool_writer_close(&w);
	log_path(path, sizeof(path), id);
	CU_ASSERT_EQUAL(unlink(path), 0);
	CU_ASSERT_EQUAL(symlink("/dev/null", path), 0);
	CU_ASSERT_EQUAL(spool_create(&w, data, id, &e), -1);
	CU_ASSERT_EQUAL(e.sys, ELOOP);
	err_clear(&e);
	/* removing: files, folder, and again */
	CU_ASSERT_EQUAL(spool_remove(data, "spool", id, &e), 0);
	CU_ASSERT_EQUAL(spool_folder(folder, data, "spool", id, &e), 0);
	CU_ASSERT_EQUAL(access(folder, F_OK), -1);
	CU_ASSERT_EQUAL(spool_remove(data, "spool", id, &e), 0);
	CU_ASSERT_EQUAL(spool_remove(data, "spool", "../spool", &e), -1);
	err_clear(&e);
	/* staging's blob is a file in the folder's place */
	*strrchr(folder, '/') = '\0';
	(void)mkdir(folder, 0700);
	CU_ASSERT_EQUAL(spool_folder(folder, data, "spool", id, &e), 0);
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, folder, "x", 1, 0600, &e), 0);
	CU_ASSERT_EQUAL(spool_remove(data, "spool", id, &e), 0);
	CU_ASSERT_EQUAL(access(folder, F_OK), -1);
}

static void test_disk_full(void)
{
	struct spool_writer w = {.fd = open("/dev/full", O_WRONLY | O_CLOEXEC)};
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(spool_append(&w, SPOOL_STDOUT, "x", 1, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_STORAGE);
	/* it did not happen */
	CU_ASSERT_EQUAL(w.last_seq, 0);
	CU_ASSERT_EQUAL(w.size, 0);
	spool_writer_close(&w);
}

static int continue_and_read(void *context, struct err *e)
{
	const char *id = context;
	struct spool_writer w;
	struct spool_reader r;

	if (spool_create(&w, data, id, e) != 0) {
		CU_ASSERT_EQUAL(e->code, ERR_NOMEM);
		return -1;
	}
	CU_ASSERT_EQUAL(w.last_seq, 3);
	spool_writer_close(&w);
	if (spool_open(&r, data, id, e) != 0) {
		CU_ASSERT_EQUAL(e->code, ERR_NOMEM);
		return -1;
	}
	spool_reader_close(&r);
	return 0;
}

static void test_faults(void)
{
	scope_buf struct buf whole;
	char id[40];

	buf_init(&whole, 1000);
	(void)snprintf(id, sizeof(id), "%s", new_id());
	three(id, &whole);
	fault_loop(continue_and_read, id);
	/* nothing was lost by an attempt that failed */
	CU_ASSERT_EQUAL(read_all(id, NULL), 3);
}

static const struct test tests[] = {
    {"spool", "write and read", test_write_read},
    {"spool", "big records", test_big_records},
    {"spool", "10,000 records", test_ten_thousand},
    {"spool", "torn at every byte", test_torn_everywhere},
    {"spool", "each byte flipped", test_every_byte_flipped},
    {"spool", "live tail", test_live_tail},
    {"spool", "B14 paths and removing", test_paths},
    {"spool", "full disk", test_disk_full},
    {"spool", "faults", test_faults},
};

TEST_MAIN(tests)
