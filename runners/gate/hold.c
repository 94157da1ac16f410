/*
 * hold: a request of nginx on the control socket is parked here until its run is terminal (or
 * running, if it asked for that) or its time is over. Then it is answered with a redirect to the
 * render location, arguments unread. No process and no thread waits.
 *
 * When many runs end at once the answers are paced: gate.release_per_ms in a millisecond, so that
 * the workers are not flooded.
 */
#include "runners/gate/gate.h"
#include "runners/gate/upload.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#define PREFIX       "/internal/hold/"
#define ARGS_HEADER  "x-cordon-args:"
#define TICK_US      1000
#define HEADER_BYTES 4096

static struct gate *gate_of(struct lws *wsi)
{
	return lws_context_user(lws_get_context(wsi));
}

static void release_due(struct gate_timer *timer);

static void release_start(struct gate *gate)
{
	timer_start(gate->loop, &gate->release_timer, release_due, TICK_US);
}

static void release_some(struct gate *gate)
{
	int64_t budget = gate->policy->gate.release_per_ms;

	while (budget-- > 0 && gate->release.count > 0) {
		struct lws_dll2 *d = lws_dll2_get_head(&gate->release);
		struct hold *hold = lws_container_of(d, struct hold, in_release);

		lws_dll2_remove(d);
		(void)lws_callback_on_writable(hold->wsi);
	}
}

static void release_due(struct gate_timer *timer)
{
	struct gate *gate = lws_container_of(timer, struct gate, release_timer);

	release_some(gate);
	if (gate->release.count > 0)
		release_start(gate);
}

void hold_release(struct hold *hold)
{
	struct gate *gate = hold->gate;

	if (hold->released)
		return;
	hold->released = true;
	timer_stop(gate->loop, &hold->deadline);
	if (gate->release.count == 0)
		release_start(gate);
	lws_dll2_add_tail(&hold->in_release, &gate->release);
	/* alone: no need to wait for the tick */
	if (gate->release.count == 1) {
		lws_dll2_remove(&hold->in_release);
		(void)lws_callback_on_writable(hold->wsi);
	}
}

static void deadline_due(struct gate_timer *timer)
{
	hold_release(lws_container_of(timer, struct hold, deadline));
}

/* The value of one argument in the raw text; false when it is absent or too long. */
static bool argument(const char *args, const char *name, char *out, size_t size)
{
	size_t name_length = strlen(name);

	while (*args != '\0') {
		size_t length = strcspn(args, "&");

		if (length > name_length && memcmp(args, name, name_length) == 0 &&
		    args[name_length] == '=') {
			size_t value_length = length - name_length - 1;

			if (value_length >= size)
				return false;
			memcpy(out, args + name_length + 1, value_length);
			out[value_length] = '\0';
			return true;
		}
		args += length;
		if (*args == '&')
			args++;
	}
	return false;
}

/* Fills the hold from path and arguments; the id of the run is the path's last segment. */
static int read_request(struct hold *hold, const char *path, char id[IDENT_UUID_SIZE],
			int64_t *out_until_ms, struct err *e)
{
	const char *rest = str_after(path, PREFIX);
	const char *last = rest == NULL ? NULL : strrchr(rest, '/');
	char text[32];

	if (last == NULL || !ident_is_uuid(last + 1) ||
	    str_copy(hold->path, sizeof(hold->path), rest) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "not a hold URL");
	memcpy(id, last + 1, IDENT_UUID_SIZE);
	if (!argument(hold->args, "until", text, sizeof(text)) ||
	    num_i64("until", text, 0, INT64_MAX, out_until_ms, e) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "no until");
	hold->traced = argument(hold->args, "tr", text, sizeof(text));
	hold->until_running = argument(hold->args, "f", text, sizeof(text)) && str_equal(text, "r");
	return 0;
}

static void tell_trace(const struct hold *hold)
{
	struct trace trace;
	char part[TRACE_PART_BYTES];

	if (!hold->traced)
		return;
	trace_init(&trace);
	trace_mark_at(&trace, TRACE_PARKED, hold->parked_us);
	trace_mark_at(&trace, TRACE_END_NOTICED, hold->run->ended_us);
	trace_mark(&trace, TRACE_RELEASED);
	if (trace_encode(&trace, TRACE_PARKED, TRACE_RELEASED, part))
		sql_trace(hold->gate->sql, hold->run->id, part);
}

/* An answer that is only a redirect to the render location; hold: whose trace it ends, or NULL. */
static int redirect(struct lws *wsi, const char *url, const struct hold *hold)
{
	unsigned char room[LWS_PRE + HEADER_BYTES];
	unsigned char *start = room + LWS_PRE;
	unsigned char *p = start;
	unsigned char *end = room + sizeof(room) - 1;

	if (lws_add_http_common_headers(wsi, HTTP_STATUS_OK, NULL, 0, &p, end) != 0 ||
	    lws_add_http_header_by_name(
		wsi, (const unsigned char *)"x-accel-redirect:", (const unsigned char *)url,
		(int)strlen(url), &p, end) != 0 ||
	    lws_finalize_http_header(wsi, &p, end) != 0)
		return -1;
	/* the other side may be quicker than we are, and behind the answer the hold's memory may be
	 * gone */
	if (hold != NULL)
		tell_trace(hold);
	if (lws_write(wsi, start, (size_t)(p - start), LWS_WRITE_HTTP_HEADERS) < 0)
		return -1;
	return lws_http_transaction_completed(wsi) != 0 ? -1 : 0;
}

