/*
 * gate.h: what the files of cordon-gate share.
 *
 * Threads: the loop thread runs libwebsockets and owns everything here but `sql`; it never calls
 * the database. The SQL thread (sql.c) owns the connection; the two exchange lists under one mutex.
 */
#ifndef CORDON_GATE_GATE_H
#define CORDON_GATE_GATE_H

#include "runners/base/ident.h"
#include "runners/base/state.h"
#include "runners/core/notify.h"
#include "runners/core/policy.h"
#include "runners/core/spool.h"
#include "runners/core/store_sweep.h"
#include "runners/gate/timer.h"

#include <libwebsockets.h>

#define GATE_ARGS_BYTES 2048
#define GATE_PATH_BYTES 512
#define GATE_USER_BYTES 256
#define GATE_KEY_BYTES  40
#define GATE_TAG_BYTES  40

/* The end of a run as its row tells it. */
struct run_end {
	char id[IDENT_UUID_SIZE];
	enum run_phase phase;
	bool found;
	bool has_exit;
	int64_t exit_code;
	bool has_last_seq;
	uint64_t last_seq;
	char message[256];
};

/* A run that somebody waits for or watches. Lives while holds or streams has members. */
struct watched {
	char id[IDENT_UUID_SIZE];
	lws_dll2_owner_t holds;
	lws_dll2_owner_t streams;
	bool asked;       /* a question to the SQL thread is under way */
	bool ended;       /* end is filled */
	int64_t ended_us; /* when its end was noticed; 0 not yet */
	struct run_end end;
};

struct upload;

/* One request on the control socket: held, or an upload. */
struct hold {
	struct upload *upload;
	lws_dll2_t in_run;     /* watched.holds */
	lws_dll2_t in_release; /* gate.release when its answer may go out */
	struct gate_timer deadline;
	struct gate *gate;
	struct lws *wsi;
	struct watched *run;
	bool until_running;
	bool released;
	bool traced; /* of the request that made the run */
	int64_t parked_us;
	char path[GATE_PATH_BYTES]; /* behind /internal/hold */
	char args[GATE_ARGS_BYTES];
};

/* What the client of a stream types (input.c). */
struct stream_input {
	bool wanted;        /* the run is interactive */
	bool skip;          /* the message that comes in is not text */
	bool stopped;       /* the client is not read: the runner has not taken what is here */
	struct buf message; /* the message that comes in */
	struct buf frames;  /* decoded: u32 length and bytes each, until the runner has them */
	size_t sent;        /* of the first one's bytes */
	int fd;             /* to the runner, -1: none */
	ev_io writable;     /* its watcher, when it was full */
	struct gate_timer retry;
};

/* One WebSocket. */
struct stream {
	lws_dll2_t in_run; /* watched.streams */
	lws_dll2_t in_all; /* gate.streams */
	struct gate *gate;
	struct lws *wsi;
	struct watched *run;
	struct spool_reader reader;
	bool opened;
	bool removed; /* retention has removed the spool */
	bool end_sent;
	bool caught_up; /* it has sent all that the log had when it was looked at */
	struct stream_input input;
	struct gate_timer short_timer;
	int short_rounds; /* looks at a spool that has less than the run's row says */
	int close_code;   /* 0: none wanted */
	uint64_t from_seq;
	int64_t progress_us;
	char user[GATE_USER_BYTES];
	char key_id[GATE_KEY_BYTES];  /* "": it was opened by a token */
	char persona[GATE_TAG_BYTES]; /* a hash; "": the run has none */
	char session[GATE_TAG_BYTES];
	struct gate_timer expiry; /* of the token */
};

struct sql_thread;

struct gate {
	const struct policy *policy;
	struct lws_context *context;
	struct ev_loop *loop;
	struct lws_vhost *control;
	struct lws_vhost *bytes;
	struct lws_vhost *archive;
	struct sql_thread *sql;
	void *runs; /* tsearch tree of struct watched */
	size_t run_count;
	unsigned int upload_count;
	lws_dll2_owner_t release;
	lws_dll2_owner_t streams;
	struct gate_timer release_timer;
	struct gate_timer compare_timer;
	struct spool_record *record; /* scratch for the stream that is being written */
	int64_t started_us;
	bool stopping;
};

/* --- gate.c: the runs
 * ----------------------------------------------------------------------------------------- */

/* The entry of a run, made if it is not there; NULL when memory is short. */
struct watched *gate_watch(struct gate *gate, const char *id);
/* Drops the entry when nobody is left in it. */
void gate_unwatch(struct gate *gate, struct watched *run);
/* A change of a run that a notice told; the row decides. */
void gate_noticed(struct gate *gate, struct notice *notice);
/* An answer of the SQL thread. */
void gate_learned(struct gate *gate, const struct run_end *end);
/* Asks the SQL thread about every run that somebody waits for; runs every 2 s. */
void gate_compare(struct gate *gate);
void gate_compare_start(struct gate *gate);
/* True when a recent notice said that this run has ended. */
bool gate_recently_ended(const struct gate *gate, const char *id);
/* When that notice came; 0: there was none. */
int64_t gate_ended_us(const char *id);

/* --- hold.c, stream.c: the two protocols
 * ---------------------------------------------------------------------- */

int hold_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		  size_t len);
void hold_release(struct hold *hold);
int stream_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		    size_t len);
void stream_wake(struct stream *stream);
/* Closes every stream opened with this key (4401), or all with NULL and 1012. */
void stream_close_all(struct gate *gate, const char *key_id);

/* --- input.c: what clients type
 * ------------------------------------------------------------------------------------------------
 */

void input_open(struct stream *stream, bool wanted);
void input_close(struct stream *stream);
/* Bytes of a message from the client. -1: it is too long. */
int input_received(struct stream *stream, const void *data, size_t length);
/* Called now and then: a client that is not read is alive all the same. */
void input_keep(struct stream *stream);

/* --- sql.c
 * ----------------------------------------------------------------------------------------------------
 */

/* Starts the thread. It calls lws_cancel_service after it has put answers. */
int sql_start(struct gate *gate, struct sql_thread **out, struct err *e);
void sql_stop(struct sql_thread *sql);
/* Asks for the row of a run (from the loop thread). */
void sql_ask(struct sql_thread *sql, const char *id);
/* The keys of the open streams, to be checked every second; replaces the last list. */
void sql_watch_keys(struct sql_thread *sql, const char (*keys)[GATE_KEY_BYTES], size_t count);
/* A part of a run's trace, written with others about once a second. */
void sql_trace(struct sql_thread *sql, const char *run_id, const char *part);
/* Handles what the thread has put (in the loop thread). */
void sql_collect(struct gate *gate);

#endif
