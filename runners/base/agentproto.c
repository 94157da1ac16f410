#include "runners/base/agentproto.h"

#include "runners/base/str.h"
#include "runners/base/wire.h"

static void store_header(unsigned char raw[AGENT_HEADER_BYTES], const struct agent_header *head)
{
	wire_store_u32(raw, head->length);
	wire_store_u32(raw + 4, (uint32_t)head->type | (uint32_t)head->flags << 16);
	wire_store_u32(raw + 8, head->client);
	wire_store_u32(raw + 12, head->channel);
	wire_store_u64(raw + 16, head->offset);
}

int agent_peek(const void *data, size_t length, struct agent_frame *out, struct err *e)
{
	const unsigned char *raw = data;
	uint32_t mixed;
	struct agent_header head;

	if (length < AGENT_HEADER_BYTES)
		return 0;
	mixed = wire_load_u32(raw + 4);
	head.length = wire_load_u32(raw);
	head.type = (uint16_t)mixed;
	head.flags = (uint16_t)(mixed >> 16);
	head.client = wire_load_u32(raw + 8);
	head.channel = wire_load_u32(raw + 12);
	head.offset = wire_load_u64(raw + 16);
	if (head.length > LIMIT_FRAME_BYTES)
		return err_set(e, ERR_PROTOCOL, 0, "a frame of %u bytes is too long", head.length);
	if (length - AGENT_HEADER_BYTES < head.length)
		return 0;
	out->head = head;
	out->payload = raw + AGENT_HEADER_BYTES;
	return 1;
}

/* Appends a header with a length still open; frame_end closes it. */
static size_t frame_begin(struct buf *b, uint16_t type, uint16_t flags, uint32_t client,
			  uint32_t channel, uint64_t offset)
{
	unsigned char raw[AGENT_HEADER_BYTES];
	size_t start = b->len;
	struct agent_header head = {
	    .type = type, .flags = flags, .client = client, .channel = channel, .offset = offset};

	store_header(raw, &head);
	buf_add(b, raw, sizeof(raw));
	return start;
}

static void frame_end(struct buf *b, size_t start)
{
	size_t length;

	if (!buf_ok(b))
		return;
	length = b->len - start - AGENT_HEADER_BYTES;
	if (length > LIMIT_FRAME_BYTES) {
		b->failed = true;
		return;
	}
	wire_store_u32((unsigned char *)b->data + start, (uint32_t)length);
}

static size_t answer_begin(struct buf *b, uint16_t type, const struct agent_header *request)
{
	return frame_begin(b, type, request->flags, request->client, request->channel,
			   request->offset);
}

static int done(const struct wire_reader *r, const char *what, struct err *e)
{
	if (!wire_done(r))
		return err_set(e, ERR_PROTOCOL, 0, "a malformed %s frame", what);
	return 0;
}

static void reader(struct wire_reader *r, const struct agent_frame *f)
{
	wire_reader_init(r, f->payload, f->head.length);
}

void agent_put(struct buf *b, const struct agent_header *head, const void *payload, size_t length)
{
	size_t start =
	    frame_begin(b, head->type, head->flags, head->client, head->channel, head->offset);

	buf_add(b, payload, length);
	frame_end(b, start);
}

void agent_put_hello(struct buf *b, uint32_t client, uint32_t version)
{
	size_t start = frame_begin(b, AGENT_HELLO, 0, client, 0, 0);

	wire_put_u32(b, version);
	frame_end(b, start);
}

int agent_get_hello(const struct agent_frame *f, uint32_t *out_version, struct err *e)
{
	struct wire_reader r;
	uint32_t version;

	reader(&r, f);
	version = wire_get_u32(&r);
	if (done(&r, "HELLO", e) != 0)
		return -1;
	*out_version = version;
	return 0;
}

/* --- EXEC ----------------------------------------------------------------------------------- */

/* Text with its NUL, so that the receiver can use it in place. */
static void put_text0(struct buf *b, const char *text)
{
	wire_put_bytes(b, text, strlen(text) + 1);
}

