#include "runners/supervisor/jobs.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/notify.h"
#include "runners/core/store_park.h"
#include "runners/core/store_sweep.h"
#include "runners/supervisor/jobs_private.h"
#include "runners/supervisor/retention.h"

#include <errno.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <sys/eventfd.h>

#define RETRY_US     (300 * CLOCK_US_PER_MS)
#define WISHES_US    (2 * CLOCK_US_PER_S)
#define RETENTION_US (30 * CLOCK_US_PER_S)

void run_result_free(struct run_result *result)
{
	if (result == NULL)
		return;
	for (size_t i = 0; i < result->artifact_count; i++)
		mem_free(result->artifacts[i].path);
	mem_free(result->artifacts);
	mem_free(result->usage);
	mem_free(result->result);
	mem_free(result->session);
	mem_free(result);
}

/* --- the loop's side
 * -------------------------------------------------------------------------------------------- */

int jobs_fd(const struct jobs *jobs)
{
	return jobs->event_fd;
}

bool jobs_next(struct jobs *jobs, struct jobs_event *out)
{
	struct event_node *node;
	uint64_t count;

	(void)pthread_mutex_lock(&jobs->lock);
	node = jobs->events;
	if (node != NULL) {
		jobs->events = node->next;
		if (jobs->events == NULL)
			jobs->events_tail = &jobs->events;
	} else {
		(void)!read(jobs->event_fd, &count, sizeof(count));
	}
	(void)pthread_mutex_unlock(&jobs->lock);
	if (node == NULL)
		return false;
	*out = node->event;
	mem_free(node);
	return true;
}

static void poke(struct jobs *jobs)
{
	(void)pthread_cond_signal(&jobs->wake);
	(void)pthread_mutex_unlock(&jobs->lock);
}

void jobs_capacity(struct jobs *jobs, unsigned int free, bool closed)
{
	(void)pthread_mutex_lock(&jobs->lock);
	/* with places left there was nothing more to claim */
	if (free > 0 && jobs->free == 0)
		jobs->look = true;
	jobs->free = free;
	jobs->closed = closed;
	poke(jobs);
}

void jobs_look(struct jobs *jobs, const char *run_id)
{
	struct noticed *slot;

	(void)pthread_mutex_lock(&jobs->lock);
	slot = &jobs->noticed[jobs->noticed_next++ % NOTICED_SLOTS];
	(void)snprintf(slot->run_id, sizeof(slot->run_id), "%s", run_id);
	slot->at_us = clock_monotonic_us();
	jobs->look = true;
	poke(jobs);
}

void jobs_look_wishes(struct jobs *jobs)
{
	(void)pthread_mutex_lock(&jobs->lock);
	jobs->look_wishes = true;
	poke(jobs);
}

void jobs_running(struct jobs *jobs, const struct claim *claim, bool now)
{
	struct running_node *node = mem_zalloc(1, sizeof(*node));

	/* without it the phase stays `starting` until the end: no harm */
	if (node == NULL)
		return;
	node->claim = *claim;
	(void)pthread_mutex_lock(&jobs->lock);
	node->next = jobs->running;
	jobs->running = node;
	jobs->running_now = jobs->running_now || now;
	poke(jobs);
}

void jobs_end(struct jobs *jobs, struct run_result *result)
{
	struct end_node *node = mem_zalloc(1, sizeof(*node));

	if (node == NULL) {
		/* the sweep of a later instance ends it as lost */
		log_event(LOG_ERROR, "end_lost", "run=%s", result->claim.run_id);
		run_result_free(result);
		return;
	}
	node->result = result;
	(void)pthread_mutex_lock(&jobs->lock);
	*jobs->ends_tail = node;
	jobs->ends_tail = &node->next;
	poke(jobs);
}

/* --- the thread's side
 * ------------------------------------------------------------------------------------------ */

void jobs_put(struct jobs *jobs, const struct jobs_event *event)
{
	struct event_node *node = mem_zalloc(1, sizeof(*node));
	uint64_t one = 1;

	if (node == NULL) {
		mem_free(event->spec);
		return;
	}
	node->event = *event;
	(void)pthread_mutex_lock(&jobs->lock);
	*jobs->events_tail = node;
	jobs->events_tail = &node->next;
	(void)pthread_mutex_unlock(&jobs->lock);
	(void)!write(jobs->event_fd, &one, sizeof(one));
}

