/*
 * bench_hold: N requests that are held at one time, over HTTP/2, and how late their answers are.
 *
 *	bench_hold --count N --url URL --body JSON --keys FILE --rate R [--spread-ms S --lead-ms L]
 *	bench_hold --count N --url URL --body JSON --keys FILE --rate R --idem KEY
 *
 * Requests are sent at R a second at most, with the keys of FILE (one a line) in turn, because the
 * web server limits the requests that one key has open.
 *
 * With --spread-ms each request is a run of its own that nobody runs, and waits with Prefer: wait=N
 * so that it is due at a point of its own in the S ms that begin L ms after the start. Due is
 * created_at of the answer plus N; the worker counts from its commit, a little later, so lateness
 * is what a client could at most complain about.
 *
 * With --idem all requests replay one run and wait for its end; due is finished_at of the answer.
 *
 * When all are sent: a line {"sent": N}. When all are answered: a line of tests/lib/samples.h;
 * samples are how far an answer was from its due time; early is how many came before, first_us and
 * last_us are the first and the last of them, spread_us is from the first to the last due time. A
 * request is good when it is answered with 200, a phase that fits, and after its due time.
 */
#include "tests/lib/samples.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/err.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

#include <curl/curl.h>
#include <sys/epoll.h>
#include <time.h>

#define ANSWER_BYTES (64U << 10)
#define TIMEOUT_MS   300000L
#define KEYS_MAX     64
#define SLACK_US     2000 /* created_at is cut to microseconds, until to milliseconds */

struct plan {
	uint64_t count;
	uint64_t rate;
	uint64_t spread_ms;
	uint64_t lead_ms;
	const char *url;
	const char *body;
	const char *keys_file;
	const char *idem;
	char keys[KEYS_MAX][160];
	size_t key_count;
};

struct request {
	CURL *curl;
	struct curl_slist *headers;
	struct buf answer;
	int64_t wait_s;
	int64_t due_us;
	int64_t answered_us;
	bool good;
};

static struct plan plan;
static struct request *requests;
static int poll_fd = -1;
static int64_t timer_us = INT64_MAX; /* when libcurl wants to be called */

static size_t take(char *data, size_t size, size_t count, void *arg)
{
	struct request *r = arg;

	buf_add(&r->answer, data, size * count);
	return size * count;
}

static int read_keys(void)
{
	FILE *file = fopen(plan.keys_file, "re");
	char line[160];

	if (file == NULL)
		return -1;
	while (plan.key_count < KEYS_MAX && fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\r\n")] = '\0';
		if (line[0] != '\0')
			memcpy(plan.keys[plan.key_count++], line, sizeof(line));
	}
	(void)fclose(file);
	return plan.key_count > 0 ? 0 : -1;
}

static int add_header(struct request *r, const char *format, const char *value)
{
	char line[256];
	struct curl_slist *more;

	(void)snprintf(line, sizeof(line), "%s%s", format, value);
	more = curl_slist_append(r->headers, line);
	if (more == NULL)
		return -1;
	r->headers = more;
	return 0;
}

