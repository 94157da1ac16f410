/*
 * boxrig.h: a cordon-box of one's own for tests and measurements, with blocking helpers.
 *
 *	struct rig r;
 *	if (!rig_possible(why, sizeof(why))) return 77;
 *	rig_start(&r, 8);
 *	struct rig_box b;
 *	rig_create(&r, &b, NULL);			NULL: standard limits
 *	rig_sh(&r, &b, "echo hi; exit 3");		runs and waits
 *	... b.out[0], b.status ...
 *	rig_destroy(&r, &b, &reply);
 *	rig_stop(&r);					INT, waits; false if it was not clean
 *
 * The instance id, the directory and the ids are private to the process. Needs root. The variable
 * CORDON_BOX_LIMITS may hold further lines for the limits file, with spaces between them.
 * CORDON_BOX_SLICE may name a slice for it. CORDON_TEST_SLOW=N says that this machine is N times
 *slower than others (an emulated one): bounds of time, which are the machine's and not the
 *program's, are that much wider.
 */
#ifndef CORDON_TESTS_BOXRIG_H
#define CORDON_TESTS_BOXRIG_H

#include "runners/core/agent.h"
#include "runners/core/boxclient.h"

#include <sys/types.h>

#define RIG_MAX_BOXES   64
#define RIG_MAX_ENTRIES 24
#define RIG_WAIT_MS     (20000 * rig_slow())
#define RIG_PING_TAG    0x1000000U /* from here on: results count as ping_tag only */
#define RIG_DEAF_TAG    0x2000000U /* from here on: not even that */
#define RIG_ROWS        40
#define RIG_COLS        101

struct rig_box;

struct rig {
	char dir[64];
	char instance[32];
	pid_t pid;
	struct boxclient client;
	uint64_t next_tag;
	struct box_reply replies[RIG_MAX_BOXES * 2]; /* not yet asked for */
	size_t reply_count;
	struct box_reply died; /* the last event */
	unsigned int died_count;
	unsigned int entries;   /* of lists */
	struct box_reply entry; /* the last one */
	struct rig_box *boxes[RIG_MAX_BOXES];
	bool lost; /* the connection to cordon-box ended */
};

struct rig_box {
	struct rig *rig;
	struct agent agent;
	uint32_t slot;
	uint32_t channel; /* of the last command */
	char run_id[BOX_RUN_ID_SIZE];
	char path[BOX_PATH_SIZE];
	bool hold; /* do not acknowledge output */
	bool connected;
	bool welcomed;
	struct agent_welcome welcome;
	bool started;
	uint32_t pid;
	struct buf out[2];
	uint64_t out_bytes[2];
	bool exited;
	int64_t exited_us;
	struct agent_exit status;
	bool in_closed;
	uint64_t in_taken;
	uint32_t result_tag; /* 0: none came */
	uint64_t values[AGENT_RESULT_VALUES];
	uint32_t ping_tag;
	uint32_t error_tag;
	struct agent_error error;
	struct buf data; /* of FILE_READ */
	unsigned int info_count;
	struct agent_info info; /* the last one; its name in info_name */
	char info_name[AGENT_NAME_BYTES + 1];
	struct buf info_names; /* of all, a NUL behind each */
	unsigned int entry_count;
	struct {
		char path[LIMIT_PATH_BYTES + 1];
		enum agent_kind kind;
		uint64_t size;
	} entries[RIG_MAX_ENTRIES];
};

/* 1, or what CORDON_TEST_SLOW says. */
int rig_slow(void);

struct test;
/* A whole test program: starts cordon-box, runs the tests, ends it and looks for leftovers. Returns
 * the exit status, 77 where boxes are not possible. */
int rig_main(struct rig *r, unsigned int slots, int argc, char **argv, const struct test *tests,
	     size_t count);

/* Root, and a host where cordon-box can work. */
bool rig_possible(char *why, size_t size);
int rig_start(struct rig *r, unsigned int slots);
/* True when cordon-box ended by itself with 0 in time. */
bool rig_stop(struct rig *r);
/* Ends cordon-box alone and waits for that; boxes and their agents are left as they are. */
void rig_end_daemon(struct rig *r, int signal);
/* After that: starts it again with the same instance and directory, and connects. */
int rig_restart(struct rig *r);
/* cordon-box --end-all, while none runs; its exit status. */
int rig_end_all(const struct rig *r);
/* Control groups of an instance, processes with a word in their command line, mounts of the host.
 */
int rig_groups_left(const char *instance);
/* Removes that slice, wherever it is; out_full: how many still have groups in them. */
int rig_remove_slice(const char *name, int *out_full);
/* Removes the groups of those slots that no process is in; how many. */
int rig_remove_groups(const char *instance, unsigned int slots);
int rig_processes_left(const char *word);
int rig_count_mounts(void);
/* 0 when there is none. */
pid_t rig_zygote_pid(const struct rig *r);
/* pid 1 of the slot's box, as the host sees it; 0 when there is none, or cordon-box is not its
 * parent. */
pid_t rig_init_pid(const struct rig *r, unsigned int slot);
/* Runs `cordon-box --probe` in r's directory with another run directory, instance or limits text
 * (NULL: those of r); its exit status. */
int rig_probe(const struct rig *r, const char *run_name, const char *instance, const char *limits);
/* One turn of the loop. */
void rig_step(struct rig *r, int timeout_ms);
int rig_reply(struct rig *r, uint64_t tag, struct box_reply *out);

void rig_limits(struct box_limits *out);
/* create, connect. 0 or -1; the reply in *out when not NULL. */
int rig_create(struct rig *r, struct rig_box *b, const struct box_limits *limits);
/* Only sends the create; rig_created takes its reply. */
uint64_t rig_create_send(struct rig *r, struct rig_box *b, const struct box_limits *limits);
/* The same with a wish of one's own; its run_id is filled in. */
uint64_t rig_make_send(struct rig *r, struct rig_box *b, struct box_wish *wish);
int rig_make(struct rig *r, struct rig_box *b, struct box_wish *wish);
int rig_created(struct rig *r, struct rig_box *b, uint64_t tag);
int rig_destroy(struct rig *r, struct rig_box *b, struct box_reply *out);
int rig_connect(struct rig_box *b);

/* A command with the standard environment; argv ends with NULL. stdin: NULL for none. */
int rig_exec(struct rig_box *b, char *const *argv, bool with_stdin);
/* A script at a terminal of RIG_ROWS x RIG_COLS. */
int rig_exec_pty(struct rig_box *b, const char *script, bool with_stdin);
int rig_wait_exit(struct rig *r, struct rig_box *b, int timeout_ms);
int rig_run(struct rig *r, struct rig_box *b, char *const *argv);
int rig_sh(struct rig *r, struct rig_box *b, const char *script);
/* Waits for the result (0) or the error (-1) of that tag. */
int rig_result(struct rig *r, struct rig_box *b, uint32_t tag);
/* What the last command wrote: the whole of it, or a part of it. */
bool rig_out_is(const struct rig_box *b, int which, const char *text);
bool rig_out_has(const struct rig_box *b, int which, const char *text);
int rig_put_file(struct rig *r, struct rig_box *b, const char *path, uint32_t mode,
		 const void *data, size_t length);

#endif
