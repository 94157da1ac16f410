/*
 * agentproto.h: the frames between cordon-init (the agent, pid 1 of a box) and its clients.
 * docs/box-protocol.md is the text; this header and agentproto.c are the code that both sides use.
 *
 * Encoding: agent_put_*() appends one whole frame to a struct buf; a failure is sticky in the
 * buffer. Decoding: agent_peek() finds the next whole frame in received bytes, then one
 * agent_get_*() for its type reads the payload. Decoded pointers point into the payload and live as
 * long as it. Every decoder checks every length and value; whatever comes from a box is hostile.
 */
#ifndef CORDON_BASE_AGENTPROTO_H
#define CORDON_BASE_AGENTPROTO_H

#include "runners/base/buf.h"
#include "runners/base/err.h"
#include "runners/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_VERSION       2
#define AGENT_HEADER_BYTES  24
#define AGENT_WINDOW_BYTES  (64U << 10)  /* unacknowledged bytes per stream, both directions */
#define AGENT_CHUNK_BYTES   (32U << 10)  /* largest OUT, DATA and STDIN payload */
#define AGENT_READ_WINDOW   (256U << 10) /* unacknowledged bytes of one FILE_READ */
#define AGENT_WRITE_CHUNK   (128U << 10) /* file bytes in one FILE_WRITE frame */
#define AGENT_MAX_CHANNELS  32
#define AGENT_MAX_ENV       256
#define AGENT_EXEC_BYTES    (LIMIT_COMMAND_TOTAL_BYTES + LIMIT_MAP_BYTES + (64U << 10))
#define AGENT_RESULT_VALUES 8
#define AGENT_GRACE_MS      300
#define AGENT_GRACE_MAX_MS  60000

enum agent_type {
	/* client to agent */
	AGENT_HELLO = 1,
	AGENT_EXEC = 2,
	AGENT_STDIN = 3,
	AGENT_SIGNAL = 4,
	AGENT_ACK = 5,
	AGENT_FILE_WRITE = 6,
	AGENT_COLLECT = 7,
	AGENT_FILE_READ = 8,
	AGENT_STATS = 9,
	AGENT_PING = 10,
	AGENT_REATTACH = 11,
	AGENT_RESIZE = 12,
	AGENT_LIST = 13, /* 13 to 17: agentfiles.h */
	AGENT_STAT = 14,
	AGENT_REMOVE = 15,
	AGENT_MKDIR = 16,
	AGENT_RENAME = 17,
	/* agent to client */
	AGENT_WELCOME = 64,
	AGENT_STARTED = 65,
	AGENT_OUT = 66,
	AGENT_EXIT = 67,
	AGENT_STDIN_ACK = 68,
	AGENT_RESULT = 69,
	AGENT_ERROR = 70,
	AGENT_ENTRY = 71,
	AGENT_DATA = 72,
	AGENT_INFO = 73
};

/* header.flags: the low four bits name a stream */
#define AGENT_F_STREAM    0x000FU
#define AGENT_F_MORE      0x0010U /* EXEC, COLLECT: more bytes of the request follow */
#define AGENT_F_LAST      0x0020U /* FILE_WRITE: the last frame of a file */
#define AGENT_F_EOF       0x0040U /* STDIN: end of input behind these bytes */
#define AGENT_F_CLOSED    0x0080U /* STDIN_ACK: the program takes no more input */
#define AGENT_F_ALL       0x0100U /* SIGNAL: every process of the box but pid 1 */
#define AGENT_F_RECURSIVE 0x0200U /* REMOVE: a directory with all that is in it */
#define AGENT_F_PARENTS   0x0400U /* MKDIR: what is missing above too, and it may be there */

#define AGENT_F_UNPACK    0x0800U /* EXEC: the agent's own unpacker; argv are its words */

/* The unpacker (runners/init/unpack.h). Its folder in the workspace while it works; what it prints
 * at the end; its exit status. */
#define AGENT_UNPACK_FOLDER ".cordon-upload"
#define AGENT_UNPACK_REPORT "files=%llu bytes=%llu skipped=%llu\n"
enum agent_unpack_end {
	AGENT_UNPACKED = 0,
	AGENT_UNPACK_BROKEN = 10, /* the archive; stderr says how */
	AGENT_UNPACK_FULL,        /* the workspace has no room, or no inode */
	AGENT_UNPACK_CONFLICT,    /* folder against file, no right to write, changed meanwhile */
	AGENT_UNPACK_FAILED
};

