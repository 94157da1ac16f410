#include "runners/init/server.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

#define READ_BYTES ((size_t)64 << 10)

void conn_open(struct server *s, int fd)
{
	for (int i = 0; i < SERVER_MAX_CONNS; i++) {
		struct conn *c = &s->conns[i];

		if (c->fd >= 0)
			continue;
		memset(c, 0, sizeof(*c));
		c->fd = fd;
		buf_init(&c->in, LIMIT_FRAME_BYTES + AGENT_HEADER_BYTES + READ_BYTES);
		buf_init(&c->out, SERVER_OUT_MAX);
		for (int t = 0; t < SERVER_MAX_TRANSFERS; t++)
			c->transfers[t].fd = -1;
		return;
	}
	(void)close(fd);
}

void conn_close(struct server *s, struct conn *c)
{
	channel_detach(s, c);
	file_close_all(c);
	task_end_all(c);
	for (int i = 0; i < SERVER_MAX_ASSEMBLY; i++)
		buf_release(&c->assemblies[i].bytes);
	buf_release(&c->in);
	buf_release(&c->out);
	(void)close(c->fd);
	c->fd = -1;
	c->out_at = 0;
}

void conn_flush(struct conn *c)
{
	while (conn_pending(c) > 0) {
		ssize_t sent = send(c->fd, c->out.data + c->out_at, conn_pending(c), MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN)
			break;
		if (sent < 0) {
			c->broken = true;
			return;
		}
		c->out_at += (size_t)sent;
	}
	if (conn_pending(c) == 0) {
		buf_reset(&c->out);
		c->out_at = 0;
	} else if (c->out_at > SERVER_OUT_HIGH) {
		buf_consume(&c->out, c->out_at);
		c->out_at = 0;
	}
}

void conn_error(struct conn *c, const struct agent_header *request, const struct err *e)
{
	agent_put_error(&c->out, request, e->code, e->sys, e->text);
}

/* --- requests ------------------------------------------------------------------------------- */

static int on_hello(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct agent_welcome welcome;
	uint32_t version;

	if (agent_get_hello(f, &version, e) != 0)
		return -1;
	if (version != AGENT_VERSION)
		return err_set(e, ERR_INVALID, 0, "protocol version %u is not %d", version,
			       AGENT_VERSION);
	memset(&welcome, 0, sizeof(welcome));
	welcome.version = AGENT_VERSION;
	channel_list(s, &welcome);
	agent_put_welcome(&c->out, f->head.client, &welcome);
	return 0;
}

static struct assembly *find_assembly(struct conn *c, const struct agent_header *head)
{
	struct assembly *spare = NULL;

	for (int i = 0; i < SERVER_MAX_ASSEMBLY; i++) {
		struct assembly *a = &c->assemblies[i];

		if (a->used && a->client == head->client && a->channel == head->channel)
			return a;
		if (!a->used && spare == NULL)
			spare = a;
	}
	if (spare == NULL || head->offset != 0)
		return NULL;
	spare->used = true;
	spare->client = head->client;
	spare->channel = head->channel;
	buf_init(&spare->bytes, AGENT_EXEC_BYTES);
	return spare;
}

static int on_exec(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct assembly *a = find_assembly(c, &f->head);
	int result = 0;

	if (a == NULL)
		return err_set(e, ERR_LIMIT, 0, "too many unfinished EXEC requests, or a gap");
	if (f->head.offset != a->bytes.len)
		result = err_set(e, ERR_PROTOCOL, 0, "a gap in an EXEC request");
	buf_add(&a->bytes, f->payload, f->head.length);
	if (result == 0 && !buf_ok(&a->bytes))
		result = err_set(e, ERR_LIMIT, 0, "the command is too long");
	if (result == 0 && (f->head.flags & AGENT_F_MORE) != 0)
		return 0;
	if (result == 0)
		result = channel_exec(s, c, &f->head, a->bytes.data, a->bytes.len, e);
	buf_release(&a->bytes);
	a->used = false;
	return result;
}

