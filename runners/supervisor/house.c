#include "runners/supervisor/house.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/supervisor/preflight.h"
#include "runners/supervisor/retention.h"
#include "runners/supervisor/store_clean.h"

#include <errno.h>
#include <pthread.h>

/* A cordon-box that does not answer for so long is away: a restart is no news. */
#define BOX_AWAY_US (75 * CLOCK_US_PER_S)
#define AGAIN_US    (2 * CLOCK_US_PER_S)
#define SCAN_US     (600 * CLOCK_US_PER_S)
#define STRAYS_US   (600 * CLOCK_US_PER_S)
/* Of what a look at the stores found, so many are told without being asked. */
#define SEEN_ITEMS   100
#define RESULT_BYTES (4U << 20)

struct house_job {
	struct house_job *next;
	struct jobs_event event;
};

struct house {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* under the lock */
	struct house_job *queue;
	struct preflight_box box;
	int64_t box_us; /* of its last good answer; at first: of the start */
	bool look;
	bool stop;
	/* the thread's own */
	const struct policy *policy;
	struct jobs *jobs;
	struct store *db;
	struct preflight preflight;
	int64_t next_look_us;
	int64_t next_scan_us;
	int64_t next_strays_us;
	int64_t next_uploads_us;
	bool was_down;
	bool left; /* a job was not finished */
};

void house_box(struct house *house, const struct box_reply *reply)
{
	bool good = reply->code == BOX_OK && reply->mode != BOX_MODE_NONE;

	if (!good)
		return; /* if it stays so, it counts as away */
	(void)pthread_mutex_lock(&house->lock);
	house->look = house->look || !house->box.known || !house->box.good;
	house->box.known = true;
	house->box.good = true;
	house->box.mode = (enum box_mode)reply->mode;
	house->box.slots = reply->slots;
	house->box_us = clock_monotonic_us();
	(void)pthread_cond_signal(&house->wake);
	(void)pthread_mutex_unlock(&house->lock);
}

void house_take(struct house *house, struct jobs_event *event)
{
	struct house_job *job = mem_zalloc(1, sizeof(*job));
	struct house_job **at = &house->queue;

	if (job == NULL) {
		/* the next runner of this node does it */
		log_event(LOG_ERROR, "claim_dropped", "operation=%s reason=memory",
			  event->claim.run_id);
		mem_free(event->spec);
		return;
	}
	job->event = *event;
	(void)pthread_mutex_lock(&house->lock);
	while (*at != NULL)
		at = &(*at)->next;
	*at = job;
	(void)pthread_cond_signal(&house->wake);
	(void)pthread_mutex_unlock(&house->lock);
}

/* --- the thread ------------------------------------------------------------------------------ */

static void look(struct house *house, const struct preflight_box *box)
{
	scope_json json_t *facts = preflight_look(&house->preflight, box);
	struct err e = ERR_INIT;
	bool down;

	if (facts == NULL)
		(void)err_set(&e, ERR_NOMEM, 0, "preflight");
	down = facts == NULL || preflight_write(house->db, house->policy->node, facts, &e) != 0;
	if (down != house->was_down) {
		if (down)
			log_err(LOG_ERROR, "preflight", &e, "%s", "");
		else
			log_event(LOG_INFO, "preflight_again", "%s", "");
		house->was_down = down;
	}
	house->next_look_us = clock_monotonic_us() + (down ? AGAIN_US : HOUSE_LOOK_US);
}

/* What is known of cordon-box; under the lock. */
static struct preflight_box box_now(struct house *house, int64_t now)
{
	house->look = false;
	if (now - house->box_us > BOX_AWAY_US) {
		house->box.known = true;
		house->box.good = false;
	}
	return house->box;
}

/* Asked by long work between two steps, with nothing of the database open. A look at the host that
 * is due is taken here: facts that grow old make runtimes unavailable. */
static bool stopped(void *arg)
{
	struct house *house = arg;
	int64_t now = clock_monotonic_us();
	struct preflight_box box;
	bool due;
	bool stop;

	(void)pthread_mutex_lock(&house->lock);
	stop = house->stop;
	due = !stop && (house->look || now >= house->next_look_us);
	if (due)
		box = box_now(house, now);
	(void)pthread_mutex_unlock(&house->lock);
	if (due)
		look(house, &box);
	return stop;
}