void jobs_put_simple(struct jobs *jobs, enum jobs_event_kind kind, const char *run_id)
{
	struct jobs_event event = {.kind = kind};

	if (run_id != NULL)
		(void)snprintf(event.claim.run_id, sizeof(event.claim.run_id), "%s", run_id);
	jobs_put(jobs, &event);
}

static void tell_gate(struct jobs *jobs, const struct swept *ids, const char *why)
{
	for (size_t i = 0; i < ids->count; i++) {
		log_event(LOG_WARNING, "run_swept", "run=%s reason=%s", ids->ids[i], why);
		(void)notify_send(&jobs->to_gate, "run", ids->ids[i], NOTICE_ENDED);
	}
}

static int end_owner(struct jobs *jobs, const char *instance, struct err *e)
{
	do {
		if (sweep_owner(jobs->db, instance, &jobs->swept, e) != 0)
			return -1;
		tell_gate(jobs, &jobs->swept, "box_lost");
	} while (jobs->swept.count == SWEEP_BATCH);
	return 0;
}

static int write_running(struct jobs *jobs, struct err *e)
{
	struct running_node *list;

	(void)pthread_mutex_lock(&jobs->lock);
	list = jobs->running;
	jobs->running = NULL;
	jobs->running_now = false;
	(void)pthread_mutex_unlock(&jobs->lock);
	while (list != NULL) {
		struct running_node *node = list;
		struct store_value in[] = {SV_TEXT(node->claim.run_id)};
		uint64_t changed = 0;

		list = node->next;
		/* a run that has ended meanwhile matches nothing */
		if (e->code == ERR_NONE &&
		    store_exec(jobs->db, STMT_RUN_RUNNING, in, 1, &changed, e) == 0 && changed == 1)
			(void)notify_send(&jobs->to_gate, "run", node->claim.run_id,
					  NOTICE_RUNNING);
		mem_free(node);
	}
	return e->code == ERR_NONE ? 0 : -1;
}

static int beat(struct jobs *jobs, struct err *e)
{
	struct store_value in[] = {SV_I64(jobs->run_us), SV_TEXT(jobs->instance)};
	uint64_t changed = 0;

	if (store_exec(jobs->db, STMT_RUNNER_BEAT, in, ARRAY_LEN(in), &changed, e) != 0)
		return -1;
	if (changed == 0) {
		log_event(LOG_ERROR, "outlawed", "runner=%s", jobs->instance);
		jobs_put_simple(jobs, JOBS_OUTLAWED, NULL);
	}
	return write_running(jobs, e);
}

/* --- ends
 * -------------------------------------------------------------------------------------------------------
 */

struct end_work {
	const struct policy *policy;
	const struct run_result *result;
	struct trace trace;
	bool lost;
};

static int insert_artifacts(struct store *db, const struct run_result *r, struct err *e)
{
	struct store_value usage[] = {SV_TEXT(r->claim.tenant), SV_TEXT(r->claim.user),
				      SV_I64((int64_t)r->artifact_bytes)};

	for (size_t i = 0; i < r->artifact_count; i++) {
		const struct ended_artifact *a = &r->artifacts[i];
		unsigned char hash[SHA256_DIGEST_LENGTH];
		struct store_value in[] = {
		    SV_TEXT(r->claim.run_id),          SV_I64((int64_t)i),
		    SV_BYTES(a->path, a->path_length), SV_BYTES(hash, sizeof(hash)),
		    SV_I64((int64_t)a->size_bytes),    SV_I64(a->mtime_sec)};

		(void)SHA256((const unsigned char *)a->path, a->path_length, hash);
		if (store_exec(db, STMT_ARTIFACT_INSERT, in, ARRAY_LEN(in), NULL, e) != 0)
			return -1;
	}
	if (r->artifact_bytes == 0)
		return 0;
	return store_exec(db, STMT_USAGE_ADD, usage, ARRAY_LEN(usage), NULL, e);
}

static int write_result(struct store *db, const struct run_result *r, struct err *e)
{
	struct store_value in[] = {SV_TEXT(r->result), SV_TEXT(r->claim.run_id)};

	if (r->result == NULL)
		return 0;
	return store_exec(db, STMT_RUN_RESULT_SET, in, ARRAY_LEN(in), NULL, e);
}

