/*
 * unpack.h: what an upload becomes: one file, or the files of an archive (libarchive), in the
 * workspace. It is a command of the agent's own (EXEC with AGENT_F_UNPACK): a child with the box's
 * user, without capabilities, behind the filter; the bytes come over its stdin.
 *
 * argv: "file" NAME | "tar" | "zip". The working directory is the workspace.
 * stdout at the end: UNPACK_REPORT. Exit status: enum unpack_end; stderr says why.
 *
 * Everything is written to a folder of its own first, UNPACK_FOLDER, and moved to its place when it
 * is whole: what is new goes as one subtree with rename(2), a file that is there is exchanged. When
 * that fails midway it is undone, so after a failure nothing of it is in the workspace. Left out
 *and counted as skipped: links, devices and the like; names that are absolute, go through a link of
 * the workspace or have a segment "..".
 *
 *	unpack.c	the words, libarchive, the end
 *	unpack_gzip.c	the input, decompressed where it is gzip: libarchive 3.6 does not compare
 *			the checksum at gzip's end
 *	unpack_tree.c	the folder and the names in it
 *	unpack_walk.c	a walk over a tree of any depth, and its removal
 *	unpack_move.c	the move to the places, and back
 */
#ifndef CORDON_INIT_UNPACK_H
#define CORDON_INIT_UNPACK_H

#include "runners/base/agentproto.h"
#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

/* Removed by who uploads, when an earlier one was killed. */
#define UNPACK_FOLDER AGENT_UNPACK_FOLDER
/* Bytes that are kept of names: of folders, of a walk, of the way back. */
#define UNPACK_NAMES_BYTES (64U << 20)
#define UNPACK_PATH_BYTES  4096
#define UNPACK_DEPTH       (UNPACK_PATH_BYTES / 2)
/* The sum of sizes is counted up to this: holes have sizes too, and 1,000 parts are added up. */
#define UNPACK_BYTES_MOST ((uint64_t)1 << 51)
/* Names below the workspace are resolved so. */
#define UNPACK_INSIDE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

struct unpack_tree {
	int top;    /* the workspace */
	int folder; /* UNPACK_FOLDER */
	int parent; /* where the last name was made, or -1; its path */
	char parent_path[UNPACK_PATH_BYTES];
	struct buf folders; /* struct unpack_folder: those that are entries of the archive */
	struct buf paths;   /* theirs, each with its NUL */
	uint64_t made;      /* files in the folder */
	uint64_t files;
	uint64_t bytes;
	uint64_t skipped;
};

struct unpack_folder {
	size_t path; /* in tree->paths */
	size_t length;
	size_t order;
	struct timespec mtime; /* or UTIME_OMIT */
	mode_t mode;
};

/* --- unpack_tree.c --------------------------------------------------------------------------- */

int tree_open(struct unpack_tree *t, struct err *e);
/* Removes what is left of the folder. */
void tree_close(struct unpack_tree *t);
/* A path that may be used, without "./" and slashes at the end; NULL: it is left out. `room` has
 * UNPACK_PATH_BYTES. */
const char *tree_path(const char *name, char *room);
/* It gets mode and time at the end, if it is new in the workspace. */
int tree_add_folder(struct unpack_tree *t, const char *path, mode_t mode, struct timespec mtime,
		    struct err *e);
/* 1 open, 0 left out (a folder of that name is there), -1. */
int tree_add_file(struct unpack_tree *t, const char *path, mode_t mode, int *out_fd, struct err *e);
/* What a system call's errno means for an upload: ERR_STORAGE, ERR_NOMEM, ERR_CONFLICT (rights, or
 * somebody changed the names meanwhile) or ERR_IO. */
int tree_failed(struct err *e, int reason, const char *path, const char *what);

/* --- unpack_move.c --------------------------------------------------------------------------- */

/* Everything to its place, or nothing. ERR_CONFLICT: a name is a folder on one side and a file on
 * the other, or there is no right to write there. */
int tree_move(struct unpack_tree *t, struct err *e);

/* --- unpack_walk.c --------------------------------------------------------------------------- */

/* Where the names of a folder belong in the workspace. */
enum walk_place {
	WALK_BOTH,  /* into walk->to */
	WALK_NEW,   /* into a folder that is not there yet */
	WALK_BEYOND /* beyond a link */
};

enum walk_step { WALK_FAIL = -1, WALK_NEXT, WALK_ENTER };

/* A walk over a tree, beside it the workspace. It holds two descriptors whatever the depth; the way
 * up is "..", compared with what was there on the way down. */
struct walk {
	void *ctx;
	/* Each name of the folder `from`. WALK_ENTER: it is a folder; next_place is set, and
	 * next_to (owned by the walk then) with WALK_BOTH. */
	enum walk_step (*visit)(struct walk *w, const char *name, struct err *e);
	/* The same after what is in it; may be NULL. */
	void (*leave)(struct walk *w, const char *name);
	int from;
	int to;
	enum walk_place place;
	enum walk_place next_place;
	int next_to;
	char path[UNPACK_PATH_BYTES]; /* of the folder, "" at the top */
	struct buf names;
	struct walk_level *levels;
	size_t depth;
};

/* ctx, visit and leave are set, all else 0. The descriptors stay the caller's; to may be -1. */
int walk_run(struct walk *w, int from, int to, struct err *e);
/* Empties a folder, whatever the modes in it. */
void walk_remove(int folder);

/* --- unpack_gzip.c --------------------------------------------------------------------------- */

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
