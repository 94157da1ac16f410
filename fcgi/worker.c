#include "fcgi/worker.h"

#include "fcgi/request.h"
#include "fcgi/router.h"
#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/proc.h"

static volatile sig_atomic_t stop_wanted;

static void on_term(int number)
{
	(void)number;
	stop_wanted = 1;
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

static void serve_one(struct handler_context *context, struct fcgi_request *fcgi,
		      struct score *slot)
{
	struct http_request request;
	struct http_response response;
	struct err e = ERR_INIT;
	int64_t start = clock_monotonic_us();

	score_stage(slot, STAGE_READING, "");
	http_response_init(&response);
	if (fcgi_request_read(fcgi, (size_t)context->policy->http.body_bytes, &request, &e) == 0) {
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
	http_response_release(&response);
	fcgi_request_finish(fcgi);
	atomic_fetch_add(&slot->requests, 1);
}

int worker_run(const struct policy *policy, const char *image_digest, int listen_fd,
	       struct score *slot)
{
	struct handler_context context = {.image_digest = image_digest};
	struct notifier pair[2];
	struct fcgi_request *fcgi = NULL;
	struct err e = ERR_INIT;
	int64_t left = policy->pool.max_requests;
	int result = WORKER_EXIT_SERVED;

	/* libfcgi: our handlers first, without SA_RESTART, so that accept returns */
	if (proc_on_signal(SIGTERM, on_term, &e) != 0 || proc_on_signal(SIGINT, NULL, &e) != 0 ||
	    proc_on_signal(SIGHUP, NULL, &e) != 0 || proc_on_signal(SIGPIPE, NULL, &e) != 0 ||
	    open_context(policy, &context, pair, &e) != 0 ||
	    fcgi_request_open(listen_fd, &fcgi, &e) != 0) {
		log_err(LOG_ERROR, "worker_start", &e, "%s", "");
		return WORKER_EXIT_BROKEN;
	}
	json_setup();
	/* its own limit on memory that a fault could eat: a worker is replaced after its share of
	 * requests */
	while (left-- > 0) {
		score_stage(slot, STAGE_IDLE, "");
		if (stop_wanted != 0 || fcgi_request_accept(fcgi) != 1) {
			result = stop_wanted != 0 ? WORKER_EXIT_STOPPED : WORKER_EXIT_BROKEN;
			break;
		}
		serve_one(&context, fcgi, slot);
	}
	fcgi_request_close(fcgi);
	store_close(context.db);
	notifier_release(&pair[0]);
	notifier_release(&pair[1]);
	return result;
}
