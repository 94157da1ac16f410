/*
 * bench_boxpart: one part of what a box costs, on a private cordon-box, for bench.py.
 *
 *	bench_boxpart PART --count N [--gap-ms G] [--more M] [--disk 1]
 *
 *	cold	create sent until its reply; no box waits, the network namespace is one of the ring
 *	fresh	the same with a network namespace that nobody had before
 *	warm	create sent until `true` is seen to have ended, by the box's own protocol; good: the
 *box was a waiting one. Without a gap in bursts, between which the pool is filled again. kill
 *destroy sent until its reply, of a box that runs a sleeping command pool	N boxes wait: prints
 *{daemon, instance} and ends when stdin does
 *	stand	N boxes are made and left idle (--disk 1: each with a workspace that stays): prints
 *the samples of the creates with daemon and instance; after a line on stdin M further boxes are
 *made and destroyed, 40 ms apart, and their samples printed; ends when stdin does
 *
 *	copy	a workspace with M MiB of random bytes: a copy of it (a snapshot), asked until its
 *		reply; CORDON_TEST_DATA places it on another file system
 *
 * Output: lines of tests/lib/samples.h. The gap is slept before each repetition and does not count.
 * Exit 77: no boxes here, the reason is on stdout.
 */
#include "tests/lib/boxrig.h"
#include "tests/lib/samples.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#define BURST        16U
#define WARM_UP      10
#define FILL_US      (120 * CLOCK_US_PER_S)
#define STAND_GAP_US 40000
#define MAX_COUNT    100000
#define MORE_SLOTS   24U

struct plan {
	uint64_t count;
	uint64_t gap_ms;
	uint64_t more;
	uint64_t disk;
};

static struct rig rig;
static struct rig_box box;
static struct samples samples;

/* Starts cordon-box with so many slots and waiting boxes. */
static int start(uint64_t slots, uint64_t pool)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "pool=%llu pool_fresh=0", (unsigned long long)pool);
	if (setenv("CORDON_BOX_LIMITS", text, 1) != 0)
		return -1;
	return rig_start(&rig, (unsigned int)slots);
}

static int make(struct rig_box *b, struct box_wish *wish, struct box_reply *out)
{
	uint64_t tag = rig_make_send(&rig, b, wish);

	if (tag == 0 || rig_reply(&rig, tag, out) != 0)
		return -1;
	if (out->code != BOX_OK) {
		(void)fprintf(stderr, "create: %s: %s\n", box_code_name((enum box_code)out->code),
			      out->text);
		return -1;
	}
	b->slot = out->slot;
	return str_copy(b->path, sizeof(b->path), out->agent_path);
}

/* Until so many boxes wait. */
static int fill(uint32_t want)
{
	int64_t until = clock_monotonic_us() + FILL_US;

	while (clock_monotonic_us() < until) {
		struct err e = ERR_INIT;
		struct box_reply r;
		uint64_t tag = ++rig.next_tag;

		if (boxclient_probe(&rig.client, tag, &e) != 0 || rig_reply(&rig, tag, &r) != 0)
			return -1;
		if (r.waiting >= want)
			return 0;
		clock_sleep_us(20000);
	}
	return -1;
}

static void took(int64_t from_us, bool good)
{
	samples.us[samples.count++] = clock_monotonic_us() - from_us;
	samples.good += good ? 1 : 0;
}

static int one_build(bool fresh)
{
	struct box_wish wish = {.fresh_net = fresh};
	struct box_reply r;
	int64_t from = clock_monotonic_us();

	if (make(&box, &wish, &r) != 0)
		return -1;
	took(from, r.warm == 0);
	return rig_destroy(&rig, &box, NULL);
}

static int one_warm(void)
{
	char program[] = "/usr/bin/true";
	char *argv[] = {program, NULL};
	struct box_wish wish = {0};
	struct box_reply r;
	int64_t from = clock_monotonic_us();

	if (make(&box, &wish, &r) != 0 || rig_connect(&box) != 0 || rig_run(&rig, &box, argv) != 0)
		return -1;
	took(from, r.warm == 1 && box.status.how == AGENT_EXITED && box.status.code == 0);
	return rig_destroy(&rig, &box, NULL);
}

