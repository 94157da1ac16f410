/*
 * box_limits.h: the ceilings file (box.limits) and the compiled ceilings.
 *
 * Lines `key=number`, `#` comments, blank lines. The file must belong to root and be writable by
 * nobody else; an unknown key, a repeated key or a value out of range is refused with its line, and
 * cordon-box does not start. A key that is left out has the default of the table in box_limits.c.
 */
#ifndef CORDON_EXEC_BOX_LIMITS_H
#define CORDON_EXEC_BOX_LIMITS_H

#include "runners/base/boxproto.h"

#include <stdbool.h>

struct box_config {
	uint64_t uid_base;        /* first id of slot 0; a multiple of 65536 */
	uint64_t slots;           /* boxes at once */
	uint64_t host_reserve_mb; /* memory that boxes never get, all together */
	uint64_t usr_local;       /* 1: the image `host` shows /usr/local */
	uint64_t memory_max_mb;
	uint64_t pids_max;
	uint64_t cpu_max_millis;
	uint64_t workspace_max_mb;
	uint64_t workspace_inodes_max;
	uint64_t tmp_max_mb;
	uint64_t disk_max_mb; /* a workspace that stays */
	uint64_t pool;        /* boxes that wait built */
	uint64_t pool_fresh;  /* the same with a network namespace that nobody had before */
	uint64_t io_weight;   /* of each box, where the host's io has weights */
	uint64_t netns_ring;  /* 1: network namespaces are used again; 0: one per box */
};

int box_config_load(const char *path, struct box_config *out, struct err *e);
/* What create may ask for at most. */
void box_config_ceilings(const struct box_config *c, struct box_limits *out);
/* Judges the limits of a create against the ceilings. */
int box_limits_check(const struct box_limits *asked, const struct box_limits *ceilings,
		     struct err *e);
/* The keys with defaults and bounds, for --help. */
void box_config_help(void);

#endif
