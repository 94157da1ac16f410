#include "fcgi/pool.h"

#include "fcgi/scoreboard.h"
#include "fcgi/worker.h"
#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/proc.h"
#include "runners/core/image.h"

#include <errno.h>
#include <sys/wait.h>

#define TICK_US          (50 * CLOCK_US_PER_MS)
#define BACKOFF_FIRST_US (10 * CLOCK_US_PER_MS)
#define BACKOFF_MAX_US   (5 * CLOCK_US_PER_S)
#define TERM_REPEAT_US   (200 * CLOCK_US_PER_MS)
#define SLOTS_PER_WORKER 2 /* during a reload old and new stand side by side */

struct worker_slot {
	pid_t pid; /* 0: free */
	bool retiring;
	int64_t next_term_us;
	int64_t kill_at_us;
	int64_t start_at_us; /* not before */
	int64_t backoff_us;
};

struct pool {
	const char *policy_path;
	struct policy *policy;
	struct secrets *secrets;
	char image_digest[IMAGE_DIGEST_SIZE];
	int listen_fd;
	struct scoreboard *board;
	struct worker_slot *slots;
	size_t count;
	bool draining;
	int crashes;
	int64_t crash_window_us;
	int exit_code;
};

static volatile sig_atomic_t term_wanted;
static volatile sig_atomic_t reload_wanted;

static void on_signal(int number)
{
	if (number == SIGHUP)
		reload_wanted = 1;
	else if (number != SIGCHLD)
		term_wanted = 1;
}

static void start_worker(struct pool *pool, size_t i)
{
	struct worker_slot *slot = &pool->slots[i];
	pid_t pid = proc_fork();

	if (pid == 0)
		_exit(worker_run(pool->policy, pool->secrets, pool->image_digest, pool->listen_fd,
				 &pool->board->slots[i]));
	if (pid < 0) {
		slot->start_at_us = clock_monotonic_us() + BACKOFF_MAX_US;
		log_event(LOG_ERROR, "worker_fork", "errno=%d", errno);
		return;
	}
	slot->pid = pid;
	slot->retiring = false;
	atomic_store(&pool->board->slots[i].pid, pid);
}

static size_t wanted(const struct pool *pool)
{
	return (size_t)pool->policy->pool.workers;
}

static size_t serving(const struct pool *pool)
{
	size_t n = 0;

	for (size_t i = 0; i < pool->count; i++)
		n += pool->slots[i].pid != 0 && !pool->slots[i].retiring;
	return n;
}

static void retire(struct pool *pool, size_t i)
{
	pool->slots[i].retiring = true;
	pool->slots[i].next_term_us = 0;
	pool->slots[i].kill_at_us =
	    clock_monotonic_us() + pool->policy->pool.request_timeout_ms * CLOCK_US_PER_MS;
}

static void count_crash(struct pool *pool, struct worker_slot *slot, pid_t pid, int status)
{
	int64_t now = clock_monotonic_us();

	log_event(LOG_ERROR, "worker_crashed", "worker=%ld %s=%d", (long)pid,
		  WIFSIGNALED(status) ? "signal" : "exit",
		  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	slot->backoff_us = slot->backoff_us == 0                   ? BACKOFF_FIRST_US
			   : slot->backoff_us * 2 > BACKOFF_MAX_US ? BACKOFF_MAX_US
								   : slot->backoff_us * 2;
	slot->start_at_us = now + slot->backoff_us;
	if (now - pool->crash_window_us > POOL_CRASH_WINDOW_US) {
		pool->crash_window_us = now;
		pool->crashes = 0;
	}
	if (++pool->crashes > POOL_CRASH_LIMIT) {
		log_event(LOG_ERROR, "pool_emergency_stop", "crashes=%d", pool->crashes);
		pool->draining = true;
		pool->exit_code = 1;
	}
}

static void reap(struct pool *pool)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (size_t i = 0; i < pool->count; i++) {
			struct worker_slot *slot = &pool->slots[i];

			if (slot->pid != pid)
				continue;
			slot->pid = 0;
			score_stage(&pool->board->slots[i], STAGE_EMPTY, "");
			if (slot->retiring ||
			    (WIFEXITED(status) && (WEXITSTATUS(status) == WORKER_EXIT_SERVED ||
						   WEXITSTATUS(status) == WORKER_EXIT_STOPPED))) {
				slot->backoff_us = 0;
				slot->start_at_us = 0;
			} else {
				count_crash(pool, slot, pid, status);
			}
		}
	}
}

/* Ends retiring workers: TERM again and again, KILL at the end. */
static void press(struct pool *pool, int64_t now)
{
	for (size_t i = 0; i < pool->count; i++) {
		struct worker_slot *slot = &pool->slots[i];

		if (slot->pid == 0 || !slot->retiring || now < slot->next_term_us)
			continue;
		(void)kill(slot->pid, now >= slot->kill_at_us ? SIGKILL : SIGTERM);
		slot->next_term_us = now + TERM_REPEAT_US;
	}
}