static const char *get_text0(struct wire_reader *r)
{
	size_t length;
	const char *text = wire_get_bytes(r, &length);

	if (length == 0 || memchr(text, '\0', length) != text + length - 1) {
		r->failed = true;
		return NULL;
	}
	return text;
}

static int put_list(struct buf *b, char *const *list, size_t max, const char *what, struct err *e)
{
	size_t count = 0;

	while (list[count] != NULL)
		count++;
	if (count > max)
		return err_set(e, ERR_LIMIT, 0, "%s has more than %zu items", what, max);
	wire_put_u32(b, (uint32_t)count);
	for (size_t i = 0; i < count; i++)
		put_text0(b, list[i]);
	return 0;
}

int agent_put_exec(struct buf *b, uint32_t client, uint32_t channel, const struct agent_exec *spec,
		   struct err *e)
{
	struct buf raw scope_buf;
	size_t at = 0;

	buf_init(&raw, AGENT_EXEC_BYTES);
	wire_put_u8(&raw, spec->stdin_mode);
	wire_put_u8(&raw, spec->pty);
	wire_put_u16(&raw, spec->rows);
	wire_put_u16(&raw, spec->cols);
	wire_put_u16(&raw, 0);
	wire_put_u32(&raw, spec->uid);
	wire_put_u32(&raw, spec->gid);
	wire_put_u32(&raw, spec->grace_ms);
	wire_put_u64(&raw, spec->nofile);
	wire_put_u64(&raw, spec->nproc);
	wire_put_u64(&raw, spec->core_bytes);
	put_text0(&raw, spec->cwd);
	if (put_list(&raw, spec->argv, LIMIT_COMMAND_ITEMS, "argv", e) != 0 ||
	    put_list(&raw, spec->env, AGENT_MAX_ENV, "env", e) != 0)
		return -1;
	if (!buf_ok(&raw))
		return err_set(e, ERR_LIMIT, 0, "the command is longer than %zu bytes", raw.max);
	do {
		size_t part = raw.len - at;
		uint16_t flags = spec->unpack ? AGENT_F_UNPACK : 0;
		size_t start;

		if (part > LIMIT_FRAME_BYTES) {
			part = LIMIT_FRAME_BYTES;
			flags |= AGENT_F_MORE;
		}
		start = frame_begin(b, AGENT_EXEC, flags, client, channel, at);
		buf_add(b, raw.data + at, part);
		frame_end(b, start);
		at += part;
	} while (at < raw.len);
	return 0;
}

/* Reads a list into pointers[0..] and ends it with NULL; the count, or -1. */
static ssize_t get_list(struct wire_reader *r, char *base, size_t length, char **pointers,
			size_t max)
{
	uint32_t count = wire_get_u32(r);

	if (count > max)
		return -1;
	for (uint32_t i = 0; i < count; i++) {
		const char *text = get_text0(r);
		size_t offset;

		if (text == NULL)
			return -1;
		offset = (size_t)(text - base);
		if (offset >= length)
			return -1;
		pointers[i] = base + offset;
	}
	pointers[count] = NULL;
	return (ssize_t)count;
}

int agent_exec_parse(char *bytes, size_t length, char **pointers, struct agent_exec *out,
		     struct err *e)
{
	struct wire_reader r;
	struct agent_exec spec;
	uint16_t reserved;
	ssize_t argc;
	ssize_t envc;

	memset(&spec, 0, sizeof(spec));
	wire_reader_init(&r, bytes, length);
	spec.stdin_mode = wire_get_u8(&r);
	spec.pty = wire_get_u8(&r);
	spec.rows = wire_get_u16(&r);
	spec.cols = wire_get_u16(&r);
	reserved = wire_get_u16(&r);
	spec.uid = wire_get_u32(&r);
	spec.gid = wire_get_u32(&r);
	spec.grace_ms = wire_get_u32(&r);
	spec.nofile = wire_get_u64(&r);
	spec.nproc = wire_get_u64(&r);
	spec.core_bytes = wire_get_u64(&r);
	spec.cwd = get_text0(&r);
	argc = get_list(&r, bytes, length, pointers, LIMIT_COMMAND_ITEMS);
	if (argc < 1 || spec.cwd == NULL)
		return err_set(e, ERR_PROTOCOL, 0, "a malformed EXEC frame");
	envc = get_list(&r, bytes, length, pointers + argc + 1, AGENT_MAX_ENV);
	if (envc < 0 || done(&r, "EXEC", e) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "a malformed EXEC frame");
	if (spec.stdin_mode > AGENT_STDIN_STREAM || spec.grace_ms > AGENT_GRACE_MAX_MS ||
	    spec.uid > 65534 || spec.gid > 65534 || spec.pty > 1 || reserved != 0)
		return err_set(e, ERR_INVALID, 0, "a value of the command is out of range");
	if (spec.pty == 0 && (spec.rows != 0 || spec.cols != 0))
		return err_set(e, ERR_INVALID, 0, "the size of a terminal without one");
	spec.argv = pointers;
	spec.env = pointers + argc + 1;
	*out = spec;
	return 0;
}

