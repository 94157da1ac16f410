/*
 * test_jobs_stress: the job table under load: 4 connections that enqueue (and cancel some), 4 that
 * claim and end, 1 that sweeps, for CORDON_STRESS_S seconds (30). The statements and transactions
 * are those of handlers/ops/op_run.c, runners/supervisor/jobs.c and core/store_sweep.c, under a
 * node name of its own, so that the live runner takes nothing.
 *
 * Claimers change their instance now and then and leave what they hold, as a runner that dies does;
 * the sweeper ends that. Asserted: fewer than 1 repeated transaction (1213, 1205) in 1,000, no run
 * lost, none claimed twice. The figures are printed.
 */
#include "handlers/ops/op_run.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/store_sweep.h"
#include "tests/lib/apirig.h"

#include <pthread.h>
#include <stdatomic.h>

#define TENANT    "t-stress"
#define NODE      "stress"
#define SIDES     4
#define BATCH     16
#define IDS_MAX   200000
#define QUEUE_MAX 300
#define ROTATE_US (2 * CLOCK_US_PER_S)
#define DEAD_MAX  1000

static atomic_bool stop_enqueue;
static atomic_bool stop_claim;
static atomic_bool stop_sweep;

/* instances that died, for the sweeper */
static pthread_mutex_t dead_lock = PTHREAD_MUTEX_INITIALIZER;
static char dead[DEAD_MAX][IDENT_UUID_SIZE];
static size_t dead_count;

struct ids {
	char (*list)[IDENT_UUID_SIZE];
	size_t count;
};

struct worker {
	pthread_t thread;
	unsigned int number;
	struct ids enqueued; /* accepted */
	struct ids canceled; /* ended by our cancel */
	struct ids claimed;  /* each claim that was committed */
	struct ids ended;    /* each end that was committed */
	uint64_t transactions;
	uint64_t retries;
	uint64_t full;
	uint64_t lost;
	uint64_t left;
	uint64_t with_usage; /* ends that added a byte to their user's */
	uint64_t swept;
	uint64_t failures;
	char failure[400];
};

static void note_failure(struct worker *w, const struct err *e)
{
	if (w->failures++ == 0)
		(void)snprintf(w->failure, sizeof(w->failure), "%s", e->text);
}

static void ids_init(struct ids *ids)
{
	ids->list = mem_zalloc(IDS_MAX, sizeof(*ids->list));
	ids->count = 0;
	if (ids->list == NULL)
		abort();
}

static void ids_add(struct ids *ids, const char *id)
{
	if (ids->count < IDS_MAX)
		memcpy(ids->list[ids->count++], id, IDENT_UUID_SIZE);
}

/* --- enqueuing ------------------------------------------------------------------------------ */

static void fill_spec(struct run_spec *spec)
{
	static char program[] = "true";
	static char runtime[] = "namespace";
	static char image[] = "host";
	static char network[] = "deny_all";
	static char *command[] = {program, NULL};

	spec_init(spec);
	spec->command = command;
	spec->command_count = 1;
	spec->runtime = runtime;
	spec->image = image;
	spec->network = network;
}

static void enqueue_one(struct api *api, struct worker *w, const struct principal *caller,
			struct run_spec *spec, uint64_t turn)
{
	struct run_create *create = mem_zalloc(1, sizeof(*create));
	struct run_created *made = mem_zalloc(1, sizeof(*made));
	struct err e = ERR_INIT;
	char key[40];

