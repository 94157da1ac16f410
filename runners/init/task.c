#include "runners/init/server.h"

#include "runners/base/clock.h"

/*
 * One turn of one task per round of the loop, in the order of connections and places: however many
 * there are, output of commands waits for a single turn.
 */

#define PLACES ((unsigned int)SERVER_MAX_CONNS * SERVER_MAX_TASKS)

int task_start(struct conn *c, struct task *t, bool alone, struct err *e)
{
	struct task **place = NULL;
	bool found = false;

	for (int i = 0; i < SERVER_MAX_TASKS; i++) {
		if (c->tasks[i] == NULL)
			place = &c->tasks[i];
		else if (c->tasks[i]->step == t->step)
			found = true;
	}
	if (place == NULL || (alone && found)) {
		t->release(t);
		return err_set(e, ERR_LIMIT, 0, "%s under way on this connection",
			       place == NULL ? "too many file requests are"
					     : "a request of this type is");
	}
	*place = t;
	return 0;
}

void task_end_all(struct conn *c)
{
	for (int i = 0; i < SERVER_MAX_TASKS; i++) {
		if (c->tasks[i] != NULL)
			c->tasks[i]->release(c->tasks[i]);
		c->tasks[i] = NULL;
	}
}

static void run(struct server *s, struct conn *c, struct task **place)
{
	struct task *t = *place;
	int64_t until = clock_monotonic_us() + SERVER_STEP_US;
	bool more = true;
	struct err e = ERR_INIT;

	if (file_act_as(t->uid, t->gid, &e) != 0) {
		conn_error(c, &t->head, &e);
		more = false;
	}
	while (more && conn_has_room(c) && clock_monotonic_us() < until)
		more = t->step(s, c, t);
	file_act_as_self();
	if (more)
		return;
	t->release(t);
	*place = NULL;
}

static struct task **ready(struct server *s, unsigned int number, struct conn **out_conn)
{
	struct conn *c = &s->conns[number / SERVER_MAX_TASKS];
	struct task **place = &c->tasks[number % SERVER_MAX_TASKS];

	*out_conn = c;
	return c->fd >= 0 && *place != NULL && conn_has_room(c) ? place : NULL;
}

void task_turn(struct server *s)
{
	for (unsigned int i = 0; i < PLACES; i++) {
		unsigned int number = (s->next_task + i) % PLACES;
		struct conn *c;
		struct task **place = ready(s, number, &c);

		if (place == NULL)
			continue;
		s->next_task = number + 1;
		run(s, c, place);
		return;
	}
}

bool task_waits(const struct server *s)
{
	for (int i = 0; i < SERVER_MAX_CONNS; i++)
		for (int k = 0; k < SERVER_MAX_TASKS; k++)
			if (s->conns[i].fd >= 0 && s->conns[i].tasks[k] != NULL &&
			    conn_has_room(&s->conns[i]))
				return true;
	return false;
}
