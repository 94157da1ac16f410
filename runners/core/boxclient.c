#include "runners/core/boxclient.h"

#include "runners/base/fdio.h"
#include "runners/base/str.h"

#include <errno.h>
#include <sys/socket.h>

#define OUT_RECORDS 4096U
#define READ_ROUNDS 64

void boxclient_init(struct boxclient *c, const struct boxclient_events *events, void *ctx)
{
	memset(c, 0, sizeof(*c));
	c->events = events;
	c->ctx = ctx;
	c->fd = -1;
	buf_init(&c->out, OUT_RECORDS * sizeof(struct box_request));
}

void boxclient_close(struct boxclient *c)
{
	fd_close_at(&c->fd);
	buf_reset(&c->out);
}

void boxclient_release(struct boxclient *c)
{
	boxclient_close(c);
	buf_release(&c->out);
}

int boxclient_connect(struct boxclient *c, const char *path, struct err *e)
{
	boxclient_close(c);
	c->fd = fd_unix_connect(path, SOCK_SEQPACKET | SOCK_NONBLOCK, e);
	return c->fd < 0 ? -1 : 0;
}

int boxclient_fd(const struct boxclient *c)
{
	return c->fd;
}

bool boxclient_wants_write(const struct boxclient *c)
{
	return c->out.len > 0;
}

static int flush(struct boxclient *c, struct err *e)
{
	while (c->out.len > 0) {
		ssize_t done = send(c->fd, c->out.data, sizeof(struct box_request), MSG_NOSIGNAL);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && errno == EAGAIN)
			return 0;
		if (done < 0)
			return err_set(e, ERR_UNAVAILABLE, errno, "cordon-box");
		buf_consume(&c->out, sizeof(struct box_request));
	}
	return 0;
}

static int put(struct boxclient *c, const struct box_request *request, struct err *e)
{
	struct err ignored = ERR_INIT;
	size_t before = c->out.len;

	if (c->fd < 0)
		return err_set(e, ERR_UNAVAILABLE, 0, "not connected to cordon-box");
	buf_add(&c->out, request, sizeof(*request));
	if (!buf_ok(&c->out)) {
		c->out.failed = false;
		c->out.len = before;
		return err_set(e, ERR_LIMIT, 0, "too many requests wait for cordon-box");
	}
	/* a broken connection is found by boxclient_ready() */
	(void)flush(c, &ignored);
	return 0;
}

static void fill(struct box_request *r, enum box_verb verb, uint64_t tag, uint32_t deadline_ms)
{
	memset(r, 0, sizeof(*r));
	r->version = BOX_VERSION;
	r->verb = verb;
	r->tag = tag;
	r->slot = BOX_NO_SLOT;
	r->deadline_ms = deadline_ms;
}

static int set_run_id(struct box_request *r, const char *run_id, struct err *e)
{
	if (box_run_id_check(run_id, e) != 0)
		return -1;
	return str_copy(r->run_id, sizeof(r->run_id), run_id);
}

static int set_workspace(struct box_request *r, const char *workspace, struct err *e)
{
	if (box_run_id_check(workspace, e) != 0)
		return -1;
	return str_copy(r->workspace, sizeof(r->workspace), workspace);
}

int boxclient_probe(struct boxclient *c, uint64_t tag, struct err *e)
{
	struct box_request r;

	fill(&r, BOX_PROBE, tag, 0);
	return put(c, &r, e);
}

int boxclient_list(struct boxclient *c, uint64_t tag, struct err *e)
{
	struct box_request r;

	fill(&r, BOX_LIST, tag, 0);
	return put(c, &r, e);
}

int boxclient_list_all(struct boxclient *c, uint64_t tag, struct err *e)
{
	struct box_request r;

	fill(&r, BOX_LIST, tag, 0);
	r.slot = BOX_ALL_SLOTS;
	return put(c, &r, e);
}

int boxclient_make(struct boxclient *c, uint64_t tag, const struct box_wish *wish, struct err *e)
{
	struct box_request r;

	fill(&r, wish->maintain ? BOX_MAINTAIN : BOX_CREATE, tag, wish->deadline_ms);
	if (set_run_id(&r, wish->run_id, e) != 0)
		return -1;
	if (str_copy(r.image, sizeof(r.image), wish->image) != 0)
		return err_set(e, ERR_INVALID, 0, "the image's name is too long");
	if (wish->workspace != NULL && set_workspace(&r, wish->workspace, e) != 0)
		return -1;
	r.limits = *wish->limits;
	r.flags = (wish->fresh_net ? BOX_FRESH_NET : 0) | (wish->shared_proc ? BOX_SHARED_PROC : 0);
	r.lifetime_ms = wish->lifetime_ms;
	r.make_bytes = wish->make_bytes;
	r.make_inodes = wish->make_inodes;
	return put(c, &r, e);
}