	if (create == NULL || made == NULL)
		abort();
	create->face = "runs";
	create->endpoint = "runs";
	create->request_id = "stress";
	create->network = "deny_all";
	create->spec = spec;
	(void)snprintf(create->row.spec_version, sizeof(create->row.spec_version), "1.0");
	(void)snprintf(create->row.runtime, sizeof(create->row.runtime), "namespace");
	(void)snprintf(create->row.base_image, sizeof(create->row.base_image), "host");
	(void)snprintf(create->row.policy_hash, sizeof(create->row.policy_hash), "0");
	(void)snprintf(create->row.trust_level, sizeof(create->row.trust_level), "standard");
	/* every third with a key; some expire in the queue, some keys at once */
	(void)snprintf(key, sizeof(key), "%u-%llu", w->number, (unsigned long long)turn);
	if (turn % 3 == 0)
		create->idempotency_key = key;
	api->policy->queue.ttl_sec = turn % 8 == 0 ? 0 : 3600;
	api->policy->idempotency.ttl_sec = turn % 2 == 0 ? 0 : 600;
	w->transactions++;
	if (op_run_create(&api->context, caller, create, made, &e) != 0) {
		note_failure(w, &e);
	} else if (made->result == RUN_QUEUE_FULL) {
		w->full++;
		clock_sleep_us(2000);
	} else if (made->result == RUN_CREATED) {
		ids_add(&w->enqueued, made->row.id);
		if (turn % 16 == 5) {
			struct run_row row;

			w->transactions++;
			if (op_run_cancel(&api->context, caller, made->row.id, &row, &e) != 0)
				note_failure(w, &e);
			else if (row.phase == RUN_KILLED)
				ids_add(&w->canceled, row.id);
		}
	}
	mem_free(create);
	mem_free(made);
}

static void *enqueue_thread(void *arg)
{
	struct worker *w = arg;
	struct principal caller = {.key_id = "stress", .role = ROLE_USER};
	struct run_spec spec;
	struct api api;

	/* two and two share a tenant, whose row they lock */
	(void)snprintf(caller.tenant, sizeof(caller.tenant), TENANT "-%u", w->number / 2);
	(void)snprintf(caller.user, sizeof(caller.user), "u%u", w->number);
	fill_spec(&spec);
	api_open(&api, NODE);
	api.policy->queue.max_length = QUEUE_MAX;
	for (uint64_t turn = 1; !atomic_load(&stop_enqueue); turn++)
		enqueue_one(&api, w, &caller, &spec, turn);
	w->retries = store_retries(api.db);
	api_close(&api);
	return NULL;
}

/* --- claiming and ending -------------------------------------------------------------------- */

struct claim {
	int64_t job_id;
	char run_id[IDENT_UUID_SIZE];
	char tenant[65];
	char user[65];
	unsigned char token[16];
};

struct claims {
	const char *instance;
	struct claim list[BATCH];
	size_t count;
	bool lost;
	const struct claim *one;
};

