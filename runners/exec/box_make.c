/* The making of a box: a slot, its limits and groups, the agent's socket, and the zygote's work. */
#include "runners/exec/daemon.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/ident.h"
#include "runners/base/log.h"
#include "runners/base/str.h"
#include "runners/exec/image.h"

#include <errno.h>
#include <sys/socket.h>

#define AGENT_BACKLOG 64
#define WORKSPACE_UID 1000
#define TOKEN_DIGITS  12

struct slot *box_free_slot(struct daemon *d)
{
	for (unsigned int i = 0; i < d->config.slots; i++)
		if (d->slots[i].state == BOX_STATE_NONE && !d->slots[i].retired &&
		    !cgroup_slot_is_charged(&d->slots[i].groups))
			return &d->slots[i];
	return NULL;
}

static int open_agent_socket(struct daemon *d, struct slot *s, int *out_fd, struct err *e)
{
	char token[TOKEN_DIGITS + 1];
	scope_close int fd = -1;
	int used;

	if (ident_token(token, TOKEN_DIGITS, e) != 0)
		return -1;
	used = snprintf(s->agent_path, sizeof(s->agent_path), "%s/agents/%u-%s.sock", d->run_dir,
			s->number, token);
	if (used < 0 || (size_t)used >= sizeof(s->agent_path))
		return err_set(e, ERR_INTERNAL, 0, "the run directory's path is too long");
	fd = fd_unix_listen(s->agent_path, SOCK_STREAM | SOCK_NONBLOCK, 0660, AGENT_BACKLOG, e);
	if (fd < 0)
		return -1;
	if (chown(s->agent_path, (uid_t)-1, d->caller_gid) != 0)
		return err_set(e, ERR_IO, errno, "chown of the agent's socket");
	*out_fd = fd_steal(&fd);
	return 0;
}

static int send_create(struct daemon *d, struct slot *s, int listener, int control, struct err *e)
{
	struct zygote_request request = {.version = ZYGOTE_VERSION,
					 .verb = ZYGOTE_CREATE,
					 .serial = s->serial,
					 .flags = d->zygote.idmap ? ZYGOTE_IDMAP : 0,
					 .uid_base = s->uid_base,
					 .workspace_uid = WORKSPACE_UID,
					 .workspace_bytes = s->limits.workspace_bytes,
					 .workspace_inodes = s->limits.workspace_inodes,
					 .tmp_bytes = s->limits.tmp_bytes,
					 .tmp_inodes = s->limits.workspace_inodes};
	int fds[ZYGOTE_FD__FIXED + CG__MAX];
	int group = cgroup_slot_unified(&s->groups);

	fds[ZYGOTE_FD_LISTENER] = listener;
	fds[ZYGOTE_FD_CONTROL] = control;
	fds[ZYGOTE_FD_USERNS] = s->userns;
	fds[ZYGOTE_FD_GROUP] = group >= 0 ? group : s->userns;
	if (group >= 0)
		request.flags |= ZYGOTE_HAS_GROUP;
	if (d->config.netns_ring != 0 && !s->fresh_net)
		ring_take(d, s);
	fds[ZYGOTE_FD_NETNS] = s->netns.fd >= 0 ? s->netns.fd : s->userns;
	if (s->netns.fd >= 0)
		request.flags |= ZYGOTE_HAS_NETNS;
	if (s->pooled)
		request.flags |= ZYGOTE_WAIT;
	request.tasks = (uint32_t)cgroup_slot_tasks(&s->groups, fds + ZYGOTE_FD__FIXED);
	return zygote_send(d, &request, fds, ZYGOTE_FD__FIXED + request.tasks, e);
}

