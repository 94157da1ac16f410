/*
 * supervisor.h: what the files of cordon-runner share. The loop thread owns everything here;
 * jobs.c's thread owns the database.
 */
#ifndef CORDON_SUPERVISOR_SUPERVISOR_H
#define CORDON_SUPERVISOR_SUPERVISOR_H

#include "runners/core/agent.h"
#include "runners/core/boxclient.h"
#include "runners/core/notify.h"
#include "runners/core/policy.h"
#include "runners/core/spec.h"
#include "runners/supervisor/house.h"
#include "runners/supervisor/jobs.h"
#include "runners/supervisor/output.h"
#include "runners/supervisor/typing.h"

/* The command's ids inside the box. */
#define BOX_USER      1000U
#define EXEC_CHANNEL  1U
#define TAG_TERM      800U /* of signals to all */
#define TAG_KILL      801U
#define KILL_WAIT_US  (1000 * 1000LL) /* from KILL through the agent to KILL of the box */
#define NOTICE_GAP_US (5 * 1000LL)
#define BUSY_AGAIN_US (50 * 1000LL)

enum task_state {
	TASK_ADOPTING,   /* an earlier runner's: its box is looked for */
	TASK_ATTACHING,  /* the agent's welcome is waited for */
	TASK_WANTS_BOX,  /* create is to be sent (again) */
	TASK_CREATING,   /* create is under way */
	TASK_BOXED,      /* the box is there, the claim is not committed yet */
	TASK_STARTING,   /* inputs and EXEC are sent */
	TASK_RUNNING,    /* the command runs */
	TASK_COLLECTING, /* it ended; artifacts are read */
	TASK_COUNTING,   /* the box is asked what it used */
	TASK_SAVING,     /* the result is handed over; the box goes when the database has it */
	TASK_DESTROYING, /* the box is being removed */
	TASK_DONE        /* freed by the loop */
};

/* Why we ended it, if we did. */
enum task_stop {
	STOP_NONE,
	STOP_CANCEL,
	STOP_STARTUP,
	STOP_TIMEOUT,
	STOP_BACKEND,
	STOP_IMAGE,
	STOP_LOST,
	STOP_SANDBOX, /* the sandbox does not run */
	STOP_BUSY,    /* its agent takes no more commands now */
	STOP_FULL     /* it has as many processes as it may have */
};

struct task_entry {
	char *path; /* mem */
	size_t path_length;
	uint64_t size;
};

/* Artifacts of a run while they are collected. */
struct collection {
	struct task_entry *entries; /* chosen, in order */
	size_t entry_count;
	size_t entry_room;
	size_t next; /* the entry that is being read */
	int fd;      /* its file, -1 none */
	uint64_t written;
	bool file_failed;
	uint64_t chosen_bytes;
	size_t name_bytes;           /* of the chosen ones */
	struct ended_artifact *done; /* mem */
	size_t done_count;
	uint64_t done_bytes;
	int64_t skip_file_limit;
	int64_t skip_total_limit;
	int64_t skip_symlink;
	int64_t skip_invalid;
	int64_t skip_read_error;
	bool listed;
};

struct supervisor;

/* A sandbox whose box is here, or should be. */
struct sandbox {
	struct sandbox *next;
	char id[IDENT_UUID_SIZE];
	bool live;   /* slot and agent_path are known */
	bool ending; /* it is being stopped */
	bool seen;   /* in the list of boxes that is coming in */
	uint32_t slot;
	char agent_path[BOX_PATH_SIZE];
	uint64_t oom_kills; /* that have been blamed on somebody */
};

enum sandbox_op_state {
	OP_WAITS, /* for the list of boxes */
	OP_WORKSPACE,
	OP_WORKSPACE_AGAIN,
	OP_CREATE,
	OP_CREATE_AGAIN,
	OP_DESTROY,
	OP_DESTROY_AGAIN,
	OP_DONE
};

