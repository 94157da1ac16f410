/* fuzz_multipart: the first line is the Content-Type, the second byte of what follows the size of
 * the pieces; the events must fit each other. */
#include "runners/core/multipart.h"
#include "tests/lib/test.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct seen {
	int open;
	size_t bytes;
};

static int on_begin(void *ctx, const struct multipart_part *part, struct err *e)
{
	struct seen *s = ctx;

	(void)e;
	if (s->open != 0 || memchr(part->name, 0, sizeof(part->name)) == NULL ||
	    memchr(part->filename, 0, sizeof(part->filename)) == NULL ||
	    strpbrk(part->filename, "\r\n") != NULL)
		abort();
	s->open = 1;
	return 0;
}

static int on_data(void *ctx, const char *data, size_t length, struct err *e)
{
	struct seen *s = ctx;

	(void)e;
	if (s->open != 1 || length == 0)
		abort();
	s->bytes += length + (size_t)(data[0] & 0) + (size_t)(data[length - 1] & 0);
	return 0;
}

static int on_end(void *ctx, struct err *e)
{
	struct seen *s = ctx;

	(void)e;
	if (s->open != 1)
		abort();
	s->open = 0;
	return 0;
}

/* NOLINTNEXTLINE(readability-identifier-naming): the name that libFuzzer calls */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct multipart_events events = {
	    .begin = on_begin, .data = on_data, .end = on_end};
	static struct multipart m;
	const uint8_t *line = memchr(data, '\n', size);
	struct seen seen = {0};
	struct err e = ERR_INIT;
	char type[512];
	size_t piece;
	size_t at;

	if (line == NULL || (size_t)(line - data) >= sizeof(type) ||
	    (size_t)(line - data) + 2 > size)
		return 0;
	memcpy(type, data, (size_t)(line - data));
	type[line - data] = '\0';
	at = (size_t)(line - data) + 2;
	piece = (size_t)line[1] + 1;
	if (multipart_init(&m, type, &events, &seen, &e) != 0)
		return 0;
	for (; at < size; at += piece)
		if (multipart_feed(&m, (const char *)data + at,
				   size - at < piece ? size - at : piece, &e) != 0)
			return 0;
	if (multipart_finish(&m, &e) == 0 && (seen.open != 0 || seen.bytes > size))
		abort();
	return 0;
}