/* --- small requests ------------------------------------------------------------------------- */

void agent_put_signal(struct buf *b, uint32_t client, uint32_t channel, bool all, int number)
{
	size_t start = frame_begin(b, AGENT_SIGNAL, all ? AGENT_F_ALL : 0, client, channel, 0);

	wire_put_u32(b, (uint32_t)number);
	frame_end(b, start);
}

int agent_get_signal(const struct agent_frame *f, int *out_number, struct err *e)
{
	struct wire_reader r;
	uint32_t number;

	reader(&r, f);
	number = wire_get_u32(&r);
	if (done(&r, "SIGNAL", e) != 0)
		return -1;
	if (number < 1 || number > 64)
		return err_set(e, ERR_INVALID, 0, "no signal %u", number);
	*out_number = (int)number;
	return 0;
}

void agent_put_resize(struct buf *b, uint32_t client, uint32_t channel, uint16_t rows,
		      uint16_t cols)
{
	size_t start = frame_begin(b, AGENT_RESIZE, 0, client, channel, 0);

	wire_put_u16(b, rows);
	wire_put_u16(b, cols);
	frame_end(b, start);
}

int agent_get_resize(const struct agent_frame *f, uint16_t *out_rows, uint16_t *out_cols,
		     struct err *e)
{
	struct wire_reader r;
	uint16_t rows;
	uint16_t cols;

	reader(&r, f);
	rows = wire_get_u16(&r);
	cols = wire_get_u16(&r);
	if (done(&r, "RESIZE", e) != 0)
		return -1;
	if (f->head.flags != 0)
		return err_set(e, ERR_INVALID, 0, "RESIZE has no flags");
	*out_rows = rows;
	*out_cols = cols;
	return 0;
}

int agent_put_file_write(struct buf *b, uint32_t client, uint32_t tag, uint64_t offset, bool last,
			 const struct agent_file_write *part, struct err *e)
{
	size_t start;

	if (part->length > AGENT_WRITE_CHUNK)
		return err_set(e, ERR_LIMIT, 0, "more than %u file bytes in one frame",
			       AGENT_WRITE_CHUNK);
	if (!agent_path_ok(part->path, strlen(part->path)))
		return err_set(e, ERR_INVALID, 0, "not a relative path: %s", part->path);
	start = frame_begin(b, AGENT_FILE_WRITE, last ? AGENT_F_LAST : 0, client, tag, offset);
	wire_put_u32(b, part->mode);
	wire_put_u32(b, part->uid);
	wire_put_u32(b, part->gid);
	put_text0(b, part->path);
	wire_put_bytes(b, part->data, part->length);
	frame_end(b, start);
	return 0;
}

int agent_get_file_write(const struct agent_frame *f, struct agent_file_write *out, struct err *e)
{
	struct wire_reader r;
	struct agent_file_write part;

	reader(&r, f);
	part.mode = wire_get_u32(&r);
	part.uid = wire_get_u32(&r);
	part.gid = wire_get_u32(&r);
	part.path = get_text0(&r);
	part.data = wire_get_bytes(&r, &part.length);
	if (done(&r, "FILE_WRITE", e) != 0)
		return -1;
	if (part.path == NULL || !agent_path_ok(part.path, strlen(part.path)))
		return err_set(e, ERR_INVALID, 0, "not a relative path");
	if (part.uid > 65534 || part.gid > 65534 || f->head.offset > INT64_MAX - part.length)
		return err_set(e, ERR_INVALID, 0, "a value of the file is out of range");
	*out = part;
	return 0;
}

