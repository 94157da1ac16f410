#include "runners/init/server.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/ksys.h"
#include "runners/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define WINDOW      ((size_t)AGENT_WINDOW_BYTES)
#define RING_MASK   (WINDOW - 1)
#define RING_COUNT  3
#define READ_ROUNDS 4
/* at least what the kernel keeps between the ends of a terminal (4 KiB and 8 KiB) */
#define TERMINAL_HOLDS 16384U

_Static_assert((WINDOW & RING_MASK) == 0, "the window must be a power of two");

struct channel *channel_find(struct server *s, uint32_t id)
{
	for (int i = 0; i < AGENT_MAX_CHANNELS; i++)
		if (s->channels[i].state != CHANNEL_FREE && s->channels[i].id == id)
			return &s->channels[i];
	return NULL;
}

static void channel_write_stdin(struct channel *ch);

static int not_found(uint32_t id, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, 0, "no channel %u", id);
}

static void channel_free(struct channel *ch)
{
	fd_close_at(&ch->error_fd);
	fd_close_at(&ch->in_fd);
	fd_close_at(&ch->tty_fd);
	fd_close_at(&ch->out[0].fd);
	fd_close_at(&ch->out[1].fd);
	mem_free(ch->memory);
	memset(ch, 0, sizeof(*ch));
	ch->error_fd = -1;
	ch->in_fd = -1;
	ch->tty_fd = -1;
	ch->out[0].fd = -1;
	ch->out[1].fd = -1;
}

static struct channel *channel_new(struct server *s, uint32_t id, struct err *e)
{
	struct channel *spare = NULL;
	unsigned char *memory;

	for (int i = 0; i < AGENT_MAX_CHANNELS && spare == NULL; i++)
		if (s->channels[i].state == CHANNEL_FREE)
			spare = &s->channels[i];
	if (spare == NULL) {
		(void)err_set(e, ERR_LIMIT, 0, "%d channels are in use", AGENT_MAX_CHANNELS);
		return NULL;
	}
	memory = mem_alloc(RING_COUNT * WINDOW);
	if (memory == NULL) {
		(void)err_set(e, ERR_NOMEM, 0, "no memory for a channel");
		return NULL;
	}
	memset(spare, 0, sizeof(*spare));
	spare->id = id;
	spare->memory = memory;
	spare->in_ring = memory;
	for (int i = 0; i < 2; i++) {
		spare->out[i].ring = memory + WINDOW * (size_t)(i + 1);
		spare->out[i].cut = UINT64_MAX;
		spare->out[i].fd = -1;
	}
	spare->in_fd = -1;
	spare->tty_fd = -1;
	spare->error_fd = -1;
	spare->drain_until_us = INT64_MAX;
	return spare;
}

/* --- the start ------------------------------------------------------------------------------ */

/* The child's ends of the pipes; closed by channel_exec. */
struct ends {
	int fds[3];
	int error;
};

static void close_ends(struct ends *ends)
{
	for (int i = 0; i < 3; i++)
		fd_close_at(&ends->fds[i]);
	fd_close_at(&ends->error);
}

static int open_pipe(int *read_end, int *write_end)
{
	int pair[2];

	if (pipe2(pair, O_CLOEXEC) != 0)
		return -1;
	*read_end = pair[0];
	*write_end = pair[1];
	return 0;
}

static int open_three(struct channel *ch, struct ends *ends, struct err *e)
{
	if (open_pipe(&ends->fds[0], &ch->in_fd) != 0 ||
	    open_pipe(&ch->out[0].fd, &ends->fds[1]) != 0 ||
	    open_pipe(&ch->out[1].fd, &ends->fds[2]) != 0)
		return err_set(e, ERR_IO, errno, "pipe");
	return 0;
}

