/* Taking over: this process holds the node's lock, so every other instance of the node is dead, and
 * what it held is ours. */
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/spool.h"
#include "runners/supervisor/jobs_private.h"

#define TAKE_BATCH 32

struct take_work {
	struct jobs *jobs;
	const char *from;
	bool other_boot;
	struct jobs_event found[TAKE_BATCH];
	size_t count;
};

static void drop_taken(struct take_work *w)
{
	for (size_t i = 0; i < w->count; i++)
		mem_free(w->found[i].spec);
	w->count = 0;
}

/*
 * The claims that still name the dead instance become ours, with fresh tokens: once they do, the
 * next call finds the rest. The last batch removes the instance.
 */
static int take_body(struct store *db, void *arg, struct err *e)
{
	struct take_work *w = arg;
	struct store_value in[] = {SV_TEXT(w->from), SV_I64(TAKE_BATCH)};

	drop_taken(w);
	if (store_query(db, STMT_JOB_TAKE_OVER, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while (w->count < TAKE_BATCH && store_next(db, e) == 1) {
		if (jobs_read_claim(db, &w->found[w->count], e) != 0)
			break;
		w->found[w->count].other_boot = w->other_boot;
		w->found[w->count++].kind = JOBS_ADOPTED;
	}
	store_done(db);
	for (size_t i = 0; e->code == ERR_NONE && i < w->count; i++)
		if (jobs_mark_owned(db, w->jobs->instance, &w->found[i].claim, e) != 0)
			return -1;
	if (e->code == ERR_NONE && w->count < TAKE_BATCH &&
	    store_exec(db, STMT_RUNNER_DELETE, in, 1, NULL, e) != 0)
		return -1;
	return e->code == ERR_NONE ? 0 : -1;
}

static int take_from(struct jobs *jobs, const char *instance, bool other_boot, struct err *e)
{
	struct take_work *w = mem_zalloc(1, sizeof(*w));
	size_t count = TAKE_BATCH;
	int result = 0;

	if (w == NULL)
		return err_set(e, ERR_NOMEM, 0, "take over");
	w->jobs = jobs;
	w->from = instance;
	w->other_boot = other_boot;
	while (result == 0 && count == TAKE_BATCH) {
		result = store_retry(jobs->db, take_body, w, e);
		count = w->count;
		for (size_t i = 0; result == 0 && i < count; i++)
			jobs_put(jobs, &w->found[i]);
		if (result == 0)
			w->count = 0;
	}
	/* Nobody knows whose the claims are now: a new process with a new id finds out. */
	if (result != 0 && e->code == ERR_UNKNOWN_OUTCOME)
		jobs_put_simple(jobs, JOBS_OUTLAWED, NULL);
	drop_taken(w);
	mem_free(w);
	return result;
}

struct old_runner {
	char instance[IDENT_UUID_SIZE];
	bool other_boot;
};

static int list_old(struct jobs *jobs, const unsigned char boot[16], struct old_runner *old,
		    size_t *out_count, struct err *e)
{
	size_t count = 0;

	if (store_query(jobs->db, STMT_RUNNER_LIST, NULL, 0, e) != 0)
		return -1;
	while (count < SWEEP_MAX_WATCH && store_next(jobs->db, e) == 1) {
		size_t length;
		const char *its_boot = store_bytes(jobs->db, 3, &length);

		if (!str_equal(store_text(jobs->db, 1), jobs->policy->node) ||
		    str_equal(store_text(jobs->db, 0), jobs->instance) ||
		    str_copy(old[count].instance, IDENT_UUID_SIZE, store_text(jobs->db, 0)) != 0)
			continue;
		old[count++].other_boot = length != 16 || memcmp(its_boot, boot, 16) != 0;
	}
	store_done(jobs->db);
	*out_count = count;
	return e->code == ERR_NONE ? 0 : -1;
}

int jobs_take_over(struct jobs *jobs, struct err *e)
{
	scope_free struct old_runner *old = mem_zalloc(SWEEP_MAX_WATCH, sizeof(*old));
	unsigned char boot[16];
	struct store_value me[] = {SV_TEXT(jobs->instance), SV_TEXT(jobs->policy->node),
				   SV_BYTES(boot, sizeof(boot)),
				   SV_I64(jobs->policy->runner.concurrency)};
	struct err inner = ERR_INIT;
	size_t count = 0;

	if (old == NULL)
		return err_set(e, ERR_NOMEM, 0, "take over");
	spool_boot_id(boot);
	if (list_old(jobs, boot, old, &count, e) != 0)
		return -1;
	/* first our own row, so that the claims are never without a living owner; it may be there
	 * from an earlier try */
	if (store_exec(jobs->db, STMT_RUNNER_INSERT, me, ARRAY_LEN(me), NULL, &inner) != 0 &&
	    inner.code != ERR_CONFLICT) {
		*e = inner;
		return -1;
	}
	for (size_t i = 0; i < count; i++)
		if (take_from(jobs, old[i].instance, old[i].other_boot, e) != 0)
			return -1;
	if (jobs_list_sandboxes(jobs, e) != 0)
		return -1;
	jobs->registered = true;
	jobs_put_simple(jobs, JOBS_READY, NULL);
	log_event(LOG_INFO, "registered", "runner=%s node=%s", jobs->instance, jobs->policy->node);
	return 0;
}
