/*
 * upload.h: an upload between the gate, which takes its bytes, and the runner, which puts them into
 * a session's workspace: the folder <data>/uploads/<2 hex>/<upload>/ with the files "0", "1", ...
 * (the parts' bytes) and "parts" (their names, JSON), which is written last.
 */
#ifndef CORDON_CORE_UPLOAD_H
#define CORDON_CORE_UPLOAD_H

#include "runners/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define UPLOAD_KIND       "uploads" /* of spool_folder and spool_remove */
#define UPLOAD_MANIFEST   "parts"
#define UPLOAD_PARTS_MAX  1000
#define UPLOAD_NAME_BYTES 1024

/* What a part is, by the end of its name. */
enum upload_form { UPLOAD_FILE, UPLOAD_TAR, UPLOAD_ZIP };

struct upload_part {
	char *name; /* mem; any bytes but NUL; "" was nameless */
	uint64_t size_bytes;
};

struct upload_parts {
	struct upload_part *items; /* mem */
	size_t count;
};

enum upload_form upload_form_of(const char *name);
/* "file", "tar" or "zip": the unpacker's word. */
const char *upload_form_name(enum upload_form form);

/* ERR_LIMIT: too many, or a name that is too long. */
int upload_parts_add(struct upload_parts *parts, const char *name, uint64_t size, struct err *e);
void upload_parts_release(struct upload_parts *parts);

/* The manifest in that folder (a descriptor). */
int upload_parts_write(const struct upload_parts *parts, int folder, struct err *e);
int upload_parts_read(struct upload_parts *out, int folder, struct err *e);

#endif
