/*
 * output.h: what a run prints, into its spool: cut into records, text frames kept whole, the cap,
 * heartbeats.
 *
 * Bytes are untouched. A record never ends inside a UTF-8 character if the rest of it comes within
 * OUTPUT_HOLD_US: the incomplete tail (at most 3 bytes a stream) waits that long. Past the cap
 * everything is counted and dropped, and one `truncated` record says so.
 */
#ifndef CORDON_SUPERVISOR_OUTPUT_H
#define CORDON_SUPERVISOR_OUTPUT_H

#include "runners/core/spool.h"

#define OUTPUT_HOLD_US (50 * 1000LL)

struct output_tail {
	unsigned char bytes[4];
	size_t length;
	int64_t since_us;
};

struct output {
	struct spool_writer spool;
	uint64_t cap_bytes;
	uint64_t kept_bytes; /* in the spool */
	uint64_t seen_bytes; /* all that was printed */
	bool truncated;
	struct output_tail tails[2]; /* stdout, stderr */
	int64_t heartbeat_gap_us;    /* the policy's; set before output_start */
	int64_t heartbeat_us;        /* when the next one is due; 0: none */
};

/* Opens the log; one that an earlier runner began is continued (out->spool tells what is there). */
int output_open(struct output *out, const char *data_dir, const char *run_id, uint64_t cap_bytes,
		int64_t heartbeat_gap_us, struct err *e);
void output_close(struct output *out);
/* The start record; heartbeats begin. */
int output_start(struct output *out, int64_t now_us, struct err *e);
/* Bytes of a stream (0, 1) that are not in the spool yet: at most 3, they must not be acknowledged.
 */
size_t output_waiting(const struct output *out, int stream);
/* stream 0 stdout, 1 stderr. *out_changed: records were written. */
int output_bytes(struct output *out, int stream, const void *data, size_t length, int64_t now_us,
		 bool *out_changed, struct err *e);
/* A truncated record with a reason of face 1. */
int output_truncated(struct output *out, const char *reason, struct err *e);
/* Writes tails that waited long enough (all with `everything`) and a due heartbeat. */
int output_tick(struct output *out, int64_t now_us, bool everything, bool *out_changed,
		struct err *e);
/* When output_tick has something to do next; INT64_MAX if never. */
int64_t output_due_us(const struct output *out);

#endif