/* A start, stop or delete. */
struct sandbox_op {
	struct sandbox_op *next;
	struct supervisor *sup;
	uint64_t serial; /* as a task's, out of the same numbers */
	struct claim claim;
	struct run_spec spec;
	enum sandbox_op_state state;
	int64_t deadline_us;
	int64_t retry_us;
	unsigned int workspace_tries;
};

struct task {
	struct task *next;
	struct supervisor *sup;
	uint64_t serial; /* tag of its requests to cordon-box: serial * 4 + what */
	struct claim claim;
	struct run_spec spec;
	uint32_t channel; /* of its command */
	enum task_state state;
	enum task_stop stop;
	bool unclaimed; /* only its box may be made */
	bool has_box;
	uint32_t slot;
	struct agent agent;
	bool agent_open;
	int agent_registered_fd; /* in epoll, -1 none */
	bool agent_writes;       /* EPOLLOUT is asked for */
	struct output output;
	bool output_open;
	bool other_boot; /* TASK_ADOPTING: the host was started anew since the claim */
	bool started;
	bool exited;
	struct agent_exit exit;
	struct box_stats stats;
	bool has_stats;
	uint64_t exec_oom_kills; /* in a sandbox: for memory, since the last command that asked */
	bool handed;             /* the result is with the SQL thread */
	bool store_failed;       /* the spool or the artifacts could not be written */
	int64_t startup_deadline_us;
	int64_t run_deadline_us;  /* 0: not running */
	int64_t term_deadline_us; /* after TERM of a cancel: when KILL follows; 0 none */
	int64_t
	    kill_deadline_us; /* after KILL through the agent: when the box is destroyed; 0 none */
	int64_t collect_deadline_us; /* 0: none */
	int64_t count_deadline_us;   /* TASK_COUNTING: when it is destroyed without */
	int64_t retry_us;            /* TASK_WANTS_BOX: not before */
	int64_t notice_us;           /* when an output notice is due; 0 none */
	int64_t last_notice_us;
	bool typing_on; /* it is interactive and its command has started */
	struct typing typing;
	unsigned int typing_told; /* truncated records of its input */
	struct buf typed;         /* within the limits; the command has not taken it yet */
	struct collection collection;
	struct trace trace;
};

struct supervisor {
	const struct policy *policy;
	struct jobs *jobs;
	struct house *house;
	int64_t next_probe_us;
	struct boxclient box;
	bool box_open;
	int64_t box_retry_us;
	bool box_writes;
	int box_registered_fd;
	struct notifier to_gate;
	struct trace_mail mail; /* to the gate */
	int epoll_fd;
	int notice_fd;
	struct inputs *inputs; /* input.c */
	struct task *tasks;
	struct sandbox *sandboxes;
	struct sandbox_op *ops;
	struct session_op *session_ops; /* in the order of their jobs */
	bool boxes_known;               /* cordon-box's list has come since it was connected */
	unsigned int task_count;
	uint64_t next_serial;
	bool taken_over; /* all adopted claims are known: a box of no task may go */
	bool stopping;
	bool outlawed;
};

/* --- task.c
 * -----------------------------------------------------------------------------------------------------
 */

