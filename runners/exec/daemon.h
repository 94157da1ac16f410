/*
 * daemon.h: the parts of cordon-box and what they share. One thread, one epoll loop; every object
 * belongs to the struct daemon of main.c.
 *
 *	main.c	    options, start, loop, stop
 *	client.c    connections of the caller: records in, records out
 *	box.c	    the life of a box: ready, end, the slot free again
 *	box_make.c  the making of a box
 *	box_verbs.c what the caller asks for
 *	pool.c	    boxes and network namespaces made ahead
 *	box_adopt.c slot files, and boxes of an earlier cordon-box taken over
 *	workspace.c workspaces that stay, by their keepers (keeper.c, volume.c)
 *	slot.c	    what a slot keeps: ids, user namespace, groups
 *	zygote.c    the zygote process: start, requests, replies, its death
 *	image_host.c, cgroup_*.c, filter.c, box_limits.c
 */
#ifndef CORDON_EXEC_DAEMON_H
#define CORDON_EXEC_DAEMON_H

#include "runners/base/boxproto.h"
#include "runners/base/buf.h"
#include "runners/base/zygoteproto.h"
#include "runners/exec/box_limits.h"
#include "runners/exec/cgroup.h"
#include "runners/exec/slot_file.h"

#include <sys/types.h>

#define DAEMON_MAX_CLIENTS 16
#define DAEMON_MAX_PENDING 4  /* unanswered requests per box */
#define DAEMON_UID_LOCKS   17 /* blocks of 2^22 ids that all slots can touch */

struct daemon;

/* A descriptor in the loop. fn is called with the ready events. */
struct watch {
	int fd; /* -1: not watched; closed by watch_close */
	void (*fn)(struct daemon *d, void *ctx, uint32_t events);
	void *ctx;
};

struct client {
	struct watch watch;
	uint64_t serial; /* who it is, for requests that are answered later */
	struct buf out;  /* whole records that the socket did not take */
};

/* A request that waits for its box. */
struct pending {
	uint64_t client; /* serial of the client, 0: free */
	uint64_t tag;
	uint32_t verb;
	int64_t deadline_us;
};

/* A network namespace of the initial user namespace with lo up; no live box shares one. */
#define RING_MAX 64
struct netns {
	int fd; /* -1: none */
	unsigned int uses;
};
struct ring {
	struct netns at[RING_MAX];
	unsigned int first;
	unsigned int count;
	bool asked; /* the zygote is making one */
};

enum slot_workspace {
	SLOT_WORKSPACE_NONE,
	SLOT_WORKSPACE_WAITS, /* for the earlier keeper's end */
	SLOT_WORKSPACE_USED   /* asked for, or attached */
};

struct slot {
	unsigned int number;
	bool prepared; /* userns and groups are there */
	bool retired;  /* its processes would not die: never used again */
	int userns;
	uint32_t uid_base;
	struct cgroup_slot groups;

	/* the present box */
	enum box_state state;
	bool free_when_ended; /* destroy, or a create that failed */
	bool adopted;         /* made by an earlier cordon-box */
	uint64_t serial;      /* of the create; replies of older ones are dropped */
	char run_id[BOX_RUN_ID_SIZE];
	char agent_path[BOX_PATH_SIZE];
	struct box_limits limits;
	char workspace[BOX_RUN_ID_SIZE]; /* one that stays; empty: a tmpfs */
	enum slot_workspace workspace_state;
	unsigned int workspace_tries;
	uint64_t make_bytes; /* of a workspace that is not there yet; 0: it must be */
	uint64_t make_inodes;
	bool attached;    /* the workspace is mounted in the box */
	bool maintain;    /* no commands */
	bool shared_proc; /* commands see each other */
	bool fresh_net;   /* a network namespace of its own, not the ring's */
	int64_t until_us; /* 0, or when it is ended */
	struct watch control;
	bool pooled;             /* built ahead, not assigned */
	bool claimed;            /* pooled, being built, and a create waits for it */
	bool warm;               /* it waited built when the create came */
	int parts[ZYGOTE_PARTS]; /* of a waiting box; -1 */
	struct netns netns;
	struct watch pidfd;
	bool replied; /* the zygote's answer came */
	bool ready;   /* the box says that it is built */
	bool reaped;
	pid_t pid;
	uint64_t start_ticks; /* of that process, 0: not read yet */
	int end_status;
	int64_t created_us;
	int64_t ended_us;
	int64_t give_up_us; /* ENDING: when the slot is retired */
	int64_t kill_again_us;
	int64_t recheck_us; /* 0: no timer */
	enum box_code fail_code;
	int fail_sys;
	char fail_text[BOX_TEXT_SIZE];
	struct box_stats stats; /* DEAD: the last ones */
	struct pending pending[DAEMON_MAX_PENDING];
};

