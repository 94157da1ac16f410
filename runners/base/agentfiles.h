/*
 * agentfiles.h: the agent's requests about names in the workspace: LIST, STAT, REMOVE, MKDIR,
 * RENAME, and INFO, the answer that describes one name. As agentproto.h: agent_put_*() appends one
 * frame, agent_get_*() checks every length and value of one; what comes from a box is hostile.
 */
#ifndef CORDON_BASE_AGENTFILES_H
#define CORDON_BASE_AGENTFILES_H

#include "runners/base/agentproto.h"

#define AGENT_NAME_BYTES 255

/* One request. Which fields count depends on its type; the others are 0 and empty. */
struct agent_name_request {
	uint16_t type; /* AGENT_LIST to AGENT_RENAME */
	/* RECURSIVE with REMOVE, PARENTS with MKDIR */
	uint16_t flags;
	uint32_t uid; /* as whom */
	uint32_t gid;
	uint64_t limit;                  /* LIST: most entries; 0: all */
	uint32_t mode;                   /* MKDIR: to 0777 */
	char path[LIMIT_PATH_BYTES + 1]; /* "" is the workspace: LIST, STAT, REMOVE RECURSIVE */
	char to[LIMIT_PATH_BYTES + 1];   /* RENAME */
};

/* What fits no rule of the type sets an error and appends nothing. */
int agent_put_name_request(struct buf *b, uint32_t client, uint32_t tag,
			   const struct agent_name_request *want, struct err *e);
int agent_get_name_request(const struct agent_frame *f, struct agent_name_request *out,
			   struct err *e);

/* What lstat says of a name. */
struct agent_info {
	const char *name; /* not NUL terminated, no '/', to 255 bytes; empty: the workspace */
	size_t name_length;
	enum agent_kind kind; /* UNREADABLE: nothing else is known */
	uint32_t mode;        /* to 07777 */
	uint32_t uid;         /* ids inside the box */
	uint32_t gid;
	uint32_t links;
	uint64_t inode;
	uint64_t size;
	uint64_t allocated; /* bytes */
	int64_t mtime_us;
	int64_t ctime_us;
	int64_t atime_us;
};

void agent_put_info(struct buf *b, const struct agent_header *request,
		    const struct agent_info *info);
int agent_get_info(const struct agent_frame *f, struct agent_info *out, struct err *e);

#endif
