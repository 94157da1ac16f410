/* test_store: the door to MariaDB against a real one: values, broken connections, deadlocks. */
#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/store_sweep.h"
#include "tests/lib/apirig.h"

#include <pthread.h>

#define TENANT "t-store"
#define NODE   "test-store"

static struct store *db;
static struct store *other;

static void open_both(void)
{
	if (db == NULL)
		db = api_store();
	if (other == NULL)
		other = api_store();
}

static void test_clean(void)
{
	open_both();
	api_forget(other, TENANT);
	CU_ASSERT_EQUAL(
	    api_number(other, "SELECT COUNT(*) FROM run WHERE tenant LIKE '%s%%'", TENANT), 0);
}

/* --- values --------------------------------------------------------------------------------- */

static void insert_job(const char *id, const char *spec, size_t length, int64_t ttl)
{
	struct err e = ERR_INIT;
	struct store_value in[] = {SV_TEXT(id),   SV_TEXT(TENANT),        SV_TEXT("u"),
				   SV_TEXT(NODE), SV_BYTES(spec, length), SV_TEXT("r"),
				   SV_I64(ttl)};

	CU_ASSERT_EQUAL_FATAL(store_exec(db, STMT_JOB_INSERT, in, ARRAY_LEN(in), NULL, &e), 0);
}

static void insert_run(const char *id, uint64_t job)
{
	struct err e = ERR_INIT;
	struct store_value in[] = {SV_TEXT(id),
				   SV_TEXT("runs"),
				   SV_TEXT(TENANT),
				   SV_TEXT("u"),
				   SV_TEXT("k"),
				   SV_TEXT(NODE),
				   SV_I64((int64_t)job),
				   SV_TEXT("r"),
				   SV_NULL,
				   SV_TEXT("1.0"),
				   SV_TEXT("namespace"),
				   SV_NULL,
				   SV_TEXT("host"),
				   SV_NULL,
				   SV_TEXT("0"),
				   SV_TEXT("standard"),
				   SV_TEXT("deny_all"),
				   SV_I64(0),
				   SV_NULL,
				   SV_NULL,
				   SV_NULL,
				   SV_NULL,
				   SV_NULL,
				   SV_NULL,
				   SV_NULL,
				   SV_I64(0)};

	CU_ASSERT_EQUAL_FATAL(store_exec(db, STMT_RUN_INSERT, in, ARRAY_LEN(in), NULL, &e), 0);
}

static void new_id(char out[IDENT_UUID_SIZE])
{
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL_FATAL(ident_uuid(out, &e), 0);
}

static void test_long_columns(void)
{
	/* around the inline room of a column, and far beyond; one statement, rising and falling */
	static const size_t sizes[] = {0, 1, 255, 256, 257, 100000, 5, 4000000, 256};
	scope_free char *text = mem_zalloc(4000001, 1);
	struct err e = ERR_INIT;
	char id[IDENT_UUID_SIZE];
	struct store_value in[] = {SV_TEXT(NODE), SV_I64(100)};
	size_t row = 0;
	int got;

	for (size_t i = 0; i < 4000000; i++)
		text[i] = (char)('a' + i % 23);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		new_id(id);
		insert_job(id, text, sizes[i], 3600);
		CU_ASSERT(store_insert_id(db) > 0);
	}
	CU_ASSERT_EQUAL(store_query(db, STMT_JOB_CLAIM_NEXT, in, ARRAY_LEN(in), &e), 0);
	while ((got = store_next(db, &e)) == 1) {
		size_t length = 77;
		const char *spec = store_bytes(db, 5, &length);

		CU_ASSERT_EQUAL_FATAL(length, sizes[row]);
		CU_ASSERT_EQUAL(memcmp(spec, text, length), 0);
		CU_ASSERT_EQUAL(spec[length], '\0');
		ASSERT_TEXT(store_text(db, 2), TENANT);
		CU_ASSERT_EQUAL(store_i64(db, 4), 0);
		row++;
	}
	CU_ASSERT_EQUAL(got, 0);
	CU_ASSERT_EQUAL(row, ARRAY_LEN(sizes));
	/* after the end: still the end */
	CU_ASSERT_EQUAL(store_next(db, &e), 0);
	ASSERT_TEXT(store_text(db, 2), "");
	api_sql(other, "DELETE FROM job WHERE node = '%s'", NODE);
}

