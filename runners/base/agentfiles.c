#include "runners/base/agentfiles.h"

#include "runners/base/str.h"
#include "runners/base/wire.h"

/* Payload: u32 uid, u32 gid, then by type. */
#define NAME_REQUEST_BYTES ((size_t)LIMIT_PATH_BYTES * 2 + 64)
#define INFO_FIXED_BYTES   (1 + 4 * 4 + 6 * 8 + 4)

static uint16_t flags_of(uint16_t type)
{
	switch (type) {
	case AGENT_REMOVE:
		return AGENT_F_RECURSIVE;
	case AGENT_MKDIR:
		return AGENT_F_PARENTS;
	default:
		return 0;
	}
}

/* Whether the workspace itself can be meant. */
static bool whole_ok(const struct agent_name_request *want)
{
	return want->type == AGENT_LIST || want->type == AGENT_STAT ||
	       (want->type == AGENT_REMOVE && (want->flags & AGENT_F_RECURSIVE) != 0);
}

static int judge(const struct agent_name_request *want, struct err *e)
{
	if (want->type < AGENT_LIST || want->type > AGENT_RENAME)
		return err_set(e, ERR_INVALID, 0, "type %u is about no name", want->type);
	if ((want->flags & ~flags_of(want->type)) != 0)
		return err_set(e, ERR_INVALID, 0, "a flag that this request does not have");
	if (!(want->path[0] == '\0' && whole_ok(want)) &&
	    !agent_path_ok(want->path, strlen(want->path)))
		return err_set(e, ERR_INVALID, 0, "not a relative path");
	if (want->type == AGENT_RENAME && !agent_path_ok(want->to, strlen(want->to)))
		return err_set(e, ERR_INVALID, 0, "not a relative path to rename to");
	if (want->uid > 65534 || want->gid > 65534 || want->mode > 0777)
		return err_set(e, ERR_INVALID, 0, "a value of the request is out of range");
	return 0;
}

int agent_put_name_request(struct buf *b, uint32_t client, uint32_t tag,
			   const struct agent_name_request *want, struct err *e)
{
	scope_buf struct buf raw = BUF_NONE;
	struct agent_header head = {
	    .type = want->type, .flags = want->flags, .client = client, .channel = tag};

	if (judge(want, e) != 0)
		return -1;
	buf_init(&raw, NAME_REQUEST_BYTES);
	wire_put_u32(&raw, want->uid);
	wire_put_u32(&raw, want->gid);
	if (want->type == AGENT_LIST)
		wire_put_u64(&raw, want->limit);
	if (want->type == AGENT_MKDIR)
		wire_put_u32(&raw, want->mode);
	wire_put_text(&raw, want->path);
	if (want->type == AGENT_RENAME)
		wire_put_text(&raw, want->to);
	if (!buf_ok(&raw))
		return err_set(e, ERR_NOMEM, 0, "no memory for a request");
	agent_put(b, &head, raw.data, raw.len);
	return 0;
}

/* Copies a path that fits and has no NUL. */
static bool get_path(struct wire_reader *r, char out[LIMIT_PATH_BYTES + 1])
{
	size_t length;
	const char *path = wire_get_bytes(r, &length);

	if (length > LIMIT_PATH_BYTES || memchr(path, '\0', length) != NULL)
		return false;
	memcpy(out, path, length);
	out[length] = '\0';
	return true;
}

int agent_get_name_request(const struct agent_frame *f, struct agent_name_request *out,
			   struct err *e)
{
	struct wire_reader r;
	bool good;

	memset(out, 0, sizeof(*out));
	out->type = f->head.type;
	out->flags = f->head.flags;
	wire_reader_init(&r, f->payload, f->head.length);
	out->uid = wire_get_u32(&r);
	out->gid = wire_get_u32(&r);
	if (out->type == AGENT_LIST)
		out->limit = wire_get_u64(&r);
	if (out->type == AGENT_MKDIR)
		out->mode = wire_get_u32(&r);
	good = get_path(&r, out->path);
	if (out->type == AGENT_RENAME)
		good &= get_path(&r, out->to);
	if (!wire_done(&r))
		return err_set(e, ERR_PROTOCOL, 0, "a malformed request of type %u", out->type);
	if (!good)
		return err_set(e, ERR_INVALID, 0, "not a relative path");
	return judge(out, e);
}

void agent_put_info(struct buf *b, const struct agent_header *request,
		    const struct agent_info *info)
{
	unsigned char raw[INFO_FIXED_BYTES + AGENT_NAME_BYTES];
	struct agent_header head = *request;
	const uint32_t words[] = {info->mode, info->uid, info->gid, info->links};
	const uint64_t numbers[] = {info->inode,
				    info->size,
				    info->allocated,
				    (uint64_t)info->mtime_us,
				    (uint64_t)info->ctime_us,
				    (uint64_t)info->atime_us};
	size_t at = 0;

	if (info->name_length > AGENT_NAME_BYTES) {
		b->failed = true;
		return;
	}
	head.type = AGENT_INFO;
	raw[at++] = (unsigned char)info->kind;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++, at += 4)
		wire_store_u32(raw + at, words[i]);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++, at += 8)
		wire_store_u64(raw + at, numbers[i]);
	wire_store_u32(raw + at, (uint32_t)info->name_length);
	at += 4;
	memcpy(raw + at, info->name, info->name_length);
	agent_put(b, &head, raw, at + info->name_length);
}

static bool name_ok(const char *name, size_t length)
{
	return length == 0 || (length <= AGENT_NAME_BYTES && memchr(name, '/', length) == NULL &&
			       agent_path_ok(name, length));
}

int agent_get_info(const struct agent_frame *f, struct agent_info *out, struct err *e)
{
	struct wire_reader r;
	uint8_t kind;

	memset(out, 0, sizeof(*out));
	wire_reader_init(&r, f->payload, f->head.length);
	kind = wire_get_u8(&r);
	out->mode = wire_get_u32(&r);
	out->uid = wire_get_u32(&r);
	out->gid = wire_get_u32(&r);
	out->links = wire_get_u32(&r);
	out->inode = wire_get_u64(&r);
	out->size = wire_get_u64(&r);
	out->allocated = wire_get_u64(&r);
	out->mtime_us = (int64_t)wire_get_u64(&r);
	out->ctime_us = (int64_t)wire_get_u64(&r);
	out->atime_us = (int64_t)wire_get_u64(&r);
	out->name = wire_get_bytes(&r, &out->name_length);
	if (!wire_done(&r))
		return err_set(e, ERR_PROTOCOL, 0, "a malformed INFO frame");
	if (kind >= AGENT_KIND__MAX || out->mode > 07777 || out->size > INT64_MAX ||
	    out->allocated > INT64_MAX || !name_ok(out->name, out->name_length))
		return err_set(e, ERR_PROTOCOL, 0, "an INFO frame with values out of range");
	out->kind = (enum agent_kind)kind;
	return 0;
}
