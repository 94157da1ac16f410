#include "runners/core/store_sweep.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/state.h"
#include "runners/base/str.h"

struct found {
	enum job_state state; /* of the jobs that are looked for */
	int64_t job_ids[SWEEP_BATCH];
	struct swept *out;
};

/* Reads (job id, object id) rows. */
static int read_jobs(struct store *db, struct found *f, struct err *e)
{
	int got;

	f->out->count = 0;
	while ((got = store_next(db, e)) == 1 && f->out->count < SWEEP_BATCH) {
		if (str_copy(f->out->ids[f->out->count], IDENT_UUID_SIZE, store_text(db, 1)) != 0)
			continue;
		f->job_ids[f->out->count++] = store_i64(db, 0);
	}
	store_done(db);
	return got < 0 ? -1 : 0;
}

static int delete_job(struct store *db, int64_t id, struct err *e)
{
	struct store_value in[] = {SV_I64(id)};

	return store_exec(db, STMT_JOB_DELETE, in, 1, NULL, e);
}

/* Lock order is by id everywhere. */
static void sort_jobs(struct found *f)
{
	for (size_t i = 1; i < f->out->count; i++) {
		char id[IDENT_UUID_SIZE];
		int64_t job = f->job_ids[i];
		size_t at = i;

		memcpy(id, f->out->ids[i], sizeof(id));
		for (; at > 0 && f->job_ids[at - 1] > job; at--) {
			f->job_ids[at] = f->job_ids[at - 1];
			memcpy(f->out->ids[at], f->out->ids[at - 1], sizeof(id));
		}
		f->job_ids[at] = job;
		memcpy(f->out->ids[at], id, sizeof(id));
	}
}

/* Keeps the jobs that are still queued and that nobody else holds; they are locked then. */
static int lock_jobs(struct store *db, struct found *f, struct err *e)
{
	size_t kept = 0;

	for (size_t i = 0; i < f->out->count; i++) {
		struct store_value in[] = {SV_I64(f->job_ids[i])};
		int got = store_query_row(db, STMT_JOB_EXPIRED_LOCK, in, 1, e);

		store_done(db);
		if (got < 0)
			return -1;
		if (got == 0)
			continue;
		if (kept != i) {
			f->job_ids[kept] = f->job_ids[i];
			memcpy(f->out->ids[kept], f->out->ids[i], IDENT_UUID_SIZE);
		}
		kept++;
	}
	f->out->count = kept;
	return 0;
}

/* The look at the index takes no locks: SKIP LOCKED would keep the index entries of the rows that
 * it skips, a claim does so with its own index, and each would wait for the other's. */
static int queue_body(struct store *db, void *arg, struct err *e)
{
	struct found *f = arg;
	struct store_value state[] = {SV_TEXT(job_state_name(f->state))};

	if (store_query(db, STMT_JOB_EXPIRED, state, 1, e) != 0 || read_jobs(db, f, e) != 0)
		return -1;
	sort_jobs(f);
	if (lock_jobs(db, f, e) != 0)
		return -1;
	for (size_t i = 0; i < f->out->count; i++) {
		struct store_value end[] = {SV_TEXT("failed"), SV_TEXT("failed"),
					    SV_TEXT("queue_ttl_expired"), SV_TEXT(f->out->ids[i])};

		if (store_exec(db, STMT_RUN_END_QUEUED, end, ARRAY_LEN(end), NULL, e) != 0 ||
		    delete_job(db, f->job_ids[i], e) != 0)
			return -1;
	}
	return 0;
}

int sweep_queue(struct store *db, struct swept *out, struct err *e)
{
	struct found f = {.out = out, .state = JOB_QUEUED};

	out->count = 0;
	if (store_retry(db, queue_body, &f, e) != 0)
		return -1;
	if (out->count > 0)
		return 0;
	/* what waits for others of its own waits too; the next look has the rest */
	f.state = JOB_PARKED;
	return store_retry(db, queue_body, &f, e);
}

struct owner_work {
	struct found found;
	const char *instance;
};

static int owner_body(struct store *db, void *arg, struct err *e)
{
	struct owner_work *w = arg;
	struct store_value owner[] = {SV_TEXT(w->instance)};

	if (store_query(db, STMT_JOB_OF_OWNER, owner, 1, e) != 0 ||
	    read_jobs(db, &w->found, e) != 0)
		return -1;
	for (size_t i = 0; i < w->found.out->count; i++) {
		/* last_seq stays NULL: readers take every whole record of the spool */
		struct store_value end[] = {SV_TEXT("failed"),
					    SV_TEXT("failed"),
					    SV_TEXT("box_lost"),
					    SV_NULL,
					    SV_NULL,
					    SV_NULL,
					    SV_I64(0),
					    SV_I64(0),
					    SV_TEXT(""),
					    SV_TEXT(w->found.out->ids[i])};

		struct store_value operation[] = {SV_TEXT("failed"), SV_TEXT("host_lost"),
						  SV_TEXT(w->found.out->ids[i])};

		/* the id is a run's or an operation's */
		if (store_exec(db, STMT_SANDBOX_OPERATION_LOST, operation + 2, 1, NULL, e) != 0 ||
		    store_exec(db, STMT_SESSION_OPERATION_LOST, operation + 2, 1, NULL, e) != 0 ||
		    store_exec(db, STMT_OPERATION_END, operation, ARRAY_LEN(operation), NULL, e) !=
			0)
			return -1;
		if (store_exec(db, STMT_RUN_END, end, ARRAY_LEN(end), NULL, e) != 0 ||
		    delete_job(db, w->found.job_ids[i], e) != 0)
			return -1;
	}
	if (w->found.out->count < SWEEP_BATCH)
		return store_exec(db, STMT_RUNNER_DELETE, owner, 1, NULL, e);
	return 0;
}