int agent_put_collect(struct buf *b, uint32_t client, uint32_t tag, uint32_t uid, uint32_t gid,
		      const char *const *patterns, size_t count, struct err *e)
{
	size_t start;

	if (count > LIMIT_PATTERNS)
		return err_set(e, ERR_LIMIT, 0, "more than %d patterns", LIMIT_PATTERNS);
	start = frame_begin(b, AGENT_COLLECT, 0, client, tag, 0);
	wire_put_u32(b, uid);
	wire_put_u32(b, gid);
	wire_put_u32(b, (uint32_t)count);
	for (size_t i = 0; i < count; i++) {
		if (strlen(patterns[i]) > LIMIT_PATTERN_BYTES)
			b->failed = true;
		wire_put_text(b, patterns[i]);
	}
	frame_end(b, start);
	return 0;
}

int agent_put_file_read(struct buf *b, uint32_t client, uint32_t tag, uint32_t uid, uint32_t gid,
			const char *path, size_t path_length, uint64_t offset, uint64_t length,
			struct err *e)
{
	size_t start;

	if (!agent_path_ok(path, path_length))
		return err_set(e, ERR_INVALID, 0, "not a relative path");
	start = frame_begin(b, AGENT_FILE_READ, 0, client, tag, offset);
	wire_put_u32(b, uid);
	wire_put_u32(b, gid);
	wire_put_u64(b, length);
	wire_put_bytes(b, path, path_length);
	frame_end(b, start);
	return 0;
}

int agent_get_file_read(const struct agent_frame *f, struct agent_file_read *out, struct err *e)
{
	struct wire_reader r;
	const char *path;
	size_t length;

	reader(&r, f);
	out->uid = wire_get_u32(&r);
	out->gid = wire_get_u32(&r);
	out->length = wire_get_u64(&r);
	path = wire_get_bytes(&r, &length);
	if (done(&r, "FILE_READ", e) != 0)
		return -1;
	if (!agent_path_ok(path, length) || out->uid > 65534 || out->gid > 65534 ||
	    f->head.offset > INT64_MAX)
		return err_set(e, ERR_INVALID, 0, "a value of the request is out of range");
	memcpy(out->path, path, length);
	out->path[length] = '\0';
	return 0;
}

void agent_put_reattach(struct buf *b, uint32_t client, uint32_t channel, uint64_t out_offset,
			uint64_t err_offset)
{
	size_t start = frame_begin(b, AGENT_REATTACH, 0, client, channel, 0);

	wire_put_u64(b, out_offset);
	wire_put_u64(b, err_offset);
	frame_end(b, start);
}

int agent_get_reattach(const struct agent_frame *f, uint64_t out_offsets[2], struct err *e)
{
	struct wire_reader r;
	uint64_t first;
	uint64_t second;

	reader(&r, f);
	first = wire_get_u64(&r);
	second = wire_get_u64(&r);
	if (done(&r, "REATTACH", e) != 0)
		return -1;
	out_offsets[0] = first;
	out_offsets[1] = second;
	return 0;
}

/* --- answers -------------------------------------------------------------------------------- */

void agent_put_welcome(struct buf *b, uint32_t client, const struct agent_welcome *welcome)
{
	size_t start = frame_begin(b, AGENT_WELCOME, 0, client, 0, 0);

	wire_put_u32(b, welcome->version);
	wire_put_u32(b, welcome->count);
	for (uint32_t i = 0; i < welcome->count && i < AGENT_MAX_CHANNELS; i++) {
		const struct agent_channel_info *info = &welcome->channels[i];

		wire_put_u32(b, info->channel);
		wire_put_u32(b, info->pid);
		wire_put_u8(b, info->ended ? 1 : 0);
		wire_put_u64(b, info->in_received);
		for (int s = 0; s < 2; s++) {
			wire_put_u64(b, info->base[s]);
			wire_put_u64(b, info->end[s]);
		}
	}
	frame_end(b, start);
}

