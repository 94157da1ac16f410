/* Face 1: the WebSocket's handshake. The worker checks the caller; the gate carries the frames. */
#include "handlers/runs/runs.h"

#include "handlers/ops/op_run.h"
#include "handlers/reply.h"
#include "handlers/runs/signed.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <openssl/sha.h>

#define PERSONA_TAG_BYTES 8
#define BASE64            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

static void refuse(struct http_response *response, int status, const char *code,
		   const char *message, int close_code)
{
	reply_fail(response, &face_runs, status, code, message,
		   json_pack("{s:i}", "close_code", close_code));
}

/* The caller's arguments of the internal URL: who he is, and what counts with the quotas. */
static void put_arguments(struct buf *out, const struct principal *caller,
			  const struct run_row *row)
{
	unsigned char hash[SHA256_DIGEST_LENGTH];
	char tag[PERSONA_TAG_BYTES * 2 + 1];
	char persona[sizeof(caller->tenant) + sizeof(row->persona_id) + 1];

	buf_add_str(out, "p=");
	str_percent_encode(out, caller->tenant, strlen(caller->tenant), "");
	buf_add_str(out, "%2F");
	str_percent_encode(out, caller->user, strlen(caller->user), "");
	buf_addf(out, "&k=%s", caller->key_id);
	if (caller->expires_ms != 0)
		buf_addf(out, "&x=%lld", (long long)caller->expires_ms);
	if (row->interactive)
		buf_add_str(out, "&i=1");
	if (row->session_id[0] != '\0')
		buf_addf(out, "&se=%s", row->session_id);
	if (row->persona_id[0] == '\0')
		return;
	/* a client's text may be long, and is its tenant's own */
	(void)snprintf(persona, sizeof(persona), "%s/%s", caller->tenant, row->persona_id);
	(void)SHA256((const unsigned char *)persona, strlen(persona), hash);
	str_hex(tag, hash, PERSONA_TAG_BYTES);
	buf_addf(out, "&pe=%s", tag);
}

/* RFC 6455, 4.1: the key is 16 bytes in base64. */
static const char *fault_of(const struct http_request *request)
{
	const char *upgrade = http_header(request, "Upgrade");
	const char *key = http_header(request, "Sec-WebSocket-Key");
	const char *version = http_header(request, "Sec-WebSocket-Version");

	if (upgrade == NULL || !str_equal_nocase(upgrade, "websocket"))
		return "This path is a WebSocket: connect with wss.";
	if (version == NULL || !str_equal(version, "13"))
		return "Sec-WebSocket-Version must be 13.";
	if (key == NULL || strspn(key, BASE64) != 22 || !str_equal(key + 22, "=="))
		return "Sec-WebSocket-Key must be 16 bytes in base64.";
	return NULL;
}

void runs_stream(struct handler_context *context, const struct http_request *request,
		 const struct route_match *match, const struct principal *caller,
		 struct http_response *response)
{
	const char *fault = fault_of(request);
	scope_buf struct buf text = BUF_NONE;
	scope_buf struct buf arguments = BUF_NONE;
	struct run_row row;
	struct err e = ERR_INIT;
	uint64_t from = 0;
	int got;

	buf_init(&text, 64);
	buf_init(&arguments, 2048);
	got = op_run_get(context, caller, match->params[0], &row, &e);
	/* stricter than GET: the exact owner, admins included in the refusal */
	if (got == 0 &&
	    (!str_equal(row.tenant, caller->tenant) || !str_equal(row.user, caller->user)))
		got = err_set(&e, ERR_NOT_FOUND, 0, "not the owner");
	if (got != 0) {
		if (e.code == ERR_NOT_FOUND)
			refuse(response, 404, "run_not_found", "There is no such run.", 4404);
		else
			reply_err(response, &face_runs, request, &e);
		return;
	}
	if (signed_wanted(context) &&
	    signed_check(context, request, row.id, clock_real_us() / CLOCK_US_PER_S, &e) != 0) {
		if (e.code == ERR_DENIED)
			refuse(response, 403, "forbidden", e.shown, 1008);
		else
			reply_err(response, &face_runs, request, &e);
		return;
	}
	if (fault != NULL) {
		reply_fail(response, &face_runs, 426, "upgrade_required", fault, NULL);
		if (!request->http2) {
			http_response_header(response, "Upgrade", "websocket");
			http_response_header(response, "Sec-WebSocket-Version", "13");
		}
		return;
	}
	/* as the original: what is not a number above 0 counts as absent */
	if (http_query(request, "from_seq", &text) == 1) {
		struct err ignored = ERR_INIT;

		if (num_u64("from_seq", buf_text(&text), 0, INT64_MAX, &from, &ignored) != 0)
			from = 0;
	}
	if (buf_error(&text) == ERR_NOMEM) {
		reply_no_memory(response, &face_runs);
		return;
	}
	put_arguments(&arguments, caller, &row);
	if (!buf_ok(&arguments)) {
		reply_no_memory(response, &face_runs);
		return;
	}
	http_response_headerf(response, "X-Accel-Redirect",
			      "/internal/stream/%s/run/%s?from=%llu&%s&req=%s", row.node, row.id,
			      (unsigned long long)from, buf_text(&arguments), request->request_id);
}