/* target_us: when it should be due. */
static int prepare(struct request *r, size_t number, int64_t target_us)
{
	const char *ca = getenv("CORDON_CA");
	char wait[32];

	buf_init(&r->answer, ANSWER_BYTES);
	r->curl = curl_easy_init();
	if (r->curl == NULL || add_header(r, "Content-Type: ", "application/json") != 0 ||
	    add_header(r, "X-API-KEY: ", plan.keys[number % plan.key_count]) != 0)
		return -1;
	if (plan.idem != NULL) {
		if (add_header(r, "Idempotency-Key: ", plan.idem) != 0)
			return -1;
	} else {
		r->wait_s = (target_us - clock_real_us() + CLOCK_US_PER_S / 2) / CLOCK_US_PER_S;
		if (r->wait_s < 1)
			r->wait_s = 1;
		(void)snprintf(wait, sizeof(wait), "%lld", (long long)r->wait_s);
		if (add_header(r, "Prefer: wait=", wait) != 0)
			return -1;
	}
	(void)curl_easy_setopt(r->curl, CURLOPT_URL, plan.url);
	(void)curl_easy_setopt(r->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	(void)curl_easy_setopt(r->curl, CURLOPT_PIPEWAIT, 1L);
	(void)curl_easy_setopt(r->curl, CURLOPT_BUFFERSIZE, 2048L);
	(void)curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, r->headers);
	(void)curl_easy_setopt(r->curl, CURLOPT_POSTFIELDS, plan.body);
	(void)curl_easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(r->curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
	(void)curl_easy_setopt(r->curl, CURLOPT_WRITEFUNCTION, take);
	(void)curl_easy_setopt(r->curl, CURLOPT_WRITEDATA, r);
	(void)curl_easy_setopt(r->curl, CURLOPT_PRIVATE, r);
	if (ca != NULL)
		(void)curl_easy_setopt(r->curl, CURLOPT_CAINFO, ca);
	return 0;
}

/* "2026-01-31T12:00:00.123456Z"; 0 when it is none. */
static int64_t read_time(const char *text)
{
	struct tm tm = {0};
	const char *rest = text == NULL ? NULL : strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	int us = 0;

	if (rest == NULL || sscanf(rest, ".%6d", &us) != 1)
		return 0;
	return (int64_t)timegm(&tm) * CLOCK_US_PER_S + us;
}

/* Only after all have come: reading the answers takes time from those that are due. */
static void judge(struct request *r)
{
	scope_json json_t *object = NULL;
	struct err e = ERR_INIT;
	const char *phase;
	bool ended;

	if (!r->good || json_parse(buf_text(&r->answer), r->answer.len, &object, &e) != 0) {
		r->good = false;
		return;
	}
	phase = json_string_value(json_object_get(object, "phase"));
	ended = phase != NULL && !str_equal(phase, "queued");
	r->due_us = read_time(json_string_value(
	    json_object_get(object, plan.idem != NULL ? "finished_at" : "created_at")));
	r->good = r->due_us != 0 && ended == (plan.idem != NULL);
	r->due_us += r->wait_s * CLOCK_US_PER_S;
}

static void collect(CURLM *multi, size_t *answered)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(multi, &left)) != NULL) {
		struct request *r = NULL;
		long status = 0;

		if (message->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&r);
		(void)curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &status);
		r->answered_us = clock_real_us();
		r->good = message->data.result == CURLE_OK && status == 200;
		if (!r->good)
			(void)fprintf(stderr, "bench_hold: %s, status %ld, %.200s\n",
				      curl_easy_strerror(message->data.result), status,
				      buf_text(&r->answer));
		(void)curl_multi_remove_handle(multi, message->easy_handle);
		(*answered)++;
	}
}

