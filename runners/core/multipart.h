/*
 * multipart.h: multipart/form-data (RFC 7578, RFC 2046 section 5.1) as it comes, in pieces of any
 * size, with constant memory.
 *
 *	static const struct multipart_events events = {.begin = ..., .data = ..., .end = ...};
 *	struct multipart m;
 *	if (multipart_init(&m, content_type, &events, ctx, &e) != 0)
 *		... it is no multipart/form-data, or has no good boundary
 *	multipart_feed(&m, bytes, length, &e);		as often as there is something
 *	multipart_finish(&m, &e);			was the closing boundary there?
 *
 * Why not lws_spa: libwebsockets 4.1.6 ends a file name at the first ';' even between quotes, cuts
 * it at 255 bytes and knows no filename*, so files would be stored under names that nobody sent.
 *
 * Names: filename* (RFC 5987, UTF-8 or ISO-8859-1) is taken before filename; in a quoted string
 * \" and \\ stand for " and \, any other backslash for itself (a path of Windows). Nothing else is
 * decoded. The name may hold any bytes but NUL, CR and LF.
 *
 * Every function gives 0, or -1 with ERR_INVALID (malformed: e->shown says how) or what an event
 * gave; after that nothing more may be fed.
 */
#ifndef CORDON_CORE_MULTIPART_H
#define CORDON_CORE_MULTIPART_H

#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define MULTIPART_BOUNDARY_MAX 200
#define MULTIPART_HEADER_BYTES 16384
#define MULTIPART_NAME_BYTES   256
#define MULTIPART_FILE_BYTES   4096

struct multipart_part {
	char name[MULTIPART_NAME_BYTES]; /* of the form's field */
	bool has_filename;
	char filename[MULTIPART_FILE_BYTES];
};

struct multipart_events {
	int (*begin)(void *ctx, const struct multipart_part *part, struct err *e);
	int (*data)(void *ctx, const char *data, size_t length, struct err *e);
	int (*end)(void *ctx, struct err *e);
};

enum multipart_state {
	MULTIPART_PREAMBLE,
	MULTIPART_AFTER,   /* behind a boundary: the end, or a line's end */
	MULTIPART_AFTER_2, /* the second byte of that */
	MULTIPART_HEADER,
	MULTIPART_DATA,
	MULTIPART_EPILOGUE
};

struct multipart {
	const struct multipart_events *events;
	void *ctx;
	enum multipart_state state;
	char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* CR LF - - boundary */
	size_t delimiter_length;
	size_t matched; /* bytes of the delimiter that the last ones were */
	char after;     /* the first byte behind a boundary */
	char header[MULTIPART_HEADER_BYTES + 1];
	size_t header_length;
	struct multipart_part part;
};

int multipart_init(struct multipart *m, const char *content_type,
		   const struct multipart_events *events, void *ctx, struct err *e);
int multipart_feed(struct multipart *m, const char *data, size_t length, struct err *e);
int multipart_finish(const struct multipart *m, struct err *e);

#endif