int boxclient_create(struct boxclient *c, uint64_t tag, const char *run_id, const char *image,
		     const struct box_limits *limits, uint32_t deadline_ms, struct err *e)
{
	struct box_wish wish = {
	    .run_id = run_id, .image = image, .limits = limits, .deadline_ms = deadline_ms};

	return boxclient_make(c, tag, &wish, e);
}

int boxclient_workspace(struct boxclient *c, enum box_verb verb, uint64_t tag,
			const char *workspace, uint64_t bytes, uint64_t inodes, struct err *e)
{
	struct box_request r;

	fill(&r, verb, tag, 0);
	if (set_workspace(&r, workspace, e) != 0)
		return -1;
	r.limits.workspace_bytes = bytes;
	r.limits.workspace_inodes = inodes;
	return put(c, &r, e);
}

int boxclient_copy(struct boxclient *c, uint64_t tag, const char *source, const char *workspace,
		   uint64_t make_bytes, uint64_t make_inodes, struct err *e)
{
	struct box_request r;

	fill(&r, BOX_WORKSPACE_COPY, tag, BOX_DEADLINE_MAX_MS);
	if (set_workspace(&r, workspace, e) != 0)
		return -1;
	if (str_copy(r.source, sizeof(r.source), source) != 0)
		return err_set(e, ERR_INVALID, 0, "the source's name is too long");
	r.make_bytes = make_bytes;
	r.make_inodes = make_inodes;
	return put(c, &r, e);
}

int boxclient_workspace_remove(struct boxclient *c, uint64_t tag, const char *workspace,
			       struct err *e)
{
	struct box_request r;

	fill(&r, BOX_WORKSPACE_DELETE, tag, 0);
	if (set_workspace(&r, workspace, e) != 0)
		return -1;
	r.flags = BOX_WITH_COPIES;
	return put(c, &r, e);
}

int boxclient_verb(struct boxclient *c, enum box_verb verb, uint64_t tag, uint32_t slot,
		   const char *run_id, uint32_t deadline_ms, struct err *e)
{
	struct box_request r;

	fill(&r, verb, tag, deadline_ms);
	r.slot = slot;
	if (set_run_id(&r, run_id, e) != 0)
		return -1;
	return put(c, &r, e);
}

static void deliver(struct boxclient *c, const struct box_reply *reply)
{
	switch ((enum box_record)reply->record) {
	case BOX_RECORD_REPLY:
		if (c->events->reply != NULL)
			c->events->reply(c->ctx, reply);
		break;
	case BOX_RECORD_ENTRY:
		if (c->events->entry != NULL)
			c->events->entry(c->ctx, reply);
		break;
	case BOX_RECORD_DIED:
		if (c->events->died != NULL)
			c->events->died(c->ctx, reply);
		break;
	case BOX_RECORD__MAX:
		break;
	}
}

/* 1: a record was read, 0: nothing there, -1. */
static int read_record(struct boxclient *c, struct err *e)
{
	char data[sizeof(struct box_reply) + 1];
	struct box_reply reply;
	ssize_t got;

	do
		got = recv(c->fd, data, sizeof(data), 0);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		return 0;
	if (got <= 0)
		return err_set(e, ERR_UNAVAILABLE, got < 0 ? errno : 0,
			       "cordon-box closed the connection");
	if (box_reply_check(data, (size_t)got, &reply, e) != 0)
		return -1;
	deliver(c, &reply);
	return 1;
}

int boxclient_ready(struct boxclient *c, struct err *e)
{
	int got = 1;

	if (c->fd < 0)
		return err_set(e, ERR_UNAVAILABLE, 0, "not connected to cordon-box");
	for (int round = 0; round < READ_ROUNDS && got == 1; round++)
		got = read_record(c, e);
	if (got < 0 || flush(c, e) != 0) {
		boxclient_close(c);
		return -1;
	}
	return 0;
}
