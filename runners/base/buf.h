/*
 * buf.h: a growing byte buffer whose maximum is given at birth.
 *
 *	struct buf b;
 *	buf_init(&b, LIMIT_REPLY_BYTES);
 *	buf_addf(&b, "%d", n);
 *	if (!buf_ok(&b)) ... ;	  past the maximum or out of memory: sticky, later adds do nothing
 *	buf_release(&b);
 *
 * data is always NUL terminated once something was added; len does not count the NUL.
 */
#ifndef CORDON_BASE_BUF_H
#define CORDON_BASE_BUF_H

#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data;
	size_t len;
	size_t cap;
	size_t max;
	bool failed;
	bool full; /* failed because of the maximum, not for lack of memory */
};

/* scope_buf struct buf b = BUF_NONE; always with it: an early return releases b before buf_init.
 * `make check` looks. */
#define scope_buf __attribute__((cleanup(buf_release)))
#define BUF_NONE             \
	{                    \
		.data = NULL \
	}

void buf_init(struct buf *b, size_t max_bytes);
void buf_release(struct buf *b);
/* Empties it and clears the failure; keeps the memory. */
void buf_reset(struct buf *b);
/* Makes room for `more` bytes and a NUL; 0 or -1 (then the buffer has failed). */
int buf_reserve(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *data, size_t length);
void buf_add_str(struct buf *b, const char *text);
void buf_add_char(struct buf *b, char c);
void buf_addf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Drops `length` bytes at the front. */
void buf_consume(struct buf *b, size_t length);
bool buf_ok(const struct buf *b);
/* Why it failed: ERR_NONE, ERR_LIMIT (past the maximum) or ERR_NOMEM. */
enum err_code buf_error(const struct buf *b);
/* The text, "" when empty. */
const char *buf_text(const struct buf *b);
/* Hands the bytes to the caller (mem_free), NULL after a failure; the buffer is empty afterwards.
 */
char *buf_steal(struct buf *b, size_t *out_length);

#endif