static int one_kill(int64_t gap_us)
{
	char program[] = "/usr/bin/sleep";
	char seconds[] = "1000";
	char *argv[] = {program, seconds, NULL};
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;
	int64_t from;
	int result;

	if (rig_create(&rig, &box, NULL) != 0 || rig_exec(&box, argv, false) != 0)
		return -1;
	while (!box.started && clock_monotonic_us() < until)
		rig_step(&rig, 50);
	/* started is said before execve has happened */
	clock_sleep_us(gap_us > 0 ? gap_us : 2000);
	from = clock_monotonic_us();
	result = rig_destroy(&rig, &box, NULL);
	took(from, result == 0);
	return result;
}

static int one(const char *part, int64_t gap_us)
{
	if (str_equal(part, "warm"))
		return one_warm();
	if (str_equal(part, "kill"))
		return one_kill(gap_us);
	return one_build(str_equal(part, "fresh"));
}

static int series(const char *part, const struct plan *plan)
{
	bool warm = str_equal(part, "warm");
	int64_t gap_us = (int64_t)plan->gap_ms * CLOCK_US_PER_MS;
	int64_t from;

	if (start(64, warm ? BURST : str_equal(part, "kill") ? 4 : 0) != 0)
		return -1;
	clock_sleep_us(200000); /* the ring fills */
	for (int i = 0; i < WARM_UP; i++)
		if (one(part, gap_us) != 0)
			return -1;
	samples.count = 0;
	samples.good = 0;
	from = clock_monotonic_us();
	for (uint64_t i = 0; i < plan->count; i++) {
		if (warm && i % (gap_us > 0 ? plan->count : BURST / 2) == 0 && fill(BURST) != 0)
			return -1;
		clock_sleep_us(gap_us);
		if (one(part, gap_us) != 0)
			return -1;
	}
	return samples_print(&samples, clock_monotonic_us() - from, NULL);
}

static json_t *names(void)
{
	return json_pack("{s:I, s:s}", "daemon", (json_int_t)rig.pid, "instance", rig.instance);
}

/* Waits for a line; false when stdin has ended. */
static bool next_line(void)
{
	int c;

	while ((c = getchar()) != EOF)
		if (c == '\n')
			return true;
	return false;
}

static int pool(const struct plan *plan)
{
	if (start(plan->count + MORE_SLOTS, plan->count) != 0 || fill((uint32_t)plan->count) != 0 ||
	    samples_print(&samples, 0, names()) != 0)
		return -1;
	while (next_line())
		;
	return 0;
}

static int workspace(enum box_verb verb, const char *id)
{
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;
	bool makes = verb == BOX_WORKSPACE_MAKE;
	struct box_reply r;

	do {
		struct err e = ERR_INIT;
		uint64_t tag = ++rig.next_tag;

		if (boxclient_workspace(&rig.client, verb, tag, id, makes ? UINT64_C(64) << 20 : 0,
					makes ? 4096 : 0, &e) != 0 ||
		    rig_reply(&rig, tag, &r) != 0)
			return -1;
		if (r.code == BOX_ERR_BUSY)
			clock_sleep_us(20000); /* it is written back */
	} while (r.code == BOX_ERR_BUSY && clock_monotonic_us() < until);
	return r.code == BOX_OK ? 0 : -1;
}

static int stand_up(const struct plan *plan, struct rig_box *boxes)
{
	for (uint64_t i = 0; i < plan->count; i++) {
		char id[32];
		struct box_wish wish = {.shared_proc = true,
					.workspace = plan->disk != 0 ? id : NULL};
		struct box_reply r;
		int64_t from;

		(void)snprintf(id, sizeof(id), "w-%llu", (unsigned long long)i);
		if (plan->disk != 0 && workspace(BOX_WORKSPACE_MAKE, id) != 0)
			return -1;
		from = clock_monotonic_us();
		if (make(&boxes[i], &wish, &r) != 0)
			return -1;
		took(from, true);
		/* nobody speaks to it: the rig has room for few that it listens to */
		for (size_t n = 0; n < RIG_MAX_BOXES; n++)
			if (rig.boxes[n] == &boxes[i])
				rig.boxes[n] = NULL;
	}
	return 0;
}

