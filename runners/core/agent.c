#include "runners/core/agent.h"

#include "runners/base/fdio.h"
#include "runners/base/str.h"

#include <errno.h>
#include <sys/socket.h>

#define READ_BYTES  ((size_t)64 << 10)
#define READ_ROUNDS 4

void agent_init(struct agent *a, const struct agent_events *events, void *ctx, uint32_t client)
{
	memset(a, 0, sizeof(*a));
	a->events = events;
	a->ctx = ctx;
	a->client = client;
	a->fd = -1;
	buf_init(&a->in, LIMIT_FRAME_BYTES + AGENT_HEADER_BYTES + READ_BYTES);
	buf_init(&a->out, AGENT_OUT_MAX_BYTES);
}

void agent_close(struct agent *a)
{
	fd_close_at(&a->fd);
	if (a->handling)
		return; /* the event's pointers are into these bytes */
	buf_reset(&a->in);
	buf_reset(&a->out);
	a->out_at = 0;
}

void agent_release(struct agent *a)
{
	agent_close(a);
	a->released = a->handling;
	if (a->released)
		return;
	buf_release(&a->in);
	buf_release(&a->out);
}

int agent_fd(const struct agent *a)
{
	return a->fd;
}

size_t agent_pending(const struct agent *a)
{
	return a->out.len - a->out_at;
}

bool agent_wants_write(const struct agent *a)
{
	return agent_pending(a) > 0;
}

/* --- channels ------------------------------------------------------------------------------- */

static struct agent_channel *find(struct agent *a, uint32_t id)
{
	for (int i = 0; i < AGENT_MAX_CHANNELS; i++)
		if (a->channels[i].used && a->channels[i].id == id)
			return &a->channels[i];
	return NULL;
}

static struct agent_channel *add(struct agent *a, uint32_t id, struct err *e)
{
	struct agent_channel *ch = find(a, id);

	for (int i = 0; i < AGENT_MAX_CHANNELS && ch == NULL; i++)
		if (!a->channels[i].used)
			ch = &a->channels[i];
	if (ch == NULL) {
		(void)err_set(e, ERR_LIMIT, 0, "%d channels are in use", AGENT_MAX_CHANNELS);
		return NULL;
	}
	memset(ch, 0, sizeof(*ch));
	ch->used = true;
	ch->id = id;
	return ch;
}

/* --- bytes out ------------------------------------------------------------------------------ */

/* Writes what the socket takes. */
static int flush(struct agent *a, struct err *e)
{
	while (agent_pending(a) > 0) {
		ssize_t done = send(a->fd, a->out.data + a->out_at, agent_pending(a), MSG_NOSIGNAL);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && errno == EAGAIN)
			return 0;
		if (done < 0)
			return err_set(e, ERR_UNAVAILABLE, errno, "agent connection");
		a->out_at += (size_t)done;
	}
	buf_reset(&a->out);
	a->out_at = 0;
	return 0;
}

static int connected(const struct agent *a, struct err *e)
{
	if (a->fd < 0)
		return err_set(e, ERR_UNAVAILABLE, 0, "not connected to the agent");
	return 0;
}

/*
 * After frames were added behind `mark`: sends at once what can be sent. A failed buffer is set
 * back to the mark, so a request is sent whole or not at all. A broken connection is found by
 * agent_ready().
 */
static int sent(struct agent *a, size_t mark, struct err *e)
{
	struct err ignored = ERR_INIT;

	if (!buf_ok(&a->out)) {
		a->out.failed = false;
		a->out.len = mark;
		return err_set(e, ERR_LIMIT, 0, "too many bytes wait for the agent");
	}
	(void)flush(a, &ignored);
	return 0;
}

static size_t mark(struct agent *a)
{
	/* make room by dropping what was sent */
	if (a->out_at > READ_BYTES) {
		buf_consume(&a->out, a->out_at);
		a->out_at = 0;
	}
	return a->out.len;
}

static int put_simple(struct agent *a, uint16_t type, uint16_t flags, uint32_t channel,
		      uint64_t offset, const void *data, size_t length, struct err *e)
{
	struct agent_header head = {.type = type,
				    .flags = flags,
				    .client = a->client,
				    .channel = channel,
				    .offset = offset};
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	at = mark(a);
	agent_put(&a->out, &head, data, length);
	return sent(a, at, e);
}

