/*
 * bench_box.c: what a box costs, cordon-box's socket to the reply of destroy, on a private
 * cordon-box: create, connect, exec, exit, destroy of one program, one after another. Figures back
 * to back and with 40 ms gaps (a tight loop hides what an idle machine pays), and several at once.
 *
 *	bench_box [N] [PROGRAM ARGS...]	     default 300 /usr/bin/true
 *
 * Prints one line per measurement: name, n, p50, p95, p99, max in microseconds, rate per second.
 */
#include "tests/lib/boxrig.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"

#define GAP_US    40000
#define PARALLEL  8
#define MAX_COUNT 100000

enum { TOTAL, CREATE, RUN, DESTROY, MEASURES };

static const char *const names[MEASURES] = {"total", "create", "exec to exit", "destroy"};
static int64_t *samples[MEASURES];
static size_t sample_count;
static struct rig rig;
static struct rig_box box;

static int compare(const void *a, const void *b)
{
	const int64_t *x = a;
	const int64_t *y = b;

	return *x < *y ? -1 : *x > *y ? 1 : 0;
}

static void print(const char *what, int64_t elapsed_us)
{
	for (int m = 0; m < MEASURES; m++) {
		int64_t *s = samples[m];

		qsort(s, sample_count, sizeof(*s), compare);
		(void)printf("%-14s %-13s n=%zu p50=%lld p95=%lld p99=%lld max=%lld", what,
			     names[m], sample_count, (long long)s[sample_count / 2],
			     (long long)s[sample_count * 95 / 100],
			     (long long)s[sample_count * 99 / 100], (long long)s[sample_count - 1]);
		if (m == TOTAL)
			(void)printf(" rate=%.0f/s",
				     (double)sample_count * 1e6 / (double)elapsed_us);
		(void)printf("\n");
	}
}

static int one(char *const *argv)
{
	int64_t at[4];

	at[0] = clock_monotonic_us();
	if (rig_create(&rig, &box, NULL) != 0)
		return -1;
	at[1] = clock_monotonic_us();
	if (rig_run(&rig, &box, argv) != 0 || box.status.how != AGENT_EXITED)
		return -1;
	at[2] = clock_monotonic_us();
	if (rig_destroy(&rig, &box, NULL) != 0)
		return -1;
	at[3] = clock_monotonic_us();
	samples[TOTAL][sample_count] = at[3] - at[0];
	samples[CREATE][sample_count] = at[1] - at[0];
	samples[RUN][sample_count] = at[2] - at[1];
	samples[DESTROY][sample_count] = at[3] - at[2];
	sample_count++;
	return 0;
}

static int series(const char *what, size_t count, int64_t gap_us, char *const *argv)
{
	int64_t start;

	for (int i = 0; i < 10; i++)
		if (one(argv) != 0)
			return -1;
	sample_count = 0;
	start = clock_monotonic_us();
	for (size_t i = 0; i < count; i++) {
		if (gap_us > 0)
			clock_sleep_us(gap_us);
		if (one(argv) != 0)
			return -1;
	}
	print(what, clock_monotonic_us() - start);
	return 0;
}

/* PARALLEL boxes at a time, in rounds; only the rate counts. */
static int parallel(size_t count, char *const *argv)
{
	static struct rig_box boxes[PARALLEL];
	uint64_t tags[PARALLEL];
	int64_t start = clock_monotonic_us();
	size_t done = 0;

	while (done < count) {
		for (int i = 0; i < PARALLEL; i++)
			tags[i] = rig_create_send(&rig, &boxes[i], NULL);
		for (int i = 0; i < PARALLEL; i++)
			if (rig_created(&rig, &boxes[i], tags[i]) != 0 ||
			    rig_exec(&boxes[i], argv, false) != 0)
				return -1;
		for (int i = 0; i < PARALLEL; i++)
			if (rig_wait_exit(&rig, &boxes[i], 20000) != 0 ||
			    rig_destroy(&rig, &boxes[i], NULL) != 0)
				return -1;
		done += PARALLEL;
	}
	(void)printf("%-14s n=%zu rate=%.0f/s\n", "8 at once", done,
		     (double)done * 1e6 / (double)(clock_monotonic_us() - start));
	return 0;
}

/* The same beside a fork bomb in another box, with one core and 64 processes (case B07). */
static int beside_bomb(size_t count, char *const *argv)
{
	static struct rig_box bomb;
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char script[] = "f() { f | f & }; f; sleep 1000";
	char *bomb_argv[] = {shell, option, script, NULL};
	struct box_limits limits;
	int result;

	rig_limits(&limits);
	limits.cpu_millis = 1000;
	if (rig_create(&rig, &bomb, &limits) != 0 || rig_exec(&bomb, bomb_argv, false) != 0)
		return -1;
	(void)rig_wait_exit(&rig, &bomb, 500);
	result = series("fork bomb near", count, GAP_US, argv);
	return rig_destroy(&rig, &bomb, NULL) != 0 ? -1 : result;
}

/* How many creates found a waiting box. */
static void print_pool(void)
{
	struct err e = ERR_INIT;
	struct box_reply r;
	uint64_t tag = ++rig.next_tag;

	if (boxclient_probe(&rig.client, tag, &e) == 0 && rig_reply(&rig, tag, &r) == 0)
		(void)printf("pool of %u: warm=%llu cold=%llu\n", r.pool,
			     (unsigned long long)r.warm, (unsigned long long)r.cold);
}

int main(int argc, char **argv)
{
	char program[] = "/usr/bin/true";
	char *standard[] = {program, NULL};
	char *const *command = argc > 2 ? argv + 2 : standard;
	uint64_t count = 300;
	char why[128];
	struct err e = ERR_INIT;
	int result = 0;

	if (argc > 1 && num_u64("N", argv[1], 10, MAX_COUNT, &count, &e) != 0) {
		(void)fprintf(stderr, "bench_box: %s\n", e.text);
		return 2;
	}
	if (!rig_possible(why, sizeof(why))) {
		(void)printf("skipped: %s\n", why);
		return 77;
	}
	for (int m = 0; m < MEASURES; m++) {
		samples[m] = mem_zalloc(count + 16, sizeof(*samples[m]));
		if (samples[m] == NULL)
			return 1;
	}
	if (rig_start(&rig, 16) != 0 || series("back to back", count, 0, command) != 0 ||
	    series("40 ms gaps", count, GAP_US, command) != 0 || parallel(count, command) != 0 ||
	    beside_bomb(count, command) != 0) {
		(void)fprintf(stderr, "bench_box: a box failed\n");
		result = 1;
	}
	print_pool();
	for (int m = 0; m < MEASURES; m++)
		mem_free(samples[m]);
	return rig_stop(&rig) ? result : 1;
}
