/* The unpacker's input (unpack.h): as it is, or through zlib, which compares length and checksum.
 */
#include "runners/init/unpack.h"

#include "runners/base/mem.h"

#include <archive.h>
#include <errno.h>
#include <unistd.h>
#include <zlib.h>

#define BLOCK_BYTES 65536

struct gunzip {
	z_stream z;
	bool known;  /* whether it is gzip */
	bool packed; /* it is */
	bool member; /* a gzip member has begun and not ended */
	bool end;    /* of stdin */
	unsigned char in[BLOCK_BYTES];
	unsigned char out[BLOCK_BYTES];
};

struct gunzip *gunzip_open(void)
{
	return mem_zalloc(1, sizeof(struct gunzip));
}

/* -1: read(2) failed. */
static int fill(struct gunzip *g, struct archive *a)
{
	ssize_t got;

	do
		got = read(STDIN_FILENO, g->in, sizeof(g->in));
	while (got < 0 && errno == EINTR);
	if (got < 0) {
		archive_set_error(a, errno, "read of the archive");
		return -1;
	}
	g->end = got == 0;
	g->z.next_in = g->in;
	g->z.avail_in = (unsigned int)got;
	if (!g->known && got > 0) {
		g->known = true;
		g->packed = got > 1 && g->in[0] == 0x1f && g->in[1] == 0x8b;
		if (g->packed && inflateInit2(&g->z, 15 + 16) != Z_OK) {
			archive_set_error(a, ENOMEM, "memory");
			return -1;
		}
		g->member = g->packed;
	}
	return 0;
}

static int damaged(struct archive *a, const char *why)
{
	archive_set_error(a, EILSEQ, "%s", why);
	return -1;
}

/* One round of inflate; -1 when the data is damaged. */
static int inflate_some(struct gunzip *g, struct archive *a)
{
	int got;

	if (!g->member) {
		/* a further member, or padding of zeros */
		if (g->z.next_in[0] == 0) {
			g->z.next_in++;
			g->z.avail_in--;
			return 0;
		}
		if (inflateReset(&g->z) != Z_OK)
			return damaged(a, "gzip");
		g->member = true;
	}
	got = inflate(&g->z, Z_NO_FLUSH);
	if (got == Z_STREAM_END)
		g->member = false;
	else if (got == Z_MEM_ERROR)
		archive_set_error(a, ENOMEM, "memory");
	else if (got != Z_OK && got != Z_BUF_ERROR)
		return damaged(a, g->z.msg == NULL ? "damaged gzip data" : g->z.msg);
	return got == Z_MEM_ERROR ? -1 : 0;
}

ssize_t gunzip_read(struct archive *a, void *gunzip, const void **out)
{
	struct gunzip *g = gunzip;

	g->z.next_out = g->out;
	g->z.avail_out = sizeof(g->out);
	while (g->z.avail_out > 0) {
		if (g->z.avail_in == 0 && !g->end && fill(g, a) != 0)
			return -1;
		if (g->z.avail_in == 0 && g->end)
			break;
		if (!g->packed) {
			ssize_t length = (ssize_t)g->z.avail_in;

			*out = g->z.next_in;
			g->z.avail_in = 0;
			return length;
		}
		if (inflate_some(g, a) != 0)
			return -1;
	}
	if (g->packed && g->member && g->end && g->z.avail_out == sizeof(g->out))
		return damaged(a, "truncated gzip input");
	*out = g->out;
	return (ssize_t)(sizeof(g->out) - g->z.avail_out);
}

int gunzip_finish(struct gunzip *g, struct archive *a)
{
	const void *ignored;
	ssize_t got;

	do
		got = gunzip_read(a, g, &ignored);
	while (got > 0);
	return got < 0 ? -1 : 0;
}

void gunzip_close(struct gunzip *g)
{
	if (g->packed)
		(void)inflateEnd(&g->z);
	mem_free(g);
}
