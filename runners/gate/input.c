/*
 * What the client of a stream types, on its way to the runner (core/input.h): text messages
 * {"type":"stdin","encoding":"utf8"|"base64","data":...}; anything else is ignored, and all of it
 * when the run is not interactive. The runner judges the limits.
 *
 * While the runner has not taken what was sent, the client is not read, so at most one message and
 * what libwebsockets had read with it are in memory. When the runner is away they wait for the next
 * one; what lay in its socket is lost.
 */
#include "runners/core/input.h"
#include "runners/base/fdio.h"
#include "runners/base/str.h"
#include "runners/base/wire.h"
#include "runners/core/json.h"
#include "runners/gate/gate.h"

#define MESSAGE_BYTES ((size_t)256 << 10)
#define FRAMES_BYTES  (2 * MESSAGE_BYTES)
#define RETRY_US      (200 * 1000LL)
#define LENGTH_BYTES  4U

static void flush(struct stream *stream);

void input_open(struct stream *stream, bool wanted)
{
	struct stream_input *in = &stream->input;

	in->wanted = wanted;
	in->fd = -1;
	buf_init(&in->message, MESSAGE_BYTES);
	buf_init(&in->frames, FRAMES_BYTES);
}

static void stop_watch(struct stream *stream)
{
	/* the watcher knows whether it runs */
	ev_io_stop(stream->gate->loop, &stream->input.writable);
}

void input_close(struct stream *stream)
{
	struct stream_input *in = &stream->input;

	stop_watch(stream);
	timer_stop(stream->gate->loop, &in->retry);
	fd_close_at(&in->fd);
	buf_release(&in->message);
	buf_release(&in->frames);
	in->wanted = false;
}

void input_keep(struct stream *stream)
{
	/* its pongs are not read either */
	if (stream->input.stopped)
		lws_validity_confirmed(stream->wsi);
}

/* --- to the runner ---------------------------------------------------------------------------- */

static void set_stopped(struct stream *stream, bool stopped)
{
	if (stream->input.stopped == stopped)
		return;
	stream->input.stopped = stopped;
	(void)lws_rx_flow_control(stream->wsi, stopped ? 0 : 1);
}

static void on_writable(struct ev_loop *loop, ev_io *watcher, int events)
{
	struct stream *stream = watcher->data;

	(void)loop;
	(void)events;
	stop_watch(stream);
	flush(stream);
}

static void retry_due(struct gate_timer *timer)
{
	flush(lws_container_of(timer, struct stream, input.retry));
}

/* 1 sent, 0 not now, -1 the runner is away. */
static int send_part(struct stream *stream)
{
	struct stream_input *in = &stream->input;
	struct err e = ERR_INIT;
	size_t length = wire_load_u32((const unsigned char *)in->frames.data);
	size_t part = length - in->sent;
	int got;

	if (in->fd < 0)
		in->fd = input_connect(stream->gate->policy->paths.run, &e);
	if (in->fd < 0)
		return -1;
	if (part > INPUT_BYTES)
		part = INPUT_BYTES;
	got = input_send(in->fd, stream->run->id, in->sent == 0,
			 in->frames.data + LENGTH_BYTES + in->sent, part, &e);
	if (got < 0) {
		fd_close_at(&in->fd);
		return -1;
	}
	if (got == 0)
		return 0;
	in->sent += part;
	if (in->sent == length) {
		buf_consume(&in->frames, LENGTH_BYTES + length);
		in->sent = 0;
	}
	return 1;
}

static void flush(struct stream *stream)
{
	struct stream_input *in = &stream->input;
	int got = 1;

	/* nobody reads it any more */
	if (stream->run->ended)
		buf_reset(&in->frames);
	while (got == 1 && in->frames.len > 0)
		got = send_part(stream);
	set_stopped(stream, in->frames.len > 0);
	if (got == 0 && in->frames.len > 0) {
		ev_io_init(&in->writable, on_writable, in->fd, EV_WRITE);
		in->writable.data = stream;
		ev_io_start(stream->gate->loop, &in->writable);
	} else if (got < 0) {
		timer_start(stream->gate->loop, &in->retry, retry_due, RETRY_US);
	}
}

/* --- from the client -------------------------------------------------------------------------- */

/* The bytes of a stdin message. False: it is none. */
static bool decode(struct buf *out, const json_t *root)
{
	const char *type = json_text(json_object_get(root, "type"));
	const json_t *encoding = json_object_get(root, "encoding");
	const json_t *data = json_object_get(root, "data");
	const char *name =
	    encoding == NULL || json_is_null(encoding) ? "utf8" : json_text(encoding);

	if (type == NULL || !str_equal(type, "stdin") || name == NULL || !json_is_string(data))
		return false;
	if (str_equal(name, "base64"))
		return str_unbase64(out, json_string_value(data), json_string_length(data)) == 0;
	buf_add(out, json_string_value(data), json_string_length(data));
	return str_equal(name, "utf8");
}

static int take(struct stream *stream)
{
	struct stream_input *in = &stream->input;
	scope_json json_t *root = NULL;
	scope_buf struct buf bytes = BUF_NONE;
	unsigned char length[LENGTH_BYTES];
	struct err ignored = ERR_INIT;
	bool waits = in->frames.len > 0;

	buf_init(&bytes, MESSAGE_BYTES);
	if (json_parse(buf_text(&in->message), in->message.len, &root, &ignored) != 0 ||
	    !decode(&bytes, root) || !buf_ok(&bytes) || bytes.len == 0)
		return 0;
	wire_store_u32(length, (uint32_t)bytes.len);
	buf_add(&in->frames, length, sizeof(length));
	buf_add(&in->frames, bytes.data, bytes.len);
	if (!buf_ok(&in->frames))
		return -1;
	/* a full socket's watcher, or the timer, goes on with what waits */
	if (!waits)
		flush(stream);
	return 0;
}

int input_received(struct stream *stream, const void *data, size_t length)
{
	struct stream_input *in = &stream->input;
	int result = 0;

	if (!in->wanted || stream->run->ended || stream->close_code != 0)
		return 0;
	if (lws_is_first_fragment(stream->wsi) != 0) {
		buf_reset(&in->message);
		in->skip = lws_frame_is_binary(stream->wsi) != 0;
	}
	if (!in->skip)
		buf_add(&in->message, data, length);
	if (!buf_ok(&in->message))
		return -1;
	if (lws_is_final_fragment(stream->wsi) == 0)
		return 0;
	if (!in->skip)
		result = take(stream);
	/* a silent socket keeps no memory */
	buf_release(&in->message);
	buf_init(&in->message, MESSAGE_BYTES);
	return result;
}