static void test_nulls_and_bytes(void)
{
	struct err e = ERR_INIT;
	char id[IDENT_UUID_SIZE];
	struct store_value in[1];
	struct store_value artifact[] = {SV_NULL,
					 SV_I64(0),
					 SV_BYTES("a\0\xff", 3),
					 SV_BYTES("0123456789abcdef0123456789abcdef", 32),
					 SV_I64(INT64_C(1) << 40),
					 SV_I64(-5)};
	size_t length;

	new_id(id);
	insert_run(id, 1);
	in[0] = SV_TEXT(id);
	CU_ASSERT_EQUAL(store_query_row(db, STMT_RUN_GET, in, 1, &e), 1);
	CU_ASSERT(store_is_null(db, 5));
	ASSERT_TEXT(store_bytes(db, 5, &length), "");
	CU_ASSERT_EQUAL(length, 0);
	CU_ASSERT(store_is_null(db, 22));
	CU_ASSERT_EQUAL(store_i64(db, 22), 0);
	CU_ASSERT_FALSE(store_is_null(db, 0));
	ASSERT_TEXT(store_text(db, 0), id);
	CU_ASSERT(store_is_null(db, 39));
	CU_ASSERT_EQUAL(strlen(store_text(db, 26)), 26);
	store_done(db);
	CU_ASSERT(store_is_null(db, 0));
	artifact[0] = SV_TEXT(id);
	CU_ASSERT_EQUAL(
	    store_exec(db, STMT_ARTIFACT_INSERT, artifact, ARRAY_LEN(artifact), NULL, &e), 0);
	CU_ASSERT_EQUAL(store_query_row(db, STMT_ARTIFACT_LIST, in, 1, &e), 1);
	CU_ASSERT_EQUAL(memcmp(store_bytes(db, 1, &length), "a\0\xff", 4), 0);
	CU_ASSERT_EQUAL(length, 3);
	CU_ASSERT_EQUAL(store_i64(db, 2), INT64_C(1) << 40);
	CU_ASSERT_EQUAL(store_i64(db, 3), -5);
	/* a second query closes the first */
	CU_ASSERT_EQUAL(store_query_row(db, STMT_PING, NULL, 0, &e), 1);
	CU_ASSERT_EQUAL(store_i64(db, 0), 1);
	store_done(db);
	/* DECIMAL */
	CU_ASSERT_EQUAL(store_query_row(db, STMT_ARTIFACT_SUM, in, 1, &e), 1);
	CU_ASSERT_EQUAL(store_i64(db, 0), INT64_C(1) << 40);
	store_done(db);
	CU_ASSERT_EQUAL(
	    store_query_row(db, STMT_RUN_GET, (struct store_value[]){SV_TEXT("x")}, 1, &e), 0);
	CU_ASSERT_EQUAL(e.code, ERR_NONE);
}

static int ensure(const char *tenant, uint64_t *out, struct err *e)
{
	struct store_value in[] = {SV_TEXT(tenant)};

	return store_exec(db, STMT_TENANT_ENSURE, in, 1, out, e);
}

