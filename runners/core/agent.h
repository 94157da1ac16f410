/*
 * agent.h: client of a box's agent (cordon-init), by docs/box-protocol.md.
 *
 * No loop inside: the caller owns the poll, this module owns the descriptor and the bytes.
 *
 *	static const struct agent_events events = {.output = on_output, .exited = on_exited, ...};
 *	struct agent a;
 *	agent_init(&a, &events, ctx, 1);
 *	agent_connect(&a, path, &e);			  connects and says HELLO
 *	agent_put_file(&a, tag, "main.py", 0644, 1000, 1000, data, length, &e);	   inputs first
 *	agent_exec(&a, channel, &spec, &e);		  requests may be sent at once, in order
 *	loop:
 *	  poll agent_fd(&a) for POLLIN, and for POLLOUT while agent_wants_write(&a)
 *	  agent_ready(&a, &e)				  moves bytes, calls the events
 *	on_output(): store the bytes, then		  agent_ack(&a, channel, stream, offset +
 *length, &e) on_exited(): store the status, then		  agent_ack_exit(&a, channel, &e)
 *	agent_release(&a);
 *
 * Acknowledge output only when it is safe (in the spool): the agent keeps 64 KiB per stream that
 * were not acknowledged and then blocks the program. `exited` comes after all output of both
 * streams.
 *
 * Reconnect: agent_ready() gives -1 with ERR_UNAVAILABLE when the connection ended. agent_connect()
 * again, wait for `welcome`, then agent_attach() with the offsets that are safe: the agent sends
 * everything from there on and the exit status again. A restarted runner does the same with a fresh
 * struct and the channels of `welcome`. A channel number is unique in its box, so an EXEC that is
 * repeated after a lost connection is refused (ERR_CONFLICT) and never runs twice.
 *
 * Everything that comes from a box is hostile. This module checks lengths, values, the order of
 * offsets and the window, and gives ERR_PROTOCOL (then end the box). It cannot know tags: ignore
 * results for tags that you did not send. `entry` paths may hold any byte but NUL.
 *
 * Only one thread may use a struct agent. An event may call agent_close or agent_release; no
 *further event comes then and agent_ready() gives 0. The struct itself must stay, and nothing may
 *connect it, until agent_ready() has returned.
 */
#ifndef CORDON_CORE_AGENT_H
#define CORDON_CORE_AGENT_H

#include "runners/base/agentfiles.h"
#include "runners/base/agentproto.h"
#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_OUT_MAX_BYTES ((size_t)24 << 20) /* requests that wait to be sent */

/* All may be NULL. Pointers are good during the call only. */
struct agent_events {
	void (*welcome)(void *ctx, const struct agent_welcome *welcome);
	/* execve worked; not called for a command that was not started (see exited) */
	void (*started)(void *ctx, uint32_t channel, uint32_t pid);
	/* stream: AGENT_STREAM_OUT or _ERR. Offsets rise without gap or repetition. */
	void (*output)(void *ctx, uint32_t channel, enum agent_stream stream, uint64_t offset,
		       const void *data, size_t length);
	void (*exited)(void *ctx, uint32_t channel, const struct agent_exit *status);
	/* the program took stdin up to offset; closed: it takes no more */
	void (*input)(void *ctx, uint32_t channel, uint64_t offset, bool closed);
	void (*entry)(void *ctx, uint32_t tag, const struct agent_entry *entry);
	/* of LIST and STAT */
	void (*info)(void *ctx, uint32_t tag, const struct agent_info *info);
	/* bytes of a FILE_READ; acknowledged when the call returns */
	void (*data)(void *ctx, uint32_t tag, uint64_t offset, const void *data, size_t length);
	/* A request was done; the values are those of the request (see below). */
	void (*result)(void *ctx, uint32_t tag, const uint64_t values[AGENT_RESULT_VALUES]);
	/* A request was refused; for EXEC, STDIN and SIGNAL tag is the channel. */
	void (*error)(void *ctx, uint32_t tag, const struct agent_error *error);
};

struct agent_channel {
	bool used;
	uint32_t id;
	uint64_t next[2];  /* first byte of stdout, stderr not yet delivered */
	uint64_t acked[2]; /* all before it is acknowledged */
	uint64_t in_sent;
	uint64_t in_taken;
	bool in_closed;
};

struct agent {
	const struct agent_events *events;
	void *ctx;
	uint32_t client;
	int fd;
	struct buf in;
	struct buf out;
	size_t out_at;
	bool handling; /* an event runs */
	bool released; /* by that event; the bytes go when it returns */
	struct agent_channel channels[AGENT_MAX_CHANNELS];
};

/* client: who this is among the box's clients; the runner is 1. */
void agent_init(struct agent *a, const struct agent_events *events, void *ctx, uint32_t client);
void agent_release(struct agent *a);

/* Connects to the agent's unix socket; forgets unsent requests and partial frames of an earlier
 * connection, keeps what it knows of channels. ERR_UNAVAILABLE: nobody listens (the box is gone).
 */
int agent_connect(struct agent *a, const char *path, struct err *e);
/* The same for a connected stream socket, which is taken. */
int agent_connect_fd(struct agent *a, int fd, struct err *e);
void agent_close(struct agent *a);
/* -1 when not connected. */
int agent_fd(const struct agent *a);
bool agent_wants_write(const struct agent *a);
/* Bytes that wait to be sent: hold large uploads back above a bound of your own. */
size_t agent_pending(const struct agent *a);

