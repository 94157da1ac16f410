/*
 * cgroup.h: control groups of boxes, whatever mixture of v1 and v2 this host has.
 *
 *	struct cgroups g;
 *	cgroups_probe(&g, &e);			 which mode, where the hierarchies are
 *	cgroups_open(&g, &wish, NULL, &e);	 sweeps what an earlier instance left, makes ours
 *	slot.number = 0;
 *	cgroup_slot_ready(&g, &slot, &e);	 kept groups of slot 0
 *	cgroup_slot_set(&g, &slot, &limits, &e); before each box: limits, counters from zero
 *	... the box's first process joins through cgroup_slot_tasks() and cgroup_slot_unified() ...
 *	cgroup_slot_kill(&slot); cgroup_slot_empty(&slot, ...);
 *	cgroup_slot_close(&g, &slot);  cgroups_close(&g);
 *
 * Modes: hybrid = limits by v1 controllers, kill and freeze by a v2 group without controllers; v2 =
 * all by one v2 group; v1 = no v2 tree, freeze by the freezer. All groups of an instance lie under
 * one group `cordon-<instance>` per hierarchy, whose memory limit is the host's less the reserve,
 *so that an out-of-memory is always inside a box.
 *
 * A limit of cpu time below the host's processors gives, where there is a cpuset controller, a set
 * of as many processors (rounded up), so that nproc and the programs that ask it are right; slots
 * take turns in which. The time itself is limited by the quota.
 *
 * A box never swaps: v2 memory.swap.max is 0, v1's limit of memory and swap together is that of
 * memory; a v1 host that does not count swap gets swappiness 0.
 *
 * Groups of a slot are kept from box to box where counters can be reset (v1); in v2 they are made
 * anew for each box. Groups that somebody removed meanwhile are made again. A pid is never written
 *to a group: that stalls the writer for 11 ms.
 */
#ifndef CORDON_EXEC_CGROUP_H
#define CORDON_EXEC_CGROUP_H

#include "runners/base/boxproto.h"

#include <stdbool.h>
#include <sys/types.h>

enum cg_tree {
	CG_MEMORY,
	CG_PIDS,
	CG_CPU,
	CG_CPUACCT,
	CG_CPUSET,
	CG_FREEZER,
	CG_BLKIO,
	CG_UNIFIED,
	CG__MAX
};

enum cg_file {
	CF_MEMORY_LIMIT,
	CF_SWAP_LIMIT,
	CF_SWAPPINESS,   /* v1, for a host that has no limit of swap */
	CF_SOCKET_LIMIT, /* v1 counts socket buffers apart, and only where this is set */
	CF_MEMORY_PEAK,
	CF_MEMORY_NOW,
	CF_MEMORY_EVENTS,
	CF_PIDS_LIMIT,
	CF_PIDS_EVENTS,
	CF_PIDS_NOW,
	CF_CPU_LIMIT,
	CF_CPU_USAGE,
	CF_CPUS,
	CF_IO_WEIGHT,
	CF_IO_WEIGHT_BFQ,
	CF_KILL,
	CF_FREEZE,
	CF_EVENTS,
	CF__MAX
};

#define CG_MAX_CPUS 1024

struct cgroups {
	enum box_mode mode;
	char mounts[CG__MAX][256]; /* "" where there is none */
	int roots[CG__MAX];        /* cordon-<instance>, -1 */
	char name[64];             /* cordon-<instance> */
	uint64_t host_reserve_mb;
	uint64_t io_weight;
	/* of the host, for cpusets; 0: there are none */
	unsigned int cpu_count;
	uint16_t cpus[CG_MAX_CPUS];
};

struct cgroup_slot {
	bool open;
	bool settled; /* files that only an assignment needs are closed */
	bool frozen;  /* asked for; undone for the next box */
	unsigned int freeze_tries;
	bool spoiled; /* cgroup.kill was used: not to be cloned into again */
	unsigned int number;
	unsigned int cpus_set; /* in the cpuset, 0: all of the host */
	uint64_t io_weight;    /* written, 0: not yet */
	int dirs[CG__MAX];
	int tasks[CG__MAX]; /* v1 tasks files, write end */
	int files[CF__MAX];
	/* counters at the start of the present box */
	uint64_t base_cpu_us;
	uint64_t base_oom_kills;
	uint64_t base_pids_hits;
	uint64_t base_memory;
};

/* A new cpuset below another: its processors and memory, and no load balancing of its own (each
 * change of it would make the scheduler's domains anew). */
