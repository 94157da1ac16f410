/*
 * The life of a box. Its making is in box_make.c, what the caller asks for in box_verbs.c.
 *
 *	NONE -> BUILDING -> LIVE <-> FROZEN -> ENDING -> DEAD (kill, or its own death) -> NONE
 *					       ENDING -> NONE (destroy, failed create)
 *
 * BUILDING ends when both the zygote has given the pidfd and the box has said that it is built.
 * ENDING: pid 1 is killed; the box is over when it is reaped (the kernel then has no process of its
 * pid namespace left) and the groups are empty. What does not become empty in time retires
 * the slot. Nothing here waits: all is driven by descriptors and by box_turn().
 */
#include "runners/exec/daemon.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define RECHECK_US 100
/* while pid 1 is still to end */
#define RECHECK_SLOW_US (5 * CLOCK_US_PER_MS)
#define KILL_AGAIN_US   (500 * CLOCK_US_PER_MS)
#define GIVE_UP_US      (5 * CLOCK_US_PER_S)

static const uint32_t default_deadline_ms[BOX_VERB__MAX] = {
    [BOX_CREATE] = 5000,   [BOX_MAINTAIN] = 5000, [BOX_KILL] = 10000,
    [BOX_DESTROY] = 10000, [BOX_FREEZE] = 2000,   [BOX_THAW] = 2000,
};

/* --- replies -------------------------------------------------------------------------------- */

void box_fill_reply(struct box_reply *r, const struct slot *s)
{
	memset(r, 0, sizeof(*r));
	r->version = BOX_VERSION;
	r->record = BOX_RECORD_REPLY;
	r->slot = BOX_NO_SLOT;
	if (s == NULL)
		return;
	r->slot = s->number;
	r->state = s->state;
	r->end_status = s->end_status;
	memcpy(r->run_id, s->run_id, sizeof(r->run_id));
	memcpy(r->agent_path, s->agent_path, sizeof(r->agent_path));
	r->stats = s->stats;
}

void box_refuse(struct daemon *d, uint64_t client, uint64_t tag, uint32_t verb, enum box_code code,
		int sys, const char *text)
{
	struct box_reply r;

	box_fill_reply(&r, NULL);
	r.tag = tag;
	r.verb = verb < BOX_VERB__MAX ? verb : 0;
	r.code = code;
	r.sys = sys;
	(void)snprintf(r.text, sizeof(r.text), "%s", text);
	client_send(d, client, &r);
}

static void answer(struct daemon *d, struct pending *p, const struct slot *s, enum box_code code,
		   int sys, const char *text)
{
	struct box_reply r;

	box_fill_reply(&r, s);
	r.tag = p->tag;
	r.verb = p->verb;
	r.warm = s->warm ? 1 : 0;
	r.code = code;
	r.sys = sys;
	(void)snprintf(r.text, sizeof(r.text), "%s", text);
	client_send(d, p->client, &r);
	p->client = 0;
}

void box_answer_verb(struct daemon *d, struct slot *s, uint32_t verb, enum box_code code, int sys,
		     const char *text)
{
	for (int i = 0; i < DAEMON_MAX_PENDING; i++)
		if (s->pending[i].client != 0 && s->pending[i].verb == verb)
			answer(d, &s->pending[i], s, code, sys, text);
}

int box_add_pending(struct slot *s, uint64_t client, const struct box_request *request)
{
	uint32_t ms =
	    request->deadline_ms != 0 ? request->deadline_ms : default_deadline_ms[request->verb];

	for (int i = 0; i < DAEMON_MAX_PENDING; i++) {
		struct pending *p = &s->pending[i];

		if (p->client != 0)
			continue;
		p->client = client;
		p->tag = request->tag;
		p->verb = request->verb;
		p->deadline_us = clock_monotonic_us() + (int64_t)ms * CLOCK_US_PER_MS;
		return 0;
	}
	return -1;
}