static int open_terminal(struct channel *ch, const struct agent_exec *spec, struct ends *ends,
			 struct err *e)
{
	if (pty_open(spec->rows, spec->cols, &ch->out[0].fd, &ch->tty_fd, e) != 0)
		return -1;
	ch->pty = true;
	ch->in_fd = fcntl(ch->out[0].fd, F_DUPFD_CLOEXEC, 0);
	for (int i = 0; i < 3; i++)
		ends->fds[i] = fcntl(ch->tty_fd, F_DUPFD_CLOEXEC, 0);
	if (ch->in_fd < 0 || ends->fds[0] < 0 || ends->fds[1] < 0 || ends->fds[2] < 0)
		return err_set(e, ERR_IO, errno, "dup");
	return 0;
}

static int open_stdio(struct channel *ch, const struct agent_exec *spec, struct ends *ends,
		      struct err *e)
{
	bool as_user = geteuid() == 0;
	int result;

	/* they belong to the command, or it could not open /dev/stdout and /dev/stderr */
	if (as_user && ksys_fsid(spec->uid, spec->gid) != 0)
		return err_set(e, ERR_IO, errno, "setfsuid");
	if (spec->pty != 0)
		result = open_terminal(ch, spec, ends, e);
	else
		result = open_three(ch, ends, e);
	if (result == 0 && open_pipe(&ch->error_fd, &ends->error) != 0)
		result = err_set(e, ERR_IO, errno, "pipe");
	if (as_user && ksys_fsid(0, 0) != 0)
		_exit(77); /* never go on as another */
	if (result != 0 || spec->pty != 0)
		return result == 0 ? fd_set_nonblock(ch->error_fd, true, e) : -1;
	if (spec->stdin_mode == AGENT_STDIN_NONE)
		fd_close_at(&ch->in_fd);
	if ((ch->in_fd >= 0 && fd_set_nonblock(ch->in_fd, true, e) != 0) ||
	    fd_set_nonblock(ch->out[0].fd, true, e) != 0 ||
	    fd_set_nonblock(ch->out[1].fd, true, e) != 0 ||
	    fd_set_nonblock(ch->error_fd, true, e) != 0)
		return -1;
	return 0;
}

static int spawn(struct channel *ch, const struct agent_exec *spec, struct err *e)
{
	struct ends ends = {.fds = {-1, -1, -1}, .error = -1};
	pid_t pid;

	if (open_stdio(ch, spec, &ends, e) != 0) {
		close_ends(&ends);
		return -1;
	}
	pid = fork();
	if (pid == 0)
		command_become(spec, ends.fds, ends.error);
	if (pid < 0)
		(void)err_set(e, errno == EAGAIN ? ERR_LIMIT : ERR_IO, errno, "fork");
	close_ends(&ends);
	ch->pid = pid;
	return pid < 0 ? -1 : 0;
}

int channel_exec(struct server *s, struct conn *c, const struct agent_header *request, char *bytes,
		 size_t length, struct err *e)
{
	scope_free char **pointers = NULL;
	struct agent_exec spec;
	struct channel *ch;

	if (s->maintain && (request->flags & AGENT_F_UNPACK) == 0)
		return err_set(e, ERR_DENIED, 0, "a maintenance box runs no commands");
	if (channel_find(s, request->channel) != NULL)
		return err_set(e, ERR_CONFLICT, 0, "channel %u is in use", request->channel);
	pointers = mem_zalloc(AGENT_EXEC_POINTERS, sizeof(*pointers));
	if (pointers == NULL)
		return err_set(e, ERR_NOMEM, 0, "no memory for a command");
	if (agent_exec_parse(bytes, length, pointers, &spec, e) != 0)
		return -1;
	spec.unpack = (request->flags & AGENT_F_UNPACK) != 0;
	ch = channel_new(s, request->channel, e);
	if (ch == NULL)
		return -1;
	ch->grace_ms = spec.grace_ms;
	ch->started_us = clock_monotonic_us();
	if (!stub_take(s, &spec, bytes, length, ch) && spawn(ch, &spec, e) != 0) {
		channel_free(ch);
		return -1;
	}
	ch->state = CHANNEL_STARTING;
	ch->sink = c;
	ch->sink_client = request->client;
	if (ch->pty && spec.stdin_mode == AGENT_STDIN_NONE) {
		ch->in_eof = true;
		channel_write_stdin(ch);
	}
	return 0;
}

