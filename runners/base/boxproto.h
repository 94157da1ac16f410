/*
 * boxproto.h: the records between cordon-box and its one caller, over SOCK_SEQPACKET.
 *
 * Every message is one record of fixed size, host byte order (both ends are on one host). A request
 * has a tag, which comes back in its reply; requests are answered in the order of their ends, not
 * of their arrival. An event (BOX_RECORD_DIED) has tag 0. box_request_check() judges a request that
 * came in, box_reply_check() a reply. Texts are NUL terminated, checked.
 *
 * A workspace that stays has a name of its own (the rules of run ids). Several boxes may use one.
 *
 * A box is addressed by its slot and its run id; both must match (else BOX_ERR_NOT_FOUND), so a
 * late request never meets a later box.
 */
#ifndef CORDON_BASE_BOXPROTO_H
#define CORDON_BASE_BOXPROTO_H

#include "runners/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define BOX_VERSION         4U
#define BOX_RUN_ID_SIZE     64
#define BOX_IMAGE_SIZE      64
#define BOX_PATH_SIZE       108
#define BOX_TEXT_SIZE       200
#define BOX_MAX_SLOTS       1024
#define BOX_NO_SLOT         UINT32_MAX
#define BOX_ALL_SLOTS       (UINT32_MAX - 1) /* list: waiting boxes too, without a run id */
#define BOX_DEADLINE_MAX_MS 60000U
#define BOX_STATUS_UNKNOWN  (-1) /* end_status of a box that an earlier cordon-box made */

enum box_verb {
	BOX_PROBE = 1,
	BOX_CREATE = 2,
	BOX_KILL = 3,    /* ends every process; the box stays listed until destroy */
	BOX_DESTROY = 4, /* ends it, waits until nothing is left, gives the usage, frees the slot */
	BOX_STATS = 5,
	BOX_LIST = 6, /* one BOX_RECORD_ENTRY per box, then the reply */
	BOX_FREEZE = 7,
	BOX_THAW = 8,
	BOX_MAINTAIN = 9,   /* as create, for a workspace that stays: no commands, ended in time */
	BOX_LISTENERS = 10, /* reserved */
	BOX_WORKSPACE_MAKE = 11,   /* limits: workspace_bytes, workspace_inodes */
	BOX_WORKSPACE_DELETE = 12, /* refused (busy) while a box has it */
	BOX_WORKSPACE_INFO = 13,
	/* `workspace` becomes what `source` is, or stays as it was: a name is never half a copy.
	 * Both must be without a box. With make_bytes a source that is not there is made first. */
	BOX_WORKSPACE_COPY = 14,
	BOX_VERB__MAX
};

enum box_code {
	BOX_OK = 0,
	BOX_ERR_INVALID,     /* a value out of range; text says which */
	BOX_ERR_UNSUPPORTED, /* verb or image that this host does not have */
	BOX_ERR_NOT_FOUND,
	BOX_ERR_BUSY,    /* no free slot, or the box is in another change */
	BOX_ERR_TIMEOUT, /* the deadline passed; a box in the making was removed */
	BOX_ERR_FAILED,  /* the host failed; sys and text say why */
	BOX_CODE__MAX
};

enum box_record {
	BOX_RECORD_REPLY = 1,
	BOX_RECORD_ENTRY = 2,
	BOX_RECORD_DIED = 3,
	BOX_RECORD__MAX
};

enum box_state {
	BOX_STATE_NONE = 0,
	BOX_BUILDING,
	BOX_LIVE,
	BOX_FROZEN,
	BOX_ENDING,
	BOX_DEAD,
	BOX_WAITING, /* built ahead, nobody's yet; only in a list of all */
	BOX_STATE__MAX
};

enum box_mode { BOX_MODE_NONE = 0, BOX_MODE_HYBRID, BOX_MODE_V2, BOX_MODE_V1, BOX_MODE__MAX };

/* What a box may use. 0 is never "no limit": all but cpu_millis must be given. */
struct box_limits {
	uint64_t memory_bytes;
	uint64_t workspace_bytes; /* tmpfs, counts against memory_bytes */
	uint64_t workspace_inodes;
	uint64_t tmp_bytes;  /* /tmp and /dev/shm, each */
	uint32_t pids;       /* processes and threads of the commands */
	uint32_t cpu_millis; /* 1000 = one core; 0 = as many as the host has */
};