void box_read_stats(struct daemon *d, struct slot *s)
{
	int64_t until = s->ended_us != 0 ? s->ended_us : clock_monotonic_us();

	if (s->state == BOX_DEAD)
		return;
	memset(&s->stats, 0, sizeof(s->stats));
	cgroup_slot_stats(&d->groups, &s->groups, &s->stats);
	s->stats.wall_us = (uint64_t)(until - s->created_us);
}

/* --- the end -------------------------------------------------------------------------------- */

static void forget_listener(struct daemon *d, struct slot *s)
{
	const char *name = strrchr(s->agent_path, '/');

	if (name != NULL)
		(void)unlinkat(d->agents_dir, name + 1, 0);
	s->agent_path[0] = '\0';
}

static void free_slot(struct daemon *d, struct slot *s)
{
	if (s->agent_path[0] != '\0')
		forget_listener(d, s);
	pool_close_parts(s);
	workspace_release(d, s);
	ring_give_back(d, s);
	watch_close(d, &s->control);
	watch_close(d, &s->pidfd);
	cgroup_slot_rest(&d->groups, &s->groups);
	s->prepared = s->groups.open;
	s->state = BOX_STATE_NONE;
	s->serial = 0;
	s->recheck_us = 0;
	s->until_us = 0;
	s->workspace[0] = '\0';
	s->run_id[0] = '\0';
	s->agent_path[0] = '\0';
}

static void retire(struct daemon *d, struct slot *s)
{
	log_event(LOG_ERROR, "slot_retired", "slot=%u run=%s", s->number, s->run_id);
	s->retired = true;
	adopt_forget(d, s);
	box_answer_verb(d, s, BOX_KILL, BOX_ERR_FAILED, 0, "processes of the box do not end");
	box_answer_verb(d, s, BOX_DESTROY, BOX_ERR_FAILED, 0, "processes of the box do not end");
	box_answer_verb(d, s, BOX_CREATE, s->fail_code, s->fail_sys, s->fail_text);
	box_answer_verb(d, s, BOX_MAINTAIN, s->fail_code, s->fail_sys, s->fail_text);
	free_slot(d, s);
}

/* Zombies that no slot knows: cloned by a zygote that died before it could tell. */
static void reap_strays(const struct daemon *d)
{
	for (;;) {
		siginfo_t info;
		bool known;

		memset(&info, 0, sizeof(info));
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
			return;
		known = info.si_pid == d->zygote.pid || workspace_is_keeper(d, info.si_pid);
		for (unsigned int i = 0; i < d->config.slots && !known; i++)
			known = d->slots[i].pid == info.si_pid && !d->slots[i].reaped;
		if (known)
			return; /* its own event comes */
		(void)waitpid(info.si_pid, NULL, WNOHANG);
	}
}

/* All processes are gone and the groups are empty. */
void box_ended(struct daemon *d, struct slot *s)
{
	box_read_stats(d, s);
	s->stats.pids = 0;
	if (s->pid == 0)
		reap_strays(d);
	s->state = BOX_DEAD;
	s->recheck_us = 0;
	/* who waits first: the names below lead to nobody */
	box_answer_verb(d, s, BOX_CREATE, s->fail_code, s->fail_sys, s->fail_text);
	box_answer_verb(d, s, BOX_MAINTAIN, s->fail_code, s->fail_sys, s->fail_text);
	box_answer_verb(d, s, BOX_KILL, BOX_OK, 0, "");
	box_answer_verb(d, s, BOX_FREEZE, BOX_ERR_BUSY, 0, "the box has ended");
	box_answer_verb(d, s, BOX_THAW, BOX_ERR_BUSY, 0, "the box has ended");
	box_answer_verb(d, s, BOX_DESTROY, BOX_OK, 0, "");
	adopt_forget(d, s);
	forget_listener(d, s);
	if (s->free_when_ended)
		free_slot(d, s);
}

/* True when no process can be left: reaped, or the zygote said that it never was. */
static bool no_process(const struct slot *s)
{
	return s->reaped || (s->replied && s->pid == 0);
}