int agent_get_welcome(const struct agent_frame *f, struct agent_welcome *out, struct err *e)
{
	struct wire_reader r;

	memset(out, 0, sizeof(*out));
	reader(&r, f);
	out->version = wire_get_u32(&r);
	out->count = wire_get_u32(&r);
	if (out->count > AGENT_MAX_CHANNELS)
		return err_set(e, ERR_PROTOCOL, 0, "too many channels in WELCOME");
	for (uint32_t i = 0; i < out->count; i++) {
		struct agent_channel_info *info = &out->channels[i];

		info->channel = wire_get_u32(&r);
		info->pid = wire_get_u32(&r);
		info->ended = wire_get_u8(&r) != 0;
		info->in_received = wire_get_u64(&r);
		for (int s = 0; s < 2; s++) {
			info->base[s] = wire_get_u64(&r);
			info->end[s] = wire_get_u64(&r);
			if (info->end[s] < info->base[s] ||
			    info->end[s] - info->base[s] > AGENT_WINDOW_BYTES)
				r.failed = true;
		}
	}
	return done(&r, "WELCOME", e);
}

void agent_put_started(struct buf *b, uint32_t client, uint32_t channel, uint32_t pid)
{
	size_t start = frame_begin(b, AGENT_STARTED, 0, client, channel, 0);

	wire_put_u32(b, pid);
	frame_end(b, start);
}

int agent_get_started(const struct agent_frame *f, uint32_t *out_pid, struct err *e)
{
	struct wire_reader r;
	uint32_t pid;

	reader(&r, f);
	pid = wire_get_u32(&r);
	if (done(&r, "STARTED", e) != 0)
		return -1;
	*out_pid = pid;
	return 0;
}

void agent_put_exit(struct buf *b, uint32_t client, uint32_t channel,
		    const struct agent_exit *status)
{
	size_t start = frame_begin(b, AGENT_EXIT, AGENT_STREAM_EXIT, client, channel, 0);

	wire_put_u8(b, (uint8_t)status->how);
	wire_put_u8(b, (uint8_t)status->stage);
	wire_put_u16(b, 0);
	wire_put_u32(b, (uint32_t)status->code);
	wire_put_u32(b, (uint32_t)status->sys);
	wire_put_u64(b, status->user_us);
	wire_put_u64(b, status->system_us);
	wire_put_u64(b, status->maxrss_kib);
	wire_put_u64(b, status->wall_us);
	wire_put_u64(b, status->out_bytes);
	wire_put_u64(b, status->err_bytes);
	frame_end(b, start);
}

int agent_get_exit(const struct agent_frame *f, struct agent_exit *out, struct err *e)
{
	struct wire_reader r;
	uint8_t how;
	uint8_t stage;

	memset(out, 0, sizeof(*out));
	reader(&r, f);
	how = wire_get_u8(&r);
	stage = wire_get_u8(&r);
	(void)wire_get_u16(&r);
	out->code = (int32_t)wire_get_u32(&r);
	out->sys = (int32_t)wire_get_u32(&r);
	out->user_us = wire_get_u64(&r);
	out->system_us = wire_get_u64(&r);
	out->maxrss_kib = wire_get_u64(&r);
	out->wall_us = wire_get_u64(&r);
	out->out_bytes = wire_get_u64(&r);
	out->err_bytes = wire_get_u64(&r);
	if (done(&r, "EXIT", e) != 0)
		return -1;
	if (how >= AGENT_HOW__MAX || stage >= AGENT_STAGE__MAX || out->code < 0 ||
	    out->code > 255 || (how == AGENT_SIGNALED && (out->code < 1 || out->code > 64)) ||
	    out->sys < 0 || out->sys > 4095)
		return err_set(e, ERR_PROTOCOL, 0, "an EXIT frame with values out of range");
	out->how = (enum agent_how)how;
	out->stage = (enum agent_stage)stage;
	return 0;
}

void agent_put_result(struct buf *b, const struct agent_header *request,
		      const uint64_t values[AGENT_RESULT_VALUES])
{
	size_t start = answer_begin(b, AGENT_RESULT, request);

	for (int i = 0; i < AGENT_RESULT_VALUES; i++)
		wire_put_u64(b, values == NULL ? 0 : values[i]);
	frame_end(b, start);
}

