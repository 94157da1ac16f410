/*
 * timer.h: one-shot timers of the gate's loop.
 *
 * Not those of libwebsockets (lws_sul_*): with libev as its loop they come late, because one that
 * is set while a later one is armed waits for that one.
 *
 *	static void due(struct gate_timer *timer)
 *	{
 *		struct hold *hold = lws_container_of(timer, struct hold, deadline);
 *	}
 *	timer_start(gate->loop, &hold->deadline, due, wait_us);
 *	timer_stop(gate->loop, &hold->deadline);	before the memory goes
 *
 * A zeroed struct is a timer that does not run; it must not move while it does. Loop thread only.
 */
#ifndef CORDON_GATE_TIMER_H
#define CORDON_GATE_TIMER_H

#include <ev.h>
#include <stdint.h>

struct gate_timer {
	ev_timer watcher;
	void (*due)(struct gate_timer *timer);
};

/* Calls due once, wait_us from now; one that runs is set anew. */
void timer_start(struct ev_loop *loop, struct gate_timer *timer,
		 void (*due)(struct gate_timer *timer), int64_t wait_us);
void timer_stop(struct ev_loop *loop, struct gate_timer *timer);

#endif