static int end_upload(struct lws *wsi, struct hold *hold)
{
	char url[GATE_PATH_BYTES + GATE_ARGS_BYTES + 1024];
	int result = upload_finish(hold->upload, url, sizeof(url));

	upload_close(hold->upload);
	hold->upload = NULL;
	return result != 0 ? -1 : redirect(wsi, url, NULL);
}

/* The header of an upload is there; its body comes. */
static int begin_upload(struct lws *wsi, struct hold *hold, const char *path)
{
	char args[GATE_ARGS_BYTES];

	memset(hold, 0, sizeof(*hold));
	hold->gate = gate_of(wsi);
	hold->wsi = wsi;
	if (lws_hdr_custom_copy(wsi, args, sizeof(args), ARGS_HEADER, (int)strlen(ARGS_HEADER)) < 0)
		return -1;
	hold->upload = upload_open(hold->gate, wsi, path, args);
	if (hold->upload == NULL)
		return -1;
	/* nginx has stored the body and knows its length: none is no body, for which
	 * libwebsockets would wait */
	return lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0 ? 0
									    : end_upload(wsi, hold);
}

static int park(struct lws *wsi, struct hold *hold, const char *path)
{
	struct gate *gate = gate_of(wsi);
	char id[IDENT_UUID_SIZE];
	int64_t until_ms;
	int64_t wait_us;
	struct err e = ERR_INIT;
	char tries[8];

	memset(hold, 0, sizeof(*hold));
	hold->gate = gate;
	hold->wsi = wsi;
	if (lws_hdr_custom_copy(wsi, hold->args, sizeof(hold->args), ARGS_HEADER,
				(int)strlen(ARGS_HEADER)) < 0 ||
	    read_request(hold, path, id, &until_ms, &e) != 0)
		return -1;
	hold->run = gate_watch(gate, id);
	if (hold->run == NULL)
		return -1;
	hold->parked_us = clock_monotonic_us();
	if (hold->run->ended_us == 0)
		hold->run->ended_us = gate_ended_us(id);
	lws_dll2_add_tail(&hold->in_run, &hold->run->holds);
	lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
	/* the deadline is real time; from here on only the monotonic clock counts */
	wait_us = until_ms * CLOCK_US_PER_MS - clock_real_us();
	if (wait_us <= 0 || gate_recently_ended(gate, id) || hold->run->ended) {
		hold_release(hold);
		return 0;
	}
	timer_start(gate->loop, &hold->deadline, deadline_due, wait_us);
	/* The notice may have come before the hold only if this gate was not there yet, or on a
	 * second try. */
	if (clock_monotonic_us() - gate->started_us < 5 * CLOCK_US_PER_S ||
	    (argument(hold->args, "n", tries, sizeof(tries)) && !str_equal(tries, "0")))
		sql_ask(gate->sql, id);
	return 0;
}

static void leave(struct hold *hold)
{
	if (hold->run == NULL)
		return;
	timer_stop(hold->gate->loop, &hold->deadline);
	lws_dll2_remove(&hold->in_run);
	lws_dll2_remove(&hold->in_release);
	gate_unwatch(hold->gate, hold->run);
	hold->run = NULL;
}

/* Its time has come. */
static int answer(struct lws *wsi, const struct hold *hold)
{
	char url[GATE_PATH_BYTES + GATE_ARGS_BYTES + 32];
	int length = snprintf(url, sizeof(url), "/internal/render/%s?%s", hold->path, hold->args);

	return length < 0 || (size_t)length >= sizeof(url) ? -1 : redirect(wsi, url, hold);
}

int hold_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		  size_t len)
{
	struct hold *hold = user;

	switch ((int)reason) {
	case LWS_CALLBACK_HTTP:
		return upload_is_path(in) ? begin_upload(wsi, hold, in) : park(wsi, hold, in);
	case LWS_CALLBACK_HTTP_BODY:
		if (hold != NULL && hold->upload != NULL)
			upload_body(hold->upload, in, len);
		return 0;
	case LWS_CALLBACK_HTTP_BODY_COMPLETION:
		return hold != NULL && hold->upload != NULL ? end_upload(wsi, hold) : 0;
	case LWS_CALLBACK_HTTP_WRITEABLE:
		if (hold == NULL || hold->run == NULL || !hold->released)
			return 0;
		if (answer(wsi, hold) != 0)
			return -1;
		leave(hold);
		return 0;
	case LWS_CALLBACK_CLOSED_HTTP:
	case LWS_CALLBACK_HTTP_DROP_PROTOCOL:
		if (hold != NULL) {
			leave(hold);
			upload_close(hold->upload);
			hold->upload = NULL;
		}
		return 0;
	case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
		/* told to every vhost; one is enough */
		if (lws_get_vhost(wsi) == gate_of(wsi)->control)
			sql_collect(gate_of(wsi));
		return 0;
	case LWS_CALLBACK_FILTER_HTTP_CONNECTION:
	case LWS_CALLBACK_HTTP_BIND_PROTOCOL:
		return 0;
	default:
		return lws_callback_http_dummy(wsi, reason, user, in, len);
	}
}
