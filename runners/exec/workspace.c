/* Who uses which workspace, and the keepers (workspace.h). */
#include "runners/exec/workspace.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"
#include "runners/exec/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LINGER_US   (2 * CLOCK_US_PER_S) /* a next run of the same session finds it open */
#define SPARE_ROOMS 64U                  /* workspaces without a box: being made, lingering */
#define HIGH_FD     100
#define TRIES       3U /* keepers for one box */

/*
 * FREE -> OPEN (a keeper lives) -> CLOSING (its socket is shut, it writes back and ends) -> FREE.
 * Who wants a workspace that is closing waits for the next keeper.
 */
enum workspace_state { WORKSPACE_FREE, WORKSPACE_OPEN, WORKSPACE_CLOSING };

struct workspace {
	enum workspace_state state;
	char id[WORKSPACE_ID_SIZE];
	pid_t pid;
	struct watch socket;
	struct watch process;
	unsigned int users; /* boxes that have it or will have it */
	int64_t unused_us;  /* since when nobody has, 0: somebody does */
	/* a MAKE, DELETE or INFO under way */
	uint64_t client;
	uint64_t tag;
	uint32_t verb;                  /* enum box_verb, 0: none */
	char source[WORKSPACE_ID_SIZE]; /* of a COPY under way */
};

int workspaces_open(struct daemon *d, struct err *e)
{
	char path[4096];

	if ((size_t)snprintf(path, sizeof(path), "%s/" WORKSPACE_FOLDER, d->data_dir) >=
	    sizeof(path))
		return err_set(e, ERR_INVALID, 0, "--data-dir is too long");
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "mkdir %s", path);
	d->workspaces_dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (d->workspaces_dir < 0 || fchown(d->workspaces_dir, 0, 0) != 0 ||
	    fchmod(d->workspaces_dir, 0700) != 0)
		return err_set(e, ERR_IO, errno, "%s", path);
	volume_tidy(d->workspaces_dir);
	d->workspace_count = (unsigned int)d->config.slots + SPARE_ROOMS;
	d->workspaces = mem_zalloc(d->workspace_count, sizeof(*d->workspaces));
	if (d->workspaces == NULL)
		return err_set(e, ERR_NOMEM, 0, "no memory for workspaces");
	for (unsigned int i = 0; i < d->workspace_count; i++) {
		d->workspaces[i].socket.fd = -1;
		d->workspaces[i].process.fd = -1;
	}
	return 0;
}

static struct workspace *find(struct daemon *d, const char *id)
{
	for (unsigned int i = 0; i < d->workspace_count; i++)
		if (d->workspaces[i].state != WORKSPACE_FREE && str_equal(d->workspaces[i].id, id))
			return &d->workspaces[i];
	return NULL;
}

/* --- keepers --------------------------------------------------------------------------------- */

static void on_reply(struct daemon *d, void *ctx, uint32_t events);
static void on_end(struct daemon *d, void *ctx, uint32_t events);

static __attribute__((noreturn)) void become_keeper(const struct daemon *d, int socket,
						    const char *id)
{
	int high = fcntl(socket, F_DUPFD_CLOEXEC, HIGH_FD);
	int folder = fcntl(d->workspaces_dir, F_DUPFD_CLOEXEC, HIGH_FD);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (high < 0 || folder < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
	    dup3(high, 3, O_CLOEXEC) < 0 || dup3(folder, 4, O_CLOEXEC) < 0 ||
	    close_range(5, ~0U, 0) != 0)
		_exit(79);
	keeper_run(3, 4, id);
}

static int start_keeper(struct daemon *d, struct workspace *w, struct err *e)
{
	scope_close int ours = -1;
	scope_close int theirs = -1;
	scope_close int process = -1;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return err_set(e, ERR_IO, errno, "socketpair");
	ours = pair[0];
	theirs = pair[1];
	if (fd_set_nonblock(ours, true, e) != 0)
		return -1;
	w->pid = proc_fork();
	if (w->pid < 0)
		return err_set(e, ERR_IO, errno, "fork");
	if (w->pid == 0)
		become_keeper(d, theirs, w->id);
	process = pidfd_open(w->pid, 0);
	if (process < 0 || watch_open(d, &w->process, process, on_end, w, e) != 0 ||
	    watch_open(d, &w->socket, ours, on_reply, w, e) != 0) {
		(void)kill(w->pid, SIGKILL);
		(void)waitpid(w->pid, NULL, 0);
		if (w->process.fd == process)
			(void)fd_steal(&process);
		watch_close(d, &w->process);
		return err_set(e, ERR_IO, errno, "watch a keeper");
	}
	(void)fd_steal(&process);
	(void)fd_steal(&ours);
	w->state = WORKSPACE_OPEN;
	w->unused_us = clock_monotonic_us();
	return 0;
}

