/* The stream of a run as a client of the WebSocket: frames to the caller, typed input to the run.
 */
#include "runners/ctl/client.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/limits.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

#include <fcntl.h>
#include <libwebsockets.h>

#define TRIES_MAX    20
#define TRY_AGAIN_US (500 * CLOCK_US_PER_MS)
#define TYPED_BYTES  16384 /* of one message */

struct session {
	struct client *client;
	const struct client_reader *reader;
	struct buf text;
	struct buf typed;  /* read, not sent yet; while there is something, nothing is read */
	struct lws *wsi;   /* of the stream, once it is open */
	struct lws *input; /* NULL: not looked at: none, or its writers are gone (libwebsockets
			      closes then, even when there is something left to read) */
	bool input_over;
	uint64_t next_seq;
	char
	    signature[160]; /* "&token=...&exp=..."; "": streams are not signed, or not known yet */
	bool connected;     /* at least once, in this try */
	bool over;
	bool ended; /* the caller or `end` finished it */
	char reason[160];
};

static void take_frame(struct session *s)
{
	scope_json json_t *frame = NULL;
	struct err e = ERR_INIT;
	const json_t *seq;

	if (json_parse(buf_text(&s->text), s->text.len, &frame, &e) != 0)
		return;
	seq = json_object_get(frame, "seq");
	if (json_is_integer(seq) && json_integer_value(seq) > 0)
		s->next_seq = (uint64_t)json_integer_value(seq) + 1;
	if (s->reader->each(frame, s->reader->arg))
		s->ended = true;
}

/* The input is looked at beside the stream, by a duplicate, which goes with the connection. */
static void watch_input(struct session *s, struct lws *wsi)
{
	lws_sock_file_fd_type fd;

	s->wsi = wsi;
	s->input = NULL;
	if (s->input_over)
		return;
	fd.filefd = fcntl(s->reader->input_fd, F_DUPFD_CLOEXEC, 3);
	if (fd.filefd < 0)
		return;
	s->input = lws_adopt_descriptor_vhost(lws_get_vhost(wsi), LWS_ADOPT_RAW_FILE_DESC, fd,
					      "input", NULL);
	if (s->input != NULL && s->typed.len > 0)
		(void)lws_rx_flow_control(s->input, 0);
	if (s->typed.len > 0)
		(void)lws_callback_on_writable(wsi);
}

/* One read, which does not wait: the descriptor is readable. Then none until that is sent. -1: it
 * has ended. */
static int read_input(struct session *s)
{
	char bytes[TYPED_BYTES];
	ssize_t got = read(s->reader->input_fd, bytes, sizeof(bytes));

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got <= 0) {
		s->input_over = true;
		return -1;
	}
	buf_add(&s->typed, bytes, (size_t)got);
	if (s->input != NULL)
		(void)lws_rx_flow_control(s->input, 0);
	(void)lws_callback_on_writable(s->wsi);
	return 0;
}

static int send_typed(struct session *s)
{
	scope_buf struct buf base64 = BUF_NONE;
	scope_json json_t *message = NULL;
	unsigned char framed[LWS_PRE + TYPED_BYTES * 2];
	size_t length;

	if (s->typed.len == 0)
		return 0;
	buf_init(&base64, TYPED_BYTES * 2);
	str_base64(&base64, buf_text(&s->typed), s->typed.len);
	message = json_pack("{s:s, s:s, s:s}", "type", "stdin", "encoding", "base64", "data",
			    buf_text(&base64));
	if (message == NULL)
		return -1;
	length =
	    json_dumpb(message, (char *)framed + LWS_PRE, sizeof(framed) - LWS_PRE, JSON_COMPACT);
	if (length == 0 || length > sizeof(framed) - LWS_PRE ||
	    lws_write(s->wsi, framed + LWS_PRE, length, LWS_WRITE_TEXT) < (int)length)
		return -1;
	buf_reset(&s->typed);
	if (s->input != NULL)
		(void)lws_rx_flow_control(s->input, 1);
	else if (!s->input_over)
		(void)read_input(s);
	return 0;
}

static int input_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
			  size_t len)
{
	struct session *s = lws_context_user(lws_get_context(wsi));

	(void)user;
	(void)in;
	(void)len;
	if (reason == LWS_CALLBACK_RAW_RX_FILE)
		return read_input(s);
	if (reason == LWS_CALLBACK_RAW_CLOSE_FILE) {
		s->input = NULL;
		/* a read does not wait where the writers are gone */
		if (!s->input_over && !s->over && !s->ended && s->typed.len == 0)
			(void)read_input(s);
	}
	return 0;
}

static int session_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
			    size_t len)
{
	struct session *s = lws_context_user(lws_get_context(wsi));
	unsigned char **at = in;

	(void)user;
	switch ((int)reason) {
	case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
		return lws_add_http_header_by_name(
		    wsi, (const unsigned char *)"x-api-key:", (const unsigned char *)s->client->key,
		    (int)strlen(s->client->key), at, *at + len);
	case LWS_CALLBACK_CLIENT_ESTABLISHED:
		s->connected = true;
		watch_input(s, wsi);
		return 0;
	case LWS_CALLBACK_CLIENT_WRITEABLE:
		return send_typed(s);
	case LWS_CALLBACK_CLIENT_RECEIVE:
		buf_add(&s->text, in, len);
		if (lws_is_final_fragment(wsi) != 0) {
			take_frame(s);
			buf_reset(&s->text);
		}
		return s->ended ? -1 : 0;
	case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
		(void)snprintf(s->reason, sizeof(s->reason), "%.*s", in == NULL ? 0 : (int)len,
			       in == NULL ? "" : (const char *)in);
		s->over = true;
		return 0;
	case LWS_CALLBACK_CLIENT_CLOSED:
		s->over = true;
		return 0;
	default:
		return 0;
	}
}

