/*
 * workspace.h: workspaces that stay, <data>/workspaces/<id>: one sparse ext4 image file each, in a
 * folder of root's (0700). Real ends of space and of inodes, whatever is inside.
 *
 * Each open workspace has a keeper, a child process that holds its loop device and its one mount
 * (detached: it has no place in any tree, so nothing can be left). All that can block is done
 *there: mke2fs, mount, the last write-back. cordon-box only sends it fixed records.
 *
 *	workspace.c   cordon-box's side: who uses which workspace, keepers, what the caller asks for
 *	keeper.c      the keeper
 *	volume.c      image files, templates, loop devices, mounts
 *
 * A box gets the workspace when it is assigned: the keeper clones the mount, shows it under the
 * slot's ids (on disk are the ids of the box, 0 to 65535) with nosuid and nodev, and moves it onto
 * /workspace in the box's mount namespace, before any command of a user ran there. Several boxes
 *may have one workspace.
 *
 * A copy (snapshot, restore, clone) is made by the target's keeper while nobody has either of the
 * two: a reflink where the disk's file system can, else the allocated blocks; it gets its name when
 * it is whole and on disk.
 *
 * An image is never mounted twice: a keeper first looks for a loop device that has the file already
 * (boxes of an earlier cordon-box), and takes that one.
 */
#ifndef CORDON_EXEC_WORKSPACE_H
#define CORDON_EXEC_WORKSPACE_H

#include "runners/base/boxproto.h"
#include "runners/base/err.h"

#include <stdint.h>

#define WORKSPACE_ID_SIZE BOX_RUN_ID_SIZE
#define WORKSPACE_FOLDER  "workspaces"
#define WORKSPACE_OWNER   1000U /* on disk, the box's user */

enum keeper_verb {
	KEEPER_MAKE = 1,
	KEEPER_DELETE,
	KEEPER_INFO,
	KEEPER_ATTACH,
	KEEPER_HOLD,
	KEEPER_COPY
};

/* With ATTACH come two descriptors: pidfd of the box's pid 1, user namespace of its slot. */
struct keeper_request {
	uint32_t verb;
	uint32_t slot;
	uint64_t serial; /* of the box, echoed */
	uint64_t bytes;  /* ATTACH, COPY: of what is to be made when it is not there; 0: nothing */
	uint64_t inodes;
	uint32_t flags; /* of the request to cordon-box */
	uint32_t pad;
	char source[WORKSPACE_ID_SIZE]; /* COPY */
};

struct keeper_reply {
	uint32_t verb;
	uint32_t slot;
	uint64_t serial;
	uint32_t code; /* enum box_code */
	int32_t sys;
	uint64_t bytes; /* INFO, COPY: size of the image */
	uint64_t used;  /* INFO, COPY: of the disk */
	char text[BOX_TEXT_SIZE];
};

/* The keeper's process: serves `socket` until its end. folder: the workspaces'. */
void keeper_run(int socket, int folder, const char *id) __attribute__((noreturn));

/* --- volume.c -------------------------------------------------------------------------------- */

/* A new image of that usable size and number of inodes; ERR_CONFLICT when there is one. */
int volume_make(int folder, const char *id, uint64_t bytes, uint64_t inodes, struct err *e);
int volume_delete(int folder, const char *id, struct err *e);
/* Every image whose name is the id, a point and more. */
int volume_delete_copies(int folder, const char *id, struct err *e);
/* The image `id` becomes what `source` is; a crash leaves it as it was. Both must not be mounted:
 * waits a while for a file system that is being written back, then ERR_CONFLICT. */
int volume_copy(int folder, const char *source, const char *id, struct err *e);
/* Copies that a crash left unfinished. */
void volume_tidy(int folder);
/* ERR_NOT_FOUND when there is none. */
int volume_info(int folder, const char *id, uint64_t *out_bytes, uint64_t *out_used, struct err *e);
/* Mounts the image, or takes part in its mount: a descriptor of a detached mount. */
int volume_mount(int folder, const char *id, int *out_mount, struct err *e);
/* Gives blocks of removed files back to the host's disk. */
void volume_trim(int mount);

#endif