/* Takes event->spec. A claim that cannot even begin ends at once. */
void task_begin(struct supervisor *sup, struct jobs_event *event);
/* early.c: makes the box of a run whose claim is under way; then it was committed, or was not. */
bool task_is_early(const struct task *task);
void task_early(struct supervisor *sup, struct jobs_event *event);
void task_confirm(struct task *task, struct jobs_event *event);
void task_unclaim(struct task *task);
/* The same for a claim that an earlier runner of this node held. */
void task_adopt(struct supervisor *sup, struct jobs_event *event);
/* main.c; NULL: not here */
struct task *task_find(const struct supervisor *sup, const char *run_id);
/* The spool has grown: tells the gate, soon. */
void task_output_changed(struct task *task);
/* The spool cannot be written: the run cannot be served truthfully any more. */
void task_store_broke(struct task *task, const struct err *e);
/* cancel.c */
void task_cancel(struct task *task);
/* KILL; the box, or the wait for the command, ends if that does not help. */
void task_kill_inside(struct task *task, int64_t now);
/* Time passed: deadlines, tails, notices. */
void task_tick(struct task *task, int64_t now_us);
int64_t task_due_us(const struct task *task);
/* The agent's socket is readable or writable. */
void task_agent_ready(struct task *task);
/* A reply of cordon-box for this task; what: the low bits of the tag. */
void task_box_reply(struct task *task, unsigned int what, const struct box_reply *reply);
void task_box_died(struct task *task);
/* cordon-box came back: send again what has no answer. */
void task_box_again(struct task *task);
void task_free(struct task *task);
/* The command has ended and nothing more is to be read: asks for the usage, hands the result over,
 * then removes the box. */
void task_conclude(struct task *task);
/* The database has the result, or refuses it; trace: what the SQL thread saw of it. */
void task_saved(struct task *task, const struct trace *trace);
/* What came after the end was committed, to the gate. */
void task_tell_trace(struct supervisor *sup, const char *run_id, const struct trace *trace);
/* Removes the box; collection, if any, ends. */
void task_destroy(struct task *task);
void task_stop(struct task *task, enum task_stop why);

/* For adopt.c: the pieces of a beginning. */
/* A task for a claim, with its spec; the event's spec is taken in every case. NULL when that
 * failed: the run has ended by then. */
struct task *task_enter(struct supervisor *sup, struct jobs_event *event);
/* Its spool; -1 when that cannot be written. */
int task_open_output(struct task *task);
int task_open_agent(struct task *task, const char *path, struct err *e);
/* A box for a run, or the sandbox's for a command in one. */
void task_send_create(struct task *task);
int task_send_command(struct task *task, struct err *e);
/* True when EXEC may have been sent: a mark in the spool's folder, made before. */
bool task_was_sent(const struct task *task);
void task_finish(struct task *task);
void task_agent_watch(struct task *task);
/* An agent's descriptor (-1: closed) in the loop; registered_*: what epoll has now. */
void agent_watch(int epoll_fd, int fd, bool writes, void *mark, int *registered_fd,
		 bool *registered_writes);

/* --- exec.c
 * -----------------------------------------------------------------------------------------------------
 */

uint32_t exec_channel(const struct claim *claim);
/* In the box of its sandbox; waits where that is not known yet. */
void exec_begin(struct task *task);
/* False: the sandbox has no box. */
bool exec_adopt(struct task *task);
void exec_saved(struct task *task);
/* It was killed, and not by us: only its box can tell whether memory ran out. */
bool exec_asks_usage(const struct task *task);
/* Of a sandbox's counters only the kills for memory since the last time are this command's. */
void exec_blame_memory(struct task *task, const struct box_reply *reply);
/* What the answer holds of its output, mem; NULL for other runs and when memory is short. */
char *exec_result(struct task *task);

/* --- sandbox.c
 * ----------------------------------------------------------------------------------------------------
 */

#define SANDBOX_COMMANDS   30U /* at once; the agent has 32 connections and 32 channels */
#define SANDBOX_TAG_NOBODY 3U  /* the answer interests nobody */

struct sandbox *sandbox_find(struct supervisor *sup, const char *id);
/* One that takes commands; NULL. */
struct sandbox *sandbox_live(struct supervisor *sup, const char *id);
struct sandbox_op *sandbox_op_of(struct supervisor *sup, const char *sandbox);
/* The database says that it runs here. */
void sandbox_expected(struct supervisor *sup, const char *id);
/* Takes event->spec. */
void sandbox_op_begin(struct supervisor *sup, struct jobs_event *event);
/* True when the reply was an operation's. */
bool sandbox_op_reply(struct supervisor *sup, const struct box_reply *reply);
/* An entry of the list, a death: true when it is a sandbox's. */
bool sandbox_entry(struct supervisor *sup, const struct box_reply *entry);
bool sandbox_died(struct supervisor *sup, const struct box_reply *event);
/* The list is complete: sandboxes without a box are lost, operations go on. */
void sandboxes_settle(struct supervisor *sup);
void sandboxes_tick(struct supervisor *sup, int64_t now_us);
int64_t sandboxes_due_us(const struct supervisor *sup);
void sandboxes_free(struct supervisor *sup);

