/* What the caller can ask for: one function per verb. */
#include "runners/exec/daemon.h"

#include "runners/base/clock.h"
#include "runners/base/str.h"

static void on_end(struct daemon *d, struct slot *s, uint64_t client,
		   const struct box_request *request)
{
	if (box_add_pending(s, client, request) != 0) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_BUSY, 0,
			   "too many requests for this box");
		return;
	}
	if (request->verb == BOX_DESTROY)
		s->free_when_ended = true;
	if (s->state == BOX_BUILDING)
		box_fail_create(s, BOX_ERR_BUSY, 0, "the box was ended while it was built");
	if (s->state == BOX_DEAD)
		box_ended(d, s);
	else
		box_begin_end(s);
}

static void on_freeze(struct daemon *d, struct slot *s, uint64_t client,
		      const struct box_request *request)
{
	bool on = request->verb == BOX_FREEZE;
	struct err e = ERR_INIT;

	if (s->state != BOX_LIVE && s->state != BOX_FROZEN) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_BUSY, 0,
			   "the box is not live");
		return;
	}
	if (box_add_pending(s, client, request) != 0) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_BUSY, 0,
			   "too many requests for this box");
		return;
	}
	if (cgroup_slot_freeze(&s->groups, on, &e) != 0) {
		box_answer_verb(d, s, request->verb, BOX_ERR_FAILED, e.sys, e.text);
		return;
	}
	s->state = on ? BOX_FROZEN : BOX_LIVE;
	s->recheck_us = clock_monotonic_us();
}

static void on_list(struct daemon *d, uint64_t client, const struct box_request *request)
{
	struct box_reply r;
	uint32_t count = 0;

	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];

		bool ahead = s->state == BOX_WAITING || (s->state == BOX_BUILDING && s->pooled);

		if (s->state == BOX_STATE_NONE || (s->state == BOX_BUILDING && !ahead) ||
		    (ahead && request->slot != BOX_ALL_SLOTS))
			continue;
		box_read_stats(d, s);
		box_fill_reply(&r, s);
		r.record = BOX_RECORD_ENTRY;
		r.tag = request->tag;
		r.verb = BOX_LIST;
		client_send(d, client, &r);
		count++;
	}
	box_fill_reply(&r, NULL);
	r.tag = request->tag;
	r.verb = BOX_LIST;
	r.slots = count;
	client_send(d, client, &r);
}

static void on_probe(struct daemon *d, uint64_t client, const struct box_request *request)
{
	struct pool_numbers have;
	struct box_reply r;

	box_fill_reply(&r, NULL);
	r.tag = request->tag;
	r.verb = BOX_PROBE;
	r.mode = d->groups.mode;
	r.slots = (uint32_t)d->config.slots;
	r.ceilings = d->ceilings;
	pool_count(d, &have);
	r.pool = (uint32_t)(d->config.pool + d->config.pool_fresh);
	r.waiting = have.waiting[0] + have.waiting[1];
	r.warm = d->warm;
	r.cold = d->cold;
	if (!d->zygote.configured) {
		r.code = BOX_ERR_FAILED;
		(void)snprintf(r.text, sizeof(r.text), "the zygote is being started again");
	}
	client_send(d, client, &r);
}

static void on_stats(struct daemon *d, struct slot *s, uint64_t client,
		     const struct box_request *request)
{
	struct box_reply r;

	box_read_stats(d, s);
	box_fill_reply(&r, s);
	r.tag = request->tag;
	r.verb = BOX_STATS;
	client_send(d, client, &r);
}

static void on_box_verb(struct daemon *d, uint64_t client, const struct box_request *request)
{
	struct slot *s = NULL;

	if (request->slot < d->config.slots)
		s = &d->slots[request->slot];
	if (s == NULL || s->state == BOX_STATE_NONE || s->state == BOX_WAITING ||
	    !str_equal(s->run_id, request->run_id)) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_NOT_FOUND, 0,
			   "no such box");
		return;
	}
	if (request->verb == BOX_STATS)
		on_stats(d, s, client, request);
	else if (request->verb == BOX_FREEZE || request->verb == BOX_THAW)
		on_freeze(d, s, client, request);
	else
		on_end(d, s, client, request);
}

void box_request(struct daemon *d, uint64_t client, const struct box_request *request)
{
	if (d->stop_by_us != 0 &&
	    (request->verb == BOX_CREATE || request->verb == BOX_MAINTAIN ||
	     request->verb == BOX_WORKSPACE_MAKE || request->verb == BOX_WORKSPACE_COPY)) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_BUSY, 0,
			   "cordon-box is stopping");
		return;
	}
	switch ((enum box_verb)request->verb) {
	case BOX_PROBE:
		on_probe(d, client, request);
		break;
	case BOX_LIST:
		on_list(d, client, request);
		break;
	case BOX_CREATE:
	case BOX_MAINTAIN:
		box_create(d, client, request);
		break;
	case BOX_KILL:
	case BOX_DESTROY:
	case BOX_STATS:
	case BOX_FREEZE:
	case BOX_THAW:
		on_box_verb(d, client, request);
		break;
	case BOX_WORKSPACE_MAKE:
	case BOX_WORKSPACE_DELETE:
	case BOX_WORKSPACE_INFO:
	case BOX_WORKSPACE_COPY:
		workspace_request(d, client, request);
		break;
	case BOX_LISTENERS:
	case BOX_VERB__MAX:
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_UNSUPPORTED, 0,
			   "this verb is not supported yet");
		break;
	}
}
