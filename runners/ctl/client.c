#include "runners/ctl/client.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/ident.h"
#include "runners/base/limits.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/uhttp.h"

#include <libwebsockets.h>

#define CALL_TIMEOUT_MS (3900 * 1000LL)
#define TRIES_MAX       20
#define TRY_AGAIN_US    (500 * CLOCK_US_PER_MS)

int client_open(struct client *out, struct err *e)
{
	out->url = getenv("CORDON_URL");
	out->key = getenv("CORDON_API_KEY");
	out->ca = getenv("CORDON_CA");
	if (out->url == NULL || out->key == NULL || !str_starts(out->url, "https://"))
		return err_set(
		    e, ERR_INVALID, 0,
		    "set CORDON_URL (https://host:port) and CORDON_API_KEY, and CORDON_CA for a "
		    "private certificate (in the private stack: set -a; . var/dev.env)");
	if (out->ca != NULL && out->ca[0] == '\0')
		out->ca = NULL;
	out->error = NULL;
	return 0;
}

void client_close(struct client *client)
{
	json_decref(client->error);
	client->error = NULL;
}

int client_fail(const struct ctl *ctl, struct client *client, const struct err *e)
{
	int status = CTL_EXIT_FAILED;

	if (ctl->json && client->error != NULL) {
		scope_json json_t *body =
		    json_pack("{s:s, s:s, s:O}", "error", err_code_name(e->code), "message",
			      e->text, "server", client->error);

		(void)json_dumpf(body, stderr, JSON_COMPACT);
		(void)fputc('\n', stderr);
	} else {
		status = ctl_fail(ctl, e);
	}
	client_close(client);
	return e->code == ERR_NOT_FOUND ? CTL_EXIT_FOUND : status;
}

/* The URL of a path; a slash at the end of CORDON_URL does no harm. */
static void make_url(const struct client *client, const char *path, char *out, size_t size)
{
	size_t length = strlen(client->url);

	while (length > 0 && client->url[length - 1] == '/')
		length--;
	(void)snprintf(out, size, "%.*s%s", (int)length, client->url, path);
}

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text == NULL ? "" : text;
}

static enum err_code class_of(long status)
{
	switch (status) {
	case 401:
		return ERR_UNAUTHORIZED;
	case 404:
		return ERR_NOT_FOUND;
	case 409:
		return ERR_CONFLICT;
	case 429:
		return ERR_LIMIT;
	case 502:
		return ERR_UNKNOWN_OUTCOME;
	case 503:
		return ERR_UNAVAILABLE;
	default:
		return ERR_INVALID;
	}
}

static int read_answer(struct client *client, const struct uhttp_answer *answer, json_t **out,
		       struct err *e)
{
	scope_json json_t *body = NULL;
	scope_buf struct buf why = BUF_NONE;
	struct err ignored = ERR_INIT;
	const json_t *error;
	json_t *details;

	if (json_parse(buf_text(&answer->body), answer->body.len, &body, &ignored) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "the server answered %ld without JSON",
			       answer->status);
	if (answer->status >= 200 && answer->status < 300) {
		*out = json_incref(body);
		return 0;
	}
	error = json_object_get(body, "error");
	client_close(client);
	client->error = json_incref((json_t *)(uintptr_t)error);
	details = json_object_get(error, "details");
	/* they name the field and what is allowed */
	buf_init(&why, LIMIT_REPLY_BYTES);
	if (json_object_size(details) > 0) {
		buf_add_char(&why, ' ');
		(void)json_write(&why, details, &ignored);
	}
	return err_set(e, class_of(answer->status), 0, "the server answered %ld %s: %s%s",
		       answer->status, text_of(error, "code"), text_of(error, "message"),
		       buf_ok(&why) ? buf_text(&why) : "");
}

static int call_once(struct client *client, struct uhttp_request *request, json_t **out,
		     struct err *e)
{
	struct uhttp_answer answer;
	int result;

	if (uhttp_do(request, &answer, e) != 0)
		return client->ca == NULL && strstr(e->text, "certificate") != NULL
			   ? err_wrap(e,
				      "set CORDON_CA to the server's certificate or its authority")
			   : -1;
	result = read_answer(client, &answer, out, e);
	uhttp_answer_release(&answer);
	return result;
}

