/*
 * The SQL thread: answers the loop's questions about runs in batches, checks the keys of open
 * streams every second and sweeps: queue time-outs, dead runners, idempotency rows. Tails of traces
 * (tails.h) are written each second. It owns the connection; the loop never waits for it. While the
 * database is away the questions stay, and it tries again every 300 ms.
 */
#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/gate/gate.h"
#include "runners/gate/tails.h"

#include <errno.h>
#include <pthread.h>

#define WATCH_BATCH 32 /* the parameters of RUN_WATCH */
#define QUEUE_MAX   65536
#define RETRY_US    (300 * CLOCK_US_PER_MS)
#define KEYS_US     CLOCK_US_PER_S
#define RUNNERS_US  CLOCK_US_PER_S
#define TAILS_US    CLOCK_US_PER_S
#define IDEM_US     (30 * CLOCK_US_PER_S)

struct id_list {
	char (*ids)[IDENT_UUID_SIZE];
	size_t count;
	size_t room;
};

struct sql_thread {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop;
	struct id_list asked;    /* loop to thread */
	struct run_end *answers; /* thread to loop */
	size_t answer_count;
	size_t answer_room;
	char (*keys)[GATE_KEY_BYTES];
	size_t key_count;
	char (*revoked)[GATE_KEY_BYTES]; /* thread to loop */
	size_t revoked_count;
	struct tails tails; /* loop to thread */
	struct gate *gate;
	/* the thread's own */
	struct store *db;
	struct beat_watch watch;
	struct swept swept;
	struct swept dead;
	int64_t next_sweep_us;
	int64_t next_keys_us;
	int64_t next_runners_us;
	int64_t next_idem_us;
	int64_t next_tails_us;
	bool was_down;
};

static int push_id(struct id_list *list, const char *id)
{
	if (list->count == list->room) {
		size_t room = list->room == 0 ? 64 : list->room * 2;
		void *ids =
		    room > QUEUE_MAX ? NULL : mem_resize(list->ids, room, sizeof(*list->ids));

		if (ids == NULL)
			return -1;
		list->ids = ids;
		list->room = room;
	}
	memcpy(list->ids[list->count++], id, IDENT_UUID_SIZE);
	return 0;
}

void sql_ask(struct sql_thread *sql, const char *id)
{
	(void)pthread_mutex_lock(&sql->lock);
	/* when the list is full the next compare asks again */
	(void)push_id(&sql->asked, id);
	(void)pthread_cond_signal(&sql->wake);
	(void)pthread_mutex_unlock(&sql->lock);
}

void sql_watch_keys(struct sql_thread *sql, const char (*keys)[GATE_KEY_BYTES], size_t count)
{
	void *copy = mem_zalloc(count, sizeof(*keys));

	if (copy == NULL)
		return;
	memcpy(copy, keys, count * sizeof(*keys));
	(void)pthread_mutex_lock(&sql->lock);
	mem_free(sql->keys);
	sql->keys = copy;
	sql->key_count = count;
	(void)pthread_mutex_unlock(&sql->lock);
}

/* Hands answers to the loop. */
static void put_answer(struct sql_thread *sql, const struct run_end *end)
{
	(void)pthread_mutex_lock(&sql->lock);
	if (sql->answer_count == sql->answer_room) {
		size_t room = sql->answer_room == 0 ? 64 : sql->answer_room * 2;
		struct run_end *more = mem_resize(sql->answers, room, sizeof(*more));

		if (more != NULL) {
			sql->answers = more;
			sql->answer_room = room;
		}
	}
	if (sql->answer_count < sql->answer_room)
		sql->answers[sql->answer_count++] = *end;
	(void)pthread_mutex_unlock(&sql->lock);
}