/* libcurl's own loop walks over all requests at every turn: with thousands only the events do. */
static int on_socket(CURL *curl, curl_socket_t fd, int what, void *arg, void *seen)
{
	CURLM *multi = arg;
	struct epoll_event event = {.data = {.fd = fd}};

	(void)curl;
	if (what == CURL_POLL_REMOVE) {
		(void)epoll_ctl(poll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	event.events = ((what & CURL_POLL_IN) != 0 ? (uint32_t)EPOLLIN : 0U) |
		       ((what & CURL_POLL_OUT) != 0 ? (uint32_t)EPOLLOUT : 0U);
	if (seen == NULL)
		(void)curl_multi_assign(multi, fd, multi);
	return epoll_ctl(poll_fd, seen == NULL ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0
		   ? 0
		   : -1;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
	(void)multi;
	(void)arg;
	timer_us = timeout_ms < 0 ? INT64_MAX : clock_monotonic_us() + timeout_ms * CLOCK_US_PER_MS;
	return 0;
}

static int turn(CURLM *multi, int timeout_ms)
{
	struct epoll_event events[64];
	int64_t left_us = timer_us == INT64_MAX ? INT64_MAX : timer_us - clock_monotonic_us();
	int running;
	int count;

	if (left_us < timeout_ms * CLOCK_US_PER_MS)
		timeout_ms =
		    left_us <= 0 ? 0 : (int)((left_us + CLOCK_US_PER_MS - 1) / CLOCK_US_PER_MS);
	count = epoll_wait(poll_fd, events, (int)ARRAY_LEN(events), timeout_ms);
	for (int i = 0; i < count; i++) {
		int what = ((events[i].events & ~(uint32_t)EPOLLOUT) != 0 ? CURL_CSELECT_IN : 0) |
			   ((events[i].events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0);

		if (curl_multi_socket_action(multi, events[i].data.fd, what, &running) != CURLM_OK)
			return -1;
	}
	if (clock_monotonic_us() >= timer_us) {
		timer_us = INT64_MAX;
		if (curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running) != CURLM_OK)
			return -1;
	}
	return 0;
}

static int send_one(CURLM *multi, size_t number, int64_t first_due_us)
{
	/* a stride that visits all points, so that the order is no row of due times */
	int64_t at = (int64_t)(number * 7919 % plan.count);
	int64_t target_us =
	    first_due_us + at * (int64_t)plan.spread_ms * CLOCK_US_PER_MS / (int64_t)plan.count;

	if (prepare(&requests[number], number, target_us) != 0)
		return -1;
	return curl_multi_add_handle(multi, requests[number].curl) == CURLM_OK ? 0 : -1;
}

static int run(CURLM *multi)
{
	int64_t start_us = clock_monotonic_us();
	int64_t first_due_us = clock_real_us() + (int64_t)plan.lead_ms * CLOCK_US_PER_MS;
	size_t sent = 0;
	size_t answered = 0;

	while (answered < plan.count) {
		int64_t now_us = clock_monotonic_us() - start_us;

		while (sent < plan.count &&
		       (int64_t)sent * CLOCK_US_PER_S <= now_us * (int64_t)plan.rate) {
			if (send_one(multi, sent, first_due_us) != 0)
				return -1;
			if (++sent == plan.count) {
				(void)printf("{\"sent\": %zu, \"seconds\": %.3f}\n", sent,
					     (double)(clock_monotonic_us() - start_us) / 1e6);
				(void)fflush(stdout);
			}
		}
		if (turn(multi, sent < plan.count ? 1 : 1000) != 0)
			return -1;
		collect(multi, &answered);
	}
	return 0;
}

static int report(int64_t elapsed_us)
{
	struct samples samples;
	int64_t first_due = INT64_MAX;
	int64_t last_due = 0;
	int64_t first = INT64_MAX;
	int64_t last = INT64_MIN;
	json_int_t early = 0;
	int result;

	if (samples_room(&samples, plan.count) != 0)
		return -1;
	for (size_t i = 0; i < plan.count; i++) {
		struct request *r = &requests[i];
		int64_t late_us;

		judge(r);
		if (!r->good)
			continue;
		late_us = r->answered_us - r->due_us;
		samples.us[samples.count++] = late_us < 0 ? -late_us : late_us;
		if (late_us < -SLACK_US)
			early++;
		else
			samples.good++;
		first_due = r->due_us < first_due ? r->due_us : first_due;
		last_due = r->due_us > last_due ? r->due_us : last_due;
		first = late_us < first ? late_us : first;
		last = late_us > last ? late_us : last;
	}
	if (samples.count == 0)
		first_due = first = last = 0;
	result = samples_print(&samples, elapsed_us,
			       json_pack("{s:I, s:I, s:I, s:I, s:I}", "wanted",
					 (json_int_t)plan.count, "early", early, "first_us",
					 (json_int_t)first, "last_us", (json_int_t)last,
					 "spread_us", (json_int_t)(last_due - first_due)));
	samples_release(&samples);
	return result;
}

static int parse(int argc, char **argv)
{
	struct err e = ERR_INIT;

	for (int at = 1; at < argc; at += 2) {
		char *value = at + 1 < argc ? argv[at + 1] : NULL;
		uint64_t *number = str_equal(argv[at], "--count")       ? &plan.count
				   : str_equal(argv[at], "--rate")      ? &plan.rate
				   : str_equal(argv[at], "--spread-ms") ? &plan.spread_ms
				   : str_equal(argv[at], "--lead-ms")   ? &plan.lead_ms
									: NULL;
		const char **text = str_equal(argv[at], "--url")    ? &plan.url
				    : str_equal(argv[at], "--body") ? &plan.body
				    : str_equal(argv[at], "--keys") ? &plan.keys_file
				    : str_equal(argv[at], "--idem") ? &plan.idem
								    : NULL;

		if (value == NULL || (number == NULL && text == NULL) ||
		    (number != NULL && num_u64(argv[at], value, 1, 10000000, number, &e) != 0))
			return -1;
		if (text != NULL)
			*text = value;
	}
	return plan.count == 0 || plan.rate == 0 || plan.url == NULL || plan.body == NULL ||
		       plan.keys_file == NULL || (plan.idem == NULL && plan.spread_ms == 0)
		   ? -1
		   : 0;
}

int main(int argc, char **argv)
{
	CURLM *multi;
	int64_t start_us;
	int result;

	if (parse(argc, argv) != 0 || read_keys() != 0) {
		(void)fprintf(stderr,
			      "usage: bench_hold --count N --url URL --body JSON --keys FILE "
			      "--rate R (--spread-ms S --lead-ms L | --idem KEY)\n");
		return 64;
	}
	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
	multi = curl_multi_init();
	requests = mem_zalloc(plan.count, sizeof(*requests));
	poll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (multi == NULL || requests == NULL || poll_fd < 0)
		return 1;
	(void)curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	(void)curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, multi);
	(void)curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
	(void)curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX);
	(void)curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, 64L);
	start_us = clock_monotonic_us();
	result = run(multi);
	if (result == 0)
		result = report(clock_monotonic_us() - start_us);
	for (size_t i = 0; i < plan.count; i++) {
		if (requests[i].curl != NULL)
			curl_easy_cleanup(requests[i].curl);
		curl_slist_free_all(requests[i].headers);
		buf_release(&requests[i].answer);
	}
	(void)curl_multi_cleanup(multi);
	mem_free(requests);
	return result == 0 ? 0 : 1;
}
