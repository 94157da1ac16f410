/*
 * ident.h: random bytes, object ids and tokens.
 *
 * Object ids are UUID version 7 (RFC 9562): the time in front keeps new rows together in the
 * database's indexes, 74 random bits behind it make an id that cannot be guessed. Ids are checked
 * against a strict pattern before any file or SQL use.
 */
#ifndef CORDON_BASE_IDENT_H
#define CORDON_BASE_IDENT_H

#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define IDENT_UUID_SIZE 37 /* 36 characters and a NUL */

int ident_random(void *out, size_t length, struct err *e) __attribute__((warn_unused_result));
int ident_uuid(char out[IDENT_UUID_SIZE], struct err *e) __attribute__((warn_unused_result));
/* 8-4-4-4-12 lower-case hex digits, nothing else. */
bool ident_is_uuid(const char *text);
/* `digits` random characters of a-z2-7 (5 bits each) and a NUL. */
int ident_token(char *out, size_t digits, struct err *e) __attribute__((warn_unused_result));

#endif
