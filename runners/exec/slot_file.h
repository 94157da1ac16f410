/*
 * slot_file.h: what cordon-box must know of a live box after it was killed and started again.
 *
 * One record of fixed size per live box, <run-dir>/boxes/s<slot>, in a folder of root's (0700),
 * written by rename before the create is answered, removed when the box has ended. A record is
 * believed only when it is whole (size, version, sum, texts, ranges), belongs to this instance and
 * to the slot of its name, and its ids are the slot's; whether the process is still the box's is
 * asked of the kernel (box_adopt.c).
 *
 *	struct slot_record r;
 *	slot_record_seal(&r);				the constant fields and the sum
 *	slot_file_write(dir, &r, &e);
 *	slot_file_read(dir, 7, &r, &e);			0, or -1: to be removed
 *	slot_file_remove(dir, 7);
 */
#ifndef CORDON_EXEC_SLOT_FILE_H
#define CORDON_EXEC_SLOT_FILE_H

#include "runners/base/boxproto.h"

#include <sys/types.h>

#define SLOT_RECORD_VERSION 2U
#define SLOT_RECORD_MAGIC   0x436f7264426f7831U

struct slot_record {
	uint64_t magic;
	uint32_t version;
	uint32_t size;
	uint32_t slot;
	uint32_t uid_base;
	int32_t pid;          /* pid 1 of the box, as the host sees it */
	uint32_t mode;        /* enum box_mode that the groups were made for */
	uint64_t start_ticks; /* field 22 of /proc/PID/stat */
	int64_t created_us;   /* CLOCK_MONOTONIC */
	char instance[40];
	char run_id[BOX_RUN_ID_SIZE];
	char agent_path[BOX_PATH_SIZE];
	uint32_t maintain;               /* 1: a box without commands */
	char workspace[BOX_RUN_ID_SIZE]; /* empty: none that stays */
	int64_t until_us;                /* CLOCK_MONOTONIC; 0: no end of its own */
	struct box_limits limits;
	/* counters of the groups when the box was made */
	uint64_t base_cpu_us;
	uint64_t base_oom_kills;
	uint64_t base_pids_hits;
	uint64_t base_memory;
	uint64_t sum; /* of all bytes before it */
};

void slot_record_seal(struct slot_record *r);
/* 0, or -1 with the reason. data need not be aligned. */
int slot_record_check(const void *data, size_t length, struct slot_record *out, struct err *e);

int slot_file_write(int dir, const struct slot_record *r, struct err *e);
int slot_file_read(int dir, unsigned int slot, struct slot_record *out, struct err *e);
void slot_file_remove(int dir, unsigned int slot);

/* When the process began, in clock ticks since the host did: with the pid its name for good. */
int proc_start_ticks(pid_t pid, uint64_t *out, struct err *e);
/* The same from the text of /proc/PID/stat; the command's name in it may hold anything. */
int proc_start_ticks_parse(const char *text, uint64_t *out, struct err *e);

#endif