static int on_stats(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	uint64_t values[AGENT_RESULT_VALUES] = {0};
	struct statvfs fs;

	if (fstatvfs(s->workspace, &fs) != 0)
		return err_set(e, ERR_IO, errno, "statvfs");
	values[0] = (uint64_t)(clock_monotonic_us() - s->born_us);
	for (int i = 0; i < AGENT_MAX_CHANNELS; i++) {
		enum channel_state state = s->channels[i].state;

		values[1] += state != CHANNEL_FREE ? 1U : 0U;
		values[2] += state == CHANNEL_STARTING || state == CHANNEL_RUNNING ? 1U : 0U;
	}
	values[3] = (uint64_t)fs.f_blocks * fs.f_frsize;
	values[4] = (uint64_t)fs.f_bavail * fs.f_frsize;
	values[5] = fs.f_files;
	values[6] = fs.f_ffree;
	agent_put_result(&c->out, &f->head, values);
	return 0;
}

static int with_result(struct conn *c, const struct agent_frame *f, int result)
{
	if (result == 0)
		agent_put_result(&c->out, &f->head, NULL);
	return result;
}

static int on_ack(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	if ((f->head.flags & AGENT_F_STREAM) == AGENT_STREAM_DATA) {
		file_ack(c, &f->head);
		return 0;
	}
	return channel_ack(s, &f->head, e);
}

static int dispatch(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	switch (f->head.type) {
	case AGENT_HELLO:
		return on_hello(s, c, f, e);
	case AGENT_EXEC:
		return on_exec(s, c, f, e);
	case AGENT_STDIN:
		return channel_stdin(s, c, f, e);
	case AGENT_SIGNAL:
		return with_result(c, f, channel_signal(s, f, e));
	case AGENT_ACK:
		return on_ack(s, c, f, e);
	case AGENT_FILE_WRITE:
		return file_write(s, c, f, e);
	case AGENT_COLLECT:
		return collect_start(s, c, f, e);
	case AGENT_FILE_READ:
		return file_read(s, c, f, e);
	case AGENT_STATS:
		return on_stats(s, c, f, e);
	case AGENT_PING:
		return with_result(c, f, 0);
	case AGENT_REATTACH:
		return channel_reattach(s, c, f, e);
	case AGENT_RESIZE:
		return with_result(c, f, channel_resize(s, f, e));
	case AGENT_LIST:
		return list_start(s, c, f, e);
	case AGENT_STAT:
		return name_stat(s, c, f, e);
	case AGENT_REMOVE:
		return remove_start(s, c, f, e);
	case AGENT_MKDIR:
		return name_mkdir(s, c, f, e);
	case AGENT_RENAME:
		return name_rename(s, c, f, e);
	default:
		return err_set(e, ERR_PROTOCOL, 0, "no request of type %u", f->head.type);
	}
}

/* All whole frames of the input. A request that fails is answered; broken framing closes. */
static void handle_frames(struct server *s, struct conn *c)
{
	size_t used = 0;

	while (!c->broken && conn_has_room(c)) {
		struct agent_frame frame;
		struct err e = ERR_INIT;
		int found = agent_peek(c->in.data + used, c->in.len - used, &frame, &e);

		if (found < 0)
			c->broken = true;
		if (found <= 0)
			break;
		if (dispatch(s, c, &frame, &e) != 0)
			conn_error(c, &frame.head, &e);
		used += AGENT_HEADER_BYTES + frame.head.length;
	}
	buf_consume(&c->in, used);
}

void conn_turn(struct server *s, struct conn *c)
{
	if (c->in.len > 0 && !c->broken)
		handle_frames(s, c);
}

void conn_read(struct server *s, struct conn *c)
{
	ssize_t got;

	if (buf_reserve(&c->in, READ_BYTES) != 0) {
		/* full of frames that wait for room in the output */
		c->in.failed = false;
		return;
	}
	got = recv(c->fd, c->in.data + c->in.len, READ_BYTES, 0);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		c->broken = true;
		return;
	}
	c->in.len += (size_t)got;
	handle_frames(s, c);
}