void box_check_ended(struct daemon *d, struct slot *s)
{
	int64_t now = clock_monotonic_us();

	if (no_process(s) && cgroup_slot_empty(&s->groups)) {
		box_ended(d, s);
		return;
	}
	if (now >= s->give_up_us) {
		retire(d, s);
		return;
	}
	/* the end of pid 1 is an event; what else is in the groups is not */
	s->recheck_us = now + (no_process(s) || s->pidfd.fd < 0 ? RECHECK_US : RECHECK_SLOW_US);
}

/* The kernel ends a pid namespace with its pid 1. The group is the second resort, and the first
 * where pid 1 is not known. */
static void kill_box(struct slot *s)
{
	if (s->pidfd.fd >= 0 && !s->reaped &&
	    pidfd_send_signal(s->pidfd.fd, SIGKILL, NULL, 0) == 0) {
		/* what runs beside pid 1 ends at the same time, not behind it */
		cgroup_slot_kill_others(&s->groups);
		return;
	}
	if (!s->reaped || !cgroup_slot_empty(&s->groups))
		cgroup_slot_kill(&s->groups);
}

void box_begin_end(struct slot *s)
{
	if (s->state == BOX_ENDING || s->state == BOX_DEAD || s->state == BOX_STATE_NONE)
		return;
	s->state = BOX_ENDING;
	if (s->ended_us == 0)
		s->ended_us = clock_monotonic_us();
	s->give_up_us = clock_monotonic_us() + GIVE_UP_US;
	s->kill_again_us = clock_monotonic_us() + KILL_AGAIN_US;
	kill_box(s);
	/* nothing can have ended already, but a box that never was needs a look */
	s->recheck_us = clock_monotonic_us() + (s->pidfd.fd < 0 ? RECHECK_US : RECHECK_SLOW_US);
}

void box_fail_create(struct slot *s, enum box_code code, int sys, const char *text)
{
	if (s->state != BOX_BUILDING)
		return;
	s->fail_code = code;
	s->fail_sys = sys;
	(void)snprintf(s->fail_text, sizeof(s->fail_text), "%s", text);
	s->free_when_ended = true;
	box_begin_end(s);
}

static void fail_stage(struct slot *s, int stage, int sys)
{
	char text[BOX_TEXT_SIZE];
	char name[96];

	if (s->state != BOX_BUILDING)
		return; /* it is being ended already */

	(void)snprintf(text, sizeof(text), "building the box stopped at %s: %s",
		       zygote_stage_name(stage),
		       sys == 0 ? "no reason given" : strerror_r(sys, name, sizeof(name)));
	log_event(LOG_ERROR, "create_failed", "slot=%u run=%s text=\"%s\"", s->number, s->run_id,
		  text);
	/* when the zygote died in the middle the caller may ask again: the box never was */
	box_fail_create(s, stage == ZYGOTE_STAGE_LOST ? BOX_ERR_BUSY : BOX_ERR_FAILED, sys, text);
}

/* --- what boxes and the zygote say ---------------------------------------------------------- */

void box_check_ready(struct daemon *d, struct slot *s)
{
	struct err e = ERR_INIT;

	if (s->state != BOX_BUILDING || !s->ready || s->pidfd.fd < 0)
		return;
	if (s->pooled) {
		pool_ready(d, s);
		return;
	}
	if (s->workspace[0] != '\0' && !s->attached)
		return;
	if (adopt_keep(d, s, &e) != 0) {
		log_err(LOG_ERROR, "slot_file", &e, "slot=%u run=%s", s->number, s->run_id);
		box_fail_create(s, BOX_ERR_FAILED, e.sys, "the slot file cannot be written");
		return;
	}
	s->state = BOX_LIVE;
	box_answer_verb(d, s, s->maintain ? BOX_MAINTAIN : BOX_CREATE, BOX_OK, 0, "");
	if (s->shared_proc)
		cgroup_slot_settle(&s->groups);
}