enum agent_stream {
	AGENT_STREAM_IN = 0,
	AGENT_STREAM_OUT = 1,
	AGENT_STREAM_ERR = 2,
	AGENT_STREAM_EXIT = 3, /* ACK of an EXIT frame: the agent forgets the channel */
	AGENT_STREAM_DATA = 4  /* ACK of DATA frames */
};

struct agent_header {
	uint32_t length; /* of the payload */
	uint16_t type;
	uint16_t flags;
	uint32_t client;  /* chosen by the client, echoed in answers */
	uint32_t channel; /* EXEC: unique in the box; other requests: the client's own tag */
	uint64_t offset;
};

struct agent_frame {
	struct agent_header head;
	const void *payload;
};

enum agent_stdin_mode { AGENT_STDIN_NONE = 0, AGENT_STDIN_STREAM = 1 };

/* What a command is to be. Zero in a limit means "leave it". */
struct agent_exec {
	char *const *argv; /* NULL at the end; argv[0] is looked up in the PATH of env */
	char *const *env;  /* NULL at the end; all the environment it gets */
	const char *cwd;
	uint32_t uid; /* ids inside the box */
	uint32_t gid;
	uint64_t nofile;
	uint64_t nproc;
	uint64_t core_bytes; /* always applied: 0 means no core files */
	uint32_t grace_ms;   /* how long output of background children is waited for */
	uint8_t stdin_mode;  /* enum agent_stdin_mode */
	uint8_t pty;         /* 1: a terminal instead of pipes */
	uint16_t rows;       /* its size; 0 without one */
	uint16_t cols;
	bool unpack; /* AGENT_F_UNPACK; the parser leaves it to who has the header */
};

enum agent_how { AGENT_EXITED = 0, AGENT_SIGNALED = 1, AGENT_NOT_STARTED = 2, AGENT_HOW__MAX };

/* Where a command that was not started stopped. */
enum agent_stage {
	AGENT_STAGE_NONE = 0,
	AGENT_STAGE_SESSION,
	AGENT_STAGE_FDS,
	AGENT_STAGE_LIMITS,
	AGENT_STAGE_IDENTITY,
	AGENT_STAGE_CHDIR,
	AGENT_STAGE_EXEC,
	AGENT_STAGE__MAX
};

/* The end of a command. Not started: code is 127 (not found), 126 (not executable) or 125 (set-up),
 * and stage and sys say why; a plain `exit 127` has how AGENT_EXITED. */
struct agent_exit {
	enum agent_how how;
	enum agent_stage stage;
	int32_t code; /* exit code, or the signal */
	int32_t sys;  /* errno */
	uint64_t user_us;
	uint64_t system_us;
	uint64_t maxrss_kib;
	uint64_t wall_us;
	uint64_t out_bytes; /* all that the program wrote and the agent read */
	uint64_t err_bytes;
};

/* One channel as WELCOME lists it. */
struct agent_channel_info {
	uint32_t channel;
	uint32_t pid;         /* 0: not started or gone */
	bool ended;           /* the exit status waits for its acknowledgement */
	uint64_t in_received; /* bytes of stdin that the agent has */
	uint64_t base[2];     /* stdout, stderr: all before is acknowledged */
	uint64_t end[2];      /* read so far */
};

struct agent_welcome {
	uint32_t version;
	uint32_t count;
	struct agent_channel_info channels[AGENT_MAX_CHANNELS];
};

enum agent_kind {
	AGENT_KIND_REGULAR = 0,
	AGENT_KIND_SYMLINK = 1,
	AGENT_KIND_OTHER = 2,
	AGENT_KIND_UNREADABLE = 3,
	AGENT_KIND_DIRECTORY = 4, /* INFO only */
	AGENT_KIND__MAX
};

struct agent_entry {
	const char *path; /* relative to the workspace, not NUL terminated, any bytes but NUL */
	size_t path_length;
	enum agent_kind kind;
	uint64_t size;
	int64_t mtime_us;
};

struct agent_file_write {
	const char *path; /* relative, NUL terminated in the payload */
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	const void *data;
	size_t length;
};

struct agent_error {
	enum err_code code;
	int32_t sys;
	char text[256]; /* control bytes replaced: may be logged */
};

/* Finds the next frame. 1: *out is it, drop AGENT_HEADER_BYTES + length bytes afterwards; 0: not
 * yet whole; -1: no frame of this protocol (too long). */