int sweep_owner(struct store *db, const char *instance, struct swept *out, struct err *e)
{
	struct owner_work w = {.found = {.out = out}, .instance = instance};

	out->count = 0;
	return store_retry(db, owner_body, &w, e);
}

struct idem_row {
	char endpoint[17];
	char tenant[65];
	char user[65];
	char key[256];
};

struct idem_work {
	struct idem_row *rows;
	size_t count;
};

static int idempotency_body(struct store *db, void *arg, struct err *e)
{
	struct idem_work *w = arg;
	int got;

	w->count = 0;
	if (store_query(db, STMT_IDEM_EXPIRED, NULL, 0, e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && w->count < SWEEP_BATCH) {
		struct idem_row *row = &w->rows[w->count];

		if (str_copy(row->endpoint, sizeof(row->endpoint), store_text(db, 0)) == 0 &&
		    str_copy(row->tenant, sizeof(row->tenant), store_text(db, 1)) == 0 &&
		    str_copy(row->user, sizeof(row->user), store_text(db, 2)) == 0 &&
		    str_copy(row->key, sizeof(row->key), store_text(db, 3)) == 0)
			w->count++;
	}
	store_done(db);
	if (got < 0)
		return -1;
	for (size_t i = 0; i < w->count; i++) {
		struct store_value in[] = {SV_TEXT(w->rows[i].endpoint), SV_TEXT(w->rows[i].tenant),
					   SV_TEXT(w->rows[i].user), SV_TEXT(w->rows[i].key)};

		if (store_exec(db, STMT_IDEM_DELETE, in, ARRAY_LEN(in), NULL, e) != 0)
			return -1;
	}
	return 0;
}

int sweep_idempotency(struct store *db, size_t *out_count, struct err *e)
{
	scope_free struct idem_row *rows = mem_zalloc(SWEEP_BATCH, sizeof(*rows));
	struct idem_work w = {.rows = rows};

	if (rows == NULL)
		return err_set(e, ERR_NOMEM, 0, "sweep");
	if (store_retry(db, idempotency_body, &w, e) != 0)
		return -1;
	*out_count = w.count;
	return 0;
}

static struct beat *find_beat(struct beat_watch *watch, const char *instance)
{
	for (size_t i = 0; i < watch->count; i++)
		if (str_equal(watch->beats[i].instance, instance))
			return &watch->beats[i];
	return NULL;
}

static void add_id(struct swept *out, const char *id)
{
	if (out->count < SWEEP_BATCH && str_copy(out->ids[out->count], IDENT_UUID_SIZE, id) == 0)
		out->count++;
}

static void look_at(struct beat_watch *watch, const char *instance, int64_t value, int64_t now,
		    int64_t dead_after_us, struct swept *out)
{
	struct beat *beat = find_beat(watch, instance);

	if (beat == NULL) {
		if (watch->count >= SWEEP_MAX_WATCH)
			return;
		beat = &watch->beats[watch->count];
		if (str_copy(beat->instance, sizeof(beat->instance), instance) != 0)
			return;
		watch->count++;
		beat->beat = value;
		beat->since_us = now;
	} else if (beat->beat != value) {
		beat->beat = value;
		beat->since_us = now;
	} else if (now - beat->since_us > dead_after_us) {
		add_id(out, instance);
	}
	beat->seen = true;
}

int sweep_watch(struct store *db, struct beat_watch *watch, int64_t dead_after_us,
		struct swept *out, struct err *e)
{
	int64_t now = clock_monotonic_us();
	size_t kept = 0;
	int got;

	out->count = 0;
	for (size_t i = 0; i < watch->count; i++)
		watch->beats[i].seen = false;
	got = store_query(db, STMT_RUNNER_LIST, NULL, 0, e);
	if (got == 0)
		while ((got = store_next(db, e)) == 1)
			look_at(watch, store_text(db, 0), store_i64(db, 2), now, dead_after_us,
				out);
	if (got == 0)
		got = store_query(db, STMT_OWNERS_WITHOUT_RUNNER, NULL, 0, e);
	if (got == 0)
		while ((got = store_next(db, e)) == 1)
			look_at(watch, store_text(db, 0), -1, now, dead_after_us, out);
	store_done(db);
	if (got < 0) {
		/* the database did not answer: nobody may be called dead for this time */
		watch->count = 0;
		out->count = 0;
		return -1;
	}
	for (size_t i = 0; i < watch->count; i++)
		if (watch->beats[i].seen)
			watch->beats[kept++] = watch->beats[i];
	watch->count = kept;
	return 0;
}