/* --- session.c
 * ----------------------------------------------------------------------------------------------------
 */

/* Takes event->spec. */
void session_op_begin(struct supervisor *sup, struct jobs_event *event);
/* An operation on this session changes its workspace now, or will: no box may have that. */
bool session_is_held(const struct supervisor *sup, const char *session);
/* The workspace of the run's session into the wish for its box; false: it is asked again later. */
bool session_gives(struct task *task, struct box_wish *wish, struct box_limits *limits);
void session_op_reply(struct supervisor *sup, const struct box_reply *reply);
/* An entry of the list of boxes: true when it is a maintenance box of an operation. */
bool session_entry(struct supervisor *sup, const struct box_reply *entry);
/* The list of boxes is complete: what waits goes on. */
void sessions_settle(struct supervisor *sup);
void sessions_tick(struct supervisor *sup, int64_t now_us);
int64_t sessions_due_us(const struct supervisor *sup);
void sessions_free(struct supervisor *sup);
/* The agent of an upload's box is ready; false: the mark is no upload's. */
bool upload_agent_ready(struct supervisor *sup, const void *mark);

/* --- input.c
 * ----------------------------------------------------------------------------------------------------
 */

int inputs_start(struct supervisor *sup, struct err *e);
void inputs_free(struct supervisor *sup);
/* An event of epoll; false: it is not one of these. */
bool inputs_ready(struct supervisor *sup, void *mark);
/* Idle limits, and input that could not go on before. */
void inputs_tick(struct supervisor *sup, int64_t now_us);
int64_t inputs_due_us(const struct supervisor *sup);
/* The command of a run takes input, if it is interactive. taken: bytes that its agent has. */
void input_begin(struct task *task, uint64_t taken);
void input_end(struct task *task);
/* The command took some. */
void input_taken(struct task *task);

/* adopt.c: the box of an adopted task was found. */
void adopt_box(struct task *task, const struct box_reply *entry);
/* The list of boxes is complete: an adopted task without one has its saved result, or is lost. */
void adopt_settle(struct task *task);
/* The agent told what it has. */
void adopt_welcome(struct task *task, const struct agent_welcome *welcome);

/* result.c: <data>/spool/<2 hex>/<run>/result, written before the box is removed, so that a runner
 * that dies then loses nothing. */
int result_save(const struct policy *policy, const struct run_result *result, struct err *e);
/* 1 loaded (with the given claim), 0 there is none, -1 error. */
int result_load(const struct policy *policy, const struct claim *claim, struct run_result **out,
		struct err *e);
void result_remove(const struct policy *policy, const char *run_id);

/* --- collect.c
 * --------------------------------------------------------------------------------------------------
 */

void collect_begin(struct task *task);
void collect_entry(struct task *task, const struct agent_entry *entry);
void collect_data(struct task *task, const void *data, size_t length);
void collect_result(struct task *task, uint32_t tag, const uint64_t values[AGENT_RESULT_VALUES]);
void collect_error(struct task *task, uint32_t tag, const struct agent_error *error);
/* Closes what is open; files that are not whole are removed. */
void collect_end(struct task *task);
void collect_release(struct collection *c);

/* --- outcome.c
 * --------------------------------------------------------------------------------------------------
 */

/* The result of a task whose box is gone; NULL when memory is short. Takes the artifacts. */
struct run_result *outcome_make(struct task *task);

#endif
