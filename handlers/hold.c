#include "handlers/hold.h"

#include "runners/base/limits.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

/* tenant/user, encoded */
static int write_user(struct buf *user, const struct principal *caller)
{
	buf_init(user, 1024);
	str_percent_encode(user, caller->tenant, strlen(caller->tenant), "");
	buf_add_str(user, "%2F");
	str_percent_encode(user, caller->user, strlen(caller->user), "");
	return buf_ok(user) ? 0 : -1;
}

void hold_arguments(struct http_response *response, const struct hold *hold,
		    const struct principal *caller, const char *session)
{
	scope_buf struct buf user = BUF_NONE;

	if (write_user(&user, caller) != 0) {
		response->failed = true;
		return;
	}
	http_response_headerf(response, "X-Cordon-Args",
			      "as=%s&t0=%lld&until=%lld&f=e&p=%s&k=%s&n=0&s=%s", hold->as,
			      (long long)hold->accepted_ms, (long long)hold->until_ms,
			      buf_text(&user), caller->key_id, session);
}

void hold_redirect(struct http_response *response, const char *node, const char *id,
		   const struct hold *hold, const struct principal *caller)
{
	scope_buf struct buf user = BUF_NONE;

	if (write_user(&user, caller) != 0) {
		response->failed = true;
		return;
	}
	http_response_headerf(
	    response, "X-Accel-Redirect",
	    "/internal/hold/%s/%s/%s?as=%s&t0=%lld&until=%lld&f=%s&p=%s&k=%s&n=%lld%s", node,
	    hold->kind == NULL ? "run" : hold->kind, id, hold->as, (long long)hold->accepted_ms,
	    (long long)hold->until_ms, hold->until_running ? "r" : "e", buf_text(&user),
	    caller->key_id, (long long)hold->tries, hold->traced ? "&tr=1" : "");
}

/* As http_query; -1 with e when memory ends. */
static int argument(const struct http_request *request, const char *name, struct buf *out,
		    struct err *e)
{
	int got = http_query(request, name, out);

	if (got < 0 && buf_error(out) == ERR_NOMEM)
		(void)err_set(e, ERR_NOMEM, 0, "internal URL");
	return got;
}

static int number(const struct http_request *request, const char *name, int64_t *out, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, 64);
	if (argument(request, name, &text, e) != 1)
		return err_set(e, ERR_PROTOCOL, 0, "internal URL without %s", name);
	return num_i64(name, buf_text(&text), 0, INT64_MAX, out, e);
}

int hold_parse(const struct http_request *request, struct hold *out, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;

	memset(out, 0, sizeof(*out));
	buf_init(&text, 64);
	if (!request->internal)
		return err_set(e, ERR_PROTOCOL, 0, "not internal");
	if (argument(request, "as", &text, e) != 1 ||
	    str_copy(out->as, sizeof(out->as), buf_text(&text)) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "internal URL without as");
	if (number(request, "t0", &out->accepted_ms, e) != 0 ||
	    number(request, "until", &out->until_ms, e) != 0 ||
	    number(request, "n", &out->tries, e) != 0)
		return -1;
	out->until_running =
	    argument(request, "f", &text, e) == 1 && str_equal(buf_text(&text), "r");
	out->gone = argument(request, "gone", &text, e) == 1;
	out->traced = argument(request, "tr", &text, e) == 1;
	return e->code == ERR_NONE ? 0 : -1;
}
