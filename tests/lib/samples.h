/*
 * samples.h: what a measurement prints: one line of JSON that tests/bench reads.
 *
 *	struct samples s = {0};
 *	samples_room(&s, count);
 *	s.us[s.count++] = took;			   each repetition, good or not
 *	s.good++;				   those that did what they should
 *	samples_print(&s, elapsed_us, NULL);
 *	samples_release(&s);
 *
 * Members: count, good, seconds, per_second (of the good ones), p50, p95, p99, max and took, all
 * repetitions in microseconds, sorted, so that rounds can be joined exactly.
 */
#ifndef CORDON_TESTS_SAMPLES_H
#define CORDON_TESTS_SAMPLES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct samples {
	int64_t *us;
	size_t count;
	size_t good;
};

/* Room for `most`; -1 when memory ends. */
int samples_room(struct samples *s, size_t most);
void samples_release(struct samples *s);
void samples_sort(struct samples *s);
/* Of sorted ones; 0 when there is none. */
int64_t samples_part(const struct samples *s, size_t thousandth);
/* Sorts and prints. `more` (taken; NULL for none): further members. 0, or -1. */
int samples_print(struct samples *s, int64_t elapsed_us, json_t *more);

#endif