struct zygote {
	pid_t pid;
	struct watch watch;
	bool configured;
	bool idmap;
	int64_t started_us;
	int64_t restart_us; /* when a dead one is started again */
};

struct daemon {
	/* options */
	const char *run_dir;
	const char *data_dir;
	const char *instance;
	const char *init_path;
	uid_t caller_uid;
	gid_t caller_gid;

	struct box_config config;
	struct box_limits ceilings;
	struct cgroups groups;
	int epoll;
	int lock_fd;
	int instance_lock;
	int uid_locks[DAEMON_UID_LOCKS];
	int init_fd;    /* the cordon-init program */
	int filter_fd;  /* its seccomp program */
	int agents_dir; /* where the agents' sockets are */
	int boxes_dir;  /* slot files */
	struct watch listener;
	struct watch signals;
	struct zygote zygote;
	struct slot *slots;
	struct client clients[DAEMON_MAX_CLIENTS];
	uint64_t next_serial;
	struct ring ring;
	int workspaces_dir;
	struct workspace *workspaces;
	unsigned int workspace_count;
	uint64_t warm;       /* creates served by a waiting box */
	uint64_t cold;       /* creates that built one */
	uint32_t cpu_millis; /* of the last create */
	int64_t refill_us;   /* not before, after a failure */
	int64_t stop_by_us;  /* 0: not stopping */
	bool end_boxes;      /* stopping ends all boxes; else live ones stay */
	bool adopting;       /* a start that fails now must not end what it found */
};

/* main.c */
int watch_open(struct daemon *d, struct watch *w, int fd,
	       void (*fn)(struct daemon *d, void *ctx, uint32_t events), void *ctx, struct err *e);
void watch_close(struct daemon *d, struct watch *w);
void watch_events(struct daemon *d, const struct watch *w, uint32_t events);

/* client.c */
void client_accept(struct daemon *d, void *ctx, uint32_t events);
/* Sends a record to the client with that serial, if it is still there. */
void client_send(struct daemon *d, uint64_t serial, const struct box_reply *reply);
void client_broadcast(struct daemon *d, const struct box_reply *reply);
void client_close_all(struct daemon *d);

/* box.c */
void box_refuse(struct daemon *d, uint64_t client, uint64_t tag, uint32_t verb, enum box_code code,
		int sys, const char *text);
void box_zygote_reply(struct daemon *d, const struct zygote_reply *reply, int pidfd);
void box_zygote_died(struct daemon *d);
/* Before we leave: ends what is not live and, with d->end_boxes, all boxes. */
void box_end_all(struct daemon *d);
/* A box that must end before we leave. */
bool box_any(const struct daemon *d);
/* Deadlines and rechecks; the next time that something is due, INT64_MAX for none. */
int64_t box_turn(struct daemon *d, int64_t now_us);

/* box.c, for the other parts */
/* pid 1 of a box has ended. */
void box_on_pidfd(struct daemon *d, void *ctx, uint32_t events);
void box_fill_reply(struct box_reply *r, const struct slot *s);
void box_answer_verb(struct daemon *d, struct slot *s, uint32_t verb, enum box_code code, int sys,
		     const char *text);
/* -1 when too many wait already. */
int box_add_pending(struct slot *s, uint64_t client, const struct box_request *request);
void box_read_stats(struct daemon *d, struct slot *s);
/* LIVE, if nothing is missing any more. */
void box_check_ready(struct daemon *d, struct slot *s);
/* The watch of a slot's control socket. */
void box_on_control(struct daemon *d, void *ctx, uint32_t events);
/* Kills; the box is over at a later event or turn. */
void box_begin_end(struct slot *s);
void box_fail_create(struct slot *s, enum box_code code, int sys, const char *text);
void box_check_ended(struct daemon *d, struct slot *s);
/* Nothing is left of it: answers who waits for that. */
void box_ended(struct daemon *d, struct slot *s);