static int end_body(struct store *db, void *arg, struct err *e)
{
	struct end_work *w = arg;
	const struct run_result *r = w->result;
	struct store_value held[] = {SV_I64((int64_t)r->claim.job_id),
				     SV_BYTES(r->claim.token, sizeof(r->claim.token))};
	struct store_value job[] = {SV_I64((int64_t)r->claim.job_id)};
	struct store_value back[] = {SV_TEXT(r->claim.run_id)};
	char part[TRACE_PART_BYTES];
	struct store_value run[] = {SV_TEXT(run_phase_name(r->phase)),
				    SV_TEXT(r->ours ? "failed" : "finished"),
				    SV_TEXT(r->message),
				    r->has_exit ? SV_I64(r->exit_code) : SV_NULL,
				    SV_I64((int64_t)r->last_seq),
				    SV_TEXT(r->usage),
				    SV_I64((int64_t)r->log_bytes),
				    SV_I64((int64_t)r->artifact_bytes),
				    SV_NULL,
				    SV_TEXT(r->claim.run_id)};
	uint64_t changed = 0;
	int got;

	trace_mark(&w->trace, TRACE_END_BEGUN);
	(void)trace_encode(&w->trace, TRACE_NOTICED, TRACE_END_BEGUN, part);
	run[ARRAY_LEN(run) - 2] = SV_TEXT(part);
	got = store_query_row(db, STMT_JOB_HELD, held, ARRAY_LEN(held), e);
	store_done(db);
	w->lost = got == 0;
	if (got <= 0)
		return got;
	if (r->release)
		return store_exec(db, STMT_RUN_BACK_TO_QUEUE, back, 1, NULL, e) != 0
			   ? -1
			   : store_exec(db, STMT_JOB_RELEASE, held, ARRAY_LEN(held), NULL, e);
	if (job_kind_is_operation(r->claim.kind))
		return (job_kind_is_session(r->claim.kind) ? jobs_session_end(db, w->policy, r, e)
							   : jobs_operation_end(db, r, e)) != 0
			   ? -1
			   : store_exec(db, STMT_JOB_DELETE, job, 1, NULL, e);
	if (store_exec(db, STMT_RUN_END, run, ARRAY_LEN(run), &changed, e) != 0)
		return -1;
	if (changed != 1)
		return err_set(e, ERR_INTERNAL, 0, "run %s was not active", r->claim.run_id);
	if (insert_artifacts(db, r, e) != 0 || write_result(db, r, e) != 0)
		return -1;
	return store_exec(db, STMT_JOB_DELETE, job, 1, NULL, e);
}

/* What most runs end with: one round trip. 1 done, 0 the claim is not ours (any more), -1. */
static int end_at_once(struct jobs *jobs, struct end_work *w, struct err *e)
{
	const struct run_result *r = w->result;
	char part[TRACE_PART_BYTES];
	struct store_value in[] = {SV_I64((int64_t)r->claim.job_id),
				   SV_BYTES(r->claim.token, sizeof(r->claim.token)),
				   SV_TEXT(r->claim.run_id),
				   SV_TEXT(run_phase_name(r->phase)),
				   SV_TEXT(r->ours ? "failed" : "finished"),
				   SV_TEXT(r->message),
				   r->has_exit ? SV_I64(r->exit_code) : SV_NULL,
				   SV_I64((int64_t)r->last_seq),
				   SV_TEXT(r->usage),
				   SV_I64((int64_t)r->log_bytes),
				   SV_TEXT(r->result),
				   SV_NULL};

	trace_mark(&w->trace, TRACE_END_BEGUN);
	(void)trace_encode(&w->trace, TRACE_NOTICED, TRACE_END_BEGUN, part);
	in[ARRAY_LEN(in) - 1] = SV_TEXT(part);
	if (store_exec(jobs->db, STMT_RUN_END_ALL, in, ARRAY_LEN(in), NULL, e) == 0)
		return 1;
	if (e->code != ERR_CONFLICT)
		return -1;
	err_clear(e);
	return 0;
}

