#include "fcgi/worker.h"

#include "fcgi/request.h"
#include "fcgi/router.h"
#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

/*
 * What a worker waits for: a connection, or TERM. TERM is blocked and read from a descriptor,
 * because libfcgi drops a connection that it has accepted when a signal comes before the first
 * bytes. The listening socket does not block: of those who are woken one gets the connection.
 */
struct turn {
	int signal_fd;
	int epoll_fd;
};

#define TURN_CONNECTION 1U
#define TURN_STOP       2U
#define TURN_BROKEN     4U

static int watch(int epoll_fd, int fd, uint32_t events, uint32_t what, struct err *e)
{
	struct epoll_event event = {.events = events, .data.u32 = what};

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return err_set(e, ERR_IO, errno, "epoll_ctl");
	return 0;
}

static int turn_open(struct turn *turn, int listen_fd, struct err *e)
{
	sigset_t term;

	(void)sigemptyset(&term);
	(void)sigaddset(&term, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &term, NULL) != 0)
		return err_set(e, ERR_IO, errno, "sigprocmask");
	turn->signal_fd = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
	turn->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (turn->signal_fd < 0 || turn->epoll_fd < 0)
		return err_set(e, ERR_IO, errno, "signalfd, epoll_create1");
	if (fcntl(listen_fd, F_SETFL, O_NONBLOCK) != 0)
		return err_set(e, ERR_IO, errno, "listening socket");
	if (watch(turn->epoll_fd, turn->signal_fd, EPOLLIN, TURN_STOP, e) != 0)
		return -1;
	return watch(turn->epoll_fd, listen_fd, EPOLLIN | EPOLLEXCLUSIVE, TURN_CONNECTION, e);
}

/* wait_ms: as epoll_wait. Both may be there: then this worker was woken for the connection and no
 * other was, so it serves that one before it stops. */
static unsigned int turn_wait(const struct turn *turn, int wait_ms)
{
	struct epoll_event events[2];
	unsigned int what = 0;
	int count = epoll_wait(turn->epoll_fd, events, ARRAY_LEN(events), wait_ms);

	if (count < 0)
		return errno == EINTR ? 0 : TURN_BROKEN;
	for (int i = 0; i < count; i++)
		what |= events[i].data.u32;
	return what;
}

static int open_context(const struct policy *policy, struct handler_context *out,
			struct notifier pair[2], struct err *e)
{
	struct store_options options = {.socket = policy->database.socket,
					.database = policy->database.name};
	char gate[256];
	char runner[256];

	(void)snprintf(gate, sizeof(gate), "%s/notify-gate/gate.sock", policy->paths.run);
	(void)snprintf(runner, sizeof(runner), "%s/notify-run/runner.sock", policy->paths.run);
	if (notifier_init(&pair[0], gate, e) != 0 || notifier_init(&pair[1], runner, e) != 0 ||
	    store_open(&options, &out->db, e) != 0)
		return -1;
	out->policy = policy;
	out->to_gate = &pair[0];
	out->to_runner = &pair[1];
	return 0;
}

/* The moment before the answer leaves: whoever gets it may be quicker than this process is. */
static void mark_answer(struct handler_context *context, const struct http_response *response)
{
	struct trace *t = &context->trace;
	bool redirected = http_response_get(response, "X-Accel-Redirect") != NULL;

	if (t->at_us[TRACE_RENDER_BEGUN] != 0)
		trace_mark(t, TRACE_RENDERED);
	else
		trace_mark(t, redirected ? TRACE_HELD : TRACE_ANSWERED);
}

/* What came after the row was written: the gate puts it behind the rest. The client has its answer.
 */
static void tell_trace(struct handler_context *context, struct trace_mail *mail)
{
	const struct trace *t = &context->trace;
	char part[TRACE_PART_BYTES];

	if (context->traced_run[0] == '\0')
		return;
	if (t->at_us[TRACE_RENDER_BEGUN] != 0
		? trace_encode(t, TRACE_RENDER_BEGUN, TRACE_RENDERED, part)
		: trace_encode(t, TRACE_COMMITTED, TRACE_ANSWERED, part))
		trace_mail_add(mail, context->to_gate, context->traced_run, part);
}

