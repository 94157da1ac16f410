/* Face 1: the WebSocket's handshake. The worker checks the caller; the gate carries the frames. */
#include "handlers/runs/runs.h"

#include "handlers/ops/op_run.h"
#include "handlers/reply.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

static void refuse(struct http_response *response, int status, const char *code,
		   const char *message, int close_code)
{
	reply_fail(response, &face_runs, status, code, message,
		   json_pack("{s:i}", "close_code", close_code));
}

void runs_stream(struct handler_context *context, const struct http_request *request,
		 const struct route_match *match, const struct principal *caller,
		 struct http_response *response)
{
	const char *upgrade = http_header(request, "Upgrade");
	scope_buf struct buf text = BUF_NONE;
	scope_buf struct buf user = BUF_NONE;
	struct run_row row;
	struct err e = ERR_INIT;
	uint64_t from = 0;
	int got;

	buf_init(&text, 64);
	buf_init(&user, 1024);
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
	if (upgrade == NULL || !str_equal_nocase(upgrade, "websocket")) {
		reply_fail(response, &face_runs, 426, "upgrade_required",
			   "This path is a WebSocket: connect with wss.", NULL);
		if (!request->http2)
			http_response_header(response, "Upgrade", "websocket");
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
	str_percent_encode(&user, caller->tenant, strlen(caller->tenant), "");
	buf_add_str(&user, "%2F");
	str_percent_encode(&user, caller->user, strlen(caller->user), "");
	if (!buf_ok(&user)) {
		reply_no_memory(response, &face_runs);
		return;
	}
	http_response_headerf(response, "X-Accel-Redirect",
			      "/internal/stream/%s/run/%s?from=%llu&p=%s&k=%s&i=%d&req=%s",
			      row.node, row.id, (unsigned long long)from, buf_text(&user),
			      caller->key_id, row.interactive ? 1 : 0, request->request_id);
}
