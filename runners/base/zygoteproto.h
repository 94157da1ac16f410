/*
 * zygoteproto.h: the records between cordon-box and its zygotes (cordon-init --zygote), over a
 * SOCK_SEQPACKET pair. Both sides are ours and of one build: a record of another version or size is
 * a fault and ends the zygote.
 *
 * To the zygote: ZYGOTE_CONFIGURE once, with two descriptors: the seccomp program (memfd) and a
 * slot's user namespace to try idmapping with. ZYGOTE_CREATE per box, with descriptors in the order
 * of enum zygote_fd. ZYGOTE_NETNS: makes a network namespace with lo up.
 *
 * From the zygote: one zygote_reply per request; for a CREATE that cloned, with the box's pidfd;
 * for NETNS with the namespace.
 *
 * From a box: one zygote_ready over the control socket of that box when it is built. Without
 * ZYGOTE_WAIT it is assigned then and closes the control socket. With it the message carries the
 * descriptors of enum zygote_part, and EOF (or SIGTERM by PDEATHSIG, which only makes it look)
 * ends the box until ASSIGN (a zygote_assign) has come; then the socket is closed too. No answer is
 * needed: an ASSIGN that was sent is read before the EOF of a cordon-box that died behind it.
 */
#ifndef CORDON_BASE_ZYGOTEPROTO_H
#define CORDON_BASE_ZYGOTEPROTO_H

#include <stdint.h>

#define ZYGOTE_VERSION   3U
#define ZYGOTE_MAX_TASKS 8
#define ZYGOTE_IDS       65536U

enum zygote_verb { ZYGOTE_CONFIGURE = 1, ZYGOTE_CREATE = 2, ZYGOTE_ASSIGN = 3, ZYGOTE_NETNS = 4 };

/* Descriptors of a CREATE: these, then `tasks` descriptors of v1 tasks files. */
enum zygote_fd {
	ZYGOTE_FD_LISTENER,
	ZYGOTE_FD_CONTROL,
	ZYGOTE_FD_USERNS, /* a user namespace with the slot's map, for idmapped mounts */
	ZYGOTE_FD_GROUP,  /* directory of the v2 group; only with ZYGOTE_HAS_GROUP */
	ZYGOTE_FD_NETNS,  /* only with ZYGOTE_HAS_NETNS */
	ZYGOTE_FD__FIXED
};

#define ZYGOTE_WAIT      1U /* build only; wait for ASSIGN */
#define ZYGOTE_HAS_GROUP 2U
#define ZYGOTE_IDMAP     4U  /* the template can be shown idmapped */
#define ZYGOTE_IDMAP_USR 16U /* CONFIGURE, beside that: its /usr alone can be */
#define ZYGOTE_HAS_NETNS 8U  /* use that network namespace, which has lo up; else a fresh one */

/* File systems whose sizes (of proc: hidepid) an assignment sets: with the first zygote_ready of a
 * box that waits come their descriptors (fspick), in this order. */
enum zygote_part {
	ZYGOTE_PART_WORKSPACE,
	ZYGOTE_PART_TMP,
	ZYGOTE_PART_SHM,
	ZYGOTE_PART_PROC,
	ZYGOTE_PARTS
};

struct zygote_request {
	uint32_t version;
	uint32_t verb;
	uint64_t serial;
	uint32_t flags;
	uint32_t uid_base;
	uint32_t tasks;
	uint32_t workspace_uid; /* inside the box */
	uint64_t workspace_bytes;
	uint64_t workspace_inodes;
	uint64_t tmp_bytes; /* /tmp and /dev/shm, each */
	uint64_t tmp_inodes;
};

/* Where the making of a box stopped. */
enum zygote_stage {
	ZYGOTE_DONE = 0,
	ZYGOTE_STAGE_REQUEST,
	ZYGOTE_STAGE_TEMPLATE,
	ZYGOTE_STAGE_IDMAP,
	ZYGOTE_STAGE_CLONE,
	ZYGOTE_STAGE_IDS,
	ZYGOTE_STAGE_GROUPS,
	ZYGOTE_STAGE_ROOT,
	ZYGOTE_STAGE_PROC,
	ZYGOTE_STAGE_TMPFS,
	ZYGOTE_STAGE_PIVOT,
	ZYGOTE_STAGE_NET,
	ZYGOTE_STAGE_FDS,
	ZYGOTE_STAGE_PRIVILEGES,
	ZYGOTE_STAGE_FILTER,
	ZYGOTE_STAGE_LOST, /* never said anything */
	ZYGOTE_STAGE__MAX
};

struct zygote_reply {
	uint32_t version;
	uint32_t verb;
	uint64_t serial;
	int32_t stage;
	int32_t sys;
	int32_t pid;
	uint32_t flags; /* CONFIGURE: ZYGOTE_IDMAP and ZYGOTE_IDMAP_USR as idmapped mounts work */
};

struct zygote_ready {
	uint32_t version;
	int32_t stage;
	int32_t sys;
	uint32_t pad;
};

#define ZYGOTE_WORKSPACE 1U /* /workspace has been mounted over: look at it anew */
#define ZYGOTE_MAINTAIN  2U /* no commands in this box */

struct zygote_assign {
	uint32_t version;
	uint32_t verb;
	uint32_t flags;
	uint32_t pad;
};

static inline const char *zygote_stage_name(int32_t stage)
{
	static const char *const names[ZYGOTE_STAGE__MAX] = {
	    "done", "request", "template", "idmap", "clone", "ids",        "groups", "root",
	    "proc", "tmpfs",   "pivot",    "net",   "fds",   "privileges", "filter", "lost"};

	return stage >= 0 && stage < ZYGOTE_STAGE__MAX ? names[stage] : "?";
}

#endif
