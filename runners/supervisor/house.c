#include "runners/supervisor/house.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/supervisor/preflight.h"

#include <errno.h>
#include <pthread.h>

/* A cordon-box that does not answer for so long is away: a restart is no news. */
#define BOX_AWAY_US (75 * CLOCK_US_PER_S)
#define AGAIN_US    (2 * CLOCK_US_PER_S)

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
	bool was_down;
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

/* Under the lock. */
static bool is_due(const struct house *house, int64_t now)
{
	return house->look || now >= house->next_look_us;
}

/* Waits; false: stop. *out_job is the caller's, NULL: look at the host. */
static bool next_work(struct house *house, struct house_job **out_job, struct preflight_box *box)
{
	bool go_on;
	int64_t now;

	(void)pthread_mutex_lock(&house->lock);
	for (;;) {
		struct timespec until;

		now = clock_monotonic_us();
		if (house->stop || house->queue != NULL || is_due(house, now))
			break;
		until.tv_sec = (time_t)(house->next_look_us / CLOCK_US_PER_S);
		until.tv_nsec = (long)(house->next_look_us % CLOCK_US_PER_S) * 1000;
		(void)pthread_cond_timedwait(&house->wake, &house->lock, &until);
	}
	go_on = !house->stop;
	*out_job = NULL;
	if (!is_due(house, now)) {
		*out_job = house->queue;
		if (house->queue != NULL)
			house->queue = house->queue->next;
	} else {
		house->look = false;
	}
	if (now - house->box_us > BOX_AWAY_US) {
		house->box.known = true;
		house->box.good = false;
	}
	*box = house->box;
	(void)pthread_mutex_unlock(&house->lock);
	return go_on;
}

static void *run_thread(void *arg)
{
	struct house *house = arg;
	struct preflight_box box;
	struct house_job *job;

	while (next_work(house, &job, &box)) {
		if (job == NULL) {
			look(house, &box);
			continue;
		}
		mem_free(job->event.spec);
		mem_free(job);
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

void house_stop(struct house *house, int64_t wait_us)
{
	struct timespec when;

	(void)pthread_mutex_lock(&house->lock);
	house->stop = true;
	(void)pthread_cond_signal(&house->wake);
	(void)pthread_mutex_unlock(&house->lock);
	(void)clock_gettime(CLOCK_REALTIME, &when);
	when.tv_sec += (time_t)(wait_us / CLOCK_US_PER_S) + 1;
	if (pthread_timedjoin_np(house->thread, NULL, &when) != 0) {
		log_event(LOG_WARNING, "house_left", "%s", "");
		return;
	}
	while (house->queue != NULL) {
		struct house_job *job = house->queue;

		house->queue = job->next;
		mem_free(job->event.spec);
		mem_free(job);
	}
	store_close(house->db);
	mem_free(house);
}