int client_call(struct client *client, const char *method, const char *path, const char *prefer,
		json_t *body, json_t **out, struct err *e)
{
	char url[1024];
	char key[128];
	char want[64];
	char once[IDENT_UUID_SIZE + 32];
	char id[IDENT_UUID_SIZE];
	const char *headers[6] = {key, "Content-Type: application/json",
				  "Accept: application/json"};
	size_t count = 3;
	scope_buf struct buf text = BUF_NONE;
	struct uhttp_request request = {.method = method,
					.url = url,
					.ca_file = client->ca,
					.headers = headers,
					.timeout_ms = CALL_TIMEOUT_MS,
					.max_answer = LIMIT_REPLY_BYTES};
	int64_t until = clock_monotonic_us() + CLIENT_PATIENCE_S * CLOCK_US_PER_S;

	buf_init(&text, LIMIT_BODY_BYTES);
	make_url(client, path, url, sizeof(url));
	(void)snprintf(key, sizeof(key), "X-API-KEY: %s", client->key);
	(void)snprintf(want, sizeof(want), "Prefer: %s", prefer == NULL ? "" : prefer);
	if (prefer != NULL)
		headers[count++] = want;
	if (body != NULL) {
		if (json_write(&text, body, e) != 0 || ident_uuid(id, e) != 0)
			return -1;
		(void)snprintf(once, sizeof(once), "Idempotency-Key: cordonctl-%s", id);
		headers[count++] = once;
		request.body = buf_text(&text);
		request.body_length = text.len;
	}
	for (;;) {
		struct err inner = ERR_INIT;

		if (call_once(client, &request, out, &inner) == 0)
			return 0;
		if ((inner.code != ERR_UNAVAILABLE && inner.code != ERR_UNKNOWN_OUTCOME) ||
		    clock_monotonic_us() > until || strstr(inner.text, "certificate") != NULL ||
		    strstr(inner.text, "runtime_unavailable") != NULL) {
			*e = inner;
			return -1;
		}
		clock_sleep_us(TRY_AGAIN_US);
	}
}

int client_fetch(struct client *client, const char *path, struct buf *out, struct err *e)
{
	char url[8192];
	char key[128];
	const char *headers[2] = {key};
	struct uhttp_answer answer;
	struct uhttp_request request = {.method = "GET",
					.url = url,
					.ca_file = client->ca,
					.headers = headers,
					.timeout_ms = CALL_TIMEOUT_MS,
					.max_answer = out->max};
	json_t *ignored = NULL;
	int result = 0;

	make_url(client, path, url, sizeof(url));
	(void)snprintf(key, sizeof(key), "X-API-KEY: %s", client->key);
	if (uhttp_do(&request, &answer, e) != 0)
		return -1;
	if (answer.status == 200) {
		buf_add(out, buf_text(&answer.body), answer.body.len);
		if (!buf_ok(out))
			result = err_set(e, ERR_NOMEM, 0, "artifact");
	} else {
		result = read_answer(client, &answer, &ignored, e);
		json_decref(ignored);
	}
	uhttp_answer_release(&answer);
	return result;
}

/* --- the stream
 * ------------------------------------------------------------------------------------------------
 */

struct session {
	struct client *client;
	client_frame *each;
	client_idle *idle;
	void *arg;
	struct buf text;
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
	if (s->each(frame, s->arg))
		s->ended = true;
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
		return 0;
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
    {.name = "cordonctl", .callback = session_callback, .rx_buffer_size = 65536}, {.name = NULL}};

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
		if (s->idle != NULL)
			s->idle(s->arg);
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

int client_stream(struct client *client, const char *run_id, client_frame *each, client_idle *idle,
		  void *arg, struct err *e)
{
	struct session s = {
	    .client = client, .each = each, .idle = idle, .arg = arg, .next_seq = 1};
	int result = 0;

	buf_init(&s.text, LIMIT_RECORD_BYTES * 8);
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
	return result;
}
