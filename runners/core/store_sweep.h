/*
 * store_sweep.h: what makes everything end, whoever looks: the gate, any runner, cordonctl sweep.
 *
 * Each sweep selects rows by an index with SKIP LOCKED, changes them by id in one transaction, and
 * reports the ids of runs that ended, so that the caller can send notices.
 */
#ifndef CORDON_CORE_STORE_SWEEP_H
#define CORDON_CORE_STORE_SWEEP_H

#include "runners/base/ident.h"
#include "runners/core/store.h"

#define SWEEP_BATCH     100
#define SWEEP_MAX_WATCH 64

struct swept {
	char ids[SWEEP_BATCH][IDENT_UUID_SIZE];
	size_t count;
};

/* Queued runs whose time in the queue is over end as failed, queue_ttl_expired. */
int sweep_queue(struct store *db, struct swept *out, struct err *e);
/* Idempotency rows past their time; *out_count is how many went. */
int sweep_idempotency(struct store *db, size_t *out_count, struct err *e);
/* All claims of an instance that is dead end as failed, box_lost; then its row goes. Call again
 * while out->count is SWEEP_BATCH. */
int sweep_owner(struct store *db, const char *instance, struct swept *out, struct err *e);

/*
 * Watches the beats of runners with this process's monotonic clock. An instance whose beat did not
 * move for dead_after_us, with the database answering all that time, is dead. A failed look starts
 * the time anew, so neither a clock step nor a database outage kills a run.
 */
struct beat {
	char instance[IDENT_UUID_SIZE];
	int64_t beat;
	int64_t since_us;
	bool seen;
};

struct beat_watch {
	struct beat beats[SWEEP_MAX_WATCH];
	size_t count;
};

/* Looks once; out receives the instances that are dead now (at most SWEEP_BATCH), those whose row
 * is missing included. */
int sweep_watch(struct store *db, struct beat_watch *watch, int64_t dead_after_us,
		struct swept *out, struct err *e);

#endif