/* Call when the descriptor is readable or writable. -1: ERR_UNAVAILABLE (the connection ended),
 * ERR_PROTOCOL (hostile or broken), ERR_NOMEM; the connection is closed then. Reads at most 256 KiB
 * a call, so many boxes get their turns. */
int agent_ready(struct agent *a, struct err *e);

/* --- requests; all return 0, or -1 when not connected or over a bound ----------------------------
 */

/* Answer: started, or exited with AGENT_NOT_STARTED, or error (nothing was started). With spec->pty
 * the command has a terminal of rows x cols: all its output is AGENT_STREAM_OUT, with \r\n as the
 * terminal makes it; TERM is for spec->env; ^C and the like are bytes of stdin. At most
 * AGENT_MAX_CHANNELS commands that are not acknowledged. */
int agent_exec(struct agent *a, uint32_t channel, const struct agent_exec *spec, struct err *e);
/* Takes part of data as the window allows: bytes taken (0: wait for `input`), or -1. eof counts
 * when all was taken; a terminal is typed ^D then (twice when its line has begun). */
ssize_t agent_stdin(struct agent *a, uint32_t channel, const void *data, size_t length, bool eof,
		    struct err *e);
/* The size of the command's terminal; its foreground group gets SIGWINCH. Result, or error: invalid
 * (the command has no terminal), conflict (it has ended). */
int agent_resize(struct agent *a, uint32_t channel, uint16_t rows, uint16_t cols, struct err *e);
/* To the command's process group; result or error with tag channel. */
int agent_signal(struct agent *a, uint32_t channel, int number, struct err *e);
/* To every process of the box but pid 1; result with that tag. */
int agent_signal_all(struct agent *a, uint32_t tag, int number, struct err *e);
/* All bytes before offset are safe. */
int agent_ack(struct agent *a, uint32_t channel, enum agent_stream stream, uint64_t offset,
	      struct err *e);
/* The status is safe: both sides forget the channel. */
int agent_ack_exit(struct agent *a, uint32_t channel, struct err *e);
/* Takes a channel over from these offsets on. Result values: [0] stdin bytes that the agent has. */
int agent_attach(struct agent *a, uint32_t channel, uint64_t out_offset, uint64_t err_offset,
		 struct err *e);

/* Behind agent_attach: the agent has this many bytes of stdin (its welcome tells); what it has room
 * for comes with the next `input`. */
void agent_resume_stdin(struct agent *a, uint32_t channel, uint64_t received);

/* A whole file; parents are made; owner uid:gid. One result or error. */
int agent_put_file(struct agent *a, uint32_t tag, const char *path, uint32_t mode, uint32_t uid,
		   uint32_t gid, const void *data, size_t length, struct err *e);
/* A piece of a file in order of offsets; last ends it. Pieces to AGENT_WRITE_CHUNK bytes. */
int agent_put_file_part(struct agent *a, uint32_t tag, uint64_t offset, bool last,
			const struct agent_file_write *part, struct err *e);
/* Walks the workspace: `entry` for each match, sorted by name in each directory, then a result: [0]
 * entries, [1] names seen, [2] names left out (too long, too many), [3] directories that could not
 * be read and names in those that could not be searched, [4] bytes of the regular matches. */
int agent_collect(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid,
		  const char *const *patterns, size_t count, struct err *e);
/* `data` events, then a result: [0] bytes sent, [1] size of the file. length UINT64_MAX: to its
 * end. At most 8 at once. */
int agent_get_file(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
		   size_t path_length, uint64_t offset, uint64_t length, struct err *e);
/*
 * Names in the workspace: relative paths as of agent_path_ok, any bytes, beneath the workspace and
 * through no link; they act as uid:gid. LIST and REMOVE work in short turns beside everything else;
 * at most 4 of them and COLLECT at once on a connection. A request that is wrong by its values
 * gives -1 here.
 */
/* One directory, not what is below; "" is the workspace. `info` for each name, in the order of the
 * directory, at most `limit` (0: all). Result: [0] names, [1] 1 when the limit cut it short, [2]
 * names that vanished meanwhile, [3] errno that ended it early. Kind UNREADABLE: a name only. */
int agent_list(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
	       uint64_t limit, struct err *e);
/* One name, a link itself; "" is the workspace. `info`, then a result. */
int agent_stat(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
	       struct err *e);
/* A file or an empty directory; recursive: a directory with all that is in it, whatever the modes
 * of directories of uid; "" then empties the workspace. Result: [0] files, [1] directories, [2]
 * bytes freed, [3] names that could not be removed, [4] errno of the first, [5] 1 when it gave up
 * early. Error: nothing was removed. */
int agent_remove(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
		 bool recursive, struct err *e);
/* parents: also what is missing above (0755), and no error when it is there. Result: [0] made. */
int agent_mkdir(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *path,
		uint32_t mode, bool parents, struct err *e);
/* As rename(2): replaces a file, or an empty directory by a directory. */
int agent_rename(struct agent *a, uint32_t tag, uint32_t uid, uint32_t gid, const char *from,
		 const char *to, struct err *e);
/* Result: [0] us since the agent's start, [1] channels, [2] running commands, [3] workspace bytes,
 * [4] free, [5] inodes, [6] free. */
int agent_stats(struct agent *a, uint32_t tag, struct err *e);
int agent_ping(struct agent *a, uint32_t tag, struct err *e);

#endif