void sql_collect(struct gate *gate)
{
	struct sql_thread *sql = gate->sql;
	struct run_end *answers;
	size_t count;
	char(*revoked)[GATE_KEY_BYTES];
	size_t revoked_count;

	if (sql == NULL)
		return;
	(void)pthread_mutex_lock(&sql->lock);
	answers = sql->answers;
	count = sql->answer_count;
	revoked = sql->revoked;
	revoked_count = sql->revoked_count;
	sql->answers = NULL;
	sql->answer_count = 0;
	sql->answer_room = 0;
	sql->revoked = NULL;
	sql->revoked_count = 0;
	(void)pthread_mutex_unlock(&sql->lock);
	for (size_t i = 0; i < count; i++)
		gate_learned(gate, &answers[i]);
	for (size_t i = 0; i < revoked_count; i++)
		stream_close_all(gate, revoked[i]);
	mem_free(answers);
	mem_free(revoked);
}

/* --- the thread's work
 * ---------------------------------------------------------------------------------------- */

/* Ids that are no run's may be operations; their states are told as phases. */
static int watch_operations(struct sql_thread *sql, char (*ids)[IDENT_UUID_SIZE], size_t count,
			    bool *answered, struct err *e)
{
	struct store_value in[WATCH_BATCH];
	size_t open = 0;
	int got;

	for (size_t i = 0; i < count; i++)
		if (!answered[i])
			in[open++] = SV_TEXT(ids[i]);
	if (open == 0)
		return 0;
	for (size_t i = open; i < WATCH_BATCH; i++)
		in[i] = in[0];
	if (store_query(sql->db, STMT_OPERATION_WATCH, in, WATCH_BATCH, e) != 0)
		return -1;
	while ((got = store_next(sql->db, e)) == 1) {
		struct run_end end = {.found = true};
		enum operation_state state;

		if (str_copy(end.id, sizeof(end.id), store_text(sql->db, 0)) != 0 ||
		    operation_state_parse(store_text(sql->db, 1), &state) != 0)
			continue;
		end.phase = operation_terminal(state)    ? RUN_COMPLETED
			    : state == OPERATION_RUNNING ? RUN_STARTING
							 : RUN_QUEUED;
		for (size_t i = 0; i < count; i++)
			answered[i] = answered[i] || str_equal(ids[i], end.id);
		put_answer(sql, &end);
	}
	return got;
}

static int watch_batch(struct sql_thread *sql, char (*ids)[IDENT_UUID_SIZE], size_t count,
		       struct err *e)
{
	struct store_value in[WATCH_BATCH];
	bool answered[WATCH_BATCH] = {false};
	struct run_end end;
	int got;

	for (size_t i = 0; i < WATCH_BATCH; i++)
		in[i] = SV_TEXT(ids[i < count ? i : 0]);
	if (store_query(sql->db, STMT_RUN_WATCH, in, WATCH_BATCH, e) != 0)
		return -1;
	while ((got = store_next(sql->db, e)) == 1) {
		memset(&end, 0, sizeof(end));
		if (str_copy(end.id, sizeof(end.id), store_text(sql->db, 0)) != 0 ||
		    run_phase_parse(store_text(sql->db, 1), &end.phase) != 0)
			continue;
		end.found = true;
		end.has_last_seq = !store_is_null(sql->db, 2);
		end.last_seq = (uint64_t)store_i64(sql->db, 2);
		end.has_exit = !store_is_null(sql->db, 3);
		end.exit_code = store_i64(sql->db, 3);
		(void)snprintf(end.message, sizeof(end.message), "%s", store_text(sql->db, 4));
		for (size_t i = 0; i < count; i++)
			answered[i] = answered[i] || str_equal(ids[i], end.id);
		put_answer(sql, &end);
	}
	if (got < 0 || watch_operations(sql, ids, count, answered, e) != 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		if (answered[i])
			continue;
		memset(&end, 0, sizeof(end));
		memcpy(end.id, ids[i], sizeof(end.id));
		put_answer(sql, &end);
	}
	return 0;
}

