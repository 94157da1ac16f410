#include "runners/base/buf.h"

#include "runners/base/mem.h"

#include <stdarg.h>

void buf_init(struct buf *b, size_t max_bytes)
{
	memset(b, 0, sizeof(*b));
	b->max = max_bytes;
}

void buf_release(struct buf *b)
{
	mem_free(b->data);
	b->data = NULL;
	b->len = 0;
	b->cap = 0;
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	b->full = false;
	if (b->data != NULL)
		b->data[0] = '\0';
}

int buf_reserve(struct buf *b, size_t more)
{
	size_t need;
	size_t cap;
	char *data;

	if (b->failed)
		return -1;
	if (more > b->max || b->len > b->max - more) {
		b->failed = true;
		b->full = true;
		return -1;
	}
	need = b->len + more + 1;
	if (need <= b->cap)
		return 0;
	cap = b->cap < 64 ? 64 : b->cap;
	while (cap < need)
		cap = cap > b->max / 2 ? b->max + 1 : cap * 2;
	if (cap < need)
		cap = need;
	data = mem_resize(b->data, cap, 1);
	if (data == NULL) {
		b->failed = true;
		return -1;
	}
	b->data = data;
	b->cap = cap;
	return 0;
}

void buf_add(struct buf *b, const void *data, size_t length)
{
	if (buf_reserve(b, length) != 0)
		return;
	if (length > 0)
		memcpy(b->data + b->len, data, length);
	b->len += length;
	b->data[b->len] = '\0';
}

void buf_add_str(struct buf *b, const char *text)
{
	buf_add(b, text, strlen(text));
}

void buf_add_char(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_addf(struct buf *b, const char *format, ...)
{
	va_list args;
	va_list again;
	int length;

	va_start(args, format);
	va_copy(again, args);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (length < 0) {
		b->failed = true;
	} else if (buf_reserve(b, (size_t)length) == 0) {
		(void)vsnprintf(b->data + b->len, (size_t)length + 1, format, again);
		b->len += (size_t)length;
	}
	va_end(again);
}

void buf_consume(struct buf *b, size_t length)
{
	if (length >= b->len) {
		b->len = 0;
	} else {
		memmove(b->data, b->data + length, b->len - length);
		b->len -= length;
	}
	if (b->data != NULL)
		b->data[b->len] = '\0';
}

bool buf_ok(const struct buf *b)
{
	return !b->failed;
}

enum err_code buf_error(const struct buf *b)
{
	if (!b->failed)
		return ERR_NONE;
	return b->full ? ERR_LIMIT : ERR_NOMEM;
}

const char *buf_text(const struct buf *b)
{
	return b->data == NULL ? "" : b->data;
}

char *buf_steal(struct buf *b, size_t *out_length)
{
	char *data;

	if (b->failed || buf_reserve(b, 0) != 0) {
		buf_release(b);
		return NULL;
	}
	data = b->data;
	data[b->len] = '\0';
	if (out_length != NULL)
		*out_length = b->len;
	b->data = NULL;
	b->len = 0;
	b->cap = 0;
	return data;
}
