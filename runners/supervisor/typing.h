/*
 * typing.h: the four limits of an interactive run's input, apart from where it comes from.
 *
 * A client's frame is judged in order: its own size, the rate (a bucket of one second's bytes that
 * starts full), all bytes of the run. What is within all of them is a prefix of the frame and is
 * taken; the rest of that frame is dropped, and the first limit that was hit is the reason. A frame
 * may come in pieces. The clock of the idle limit starts with the command and again with every
 * byte that was taken; it strikes once.
 */
#ifndef CORDON_SUPERVISOR_TYPING_H
#define CORDON_SUPERVISOR_TYPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -1: no limit. */
struct typing_limits {
	int64_t max_bytes;
	int64_t max_frame_bytes;
	int64_t bytes_per_second;
	int64_t idle_sec; /* 0 is no limit, too */
};

struct typing {
	struct typing_limits limits;
	uint64_t taken; /* over all connections */
	int64_t tokens;
	int64_t tokens_us;  /* up to then they are counted */
	int64_t idle_at_us; /* INT64_MAX: no clock runs */
};

/* A client's frame while its pieces come in; zeroed at its first. */
struct typing_frame {
	uint64_t taken;
	bool cut; /* the rest of it is dropped */
};

/* taken: what an earlier runner took. */
void typing_begin(struct typing *t, const struct typing_limits *limits, uint64_t taken,
		  int64_t now_us);
/* How much of a piece is taken. *out_reason: why not all, at the first cut of a frame, else NULL.
 */
size_t typing_judge(struct typing *t, struct typing_frame *frame, size_t length, int64_t now_us,
		    const char **out_reason);
/* True when the idle limit has struck; the clock is stopped then. */
bool typing_is_idle(struct typing *t, int64_t now_us);

#endif