/* What the child said before execve: nothing (it runs) or why it does not. */
void channel_read_error(struct channel *ch)
{
	struct command_failure failure;
	ssize_t got;

	if (ch->error_fd < 0)
		return;
	do
		got = read(ch->error_fd, &failure, sizeof(failure));
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		return;
	fd_close_at(&ch->error_fd);
	if (got == (ssize_t)sizeof(failure) && failure.stage > AGENT_STAGE_NONE &&
	    failure.stage < AGENT_STAGE__MAX) {
		ch->status.how = AGENT_NOT_STARTED;
		ch->status.stage = (enum agent_stage)failure.stage;
		ch->status.sys = failure.sys;
		ch->status.code = 125;
		if (failure.stage == AGENT_STAGE_EXEC)
			ch->status.code =
			    failure.sys == ENOENT || failure.sys == ENOTDIR ? 127 : 126;
		return;
	}
	if (ch->state == CHANNEL_STARTING)
		ch->state = CHANNEL_RUNNING;
	if (ch->sink != NULL)
		agent_put_started(&ch->sink->out, ch->sink_client, ch->id, (uint32_t)ch->pid);
}

/* --- the end -------------------------------------------------------------------------------- */

static uint64_t time_us(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000U + (uint64_t)t->tv_usec;
}

void channel_reaped(struct channel *ch, int status, const struct rusage *usage)
{
	int64_t now = clock_monotonic_us();
	struct agent_exit *end = &ch->status;

	channel_read_error(ch);
	ch->reaped = true;
	end->user_us = time_us(&usage->ru_utime);
	end->system_us = time_us(&usage->ru_stime);
	end->maxrss_kib = (uint64_t)usage->ru_maxrss;
	end->wall_us = (uint64_t)(now - ch->started_us);
	if (end->how != AGENT_NOT_STARTED) {
		end->how = WIFSIGNALED(status) ? AGENT_SIGNALED : AGENT_EXITED;
		end->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
	}
	fd_close_at(&ch->in_fd);
	fd_close_at(&ch->tty_fd);
	ch->state = CHANNEL_DRAINING;
	ch->drain_until_us = now + (int64_t)ch->grace_ms * CLOCK_US_PER_MS;
}

/* The grace is over: what is in the pipes now still counts, then they are closed. */
static void cut_streams(struct channel *ch)
{
	for (int i = 0; i < 2; i++) {
		struct stream *st = &ch->out[i];
		int waiting = 0;

		if (st->fd < 0 || st->cut != UINT64_MAX)
			continue;
		/* FIONREAD does not count all that a terminal holds: to the first pause there */
		if (ch->pty)
			st->cut = st->end + TERMINAL_HOLDS;
		else if (ioctl(st->fd, FIONREAD, &waiting) != 0 || waiting <= 0)
			fd_close_at(&st->fd);
		else
			st->cut = st->end + (uint64_t)waiting;
	}
	ch->drain_until_us = INT64_MAX;
}

static bool streams_closed(const struct channel *ch)
{
	return ch->out[0].fd < 0 && ch->out[1].fd < 0;
}

static bool streams_sent(const struct channel *ch)
{
	return ch->out[0].sent == ch->out[0].end && ch->out[1].sent == ch->out[1].end;
}

/* --- output --------------------------------------------------------------------------------- */