/* Boxes that have it already, by an earlier keeper. */
static unsigned int count_users(const struct daemon *d, const char *id)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < d->config.slots; i++)
		if (d->slots[i].workspace_state == SLOT_WORKSPACE_USED &&
		    str_equal(d->slots[i].workspace, id))
			count++;
	return count;
}

/* The workspace, with a keeper; NULL with the reason. */
static struct workspace *open_one(struct daemon *d, const char *id, struct err *e)
{
	struct workspace *w = find(d, id);

	if (w != NULL)
		return w;
	for (unsigned int i = 0; i < d->workspace_count && w == NULL; i++)
		if (d->workspaces[i].state == WORKSPACE_FREE)
			w = &d->workspaces[i];
	if (w == NULL || str_copy(w->id, sizeof(w->id), id) != 0) {
		(void)err_set(e, ERR_LIMIT, 0, "too many workspaces are open");
		return NULL;
	}
	w->verb = 0;
	if (start_keeper(d, w, e) != 0)
		return NULL;
	w->users = count_users(d, id);
	return w;
}

static void begin_close(struct daemon *d, struct workspace *w)
{
	watch_close(d, &w->socket);
	w->state = WORKSPACE_CLOSING;
}

static void answer_verb(struct daemon *d, struct workspace *w, const struct keeper_reply *reply)
{
	struct box_reply r;

	if (w->verb == 0)
		return;
	box_fill_reply(&r, NULL);
	r.tag = w->tag;
	r.verb = w->verb;
	r.code = reply->code;
	r.sys = reply->sys;
	r.workspace_bytes = reply->bytes;
	r.workspace_used = reply->used;
	(void)memcpy(r.text, reply->text, sizeof(r.text));
	r.text[sizeof(r.text) - 1] = '\0';
	w->verb = 0;
	client_send(d, w->client, &r);
}

static int send_attach(struct workspace *w, struct slot *s, struct err *e)
{
	struct keeper_request request = {.verb = KEEPER_ATTACH,
					 .slot = s->number,
					 .serial = s->serial,
					 .bytes = s->make_bytes,
					 .inodes = s->make_inodes};
	int fds[2] = {s->pidfd.fd, s->userns};

	return fd_send(w->socket.fd, &request, sizeof(request), fds, 2, e) < 0 ? -1 : 0;
}

static void fail_slot(struct slot *s, enum box_code code, int sys, const char *text)
{
	s->workspace_state = SLOT_WORKSPACE_NONE;
	box_fail_create(s, code, sys, text);
}

static void attach_slot(struct workspace *w, struct slot *s)
{
	struct err e = ERR_INIT;

	w->users++;
	w->unused_us = 0;
	s->workspace_state = SLOT_WORKSPACE_USED;
	if (send_attach(w, s, &e) == 0)
		return;
	log_err(LOG_ERROR, "workspace", &e, "slot=%u run=%s", s->number, s->run_id);
	box_fail_create(s, BOX_ERR_FAILED, e.sys, "the workspace's keeper does not listen");
}

static void on_attached(struct daemon *d, const struct keeper_reply *reply)
{
	struct slot *s = reply->slot < d->config.slots ? &d->slots[reply->slot] : NULL;
	struct err e = ERR_INIT;

	if (s == NULL || s->serial != reply->serial || s->state != BOX_BUILDING)
		return; /* it was ended meanwhile */
	if (reply->code != BOX_OK) {
		log_event(LOG_ERROR, "workspace", "slot=%u run=%s errno=%d text=\"%s\"", s->number,
			  s->run_id, reply->sys, reply->text);
		/* a box that died while it waited: another one will do */
		box_fail_create(s, reply->sys == ESRCH ? BOX_ERR_BUSY : reply->code, reply->sys,
				reply->code == BOX_ERR_NOT_FOUND
				    ? "no such workspace"
				    : "the workspace cannot be attached");
		return;
	}
	s->attached = true;
	if (pool_assign(d, s, &e) != 0) {
		log_err(LOG_ERROR, "assign", &e, "slot=%u run=%s", s->number, s->run_id);
		box_fail_create(s, e.code == ERR_UNAVAILABLE ? BOX_ERR_BUSY : BOX_ERR_FAILED, e.sys,
				e.text);
	}
}

