/*
 * num.h: numbers are parsed whole, within bounds, once. Empty text, a sign, blanks, trailing bytes,
 * overflow or a value outside [lo, hi] is ERR_INVALID with a message that names the field and the
 * bounds.
 */
#ifndef CORDON_BASE_NUM_H
#define CORDON_BASE_NUM_H

#include "runners/base/err.h"

#include <stdint.h>

int num_u64(const char *field, const char *text, uint64_t lo, uint64_t hi, uint64_t *out,
	    struct err *e) __attribute__((warn_unused_result));
/* As num_u64; a leading '-' is allowed. */
int num_i64(const char *field, const char *text, int64_t lo, int64_t hi, int64_t *out,
	    struct err *e) __attribute__((warn_unused_result));

#endif