int agent_connect_fd(struct agent *a, int fd, struct err *e)
{
	agent_close(a);
	a->fd = fd;
	if (fd_set_nonblock(fd, true, e) != 0) {
		agent_close(a);
		return -1;
	}
	agent_put_hello(&a->out, a->client, AGENT_VERSION);
	return sent(a, 0, e);
}

int agent_connect(struct agent *a, const char *path, struct err *e)
{
	int fd = fd_unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK, e);

	return fd < 0 ? -1 : agent_connect_fd(a, fd, e);
}

/* --- requests ------------------------------------------------------------------------------- */

int agent_exec(struct agent *a, uint32_t channel, const struct agent_exec *spec, struct err *e)
{
	struct agent_channel *ch;
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	if (find(a, channel) != NULL)
		return err_set(e, ERR_CONFLICT, 0, "channel %u is in use", channel);
	ch = add(a, channel, e);
	if (ch == NULL)
		return -1;
	at = mark(a);
	if (agent_put_exec(&a->out, a->client, channel, spec, e) != 0 || sent(a, at, e) != 0) {
		ch->used = false;
		return -1;
	}
	return 0;
}

ssize_t agent_stdin(struct agent *a, uint32_t channel, const void *data, size_t length, bool eof,
		    struct err *e)
{
	struct agent_channel *ch = find(a, channel);
	const char *p = data;
	size_t taken = 0;

	if (ch == NULL)
		return err_set(e, ERR_NOT_FOUND, 0, "no channel %u", channel);
	if (ch->in_closed)
		return (ssize_t)length;
	do {
		size_t room = AGENT_WINDOW_BYTES - (size_t)(ch->in_sent - ch->in_taken);
		size_t part = length - taken;
		bool last;

		if (part > AGENT_CHUNK_BYTES)
			part = AGENT_CHUNK_BYTES;
		if (part > room)
			part = room;
		last = eof && taken + part == length;
		if (part == 0 && !last)
			break;
		if (put_simple(a, AGENT_STDIN, last ? AGENT_F_EOF : 0, channel, ch->in_sent,
			       p + taken, part, e) != 0)
			return -1;
		ch->in_sent += part;
		taken += part;
	} while (taken < length);
	return (ssize_t)taken;
}

int agent_resize(struct agent *a, uint32_t channel, uint16_t rows, uint16_t cols, struct err *e)
{
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	at = mark(a);
	agent_put_resize(&a->out, a->client, channel, rows, cols);
	return sent(a, at, e);
}

int agent_signal(struct agent *a, uint32_t channel, int number, struct err *e)
{
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	at = mark(a);
	agent_put_signal(&a->out, a->client, channel, false, number);
	return sent(a, at, e);
}

int agent_signal_all(struct agent *a, uint32_t tag, int number, struct err *e)
{
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	at = mark(a);
	agent_put_signal(&a->out, a->client, tag, true, number);
	return sent(a, at, e);
}

int agent_ack(struct agent *a, uint32_t channel, enum agent_stream stream, uint64_t offset,
	      struct err *e)
{
	struct agent_channel *ch = find(a, channel);
	int which = stream == AGENT_STREAM_ERR ? 1 : 0;

	if (ch == NULL)
		return err_set(e, ERR_NOT_FOUND, 0, "no channel %u", channel);
	if (offset > ch->next[which])
		return err_set(e, ERR_INTERNAL, 0, "acknowledging bytes that did not come");
	if (offset <= ch->acked[which])
		return 0;
	if (put_simple(a, AGENT_ACK, (uint16_t)stream, channel, offset, NULL, 0, e) != 0)
		return -1;
	ch->acked[which] = offset;
	return 0;
}

int agent_ack_exit(struct agent *a, uint32_t channel, struct err *e)
{
	struct agent_channel *ch = find(a, channel);

	if (put_simple(a, AGENT_ACK, AGENT_STREAM_EXIT, channel, 0, NULL, 0, e) != 0)
		return -1;
	if (ch != NULL)
		ch->used = false;
	return 0;
}

