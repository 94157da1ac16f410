/*
 * boxclient.h: client of cordon-box, by runners/base/boxproto.h.
 *
 * No loop inside: the caller owns the poll, this module owns the descriptor.
 *
 *	static const struct boxclient_events events = {.reply = on_reply, .died = on_died, ...};
 *	struct boxclient c;
 *	boxclient_init(&c, &events, ctx);
 *	boxclient_connect(&c, "<run-dir>/box/box.sock", &e);
 *	boxclient_create(&c, tag, run_id, "host", &limits, 5000, &e);
 *	loop:
 *	  poll boxclient_fd(&c) for POLLIN, and for POLLOUT while boxclient_wants_write(&c)
 *	  boxclient_ready(&c, &e)		 calls the events
 *	on_reply(create): slot and agent_path are the box's; talk to it with runners/core/agent.h
 *	boxclient_destroy(&c, tag2, slot, run_id, 10000, &e);
 *	on_reply(destroy): stats is what the box used; nothing of it is left
 *	boxclient_release(&c);
 *
 * Tags are the caller's, not 0. Every request gets exactly one reply with its tag, at its deadline
 * at the latest (deadline_ms 0: the verb's default; at most BOX_DEADLINE_MAX_MS); replies come in
 * any order. When the connection ends (ERR_UNAVAILABLE), boxes live on and replies are lost:
 * connect again and use boxclient_list to find out what there is. `died` tells that pid 1 of a box
 * ended unasked (memory, for one): the box stays listed, as BOX_DEAD, until it is destroyed.
 */
#ifndef CORDON_CORE_BOXCLIENT_H
#define CORDON_CORE_BOXCLIENT_H

#include "runners/base/boxproto.h"
#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct boxclient_events {
	void (*reply)(void *ctx, const struct box_reply *reply);
	void (*entry)(void *ctx, const struct box_reply *entry); /* of a list */
	void (*died)(void *ctx, const struct box_reply *event);
};

struct boxclient {
	const struct boxclient_events *events;
	void *ctx;
	int fd;
	struct buf out; /* whole requests that the socket did not take */
};

void boxclient_init(struct boxclient *c, const struct boxclient_events *events, void *ctx);
void boxclient_release(struct boxclient *c);
int boxclient_connect(struct boxclient *c, const char *path, struct err *e);
void boxclient_close(struct boxclient *c);
int boxclient_fd(const struct boxclient *c);
bool boxclient_wants_write(const struct boxclient *c);
/* -1: ERR_UNAVAILABLE (cordon-box went away) or ERR_PROTOCOL; the connection is closed then. */
int boxclient_ready(struct boxclient *c, struct err *e);

int boxclient_probe(struct boxclient *c, uint64_t tag, struct err *e);
int boxclient_create(struct boxclient *c, uint64_t tag, const char *run_id, const char *image,
		     const struct box_limits *limits, uint32_t deadline_ms, struct err *e);
/* A create with all that can be said of a box. */
struct box_wish {
	const char *run_id;
	const char *image;
	const struct box_limits *limits;
	const char *workspace; /* one that stays, made before; NULL: a tmpfs */
	uint64_t make_bytes;   /* it is made with that room if it is not there; 0: it must be */
	uint64_t make_inodes;
	bool fresh_net;       /* a network namespace that nobody had before */
	bool shared_proc;     /* commands see each other */
	bool maintain;        /* no commands: to look after a workspace; needs lifetime_ms */
	uint32_t lifetime_ms; /* 0: until it is destroyed */
	uint32_t deadline_ms;
};
int boxclient_make(struct boxclient *c, uint64_t tag, const struct box_wish *wish, struct err *e);
/* verb: BOX_WORKSPACE_MAKE (of that usable size and number of inodes), _DELETE, _INFO (0 and 0).
 * The reply's code: busy when it is there already, or in use; not_found. */
int boxclient_workspace(struct boxclient *c, enum box_verb verb, uint64_t tag,
			const char *workspace, uint64_t bytes, uint64_t inodes, struct err *e);
/* `workspace` becomes a copy of `source`; that is made first if it is not there and make_bytes is
 * not 0. The reply's code: busy when a box has one of them; workspace_used tells the size. */
int boxclient_copy(struct boxclient *c, uint64_t tag, const char *source, const char *workspace,
		   uint64_t make_bytes, uint64_t make_inodes, struct err *e);
/* The workspace and all copies with its name, a point and more. */
int boxclient_workspace_remove(struct boxclient *c, uint64_t tag, const char *workspace,
			       struct err *e);
/* verb: BOX_KILL, BOX_DESTROY, BOX_STATS, BOX_FREEZE or BOX_THAW */
int boxclient_verb(struct boxclient *c, enum box_verb verb, uint64_t tag, uint32_t slot,
		   const char *run_id, uint32_t deadline_ms, struct err *e);
int boxclient_list(struct boxclient *c, uint64_t tag, struct err *e);
/* Waiting boxes too. */
int boxclient_list_all(struct boxclient *c, uint64_t tag, struct err *e);

static inline int boxclient_destroy(struct boxclient *c, uint64_t tag, uint32_t slot,
				    const char *run_id, uint32_t deadline_ms, struct err *e)
{
	return boxclient_verb(c, BOX_DESTROY, tag, slot, run_id, deadline_ms, e);
}

#endif
