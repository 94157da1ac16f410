/*
 * glob.h: shell-style patterns as face 1 has them (Python's fnmatch, with case): `*` and `?` match
 * any character, '/' included; `[seq]` and `[!seq]` with ranges; no escapes; `**` is not special. A
 * character is a whole UTF-8 sequence, or one byte where the text is not UTF-8. An unclosed `[` is
 * itself.
 *
 * One backtrack point, so the time is at most pattern x text. *budget is lowered by the steps
 * taken; at 0 nothing matches any more, so many hostile patterns on many texts cannot stall either.
 */
#ifndef CORDON_BASE_GLOB_H
#define CORDON_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool glob_match(const char *pattern, size_t pattern_length, const char *text, size_t text_length,
		uint64_t *budget);

#endif
