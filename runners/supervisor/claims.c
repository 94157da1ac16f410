/* The SQL thread's claims: taken one by one or many at once, put back where nobody knows whether
 * they were taken, and the jobs of ended runs removed. */
#include "runners/supervisor/jobs_private.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define CLAIM_BATCH    16
#define SPEC_MAX_BYTES (16U << 20)

struct claim_work {
	struct jobs *jobs;
	int64_t begun_us;
	unsigned int most;
	bool first; /* only what needs no place of its own */
	struct jobs_event found[CLAIM_BATCH];
	size_t count;
};

/* A claim whose COMMIT was not answered. */
struct unknown_node {
	struct unknown_node *next;
	struct claim claim;
};

static void drop_found(struct claim_work *w)
{
	for (size_t i = 0; i < w->count; i++)
		mem_free(w->found[i].spec);
	w->count = 0;
}

int jobs_read_claim(struct store *db, struct jobs_event *event, struct err *e)
{
	size_t length;
	const char *spec = store_bytes(db, 5, &length);

	memset(event, 0, sizeof(*event));
	event->kind = JOBS_CLAIMED;
	event->claim.job_id = (uint64_t)store_i64(db, 0);
	if (str_copy(event->claim.run_id, sizeof(event->claim.run_id), store_text(db, 1)) != 0 ||
	    str_copy(event->claim.tenant, sizeof(event->claim.tenant), store_text(db, 2)) != 0 ||
	    str_copy(event->claim.user, sizeof(event->claim.user), store_text(db, 3)) != 0 ||
	    str_copy(event->claim.request_id, sizeof(event->claim.request_id), store_text(db, 6)) !=
		0 ||
	    job_kind_parse(store_text(db, 7), &event->claim.kind) != 0)
		return err_set(e, ERR_INTERNAL, 0,
			       "a job row has a value that is too long or unknown");
	if (ident_random(event->claim.token, sizeof(event->claim.token), e) != 0)
		return -1;
	/* absent where the statement does not ask for it */
	event->claim.user_artifact_bytes = (uint64_t)store_i64(db, 8);
	event->spec = length > SPEC_MAX_BYTES ? NULL : mem_dup_bytes(spec, length);
	event->spec_length = length;
	return event->spec == NULL ? err_set(e, ERR_NOMEM, 0, "spec") : 0;
}

/* A claim is an UPDATE that must match one row. */
int jobs_mark_owned(struct store *db, const char *instance, const struct claim *claim,
		    struct err *e)
{
	struct store_value job[] = {SV_TEXT(instance), SV_BYTES(claim->token, sizeof(claim->token)),
				    SV_I64((int64_t)claim->job_id)};
	uint64_t changed = 0;

	if (store_exec(db, STMT_JOB_CLAIM, job, ARRAY_LEN(job), &changed, e) != 0)
		return -1;
	if (changed != 1)
		return err_set(e, ERR_INTERNAL, 0, "job %llu cannot be claimed",
			       (unsigned long long)claim->job_id);
	return 0;
}

/* Job and run of a claim in one round trip: 1 taken, 0 not there any more, -1. */
static int take(struct store *db, const char *instance, const struct claim *claim, struct err *e)
{
	struct store_value in[] = {SV_TEXT(instance), SV_BYTES(claim->token, sizeof(claim->token)),
				   SV_I64((int64_t)claim->job_id), SV_TEXT(claim->run_id)};

	if (store_exec(db, STMT_RUN_CLAIM, in, ARRAY_LEN(in), NULL, e) == 0)
		return 1;
	if (e->code != ERR_CONFLICT)
		return -1;
	err_clear(e);
	return 0;
}

static int mark_claimed(struct store *db, struct claim_work *w, struct jobs_event *event,
			struct err *e)
{
	const struct claim *claim = &event->claim;
	struct store_value run[] = {SV_TEXT(claim->run_id)};

	if (jobs_mark_owned(db, w->jobs->instance, claim, e) != 0)
		return -1;
	if (job_kind_is_operation(claim->kind))
		return jobs_operation_claimed(db, claim, e);
	return store_exec(db, STMT_RUN_STARTING, run, 1, NULL, e);
}

static int read_found(struct store *db, struct claim_work *w, struct err *e)
{
	while (w->count < w->most && store_next(db, e) == 1) {
		if (jobs_read_claim(db, &w->found[w->count], e) != 0)
			break;
		w->count++;
	}
	store_done(db);
	return e->code == ERR_NONE ? 0 : -1;
}

static int claim_body(struct store *db, void *arg, struct err *e)
{
	struct claim_work *w = arg;
	struct store_value in[] = {SV_TEXT(w->jobs->policy->node), SV_I64(w->most)};

	drop_found(w);
	if (store_query(db, w->first ? STMT_JOB_CLAIM_FIRST : STMT_JOB_CLAIM_NEXT, in,
			ARRAY_LEN(in), e) != 0 ||
	    read_found(db, w, e) != 0)
		return -1;
	for (size_t i = 0; e->code == ERR_NONE && i < w->count; i++)
		(void)mark_claimed(db, w, &w->found[i], e);
	return e->code == ERR_NONE ? 0 : -1;
}

/* Nobody knows whether these are ours: they are looked at when the database answers again. Without
 * memory they stay `starting` until this instance ends. */
static void keep_unknown(struct jobs *jobs, const struct claim_work *w)
{
	for (size_t i = 0; i < w->count; i++) {
		struct unknown_node *node = mem_zalloc(1, sizeof(*node));

		if (node == NULL)
			continue;
		node->claim = w->found[i].claim;
		node->next = jobs->unknown;
		jobs->unknown = node;
	}
}