static const struct lws_protocols session_protocols[] = {
    {.name = "cordonctl", .callback = session_callback, .rx_buffer_size = 65536},
    {.name = "input", .callback = input_callback},
    {.name = NULL}};

/* host and port of https://host[:port] */
static int split_url(const char *url, char *host, size_t size, int *out_port, struct err *e)
{
	const char *rest = str_after(url, "https://");
	size_t length = strcspn(rest, ":/");
	uint64_t port = 443;

	if (length == 0 || length >= size)
		return err_set(e, ERR_INVALID, 0, "CORDON_URL has no host");
	memcpy(host, rest, length);
	host[length] = '\0';
	if (rest[length] == ':') {
		char digits[8];

		(void)snprintf(digits, sizeof(digits), "%.*s", (int)strcspn(rest + length + 1, "/"),
			       rest + length + 1);
		if (num_u64("the port of CORDON_URL", digits, 1, 65535, &port, e) != 0)
			return -1;
	}
	*out_port = (int)port;
	return 0;
}

static int connect_once(struct session *s, const char *run_id, struct err *e)
{
	struct lws_context_creation_info info;
	struct lws_client_connect_info connect;
	struct lws_context *context;
	char host[256];
	char path[512];
	int port = 443;

	if (split_url(s->client->url, host, sizeof(host), &port, e) != 0)
		return -1;
	memset(&info, 0, sizeof(info));
	memset(&connect, 0, sizeof(connect));
	lws_set_log_level(0, NULL);
	info.port = CONTEXT_PORT_NO_LISTEN;
	info.protocols = session_protocols;
	info.options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
	info.client_ssl_ca_filepath = s->client->ca;
	info.user = s;
	info.gid = -1;
	info.uid = -1;
	context = lws_create_context(&info);
	if (context == NULL)
		return err_set(e, ERR_INTERNAL, 0, "lws_create_context");
	(void)snprintf(path, sizeof(path), "/api/v1/sandbox/runs/%s/stream?from_seq=%llu%s", run_id,
		       (unsigned long long)s->next_seq, s->signature);
	connect.context = context;
	connect.address = host;
	connect.port = port;
	connect.path = path;
	connect.host = host;
	connect.origin = host;
	connect.ssl_connection = LCCSCF_USE_SSL;
	connect.local_protocol_name = "cordonctl";
	s->over = false;
	s->connected = false;
	buf_reset(&s->text);
	if (lws_client_connect_via_info(&connect) == NULL)
		s->over = true;
	/* a signal ends the wait, and the idle function sees it */
	while (!s->over && !s->ended && lws_service(context, 0) >= 0)
		if (s->reader->idle != NULL)
			s->reader->idle(s->reader->arg);
	s->over = true;
	lws_context_destroy(context);
	return 0;
}

/* Where streams are signed, a fresh signature out of the run's log_stream_url. */
static void get_signature(struct session *s, const char *run_id)
{
	scope_json json_t *run = NULL;
	char path[128];
	const char *url;
	const char *token = NULL;
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "/api/v1/sandbox/runs/%s", run_id);
	if (client_call(s->client, "GET", path, NULL, NULL, &run, &e) != 0)
		return;
	url = json_text(json_object_get(run, "log_stream_url"));
	if (url != NULL)
		token = strstr(url, "token=");
	if (token == NULL || strlen(token) + 2 > sizeof(s->signature))
		return;
	s->signature[0] = '&';
	memcpy(s->signature + 1, token, strlen(token) + 1);
}

/* Why a handshake failed: libwebsockets hides the answer, so the path is asked without one. -1 with
 * the server's reason when it is no use to try again. */
static int ask_refusal(struct client *client, const char *run_id, struct err *e)
{
	json_t *body = NULL;
	char path[128];
	struct err answer = ERR_INIT;

	(void)snprintf(path, sizeof(path), "/api/v1/sandbox/runs/%s/stream", run_id);
	if (client_call(client, "GET", path, NULL, NULL, &body, &answer) == 0)
		json_decref(body);
	if (answer.code != ERR_NOT_FOUND && answer.code != ERR_UNAUTHORIZED)
		return 0;
	*e = answer;
	return -1;
}

int client_stream(struct client *client, const char *run_id, const struct client_reader *reader,
		  struct err *e)
{
	struct session s = {.client = client, .reader = reader, .next_seq = 1};
	int result = 0;

	s.input_over = reader->input_fd < 0;
	buf_init(&s.text, LIMIT_RECORD_BYTES * 8);
	buf_init(&s.typed, TYPED_BYTES);
	for (int failures = 0; !s.ended && result == 0;) {
		result = connect_once(&s, run_id, e);
		failures = s.connected ? 0 : failures + 1;
		if (!s.ended && result == 0)
			get_signature(&s, run_id);
		if (!s.ended && result == 0)
			result = ask_refusal(client, run_id, e);
		if (failures > TRIES_MAX)
			result = err_set(e, ERR_UNAVAILABLE, 0, "the stream cannot be reached: %s",
					 s.reason);
		if (!s.ended && result == 0)
			clock_sleep_us(TRY_AGAIN_US);
	}
	buf_release(&s.text);
	buf_release(&s.typed);
	return result;
}