int agent_attach(struct agent *a, uint32_t channel, uint64_t out_offset, uint64_t err_offset,
		 struct err *e)
{
	struct agent_channel *ch;
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	ch = add(a, channel, e);
	if (ch == NULL)
		return -1;
	ch->next[0] = out_offset;
	ch->next[1] = err_offset;
	ch->acked[0] = out_offset;
	ch->acked[1] = err_offset;
	at = mark(a);
	agent_put_reattach(&a->out, a->client, channel, out_offset, err_offset);
	return sent(a, at, e);
}

void agent_resume_stdin(struct agent *a, uint32_t channel, uint64_t received)
{
	struct agent_channel *ch = find(a, channel);

	if (ch == NULL)
		return;
	ch->in_sent = received;
	/* the window counts as full until the agent says how much the program has taken */
	ch->in_taken = received > AGENT_WINDOW_BYTES ? received - AGENT_WINDOW_BYTES : 0;
}

int agent_put_file_part(struct agent *a, uint32_t tag, uint64_t offset, bool last,
			const struct agent_file_write *part, struct err *e)
{
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	at = mark(a);
	if (agent_put_file_write(&a->out, a->client, tag, offset, last, part, e) != 0)
		return -1;
	return sent(a, at, e);
}

int agent_put_file(struct agent *a, uint32_t tag, const char *path, uint32_t mode, uint32_t uid,
		   uint32_t gid, const void *data, size_t length, struct err *e)
{
	struct agent_file_write part = {.path = path, .mode = mode, .uid = uid, .gid = gid};
	const char *p = data;
	size_t at = 0;

	do {
		part.data = p + at;
		part.length = length - at < AGENT_WRITE_CHUNK ? length - at : AGENT_WRITE_CHUNK;
		if (agent_put_file_part(a, tag, at, at + part.length == length, &part, e) != 0)
			return -1;
		at += part.length;
	} while (at < length);
	return 0;
}

int agent_collect(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid,
		  const char *const *patterns, size_t count, struct err *e)
{
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	at = mark(a);
	if (agent_put_collect(&a->out, a->client, tag, uid, gid, patterns, count, e) != 0)
		return -1;
	return sent(a, at, e);
}

int agent_get_file(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
		   size_t path_length, uint64_t offset, uint64_t length, struct err *e)
{
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	at = mark(a);
	if (agent_put_file_read(&a->out, a->client, tag, uid, gid, path, path_length, offset,
				length, e) != 0)
		return -1;
	return sent(a, at, e);
}

/* Fills the paths in and sends. */
static int put_name(struct agent *a, uint32_t tag, struct agent_name_request *want,
		    const char *path, const char *to, struct err *e)
{
	size_t at;

	if (connected(a, e) != 0)
		return -1;
	if (str_copy(want->path, sizeof(want->path), path) != 0 ||
	    str_copy(want->to, sizeof(want->to), to) != 0)
		return err_set(e, ERR_INVALID, 0, "a path is too long");
	at = mark(a);
	if (agent_put_name_request(&a->out, a->client, tag, want, e) != 0)
		return -1;
	return sent(a, at, e);
}

int agent_list(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
	       uint64_t limit, struct err *e)
{
	struct agent_name_request want = {
	    .type = AGENT_LIST, .uid = uid, .gid = gid, .limit = limit};

	return put_name(a, tag, &want, path, "", e);
}

int agent_stat(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
	       struct err *e)
{
	struct agent_name_request want = {.type = AGENT_STAT, .uid = uid, .gid = gid};

	return put_name(a, tag, &want, path, "", e);
}

int agent_remove(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
		 bool recursive, struct err *e)
{
	struct agent_name_request want = {.type = AGENT_REMOVE,
					  .flags = recursive ? AGENT_F_RECURSIVE : 0,
					  .uid = uid,
					  .gid = gid};

	return put_name(a, tag, &want, path, "", e);
}

int agent_mkdir(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
		uint32_t mode, bool parents, struct err *e)
{
	struct agent_name_request want = {.type = AGENT_MKDIR,
					  .flags = parents ? AGENT_F_PARENTS : 0,
					  .uid = uid,
					  .gid = gid,
					  .mode = mode};

	return put_name(a, tag, &want, path, "", e);
}

int agent_rename(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *from,
		 const char *to, struct err *e)
{
	struct agent_name_request want = {.type = AGENT_RENAME, .uid = uid, .gid = gid};

	return put_name(a, tag, &want, from, to, e);
}