static int put_back_body(struct store *db, void *arg, struct err *e)
{
	const struct claim *claim = arg;
	struct store_value job[] = {SV_I64((int64_t)claim->job_id),
				    SV_BYTES(claim->token, sizeof(claim->token))};
	struct store_value run[] = {SV_TEXT(claim->run_id)};
	uint64_t changed = 0;

	if (store_exec(db, STMT_JOB_RELEASE, job, ARRAY_LEN(job), &changed, e) != 0)
		return -1;
	if (changed == 0)
		return 0;
	log_event(LOG_WARNING, "claim_put_back", "req=%s run=%s", claim->request_id, claim->run_id);
	return store_exec(db, STMT_RUN_BACK_TO_QUEUE, run, 1, NULL, e);
}

int jobs_put_back(struct jobs *jobs, struct err *e)
{
	while (jobs->unknown != NULL) {
		struct unknown_node *node = jobs->unknown;

		if (store_retry(jobs->db, put_back_body, &node->claim, e) != 0)
			return -1;
		jobs->unknown = node->next;
		mem_free(node);
		(void)pthread_mutex_lock(&jobs->lock);
		jobs->look = true;
		(void)pthread_mutex_unlock(&jobs->lock);
	}
	return 0;
}

/* Under the lock. */
static int64_t noticed_us(const struct jobs *jobs, const char *run_id)
{
	for (unsigned int i = 0; i < NOTICED_SLOTS; i++)
		if (str_equal(jobs->noticed[i].run_id, run_id))
			return jobs->noticed[i].at_us;
	return 0;
}

static void hand_out(struct jobs *jobs, struct claim_work *w)
{
	int64_t now = clock_monotonic_us();

	(void)pthread_mutex_lock(&jobs->lock);
	for (size_t i = 0; i < w->count; i++) {
		struct jobs_event *event = &w->found[i];

		trace_mark_at(&event->trace, TRACE_NOTICED, noticed_us(jobs, event->claim.run_id));
		trace_mark_at(&event->trace, TRACE_CLAIM_BEGUN, w->begun_us);
		trace_mark_at(&event->trace, TRACE_CLAIMED, now);
		if (event->claim.kind == JOB_RUN && jobs->free > 0)
			jobs->free--;
	}
	(void)pthread_mutex_unlock(&jobs->lock);
	for (size_t i = 0; i < w->count; i++)
		jobs_put(jobs, &w->found[i]);
	w->count = 0;
}

/* The box is made while the claim is committed; the command waits for that. */
static void tell_early(struct jobs *jobs, const struct jobs_event *found)
{
	struct jobs_event early = *found;

	early.kind = JOBS_EARLY;
	early.spec = mem_dup_bytes(found->spec, found->spec_length);
	if (early.spec != NULL)
		jobs_put(jobs, &early);
}

/* The usual case, without a transaction of several statements: 1 done, 0 not that case, -1. */
static int claim_one(struct jobs *jobs, struct claim_work *w, struct err *e)
{
	struct store_value in[] = {SV_TEXT(jobs->policy->node), SV_I64(w->most)};
	struct err inner = ERR_INIT;
	int got;

	if (store_query(jobs->db, w->first ? STMT_JOB_LOOK_FIRST : STMT_JOB_LOOK, in, ARRAY_LEN(in),
			e) != 0 ||
	    read_found(jobs->db, w, e) != 0)
		return -1;
	if (w->count == 0)
		return 1;
	if (w->count > 1 || job_kind_is_operation(w->found[0].claim.kind))
		return 0;
	if (w->found[0].claim.kind == JOB_RUN)
		tell_early(jobs, &w->found[0]);
	got = take(jobs->db, jobs->instance, &w->found[0].claim, &inner);
	if (got > 0)
		return 1;
	jobs_put_simple(jobs, JOBS_UNCLAIMED, w->found[0].claim.run_id);
	if (got < 0 && inner.code == ERR_UNAVAILABLE)
		keep_unknown(jobs, w); /* the connection broke, or a deadlock: cheap to look */
	if (got < 0) {
		*e = inner;
		return -1;
	}
	return 0;
}

/* free: places for runs; with none only jobs of sandboxes are taken. */
static int claim_some(struct jobs *jobs, unsigned int free, unsigned int *out_count, struct err *e)
{
	struct claim_work *w = mem_zalloc(1, sizeof(*w));
	int result;

	*out_count = 0;
	if (w == NULL)
		return err_set(e, ERR_NOMEM, 0, "claim");
	w->jobs = jobs;
	w->first = free == 0;
	w->most = w->first || free > CLAIM_BATCH ? CLAIM_BATCH : free;
	w->begun_us = clock_monotonic_us();
	result = claim_one(jobs, w, e);
	if (result == 0) {
		result = store_retry(jobs->db, claim_body, w, e);
		if (result != 0 && e->code == ERR_UNKNOWN_OUTCOME)
			keep_unknown(jobs, w);
	}
	if (result >= 0) {
		*out_count = (unsigned int)w->count;
		hand_out(jobs, w);
	}
	drop_found(w);
	mem_free(w);
	return result < 0 ? -1 : 0;
}

int jobs_claim_all(struct jobs *jobs, struct err *e)
{
	for (;;) {
		unsigned int free;
		unsigned int got;
		bool closed;

		(void)pthread_mutex_lock(&jobs->lock);
		free = jobs->free;
		closed = jobs->stop || jobs->closed;
		jobs->look = false;
		(void)pthread_mutex_unlock(&jobs->lock);
		if (closed)
			return 0;
		if (claim_some(jobs, free, &got, e) != 0)
			return -1;
		if (got < CLAIM_BATCH && (free == 0 || got < free))
			return 0;
	}
}
