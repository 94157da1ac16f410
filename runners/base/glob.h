/*
 * glob.h: shell-style patterns as face 1 has them (Python's fnmatch, with case): `*` and `?` match
 * any character, '/' included; `[seq]` and `[!seq]` with ranges; no escapes; `**` is not special. A
 * character is a whole UTF-8 sequence, or one byte where the text is not UTF-8. An unclosed `[` is
 * itself.
 *
 * One backtrack point, so the time is at most pattern x text: a hostile pattern cannot stall.
 */
#ifndef CORDON_BASE_GLOB_H
#define CORDON_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

bool glob_match(const char *pattern, size_t pattern_length, const char *text, size_t text_length);

#endif