struct box_request {
	uint32_t version;
	uint32_t verb;
	uint64_t tag;
	uint32_t slot;        /* BOX_NO_SLOT for probe, create, list */
	uint32_t deadline_ms; /* 0: the verb's default */
	char run_id[BOX_RUN_ID_SIZE];
	char image[BOX_IMAGE_SIZE];      /* create */
	struct box_limits limits;        /* create */
	char workspace[BOX_RUN_ID_SIZE]; /* create, maintain: one that stays, empty for none;
					    BOX_WORKSPACE_* */
	uint32_t flags;                  /* create: BOX_FRESH_NET, BOX_SHARED_PROC */
	uint32_t
	    lifetime_ms; /* create, maintain: it is ended then; 0 is for ever, for create only */
	/* create, maintain: a workspace that is not there is made, with so much room; 0: refused */
	uint64_t make_bytes;
	uint64_t make_inodes;
	char source[BOX_RUN_ID_SIZE]; /* workspace_copy */
};

#define BOX_FRESH_NET 1U /* a network namespace that nobody had before */
/* Commands see each other in /proc. Else each sees its own processes only: Landlock makes every
 * command a domain of its own, and /proc hides what one may not trace. */
#define BOX_SHARED_PROC 2U
/* workspace_delete: with all copies whose name is the workspace's, a point and more. */
#define BOX_WITH_COPIES     4U
#define BOX_LIFETIME_MAX_MS 3600000U

/*
 * Counted from the box's create. BOX_STATS reads counters of the kernel (some 20 us) and answers at
 * once, so the caller can report a run as soon as its command has exited and destroy the box
 * afterwards. When `pids` is 1 (pid 1 alone: the command and all that it left behind have ended),
 * oom_kills and pids_limit_hits are final, and cpu_us and memory_peak_bytes as good as final: only
 * pid 1 itself can still add to them (below 1 ms; reads of files for artifacts). While `pids` is
 * above 1, what the command left running goes on counting; the reply to BOX_DESTROY has the last
 * word. memory_bytes, pids and wall_us are of the moment.
 */
struct box_stats {
	uint64_t cpu_us;
	uint64_t memory_peak_bytes;
	uint64_t memory_bytes; /* now */
	uint64_t oom_kills;
	uint64_t pids_limit_hits;
	uint64_t wall_us;
	uint32_t pids;
	uint32_t pad;
};

struct box_reply {
	uint32_t version;
	uint32_t record; /* enum box_record */
	uint64_t tag;
	uint32_t verb;
	uint32_t code; /* enum box_code */
	int32_t sys;
	uint32_t slot;
	uint32_t state;     /* enum box_state */
	uint32_t mode;      /* probe: enum box_mode */
	uint32_t slots;     /* probe: how many; list: how many entries came */
	int32_t end_status; /* died, destroy: wait status of pid 1 */
	char run_id[BOX_RUN_ID_SIZE];
	char agent_path[BOX_PATH_SIZE]; /* create, list: the agent's unix stream socket */
	struct box_stats stats;
	struct box_limits ceilings; /* probe */
	uint32_t pool;              /* probe: boxes that should wait built */
	uint32_t waiting;           /* probe: that do */
	uint64_t warm;              /* probe: creates served by a waiting box since the start;
				     * create: 1 when this one was */
	uint64_t cold;              /* probe: creates that had to build one */
	uint64_t workspace_bytes;   /* workspace info, copy: size of the image */
	uint64_t workspace_used;    /* workspace info, copy: what it takes on the host's disk */
	char text[BOX_TEXT_SIZE];   /* why not; for the log */
};

/* A record as it came: 0, or -1 with the reason. On failure *out_tag and *out_verb are what could
 * be read of it (0 if nothing), so that the sender can be answered. */
int box_request_check(const void *data, size_t length, struct box_request *out, uint64_t *out_tag,
		      uint32_t *out_verb, struct err *e);
int box_reply_check(const void *data, size_t length, struct box_reply *out, struct err *e);

const char *box_code_name(enum box_code code);
const char *box_mode_name(enum box_mode mode);
const char *box_verb_name(uint32_t verb);
/* 1..BOX_RUN_ID_SIZE-1 characters of A-Z a-z 0-9 . _ - */
int box_run_id_check(const char *run_id, struct err *e);

#endif