int box_build(struct daemon *d, struct slot *s, struct err *e)
{
	scope_close int listener = -1;
	scope_close int ours = -1;
	scope_close int theirs = -1;
	int pair[2];

	if (slot_prepare(d, s, e) != 0 ||
	    cgroup_slot_set(&d->groups, &s->groups, &s->limits, e) != 0 ||
	    open_agent_socket(d, s, &listener, e) != 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
		return err_set(e, ERR_IO, errno, "socketpair");
	ours = pair[0];
	theirs = pair[1];
	if (watch_open(d, &s->control, ours, box_on_control, s, e) != 0)
		return -1;
	(void)fd_steal(&ours);
	return send_create(d, s, listener, theirs, e);
}

/* What belongs to the request and not to the building. */
static void take_request(struct slot *s, const struct box_request *request)
{
	s->limits = request->limits;
	memcpy(s->run_id, request->run_id, sizeof(s->run_id));
	memcpy(s->workspace, request->workspace, sizeof(s->workspace));
	s->make_bytes = request->make_bytes;
	s->make_inodes = request->make_inodes;
	s->maintain = request->verb == BOX_MAINTAIN;
	s->shared_proc = (request->flags & BOX_SHARED_PROC) != 0;
	s->created_us = clock_monotonic_us();
	s->until_us = request->lifetime_ms == 0
			  ? 0
			  : s->created_us + (int64_t)request->lifetime_ms * CLOCK_US_PER_MS;
}

void box_reset(struct daemon *d, struct slot *s, const struct box_request *request)
{
	s->serial = ++d->next_serial;
	s->agent_path[0] = '\0';
	s->free_when_ended = false;
	s->adopted = false;
	s->pooled = false;
	s->claimed = false;
	s->attached = false;
	s->workspace_tries = 0;
	s->workspace_state = SLOT_WORKSPACE_NONE;
	s->fresh_net = (request->flags & BOX_FRESH_NET) != 0;
	take_request(s, request);
	s->warm = false;
	s->replied = false;
	s->ready = false;
	s->reaped = false;
	s->pid = 0;
	s->start_ticks = 0;
	s->end_status = 0;
	s->ended_us = 0;
	s->fail_code = BOX_ERR_FAILED;
	s->fail_sys = 0;
	s->fail_text[0] = '\0';
	memset(&s->stats, 0, sizeof(s->stats));
	memset(s->pending, 0, sizeof(s->pending));
	s->state = BOX_BUILDING;
}

/* A create that repeats the run id of a box that we took over: the answer to the first create was
 * lost with the earlier cordon-box, so nobody knows of that box or ever will. */
static void end_forgotten(struct daemon *d, const char *run_id)
{
	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];

		if (!s->adopted || s->state == BOX_STATE_NONE || !str_equal(s->run_id, run_id))
			continue;
		log_event(LOG_WARNING, "box_forgotten", "slot=%u run=%s", s->number, run_id);
		s->free_when_ended = true;
		if (s->state == BOX_DEAD)
			box_ended(d, s);
		else
			box_begin_end(s);
	}
}

/* Makes a box of the pool the one of this request. */
static void claim(struct slot *s, const struct box_request *request)
{
	take_request(s, request);
	s->claimed = s->state == BOX_BUILDING;
}

/* No slot is free: a box that waits with the other kind of network. A fresh one serves all; one of
 * the ring makes room, and the caller asks again. */
static struct slot *choose_other(struct daemon *d, bool fresh_net)
{
	struct slot *s = pool_find(d, false, !fresh_net);

	if (s == NULL)
		s = pool_find(d, true, !fresh_net);
	if (s == NULL || !fresh_net)
		return s;
	s->free_when_ended = true;
	box_begin_end(s);
	return NULL;
}

/* A waiting box, else a free slot, else a box that is being built for the pool. */
static struct slot *choose(struct daemon *d, const struct box_request *request)
{
	bool fresh_net = (request->flags & BOX_FRESH_NET) != 0;
	struct slot *s = pool_find(d, false, fresh_net);

	if (s != NULL) {
		claim(s, request);
		s->warm = true;
		d->warm++;
		return s;
	}
	s = box_free_slot(d);
	if (s != NULL) {
		box_reset(d, s, request);
		/* it must wait for what is done at assignment */
		s->pooled = request->workspace[0] != '\0' || s->maintain || s->shared_proc;
		d->cold++;
		return s;
	}
	s = pool_find(d, true, fresh_net);
	if (s == NULL)
		s = choose_other(d, fresh_net);
	if (s != NULL) {
		claim(s, request);
		d->warm++;
	}
	return s;
}

void box_create(struct daemon *d, uint64_t client, const struct box_request *request)
{
	struct err e = ERR_INIT;
	struct slot *s;

	if (!str_equal(request->image, IMAGE_HOST)) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_UNSUPPORTED, 0,
			   "no such image; there is: " IMAGE_HOST);
		return;
	}
	if (box_limits_check(&request->limits, &d->ceilings, &e) != 0) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_INVALID, 0, e.text);
		return;
	}
	if (!workspace_may_make(d, request)) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_INVALID, 0,
			   "size or inodes of the workspace are out of range");
		return;
	}
	d->cpu_millis = request->limits.cpu_millis;
	end_forgotten(d, request->run_id);
	s = choose(d, request);
	if (s == NULL) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_BUSY, 0,
			   "all slots are in use");
		return;
	}
	(void)box_add_pending(s, client, request);
	if (s->claimed)
		return;                                     /* pool_ready goes on */
	s->claimed = s->pooled && s->state == BOX_BUILDING; /* built now, assigned when it waits */
	if ((s->state == BOX_WAITING ? pool_assign(d, s, &e) : box_build(d, s, &e)) != 0) {
		log_err(e.code == ERR_UNAVAILABLE ? LOG_INFO : LOG_ERROR, "create", &e,
			"slot=%u run=%s", s->number, s->run_id);
		if (s->pid == 0)
			s->replied = true; /* no process was made */
		/* a zygote that is being started again is there in a moment: the caller asks again
		 */
		box_fail_create(s, e.code == ERR_UNAVAILABLE ? BOX_ERR_BUSY : BOX_ERR_FAILED, e.sys,
				e.text);
		box_check_ended(d, s);
	}
}