static void remove_uploads(struct house *house)
{
	struct err e = ERR_INIT;
	size_t count = 0;

	if (retention_uploads(house->db, house->policy, stopped, house, &count, &e) != 0)
		log_err(LOG_WARNING, "strays", &e, "%s", "");
	if (count > 0)
		log_event(LOG_INFO, "uploads_removed", "count=%zu", count);
	house->next_uploads_us = clock_monotonic_us() + HOUSE_LOOK_US;
}

static void remove_strays(struct house *house)
{
	struct err e = ERR_INIT;
	size_t count = 0;

	if (retention_strays(house->db, house->policy, stopped, house, &count, &e) != 0)
		log_err(LOG_WARNING, "strays", &e, "%s", "");
	if (count > 0)
		log_event(LOG_INFO, "strays_removed", "count=%zu", count);
	house->next_strays_us = clock_monotonic_us() + STRAYS_US;
}

/* What the stores hold, for those who only want to look; it costs a file and a query per 32 runs.
 */
static void scan(struct house *house)
{
	struct store_clean want = {
	    .policy = house->policy, .db = house->db, .stopped = stopped, .arg = house};
	struct err e = ERR_INIT;
	scope_json json_t *found = store_clean(&want, &e);
	json_t *items = json_object_get(found, "items");
	scope_json json_t *facts = NULL;

	house->next_scan_us = clock_monotonic_us() + SCAN_US;
	while (json_array_size(items) > SEEN_ITEMS)
		(void)json_array_remove(items, json_array_size(items) - 1);
	if (found != NULL)
		facts = json_pack("{s:{s:b, s:[], s:O}}", "image_store", "available", 1, "reasons",
				  "host", found);
	if (facts != NULL && preflight_write(house->db, house->policy->node, facts, &e) == 0)
		return;
	if (!stopped(house))
		log_err(LOG_WARNING, "stores", &e, "%s", "");
	house->next_scan_us = clock_monotonic_us() + HOUSE_LOOK_US;
}

/* {action_types, run_ids}: null or a list; anything else is a fault of ours and fits nothing. */
static const json_t *filter(const json_t *spec, const char *name, const json_t *nothing)
{
	const json_t *list = json_object_get(spec, name);

	if (json_is_null(list))
		return NULL;
	return json_is_array(list) ? list : nothing;
}

static char *clean(struct house *house, const struct jobs_event *event, struct err *e)
{
	scope_json json_t *spec = NULL;
	scope_json json_t *nothing = json_array();
	scope_json json_t *found = NULL;
	scope_buf struct buf text = BUF_NONE;
	struct store_clean want = {.policy = house->policy,
				   .db = house->db,
				   .remove = event->claim.kind == JOB_STORE_CLEANUP,
				   .stopped = stopped,
				   .arg = house};
	size_t length;

	buf_init(&text, RESULT_BYTES);
	if (json_parse(event->spec, event->spec_length, &spec, e) != 0)
		return NULL;
	if (nothing == NULL) {
		(void)err_set(e, ERR_NOMEM, 0, "store");
		return NULL;
	}
	want.action_types = filter(spec, "action_types", nothing);
	want.run_ids = filter(spec, "run_ids", nothing);
	found = store_clean(&want, e);
	if (found == NULL || json_write(&text, found, e) != 0)
		return NULL;
	return buf_steal(&text, &length);
}

static void serve(struct house *house, const struct jobs_event *event)
{
	struct run_result *result = mem_zalloc(1, sizeof(*result));
	struct err e = ERR_INIT;

	log_event(LOG_INFO, "operation_claimed", "req=%s operation=%s kind=%s",
		  event->claim.request_id, event->claim.run_id, job_kind_name(event->claim.kind));
	if (result == NULL) {
		log_event(LOG_ERROR, "end_lost", "operation=%s reason=memory", event->claim.run_id);
		return;
	}
	result->claim = event->claim;
	result->result = clean(house, event, &e);
	if (result->result == NULL && stopped(house)) {
		run_result_free(result); /* the next runner does it */
		house->left = true;
		return;
	}
	if (result->result == NULL)
		log_err(LOG_ERROR, "stores", &e, "operation=%s", event->claim.run_id);
	result->phase = result->result == NULL ? RUN_FAILED : RUN_COMPLETED;
	(void)snprintf(result->message, sizeof(result->message), "%s",
		       result->result == NULL ? "store_unavailable" : "");
	jobs_end(house->jobs, result);
	house->next_scan_us = 0;
}

