/*
 * range.h: the judgement of Range and If-Range (RFC 9110 section 14; the choices are in
 * docs/faces/runs-reference.md): method not GET, unknown unit, stale If-Range: ignored; broken
 * syntax, several ranges, a position beyond 2^63-1: not satisfiable, also on an empty file; an
 * empty file and one well-formed range: the whole; else satisfiable or not by the size.
 */
#ifndef CORDON_HANDLERS_RANGE_H
#define CORDON_HANDLERS_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum range_verdict { RANGE_WHOLE, RANGE_PART, RANGE_REFUSED };

/* range and if_range may be NULL. etag is quoted; modified is an HTTP date. */
enum range_verdict range_judge(bool is_get, const char *range, const char *if_range, uint64_t size,
			       const char *etag, const char *modified);

#endif