void box_on_control(struct daemon *d, void *ctx, uint32_t events)
{
	struct slot *s = ctx;
	struct zygote_ready ready;
	struct err e = ERR_INIT;
	int fds[ZYGOTE_PARTS];
	size_t count;
	ssize_t got;

	(void)events;
	got = fd_receive(s->control.fd, &ready, sizeof(ready), fds, ZYGOTE_PARTS, &count, &e);
	if (got < 0 && e.code == ERR_UNAVAILABLE)
		return;
	for (size_t i = 0; got > 0 && i < count; i++) {
		fd_close_at(&s->parts[i]);
		s->parts[i] = fds[i];
	}
	if (got != (ssize_t)sizeof(ready) || ready.version != ZYGOTE_VERSION) {
		watch_close(d, &s->control);
		if (s->state == BOX_WAITING) {
			/* it has died; its pidfd tells the same in a moment */
			s->free_when_ended = true;
			box_begin_end(s);
		}
		fail_stage(s, ZYGOTE_STAGE_LOST, 0);
		return;
	}
	if (ready.stage != ZYGOTE_DONE) {
		watch_close(d, &s->control);
		fail_stage(s, ready.stage, ready.sys);
		return;
	}
	if (s->pooled && (count != ZYGOTE_PARTS || s->ready)) {
		fail_stage(s, ZYGOTE_STAGE_REQUEST, 0);
		return;
	}
	/* an assigned box closes its end now */
	if (!s->pooled)
		watch_close(d, &s->control);
	s->ready = true;
	box_check_ready(d, s);
}

static void tell_died(struct daemon *d, struct slot *s)
{
	struct box_reply r;

	box_read_stats(d, s);
	box_fill_reply(&r, s);
	r.record = BOX_RECORD_DIED;
	client_broadcast(d, &r);
}

/* pid 1 of a box has ended. */
void box_on_pidfd(struct daemon *d, void *ctx, uint32_t events)
{
	struct slot *s = ctx;
	siginfo_t info;

	(void)events;
	memset(&info, 0, sizeof(info));
	if (waitid(P_PIDFD, (id_t)s->pidfd.fd, &info, WEXITED | WNOHANG) != 0) {
		if (errno == EINTR)
			return;
	} else if (info.si_pid == 0) {
		return;
	}
	s->reaped = true;
	s->end_status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
	if (s->adopted) /* somebody else's child: its status went there */
		s->end_status = BOX_STATUS_UNKNOWN;
	watch_close(d, &s->pidfd);
	if (s->state == BOX_BUILDING) {
		fail_stage(s, ZYGOTE_STAGE_LOST, 0);
	} else if (s->state == BOX_WAITING) {
		s->free_when_ended = true;
		box_begin_end(s);
	} else if (s->state == BOX_LIVE || s->state == BOX_FROZEN) {
		box_begin_end(s);
		tell_died(d, s);
	}
	if (s->state == BOX_ENDING)
		box_check_ended(d, s);
}

void box_zygote_reply(struct daemon *d, const struct zygote_reply *reply, int pidfd)
{
	struct slot *s = NULL;
	struct err e = ERR_INIT;

	for (unsigned int i = 0; i < d->config.slots && s == NULL; i++)
		if (d->slots[i].serial == reply->serial && reply->serial != 0)
			s = &d->slots[i];
	if (s == NULL || s->replied) {
		log_event(LOG_ERROR, "zygote", "a reply for no box pid=%d", reply->pid);
		if (pidfd >= 0) {
			(void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
			(void)close(pidfd);
		}
		return;
	}
	s->replied = true;
	s->pid = reply->pid;
	if (pidfd >= 0 && watch_open(d, &s->pidfd, pidfd, box_on_pidfd, s, &e) != 0) {
		log_err(LOG_ERROR, "watch", &e, "slot=%u", s->number);
		(void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
		(void)close(pidfd);
		fail_stage(s, ZYGOTE_STAGE_LOST, e.sys);
		return;
	}
	if (reply->stage != ZYGOTE_DONE)
		fail_stage(s, reply->stage, reply->sys);
	if (s->state == BOX_ENDING)
		kill_box(s);
	box_check_ready(d, s);
}

/* Boxes that it had cloned without telling are in their groups; their zombies are ours. */
void box_zygote_died(struct daemon *d)
{
	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];

		if (s->serial == 0 || s->replied)
			continue;
		s->replied = true;
		fail_stage(s, ZYGOTE_STAGE_LOST, 0);
	}
}

