/*
 * stream: WebSockets on the bytes socket. A worker has judged the caller; here the spool is read
 * from the first record and sent from from_seq on, then followed as it grows. One record is in
 * memory at a time and nothing is sent while the socket is full, so a slow reader costs a file
 * position and never slows another. After the last record comes `end`, made from the run's row, and
 * close 1000.
 *
 * What the client sends is for an interactive run's input (input.c), else it is dropped.
 */
#include "runners/base/clock.h"
#include "runners/base/limits.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/json.h"
#include "runners/gate/frames.h"

#define PREFIX         "/internal/stream/"
#define FRAMES_A_TURN  64
#define SLOW_US        (60 * CLOCK_US_PER_S)
#define SHORT_US       (100 * CLOCK_US_PER_MS)
#define SHORT_ROUNDS   20
#define CLOSE_LARGE    1009
#define CLOSE_FAULT    1011
#define CLOSE_GOING    1012
#define CLOSE_SLOW     1013
#define CLOSE_KEY      4401
#define EXPIRY_MAX_MS  (INT64_C(366) * 86400 * 1000)
#define ERROR_BYTES    1024
#define FRAME_MAX_SIZE (LIMIT_RECORD_BYTES * 8)

static struct gate *gate_of(struct lws *wsi)
{
	return lws_context_user(lws_get_context(wsi));
}

void stream_wake(struct stream *stream)
{
	(void)lws_callback_on_writable(stream->wsi);
}

static void want_close(struct stream *stream, int code)
{
	if (stream->close_code == 0)
		stream->close_code = code;
	stream_wake(stream);
}

void stream_close_all(struct gate *gate, const char *key_id)
{
	lws_start_foreach_dll(struct lws_dll2 *, d, lws_dll2_get_head(&gate->streams))
	{
		struct stream *stream = lws_container_of(d, struct stream, in_all);

		if (key_id == NULL || str_equal(stream->key_id, key_id))
			want_close(stream, key_id == NULL ? CLOSE_GOING : CLOSE_KEY);
	}
	lws_end_foreach_dll(d);
}

static void tell_keys(struct gate *gate)
{
	scope_free char(*keys)[GATE_KEY_BYTES] = NULL;
	size_t count = 0;

	keys = mem_zalloc(gate->streams.count + 1, sizeof(*keys));
	if (keys == NULL)
		return;
	lws_start_foreach_dll(struct lws_dll2 *, d, lws_dll2_get_head(&gate->streams))
	{
		const struct stream *stream = lws_container_of(d, struct stream, in_all);
		bool known = stream->key_id[0] == '\0';

		for (size_t i = 0; i < count && !known; i++)
			known = str_equal(keys[i], stream->key_id);
		if (!known)
			memcpy(keys[count++], stream->key_id, GATE_KEY_BYTES);
	}
	lws_end_foreach_dll(d);
	sql_watch_keys(gate->sql, (const char(*)[GATE_KEY_BYTES])keys, count);
}

/* --- handshake
 * ------------------------------------------------------------------------------------------------
 */

struct handshake {
	char id[IDENT_UUID_SIZE];
	uint64_t from_seq;
	bool interactive;
	int64_t expires_ms; /* real time; 0: never */
	char user[GATE_USER_BYTES];
	char key_id[GATE_KEY_BYTES];
	char persona[GATE_TAG_BYTES];
	char session[GATE_TAG_BYTES];
};

static int argument(struct lws *wsi, const char *name, char *out, size_t size)
{
	char room[GATE_USER_BYTES + 8];
	const char *value = lws_get_urlarg_by_name(wsi, name, room, sizeof(room));

	return value == NULL ? -1 : str_copy(out, size, value);
}