static void test_refusals(void)
{
	struct err e = ERR_INIT;
	char id[IDENT_UUID_SIZE];
	char long_tenant[70];
	uint64_t changed = 9;
	struct store_value one[] = {SV_TEXT("x")};
	struct store_value runner[] = {SV_NULL, SV_TEXT(NODE), SV_BYTES("0123456789abcdef", 16),
				       SV_I64(1)};
	struct store_value end[] = {SV_TEXT("sleeping"), SV_TEXT("failed"), SV_TEXT("m"), SV_NULL};

	CU_ASSERT_EQUAL(store_exec(db, STMT_PING, one, 1, NULL, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INTERNAL);
	err_clear(&e);
	new_id(id);
	runner[0] = SV_TEXT(id);
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_INSERT, runner, 4, &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 1);
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_INSERT, runner, 4, NULL, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_CONFLICT);
	err_clear(&e);
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_DELETE, runner, 1, &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 1);
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_DELETE, runner, 1, &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 0);
	/* strict mode: nothing is cut to fit; a CHECK holds */
	runner[1] = SV_TEXT("0123456789012345678901234567890123456789"
			    "0123456789012345678901234567890123456789");
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_INSERT, runner, 4, NULL, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INTERNAL);
	err_clear(&e);
	insert_run(id, 1);
	end[3] = SV_TEXT(id);
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUN_END_QUEUED, end, 4, NULL, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INTERNAL);
	err_clear(&e);
	/* blanks count: nopad, and bytes */
	CU_ASSERT_EQUAL(ensure(TENANT "k", &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 1);
	CU_ASSERT_EQUAL(ensure(TENANT "k ", &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 1);
	CU_ASSERT_EQUAL(ensure(TENANT "K", &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 1);
	CU_ASSERT_EQUAL(ensure(TENANT "k", &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 0);
	memset(long_tenant, 't', sizeof(long_tenant));
	long_tenant[69] = '\0';
	CU_ASSERT_EQUAL(api_number(db, "SELECT COUNT(*) FROM tenant WHERE id LIKE 'ttttt%%'"), 0);
}

static void test_session(void)
{
	struct err e = ERR_INIT;

	store_disconnect(db);
	CU_ASSERT_EQUAL(store_query_row(db, STMT_PING, NULL, 0, &e), 1);
	CU_ASSERT_EQUAL(api_number(db, "SELECT @@tx_isolation = 'READ-COMMITTED'"), 1);
	CU_ASSERT_EQUAL(api_number(db, "SELECT @@time_zone = '+00:00'"), 1);
	CU_ASSERT_EQUAL(api_number(db, "SELECT @@innodb_lock_wait_timeout"), 5);
	CU_ASSERT_EQUAL(api_number(db, "SELECT @@sql_mode LIKE '%%STRICT_ALL_TABLES%%'"), 1);
	CU_ASSERT_EQUAL(api_number(db, "SELECT @@character_set_client = 'utf8mb4'"), 1);
	CU_ASSERT_EQUAL(api_number(db, "SELECT @@innodb_flush_log_at_trx_commit"), 1);
}

/* --- broken connections --------------------------------------------------------------------- */

static void test_kill_outside(void)
{
	struct err e = ERR_INIT;
	uint64_t changed = 0;
	int result;

	/* a read is repeated on a new connection, prepared before or not */
	for (int i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(store_query_row(db, STMT_PING, NULL, 0, &e), 1);
		store_done(db);
		api_kill(other, db);
		if (i == 2)
			clock_sleep_us(20000);
		CU_ASSERT_EQUAL(
		    store_query_row(db, i == 1 ? STMT_SCHEMA_VERSION : STMT_PING, NULL, 0, &e), 1);
		CU_ASSERT(store_i64(db, 0) >= 1);
		store_done(db);
		CU_ASSERT_EQUAL(e.code, ERR_NONE);
	}
	/* a write may have happened: it is not repeated, and the next one finds a new connection */
	CU_ASSERT_EQUAL(ensure(TENANT "w0", NULL, &e), 0);
	api_kill(other, db);
	result = ensure(TENANT "w1", NULL, &e);
	CU_ASSERT_EQUAL(result, -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	CU_ASSERT_EQUAL(ensure(TENANT "w2", &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 1);
	/* a transaction begins on a new one */
	api_kill(other, db);
	CU_ASSERT_EQUAL(store_begin(db, &e), 0);
	CU_ASSERT_EQUAL(ensure(TENANT "w3", &changed, &e), 0);
	CU_ASSERT_EQUAL(store_commit(db, &e), 0);
	CU_ASSERT_EQUAL(api_number(other, "SELECT COUNT(*) FROM tenant WHERE id = '%sw3'", TENANT),
			1);
}

static void test_kill_inside(void)
{
	struct err e = ERR_INIT;
	uint64_t changed = 0;

	CU_ASSERT_EQUAL(store_begin(db, &e), 0);
	CU_ASSERT_EQUAL(store_begin(db, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INTERNAL);
	err_clear(&e);
	CU_ASSERT_EQUAL(ensure(TENANT "i1", &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 1);
	api_kill(other, db);
	/* nothing of it may go on outside of the transaction, reads neither */
	CU_ASSERT_EQUAL(store_query_row(db, STMT_PING, NULL, 0, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	CU_ASSERT_EQUAL(ensure(TENANT "i2", NULL, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	CU_ASSERT_EQUAL(store_commit(db, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	CU_ASSERT_EQUAL(store_query_row(db, STMT_PING, NULL, 0, &e), 1);
	store_done(db);
	CU_ASSERT_EQUAL(
	    api_number(other, "SELECT COUNT(*) FROM tenant WHERE id LIKE '%si%%'", TENANT), 0);
	/* rolled back by us */
	CU_ASSERT_EQUAL(store_begin(db, &e), 0);
	CU_ASSERT_EQUAL(ensure(TENANT "i3", NULL, &e), 0);
	store_rollback(db);
	CU_ASSERT_EQUAL(
	    api_number(other, "SELECT COUNT(*) FROM tenant WHERE id LIKE '%si%%'", TENANT), 0);
}

struct killer {
	int calls;
	int kill_call; /* this call's connection dies */
	bool at_end;
	enum err_code fail;
};

static int killed_body(struct store *store, void *arg, struct err *e)
{
	struct killer *k = arg;

	k->calls++;
	if (k->calls == k->kill_call && !k->at_end)
		api_kill(other, store);
	if (ensure(TENANT "r1", NULL, e) != 0)
		return -1;
	if (k->calls == k->kill_call && k->at_end)
		api_kill(other, store);
	if (k->fail != ERR_NONE)
		return err_set(e, k->fail, 0, "asked for");
	return 0;
}

static int64_t count_r1(void)
{
	return api_number(other, "SELECT COUNT(*) FROM tenant WHERE id = '%sr1'", TENANT);
}

static void test_retry_lost(void)
{
	struct err e = ERR_INIT;
	struct killer k = {.kill_call = 1};

	/* before COMMIT nothing has happened: once more, on a new connection */
	CU_ASSERT_EQUAL(store_retry(db, killed_body, &k, &e), 0);
	CU_ASSERT_EQUAL(k.calls, 2);
	CU_ASSERT_EQUAL(count_r1(), 1);
	api_sql(other, "DELETE FROM tenant WHERE id = '%sr1'", TENANT);
	/* other errors are final and roll back */
	k = (struct killer){.fail = ERR_LIMIT};
	CU_ASSERT_EQUAL(store_retry(db, killed_body, &k, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	CU_ASSERT_EQUAL(k.calls, 1);
	CU_ASSERT_EQUAL(count_r1(), 0);
}

static void test_unknown_outcome(void)
{
	struct err e = ERR_INIT;
	struct killer k = {.kill_call = 1, .at_end = true};

	/* the connection breaks at COMMIT: never repeated */
	CU_ASSERT_EQUAL(store_retry(db, killed_body, &k, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNKNOWN_OUTCOME);
	CU_ASSERT_EQUAL(k.calls, 1);
	err_clear(&e);
	CU_ASSERT_EQUAL(store_query_row(db, STMT_PING, NULL, 0, &e), 1);
	store_done(db);
	CU_ASSERT_EQUAL(count_r1(), 0);
}

static void test_server_away(void)
{
	static const struct store_options nowhere = {
	    .socket = "/nonexistent/db.sock", .database = "cordon", .user = "root"};
	struct store *away = NULL;
	struct err e = ERR_INIT;
	struct killer k = {0};

	CU_ASSERT_EQUAL(store_open(&nowhere, &away, &e), 0);
	CU_ASSERT_EQUAL(store_query_row(away, STMT_PING, NULL, 0, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	err_clear(&e);
	CU_ASSERT_EQUAL(store_retry(away, killed_body, &k, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	CU_ASSERT_EQUAL(k.calls, 0);
	store_close(away);
}

/* --- deadlocks ------------------------------------------------------------------------------ */

struct locker {
	struct store *store;
	const char *first;
	const char *second;
	pthread_barrier_t *barrier;
	int calls;
	int result;
};

static int lock_body(struct store *store, void *arg, struct err *e)
{
	struct locker *l = arg;
	struct store_value one[] = {SV_TEXT(l->first)};
	struct store_value two[] = {SV_TEXT(l->second)};

	l->calls++;
	if (store_query_row(store, STMT_TENANT_LOCK, one, 1, e) != 1)
		return -1;
	store_done(store);
	/* the first time both hold one row and want the other's */
	if (l->calls == 1)
		(void)pthread_barrier_wait(l->barrier);
	if (store_query_row(store, STMT_TENANT_LOCK, two, 1, e) != 1)
		return -1;
	store_done(store);
	return 0;
}

static void *lock_thread(void *arg)
{
	struct locker *l = arg;
	struct err e = ERR_INIT;

	l->result = store_retry(l->store, lock_body, l, &e);
	return NULL;
}

static void test_deadlock(void)
{
	pthread_barrier_t barrier;
	pthread_t thread;
	struct err e = ERR_INIT;
	struct locker a = {.store = db, .first = TENANT "d1", .second = TENANT "d2"};
	struct locker b = {.store = other, .first = TENANT "d2", .second = TENANT "d1"};
	uint64_t before = store_retries(db) + store_retries(other);

	CU_ASSERT_EQUAL(ensure(TENANT "d1", NULL, &e), 0);
	CU_ASSERT_EQUAL(ensure(TENANT "d2", NULL, &e), 0);
	(void)pthread_barrier_init(&barrier, NULL, 2);
	a.barrier = &barrier;
	b.barrier = &barrier;
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, lock_thread, &b), 0);
	(void)lock_thread(&a);
	(void)pthread_join(thread, NULL);
	(void)pthread_barrier_destroy(&barrier);
	CU_ASSERT_EQUAL(a.result, 0);
	CU_ASSERT_EQUAL(b.result, 0);
	CU_ASSERT_EQUAL(a.calls + b.calls, 3);
	CU_ASSERT_EQUAL(store_retries(db) + store_retries(other) - before, 1);
}

static void test_lock_wait(void)
{
	struct err e = ERR_INIT;
	pthread_barrier_t barrier;
	struct store_value in[] = {SV_TEXT(TENANT "d1")};
	struct locker a = {.store = db, .first = TENANT "d1", .second = TENANT "d1"};
	uint64_t before = store_retries(db);

	(void)pthread_barrier_init(&barrier, NULL, 1);
	a.barrier = &barrier;
	CU_ASSERT_EQUAL(store_begin(other, &e), 0);
	CU_ASSERT_EQUAL(store_query_row(other, STMT_TENANT_LOCK, in, 1, &e), 1);
	store_done(other);
	api_sql(db, "SET SESSION innodb_lock_wait_timeout = 1");
	CU_ASSERT_EQUAL(store_retry(db, lock_body, &a, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	CU_ASSERT_EQUAL(a.calls, 4);
	CU_ASSERT_EQUAL(store_retries(db) - before, 3);
	store_rollback(other);
	err_clear(&e);
	CU_ASSERT_EQUAL(store_retry(db, lock_body, &a, &e), 0);
	(void)pthread_barrier_destroy(&barrier);
	store_disconnect(db);
}

/* --- sweeps --------------------------------------------------------------------------------- */

static int64_t runs_with(const char *message)
{
	return api_number(other,
			  "SELECT COUNT(*) FROM run WHERE tenant = '%s' AND message = '%s' AND "
			  "phase = 'failed' AND outcome = 'failed' AND finished_at IS NOT NULL",
			  TENANT, message);
}

static void test_sweep_queue(void)
{
	struct swept swept;
	struct err e = ERR_INIT;
	char late[IDENT_UUID_SIZE];
	char early[IDENT_UUID_SIZE];
	bool found = false;

	new_id(late);
	insert_job(late, "{}", 2, -1);
	insert_run(late, store_insert_id(db));
	new_id(early);
	insert_job(early, "{}", 2, 3600);
	insert_run(early, store_insert_id(db));
	CU_ASSERT_EQUAL(sweep_queue(db, &swept, &e), 0);
	for (size_t i = 0; i < swept.count; i++) {
		found |= str_equal(swept.ids[i], late);
		CU_ASSERT_FALSE(str_equal(swept.ids[i], early));
	}
	/* the live gate may have been faster: the row says it either way */
	CU_ASSERT(found || swept.count == 0);
	CU_ASSERT_EQUAL(runs_with("queue_ttl_expired"), 1);
	CU_ASSERT_EQUAL(api_number(other, "SELECT COUNT(*) FROM job WHERE object_id = '%s'", late),
			0);
	CU_ASSERT_EQUAL(api_number(other, "SELECT COUNT(*) FROM job WHERE object_id = '%s'", early),
			1);
	api_sql(other, "DELETE FROM job WHERE node = '%s'", NODE);
}

static void test_sweep_owner(void)
{
	struct swept swept;
	struct err e = ERR_INIT;
	char instance[IDENT_UUID_SIZE];
	struct store_value runner[] = {SV_NULL, SV_TEXT(NODE), SV_BYTES("0123456789abcdef", 16),
				       SV_I64(1)};
	size_t ended = 0;
	size_t rounds = 0;

	new_id(instance);
	runner[0] = SV_TEXT(instance);
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_INSERT, runner, 4, NULL, &e), 0);
	for (int i = 0; i < 250; i++) {
		char id[IDENT_UUID_SIZE];
		struct store_value claim[] = {SV_TEXT(instance), SV_BYTES("0123456789abcdef", 16),
					      SV_NULL, SV_TEXT(id)};

		new_id(id);
		insert_job(id, "{}", 2, 3600);
		claim[2] = SV_I64((int64_t)store_insert_id(db));
		insert_run(id, store_insert_id(db));
		CU_ASSERT_EQUAL(store_exec(db, STMT_RUN_CLAIM, claim, 4, NULL, &e), 0);
	}
	do {
		CU_ASSERT_EQUAL_FATAL(sweep_owner(db, instance, &swept, &e), 0);
		ended += swept.count;
	} while (swept.count == SWEEP_BATCH && ++rounds < 10);
	CU_ASSERT_EQUAL(ended, 250);
	CU_ASSERT_EQUAL(runs_with("box_lost"), 250);
	CU_ASSERT_EQUAL(
	    api_number(other, "SELECT COUNT(*) FROM runner WHERE instance = '%s'", instance), 0);
	CU_ASSERT_EQUAL(
	    api_number(other, "SELECT COUNT(*) FROM job WHERE claim_owner = '%s'", instance), 0);
	/* nobody knows when it ended: readers take the whole spool */
	CU_ASSERT_EQUAL(api_number(other,
				   "SELECT COUNT(*) FROM run WHERE tenant = '%s' AND message = "
				   "'box_lost' AND last_seq IS NULL",
				   TENANT),
			250);
}

static void test_sweep_idempotency(void)
{
	struct err e = ERR_INIT;
	size_t count = 0;

	for (int i = 0; i < 3; i++) {
		char key[10];
		struct store_value in[] = {SV_TEXT("runs"),
					   SV_TEXT(TENANT),
					   SV_TEXT("u"),
					   SV_TEXT(key),
					   SV_BYTES("0123456789abcdef0123456789abcdef", 32),
					   SV_TEXT("x"),
					   SV_I64(i == 0 ? 3600 : -1)};

		(void)snprintf(key, sizeof(key), "k%d", i);
		CU_ASSERT_EQUAL(store_exec(db, STMT_IDEM_INSERT, in, ARRAY_LEN(in), NULL, &e), 0);
	}
	CU_ASSERT_EQUAL(sweep_idempotency(db, &count, &e), 0);
	CU_ASSERT_EQUAL(
	    api_number(other, "SELECT COUNT(*) FROM idempotency WHERE tenant = '%s'", TENANT), 1);
}

static bool is_dead(const struct swept *dead, const char *instance)
{
	for (size_t i = 0; i < dead->count; i++)
		if (str_equal(dead->ids[i], instance))
			return true;
	return false;
}

static void test_watch(void)
{
	static struct beat_watch watch;
	struct swept dead;
	struct err e = ERR_INIT;
	char instance[IDENT_UUID_SIZE];
	struct store_value runner[] = {SV_NULL, SV_TEXT(NODE), SV_BYTES("0123456789abcdef", 16),
				       SV_I64(1)};

	struct store_value beat[] = {SV_I64(1000), SV_NULL};

	new_id(instance);
	runner[0] = SV_TEXT(instance);
	beat[1] = SV_TEXT(instance);
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_INSERT, runner, 4, NULL, &e), 0);
	CU_ASSERT_EQUAL(sweep_watch(db, &watch, 50000, &dead, &e), 0);
	CU_ASSERT_FALSE(is_dead(&dead, instance));
	clock_sleep_us(60000);
	/* it lives: the beat moved */
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_BEAT, beat, 2, NULL, &e), 0);
	CU_ASSERT_EQUAL(sweep_watch(db, &watch, 50000, &dead, &e), 0);
	CU_ASSERT_FALSE(is_dead(&dead, instance));
	clock_sleep_us(60000);
	CU_ASSERT_EQUAL(sweep_watch(db, &watch, 50000, &dead, &e), 0);
	CU_ASSERT(is_dead(&dead, instance));
	/* a database that did not answer starts the time anew */
	CU_ASSERT_EQUAL(store_begin(db, &e), 0);
	api_kill(other, db);
	CU_ASSERT_EQUAL(sweep_watch(db, &watch, 50000, &dead, &e), -1);
	CU_ASSERT_EQUAL(dead.count, 0);
	store_rollback(db);
	err_clear(&e);
	CU_ASSERT_EQUAL(sweep_watch(db, &watch, 50000, &dead, &e), 0);
	CU_ASSERT_FALSE(is_dead(&dead, instance));
	CU_ASSERT_EQUAL(store_exec(db, STMT_RUNNER_DELETE, runner, 1, NULL, &e), 0);
}

/* --- faults --------------------------------------------------------------------------------- */

static int read_one(void *context, struct err *e)
{
	struct store_value in[] = {SV_TEXT(NODE), SV_I64(1)};
	int got;

	(void)context;
	/* prepared anew each time: that is where the memory goes */
	store_disconnect(db);
	got = store_query_row(db, STMT_JOB_CLAIM_NEXT, in, ARRAY_LEN(in), e);
	if (got == 1)
		CU_ASSERT_EQUAL(strlen(store_text(db, 5)), 1000);
	store_done(db);
	return got == 1 ? 0 : -1;
}

static void test_faults(void)
{
	char spec[1001];
	char id[IDENT_UUID_SIZE];

	memset(spec, 's', 1000);
	spec[1000] = '\0';
	new_id(id);
	insert_job(id, spec, 1000, 3600);
	CU_ASSERT_EQUAL(fd_count() >= 3, true);
	/* the connection is open before and after, so that the descriptors can be compared */
	{
		struct err e = ERR_INIT;

		CU_ASSERT_EQUAL(read_one(NULL, &e), 0);
	}
	fault_loop(read_one, NULL);
}

static void test_leave_nothing(void)
{
	open_both();
	api_forget(other, TENANT);
	CU_ASSERT_EQUAL(api_number(other, "SELECT COUNT(*) FROM job WHERE node = '%s'", NODE), 0);
	store_close(db);
	store_close(other);
	db = NULL;
	other = NULL;
}

static const struct test tests[] = {
    {"store", "clean", test_clean},
    {"store", "long columns", test_long_columns},
    {"store", "NULLs and bytes", test_nulls_and_bytes},
    {"store", "refusals", test_refusals},
    {"store", "session", test_session},
    {"store", "killed outside a transaction", test_kill_outside},
    {"store", "killed inside a transaction", test_kill_inside},
    {"store", "retry after a lost connection", test_retry_lost},
    {"store", "unknown outcome", test_unknown_outcome},
    {"store", "server away", test_server_away},
    {"store", "deadlock", test_deadlock},
    {"store", "lock wait", test_lock_wait},
    {"sweep", "queue", test_sweep_queue},
    {"sweep", "owner", test_sweep_owner},
    {"sweep", "idempotency", test_sweep_idempotency},
    {"sweep", "watch", test_watch},
    {"sweep", "faults", test_faults},
    {"sweep", "leave nothing", test_leave_nothing},
};

int main(int argc, char **argv)
{
	return api_main(argc, argv, tests, ARRAY_LEN(tests));
}