int cpuset_prepare(int parent, int dir, struct err *e);
int cgroups_probe(struct cgroups *g, struct err *e);
/* The same by the text of a mountinfo file. */
int cgroups_probe_text(struct cgroups *g, const char *mountinfo, struct err *e);
/* Between probe and open: the instance's groups come below that slice of systemd's in every
 * hierarchy (one name, "cordonboxes.slice"), whose limits the operator sets. It is made where
 * systemd has not made it, and never removed. */
int cgroups_enter_slice(struct cgroups *g, const char *name, struct err *e);

struct cgroups_wish {
	const char *instance;
	uint64_t host_reserve_mb; /* of the host's memory, never for boxes */
	uint64_t io_weight;       /* of each box, where the host's io has weights */
};
/* keep: slots whose groups and processes stay as they are; NULL for none. */
int cgroups_open(struct cgroups *g, const struct cgroups_wish *wish, const bool keep[BOX_MAX_SLOTS],
		 struct err *e);
/* Makes those of the instance's own groups again that somebody removed. */
int cgroups_renew(struct cgroups *g, struct err *e);
/* Whether the directory is still that of a group. */
bool cgroup_is_there(int dir);
/* Kills and removes everything below and, when nothing is kept, with the instance's groups; waits
 * for at most 5 s. */
int cgroups_sweep(const struct cgroups *g, const bool keep[BOX_MAX_SLOTS], struct err *e);
/* Whether a process is in the slot's group of that instance. For before cgroups_open. */
bool cgroups_has_member(const struct cgroups *g, const char *instance, unsigned int slot,
			pid_t pid);
void cgroups_close(struct cgroups *g);
/* SIGKILL to every process that is in the group of this directory now; new ones may come, so the
 * caller repeats it until the group is empty. */
void cgroup_kill_members(int dir);

int cgroup_slot_open(const struct cgroups *g, unsigned int number, struct cgroup_slot *s,
		     struct err *e);
/* Opens the groups of s->number if they are not; makes them anew where one is gone. */
int cgroup_slot_ready(struct cgroups *g, struct cgroup_slot *s, struct err *e);
/* Closes what is not needed before the next cgroup_slot_ready, which opens it again: about half of
 * the descriptors. For boxes that live long. */
void cgroup_slot_settle(struct cgroup_slot *s);
/* Limits and baselines for a new box. */
int cgroup_slot_set(const struct cgroups *g, struct cgroup_slot *s, const struct box_limits *limits,
		    struct err *e);
/* Descriptors into which the first process writes "0"; at most CG__MAX. */
size_t cgroup_slot_tasks(const struct cgroup_slot *s, int out[CG__MAX]);
/* The v2 group's directory for CLONE_INTO_CGROUP, or -1. */
int cgroup_slot_unified(const struct cgroup_slot *s);
void cgroup_slot_stats(const struct cgroups *g, const struct cgroup_slot *s, struct box_stats *out);
/*
 * Kills every member. The second resort: a box ends with its pid 1, which is the cheaper way. Trap:
 * on Linux 6.18 a group that saw cgroup.kill kills every process that is later cloned into it by
 * CLONE_INTO_CGROUP (tried), so such groups are made anew.
 */
void cgroup_slot_kill(struct cgroup_slot *s);
/* SIGKILL to every member, when there is more than the box's pid 1. */
void cgroup_slot_kill_others(const struct cgroup_slot *s);
/* No process lives there. Without a v2 group dead ones that nobody reaped yet count too. */
bool cgroup_slot_empty(const struct cgroup_slot *s);
/* A dead process is still counted: the child of somebody who has not reaped it. */
bool cgroup_slot_is_charged(const struct cgroup_slot *s);
int cgroup_slot_freeze(struct cgroup_slot *s, bool on, struct err *e);
/* While the group is not frozen yet: v1 never gets there by itself when a process is being made at
 * that moment; it has to be told again, and now and then to let go for a moment. */
void cgroup_slot_freeze_again(struct cgroup_slot *s);
/* True when the group is in the wished state. */
bool cgroup_slot_is_frozen(const struct cgroup_slot *s, bool wished);
/* After a box is gone: groups whose counters cannot be reset, and spoiled ones, are removed; they
 * are made again at the next set. */
void cgroup_slot_rest(const struct cgroups *g, struct cgroup_slot *s);
void cgroup_slot_close(const struct cgroups *g, struct cgroup_slot *s);

#endif
