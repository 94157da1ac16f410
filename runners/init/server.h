/*
 * server.h: the parts of the agent inside cordon-init and what they share. One thread, one poll
 * loop (server.c); every object here belongs to the struct server of that loop.
 *
 *	server.c   the loop: waits, reaps, hands out turns
 *	conn.c	   one client connection: frames in, bounded bytes out, who gets which request
 *	channel.c  one command: pipes, rings, acknowledgements, its end
 *	pty.c	   terminals of commands
 *	command.c  the forked child until execve
 *	stub.c	   a child that waits just before that, for the first command
 *	files.c	   FILE_WRITE and FILE_READ beneath the workspace
 *	names.c	   STAT, MKDIR and RENAME there
 *	task.c	   turns of requests that take long:
 *	collect.c  the walk of COLLECT
 *	list.c	   LIST
 *	remove.c   REMOVE, of whole trees
 *
 * Memory is bounded: conns and channels have fixed numbers, rings fixed sizes, a connection's
 * output is only filled up to SERVER_OUT_HIGH by streams and its input is not read above that.
 */
#ifndef CORDON_INIT_SERVER_H
#define CORDON_INIT_SERVER_H

#include "runners/base/agentproto.h"

#define SERVER_MAX_CONNS     32
#define SERVER_MAX_TRANSFERS 8
#define SERVER_MAX_ASSEMBLY  4
#define SERVER_MAX_FAILED    16
#define SERVER_OUT_HIGH      ((size_t)256 << 10)
#define SERVER_OUT_MAX       ((size_t)4 << 20)
#define SERVER_MAX_TASKS     4
#define SERVER_STEP_US       2000 /* longest turn of a task */

struct server;
struct conn;

/* An EXEC whose frames have not all come. */
struct assembly {
	bool used;
	uint32_t client;
	uint32_t channel;
	struct buf bytes;
};

/* A FILE_READ under way. */
struct transfer {
	int fd; /* -1: free */
	struct agent_header head;
	uint64_t at;
	uint64_t end;
	uint64_t acked;
	uint64_t size;
};

/* A file request that takes many turns; the first member of what its kind needs besides. */
struct task {
	struct agent_header head;
	uint32_t uid; /* as whom it works */
	uint32_t gid;
	/* A short step, as that user; true: go on, false: done, and its answer is in c->out. */
	bool (*step)(struct server *s, struct conn *c, struct task *t);
	/* Frees all of it. */
	void (*release)(struct task *t);
};

/* A FILE_WRITE that failed: its remaining frames are dropped. */
struct failed_write {
	bool used;
	uint32_t client;
	uint32_t tag;
};

struct conn {
	int fd; /* -1: free */
	struct buf in;
	struct buf out;
	size_t out_at; /* bytes of out that are written */
	bool broken;   /* to be closed at the end of the turn */
	struct assembly assemblies[SERVER_MAX_ASSEMBLY];
	struct transfer transfers[SERVER_MAX_TRANSFERS];
	struct task *tasks[SERVER_MAX_TASKS]; /* NULL: free */
	struct failed_write failed_writes[SERVER_MAX_FAILED];
	unsigned int next_failed;
};

/* A byte stream with a window: all before base is acknowledged, all before sent is in the
 * connection, end is what was read. */
struct stream {
	int fd; /* -1: closed */
	unsigned char *ring;
	uint64_t base;
	uint64_t sent;
	uint64_t end;
	uint64_t cut; /* close when end reaches it; UINT64_MAX: at EOF */
};

enum channel_state {
	CHANNEL_FREE,
	CHANNEL_STARTING, /* forked, execve not confirmed */
	CHANNEL_RUNNING,
	CHANNEL_DRAINING, /* the command ended, its pipes may still have bytes */
	CHANNEL_ENDED     /* the exit status waits to be sent and acknowledged */
};

