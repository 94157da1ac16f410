/*
 * scoreboard.h: one slot per worker in shared memory: who does what since when. One writer a slot
 * (its worker), readers (master, tests) tolerate torn text; there is no lock that could outlive its
 * holder.
 */
#ifndef CORDON_FCGI_SCOREBOARD_H
#define CORDON_FCGI_SCOREBOARD_H

#include "runners/base/err.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum worker_stage { STAGE_EMPTY, STAGE_IDLE, STAGE_READING, STAGE_HANDLING, STAGE_WRITING };

struct score {
	_Atomic pid_t pid;
	_Atomic int stage;
	_Atomic int64_t since_us; /* monotonic */
	_Atomic uint64_t requests;
	char request_id[65];
};

struct scoreboard {
	size_t count;
	struct score slots[];
};

int scoreboard_create(size_t workers, struct scoreboard **out, struct err *e);
void scoreboard_destroy(struct scoreboard *board);
void score_stage(struct score *slot, enum worker_stage stage, const char *request_id);
const char *stage_name(enum worker_stage stage);

#endif