/* Answers all questions; those that fail are asked again. */
static int answer_all(struct sql_thread *sql, struct err *e)
{
	struct id_list list;
	size_t done = 0;
	int result = 0;

	(void)pthread_mutex_lock(&sql->lock);
	list = sql->asked;
	memset(&sql->asked, 0, sizeof(sql->asked));
	(void)pthread_mutex_unlock(&sql->lock);
	while (done < list.count && result == 0) {
		size_t count = list.count - done < WATCH_BATCH ? list.count - done : WATCH_BATCH;

		result = watch_batch(sql, list.ids + done, count, e);
		if (result == 0)
			done += count;
	}
	if (done > 0)
		lws_cancel_service(sql->gate->context);
	(void)pthread_mutex_lock(&sql->lock);
	for (; done < list.count; done++)
		(void)push_id(&sql->asked, list.ids[done]);
	(void)pthread_mutex_unlock(&sql->lock);
	mem_free(list.ids);
	return result;
}

static int check_keys(struct sql_thread *sql, struct err *e)
{
	char(*keys)[GATE_KEY_BYTES];
	size_t count;
	size_t bad = 0;
	int result = 0;

	(void)pthread_mutex_lock(&sql->lock);
	count = sql->key_count;
	keys = mem_zalloc(count + 1, sizeof(*keys));
	if (keys != NULL && count > 0)
		memcpy(keys, sql->keys, count * sizeof(*keys));
	(void)pthread_mutex_unlock(&sql->lock);
	for (size_t i = 0; keys != NULL && i < count && result == 0; i++) {
		struct store_value in[] = {SV_TEXT(keys[i])};
		int got = store_query_row(sql->db, STMT_KEY_REVOKED, in, 1, e);

		store_done(sql->db);
		if (got < 0)
			result = -1;
		else if (got == 0)
			memmove(keys[bad++], keys[i], GATE_KEY_BYTES);
	}
	if (result != 0 || bad == 0) {
		mem_free(keys);
		return result;
	}
	(void)pthread_mutex_lock(&sql->lock);
	mem_free(sql->revoked);
	sql->revoked = keys;
	sql->revoked_count = bad;
	(void)pthread_mutex_unlock(&sql->lock);
	lws_cancel_service(sql->gate->context);
	return 0;
}

/* Runs that a sweep ended: the loop asks for their rows like after a notice. */
static void tell_ended(struct sql_thread *sql, const char *why)
{
	for (size_t i = 0; i < sql->swept.count; i++) {
		log_event(LOG_WARNING, "run_swept", "run=%s reason=%s", sql->swept.ids[i], why);
		sql_ask(sql, sql->swept.ids[i]);
	}
}

static int sweep_runners(struct sql_thread *sql, struct err *e)
{
	int64_t limit = sql->gate->policy->runner.dead_after_ms * CLOCK_US_PER_MS;

	if (sweep_watch(sql->db, &sql->watch, limit, &sql->dead, e) != 0)
		return -1;
	for (size_t i = 0; i < sql->dead.count; i++) {
		log_event(LOG_WARNING, "runner_dead", "runner=%s", sql->dead.ids[i]);
		do {
			if (sweep_owner(sql->db, sql->dead.ids[i], &sql->swept, e) != 0)
				return -1;
			tell_ended(sql, "box_lost");
		} while (sql->swept.count == SWEEP_BATCH);
	}
	return 0;
}

void sql_trace(struct sql_thread *sql, const char *run_id, const char *part)
{
	(void)pthread_mutex_lock(&sql->lock);
	tails_add(&sql->tails, run_id, part);
	(void)pthread_mutex_unlock(&sql->lock);
}

static int write_tails(struct sql_thread *sql, struct err *e)
{
	struct tails tails;
	int result;

	(void)pthread_mutex_lock(&sql->lock);
	tails = sql->tails;
	memset(&sql->tails, 0, sizeof(sql->tails));
	(void)pthread_mutex_unlock(&sql->lock);
	result = tails_write(&tails, sql->db, e);
	tails_release(&tails);
	return result;
}

