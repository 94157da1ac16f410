/*
 * box.h: the zygote and the making of a box, inside cordon-init.
 *
 * zygote.c serves cordon-box: per CREATE it clones the template, shows it under the slot's ids,
 * clones the child with all namespaces, writes the child's maps and answers. build.c is that
 * child's way from clone to pid 1 of a finished box.
 */
#ifndef CORDON_INIT_BOX_H
#define CORDON_INIT_BOX_H

#include "runners/base/zygoteproto.h"

#include <linux/filter.h>
#include <stddef.h>

/* Paths in the zygote's own root, made by cordon-box. */
#define ZYGOTE_TEMPLATE "/t" /* the mounted template */
#define ZYGOTE_NEW_ROOT "/n" /* empty: where the child attaches its root */

#define BUILD_MAX_MASKS 48

/* What the zygote knows before the first box. */
struct build_base {
	struct sock_filter filter[BPF_MAXINSNS];
	size_t filter_count;
	const char *file_masks[BUILD_MAX_MASKS]; /* names beneath /proc, empty when read */
	size_t file_mask_count;
	const char *dir_masks[BUILD_MAX_MASKS];
	size_t dir_mask_count;
	const char *read_only[BUILD_MAX_MASKS];
	size_t read_only_count;
};

/* Brings lo of the present network namespace up; 0 or -1 with errno. */
int build_lo_up(void);
/* Which of the known sensitive names this kernel's /proc has. */
void build_find_masks(struct build_base *base);

/* In the child: builds the box, tells the control socket, and becomes its agent. */
struct build_job {
	const struct build_base *base;
	struct zygote_request request;
	int fds[ZYGOTE_FD__FIXED];
	int tasks[ZYGOTE_MAX_TASKS];
	int tree;      /* the slot's view of the template, detached */
	int usr;       /* its /usr with other ids, to go on top; -1 */
	int ids_ready; /* one byte comes when the maps are written; EOF: give up */
};
void build_and_serve(struct build_job *job) __attribute__((noreturn));

/* cordon-init --zygote. Never returns. */
void zygote_run(int socket) __attribute__((noreturn));

#endif
