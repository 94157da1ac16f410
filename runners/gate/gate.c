/* The runs that somebody waits for: a tree by id, fed by notices and by the SQL thread. */
#include "runners/gate/gate.h"
#include "runners/gate/upload.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <search.h>

#define COMPARE_US   (2 * CLOCK_US_PER_S)
#define RECENT_SLOTS 8192
#define RECENT_US    (30 * CLOCK_US_PER_S)

/* Runs whose end was noticed lately, so that a hold that arrives after the notice needs no query.
 * Direct mapped: a collision costs one query. */
struct recent {
	char id[IDENT_UUID_SIZE];
	int64_t at_us;
};

static struct recent recents[RECENT_SLOTS];

static struct recent *recent_slot(const char *id)
{
	uint32_t hash = 2166136261U;

	for (; *id != '\0'; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619U;
	return &recents[hash % RECENT_SLOTS];
}

bool gate_recently_ended(const struct gate *gate, const char *id)
{
	const struct recent *slot = recent_slot(id);

	(void)gate;
	return str_equal(slot->id, id) && clock_monotonic_us() - slot->at_us < RECENT_US;
}

int64_t gate_ended_us(const char *id)
{
	const struct recent *slot = recent_slot(id);

	return str_equal(slot->id, id) ? slot->at_us : 0;
}

static int by_id(const void *a, const void *b)
{
	const struct watched *x = a;
	const struct watched *y = b;

	return strcmp(x->id, y->id);
}

static struct watched *find(struct gate *gate, const char *id)
{
	struct watched key;
	struct watched **at;

	memcpy(key.id, id, sizeof(key.id));
	at = tfind(&key, &gate->runs, by_id);
	return at == NULL ? NULL : *at;
}

struct watched *gate_watch(struct gate *gate, const char *id)
{
	struct watched *run = find(gate, id);

	if (run != NULL)
		return run;
	run = mem_zalloc(1, sizeof(*run));
	if (run == NULL)
		return NULL;
	memcpy(run->id, id, sizeof(run->id));
	if (tsearch(run, &gate->runs, by_id) == NULL) {
		mem_free(run);
		return NULL;
	}
	gate->run_count++;
	return run;
}

void gate_unwatch(struct gate *gate, struct watched *run)
{
	if (run->holds.count > 0 || run->streams.count > 0)
		return;
	(void)tdelete(run, &gate->runs, by_id);
	gate->run_count--;
	mem_free(run);
}

static void release_holds(struct watched *run, bool running_only)
{
	lws_start_foreach_dll_safe(struct lws_dll2 *, d, next, lws_dll2_get_head(&run->holds))
	{
		struct hold *hold = lws_container_of(d, struct hold, in_run);

		if (!running_only || hold->until_running)
			hold_release(hold);
	}
	lws_end_foreach_dll_safe(d, next);
}

static void wake_streams(struct watched *run)
{
	lws_start_foreach_dll(struct lws_dll2 *, d, lws_dll2_get_head(&run->streams))
	{
		stream_wake(lws_container_of(d, struct stream, in_run));
	}
	lws_end_foreach_dll(d);
}

static void ask(struct gate *gate, struct watched *run)
{
	if (run->asked || run->ended)
		return;
	run->asked = true;
	sql_ask(gate->sql, run->id);
}

static void keep_traces(struct gate *gate, struct notice *notice)
{
	char run_id[IDENT_UUID_SIZE];
	char part[TRACE_PART_BYTES];

	while (notice_trace(notice, run_id, part))
		sql_trace(gate->sql, run_id, part);
}

void gate_noticed(struct gate *gate, struct notice *notice)
{
	struct watched *run;

	if (notice->hint == NOTICE_TRACE) {
		keep_traces(gate, notice);
		return;
	}
	if (str_equal(notice->kind, "upload") && notice->hint == NOTICE_ENDED)
		upload_drop(gate, notice->id);
	if (!str_equal(notice->kind, "run"))
		return;
	if (notice->hint == NOTICE_ENDED) {
		struct recent *slot = recent_slot(notice->id);

		memcpy(slot->id, notice->id, sizeof(slot->id));
		slot->at_us = clock_monotonic_us();
	}
	run = find(gate, notice->id);
	if (run == NULL)
		return;
	switch (notice->hint) {
	case NOTICE_ENDED:
		run->ended_us = clock_monotonic_us();
		release_holds(run, false);
		/* streams need the row for their last frame; an older answer may be under way */
		if (run->streams.count > 0) {
			run->asked = false;
			ask(gate, run);
		}
		break;
	case NOTICE_RUNNING:
		release_holds(run, true);
		wake_streams(run);
		break;
	case NOTICE_OUTPUT:
		wake_streams(run);
		break;
	case NOTICE_QUEUED:
	case NOTICE_CANCEL:
	case NOTICE_TRACE:
		break;
	}
}

void gate_learned(struct gate *gate, const struct run_end *end)
{
	struct watched *run = find(gate, end->id);

	if (run == NULL)
		return;
	run->asked = false;
	if (!end->found || run_phase_terminal(end->phase)) {
		run->end = *end;
		run->ended = true;
		if (run->ended_us == 0)
			run->ended_us = clock_monotonic_us();
		release_holds(run, false);
		wake_streams(run);
	} else if (end->phase == RUN_RUNNING) {
		release_holds(run, true);
		wake_streams(run);
	}
}

static struct gate *walked_gate;

static void compare_one(const void *node, VISIT which, int depth)
{
	struct watched *run = *(struct watched *const *)node;

	(void)depth;
	if (which == postorder || which == leaf) {
		ask(walked_gate, run);
		/* a lost notice costs 2 s, no more */
		wake_streams(run);
	}
}

void gate_compare(struct gate *gate)
{
	/* twalk has no argument; the loop thread alone comes here */
	walked_gate = gate;
	twalk(gate->runs, compare_one);
}

static void compare_due(struct gate_timer *timer)
{
	struct gate *gate = lws_container_of(timer, struct gate, compare_timer);

	gate_compare(gate);
	gate_compare_start(gate);
}

void gate_compare_start(struct gate *gate)
{
	timer_start(gate->loop, &gate->compare_timer, compare_due, COMPARE_US);
}
