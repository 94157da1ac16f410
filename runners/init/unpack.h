/*
 * unpack.h: what an upload becomes: one file, or the files of an archive (libarchive), in the
 * workspace. It is a command of the agent's own (EXEC with AGENT_F_UNPACK): a child with the box's
 * user, without capabilities, behind the filter; the bytes come over its stdin.
 *
 * argv: "file" NAME | "tar" | "zip". The working directory is the workspace.
 * stdout at the end: UNPACK_REPORT. Exit status: enum unpack_end; stderr says why.
 *
 * Everything is written to a folder of its own first, UNPACK_FOLDER, and moved to its place when it
 * is whole; a file is replaced at once, by rename(2). After a failure nothing of it is in the
 * workspace. Left out and counted as skipped: links, devices and the like; names that are absolute,
 * go through a link of the workspace or have a segment "..".
 *
 *	unpack.c	the words, libarchive, the end
 *	unpack_gzip.c	the input, decompressed where it is gzip: libarchive 3.6 does not compare
 *			the checksum at gzip's end
 *	unpack_tree.c	the folder, the names in it, the move to their places
 */
#ifndef CORDON_INIT_UNPACK_H
#define CORDON_INIT_UNPACK_H

#include "runners/base/agentproto.h"
#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Removed by who uploads, when an earlier one was killed. */
#define UNPACK_FOLDER AGENT_UNPACK_FOLDER
/* Bytes of all names of one archive. */
#define UNPACK_NAMES_BYTES (64U << 20)
#define UNPACK_PATH_BYTES  4096

struct unpack_tree {
	int top;    /* the workspace */
	int folder; /* UNPACK_FOLDER */
	/* kind ('f', 'd'), the path, NUL; in the order in which they came */
	struct buf names;
	uint64_t files;
	uint64_t bytes;
	uint64_t skipped;
};

/* An entry whose bytes are being written. */
struct unpack_file {
	int fd;
	const char *path; /* in tree->names */
};

int tree_open(struct unpack_tree *t, struct err *e);
/* Removes what is left of the folder. */
void tree_close(struct unpack_tree *t);
/* A path that may be used, without "./" and slashes at the end; NULL: it is left out. `room` has
 * UNPACK_PATH_BYTES. */
const char *tree_path(const char *name, char *room);
int tree_add_folder(struct unpack_tree *t, const char *path, struct err *e);
/* 1 open, 0 left out (a folder of that name is there), -1. */
int tree_add_file(struct unpack_tree *t, const char *path, mode_t mode, int *out_fd, struct err *e);
/* Everything to its place. ERR_CONFLICT: a name is a folder on one side and a file on the other;
 * then nothing was moved. */
int tree_move(struct unpack_tree *t, struct err *e);

/* stdin, decompressed if it begins as gzip does. */
struct archive;
struct gunzip;
struct gunzip *gunzip_open(void);
/* An archive_read_callback. */
ssize_t gunzip_read(struct archive *a, void *gunzip, const void **out);
/* Reads to the end; -1 with the archive's error when that is not good. */
int gunzip_finish(struct gunzip *g, struct archive *a);
void gunzip_close(struct gunzip *g);

/* The command; argv as above, ends with NULL. */
int unpack_main(char *const *argv);

#endif
