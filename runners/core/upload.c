#include "runners/core/upload.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

#include <errno.h>
#include <fcntl.h>

#define MANIFEST_BYTES (4U << 20)

enum upload_form upload_form_of(const char *name)
{
	static const char *const tars[] = {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2"};
	size_t length = strlen(name);

	for (size_t i = 0; i < ARRAY_LEN(tars); i++)
		if (length > strlen(tars[i]) &&
		    str_equal_nocase(name + length - strlen(tars[i]), tars[i]))
			return UPLOAD_TAR;
	return length > 4 && str_equal_nocase(name + length - 4, ".zip") ? UPLOAD_ZIP : UPLOAD_FILE;
}

const char *upload_form_name(enum upload_form form)
{
	return form == UPLOAD_TAR ? "tar" : form == UPLOAD_ZIP ? "zip" : "file";
}

int upload_parts_add(struct upload_parts *parts, const char *name, uint64_t size, struct err *e)
{
	struct upload_part *more;

	if (parts->count >= UPLOAD_PARTS_MAX || strlen(name) > UPLOAD_NAME_BYTES)
		return err_set(e, ERR_LIMIT, 0, "too many parts, or a name that is too long");
	more = mem_zalloc(parts->count + 1, sizeof(*more));
	if (more == NULL)
		return err_set(e, ERR_NOMEM, 0, "parts");
	if (parts->count > 0)
		memcpy(more, parts->items, parts->count * sizeof(*more));
	more[parts->count] = (struct upload_part){.name = mem_dup(name), .size_bytes = size};
	mem_free(parts->items);
	parts->items = more;
	if (more[parts->count].name == NULL)
		return err_set(e, ERR_NOMEM, 0, "parts");
	parts->count++;
	return 0;
}

void upload_parts_release(struct upload_parts *parts)
{
	for (size_t i = 0; i < parts->count; i++)
		mem_free(parts->items[i].name);
	mem_free(parts->items);
	memset(parts, 0, sizeof(*parts));
}

/* Names are any bytes, so they stand there as base64. */
static json_t *encode(const struct upload_parts *parts)
{
	json_t *list = json_array();

	for (size_t i = 0; i < parts->count; i++) {
		const struct upload_part *part = &parts->items[i];
		scope_buf struct buf name = BUF_NONE;

		buf_init(&name, 2 * UPLOAD_NAME_BYTES);
		str_base64(&name, part->name, strlen(part->name));
		if (!buf_ok(&name) ||
		    json_array_append_new(list, json_pack("{s:s, s:I}", "name_base64",
							  buf_text(&name), "size_bytes",
							  (json_int_t)part->size_bytes)) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{s:o}", "parts", list);
}

int upload_parts_write(const struct upload_parts *parts, int folder, struct err *e)
{
	scope_json json_t *all = encode(parts);
	scope_buf struct buf text = BUF_NONE;
	scope_close int fd = -1;

	buf_init(&text, MANIFEST_BYTES);
	if (all == NULL)
		return err_set(e, ERR_NOMEM, 0, "parts");
	if (json_write(&text, all, e) != 0)
		return -1;
	fd = openat(folder, UPLOAD_MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	if (fd < 0)
		return err_set(e, ERR_IO, errno, "create the list of parts");
	if (fd_write_full(fd, text.data, text.len, e) != 0)
		return -1;
	return 0;
}

static int decode_part(const json_t *item, struct upload_parts *out, struct err *e)
{
	const json_t *size = json_object_get(item, "size_bytes");
	const char *name = json_text(json_object_get(item, "name_base64"));
	scope_buf struct buf bytes = BUF_NONE;

	buf_init(&bytes, UPLOAD_NAME_BYTES + 1);
	if (name == NULL || !json_is_integer(size) || json_integer_value(size) < 0 ||
	    str_unbase64(&bytes, name, strlen(name)) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "a part without name or size");
	buf_add(&bytes, "", 1);
	if (!buf_ok(&bytes) || strlen(bytes.data) + 1 != bytes.len)
		return err_set(e, ERR_PROTOCOL, 0, "the name of a part");
	return upload_parts_add(out, bytes.data, (uint64_t)json_integer_value(size), e);
}

int upload_parts_read(struct upload_parts *out, int folder, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;
	scope_json json_t *all = NULL;
	const json_t *list;

	memset(out, 0, sizeof(*out));
	buf_init(&text, MANIFEST_BYTES);
	if (fd_read_file(folder, UPLOAD_MANIFEST, &text, e) != 0 ||
	    json_parse(buf_text(&text), text.len, &all, e) != 0)
		return -1;
	list = json_object_get(all, "parts");
	for (size_t i = 0; i < json_array_size(list); i++) {
		if (decode_part(json_array_get(list, i), out, e) != 0) {
			upload_parts_release(out);
			return -1;
		}
	}
	return 0;
}