static int sweep_all(struct sql_thread *sql, struct err *e)
{
	int64_t now = clock_monotonic_us();
	size_t ignored;

	if (now >= sql->next_keys_us) {
		sql->next_keys_us = now + KEYS_US;
		if (check_keys(sql, e) != 0)
			return -1;
	}
	if (now >= sql->next_sweep_us) {
		sql->next_sweep_us = now + sql->gate->policy->gate.sweep_ms * CLOCK_US_PER_MS;
		if (sweep_queue(sql->db, &sql->swept, e) != 0)
			return -1;
		tell_ended(sql, "queue_ttl_expired");
	}
	if (now >= sql->next_runners_us) {
		sql->next_runners_us = now + RUNNERS_US;
		if (sweep_runners(sql, e) != 0)
			return -1;
	}
	if (now >= sql->next_tails_us) {
		sql->next_tails_us = now + TAILS_US;
		if (write_tails(sql, e) != 0)
			return -1;
	}
	if (now >= sql->next_idem_us) {
		sql->next_idem_us = now + IDEM_US;
		if (sweep_idempotency(sql->db, &ignored, e) != 0)
			return -1;
	}
	return 0;
}

/* Waits for a question or until the next sweep is due; false: stop. */
static bool wait_for_work(struct sql_thread *sql, int64_t most_us, bool even_with_questions)
{
	struct timespec until;
	bool go_on;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(most_us / CLOCK_US_PER_S);
	until.tv_nsec += (long)(most_us % CLOCK_US_PER_S) * 1000;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_nsec -= 1000000000L;
		until.tv_sec++;
	}
	(void)pthread_mutex_lock(&sql->lock);
	while (!sql->stop && (even_with_questions || sql->asked.count == 0) &&
	       pthread_cond_timedwait(&sql->wake, &sql->lock, &until) != ETIMEDOUT)
		;
	go_on = !sql->stop;
	(void)pthread_mutex_unlock(&sql->lock);
	return go_on;
}

static void *run_thread(void *arg)
{
	struct sql_thread *sql = arg;
	bool failed = false;

	while (wait_for_work(sql, failed ? RETRY_US : 100 * CLOCK_US_PER_MS, failed)) {
		struct err e = ERR_INIT;

		failed = answer_all(sql, &e) != 0 || sweep_all(sql, &e) != 0;
		if (failed != sql->was_down) {
			if (failed)
				log_err(LOG_ERROR, "store_down", &e, "%s", "");
			else
				log_event(LOG_INFO, "store_up", "%s", "");
			sql->was_down = failed;
		}
	}
	if (!failed) {
		struct err ignored = ERR_INIT;

		(void)write_tails(sql, &ignored);
	}
	return NULL;
}

int sql_start(struct gate *gate, struct sql_thread **out, struct err *e)
{
	struct sql_thread *sql = mem_zalloc(1, sizeof(*sql));
	struct store_options options = {.socket = gate->policy->database.socket,
					.database = gate->policy->database.name};
	pthread_condattr_t attributes;

	if (sql == NULL)
		return err_set(e, ERR_NOMEM, 0, "sql thread");
	sql->gate = gate;
	if (store_open(&options, &sql->db, e) != 0) {
		mem_free(sql);
		return -1;
	}
	if (pthread_mutex_init(&sql->lock, NULL) != 0 || pthread_condattr_init(&attributes) != 0 ||
	    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
	    pthread_cond_init(&sql->wake, &attributes) != 0 ||
	    pthread_create(&sql->thread, NULL, run_thread, sql) != 0) {
		store_close(sql->db);
		mem_free(sql);
		return err_set(e, ERR_INTERNAL, 0, "cannot start the SQL thread");
	}
	*out = sql;
	return 0;
}

void sql_stop(struct sql_thread *sql)
{
	(void)pthread_mutex_lock(&sql->lock);
	sql->stop = true;
	(void)pthread_cond_signal(&sql->wake);
	(void)pthread_mutex_unlock(&sql->lock);
	(void)pthread_join(sql->thread, NULL);
	store_close(sql->db);
	tails_release(&sql->tails);
	mem_free(sql->asked.ids);
	mem_free(sql->answers);
	mem_free(sql->keys);
	mem_free(sql->revoked);
	mem_free(sql);
}
