/*
 * spool.h: the output of a run as a file of records: <data>/spool/<last 2 hex of the id>/<id>/log.
 *
 * One writer (the runner that holds the claim), any number of readers. A record is a header of 32
 *bytes (little-endian) and up to LIMIT_RECORD_BYTES bytes:
 *
 *	u32 length | u32 crc32c of the rest of the header and the bytes | u64 seq | i64 time_us | u8
 *kind | 7 bytes zero
 *
 * Sequence numbers start at 1 and rise by one. A record that is cut or whose checksum is wrong ends
 *the file: a reader that follows a live file tries it again later. After a crash the writer cuts a
 *torn tail off and goes on behind the last whole record.
 */
#ifndef CORDON_CORE_SPOOL_H
#define CORDON_CORE_SPOOL_H

#include "runners/base/err.h"
#include "runners/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPOOL_HEADER_BYTES 32
#define SPOOL_PATH_BYTES   512

enum spool_kind {
	SPOOL_START = 1,
	SPOOL_STDOUT = 2,
	SPOOL_STDERR = 3,
	SPOOL_HEARTBEAT = 4,
	SPOOL_TRUNCATED = 5 /* the bytes are the reason: log_cap, stdin_cap, ... */
};

struct spool_record {
	uint64_t seq;
	int64_t time_us;
	enum spool_kind kind;
	size_t length;
	unsigned char bytes[LIMIT_RECORD_BYTES];
};

/* When a run's command started: the bytes of its start record. The monotonic clock holds as long as
 * the boot. */
struct spool_start {
	int64_t monotonic_us;
	unsigned char boot_id[16];
};

struct spool_writer {
	int fd;
	uint64_t last_seq;
	uint64_t size;
	/* what was there when the log was opened again */
	uint64_t stream_bytes[2]; /* stdout, stderr */
	bool cut;                 /* the log cap was reached */
	bool has_start;
	struct spool_start start;
};

struct spool_reader {
	int fd;
	uint64_t offset;
	uint64_t last_seq;
	/* one block read ahead, so that small records do not cost a system call each */
	unsigned char *block;
	size_t block_start;
	size_t block_length;
};

/* The path of a run's folder or file below data_dir; -1 when the id is no UUID. kind is "spool",
 * "artifacts" or "staging". */
int spool_folder(char out[SPOOL_PATH_BYTES], const char *data_dir, const char *kind, const char *id,
		 struct err *e);

/* Makes the folders (mode 2750) and opens the log for writing behind its last whole record. */
int spool_create(struct spool_writer *w, const char *data_dir, const char *id, struct err *e);
/* The id of this boot; zeros when the kernel does not tell. */
void spool_boot_id(unsigned char out[16]);
/* The start record, with this moment in it. */
int spool_append_start(struct spool_writer *w, struct err *e);
/* True when the log was begun in this boot; *out_us is then when its command started. */
bool spool_started_us(const struct spool_writer *w, int64_t *out_us);
/* Appends one record; longer data is the caller's to split. */
int spool_append(struct spool_writer *w, enum spool_kind kind, const void *data, size_t length,
		 struct err *e);
void spool_writer_close(struct spool_writer *w);

/* ERR_NOT_FOUND when the run has no log yet. */
int spool_open(struct spool_reader *r, const char *data_dir, const char *id, struct err *e);
/* 1: a record; 0: no whole record now; -1: read error. */
int spool_next(struct spool_reader *r, struct spool_record *out, struct err *e);
void spool_reader_close(struct spool_reader *r);

/* Removes a run's folder of this kind; a missing one is fine. */
int spool_remove(const char *data_dir, const char *kind, const char *id, struct err *e);

#endif