static int claim_body(struct store *db, void *arg, struct err *e)
{
	struct claims *c = arg;
	struct store_value in[] = {SV_TEXT(NODE), SV_I64(BATCH)};
	int got;

	c->count = 0;
	if (store_query(db, STMT_JOB_CLAIM_NEXT, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && c->count < BATCH) {
		struct claim *claim = &c->list[c->count++];

		claim->job_id = store_i64(db, 0);
		if (str_copy(claim->run_id, sizeof(claim->run_id), store_text(db, 1)) != 0 ||
		    str_copy(claim->tenant, sizeof(claim->tenant), store_text(db, 2)) != 0 ||
		    str_copy(claim->user, sizeof(claim->user), store_text(db, 3)) != 0 ||
		    ident_random(claim->token, sizeof(claim->token), e) != 0)
			return err_set(e, ERR_INTERNAL, 0, "claim");
	}
	store_done(db);
	for (size_t i = 0; got >= 0 && i < c->count; i++) {
		struct claim *claim = &c->list[i];
		struct store_value job[] = {SV_TEXT(c->instance),
					    SV_BYTES(claim->token, sizeof(claim->token)),
					    SV_I64(claim->job_id)};
		struct store_value run[] = {SV_TEXT(claim->run_id)};
		uint64_t changed = 0;

		if (store_exec(db, STMT_JOB_CLAIM, job, ARRAY_LEN(job), &changed, e) != 0)
			return -1;
		if (changed != 1)
			return err_set(e, ERR_INTERNAL, 0, "a job cannot be claimed");
		if (store_exec(db, STMT_RUN_STARTING, run, 1, &changed, e) != 0)
			return -1;
		if (changed != 1)
			return err_set(e, ERR_INTERNAL, 0, "a run of a queued job was not queued");
	}
	return got < 0 ? -1 : 0;
}

static int end_body(struct store *db, void *arg, struct err *e)
{
	struct claims *c = arg;
	const struct claim *one = c->one;
	struct store_value held[] = {SV_I64(one->job_id), SV_BYTES(one->token, sizeof(one->token))};
	struct store_value run[] = {SV_TEXT("completed"),
				    SV_TEXT("finished"),
				    SV_TEXT("exit=0"),
				    SV_I64(0),
				    SV_I64(5),
				    SV_TEXT("{}"),
				    SV_I64(1),
				    SV_I64(1),
				    SV_TEXT("00000001@1w0;"),
				    SV_TEXT(one->run_id)};
	struct store_value usage[] = {SV_TEXT(one->tenant), SV_TEXT(one->user), SV_I64(1)};
	uint64_t changed = 0;
	int got = store_query_row(db, STMT_JOB_HELD, held, ARRAY_LEN(held), e);

	store_done(db);
	c->lost = got == 0;
	if (got <= 0)
		return got;
	if (store_exec(db, STMT_RUN_END, run, ARRAY_LEN(run), &changed, e) != 0)
		return -1;
	if (changed != 1)
		return err_set(e, ERR_INTERNAL, 0, "a run was not active");
	if (store_exec(db, STMT_USAGE_ADD, usage, ARRAY_LEN(usage), NULL, e) != 0)
		return -1;
	return store_exec(db, STMT_JOB_DELETE, held, 1, NULL, e);
}

/* As most runs end: in one round trip. */
static int end_at_once(struct store *db, struct claims *c, struct err *e)
{
	const struct claim *one = c->one;
	struct store_value in[] = {SV_I64(one->job_id),
				   SV_BYTES(one->token, sizeof(one->token)),
				   SV_TEXT(one->run_id),
				   SV_TEXT("completed"),
				   SV_TEXT("finished"),
				   SV_TEXT("exit=0"),
				   SV_I64(0),
				   SV_I64(5),
				   SV_TEXT("{}"),
				   SV_I64(1),
				   SV_NULL,
				   SV_TEXT("00000001@1w0;")};
	int result = store_exec(db, STMT_RUN_END_ALL, in, ARRAY_LEN(in), NULL, e);

	c->lost = result != 0 && e->code == ERR_CONFLICT;
	return c->lost ? 0 : result;
}

static void end_one(struct store *db, struct worker *w, struct claims *c)
{
	struct err e = ERR_INIT;

	w->transactions++;
	if (w->transactions % 2 == 0) {
		if (end_at_once(db, c, &e) != 0)
			note_failure(w, &e);
		else if (c->lost)
			w->lost++;
		else
			ids_add(&w->ended, c->one->run_id);
		return;
	}
	if (store_retry(db, end_body, c, &e) != 0)
		note_failure(w, &e);
	else if (c->lost)
		w->lost++;
	else {
		ids_add(&w->ended, c->one->run_id);
		w->with_usage++;
	}
}

/* A new instance with a row; the old one is dead with what it holds. */
static void be_born(struct store *db, struct worker *w, char instance[IDENT_UUID_SIZE])
{
	struct err e = ERR_INIT;
	struct store_value in[4];

	if (instance[0] != '\0') {
		(void)pthread_mutex_lock(&dead_lock);
		if (dead_count < DEAD_MAX)
			memcpy(dead[dead_count++], instance, IDENT_UUID_SIZE);
		(void)pthread_mutex_unlock(&dead_lock);
	}
	if (ident_uuid(instance, &e) != 0)
		abort();
	in[0] = SV_TEXT(instance);
	in[1] = SV_TEXT(NODE);
	in[2] = SV_BYTES("0123456789abcdef", 16);
	in[3] = SV_I64(1);
	if (store_exec(db, STMT_RUNNER_INSERT, in, 4, NULL, &e) != 0)
		note_failure(w, &e);
}

static void beat(struct store *db, struct worker *w, const char *instance)
{
	struct err e = ERR_INIT;
	struct store_value in[] = {SV_I64(1000), SV_TEXT(instance)};
	uint64_t changed = 0;

	if (store_exec(db, STMT_RUNNER_BEAT, in, 2, &changed, &e) != 0 || changed != 1) {
		(void)err_set(&e, ERR_INTERNAL, 0, "outlawed");
		note_failure(w, &e);
	}
}

static void *claim_thread(void *arg)
{
	struct worker *w = arg;
	struct store *db = api_store();
	char instance[IDENT_UUID_SIZE] = "";
	struct claims c = {.instance = instance};
	int64_t next_us = 0;
	bool more = true;

	while (more) {
		struct err e = ERR_INIT;
		bool last = atomic_load(&stop_claim);
		bool die = false;

		if (clock_monotonic_us() >= next_us) {
			be_born(db, w, instance);
			next_us = clock_monotonic_us() + ROTATE_US + w->number * 100000;
		}
		beat(db, w, instance);
		w->transactions++;
		if (store_retry(db, claim_body, &c, &e) != 0) {
			note_failure(w, &e);
			c.count = 0;
		}
		for (size_t i = 0; i < c.count; i++)
			ids_add(&w->claimed, c.list[i].run_id);
		/* it dies with the last claims in its hands */
		die = !last && clock_monotonic_us() >= next_us;
		for (size_t i = 0; i < c.count && !die; i++) {
			c.one = &c.list[i];
			end_one(db, w, &c);
		}
		if (die)
			w->left += c.count;
		more = !last || c.count > 0;
		if (c.count == 0)
			clock_sleep_us(1000);
	}
	be_born(db, w, instance);
	be_born(db, w, instance);
	w->retries = store_retries(db);
	store_close(db);
	return NULL;
}

/* --- sweeping ------------------------------------------------------------------------------- */

static void sweep_once(struct store *db, struct worker *w)
{
	static struct swept swept;
	struct err e = ERR_INIT;
	char instance[IDENT_UUID_SIZE] = "";
	size_t count = 0;

	w->transactions += 2;
	if (sweep_queue(db, &swept, &e) != 0)
		note_failure(w, &e);
	w->swept += swept.count;
	err_clear(&e);
	if (sweep_idempotency(db, &count, &e) != 0)
		note_failure(w, &e);
	(void)pthread_mutex_lock(&dead_lock);
	if (dead_count > 0)
		memcpy(instance, dead[--dead_count], sizeof(instance));
	(void)pthread_mutex_unlock(&dead_lock);
	if (instance[0] == '\0')
		return;
	do {
		err_clear(&e);
		w->transactions++;
		if (sweep_owner(db, instance, &swept, &e) != 0) {
			note_failure(w, &e);
			return;
		}
		w->swept += swept.count;
	} while (swept.count == SWEEP_BATCH);
}

static void *sweep_thread(void *arg)
{
	struct worker *w = arg;
	struct store *db = api_store();
	bool last = false;

	while (!last) {
		last = atomic_load(&stop_sweep);
		sweep_once(db, w);
		clock_sleep_us(last ? 0 : 5000);
	}
	while (dead_count > 0)
		sweep_once(db, w);
	w->retries = store_retries(db);
	store_close(db);
	return NULL;
}

/* --- the judgement -------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
	return memcmp(a, b, IDENT_UUID_SIZE);
}

/* All lists of the workers in one, sorted. */
static struct ids gather(const struct worker *workers, size_t count, size_t offset)
{
	struct ids all;
	size_t total = 0;

	for (size_t i = 0; i < count; i++)
		total +=
		    ((const struct ids *)(const void *)((const char *)&workers[i] + offset))->count;
	all.list = mem_zalloc(total + 1, sizeof(*all.list));
	all.count = 0;
	if (all.list == NULL)
		abort();
	for (size_t i = 0; i < count; i++) {
		const struct ids *ids =
		    (const struct ids *)(const void *)((const char *)&workers[i] + offset);

		memcpy(all.list + all.count, ids->list, ids->count * sizeof(*ids->list));
		all.count += ids->count;
	}
	qsort(all.list, all.count, sizeof(*all.list), by_id);
	return all;
}

static size_t duplicates(const struct ids *ids)
{
	size_t n = 0;

	for (size_t i = 1; i < ids->count; i++)
		n += memcmp(ids->list[i], ids->list[i - 1], IDENT_UUID_SIZE) == 0;
	return n;
}

static bool has(const struct ids *ids, const char *id)
{
	return bsearch(id, ids->list, ids->count, sizeof(*ids->list), by_id) != NULL;
}

/* Every run that was accepted has ended, once, in the way that one of us knows about. */
static void judge_rows(struct store *db, const struct ids *enqueued, const struct ids *canceled,
		       const struct ids *claimed, const struct ids *ended)
{
	struct err e = ERR_INIT;
	size_t wrong = 0;

	for (size_t i = 0; i < enqueued->count; i++) {
		const char *id = enqueued->list[i];
		struct store_value in[] = {SV_TEXT(id)};
		const char *message;
		bool good;

		if (store_query_row(db, STMT_RUN_GET, in, 1, &e) != 1) {
			wrong++;
			continue;
		}
		message = store_text(db, 21);
		if (str_equal(message, "exit=0"))
			good = has(ended, id) && has(claimed, id);
		else if (str_equal(message, "box_lost"))
			good = has(claimed, id) && !has(ended, id);
		else if (str_equal(message, "queue_ttl_expired"))
			good = !has(claimed, id);
		else
			good = str_equal(message, "canceled_by_user") && has(canceled, id) &&
			       !has(claimed, id);
		if (!good && wrong++ < 5)
			(void)printf("\n    %s: %s %s", id, store_text(db, 19), message);
		store_done(db);
	}
	CU_ASSERT_EQUAL(wrong, 0);
}

static uint64_t seconds(void)
{
	const char *text = getenv("CORDON_STRESS_S");
	struct err e = ERR_INIT;
	uint64_t value = 30;

	if (text != NULL && num_u64("CORDON_STRESS_S", text, 1, 3600, &value, &e) != 0)
		CU_FAIL("CORDON_STRESS_S is no number");
	return value;
}

static struct worker enqueuers[SIDES];
static struct worker claimers[SIDES];
static struct worker sweeper;

static void run_all(void)
{
	for (unsigned int i = 0; i < SIDES; i++) {
		enqueuers[i].number = claimers[i].number = i;
		ids_init(&enqueuers[i].enqueued);
		ids_init(&enqueuers[i].canceled);
		ids_init(&claimers[i].claimed);
		ids_init(&claimers[i].ended);
		if (pthread_create(&enqueuers[i].thread, NULL, enqueue_thread, &enqueuers[i]) !=
			0 ||
		    pthread_create(&claimers[i].thread, NULL, claim_thread, &claimers[i]) != 0)
			abort();
	}
	if (pthread_create(&sweeper.thread, NULL, sweep_thread, &sweeper) != 0)
		abort();
	clock_sleep_us((int64_t)seconds() * CLOCK_US_PER_S);
	atomic_store(&stop_enqueue, true);
	for (size_t i = 0; i < SIDES; i++)
		(void)pthread_join(enqueuers[i].thread, NULL);
	atomic_store(&stop_claim, true);
	for (size_t i = 0; i < SIDES; i++)
		(void)pthread_join(claimers[i].thread, NULL);
	atomic_store(&stop_sweep, true);
	(void)pthread_join(sweeper.thread, NULL);
}

static void add_up(const struct worker *w, struct worker *sum)
{
	sum->transactions += w->transactions;
	sum->retries += w->retries;
	sum->full += w->full;
	sum->lost += w->lost;
	sum->left += w->left;
	sum->with_usage += w->with_usage;
	sum->swept += w->swept;
	sum->failures += w->failures;
	if (w->failures > 0)
		(void)printf("\n    failure: %s", w->failure);
}

static void test_stress(void)
{
	struct store *db = api_store();
	struct worker sum = {0};
	struct ids enqueued;
	struct ids canceled;
	struct ids claimed;
	struct ids ended;
	char ignored[API_KEY_SIZE];
	int64_t took_us = clock_monotonic_us();

	api_forget(db, TENANT);
	api_sql(db, "DELETE FROM runner WHERE node = '" NODE "'");
	for (int i = 0; i < SIDES / 2; i++) {
		char tenant[40];

		(void)snprintf(tenant, sizeof(tenant), TENANT "-%d", i);
		api_key(db, tenant, "u", "user", ignored);
	}
	run_all();
	took_us = clock_monotonic_us() - took_us;
	for (size_t i = 0; i < SIDES; i++) {
		add_up(&enqueuers[i], &sum);
		add_up(&claimers[i], &sum);
	}
	add_up(&sweeper, &sum);
	enqueued = gather(enqueuers, SIDES, offsetof(struct worker, enqueued));
	canceled = gather(enqueuers, SIDES, offsetof(struct worker, canceled));
	claimed = gather(claimers, SIDES, offsetof(struct worker, claimed));
	ended = gather(claimers, SIDES, offsetof(struct worker, ended));
	(void)printf("\n    %.1f s: %llu transactions, %llu repeated (%.3f in 1,000), %zu runs "
		     "accepted, %zu claimed, %zu ended, %zu canceled, %llu left to the sweep, %llu "
		     "swept, queue full %llu times\n    ",
		     (double)took_us / 1e6, (unsigned long long)sum.transactions,
		     (unsigned long long)sum.retries,
		     (double)sum.retries * 1000.0 / (double)sum.transactions, enqueued.count,
		     claimed.count, ended.count, canceled.count, (unsigned long long)sum.left,
		     (unsigned long long)sum.swept, (unsigned long long)sum.full);
	CU_ASSERT_EQUAL(sum.failures, 0);
	CU_ASSERT(enqueued.count > 100 && claimed.count > 100 && sum.swept > 0);
	CU_ASSERT(sum.retries * 1000 < sum.transactions);
	/* none twice, none lost */
	CU_ASSERT_EQUAL(duplicates(&enqueued), 0);
	CU_ASSERT_EQUAL(duplicates(&claimed), 0);
	CU_ASSERT_EQUAL(duplicates(&ended), 0);
	CU_ASSERT_EQUAL(sum.lost, 0);
	CU_ASSERT_EQUAL(ended.count + sum.left, claimed.count);
	judge_rows(db, &enqueued, &canceled, &claimed, &ended);
	CU_ASSERT_EQUAL(api_number(db, "SELECT COUNT(*) FROM run WHERE node = '" NODE "'"),
			(int64_t)enqueued.count);
	CU_ASSERT_EQUAL(api_number(db, "SELECT COUNT(*) FROM job WHERE node = '" NODE "'"), 0);
	CU_ASSERT_EQUAL(
	    api_number(db, "SELECT COALESCE(SUM(size_bytes), 0) FROM artifact_usage WHERE tenant "
			   "LIKE '" TENANT "%%'"),
	    (int64_t)sum.with_usage);
	api_forget(db, TENANT);
	api_sql(db, "DELETE FROM runner WHERE node = '" NODE "'");
	store_close(db);
	mem_free(enqueued.list);
	mem_free(canceled.list);
	mem_free(claimed.list);
	mem_free(ended.list);
	for (size_t i = 0; i < SIDES; i++) {
		mem_free(enqueuers[i].enqueued.list);
		mem_free(enqueuers[i].canceled.list);
		mem_free(claimers[i].claimed.list);
		mem_free(claimers[i].ended.list);
	}
}

static const struct test tests[] = {
    {"jobs", "stress", test_stress},
};

int main(int argc, char **argv)
{
	return api_main(argc, argv, tests, ARRAY_LEN(tests));
}