static void on_reply(struct daemon *d, void *ctx, uint32_t events)
{
	struct workspace *w = ctx;
	struct keeper_reply reply;
	struct err e = ERR_INIT;
	size_t count;
	ssize_t got = fd_receive(w->socket.fd, &reply, sizeof(reply), NULL, 0, &count, &e);

	(void)events;
	if (got < 0 && e.code == ERR_UNAVAILABLE)
		return;
	if (got != (ssize_t)sizeof(reply) || reply.code >= BOX_CODE__MAX) {
		begin_close(d, w); /* it died; on_end tells who waits */
		return;
	}
	reply.text[sizeof(reply.text) - 1] = '\0';
	if (reply.verb == KEEPER_ATTACH)
		on_attached(d, &reply);
	else
		answer_verb(d, w, &reply);
}

/* The keeper has ended: who waited for that gets a new one. */
static void on_end(struct daemon *d, void *ctx, uint32_t events)
{
	struct workspace *w = ctx;
	struct keeper_reply lost = {.code = BOX_ERR_FAILED, .text = "the workspace's keeper died"};
	char id[WORKSPACE_ID_SIZE];
	int status = 0;

	(void)events;
	if (waitpid(w->pid, &status, WNOHANG) != w->pid)
		return;
	watch_close(d, &w->process);
	watch_close(d, &w->socket);
	if (status != 0)
		log_event(LOG_ERROR, "keeper_died", "workspace=%s status=%d", w->id, status);
	answer_verb(d, w, &lost);
	(void)memcpy(id, w->id, sizeof(id));
	w->state = WORKSPACE_FREE;
	w->users = 0;
	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];
		struct err e = ERR_INIT;

		if (!str_equal(s->workspace, id) || s->workspace_state == SLOT_WORKSPACE_NONE)
			continue;
		if (s->workspace_state == SLOT_WORKSPACE_USED &&
		    (s->state != BOX_BUILDING || s->attached))
			continue; /* it has its own mount and lives on */
		if (s->workspace_tries++ >= TRIES) {
			fail_slot(s, BOX_ERR_FAILED, 0, lost.text);
			continue;
		}
		s->workspace_state = SLOT_WORKSPACE_WAITS;
		w = open_one(d, id, &e);
		if (w == NULL)
			fail_slot(s, BOX_ERR_FAILED, e.sys, e.text);
		else
			attach_slot(w, s);
	}
}

/* --- boxes ----------------------------------------------------------------------------------- */

/* Somebody makes a copy of it now. */
static bool is_copied(const struct daemon *d, const char *id)
{
	for (unsigned int i = 0; i < d->workspace_count; i++)
		if (d->workspaces[i].state != WORKSPACE_FREE &&
		    d->workspaces[i].verb == BOX_WORKSPACE_COPY &&
		    str_equal(d->workspaces[i].source, id))
			return true;
	return false;
}

bool workspace_is_keeper(const struct daemon *d, pid_t pid)
{
	for (unsigned int i = 0; i < d->workspace_count; i++)
		if (d->workspaces[i].state != WORKSPACE_FREE && d->workspaces[i].pid == pid)
			return true;
	return false;
}

int workspace_attach(struct daemon *d, struct slot *s, struct err *e)
{
	struct workspace *w;

	if (is_copied(d, s->workspace))
		return err_set(e, ERR_UNAVAILABLE, 0, "the workspace is being copied");
	w = open_one(d, s->workspace, e);
	if (w == NULL)
		return -1;
	if (w->verb != 0)
		return err_set(e, ERR_UNAVAILABLE, 0, "the workspace is being made or removed");
	if (w->state == WORKSPACE_CLOSING)
		s->workspace_state = SLOT_WORKSPACE_WAITS;
	else
		attach_slot(w, s);
	return 0;
}

void workspace_release(struct daemon *d, struct slot *s)
{
	struct workspace *w =
	    s->workspace_state == SLOT_WORKSPACE_USED ? find(d, s->workspace) : NULL;

	s->workspace_state = SLOT_WORKSPACE_NONE;
	s->attached = false;
	if (w == NULL || w->users == 0)
		return;
	if (--w->users == 0)
		w->unused_us = clock_monotonic_us();
}

/* A box that we took over has its mount; the keeper takes part in it, so that the last write-back
 * is not ours. */
void workspace_adopt(struct daemon *d, struct slot *s)
{
	struct keeper_request request = {.verb = KEEPER_HOLD};
	struct err e = ERR_INIT;
	struct workspace *w = open_one(d, s->workspace, &e);

	s->attached = true;
	s->workspace_state = SLOT_WORKSPACE_USED;
	if (w == NULL || w->state != WORKSPACE_OPEN) {
		log_err(LOG_ERROR, "workspace", &e, "slot=%u", s->number);
		return;
	}
	w->users++;
	w->unused_us = 0;
	if (fd_send(w->socket.fd, &request, sizeof(request), NULL, 0, &e) < 0)
		log_err(LOG_ERROR, "workspace", &e, "slot=%u", s->number);
}

/* --- verbs ----------------------------------------------------------------------------------- */

