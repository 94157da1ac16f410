/*
 * json.h: the one place that reads and writes JSON (jansson 2.14).
 *
 * json_parse is strict: UTF-8, no duplicate keys, no trailing bytes, no NUL in keys, no lone
 * surrogates, an object at the top, at most LIMIT_JSON_DEPTH levels. A string may hold a NUL:
 * json_text gives NULL for it. Its refusals are ERR_INVALID with a text for
 * the client. A number that fits no 64-bit integer or double is ERR_LIMIT, with the name of its
 * field in `shown`, so that the caller can answer with the field.
 *
 * json_canonical writes sorted keys, no blanks, non-ASCII as \uXXXX, reals as Python's json does
 * (the fewest digits that read back equal, 1.0 keeps its ".0"): the text that fingerprints and
 * policy hashes are made of.
 *
 * scope_json releases a reference at the end of the block. Everything else is jansson's own API
 * with its ownership names: *_set_new and pack "o" steal, the others do not.
 */
#ifndef CORDON_CORE_JSON_H
#define CORDON_CORE_JSON_H

#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <jansson.h>

static inline void json_scope_decref(json_t **where)
{
	json_decref(*where);
	*where = NULL;
}

#define scope_json __attribute__((cleanup(json_scope_decref)))

/* Makes jansson use mem_alloc and mem_free; once per program. */
void json_setup(void);

int json_parse(const char *text, size_t length, json_t **out, struct err *e)
    __attribute__((warn_unused_result));

/* The text of a string without NUL, else NULL. */
const char *json_text(const json_t *value);

/* Appends compact JSON; -1 (ERR_NOMEM or ERR_LIMIT) when it does not fit. */
int json_write(struct buf *out, const json_t *value, struct err *e);
int json_canonical(struct buf *out, const json_t *value, struct err *e);

/* A copy of value without null members of objects, recursively. */
json_t *json_without_nulls(const json_t *value);

/* SHA-256 over canonical JSON. */
int json_fingerprint(const json_t *value, unsigned char out[32], struct err *e);

#endif