/* box_make.c */
void box_create(struct daemon *d, uint64_t client, const struct box_request *request);
struct slot *box_free_slot(struct daemon *d);
void box_reset(struct daemon *d, struct slot *s, const struct box_request *request);
/* Starts the building in a slot that was reset. */
int box_build(struct daemon *d, struct slot *s, struct err *e);

/* pool.c */
/* A network namespace for this slot, if one is ready; given back when the box is no more. */
void ring_take(struct daemon *d, struct slot *s);
void ring_give_back(struct daemon *d, struct slot *s);
/* What the zygote made; -1: it could not. */
void ring_add(struct daemon *d, int fd);
void ring_close(struct daemon *d);
/* The oldest waiting box with such a network namespace, or one that is being built for the pool and
 * not claimed; or NULL. */
struct slot *pool_find(struct daemon *d, bool being_built, bool fresh_net);
/* Makes a waiting box the one of s->limits and s->run_id, and answers its create. */
int pool_assign(struct daemon *d, struct slot *s, struct err *e);
/* A box of the pool is built. */
void pool_ready(struct daemon *d, struct slot *s);
void pool_close_parts(struct slot *s);
struct pool_numbers {
	unsigned int waiting[2]; /* with a namespace of the ring, with a fresh one */
	unsigned int building;
};
void pool_count(const struct daemon *d, struct pool_numbers *out);
/* Makes at most one thing; when to come again. */
int64_t pool_turn(struct daemon *d, int64_t now_us);

/* workspace.c */
int workspaces_open(struct daemon *d, struct err *e);
void workspaces_close(struct daemon *d);
/* Mounts s->workspace in the waiting box, then pool_assign() again; or fails the create. */
int workspace_attach(struct daemon *d, struct slot *s, struct err *e);
void workspace_adopt(struct daemon *d, struct slot *s);
/* The box is no more. */
void workspace_release(struct daemon *d, struct slot *s);
bool workspace_is_keeper(const struct daemon *d, pid_t pid);
/* BOX_WORKSPACE_*. */
void workspace_request(struct daemon *d, uint64_t client, const struct box_request *request);
/* The size of a workspace that a create may make is in range. */
bool workspace_may_make(const struct daemon *d, const struct box_request *request);
int64_t workspace_turn(struct daemon *d, int64_t now_us);

/* box_verbs.c */
void box_request(struct daemon *d, uint64_t client, const struct box_request *request);

/* box_adopt.c */
struct adopt_list {
	unsigned int count;
	bool keep[BOX_MAX_SLOTS];
	int pidfds[BOX_MAX_SLOTS]; /* -1: none */
	struct slot_record records[BOX_MAX_SLOTS];
};
/* What can be known of the box before it is assigned. */
void adopt_prepare(struct slot *s);
/* Writes the slot's file: from now on the box outlives us. */
int adopt_keep(struct daemon *d, struct slot *s, struct err *e);
void adopt_forget(const struct daemon *d, const struct slot *s);
/* At the start, before any group is swept: which slots hold a living box. Files that tell of none
 * are removed. */
void adopt_find(struct daemon *d, struct adopt_list *out);
/* Later, when slots can be prepared. */
int adopt_all(struct daemon *d, struct adopt_list *list, struct err *e);
void adopt_list_release(struct adopt_list *list);
/* Slots whose boxes live on when we leave. */
void adopt_keep_list(const struct daemon *d, bool keep[BOX_MAX_SLOTS]);
/* Removes slot files and agents' sockets that no box of ours explains. */
int adopt_clean(const struct daemon *d, struct err *e);

/* slot.c */
/* The instance's name and the block of ids belong to one cordon-box only. */
int locks_take(struct daemon *d, struct err *e);
void locks_release(struct daemon *d);
int slots_open(struct daemon *d, struct err *e);
int slot_prepare(struct daemon *d, struct slot *s, struct err *e);
void slots_close(struct daemon *d);

/* zygote.c */
int zygote_start(struct daemon *d, struct err *e);
/* Waits for the answer to CONFIGURE (at start only). */
int zygote_wait(struct daemon *d, int64_t timeout_us, struct err *e);
int zygote_send(struct daemon *d, const struct zygote_request *request, const int *fds,
		size_t fd_count, struct err *e);
void zygote_turn(struct daemon *d, int64_t now_us);
void zygote_stop(struct daemon *d);

#endif