struct channel {
	enum channel_state state;
	uint32_t id;
	pid_t pid;
	bool reaped;
	int error_fd;         /* the child's error pipe, -1 when it is read */
	struct stream out[2]; /* stdout, stderr */
	int tty_fd;           /* the terminal of a command that has not ended, else -1 */
	bool pty;             /* out[0].fd and in_fd are a master */
	int in_fd;            /* write end of stdin, -1: closed */
	unsigned char *in_ring;
	uint64_t in_written; /* to the pipe */
	uint64_t in_received;
	bool in_eof;
	unsigned int eof_bytes; /* how many of them a terminal is still to be typed */
	struct conn *sink;      /* NULL: nobody is attached */
	uint32_t sink_client;
	bool exit_sent;
	struct agent_exit status;
	uint32_t grace_ms;
	int64_t started_us;
	int64_t drain_until_us; /* INT64_MAX: over */
	void *memory;
};

#define STUB_MAX_BYTES 65536

struct stub {
	pid_t pid; /* 0: none */
	uint32_t uid;
	int socket; /* -1 as all below when there is none */
	int in;
	int out[2];
	int error;
};

struct server {
	int listener;
	int control; /* to cordon-box while not assigned, else -1 */
	int signal_fd;
	int workspace; /* O_PATH directory */
	const char *workspace_path;
	uint32_t stub_uid;      /* whose command is expected first, 0: nobody's */
	bool maintain;          /* a box for files only */
	unsigned int next_task; /* whose turn it is */
	bool is_init;           /* pid 1: kill(-1) means this box */
	int64_t born_us;
	struct stub stub;
	struct conn conns[SERVER_MAX_CONNS];
	struct channel channels[AGENT_MAX_CHANNELS];
};

/* Never returns. Both descriptors are taken; control is -1 for an assigned agent. stub_uid: whose
 * command is expected first, 0: no stub. */
void server_run(int listener, int control, const char *workspace, uint32_t stub_uid)
    __attribute__((noreturn));

/* conn.c */
void conn_open(struct server *s, int fd);
void conn_close(struct server *s, struct conn *c);
void conn_read(struct server *s, struct conn *c);
/* Frames that waited for room in the output. */
void conn_turn(struct server *s, struct conn *c);
void conn_flush(struct conn *c);
static inline size_t conn_pending(const struct conn *c)
{
	return c->out.len - c->out_at;
}
static inline bool conn_has_room(const struct conn *c)
{
	return conn_pending(c) < SERVER_OUT_HIGH;
}
void conn_error(struct conn *c, const struct agent_header *request, const struct err *e);

/* channel.c */
struct channel *channel_find(struct server *s, uint32_t id);
int channel_exec(struct server *s, struct conn *c, const struct agent_header *request, char *bytes,
		 size_t length, struct err *e);