void channel_read(struct channel *ch, int which)
{
	struct stream *st = &ch->out[which];

	for (int round = 0; round < READ_ROUNDS && channel_wants_output(ch, which); round++) {
		size_t room = WINDOW - (size_t)(st->end - st->base);
		size_t at = (size_t)st->end & RING_MASK;
		struct iovec parts[2];
		size_t first;
		ssize_t got;

		if (st->cut - st->end < room)
			room = (size_t)(st->cut - st->end);
		first = room < WINDOW - at ? room : WINDOW - at;
		parts[0] = (struct iovec){.iov_base = st->ring + at, .iov_len = first};
		parts[1] = (struct iovec){.iov_base = st->ring, .iov_len = room - first};
		got = readv(st->fd, parts, 2);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN && !(ch->pty && st->cut != UINT64_MAX))
			return;
		if (got > 0)
			st->end += (uint64_t)got;
		if (got <= 0 || st->end == st->cut)
			fd_close_at(&st->fd);
	}
}

static void send_stream(struct channel *ch, int which)
{
	struct stream *st = &ch->out[which];

	while (st->sent < st->end && conn_has_room(ch->sink)) {
		size_t at = (size_t)st->sent & RING_MASK;
		size_t part = (size_t)(st->end - st->sent);
		struct agent_header head = {.type = AGENT_OUT,
					    .flags = (uint16_t)(AGENT_STREAM_OUT + which),
					    .client = ch->sink_client,
					    .channel = ch->id,
					    .offset = st->sent};

		if (part > WINDOW - at)
			part = WINDOW - at;
		if (part > AGENT_CHUNK_BYTES)
			part = AGENT_CHUNK_BYTES;
		agent_put(&ch->sink->out, &head, st->ring + at, part);
		st->sent += part;
	}
}

void channel_turn(struct channel *ch, int64_t now_us)
{
	if (ch->state == CHANNEL_DRAINING && !streams_closed(ch) && now_us >= ch->drain_until_us)
		cut_streams(ch);
	if (ch->pty && ch->out[0].cut != UINT64_MAX)
		channel_read(ch, 0);
	if (ch->state == CHANNEL_DRAINING && streams_closed(ch)) {
		ch->status.out_bytes = ch->out[0].end;
		ch->status.err_bytes = ch->out[1].end;
		ch->state = CHANNEL_ENDED;
	}
	if (ch->sink == NULL)
		return;
	send_stream(ch, 0);
	send_stream(ch, 1);
	if (ch->state == CHANNEL_ENDED && !ch->exit_sent && streams_sent(ch)) {
		agent_put_exit(&ch->sink->out, ch->sink_client, ch->id, &ch->status);
		ch->exit_sent = true;
	}
}

int channel_ack(struct server *s, const struct agent_header *head, struct err *e)
{
	struct channel *ch = channel_find(s, head->channel);
	unsigned int name = head->flags & AGENT_F_STREAM;
	struct stream *st;

	if (ch == NULL)
		return not_found(head->channel, e);
	if (name == AGENT_STREAM_EXIT) {
		if (ch->state != CHANNEL_ENDED)
			return err_set(e, ERR_CONFLICT, 0, "the command has not ended");
		channel_free(ch);
		return 0;
	}
	if (name != AGENT_STREAM_OUT && name != AGENT_STREAM_ERR)
		return err_set(e, ERR_INVALID, 0, "no stream %u", name);
	st = &ch->out[name - AGENT_STREAM_OUT];
	if (head->offset > st->sent)
		return err_set(e, ERR_INVALID, 0, "an acknowledgement of bytes that were not sent");
	if (head->offset > st->base)
		st->base = head->offset;
	return 0;
}

/* --- input ---------------------------------------------------------------------------------- */

static void stdin_ack(struct channel *ch)
{
	struct agent_header head = {.type = AGENT_STDIN_ACK,
				    .flags = ch->in_fd < 0 ? AGENT_F_CLOSED : 0,
				    .client = ch->sink_client,
				    .channel = ch->id,
				    .offset = ch->in_fd < 0 ? ch->in_received : ch->in_written};

	if (ch->sink != NULL)
		agent_put(&ch->sink->out, &head, NULL, 0);
}

/* Where the line has begun, the first only ends the line as it is: two are needed. */
static unsigned int eof_bytes(const struct channel *ch)
{
	unsigned char last = '\n';

	if (ch->in_written > 0)
		last = ch->in_ring[(size_t)(ch->in_written - 1) & RING_MASK];
	return last == '\n' || last == '\r' || last == pty_eof_byte(ch->in_fd) ? 1 : 2;
}