static int read_handshake(struct lws *wsi, struct handshake *out)
{
	char path[GATE_PATH_BYTES];
	char text[32];
	const char *last;
	struct err ignored = ERR_INIT;

	memset(out, 0, sizeof(*out));
	if (lws_hdr_copy(wsi, path, sizeof(path), WSI_TOKEN_GET_URI) <= 0 ||
	    !str_starts(path, PREFIX))
		return -1;
	last = strrchr(path, '/');
	if (last == NULL || !ident_is_uuid(last + 1))
		return -1;
	memcpy(out->id, last + 1, sizeof(out->id));
	if (argument(wsi, "from=", text, sizeof(text)) != 0 ||
	    num_u64("from", text, 0, INT64_MAX, &out->from_seq, &ignored) != 0)
		out->from_seq = 0;
	out->interactive = argument(wsi, "i=", text, sizeof(text)) == 0 && str_equal(text, "1");
	if (argument(wsi, "x=", text, sizeof(text)) != 0 ||
	    num_i64("x", text, 0, INT64_MAX, &out->expires_ms, &ignored) != 0)
		out->expires_ms = 0;
	/* absent is "": the run has none, or the caller came with a token */
	if (argument(wsi, "pe=", out->persona, sizeof(out->persona)) != 0)
		out->persona[0] = '\0';
	if (argument(wsi, "se=", out->session, sizeof(out->session)) != 0)
		out->session[0] = '\0';
	if (argument(wsi, "k=", out->key_id, sizeof(out->key_id)) != 0)
		out->key_id[0] = '\0';
	if (out->key_id[0] == '\0' && out->expires_ms == 0)
		return -1;
	return argument(wsi, "p=", out->user, sizeof(out->user)) != 0 ? -1 : 0;
}

/* The quota that one more stream would break, or NULL. */
static const char *broken_quota(struct gate *gate, const struct handshake *h, int64_t *out_limit)
{
	int64_t of_user = 0;
	int64_t of_run = 0;
	int64_t of_persona = 0;
	int64_t of_session = 0;
	const struct policy *p = gate->policy;

	lws_start_foreach_dll(struct lws_dll2 *, d, lws_dll2_get_head(&gate->streams))
	{
		const struct stream *stream = lws_container_of(d, struct stream, in_all);

		of_user += str_equal(stream->user, h->user);
		of_run += str_equal(stream->run->id, h->id);
		of_persona += h->persona[0] != '\0' && str_equal(stream->persona, h->persona);
		of_session += h->session[0] != '\0' && str_equal(stream->session, h->session);
	}
	lws_end_foreach_dll(d);
	*out_limit = p->gate.ws_max_total;
	if (p->gate.ws_max_total > 0 && (int64_t)gate->streams.count >= p->gate.ws_max_total)
		return "total_connections_quota_exceeded";
	*out_limit = p->gate.ws_max_per_user;
	if (p->gate.ws_max_per_user > 0 && of_user >= p->gate.ws_max_per_user)
		return "user_connections_quota_exceeded";
	*out_limit = p->gate.ws_max_per_persona;
	if (p->gate.ws_max_per_persona > 0 && of_persona >= p->gate.ws_max_per_persona)
		return "persona_connections_quota_exceeded";
	*out_limit = p->gate.ws_max_per_session;
	if (p->gate.ws_max_per_session > 0 && of_session >= p->gate.ws_max_per_session)
		return "session_connections_quota_exceeded";
	*out_limit = p->gate.ws_max_per_run;
	if (p->gate.ws_max_per_run > 0 && of_run >= p->gate.ws_max_per_run)
		return "run_connections_quota_exceeded";
	return NULL;
}

/* An HTTP answer in the face's shape instead of the handshake's. Always -1: the connection ends. */
static int refuse(struct lws *wsi, unsigned int status, const char *code, const char *message,
		  json_t *details)
{
	unsigned char room[LWS_PRE + ERROR_BYTES * 2];
	unsigned char *start = room + LWS_PRE;
	unsigned char *p = start;
	unsigned char *end = room + sizeof(room) - ERROR_BYTES;
	scope_json json_t *body =
	    json_pack("{s:{s:s, s:s, s:o}}", "error", "code", code, "message", message, "details",
		      details == NULL ? json_object() : details);
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;

	buf_init(&text, ERROR_BYTES);
	if (body == NULL || json_write(&text, body, &e) != 0)
		return -1;
	if (lws_add_http_common_headers(wsi, status, "application/json", text.len, &p, end) != 0 ||
	    lws_finalize_http_header(wsi, &p, end) != 0)
		return -1;
	memcpy(p, text.data, text.len);
	p += text.len;
	(void)lws_write(wsi, start, (size_t)(p - start), LWS_WRITE_HTTP_HEADERS);
	return -1;
}

static int judge(struct lws *wsi)
{
	struct gate *gate = gate_of(wsi);
	struct handshake h;
	const char *quota;
	int64_t limit;

	if (read_handshake(wsi, &h) != 0)
		return refuse(wsi, 400, "invalid_request", "This is not a stream.", NULL);
	if (gate->stopping)
		return refuse(wsi, 503, "service_unavailable", "The service restarts. Try again.",
			      NULL);
	quota = broken_quota(gate, &h, &limit);
	if (quota != NULL)
		return refuse(wsi, 429, "connection_quota", "Too many open streams.",
			      json_pack("{s:i, s:s, s:I}", "close_code", 4429, "reason", quota,
					"limit", (json_int_t)limit));
	return 0;
}