int agent_peek(const void *data, size_t length, struct agent_frame *out, struct err *e);

/* Frames whose payload is raw bytes or empty: HELLO's answer aside, all but the ones below. */
void agent_put(struct buf *b, const struct agent_header *head, const void *payload, size_t length);

/* HELLO carries the version. */
void agent_put_hello(struct buf *b, uint32_t client, uint32_t version);
int agent_get_hello(const struct agent_frame *f, uint32_t *out_version, struct err *e);

/* EXEC is one or more frames (AGENT_F_MORE on all but the last, offset counts); the joined payloads
 * are the specification. agent_exec_parse needs bytes that stay: argv and env point into them; it
 * fills `pointers`, which must hold LIMIT_COMMAND_ITEMS + AGENT_MAX_ENV + 2. */
#define AGENT_EXEC_POINTERS (LIMIT_COMMAND_ITEMS + AGENT_MAX_ENV + 2)
int agent_put_exec(struct buf *b, uint32_t client, uint32_t channel, const struct agent_exec *spec,
		   struct err *e);
int agent_exec_parse(char *bytes, size_t length, char **pointers, struct agent_exec *out,
		     struct err *e);

void agent_put_signal(struct buf *b, uint32_t client, uint32_t channel, bool all, int number);
int agent_get_signal(const struct agent_frame *f, int *out_number, struct err *e);

void agent_put_resize(struct buf *b, uint32_t client, uint32_t channel, uint16_t rows,
		      uint16_t cols);
int agent_get_resize(const struct agent_frame *f, uint16_t *out_rows, uint16_t *out_cols,
		     struct err *e);

int agent_put_file_write(struct buf *b, uint32_t client, uint32_t tag, uint64_t offset, bool last,
			 const struct agent_file_write *part, struct err *e);
int agent_get_file_write(const struct agent_frame *f, struct agent_file_write *out, struct err *e);

/* COLLECT: patterns as length-prefixed bytes; uid and gid as whom the tree is read. */
int agent_put_collect(struct buf *b, uint32_t client, uint32_t tag, uint32_t uid, uint32_t gid,
		      const char *const *patterns, size_t count, struct err *e);

/* FILE_READ: header.offset is the first byte. */
int agent_put_file_read(struct buf *b, uint32_t client, uint32_t tag, uint32_t uid, uint32_t gid,
			const char *path, size_t path_length, uint64_t offset, uint64_t length,
			struct err *e);
struct agent_file_read {
	char path[LIMIT_PATH_BYTES + 1];
	uint32_t uid;
	uint32_t gid;
	uint64_t length;
};
int agent_get_file_read(const struct agent_frame *f, struct agent_file_read *out, struct err *e);

/* REATTACH: from where the client wants stdout and stderr. */
void agent_put_reattach(struct buf *b, uint32_t client, uint32_t channel, uint64_t out_offset,
			uint64_t err_offset);
int agent_get_reattach(const struct agent_frame *f, uint64_t out_offsets[2], struct err *e);

void agent_put_welcome(struct buf *b, uint32_t client, const struct agent_welcome *welcome);
int agent_get_welcome(const struct agent_frame *f, struct agent_welcome *out, struct err *e);

void agent_put_started(struct buf *b, uint32_t client, uint32_t channel, uint32_t pid);
int agent_get_started(const struct agent_frame *f, uint32_t *out_pid, struct err *e);

void agent_put_exit(struct buf *b, uint32_t client, uint32_t channel,
		    const struct agent_exit *status);
int agent_get_exit(const struct agent_frame *f, struct agent_exit *out, struct err *e);

void agent_put_result(struct buf *b, const struct agent_header *request,
		      const uint64_t values[AGENT_RESULT_VALUES]);
int agent_get_result(const struct agent_frame *f, uint64_t out_values[AGENT_RESULT_VALUES],
		     struct err *e);

void agent_put_error(struct buf *b, const struct agent_header *request, enum err_code code, int sys,
		     const char *text);
int agent_get_error(const struct agent_frame *f, struct agent_error *out, struct err *e);

void agent_put_entry(struct buf *b, const struct agent_header *request,
		     const struct agent_entry *entry);
int agent_get_entry(const struct agent_frame *f, struct agent_entry *out, struct err *e);

/* A relative path without empty, `.` or `..` segments, 1 to LIMIT_PATH_BYTES bytes, no NUL. */
bool agent_path_ok(const char *path, size_t length);

const char *agent_stage_name(enum agent_stage stage);

#endif
