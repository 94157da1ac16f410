/* jobs_private.h: shared by jobs.c and takeover.c only. */
#ifndef CORDON_SUPERVISOR_JOBS_PRIVATE_H
#define CORDON_SUPERVISOR_JOBS_PRIVATE_H

#include "runners/core/notify.h"
#include "runners/core/store_sweep.h"
#include "runners/supervisor/jobs.h"

#include <pthread.h>

struct event_node {
	struct event_node *next;
	struct jobs_event event;
};

struct end_node {
	struct end_node *next;
	struct run_result *result;
};

struct running_node {
	struct running_node *next;
	struct claim claim;
};

#define NOTICED_SLOTS 64

/* When the notice of a run came, for its trace; the oldest one gives way. */
struct noticed {
	char run_id[IDENT_UUID_SIZE];
	int64_t at_us;
};

struct lost_node;
struct unknown_node;

struct jobs {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int event_fd;
	/* under the lock */
	struct event_node *events;
	struct event_node **events_tail;
	struct end_node *ends;
	struct end_node **ends_tail;
	struct running_node *running;
	struct lost_node *lost; /* sandboxes */
	unsigned int free;
	bool look;
	bool look_wishes;
	bool running_now;
	bool stop;
	bool closed; /* nothing new is claimed */
	struct noticed noticed[NOTICED_SLOTS];
	unsigned int noticed_next;
	/* the thread's own */
	const struct policy *policy;
	char instance[IDENT_UUID_SIZE];
	struct store *db;
	struct notifier to_gate;
	struct swept swept;
	struct beat_watch watch;
	struct swept dead;
	bool registered;
	int64_t next_beat_us;
	int64_t next_poll_us;
	int64_t next_wishes_us;
	int64_t next_retention_us;
	struct unknown_node *unknown; /* claims that may be ours */
	int64_t next_watch_us;
	int64_t next_expired_us;
	bool was_down;
	bool parked_wait; /* a run has ended: parked ones may go */
	int64_t run_us;   /* how long a run takes, of the last ones; 0 not known yet */
};

/* The thread's side. */
void jobs_put(struct jobs *jobs, const struct jobs_event *event);
void jobs_put_simple(struct jobs *jobs, enum jobs_event_kind kind, const char *run_id);
/* Reads a row of JOB_CLAIM_NEXT or JOB_TAKE_OVER and makes a fresh token. */
int jobs_read_claim(struct store *db, struct jobs_event *event, struct err *e);
/* Writes owner and token; a claim is an UPDATE that must match one row. */
int jobs_mark_owned(struct store *db, const char *instance, const struct claim *claim,
		    struct err *e);
/* jobs_sandbox.c: inside the transaction of the claim, and of the end */
int jobs_operation_claimed(struct store *db, const struct claim *claim, struct err *e);
int jobs_operation_end(struct store *db, const struct run_result *r, struct err *e);
/* jobs_session.c: the same for operations on sessions */
int jobs_session_end(struct store *db, const struct policy *policy, const struct run_result *r,
		     struct err *e);
/* Before that, where a session goes: the artifacts of its runs, in transactions of a few. */
int jobs_session_artifacts(struct jobs *jobs, const struct run_result *r, struct err *e);
int jobs_list_sandboxes(struct jobs *jobs, struct err *e);
int jobs_write_lost(struct jobs *jobs, struct err *e);
int jobs_stop_expired(struct jobs *jobs, struct err *e);
int jobs_delete_expired(struct jobs *jobs, struct err *e);
/* claims.c */
int jobs_claim_all(struct jobs *jobs, struct err *e);
/* Claims of which nobody knows whether they were committed go back to the queue. */
int jobs_put_back(struct jobs *jobs, struct err *e);
/* takeover.c: the claims of this node's earlier runners become ours; registers this instance. */
int jobs_take_over(struct jobs *jobs, struct err *e);

#endif