enum work { WORK_NONE, WORK_LOOK, WORK_JOB, WORK_UPLOADS, WORK_STRAYS, WORK_SCAN };

/* What is first; under the lock. A look at the host is short, so it goes before a job. */
static enum work choose(const struct house *house, int64_t now)
{
	if (house->look || now >= house->next_look_us)
		return WORK_LOOK;
	if (house->queue != NULL)
		return WORK_JOB;
	if (now >= house->next_uploads_us)
		return WORK_UPLOADS;
	if (now >= house->next_strays_us)
		return WORK_STRAYS;
	return now >= house->next_scan_us ? WORK_SCAN : WORK_NONE;
}

static int64_t earliest(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Waits for work; false: stop. *out_job is the caller's. */
static bool next_work(struct house *house, enum work *out, struct house_job **out_job,
		      struct preflight_box *box)
{
	int64_t now = clock_monotonic_us();
	bool go_on;

	(void)pthread_mutex_lock(&house->lock);
	while (!house->stop && (*out = choose(house, now)) == WORK_NONE) {
		int64_t due =
		    earliest(house->next_look_us,
			     earliest(house->next_uploads_us,
				      earliest(house->next_strays_us, house->next_scan_us)));
		struct timespec until = {
		    .tv_sec = (time_t)(due / CLOCK_US_PER_S),
		    .tv_nsec = (long)(due % CLOCK_US_PER_S) * 1000,
		};

		(void)pthread_cond_timedwait(&house->wake, &house->lock, &until);
		now = clock_monotonic_us();
	}
	go_on = !house->stop;
	*out_job = NULL;
	if (go_on && *out == WORK_JOB) {
		*out_job = house->queue;
		house->queue = house->queue->next;
	} else if (go_on && *out == WORK_LOOK) {
		*box = box_now(house, now);
	}
	(void)pthread_mutex_unlock(&house->lock);
	return go_on;
}

static void *run_thread(void *arg)
{
	struct house *house = arg;
	struct preflight_box box;
	struct house_job *job;
	enum work work;

	while (next_work(house, &work, &job, &box)) {
		if (work == WORK_LOOK) {
			look(house, &box);
		} else if (work == WORK_UPLOADS) {
			remove_uploads(house);
		} else if (work == WORK_STRAYS) {
			remove_strays(house);
		} else if (work == WORK_SCAN) {
			scan(house);
		} else {
			serve(house, &job->event);
			mem_free(job->event.spec);
			mem_free(job);
		}
	}
	return NULL;
}

int house_start(const struct policy *policy, struct jobs *jobs, struct house **out, struct err *e)
{
	struct house *house = mem_zalloc(1, sizeof(*house));
	struct store_options options = {.socket = policy->database.socket,
					.database = policy->database.name};
	pthread_condattr_t attributes;

	if (house == NULL)
		return err_set(e, ERR_NOMEM, 0, "house");
	house->policy = policy;
	house->jobs = jobs;
	house->box_us = clock_monotonic_us();
	if (store_open(&options, &house->db, e) != 0 ||
	    pthread_mutex_init(&house->lock, NULL) != 0 ||
	    pthread_condattr_init(&attributes) != 0 ||
	    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
	    pthread_cond_init(&house->wake, &attributes) != 0 ||
	    pthread_create(&house->thread, NULL, run_thread, house) != 0) {
		store_close(house->db);
		mem_free(house);
		return err_set(e, ERR_INTERNAL, errno, "cannot start the house thread");
	}
	*out = house;
	return 0;
}

bool house_stop(struct house *house, int64_t wait_us)
{
	struct timespec when;
	bool left;

	(void)pthread_mutex_lock(&house->lock);
	house->stop = true;
	(void)pthread_cond_signal(&house->wake);
	(void)pthread_mutex_unlock(&house->lock);
	(void)clock_gettime(CLOCK_REALTIME, &when);
	when.tv_sec += (time_t)(wait_us / CLOCK_US_PER_S) + 1;
	if (pthread_timedjoin_np(house->thread, NULL, &when) != 0) {
		log_event(LOG_WARNING, "house_left", "%s", "");
		return true;
	}
	left = house->queue != NULL || house->left;
	while (house->queue != NULL) {
		struct house_job *job = house->queue;

		house->queue = job->next;
		mem_free(job->event.spec);
		mem_free(job);
	}
	store_close(house->db);
	mem_free(house);
	return left;
}