int channel_stdin(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
int channel_ack(struct server *s, const struct agent_header *head, struct err *e);
int channel_signal(struct server *s, const struct agent_frame *f, struct err *e);
int channel_reattach(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
int channel_resize(struct server *s, const struct agent_frame *f, struct err *e);
void channel_detach(struct server *s, const struct conn *c);
void channel_list(struct server *s, struct agent_welcome *out);
void channel_read(struct channel *ch, int which);
/* broken: the pipe reports an error */
void channel_stdin_event(struct channel *ch, bool broken);
void channel_read_error(struct channel *ch);
/* rusage as of wait4; status as of waitpid. */
struct rusage;
void channel_reaped(struct channel *ch, int status, const struct rusage *usage);
/* Time-outs, output into the connection, the end. */
void channel_turn(struct channel *ch, int64_t now_us);
static inline bool channel_wants_output(const struct channel *ch, int which)
{
	const struct stream *st = &ch->out[which];

	return st->fd >= 0 && st->end - st->base < AGENT_WINDOW_BYTES;
}

/* landlock.c: makes the rules of commands, of what is mounted now, and gives them to command.c; 0
 * also where the kernel has none. */
int landlock_use(void);

static inline bool channel_wants_to_write(const struct channel *ch)
{
	return ch->in_fd >= 0 && (ch->in_written < ch->in_received || ch->in_eof);
}

/* pty.c */
/* A terminal of the present fsuid; the master does not block. */
int pty_open(uint16_t rows, uint16_t cols, int *out_master, int *out_slave, struct err *e);
/* 0 or -1 with errno. */
int pty_resize(int master, uint16_t rows, uint16_t cols);
/* What ends the input there. */
unsigned char pty_eof_byte(int master);

/* command.c: the child's side; never returns. fds: stdin, stdout, stderr. */
void command_become(const struct agent_exec *spec, const int fds[3], int error_fd)
    __attribute__((noreturn));
/* A Landlock ruleset for all commands from now on, with a number above those that commands get. */
void command_use_ruleset(int fd);
/* Its steps, for the stub. A failure is told to error_fd and ends the process. */
/* Session, signals, descriptors; *keep (not NULL) gets a number of its own, close-on-exec. */
void command_enter(const int fds[3], int error_fd, int *keep);
void command_take_user(uint32_t uid, uint32_t gid);
/* Limits, folder, execve. */
void command_exec(const struct agent_exec *spec) __attribute__((noreturn));
void command_fail(int stage) __attribute__((noreturn));
struct command_failure {
	int stage; /* enum agent_stage */
	int sys;
};

/* stub.c */
void stub_start(struct server *s, uint32_t uid);
/* Hands the command (its bytes as they came, and parsed) to the stub: the channel has its pid and
 * pipes then. False when there is none that fits; it is gone then. */
bool stub_take(struct server *s, const struct agent_exec *spec, const char *bytes, size_t length,
	       struct channel *ch);
/* True when that was the stub. */
bool stub_died(struct server *s, pid_t pid);
void stub_drop(struct server *s);

/* files.c */
/* Answers itself: one RESULT or ERROR per file. */
int file_write(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
int file_read(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
void file_turn(struct conn *c);
void file_ack(struct conn *c, const struct agent_header *head);
void file_close_all(struct conn *c);

/* For all file requests: fsuid and fsgid of the user, and back. */
int file_act_as(uint32_t uid, uint32_t gid, struct err *e);
void file_act_as_self(void);
enum err_code file_error_code(int reason);
/* Beneath the workspace, through no link; "" is the workspace. Descriptor, or -1 with errno. */
int file_open_beneath(const struct server *s, const char *path, uint64_t flags);
/* The directory above (O_PATH), and the last name, which points into path. */
int file_open_parent(const struct server *s, const char *path, const char **out_name);

/* task.c */
/* Takes t, which is released when there is no place for it or its kind must be alone. */
int task_start(struct conn *c, struct task *t, bool alone, struct err *e);
/* One bounded turn of one of them. */
void task_turn(struct server *s);
/* True when one can go on at once. */
bool task_waits(const struct server *s);
void task_end_all(struct conn *c);

/* collect.c, list.c, remove.c, names.c; the answer is their own */
int collect_start(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
int list_start(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
int remove_start(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
int name_stat(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
int name_mkdir(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
int name_rename(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e);
/* As getdents64 gives them. */
struct raw_entry {
	uint64_t inode;
	int64_t offset;
	unsigned short length;
	unsigned char type;
	char name[];
};
#define NAMES_PIECE 4096
/* The names of an open directory, a piece at a time; begins zeroed. */
struct name_reader {
	_Alignas(8) char raw[NAMES_PIECE];
	long at;
	long length;
};
/* 1: *out_name is good until the next call (so is *out_inode, which may be NULL), 0: the end, -1
 * with errno. Leaves . and .. out. */
int name_next(struct name_reader *r, int fd, const char **out_name, uint64_t *out_inode);
/* What fstatat said, without the name. */
struct stat;
struct agent_info;
void name_describe(struct agent_info *out, const struct stat *st);

#endif