static bool ends_at_once(const struct run_result *r)
{
	return !r->release && r->artifact_count == 0 && r->artifact_bytes == 0 &&
	       !job_kind_is_operation(r->claim.kind);
}

/* What a run takes from its claim to its end: an average in which each counts an eighth. */
static void learn_time(struct jobs *jobs, const struct trace *trace)
{
	int64_t took = trace->at_us[TRACE_END_COMMITTED] - trace->at_us[TRACE_CLAIMED];

	if (trace->at_us[TRACE_CLAIMED] == 0 || took <= 0)
		return;
	jobs->run_us = jobs->run_us == 0 ? took : jobs->run_us + (took - jobs->run_us) / 8;
}

/* Runs that waited for others of theirs to end. */
static int release_parked(struct jobs *jobs, struct err *e)
{
	size_t count;

	jobs->parked_wait = false;
	if (park_release(jobs->db, jobs->policy, &count, e) != 0)
		return -1;
	if (count > 0) {
		(void)pthread_mutex_lock(&jobs->lock);
		jobs->look = true;
		(void)pthread_mutex_unlock(&jobs->lock);
	}
	return 0;
}

static void tell_end(struct jobs *jobs, struct end_work *w)
{
	const struct run_result *r = w->result;
	struct jobs_event saved = {.kind = JOBS_SAVED, .claim = r->claim};

	trace_mark(&w->trace, TRACE_END_COMMITTED);
	learn_time(jobs, &w->trace);
	jobs->parked_wait = r->claim.kind == JOB_RUN;
	(void)notify_send(&jobs->to_gate, "run", r->claim.run_id, NOTICE_ENDED);
	log_event(LOG_INFO, "run_ended", "req=%s run=%s phase=%s message=\"%s\"",
		  r->claim.request_id, r->claim.run_id, run_phase_name(r->phase), r->message);
	saved.trace = w->trace;
	jobs_put(jobs, &saved);
}

/* After a COMMIT without answer: the job row is gone exactly when it happened. The next try finds
 * that as `lost`. */
static int save_end(struct jobs *jobs, const struct run_result *result, struct err *e)
{
	struct end_work w = {.policy = jobs->policy, .result = result, .trace = result->trace};
	bool unknown = false;

	if (jobs_session_artifacts(jobs, result, e) != 0)
		return -1;

	/* where that finds nothing, the whole transaction finds out why */
	if (ends_at_once(result) && end_at_once(jobs, &w, e) == 1) {
		tell_end(jobs, &w);
		return 0;
	}
	if (e->code != ERR_NONE && e->code != ERR_UNAVAILABLE)
		return -1;
	/* the connection broke: the transaction says `lost` if it had happened */
	unknown = e->code != ERR_NONE;
	err_clear(e);
	for (;;) {
		if (store_retry(jobs->db, end_body, &w, e) == 0)
			break;
		if (e->code != ERR_UNKNOWN_OUTCOME || unknown)
			return -1;
		unknown = true;
		err_clear(e);
	}
	if (w.lost && !unknown) {
		log_event(LOG_WARNING, "claim_lost", "req=%s run=%s", result->claim.request_id,
			  result->claim.run_id);
		jobs_put_simple(jobs, JOBS_LOST, result->claim.run_id);
		return 0;
	}
	if (result->release) {
		log_event(LOG_INFO, "run_released", "req=%s run=%s", result->claim.request_id,
			  result->claim.run_id);
		(void)pthread_mutex_lock(&jobs->lock);
		jobs->look = true;
		(void)pthread_mutex_unlock(&jobs->lock);
		return 0;
	}
	tell_end(jobs, &w);
	return 0;
}

static int save_ends(struct jobs *jobs, struct err *e)
{
	for (;;) {
		struct end_node *node;

		(void)pthread_mutex_lock(&jobs->lock);
		node = jobs->ends;
		(void)pthread_mutex_unlock(&jobs->lock);
		if (node == NULL)
			return 0;
		/* only this thread takes nodes away, so it stays the first one while it is saved */
		if (save_end(jobs, node->result, e) != 0) {
			if (e->code == ERR_UNAVAILABLE || e->code == ERR_UNKNOWN_OUTCOME ||
			    e->code == ERR_STORAGE || e->code == ERR_NOMEM)
				return -1;
			/* a fault of ours must not hold up all others: the sweep ends this one */
			log_err(LOG_ERROR, "end_refused", e, "run=%s", node->result->claim.run_id);
			err_clear(e);
			jobs_put_simple(jobs, JOBS_LOST, node->result->claim.run_id);
		}
		(void)pthread_mutex_lock(&jobs->lock);
		jobs->ends = node->next;
		if (jobs->ends == NULL)
			jobs->ends_tail = &jobs->ends;
		(void)pthread_mutex_unlock(&jobs->lock);
		run_result_free(node->result);
		mem_free(node);
	}
}

