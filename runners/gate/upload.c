#include "runners/gate/upload.h"

#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/multipart.h"
#include "runners/core/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define PREFIX       "/internal/upload/"
#define FIELD        "files"
#define AT_ONCE      64U
#define WRITE_BYTES  131072U
#define REASON_BYTES 300U

struct upload {
	struct gate *gate;
	char path[GATE_PATH_BYTES]; /* behind PREFIX: <node>/upload/<id> */
	char args[GATE_ARGS_BYTES];
	char id[IDENT_UUID_SIZE];
	struct multipart form;
	struct upload_parts parts;
	uint64_t bytes; /* of all parts */
	uint64_t part_bytes;
	int folder; /* -1: not made yet */
	int fd;     /* of the part that comes, -1: it is not ours */
	char name[MULTIPART_FILE_BYTES];
	char *block; /* what is not written yet, WRITE_BYTES */
	size_t block_length;
	const char *failed; /* e of the answer; NULL: all is well */
	char reason[REASON_BYTES];
	bool done; /* the folder is the runner's */
};

bool upload_is_path(const char *path)
{
	return str_starts(path, PREFIX);
}

/* --- files ----------------------------------------------------------------------------------- */

static void fail(struct upload *u, const char *how, const struct err *e)
{
	if (u->failed != NULL)
		return;
	u->failed = how;
	(void)snprintf(u->reason, sizeof(u->reason), "%s", e->code == ERR_INVALID ? e->shown : "");
	log_err(LOG_INFO, "upload_refused", e, "upload=%s how=%s", u->id, how);
}

/* Of an error of the file system. */
static const char *how_of(const struct err *e)
{
	if (e->code == ERR_LIMIT)
		return "too_large";
	if (e->code == ERR_INVALID)
		return "form";
	return e->sys == ENOSPC || e->sys == EDQUOT ? "storage" : "internal";
}

static int make_folder(struct upload *u, struct err *e)
{
	char path[SPOOL_PATH_BYTES];
	char parent[SPOOL_PATH_BYTES];

	if (spool_folder(path, u->gate->policy->paths.data, UPLOAD_KIND, u->id, e) != 0)
		return -1;
	(void)snprintf(parent, sizeof(parent), "%s", path);
	*strrchr(parent, '/') = '\0';
	/* the group comes from the folder above (setgid) */
	if ((mkdir(parent, 0770) != 0 && errno != EEXIST) || mkdir(path, 0770) != 0)
		return err_set(e, ERR_IO, errno, "make the folder of an upload");
	u->folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return u->folder < 0 ? err_set(e, ERR_IO, errno, "open the folder of an upload") : 0;
}

static int flush(struct upload *u, struct err *e)
{
	size_t length = u->block_length;

	u->block_length = 0;
	return fd_write_full(u->fd, u->block, length, e);
}

/* --- events of the form ---------------------------------------------------------------------- */

