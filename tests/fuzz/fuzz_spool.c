/* fuzz_spool: any bytes as a log: records rise by one, and a writer goes on behind the last whole
 * one. */
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/core/spool.h"

#include <fcntl.h>
#include <sys/stat.h>

#define ID "0190a5c0-0000-7000-8000-0123456789ab"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static char dir[64];

static void must(bool right)
{
	if (!right)
		abort();
}

static void forget(void)
{
	struct err e = ERR_INIT;
	char path[200];

	(void)spool_remove(dir, "spool", ID, &e);
	(void)snprintf(path, sizeof(path), "%s/spool/ab", dir);
	(void)rmdir(path);
	(void)snprintf(path, sizeof(path), "%s/spool", dir);
	(void)rmdir(path);
	(void)rmdir(dir);
}

static uint64_t read_all(struct spool_record *record)
{
	struct spool_reader r;
	struct err e = ERR_INIT;
	uint64_t count = 0;
	int got;

	must(spool_open(&r, dir, ID, &e) == 0);
	while ((got = spool_next(&r, record, &e)) == 1) {
		count++;
		must(record->seq == count && record->length <= LIMIT_RECORD_BYTES);
		must(record->kind >= SPOOL_START && record->kind <= SPOOL_TRUNCATED);
	}
	must(got == 0);
	spool_reader_close(&r);
	return count;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static struct spool_record record;
	struct spool_writer w;
	struct err e = ERR_INIT;
	char path[200];
	uint64_t count;

	if (dir[0] == '\0') {
		(void)snprintf(dir, sizeof(dir), "/tmp/cordon-fuzz-XXXXXX");
		must(mkdtemp(dir) != NULL);
		(void)snprintf(path, sizeof(path), "%s/spool", dir);
		must(mkdir(path, 0700) == 0);
		(void)atexit(forget);
	}
	must(spool_create(&w, dir, ID, &e) == 0);
	must(ftruncate(w.fd, 0) == 0 && pwrite(w.fd, data, size, 0) == (ssize_t)size);
	spool_writer_close(&w);
	count = read_all(&record);
	must(spool_create(&w, dir, ID, &e) == 0);
	must(w.last_seq == count);
	must(spool_append(&w, SPOOL_STDOUT, "x", 1, &e) == 0);
	spool_writer_close(&w);
	must(read_all(&record) == count + 1);
	return 0;
}