/* --- wishes and sweeps
 * ---------------------------------------------------------------------------------- */

static int read_wishes(struct jobs *jobs, struct err *e)
{
	struct store_value in[] = {SV_TEXT(jobs->instance)};
	int got;

	if (store_query(jobs->db, STMT_RUN_CANCEL_WISHES, in, 1, e) != 0)
		return -1;
	while ((got = store_next(jobs->db, e)) == 1)
		jobs_put_simple(jobs, JOBS_WISH, store_text(jobs->db, 0));
	return got;
}

static void expired(const char *run_id, void *arg)
{
	jobs_put_simple(arg, JOBS_EXPIRED, run_id);
}

static int periodic(struct jobs *jobs, struct err *e)
{
	int64_t now = clock_monotonic_us();

	if (now >= jobs->next_beat_us) {
		jobs->next_beat_us = now + jobs->policy->runner.beat_ms * CLOCK_US_PER_MS;
		if (beat(jobs, e) != 0)
			return -1;
	}
	if (now >= jobs->next_retention_us) {
		jobs->next_retention_us = now + RETENTION_US;
		if (retention_sweep(jobs->db, jobs->policy, expired, jobs, e) != 0)
			return -1;
	}
	if (now >= jobs->next_expired_us) {
		jobs->next_expired_us = now + CLOCK_US_PER_S;
		/* also what was parked by limits that are no more, and where a run ended by others
		 */
		if (jobs_stop_expired(jobs, e) != 0 || jobs_delete_expired(jobs, e) != 0 ||
		    release_parked(jobs, e) != 0)
			return -1;
	}
	if (now >= jobs->next_watch_us) {
		jobs->next_watch_us = now + CLOCK_US_PER_S;
		if (sweep_watch(jobs->db, &jobs->watch,
				jobs->policy->runner.dead_after_ms * CLOCK_US_PER_MS, &jobs->dead,
				e) != 0)
			return -1;
		for (size_t i = 0; i < jobs->dead.count; i++)
			if (!str_equal(jobs->dead.ids[i], jobs->instance) &&
			    end_owner(jobs, jobs->dead.ids[i], e) != 0)
				return -1;
	}
	return 0;
}

/* Everything that is to do now, the ends first. */
static int work(struct jobs *jobs, struct err *e)
{
	int64_t now = clock_monotonic_us();
	bool look;
	bool wishes;
	bool running;

	if (!jobs->registered && jobs_take_over(jobs, e) != 0)
		return -1;
	if (save_ends(jobs, e) != 0 || jobs_write_lost(jobs, e) != 0 || jobs_put_back(jobs, e) != 0)
		return -1;
	if (jobs->parked_wait && park_is_on(jobs->policy) && release_parked(jobs, e) != 0)
		return -1;
	(void)pthread_mutex_lock(&jobs->lock);
	look = jobs->look || now >= jobs->next_poll_us;
	wishes = jobs->look_wishes || now >= jobs->next_wishes_us;
	running = jobs->running_now;
	jobs->look_wishes = false;
	(void)pthread_mutex_unlock(&jobs->lock);
	if (look) {
		jobs->next_poll_us = now + jobs->policy->runner.poll_ms * CLOCK_US_PER_MS;
		if (jobs_claim_all(jobs, e) != 0)
			return -1;
	}
	if (running && write_running(jobs, e) != 0)
		return -1;
	if (wishes) {
		jobs->next_wishes_us = now + WISHES_US;
		if (read_wishes(jobs, e) != 0)
			return -1;
	}
	return periodic(jobs, e);
}

static bool has_work(const struct jobs *jobs)
{
	return jobs->ends != NULL || (jobs->look && !jobs->closed) || jobs->look_wishes ||
	       jobs->running_now || jobs->lost != NULL;
}

