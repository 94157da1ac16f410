/*
 * str.h: text helpers: bounded copies, UTF-8, hex, base64 (RFC 4648), percent encoding (RFC 3986).
 *
 * No function here allocates; what grows goes into a struct buf of the caller.
 */
#ifndef CORDON_BASE_STR_H
#define CORDON_BASE_STR_H

#include "runners/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Copies text into out (size bytes); -1 and an empty string when it does not fit. */
int str_copy(char *out, size_t size, const char *text) __attribute__((warn_unused_result));
bool str_equal(const char *a, const char *b);
bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);
/* Compares ASCII letters without case. */
bool str_equal_nocase(const char *a, const char *b);
/* The rest of text behind prefix, or NULL. */
const char *str_after(const char *text, const char *prefix);
/* Equal bytes in a time that depends on length only. */
bool str_equal_constant_time(const void *a, const void *b, size_t length);

/*
 * The length of the longest prefix of data that is whole, valid UTF-8 (RFC 3629: no surrogates, no
 * overlong forms). *out_bad is false when the rest (0 to 3 bytes) may still become a character when
 * more bytes come.
 */
size_t str_utf8_prefix(const void *data, size_t length, bool *out_bad);
bool str_utf8_valid(const void *data, size_t length);

/* Lower-case hex; out needs 2 * length + 1 bytes. */
void str_hex(char *out, const void *data, size_t length);
/* Exactly `size` bytes from 2 * size hex digits; 0 or -1. */
int str_unhex(void *out, size_t size, const char *text);

void str_base64(struct buf *out, const void *data, size_t length);
/* Strict: padding required, no white space, no stray bits; 0 or -1. */
int str_unbase64(struct buf *out, const char *text, size_t length);

/* Percent-encodes every byte but the unreserved ones and those in `keep`. */
void str_percent_encode(struct buf *out, const void *data, size_t length, const char *keep);
/* Decodes once; -1 on a broken escape. NUL bytes come out as they are: the caller judges. */
int str_percent_decode(struct buf *out, const char *text, size_t length);

#endif