static void expiry_due(struct gate_timer *timer)
{
	want_close(lws_container_of(timer, struct stream, expiry), CLOSE_KEY);
}

static void start_expiry(struct stream *stream, int64_t expires_ms)
{
	int64_t left = expires_ms - clock_real_us() / CLOCK_US_PER_MS;

	if (left < 0)
		left = 0;
	/* a token of many years does not overflow the timer */
	if (left < EXPIRY_MAX_MS)
		timer_start(stream->gate->loop, &stream->expiry, expiry_due,
			    left * CLOCK_US_PER_MS);
}

static int begin(struct lws *wsi, struct stream *stream)
{
	struct gate *gate = gate_of(wsi);
	struct handshake h;

	memset(stream, 0, sizeof(*stream));
	stream->gate = gate;
	stream->wsi = wsi;
	stream->reader.fd = -1;
	if (read_handshake(wsi, &h) != 0)
		return -1;
	stream->run = gate_watch(gate, h.id);
	if (stream->run == NULL)
		return -1;
	stream->from_seq = h.from_seq;
	memcpy(stream->user, h.user, sizeof(stream->user));
	memcpy(stream->key_id, h.key_id, sizeof(stream->key_id));
	memcpy(stream->persona, h.persona, sizeof(stream->persona));
	memcpy(stream->session, h.session, sizeof(stream->session));
	if (h.expires_ms != 0)
		start_expiry(stream, h.expires_ms);
	stream->progress_us = clock_monotonic_us();
	input_open(stream, h.interactive);
	lws_dll2_add_tail(&stream->in_run, &stream->run->streams);
	lws_dll2_add_tail(&stream->in_all, &gate->streams);
	tell_keys(gate);
	if (!stream->run->ended && !stream->run->asked) {
		stream->run->asked = true;
		sql_ask(gate->sql, stream->run->id);
	}
	stream_wake(stream);
	return 0;
}

static void leave(struct stream *stream)
{
	struct gate *gate = stream->gate;

	if (stream->run == NULL)
		return;
	spool_reader_close(&stream->reader);
	input_close(stream);
	timer_stop(gate->loop, &stream->short_timer);
	timer_stop(gate->loop, &stream->expiry);
	lws_dll2_remove(&stream->in_run);
	lws_dll2_remove(&stream->in_all);
	gate_unwatch(gate, stream->run);
	stream->run = NULL;
	tell_keys(gate);
}

/* --- sending
 * --------------------------------------------------------------------------------------------------
 */

static int send_text(struct stream *stream, struct buf *frame)
{
	int sent;

	/* the first LWS_PRE bytes are room for libwebsockets */
	sent = lws_write(stream->wsi, (unsigned char *)frame->data + LWS_PRE, frame->len - LWS_PRE,
			 LWS_WRITE_TEXT);
	stream->progress_us = clock_monotonic_us();
	return sent < (int)(frame->len - LWS_PRE) ? -1 : 0;
}

static void frame_start(struct buf *frame)
{
	static const char room[LWS_PRE];

	buf_init(frame, FRAME_MAX_SIZE);
	buf_add(frame, room, sizeof(room));
}

static bool open_reader(struct stream *stream)
{
	struct err e = ERR_INIT;

	if (stream->opened)
		return true;
	stream->opened =
	    spool_open(&stream->reader, stream->gate->policy->paths.data, stream->run->id, &e) == 0;
	stream->removed = e.code == ERR_NOT_FOUND;
	/* once: a live run wakes its streams with every piece of output */
	if (!stream->opened && !stream->removed && stream->run->ended && stream->short_rounds == 0)
		log_err(LOG_WARNING, "stream_open", &e, "run=%s", stream->run->id);
	return stream->opened;
}

static int send_end(struct stream *stream)
{
	const struct run_end *end = &stream->run->end;
	uint64_t seq = end->has_last_seq ? end->last_seq : stream->reader.last_seq;
	scope_buf struct buf frame = BUF_NONE;
	struct err e = ERR_INIT;

	frame_start(&frame);
	if (frame_end(&frame, end, seq + 1, &e) != 0 || send_text(stream, &frame) != 0)
		return -1;
	stream->end_sent = true;
	stream->close_code = LWS_CLOSE_STATUS_NORMAL;
	stream_wake(stream);
	return 0;
}