int agent_stats(struct agent *a, uint32_t tag, struct err *e)
{
	return put_simple(a, AGENT_STATS, 0, tag, 0, NULL, 0, e);
}

int agent_ping(struct agent *a, uint32_t tag, struct err *e)
{
	return put_simple(a, AGENT_PING, 0, tag, 0, NULL, 0, e);
}

/* --- events --------------------------------------------------------------------------------- */

static int on_welcome(struct agent *a, const struct agent_frame *f, struct err *e)
{
	struct agent_welcome welcome;

	if (agent_get_welcome(f, &welcome, e) != 0)
		return -1;
	if (welcome.version != AGENT_VERSION)
		return err_set(e, ERR_PROTOCOL, 0, "the agent speaks version %u", welcome.version);
	if (a->events->welcome != NULL)
		a->events->welcome(a->ctx, &welcome);
	return 0;
}

static int on_started(struct agent *a, const struct agent_frame *f, struct err *e)
{
	uint32_t pid;

	if (agent_get_started(f, &pid, e) != 0)
		return -1;
	if (find(a, f->head.channel) == NULL)
		return err_set(e, ERR_PROTOCOL, 0, "STARTED for a channel that is not ours");
	if (a->events->started != NULL)
		a->events->started(a->ctx, f->head.channel, pid);
	return 0;
}

static int on_output(struct agent *a, const struct agent_frame *f, struct err *e)
{
	unsigned int stream = f->head.flags & AGENT_F_STREAM;
	struct agent_channel *ch = find(a, f->head.channel);
	int which = stream == AGENT_STREAM_ERR ? 1 : 0;

	if (ch == NULL || (stream != AGENT_STREAM_OUT && stream != AGENT_STREAM_ERR))
		return err_set(e, ERR_PROTOCOL, 0, "output of a channel that is not ours");
	if (f->head.offset != ch->next[which])
		return err_set(e, ERR_PROTOCOL, 0, "a gap or a repetition in output");
	if (f->head.length > AGENT_CHUNK_BYTES ||
	    ch->next[which] + f->head.length - ch->acked[which] > AGENT_WINDOW_BYTES)
		return err_set(e, ERR_PROTOCOL, 0, "more output than the window allows");
	ch->next[which] += f->head.length;
	if (a->events->output != NULL)
		a->events->output(a->ctx, f->head.channel, (enum agent_stream)stream,
				  f->head.offset, f->payload, f->head.length);
	return 0;
}

static int on_exit_frame(struct agent *a, const struct agent_frame *f, struct err *e)
{
	struct agent_channel *ch = find(a, f->head.channel);
	struct agent_exit status;

	if (agent_get_exit(f, &status, e) != 0)
		return -1;
	if (ch == NULL || status.out_bytes != ch->next[0] || status.err_bytes != ch->next[1])
		return err_set(e, ERR_PROTOCOL, 0, "an EXIT that does not fit its channel");
	if (a->events->exited != NULL)
		a->events->exited(a->ctx, f->head.channel, &status);
	return 0;
}

static int on_stdin_ack(struct agent *a, const struct agent_frame *f, struct err *e)
{
	struct agent_channel *ch = find(a, f->head.channel);
	bool closed = (f->head.flags & AGENT_F_CLOSED) != 0;

	if (ch == NULL)
		return 0; /* its exit was acknowledged meanwhile */
	if (f->head.offset > ch->in_sent || f->head.offset < ch->in_taken)
		return err_set(e, ERR_PROTOCOL, 0, "a wrong offset of stdin");
	ch->in_taken = f->head.offset;
	if (closed)
		ch->in_closed = true;
	if (a->events->input != NULL)
		a->events->input(a->ctx, f->head.channel, f->head.offset, closed);
	return 0;
}

static int on_entry(struct agent *a, const struct agent_frame *f, struct err *e)
{
	struct agent_entry entry;

	if (agent_get_entry(f, &entry, e) != 0)
		return -1;
	if (a->events->entry != NULL)
		a->events->entry(a->ctx, f->head.channel, &entry);
	return 0;
}

static int on_info(struct agent *a, const struct agent_frame *f, struct err *e)
{
	struct agent_info info;

	if (agent_get_info(f, &info, e) != 0)
		return -1;
	if (a->events->info != NULL)
		a->events->info(a->ctx, f->head.channel, &info);
	return 0;
}