/* False: stop, all is saved. */
static bool wait_for_work(struct jobs *jobs, bool failed)
{
	struct timespec until;
	int64_t wait_us = failed ? RETRY_US : 200 * CLOCK_US_PER_MS;
	bool go_on;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(wait_us * 1000);
	if (until.tv_nsec >= 1000000000L) {
		until.tv_nsec -= 1000000000L;
		until.tv_sec++;
	}
	(void)pthread_mutex_lock(&jobs->lock);
	while (!jobs->stop && (failed || !has_work(jobs)) &&
	       pthread_cond_timedwait(&jobs->wake, &jobs->lock, &until) != ETIMEDOUT)
		;
	go_on = !jobs->stop || jobs->ends != NULL;
	(void)pthread_mutex_unlock(&jobs->lock);
	return go_on;
}

static void *run_thread(void *arg)
{
	struct jobs *jobs = arg;
	bool failed = false;

	while (wait_for_work(jobs, failed)) {
		struct err e = ERR_INIT;

		failed = work(jobs, &e) != 0;
		if (failed != jobs->was_down) {
			if (failed)
				log_err(LOG_ERROR, "store_down", &e, "%s", "");
			else
				log_event(LOG_INFO, "store_up", "%s", "");
			jobs->was_down = failed;
		}
	}
	return NULL;
}

static void unregister(struct jobs *jobs)
{
	struct store_value in[] = {SV_TEXT(jobs->instance)};
	struct err e = ERR_INIT;

	if (jobs->registered)
		(void)!store_exec(jobs->db, STMT_RUNNER_DELETE, in, 1, NULL, &e);
}

int jobs_start(const struct policy *policy, const char *instance, struct jobs **out, struct err *e)
{
	struct jobs *jobs = mem_zalloc(1, sizeof(*jobs));
	struct store_options options = {.socket = policy->database.socket,
					.database = policy->database.name};
	pthread_condattr_t attributes;
	char gate[256];

	if (jobs == NULL)
		return err_set(e, ERR_NOMEM, 0, "jobs");
	jobs->policy = policy;
	jobs->events_tail = &jobs->events;
	jobs->ends_tail = &jobs->ends;
	(void)snprintf(jobs->instance, sizeof(jobs->instance), "%s", instance);
	(void)snprintf(gate, sizeof(gate), "%s/notify-gate/gate.sock", policy->paths.run);
	jobs->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (jobs->event_fd < 0 || notifier_init(&jobs->to_gate, gate, e) != 0 ||
	    store_open(&options, &jobs->db, e) != 0 || pthread_mutex_init(&jobs->lock, NULL) != 0 ||
	    pthread_condattr_init(&attributes) != 0 ||
	    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
	    pthread_cond_init(&jobs->wake, &attributes) != 0 ||
	    pthread_create(&jobs->thread, NULL, run_thread, jobs) != 0) {
		store_close(jobs->db);
		fd_close_at(&jobs->event_fd);
		mem_free(jobs);
		return err_set(e, ERR_INTERNAL, errno, "cannot start the SQL thread");
	}
	*out = jobs;
	return 0;
}

void jobs_stop(struct jobs *jobs, int64_t wait_us, bool keep_row)
{
	int64_t until = clock_monotonic_us() + wait_us;
	struct jobs_event event;
	struct timespec when;

	(void)pthread_mutex_lock(&jobs->lock);
	jobs->stop = true;
	jobs->free = 0;
	poke(jobs);
	(void)clock_gettime(CLOCK_REALTIME, &when);
	when.tv_sec += (time_t)((until - clock_monotonic_us()) / CLOCK_US_PER_S) + 1;
	if (pthread_timedjoin_np(jobs->thread, NULL, &when) != 0) {
		/* the database is away: the next runner of this node ends what is left */
		log_event(LOG_WARNING, "ends_unsaved", "%s", "");
		return;
	}
	if (!keep_row)
		unregister(jobs);
	while (jobs_next(jobs, &event))
		mem_free(event.spec);
	store_close(jobs->db);
	notifier_release(&jobs->to_gate);
	fd_close_at(&jobs->event_fd);
	mem_free(jobs);
}