/* All that the run's row says was sent, or there is nothing any more to send it from. */
static bool is_complete(const struct stream *stream)
{
	const struct run_end *end = &stream->run->end;

	return !end->has_last_seq || stream->removed || stream->reader.last_seq >= end->last_seq;
}

static void short_due(struct gate_timer *timer)
{
	stream_wake(lws_container_of(timer, struct stream, short_timer));
}

/* The row of an ended run is written behind its last record, so this is a fault: of the disk, or of
 * this process's descriptors. It may pass; `end` without the records before it is never sent. */
static void look_again(struct stream *stream)
{
	const struct run_end *end = &stream->run->end;

	if (stream->short_rounds++ == 0)
		log_event(LOG_WARNING, "stream_short", "run=%s last=%llu wanted=%llu",
			  stream->run->id, (unsigned long long)stream->reader.last_seq,
			  (unsigned long long)end->last_seq);
	if (stream->short_rounds > SHORT_ROUNDS)
		want_close(stream, CLOSE_FAULT);
	else
		timer_start(stream->gate->loop, &stream->short_timer, short_due, SHORT_US);
}

/* The input's idle limit has struck while this socket was open; one that is opened later replays
 * the record and goes on. */
static bool is_idle(const struct stream *stream, const struct spool_record *record)
{
	static const char reason[] = "stdin_idle";

	return record->kind == SPOOL_TRUNCATED && stream->caught_up && !stream->run->ended &&
	       record->length == strlen(reason) &&
	       memcmp(record->bytes, reason, record->length) == 0;
}

/* Sends the next record that the client wants. 1 sent or skipped, 0 nothing there, -1 over. */
static int send_next(struct stream *stream)
{
	struct spool_record *record = stream->gate->record;
	const struct run_end *end = &stream->run->end;
	scope_buf struct buf frame = BUF_NONE;
	struct err e = ERR_INIT;
	int got;

	frame_start(&frame);
	if (!open_reader(stream))
		return 0;
	if (stream->run->ended && end->has_last_seq && stream->reader.last_seq >= end->last_seq)
		return 0;
	got = spool_next(&stream->reader, record, &e);
	if (got <= 0)
		return got;
	if (record->seq < stream->from_seq)
		return 1;
	if (frame_record(&frame, record, &e) != 0 || send_text(stream, &frame) != 0)
		return -1;
	if (is_idle(stream, record))
		want_close(stream, LWS_CLOSE_STATUS_NORMAL);
	return 1;
}

static int write_some(struct stream *stream)
{
	bool dry = false;

	if (stream->close_code != 0) {
		lws_close_reason(stream->wsi, (enum lws_close_status)stream->close_code, NULL, 0);
		return -1;
	}
	for (int i = 0; i < FRAMES_A_TURN && !dry && stream->close_code == 0; i++) {
		int got;

		if (lws_send_pipe_choked(stream->wsi) != 0) {
			stream_wake(stream);
			return 0;
		}
		got = send_next(stream);
		if (got < 0)
			return -1;
		dry = got == 0;
	}
	if (!dry) {
		stream_wake(stream);
		return 0;
	}
	stream->caught_up = true;
	/* the spool was read up to its last whole record, and the row says that nobody writes any
	 * more */
	if (stream->end_sent || !stream->run->ended)
		return 0;
	if (is_complete(stream))
		return send_end(stream);
	look_again(stream);
	return 0;
}

/* A reader that took nothing for a minute although there is something to send. */
static void check_slow(struct stream *stream)
{
	if (lws_send_pipe_choked(stream->wsi) != 0 &&
	    clock_monotonic_us() - stream->progress_us > SLOW_US)
		want_close(stream, CLOSE_SLOW);
}

int stream_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		    size_t len)
{
	struct stream *stream = user;

	switch ((int)reason) {
	case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
		return judge(wsi);
	case LWS_CALLBACK_ESTABLISHED:
		return begin(wsi, stream);
	case LWS_CALLBACK_SERVER_WRITEABLE:
		if (stream->run == NULL)
			return -1;
		check_slow(stream);
		input_keep(stream);
		return write_some(stream);
	case LWS_CALLBACK_RECEIVE:
		if (stream->run != NULL && input_received(stream, in, len) != 0)
			want_close(stream, CLOSE_LARGE);
		return 0;
	case LWS_CALLBACK_CLOSED:
		leave(stream);
		return 0;
	case LWS_CALLBACK_HTTP:
		return refuse(wsi, 426, "upgrade_required",
			      "This path is a WebSocket: connect with wss.", NULL);
	case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
		return 0;
	default:
		return lws_callback_http_dummy(wsi, reason, user, in, len);
	}
}