static int on_data(struct agent *a, const struct agent_frame *f, struct err *e)
{
	if (f->head.length > AGENT_CHUNK_BYTES || f->head.offset > INT64_MAX)
		return err_set(e, ERR_PROTOCOL, 0, "a DATA frame out of range");
	if (a->events->data != NULL)
		a->events->data(a->ctx, f->head.channel, f->head.offset, f->payload,
				f->head.length);
	return put_simple(a, AGENT_ACK, AGENT_STREAM_DATA, f->head.channel,
			  f->head.offset + f->head.length, NULL, 0, e);
}

static int on_result(struct agent *a, const struct agent_frame *f, struct err *e)
{
	uint64_t values[AGENT_RESULT_VALUES];

	if (agent_get_result(f, values, e) != 0)
		return -1;
	if (a->events->result != NULL)
		a->events->result(a->ctx, f->head.channel, values);
	return 0;
}

static int on_error(struct agent *a, const struct agent_frame *f, struct err *e)
{
	struct agent_error error;

	if (agent_get_error(f, &error, e) != 0)
		return -1;
	if (a->events->error != NULL)
		a->events->error(a->ctx, f->head.channel, &error);
	return 0;
}

static int handle(struct agent *a, const struct agent_frame *f, struct err *e)
{
	if (f->head.client != a->client)
		return err_set(e, ERR_PROTOCOL, 0, "a frame for client %u", f->head.client);
	switch (f->head.type) {
	case AGENT_WELCOME:
		return on_welcome(a, f, e);
	case AGENT_STARTED:
		return on_started(a, f, e);
	case AGENT_OUT:
		return on_output(a, f, e);
	case AGENT_EXIT:
		return on_exit_frame(a, f, e);
	case AGENT_STDIN_ACK:
		return on_stdin_ack(a, f, e);
	case AGENT_RESULT:
		return on_result(a, f, e);
	case AGENT_ERROR:
		return on_error(a, f, e);
	case AGENT_ENTRY:
		return on_entry(a, f, e);
	case AGENT_DATA:
		return on_data(a, f, e);
	case AGENT_INFO:
		return on_info(a, f, e);
	default:
		return err_set(e, ERR_PROTOCOL, 0, "a frame of type %u", f->head.type);
	}
}

/* An event may have closed or released the agent: no frame is looked at after that. */
static int handle_frames(struct agent *a, struct err *e)
{
	size_t used = 0;
	int result = 0;

	a->handling = true;
	while (result == 0 && a->fd >= 0) {
		struct agent_frame frame;
		int found = agent_peek(a->in.data + used, a->in.len - used, &frame, e);

		if (found < 0)
			result = -1;
		if (found <= 0)
			break;
		result = handle(a, &frame, e);
		used += AGENT_HEADER_BYTES + frame.head.length;
	}
	a->handling = false;
	if (a->fd >= 0) {
		buf_consume(&a->in, used);
		return result;
	}
	err_clear(e); /* what followed the event could not be sent */
	if (a->released)
		agent_release(a);
	else
		agent_close(a);
	return 0;
}

/* 1: something was read, 0: nothing there, -1. */
static int read_some(struct agent *a, struct err *e)
{
	ssize_t got;

	if (buf_reserve(&a->in, READ_BYTES) != 0)
		return err_set(e, ERR_NOMEM, 0, "no memory for the agent's bytes");
	do
		got = recv(a->fd, a->in.data + a->in.len, READ_BYTES, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		return 0;
	if (got <= 0)
		return err_set(e, ERR_UNAVAILABLE, got < 0 ? errno : 0,
			       "the agent closed the connection");
	a->in.len += (size_t)got;
	return 1;
}

int agent_ready(struct agent *a, struct err *e)
{
	int got = 1;

	if (connected(a, e) != 0)
		return -1;
	for (int round = 0; round < READ_ROUNDS && got == 1; round++) {
		got = read_some(a, e);
		if (got == 1 && handle_frames(a, e) != 0)
			got = -1;
		if (a->fd < 0)
			return 0; /* closed by an event */
	}
	/* what it sent before its end was read first */
	if (got < 0 || flush(a, e) != 0) {
		agent_close(a);
		return -1;
	}
	return 0;
}
