/*
 * The keeper of one workspace: a child of cordon-box, one thread, no loop but this one. It ends
 * with cordon-box or when its socket does; its mount goes with it, unless boxes still have theirs.
 */
#include "runners/exec/workspace.h"

#include "runners/base/fdio.h"
#include "runners/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TARGET "/workspace" /* in the box */

struct keeper {
	int socket;
	int folder;
	const char *id;
	int mount; /* -1: not open */
	int root;  /* our root and mount namespace, to come back to */
	int home_ns;
};

static enum box_code code_of(const struct err *e)
{
	if (e->code == ERR_NOT_FOUND)
		return BOX_ERR_NOT_FOUND;
	if (e->code == ERR_CONFLICT)
		return BOX_ERR_BUSY;
	return e->code == ERR_UNAVAILABLE ? BOX_ERR_UNSUPPORTED : BOX_ERR_FAILED;
}

static int hold(struct keeper *k, struct err *e)
{
	return k->mount >= 0 ? 0 : volume_mount(k->folder, k->id, &k->mount, e);
}

/* Into the box's mount namespace, and back. Nothing of a user runs in that box yet. */
static int move_into(struct keeper *k, int tree, int box, struct err *e)
{
	int moved;
	int reason;

	if (setns(box, CLONE_NEWNS) != 0)
		return err_set(e, ERR_IO, errno, "enter the box");
	moved = move_mount(tree, "", AT_FDCWD, TARGET, MOVE_MOUNT_F_EMPTY_PATH);
	reason = errno;
	if (setns(k->home_ns, CLONE_NEWNS) != 0 || fchdir(k->root) != 0 || chroot(".") != 0)
		_exit(78); /* never go on in a box */
	if (moved != 0)
		return err_set(e, ERR_IO, reason, "mount in the box");
	return 0;
}

/* A further mount of what we hold. An older kernel (6.1) clones none that has no place; there it is
 * mounted once more: the same loop device, for which the kernel gives the same file system. */
static int open_view(const struct keeper *k, int *out_tree, struct err *e)
{
	*out_tree = open_tree(k->mount, "",
			      (unsigned int)AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (*out_tree >= 0)
		return 0;
	if (errno == EINVAL)
		return volume_mount(k->folder, k->id, out_tree, e);
	return err_set(e, ERR_IO, errno, "clone of a workspace's mount");
}

/* With a size in the request, a workspace that is not there is made. */
static int make_missing(const struct keeper *k, const char *id, const struct keeper_request *r,
			struct err *e)
{
	if (r->bytes == 0 || k->mount >= 0 ||
	    volume_make(k->folder, id, r->bytes, r->inodes, e) == 0)
		return 0;
	if (e->code != ERR_CONFLICT)
		return -1;
	err_clear(e); /* it is there */
	return 0;
}

static int attach(struct keeper *k, const struct keeper_request *r, const int fds[2], struct err *e)
{
	struct mount_attr attr = {
	    .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
	    .userns_fd = (unsigned int)fds[1],
	};
	scope_close int tree = -1;

	if (make_missing(k, k->id, r, e) != 0 || hold(k, e) != 0 || open_view(k, &tree, e) != 0)
		return -1;
	if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) != 0)
		return err_set(e, ERR_IO, errno, "ids of a workspace's mount");
	return move_into(k, tree, fds[0], e);
}

static int remove_all(const struct keeper *k, const struct keeper_request *r, struct err *e)
{
	if ((r->flags & BOX_WITH_COPIES) != 0 && volume_delete_copies(k->folder, k->id, e) != 0)
		return -1;
	return volume_delete(k->folder, k->id, e);
}

static int serve(struct keeper *k, const struct keeper_request *r, const int *fds, size_t fd_count,
		 struct keeper_reply *reply, struct err *e)
{
	switch ((enum keeper_verb)r->verb) {
	case KEEPER_MAKE:
		return volume_make(k->folder, k->id, r->bytes, r->inodes, e);
	case KEEPER_DELETE:
		/* nobody has it; a next one of this name is another file system */
		fd_close_at(&k->mount);
		return remove_all(k, r, e);
	case KEEPER_INFO:
		return volume_info(k->folder, k->id, &reply->bytes, &reply->used, e);
	case KEEPER_COPY:
		/* ours is another file system afterwards */
		fd_close_at(&k->mount);
		if (make_missing(k, r->source, r, e) != 0 ||
		    volume_copy(k->folder, r->source, k->id, e) != 0)
			return -1;
		return volume_info(k->folder, k->id, &reply->bytes, &reply->used, e);
	case KEEPER_HOLD:
		return hold(k, e);
	case KEEPER_ATTACH:
		if (fd_count == 2)
			return attach(k, r, fds, e);
		break;
	}
	return err_set(e, ERR_PROTOCOL, 0, "a request that no keeper knows");
}

static void leave(struct keeper *k)
{
	if (k->mount >= 0)
		volume_trim(k->mount);
	_exit(0);
}

static void serve_one(struct keeper *k)
{
	struct keeper_request request;
	struct keeper_reply reply = {.code = BOX_OK};
	struct err e = ERR_INIT;
	int fds[2] = {-1, -1};
	size_t count;
	ssize_t got = fd_receive(k->socket, &request, sizeof(request), fds, 2, &count, &e);

	if (got != (ssize_t)sizeof(request))
		leave(k);
	request.source[sizeof(request.source) - 1] = '\0';
	reply.verb = request.verb;
	reply.slot = request.slot;
	reply.serial = request.serial;
	if (serve(k, &request, fds, count, &reply, &e) != 0) {
		reply.code = code_of(&e);
		reply.sys = e.sys;
		(void)snprintf(reply.text, sizeof(reply.text), "%s", e.text);
	}
	for (size_t i = 0; i < count; i++)
		fd_close_at(&fds[i]);
	err_clear(&e);
	if (fd_send(k->socket, &reply, sizeof(reply), NULL, 0, &e) < 0)
		leave(k);
}

void keeper_run(int socket, int folder, const char *id)
{
	struct keeper k = {.socket = socket, .folder = folder, .id = id, .mount = -1};

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, "cordon-keeper");
	(void)prctl(PR_SET_DUMPABLE, 0);
	k.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	k.home_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (k.root < 0 || k.home_ns < 0)
		_exit(79);
	for (;;)
		serve_one(&k);
}