static void check_frozen(struct daemon *d, struct slot *s)
{
	bool wished = s->state == BOX_FROZEN;

	if (!cgroup_slot_is_frozen(&s->groups, wished)) {
		if (wished)
			cgroup_slot_freeze_again(&s->groups);
		s->recheck_us = clock_monotonic_us() + RECHECK_US;
		return;
	}
	s->recheck_us = 0;
	box_answer_verb(d, s, BOX_FREEZE, wished ? BOX_OK : BOX_ERR_BUSY, 0,
			wished ? "" : "a later request thawed it");
	box_answer_verb(d, s, BOX_THAW, wished ? BOX_ERR_BUSY : BOX_OK, 0,
			wished ? "a later request froze it" : "");
}

/* --- time ----------------------------------------------------------------------------------- */

static void check_deadlines(struct daemon *d, struct slot *s, int64_t now)
{
	for (int i = 0; i < DAEMON_MAX_PENDING; i++) {
		struct pending *p = &s->pending[i];

		if (p->client == 0 || now < p->deadline_us)
			continue;
		if ((p->verb == BOX_CREATE || p->verb == BOX_MAINTAIN) &&
		    s->state == BOX_BUILDING) {
			log_event(LOG_ERROR, "create_timeout", "slot=%u run=%s", s->number,
				  s->run_id);
			box_fail_create(s, BOX_ERR_TIMEOUT, 0, "the deadline passed");
			p->deadline_us = now + GIVE_UP_US;
			continue;
		}
		answer(d, p, s, BOX_ERR_TIMEOUT, 0, "the deadline passed");
	}
}

int64_t box_turn(struct daemon *d, int64_t now_us)
{
	int64_t next = INT64_MAX;

	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];

		if (s->state == BOX_STATE_NONE)
			continue;
		if (s->recheck_us != 0 && now_us >= s->recheck_us) {
			s->recheck_us = 0;
			if (s->state == BOX_ENDING) {
				if (now_us >= s->kill_again_us) {
					cgroup_slot_kill(&s->groups);
					s->kill_again_us = now_us + KILL_AGAIN_US;
				}
				box_check_ended(d, s);
			} else if (s->state == BOX_LIVE || s->state == BOX_FROZEN) {
				check_frozen(d, s);
			}
		}
		check_deadlines(d, s, now_us);
		if (s->until_us != 0 && (s->state == BOX_LIVE || s->state == BOX_FROZEN)) {
			if (now_us >= s->until_us) {
				log_event(LOG_INFO, "lifetime", "slot=%u run=%s", s->number,
					  s->run_id);
				box_begin_end(s);
				tell_died(d, s);
			} else if (s->until_us < next) {
				next = s->until_us;
			}
		}
		if (s->recheck_us != 0 && s->recheck_us < next)
			next = s->recheck_us;
		for (int k = 0; k < DAEMON_MAX_PENDING; k++)
			if (s->pending[k].client != 0 && s->pending[k].deadline_us < next)
				next = s->pending[k].deadline_us;
	}
	return next;
}

static bool lives_on(const struct daemon *d, const struct slot *s)
{
	return !d->end_boxes && (s->state == BOX_LIVE || s->state == BOX_FROZEN);
}

void box_end_all(struct daemon *d)
{
	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];

		if (lives_on(d, s))
			continue;
		s->free_when_ended = true;
		if (s->state == BOX_BUILDING)
			box_fail_create(s, BOX_ERR_BUSY, 0, "cordon-box is stopping");
		else if (s->state == BOX_DEAD)
			box_ended(d, s);
		else
			box_begin_end(s);
	}
}

bool box_any(const struct daemon *d)
{
	for (unsigned int i = 0; i < d->config.slots; i++)
		if (d->slots[i].state != BOX_STATE_NONE && !lives_on(d, &d->slots[i]))
			return true;
	return false;
}
