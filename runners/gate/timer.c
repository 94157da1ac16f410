#include "runners/gate/timer.h"

#include "runners/base/clock.h"

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events)
{
	/* the first member */
	struct gate_timer *timer = (struct gate_timer *)watcher;

	(void)loop;
	(void)events;
	timer->due(timer);
}

void timer_start(struct ev_loop *loop, struct gate_timer *timer,
		 void (*due)(struct gate_timer *timer), int64_t wait_us)
{
	double seconds = (double)(wait_us > 0 ? wait_us : 0) / (double)CLOCK_US_PER_S;

	timer_stop(loop, timer);
	timer->due = due;
	/* libev counts from when the loop last looked at the clock */
	ev_now_update(loop);
	ev_timer_init(&timer->watcher, on_timer, seconds, 0.0);
	ev_timer_start(loop, &timer->watcher);
}

void timer_stop(struct ev_loop *loop, struct gate_timer *timer)
{
	ev_timer_stop(loop, &timer->watcher);
}