int agent_get_result(const struct agent_frame *f, uint64_t out_values[AGENT_RESULT_VALUES],
		     struct err *e)
{
	struct wire_reader r;

	reader(&r, f);
	for (int i = 0; i < AGENT_RESULT_VALUES; i++)
		out_values[i] = wire_get_u64(&r);
	return done(&r, "RESULT", e);
}

void agent_put_error(struct buf *b, const struct agent_header *request, enum err_code code, int sys,
		     const char *text)
{
	size_t start = answer_begin(b, AGENT_ERROR, request);

	wire_put_u32(b, (uint32_t)code);
	wire_put_u32(b, (uint32_t)sys);
	wire_put_text(b, text);
	frame_end(b, start);
}

int agent_get_error(const struct agent_frame *f, struct agent_error *out, struct err *e)
{
	struct wire_reader r;
	uint32_t code;
	uint32_t sys;
	const char *text;
	size_t length;

	reader(&r, f);
	code = wire_get_u32(&r);
	sys = wire_get_u32(&r);
	text = wire_get_bytes(&r, &length);
	if (done(&r, "ERROR", e) != 0)
		return -1;
	if (code <= ERR_NONE || code >= ERR__MAX || sys > 4095)
		return err_set(e, ERR_PROTOCOL, 0, "an ERROR frame with values out of range");
	if (length >= sizeof(out->text))
		length = sizeof(out->text) - 1;
	for (size_t i = 0; i < length; i++)
		out->text[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
	out->text[length] = '\0';
	out->code = (enum err_code)code;
	out->sys = (int32_t)sys;
	return 0;
}

void agent_put_entry(struct buf *b, const struct agent_header *request,
		     const struct agent_entry *entry)
{
	size_t start = answer_begin(b, AGENT_ENTRY, request);

	wire_put_u8(b, (uint8_t)entry->kind);
	wire_put_u64(b, entry->size);
	wire_put_u64(b, (uint64_t)entry->mtime_us);
	wire_put_bytes(b, entry->path, entry->path_length);
	frame_end(b, start);
}

int agent_get_entry(const struct agent_frame *f, struct agent_entry *out, struct err *e)
{
	struct wire_reader r;
	uint8_t kind;

	memset(out, 0, sizeof(*out));
	reader(&r, f);
	kind = wire_get_u8(&r);
	out->size = wire_get_u64(&r);
	out->mtime_us = (int64_t)wire_get_u64(&r);
	out->path = wire_get_bytes(&r, &out->path_length);
	if (done(&r, "ENTRY", e) != 0)
		return -1;
	if (kind > AGENT_KIND_UNREADABLE || !agent_path_ok(out->path, out->path_length) ||
	    out->size > INT64_MAX)
		return err_set(e, ERR_PROTOCOL, 0, "an ENTRY frame with values out of range");
	out->kind = (enum agent_kind)kind;
	return 0;
}

bool agent_path_ok(const char *path, size_t length)
{
	size_t start = 0;

	if (length == 0 || length > LIMIT_PATH_BYTES || memchr(path, '\0', length) != NULL)
		return false;
	for (size_t i = 0; i <= length; i++) {
		size_t segment;

		if (i < length && path[i] != '/')
			continue;
		segment = i - start;
		if (segment == 0 || (segment == 1 && path[start] == '.') ||
		    (segment == 2 && path[start] == '.' && path[start + 1] == '.'))
			return false;
		start = i + 1;
	}
	return true;
}

const char *agent_stage_name(enum agent_stage stage)
{
	static const char *const names[AGENT_STAGE__MAX] = {
	    [AGENT_STAGE_NONE] = "none",         [AGENT_STAGE_SESSION] = "session",
	    [AGENT_STAGE_FDS] = "descriptors",   [AGENT_STAGE_LIMITS] = "limits",
	    [AGENT_STAGE_IDENTITY] = "identity", [AGENT_STAGE_CHDIR] = "chdir",
	    [AGENT_STAGE_EXEC] = "exec",
	};

	return stage < AGENT_STAGE__MAX ? names[stage] : "?";
}