static void serve_one(struct handler_context *context, struct fcgi_request *fcgi,
		      struct score *slot, struct trace_mail *mail)
{
	struct http_request request;
	struct http_response response;
	struct err e = ERR_INIT;
	int64_t start = clock_monotonic_us();

	trace_init(&context->trace);
	trace_mark_at(&context->trace, TRACE_ACCEPTED, start);
	context->traced_run[0] = '\0';
	score_stage(slot, STAGE_READING, "");
	http_response_init(&response);
	if (fcgi_request_read(fcgi, (size_t)context->policy->http.body_bytes, &request, &e) == 0) {
		trace_mark(&context->trace, TRACE_READ);
		score_stage(slot, STAGE_HANDLING, request.request_id);
		router_serve(context, &request, &response);
		score_stage(slot, STAGE_WRITING, request.request_id);
		(void)fcgi_request_write(fcgi, &request, &response);
		log_event(LOG_DEBUG, "request", "req=%s method=%s path=%s status=%d us=%lld",
			  request.request_id, request.method, request.path, response.status,
			  (long long)(clock_monotonic_us() - start));
	} else {
		log_err(LOG_INFO, "request_unreadable", &e, "%s", "");
	}
	mark_answer(context, &response);
	http_response_release(&response);
	fcgi_request_finish(fcgi);
	tell_trace(context, mail);
	atomic_fetch_add(&slot->requests, 1);
}

/* Sends what is due; how long the next wait may take. */
static int send_mail(struct trace_mail *mail, struct notifier *to_gate)
{
	int64_t due = trace_mail_due_us(mail);
	int64_t now;

	if (due == INT64_MAX)
		return -1;
	now = clock_monotonic_us();
	if (now < due)
		return (int)((due - now) / CLOCK_US_PER_MS) + 1;
	trace_mail_send(mail, to_gate);
	return -1;
}

static int serve(const struct turn *turn, struct handler_context *context,
		 struct fcgi_request *fcgi, struct score *slot, struct trace_mail *mail)
{
	/* its own limit on memory that a fault could eat: a worker is replaced after its share of
	 * requests */
	int64_t left = context->policy->pool.max_requests;

	while (left > 0) {
		unsigned int what;
		int accepted = 0;

		score_stage(slot, STAGE_IDLE, "");
		what = turn_wait(turn, send_mail(mail, context->to_gate));
		if ((what & TURN_CONNECTION) != 0)
			accepted = fcgi_request_accept(fcgi);
		if (accepted < 0 || (what & TURN_BROKEN) != 0)
			return WORKER_EXIT_BROKEN;
		if (accepted == 1) {
			left--;
			serve_one(context, fcgi, slot, mail);
		}
		if ((what & TURN_STOP) != 0)
			return WORKER_EXIT_STOPPED;
	}
	return WORKER_EXIT_SERVED;
}

int worker_run(const struct policy *policy, const struct secrets *secrets, const char *image_digest,
	       int listen_fd, struct score *slot)
{
	struct handler_context context = {.image_digest = image_digest, .secrets = secrets};
	struct notifier pair[2];
	struct fcgi_request *fcgi = NULL;
	struct err e = ERR_INIT;
	struct turn turn = {-1, -1};
	struct trace_mail mail = {.used = 0};
	int result;

	if (turn_open(&turn, listen_fd, &e) != 0 || proc_on_signal(SIGINT, NULL, &e) != 0 ||
	    proc_on_signal(SIGHUP, NULL, &e) != 0 || proc_on_signal(SIGPIPE, NULL, &e) != 0 ||
	    open_context(policy, &context, pair, &e) != 0 ||
	    fcgi_request_open(listen_fd, &fcgi, &e) != 0) {
		log_err(LOG_ERROR, "worker_start", &e, "%s", "");
		return WORKER_EXIT_BROKEN;
	}
	json_setup();
	result = serve(&turn, &context, fcgi, slot, &mail);
	trace_mail_send(&mail, &pair[0]);
	fcgi_request_close(fcgi);
	store_close(context.db);
	notifier_release(&pair[0]);
	notifier_release(&pair[1]);
	return result;
}