/* True when all of it is out. */
static bool type_eof(struct channel *ch)
{
	unsigned char byte = pty_eof_byte(ch->in_fd);

	if (ch->eof_bytes == 0)
		ch->eof_bytes = eof_bytes(ch);
	while (ch->eof_bytes > 0) {
		ssize_t done = write(ch->in_fd, &byte, 1);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && errno == EAGAIN)
			return false;
		ch->eof_bytes = done < 0 ? 0 : ch->eof_bytes - 1;
	}
	return true;
}

static void channel_write_stdin(struct channel *ch)
{
	uint64_t before = ch->in_written;

	while (ch->in_fd >= 0 && ch->in_written < ch->in_received) {
		size_t at = (size_t)ch->in_written & RING_MASK;
		size_t part = (size_t)(ch->in_received - ch->in_written);
		ssize_t done;

		if (part > WINDOW - at)
			part = WINDOW - at;
		done = write(ch->in_fd, ch->in_ring + at, part);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && errno == EAGAIN)
			break;
		if (done < 0)
			fd_close_at(&ch->in_fd); /* the program closed its input */
		else
			ch->in_written += (uint64_t)done;
	}
	if (ch->in_fd >= 0 && ch->in_eof && ch->in_written == ch->in_received &&
	    (!ch->pty || type_eof(ch)))
		fd_close_at(&ch->in_fd);
	if (ch->in_fd < 0 || ch->in_written != before)
		stdin_ack(ch);
}

void channel_stdin_event(struct channel *ch, bool broken)
{
	if (broken && ch->in_fd >= 0) {
		/* all readers are gone */
		fd_close_at(&ch->in_fd);
		stdin_ack(ch);
		return;
	}
	if (channel_wants_to_write(ch))
		channel_write_stdin(ch);
}

static void store_input(struct channel *ch, const unsigned char *data, size_t length)
{
	size_t at = (size_t)ch->in_received & RING_MASK;
	size_t first = length < WINDOW - at ? length : WINDOW - at;

	memcpy(ch->in_ring + at, data, first);
	memcpy(ch->in_ring, data + first, length - first);
	ch->in_received += length;
}

int channel_stdin(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct channel *ch = channel_find(s, f->head.channel);
	const unsigned char *data = f->payload;
	size_t length = f->head.length;
	uint64_t known;

	if (ch == NULL)
		return not_found(f->head.channel, e);
	if (f->head.offset > ch->in_received)
		return err_set(e, ERR_PROTOCOL, 0, "a gap in stdin");
	known = ch->in_received - f->head.offset;
	if (known > length)
		known = length;
	data += known;
	length -= (size_t)known;
	if (ch->in_fd < 0 || ch->in_eof) {
		/* nobody reads it: taken and dropped */
		struct agent_header head = {.type = AGENT_STDIN_ACK,
					    .flags = AGENT_F_CLOSED,
					    .client = f->head.client,
					    .channel = ch->id};

		ch->in_received += length;
		head.offset = ch->in_received;
		agent_put(&c->out, &head, NULL, 0);
		return 0;
	}
	if (length > WINDOW - (size_t)(ch->in_received - ch->in_written))
		return err_set(e, ERR_LIMIT, 0, "more than %zu bytes of stdin under way", WINDOW);
	store_input(ch, data, length);
	if ((f->head.flags & AGENT_F_EOF) != 0)
		ch->in_eof = true;
	channel_write_stdin(ch);
	return 0;
}

/* --- control -------------------------------------------------------------------------------- */

