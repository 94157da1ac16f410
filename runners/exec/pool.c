/*
 * Work done ahead of requests: boxes that wait built, and network namespaces with lo up.
 *
 * A waiting box is built with small limits; limits, sizes of its file systems and counters are set
 * when it is assigned, through descriptors that are open already. It serves one create and is then
 * a box like any other. While it waits it dies with us (PDEATHSIG, and EOF of its control socket).
 *
 * One thing at a time is made, as soon as one is missing: to wait for a quiet moment only moves the
 * work to a later request. A create that finds the pool empty builds a box of its own and is
 * counted (probe).
 */
#include "runners/exec/daemon.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mount.h>

#define FAILED_US  (1 * CLOCK_US_PER_S)
#define BUILD_US   (5 * CLOCK_US_PER_S)
#define NETNS_USES 64U
#define SPARE      4U /* network namespaces beyond those of the pool */

/* --- network namespaces --------------------------------------------------------------------- */

static void ring_put(struct daemon *d, struct netns *ns)
{
	struct ring *r = &d->ring;

	if (ns->fd < 0)
		return;
	if (ns->uses >= NETNS_USES || r->count == RING_MAX || d->config.netns_ring == 0) {
		fd_close_at(&ns->fd);
		return;
	}
	r->at[(r->first + r->count) % RING_MAX] = *ns;
	r->count++;
	ns->fd = -1;
}

void ring_take(struct daemon *d, struct slot *s)
{
	struct ring *r = &d->ring;

	if (r->count == 0)
		return;
	/* the one that has rested longest */
	s->netns = r->at[r->first];
	s->netns.uses++;
	r->first = (r->first + 1) % RING_MAX;
	r->count--;
}

void ring_give_back(struct daemon *d, struct slot *s)
{
	if (s->retired)
		fd_close_at(&s->netns.fd); /* somebody may still live there */
	ring_put(d, &s->netns);
}

void ring_add(struct daemon *d, int fd)
{
	struct netns ns = {.fd = fd, .uses = 0};

	d->ring.asked = false;
	if (fd < 0)
		d->refill_us = clock_monotonic_us() + FAILED_US;
	ring_put(d, &ns);
}

void ring_close(struct daemon *d)
{
	for (; d->ring.count > 0; d->ring.count--) {
		fd_close_at(&d->ring.at[d->ring.first].fd);
		d->ring.first = (d->ring.first + 1) % RING_MAX;
	}
}

static void ask_netns(struct daemon *d)
{
	struct zygote_request request = {.version = ZYGOTE_VERSION, .verb = ZYGOTE_NETNS};
	struct err e = ERR_INIT;

	d->ring.asked = zygote_send(d, &request, NULL, 0, &e) == 0;
	if (!d->ring.asked)
		d->refill_us = clock_monotonic_us() + FAILED_US;
}

/* --- assignment ----------------------------------------------------------------------------- */

static int set_part(int fd, const char *key, uint64_t value, struct err *e)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	if (fsconfig(fd, FSCONFIG_SET_STRING, key, text, 0) != 0)
		return err_set(e, ERR_IO, errno, "%s of a file system", key);
	return 0;
}

/* The sizes of the box's tmpfs. Their descriptors hold the file systems, so they go at once. */
static int resize(struct slot *s, struct err *e)
{
	for (int i = 0; i < ZYGOTE_PART_PROC; i++) {
		uint64_t bytes =
		    i == ZYGOTE_PART_WORKSPACE ? s->limits.workspace_bytes : s->limits.tmp_bytes;

		if (set_part(s->parts[i], "size", bytes, e) != 0 ||
		    set_part(s->parts[i], "nr_inodes", s->limits.workspace_inodes, e) != 0)
			return -1;
		if (fsconfig(s->parts[i], FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) != 0)
			return err_set(e, ERR_IO, errno, "resize of a file system");
		fd_close_at(&s->parts[i]);
	}
	if (s->shared_proc &&
	    (fsconfig(s->parts[ZYGOTE_PART_PROC], FSCONFIG_SET_STRING, "hidepid", "off", 0) != 0 ||
	     fsconfig(s->parts[ZYGOTE_PART_PROC], FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) != 0))
		return err_set(e, ERR_IO, errno, "hidepid of a box");
	fd_close_at(&s->parts[ZYGOTE_PART_PROC]);
	return 0;
}

