#include "runners/ctl/client.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/ident.h"
#include "runners/base/limits.h"
#include "runners/base/str.h"
#include "runners/core/uhttp.h"

#define CALL_TIMEOUT_MS (3900 * 1000LL)
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