int channel_signal(struct server *s, const struct agent_frame *f, struct err *e)
{
	struct channel *ch;
	int number;

	if (agent_get_signal(f, &number, e) != 0)
		return -1;
	if ((f->head.flags & AGENT_F_ALL) != 0 && s->is_init) {
		if (kill(-1, number) != 0 && errno != ESRCH)
			return err_set(e, ERR_IO, errno, "kill all");
		return 0;
	}
	if ((f->head.flags & AGENT_F_ALL) != 0) {
		/* not alone in a pid namespace: the groups of our own commands only */
		for (int i = 0; i < AGENT_MAX_CHANNELS; i++)
			if (s->channels[i].state != CHANNEL_FREE && s->channels[i].pid > 1)
				(void)kill(-s->channels[i].pid, number);
		return 0;
	}
	ch = channel_find(s, f->head.channel);
	if (ch == NULL || ch->pid <= 1)
		return not_found(f->head.channel, e);
	if (kill(-ch->pid, number) != 0) {
		/* before its setsid the child is no group yet */
		if (errno != ESRCH || ch->reaped || kill(ch->pid, number) != 0)
			return err_set(e, ERR_NOT_FOUND, errno, "kill");
	}
	return 0;
}

int channel_resize(struct server *s, const struct agent_frame *f, struct err *e)
{
	struct channel *ch = channel_find(s, f->head.channel);
	uint16_t rows;
	uint16_t cols;

	if (agent_get_resize(f, &rows, &cols, e) != 0)
		return -1;
	if (ch == NULL)
		return not_found(f->head.channel, e);
	if (!ch->pty)
		return err_set(e, ERR_INVALID, 0, "the command has no terminal");
	if (ch->tty_fd < 0)
		return err_set(e, ERR_CONFLICT, 0, "the command has ended");
	if (pty_resize(ch->tty_fd, rows, cols) != 0)
		return err_set(e, ERR_IO, errno, "resize");
	return 0;
}

int channel_reattach(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct channel *ch = channel_find(s, f->head.channel);
	uint64_t values[AGENT_RESULT_VALUES] = {0};
	uint64_t offsets[2];

	if (agent_get_reattach(f, offsets, e) != 0)
		return -1;
	if (ch == NULL)
		return not_found(f->head.channel, e);
	for (int i = 0; i < 2; i++)
		if (offsets[i] < ch->out[i].base || offsets[i] > ch->out[i].end)
			return err_set(
			    e, ERR_CONFLICT, 0, "stream %d has bytes %llu to %llu, not %llu", i + 1,
			    (unsigned long long)ch->out[i].base, (unsigned long long)ch->out[i].end,
			    (unsigned long long)offsets[i]);
	for (int i = 0; i < 2; i++) {
		ch->out[i].base = offsets[i];
		ch->out[i].sent = offsets[i];
	}
	ch->sink = c;
	ch->sink_client = f->head.client;
	ch->exit_sent = false;
	values[0] = ch->in_received;
	agent_put_result(&c->out, &f->head, values);
	/* how much the program has taken of it */
	stdin_ack(ch);
	if (ch->state == CHANNEL_RUNNING)
		agent_put_started(&c->out, f->head.client, ch->id, (uint32_t)ch->pid);
	return 0;
}

void channel_detach(struct server *s, const struct conn *c)
{
	for (int i = 0; i < AGENT_MAX_CHANNELS; i++)
		if (s->channels[i].state != CHANNEL_FREE && s->channels[i].sink == c)
			s->channels[i].sink = NULL;
}

void channel_list(struct server *s, struct agent_welcome *out)
{
	for (int i = 0; i < AGENT_MAX_CHANNELS; i++) {
		const struct channel *ch = &s->channels[i];
		struct agent_channel_info *info = &out->channels[out->count];

		if (ch->state == CHANNEL_FREE)
			continue;
		info->channel = ch->id;
		info->pid = ch->reaped ? 0 : (uint32_t)ch->pid;
		info->ended = ch->state == CHANNEL_ENDED;
		info->in_received = ch->in_received;
		for (int k = 0; k < 2; k++) {
			info->base[k] = ch->out[k].base;
			info->end[k] = ch->out[k].end;
		}
		out->count++;
	}
}