static int on_begin(void *ctx, const struct multipart_part *part, struct err *e)
{
	struct upload *u = ctx;
	char file[24];

	u->fd = -1;
	if (!str_equal(part->name, FIELD))
		return 0; /* another field: not ours */
	if (u->parts.count >= UPLOAD_PARTS_MAX)
		return err_set(e, ERR_LIMIT, 0, "too many parts");
	if (strlen(part->filename) > UPLOAD_NAME_BYTES)
		return err_show(e, ERR_INVALID, "A file name is longer than %d bytes.",
				UPLOAD_NAME_BYTES);
	if (u->folder < 0 && make_folder(u, e) != 0)
		return -1;
	memcpy(u->name, part->filename, sizeof(u->name));
	u->part_bytes = 0;
	(void)snprintf(file, sizeof(file), "%zu", u->parts.count);
	u->fd = openat(u->folder, file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
	return u->fd < 0 ? err_set(e, ERR_IO, errno, "create a part") : 0;
}

static int on_data(void *ctx, const char *data, size_t length, struct err *e)
{
	struct upload *u = ctx;

	if (u->fd < 0)
		return 0;
	u->bytes += length;
	u->part_bytes += length;
	if (u->bytes > (uint64_t)u->gate->policy->sessions.upload_mb << 20)
		return err_set(e, ERR_LIMIT, 0, "the upload is too large");
	while (length > 0) {
		size_t part = WRITE_BYTES - u->block_length;

		part = part < length ? part : length;
		memcpy(u->block + u->block_length, data, part);
		u->block_length += part;
		data += part;
		length -= part;
		if (u->block_length == WRITE_BYTES && flush(u, e) != 0)
			return -1;
	}
	return 0;
}

static int on_end(void *ctx, struct err *e)
{
	struct upload *u = ctx;

	if (u->fd < 0)
		return 0;
	if (flush(u, e) != 0)
		return -1;
	fd_close_at(&u->fd);
	return upload_parts_add(&u->parts, u->name, u->part_bytes, e);
}

static const struct multipart_events events = {.begin = on_begin, .data = on_data, .end = on_end};

/* --- the request ----------------------------------------------------------------------------- */

struct upload *upload_open(struct gate *gate, struct lws *wsi, const char *path, const char *args)
{
	struct upload *u = mem_zalloc(1, sizeof(*u));
	const char *rest = str_after(path, PREFIX);
	const char *last = rest == NULL ? NULL : strrchr(rest, '/');
	char type[1024];
	struct err e = ERR_INIT;

	if (u == NULL)
		return NULL;
	u->gate = gate;
	u->folder = -1;
	u->fd = -1;
	u->block = mem_alloc(WRITE_BYTES);
	gate->upload_count++;
	if (u->block == NULL || last == NULL || !ident_is_uuid(last + 1) ||
	    str_copy(u->path, sizeof(u->path), rest) != 0 ||
	    str_copy(u->args, sizeof(u->args), args) != 0) {
		upload_close(u);
		return NULL;
	}
	memcpy(u->id, last + 1, sizeof(u->id));
	if (gate->upload_count > AT_ONCE) {
		(void)err_set(&e, ERR_LIMIT, 0, "too many uploads at once");
		fail(u, "busy", &e);
	} else if (lws_hdr_copy(wsi, type, sizeof(type), WSI_TOKEN_HTTP_CONTENT_TYPE) < 0) {
		(void)err_show(&e, ERR_INVALID, "The Content-Type is longer than 1023 bytes.");
		fail(u, "form", &e);
	} else if (multipart_init(&u->form, type, &events, u, &e) != 0) {
		fail(u, "form", &e);
	}
	return u;
}

void upload_body(struct upload *u, const char *data, size_t length)
{
	struct err e = ERR_INIT;

	/* after a fault the rest is read and dropped: nginx has it already */
	if (u->failed == NULL && multipart_feed(&u->form, data, length, &e) != 0)
		fail(u, how_of(&e), &e);
}

int upload_finish(struct upload *u, char *url, size_t size)
{
	scope_buf struct buf reason = BUF_NONE;
	struct err e = ERR_INIT;
	int length;

	buf_init(&reason, 3 * REASON_BYTES + 1);
	if (u->failed == NULL && multipart_finish(&u->form, &e) != 0)
		fail(u, "form", &e);
	if (u->failed == NULL && u->parts.count == 0) {
		(void)err_set(&e, ERR_NOT_FOUND, 0, "no part " FIELD);
		fail(u, "no_files", &e);
	}
	if (u->failed == NULL && upload_parts_write(&u->parts, u->folder, &e) != 0)
		fail(u, how_of(&e), &e);
	u->done = u->failed == NULL;
	str_percent_encode(&reason, u->reason, strlen(u->reason), "");
	length = snprintf(url, size, "/internal/render/%s?%s%s%s%s%s", u->path, u->args,
			  u->done ? "" : "&e=", u->done ? "" : u->failed,
			  reason.len == 0 ? "" : "&t=", buf_text(&reason));
	return length < 0 || (size_t)length >= size ? -1 : 0;
}

void upload_drop(struct gate *gate, const char *id)
{
	struct err e = ERR_INIT;

	if (spool_remove(gate->policy->paths.data, UPLOAD_KIND, id, &e) != 0)
		log_err(LOG_WARNING, "upload_files", &e, "upload=%s", id);
}

void upload_close(struct upload *u)
{
	if (u == NULL)
		return;
	fd_close_at(&u->fd);
	if (!u->done && u->folder >= 0)
		upload_drop(u->gate, u->id);
	fd_close_at(&u->folder);
	upload_parts_release(&u->parts);
	u->gate->upload_count--;
	mem_free(u->block);
	mem_free(u);
}