int pool_assign(struct daemon *d, struct slot *s, struct err *e)
{
	struct zygote_assign assign = {.version = ZYGOTE_VERSION, .verb = ZYGOTE_ASSIGN};

	s->state = BOX_BUILDING;
	s->pooled = false;
	s->claimed = false;
	if (s->workspace[0] != '\0' && !s->attached)
		return workspace_attach(d, s, e); /* comes back here */
	if (s->attached)
		assign.flags |= ZYGOTE_WORKSPACE;
	if (s->maintain)
		assign.flags |= ZYGOTE_MAINTAIN;
	if (cgroup_slot_set(&d->groups, &s->groups, &s->limits, e) != 0 || resize(s, e) != 0)
		return -1;
	/* it died while it waited: another one will do */
	if (s->control.fd < 0)
		return err_set(e, ERR_UNAVAILABLE, 0, "the waiting box has died");
	if (fd_send(s->control.fd, &assign, sizeof(assign), NULL, 0, e) < 0) {
		e->code = ERR_UNAVAILABLE;
		return -1;
	}
	/* what is in the socket is read before its end: from here on the box does not need us */
	watch_close(d, &s->control);
	box_check_ready(d, s);
	return 0;
}

void pool_close_parts(struct slot *s)
{
	for (int i = 0; i < ZYGOTE_PARTS; i++)
		fd_close_at(&s->parts[i]);
}

struct slot *pool_find(struct daemon *d, bool being_built, bool fresh_net)
{
	struct slot *found = NULL;

	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];

		if (being_built ? s->state != BOX_BUILDING || !s->pooled || s->claimed
				: s->state != BOX_WAITING)
			continue;
		if (s->fresh_net != fresh_net)
			continue;
		if (found == NULL || s->created_us < found->created_us)
			found = s;
	}
	return found;
}

void pool_ready(struct daemon *d, struct slot *s)
{
	struct err e = ERR_INIT;

	s->state = BOX_WAITING;
	if (!s->claimed) {
		adopt_prepare(s);
		return;
	}
	if (pool_assign(d, s, &e) != 0) {
		log_err(LOG_ERROR, "assign", &e, "slot=%u run=%s", s->number, s->run_id);
		box_fail_create(s, e.code == ERR_UNAVAILABLE ? BOX_ERR_BUSY : BOX_ERR_FAILED, e.sys,
				e.text);
	}
}

/* --- refill --------------------------------------------------------------------------------- */

void pool_count(const struct daemon *d, struct pool_numbers *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned int i = 0; i < d->config.slots; i++) {
		const struct slot *s = &d->slots[i];

		if (s->state == BOX_WAITING)
			out->waiting[s->fresh_net ? 1 : 0]++;
		else if (s->state == BOX_BUILDING && s->pooled)
			out->building++;
	}
}

static void build_one(struct daemon *d, bool fresh_net)
{
	struct box_request template = {.flags = fresh_net ? BOX_FRESH_NET : 0,
				       .limits = {.memory_bytes = 16U << 20,
						  .workspace_bytes = 1U << 20,
						  .workspace_inodes = 64,
						  .tmp_bytes = 1U << 20,
						  .pids = 8}};
	struct slot *s = box_free_slot(d);
	struct err e = ERR_INIT;

	if (s == NULL)
		return;
	/* as the last one asked for, so that its processors need no change at assignment */
	template.limits.cpu_millis = d->cpu_millis;
	box_reset(d, s, &template);
	s->pooled = true;
	if (box_build(d, s, &e) != 0) {
		log_err(LOG_ERROR, "pool", &e, "slot=%u", s->number);
		s->replied = true;
		box_fail_create(s, BOX_ERR_FAILED, e.sys, e.text);
		d->refill_us = clock_monotonic_us() + FAILED_US;
	}
}

static void check_stuck(struct daemon *d, int64_t now_us)
{
	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];

		if (s->state != BOX_BUILDING || !s->pooled || now_us < s->created_us + BUILD_US)
			continue;
		log_event(LOG_ERROR, "pool", "slot=%u is not built in time", s->number);
		box_fail_create(s, BOX_ERR_TIMEOUT, 0, "the box was not built in time");
		d->refill_us = now_us + FAILED_US;
	}
}

int64_t pool_turn(struct daemon *d, int64_t now_us)
{
	bool wants_netns = d->config.netns_ring != 0 && d->ring.count < SPARE;
	struct pool_numbers have;
	bool wants_box;

	pool_count(d, &have);
	if (have.building > 0) {
		check_stuck(d, now_us);
		return now_us + BUILD_US; /* one at a time; its end is an event */
	}
	if (d->stop_by_us != 0 || !d->zygote.configured || d->ring.asked)
		return INT64_MAX;
	wants_box = (have.waiting[0] < d->config.pool || have.waiting[1] < d->config.pool_fresh) &&
		    box_free_slot(d) != NULL;
	if (!wants_netns && !wants_box)
		return INT64_MAX;
	if (now_us < d->refill_us)
		return d->refill_us;
	if (wants_netns)
		ask_netns(d);
	else
		build_one(d, have.waiting[0] >= d->config.pool);
	return INT64_MAX;
}