static uint32_t keeper_verb_of(uint32_t verb)
{
	switch (verb) {
	case BOX_WORKSPACE_MAKE:
		return KEEPER_MAKE;
	case BOX_WORKSPACE_DELETE:
		return KEEPER_DELETE;
	case BOX_WORKSPACE_COPY:
		return KEEPER_COPY;
	default:
		return KEEPER_INFO;
	}
}

static bool in_use(struct daemon *d, const struct workspace *w)
{
	if (w->users > 0 || w->verb != 0 || w->state == WORKSPACE_CLOSING || is_copied(d, w->id))
		return true;
	for (unsigned int i = 0; i < d->config.slots; i++)
		if (d->slots[i].workspace_state != SLOT_WORKSPACE_NONE &&
		    str_equal(d->slots[i].workspace, w->id))
			return true;
	return false;
}

/* The copy reads the file itself: nobody may have it mounted. The keeper of the target waits for
 * the end of the one that we send away. */
static bool free_source(struct daemon *d, const char *id)
{
	struct workspace *w = find(d, id);

	if (w == NULL)
		return true;
	if (w->state == WORKSPACE_CLOSING)
		return w->users == 0;
	if (in_use(d, w))
		return false;
	begin_close(d, w);
	return true;
}

static bool size_is_good(const struct daemon *d, uint64_t bytes, uint64_t inodes)
{
	return bytes >= 1U << 20 && bytes <= d->config.disk_max_mb << 20 && inodes >= 16 &&
	       inodes <= d->ceilings.workspace_inodes;
}

bool workspace_may_make(const struct daemon *d, const struct box_request *request)
{
	return request->make_bytes == 0 ||
	       size_is_good(d, request->make_bytes, request->make_inodes);
}

void workspace_request(struct daemon *d, uint64_t client, const struct box_request *request)
{
	struct keeper_request ask = {.verb = keeper_verb_of(request->verb),
				     .bytes = request->limits.workspace_bytes,
				     .inodes = request->limits.workspace_inodes,
				     .flags = request->flags};
	struct err e = ERR_INIT;
	struct workspace *w;

	if (request->verb == BOX_WORKSPACE_COPY) {
		ask.bytes = request->make_bytes;
		ask.inodes = request->make_inodes;
		(void)memcpy(ask.source, request->source, sizeof(ask.source));
	}
	if ((request->verb == BOX_WORKSPACE_MAKE && !size_is_good(d, ask.bytes, ask.inodes)) ||
	    !workspace_may_make(d, request)) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_INVALID, 0,
			   "size or inodes of the workspace are out of range");
		return;
	}
	w = open_one(d, request->workspace, &e);
	if (w == NULL) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_FAILED, e.sys, e.text);
		return;
	}
	if (request->verb != BOX_WORKSPACE_INFO ? in_use(d, w)
						: w->verb != 0 || w->state == WORKSPACE_CLOSING) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_BUSY, 0,
			   "the workspace is in use");
		return;
	}
	if (request->verb == BOX_WORKSPACE_COPY && !free_source(d, request->source)) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_BUSY, 0,
			   "the source is in use");
		return;
	}
	if (fd_send(w->socket.fd, &ask, sizeof(ask), NULL, 0, &e) < 0) {
		box_refuse(d, client, request->tag, request->verb, BOX_ERR_FAILED, e.sys,
			   "the workspace's keeper does not listen");
		return;
	}
	w->client = client;
	w->tag = request->tag;
	w->verb = request->verb;
	(void)memcpy(w->source, ask.source, sizeof(w->source));
}

/* --- time ------------------------------------------------------------------------------------ */

int64_t workspace_turn(struct daemon *d, int64_t now_us)
{
	int64_t next = INT64_MAX;

	for (unsigned int i = 0; i < d->workspace_count; i++) {
		struct workspace *w = &d->workspaces[i];

		if (w->state != WORKSPACE_OPEN || w->users > 0 || w->verb != 0)
			continue;
		if (now_us >= w->unused_us + LINGER_US)
			begin_close(d, w);
		else if (w->unused_us + LINGER_US < next)
			next = w->unused_us + LINGER_US;
	}
	return next;
}

void workspaces_close(struct daemon *d)
{
	for (unsigned int i = 0; i < d->workspace_count; i++) {
		struct workspace *w = &d->workspaces[i];

		if (w->state == WORKSPACE_FREE)
			continue;
		watch_close(d, &w->socket);
		watch_close(d, &w->process);
		/* the end of its socket ends it, behind its last write-back */
		(void)waitpid(w->pid, NULL, 0);
	}
	mem_free(d->workspaces);
	d->workspaces = NULL;
	d->workspace_count = 0;
	fd_close_at(&d->workspaces_dir);
}