/* Kills workers that are stuck in one request. */
static void watch(struct pool *pool, int64_t now)
{
	int64_t limit = pool->policy->pool.request_timeout_ms * CLOCK_US_PER_MS;

	for (size_t i = 0; i < pool->count; i++) {
		struct score *score = &pool->board->slots[i];

		if (pool->slots[i].pid == 0 || atomic_load(&score->stage) != STAGE_HANDLING ||
		    now - atomic_load(&score->since_us) < limit)
			continue;
		log_event(LOG_ERROR, "worker_stuck", "worker=%ld req=%s", (long)pool->slots[i].pid,
			  score->request_id);
		(void)kill(pool->slots[i].pid, SIGKILL);
	}
}

static void fill(struct pool *pool, int64_t now)
{
	size_t have = serving(pool);

	for (size_t i = 0; i < pool->count && have < wanted(pool); i++) {
		if (pool->slots[i].pid != 0 || now < pool->slots[i].start_at_us)
			continue;
		start_worker(pool, i);
		have++;
	}
}

static int make_slots(struct pool *pool, struct err *e)
{
	pool->count = wanted(pool) * SLOTS_PER_WORKER;
	pool->slots = mem_zalloc(pool->count, sizeof(*pool->slots));
	if (pool->slots == NULL)
		return err_set(e, ERR_NOMEM, 0, "slots");
	return scoreboard_create(pool->count, &pool->board, e);
}

/* A changed number of workers takes effect with a restart; all else with HUP. */
static void reload(struct pool *pool)
{
	struct policy *fresh = NULL;
	struct secrets *secrets = NULL;
	struct err e = ERR_INIT;

	reload_wanted = 0;
	if (policy_load(pool->policy_path, &fresh, &e) != 0 ||
	    secrets_load(fresh, &secrets, &e) != 0) {
		log_err(LOG_ERROR, "reload_refused", &e, "%s", "");
		policy_free(fresh);
		return;
	}
	fresh->pool.workers = pool->policy->pool.workers;
	policy_free(pool->policy);
	pool->policy = fresh;
	secrets_free(pool->secrets);
	pool->secrets = secrets;
	for (size_t i = 0; i < pool->count; i++)
		if (pool->slots[i].pid != 0 && !pool->slots[i].retiring)
			retire(pool, i);
	/* successors take free slots before the old ones are pressed to end */
	fill(pool, clock_monotonic_us());
	log_event(LOG_INFO, "reloaded", "workers=%zu", wanted(pool));
}

static bool all_gone(const struct pool *pool)
{
	for (size_t i = 0; i < pool->count; i++)
		if (pool->slots[i].pid != 0)
			return false;
	return true;
}

static void drain(struct pool *pool)
{
	pool->draining = true;
	for (size_t i = 0; i < pool->count; i++)
		if (pool->slots[i].pid != 0 && !pool->slots[i].retiring)
			retire(pool, i);
}

int pool_run(const char *policy_path, struct policy *policy, int listen_fd)
{
	struct pool pool = {.policy_path = policy_path, .policy = policy, .listen_fd = listen_fd};
	struct err e = ERR_INIT;

	json_setup();
	if (secrets_load(policy, &pool.secrets, &e) != 0 ||
	    image_digest("host", pool.image_digest, &e) != 0 || make_slots(&pool, &e) != 0 ||
	    proc_on_signal(SIGTERM, on_signal, &e) != 0 ||
	    proc_on_signal(SIGINT, on_signal, &e) != 0 ||
	    proc_on_signal(SIGHUP, on_signal, &e) != 0 ||
	    proc_on_signal(SIGCHLD, on_signal, &e) != 0 || proc_on_signal(SIGPIPE, NULL, &e) != 0) {
		log_err(LOG_ERROR, "start", &e, "%s", "");
		return 1;
	}
	log_event(LOG_INFO, "started", "workers=%zu", wanted(&pool));
	for (;;) {
		int64_t now = clock_monotonic_us();

		reap(&pool);
		if (term_wanted != 0 && !pool.draining)
			drain(&pool);
		if (pool.draining)
			drain(&pool);
		if (pool.draining && all_gone(&pool))
			break;
		if (reload_wanted != 0 && !pool.draining)
			reload(&pool);
		if (!pool.draining)
			fill(&pool, now);
		press(&pool, now);
		watch(&pool, now);
		/* a signal ends the sleep early */
		clock_sleep_us(TICK_US);
	}
	log_event(LOG_INFO, "stopped", "code=%d", pool.exit_code);
	scoreboard_destroy(pool.board);
	mem_free(pool.slots);
	secrets_free(pool.secrets);
	policy_free(pool.policy);
	return pool.exit_code;
}