static int stand(const struct plan *plan)
{
	scope_free struct rig_box *boxes = mem_zalloc(plan->count, sizeof(*boxes));
	int64_t from;

	if (boxes == NULL || start(plan->count + MORE_SLOTS, 4) != 0 || fill(4) != 0)
		return -1;
	from = clock_monotonic_us();
	if (stand_up(plan, boxes) != 0 ||
	    samples_print(&samples, clock_monotonic_us() - from, names()) != 0)
		return -1;
	while (next_line()) {
		samples.count = 0;
		samples.good = 0;
		from = clock_monotonic_us();
		for (uint64_t i = 0; i < plan->more; i++) {
			clock_sleep_us(STAND_GAP_US);
			if (one_warm() != 0)
				return -1;
		}
		if (samples_print(&samples, clock_monotonic_us() - from, NULL) != 0)
			return -1;
	}
	for (uint64_t i = 0; i < plan->count; i++) {
		char id[32];

		(void)snprintf(id, sizeof(id), "w-%llu", (unsigned long long)i);
		if (rig_destroy(&rig, &boxes[i], NULL) != 0 ||
		    (plan->disk != 0 && workspace(BOX_WORKSPACE_DELETE, id) != 0))
			return -1;
	}
	return 0;
}

static int fill_workspace(const struct plan *plan)
{
	struct box_wish wish = {
	    .workspace = "copy", .make_bytes = (plan->more + 64) << 20, .make_inodes = 4096};
	char script[96];

	(void)snprintf(script, sizeof(script), "head -c %lluM /dev/urandom > f",
		       (unsigned long long)plan->more);
	return rig_make(&rig, &box, &wish) != 0 || rig_sh(&rig, &box, script) != 0 ||
		       rig_destroy(&rig, &box, NULL) != 0
		   ? -1
		   : 0;
}

static int copy(const char *to)
{
	struct box_reply r;
	struct err e = ERR_INIT;
	uint64_t tag = ++rig.next_tag;

	if (boxclient_copy(&rig.client, tag, "copy", to, 0, 0, &e) != 0 ||
	    rig_reply(&rig, tag, &r) != 0)
		return -1;
	return r.code == BOX_OK ? 0 : -1;
}

static int copies(const struct plan *plan)
{
	int64_t begun;

	if (start(4, 0) != 0 || fill_workspace(plan) != 0)
		return -1;
	/* the first one waits for what is written back */
	for (int64_t until = clock_monotonic_us() + FILL_US; copy("copy.first") != 0;) {
		if (clock_monotonic_us() > until)
			return -1;
		clock_sleep_us(20000);
	}
	begun = clock_monotonic_us();
	for (uint64_t i = 0; i < plan->count; i++) {
		char name[32];
		int64_t from;

		(void)snprintf(name, sizeof(name), "copy.%llu", (unsigned long long)(i % 4));
		from = clock_monotonic_us();
		if (copy(name) != 0)
			return -1;
		took(from, true);
	}
	return samples_print(&samples, clock_monotonic_us() - begun, NULL);
}

static int parse(int argc, char **argv, struct plan *plan)
{
	struct err e = ERR_INIT;

	*plan = (struct plan){.more = 100};
	if (argc < 2 || argc % 2 != 0)
		return -1;
	for (int at = 2; at < argc; at += 2) {
		uint64_t *to = str_equal(argv[at], "--count")    ? &plan->count
			       : str_equal(argv[at], "--gap-ms") ? &plan->gap_ms
			       : str_equal(argv[at], "--more")   ? &plan->more
			       : str_equal(argv[at], "--disk")   ? &plan->disk
								 : NULL;

		if (to == NULL || num_u64(argv[at], argv[at + 1], 0, MAX_COUNT, to, &e) != 0)
			return -1;
	}
	return plan->count == 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct plan plan;
	char why[128];
	int result;

	if (parse(argc, argv, &plan) != 0) {
		(void)fprintf(stderr,
			      "usage: bench_boxpart cold|fresh|warm|kill|pool|stand|copy --count N "
			      "[--gap-ms G] [--more M] [--disk 1]\n");
		return 64;
	}
	if (!rig_possible(why, sizeof(why))) {
		(void)printf("skipped: %s\n", why);
		return 77;
	}
	if (samples_room(&samples, plan.count + plan.more + WARM_UP) != 0)
		return 1;
	if (str_equal(argv[1], "pool"))
		result = pool(&plan);
	else if (str_equal(argv[1], "stand"))
		result = stand(&plan);
	else if (str_equal(argv[1], "copy"))
		result = copies(&plan);
	else
		result = series(argv[1], &plan);
	if (result != 0)
		(void)fprintf(stderr, "bench_boxpart: a box failed\n");
	samples_release(&samples);
	return rig_stop(&rig) && result == 0 ? 0 : 1;
}
