/* test_timer.c: timers of the gate's loop: their order, whatever was armed before them. */
#include "tests/lib/test.h"

#include "runners/base/clock.h"
#include "runners/gate/timer.h"

#include <CUnit/CUnit.h>

static struct ev_loop *loop;
static struct gate_timer late;
static struct gate_timer soon;
static char order[8];
static size_t fired;

static void note(char name)
{
	if (fired + 1 < sizeof(order))
		order[fired++] = name;
	order[fired] = '\0';
}

static void late_due(struct gate_timer *timer)
{
	(void)timer;
	note('l');
}

static void soon_due(struct gate_timer *timer)
{
	CU_ASSERT_PTR_EQUAL(timer, &soon);
	note('s');
}

/* From an event, like that of a new connection, while a later timer is armed. */
static void on_event(struct ev_loop *l, ev_timer *watcher, int events)
{
	(void)watcher;
	(void)events;
	timer_start(l, &soon, soon_due, 30 * CLOCK_US_PER_MS);
}

static void begin(void)
{
	loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
	CU_ASSERT_PTR_NOT_NULL_FATAL(loop);
	memset(&late, 0, sizeof(late));
	memset(&soon, 0, sizeof(soon));
	fired = 0;
	order[0] = '\0';
}

static void test_sooner_comes_first(void)
{
	ev_timer event;

	begin();
	timer_start(loop, &late, late_due, 400 * CLOCK_US_PER_MS);
	ev_timer_init(&event, on_event, 0.01, 0.0);
	ev_timer_start(loop, &event);
	ev_run(loop, 0);
	CU_ASSERT_STRING_EQUAL(order, "sl");
	ev_loop_destroy(loop);
}

static void test_set_anew(void)
{
	begin();
	timer_start(loop, &soon, soon_due, 10 * CLOCK_US_PER_MS);
	timer_start(loop, &late, late_due, 50 * CLOCK_US_PER_MS);
	/* later than the other now, and once only */
	timer_start(loop, &soon, soon_due, 200 * CLOCK_US_PER_MS);
	ev_run(loop, 0);
	CU_ASSERT_STRING_EQUAL(order, "ls");
	ev_loop_destroy(loop);
}

static void test_stop(void)
{
	begin();
	/* one that never ran */
	timer_stop(loop, &soon);
	timer_start(loop, &soon, soon_due, -5);
	timer_stop(loop, &soon);
	timer_stop(loop, &soon);
	timer_start(loop, &late, late_due, 0);
	ev_run(loop, 0);
	CU_ASSERT_STRING_EQUAL(order, "l");
	ev_loop_destroy(loop);
}

/* Not before its time, although the loop has not looked at the clock for a while. */
static void test_not_too_early(void)
{
	int64_t begun;

	begin();
	clock_sleep_us(60000);
	begun = clock_monotonic_us();
	timer_start(loop, &soon, soon_due, 50 * CLOCK_US_PER_MS);
	ev_run(loop, 0);
	CU_ASSERT_TRUE(clock_monotonic_us() - begun >= 49 * CLOCK_US_PER_MS);
	ev_loop_destroy(loop);
}

static const struct test tests[] = {
    {"timer", "the sooner comes first", test_sooner_comes_first},
    {"timer", "set anew", test_set_anew},
    {"timer", "stop", test_stop},
    {"timer", "not too early", test_not_too_early},
};
TEST_MAIN(tests)
