#include "runners/init/box.h"

#include "runners/base/err.h"
#include "runners/base/fdio.h"
#include "runners/base/ksys.h"
#include "runners/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)

static struct build_base build_base;
static int template_fd = -1;

static int configure(int filter_fd, struct err *e)
{
	struct stat st;
	size_t size;

	if (fstat(filter_fd, &st) != 0)
		return err_set(e, ERR_IO, errno, "filter");
	size = (size_t)st.st_size;
	if (size == 0 || size > sizeof(build_base.filter) || size % sizeof(struct sock_filter) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "a filter of %zu bytes", size);
	if (lseek(filter_fd, 0, SEEK_SET) != 0)
		return err_set(e, ERR_IO, errno, "filter");
	if (fd_read_full(filter_fd, build_base.filter, size, e) != 0)
		return -1;
	build_base.filter_count = size / sizeof(struct sock_filter);
	template_fd = open(ZYGOTE_TEMPLATE, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (template_fd < 0)
		return err_set(e, ERR_IO, errno, "template");
	build_find_masks(&build_base);
	return 0;
}

/* Idmapped mounts are for /usr alone. */
static bool idmap_usr;

static int clone_tree(const char *path, struct zygote_reply *reply)
{
	int tree = open_tree(template_fd, path,
			     (unsigned int)AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
				 (unsigned int)AT_RECURSIVE);

	if (tree < 0) {
		reply->stage = ZYGOTE_STAGE_TEMPLATE;
		reply->sys = errno;
	}
	return tree;
}

static int idmap_tree(int tree, unsigned int flags, int userns, struct zygote_reply *reply)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned int)userns};

	if (mount_setattr(tree, "", AT_EMPTY_PATH | flags, &attr, sizeof(attr)) == 0)
		return 0;
	reply->stage = ZYGOTE_STAGE_IDMAP;
	reply->sys = errno;
	return -1;
}

static void close_trees(struct build_job *job)
{
	fd_close_at(&job->tree);
	fd_close_at(&job->usr);
}

/* A copy of the template, owned by root as the box will see it; where that is possible for /usr
 * alone, a second one of that, which goes on top of the first one's. */
static int clone_template(struct build_job *job, struct zygote_reply *reply)
{
	bool idmap = (job->request.flags & ZYGOTE_IDMAP) != 0;
	int userns = job->fds[ZYGOTE_FD_USERNS];

	job->usr = -1;
	job->tree = clone_tree("", reply);
	if (job->tree < 0)
		return -1;
	if (idmap && idmap_usr) {
		job->usr = clone_tree("usr", reply);
		if (job->usr >= 0 && idmap_tree(job->usr, 0, userns, reply) == 0)
			return 0;
	} else if (!idmap || idmap_tree(job->tree, AT_RECURSIVE, userns, reply) == 0) {
		return 0;
	}
	close_trees(job);
	return -1;
}

/* What of the template can be shown with other ids: all of it, /usr alone (before Linux 6.3 tmpfs
 * cannot be), or nothing (overlayfs cannot be). */
static uint32_t find_idmap(int userns)
{
	struct build_job job = {.request = {.flags = ZYGOTE_IDMAP}};
	struct zygote_reply reply = {.stage = ZYGOTE_DONE};

	job.fds[ZYGOTE_FD_USERNS] = userns;
	for (int i = 0; i < 2; i++) {
		idmap_usr = i == 1;
		if (clone_template(&job, &reply) != 0)
			continue;
		close_trees(&job);
		return ZYGOTE_IDMAP | (idmap_usr ? ZYGOTE_IDMAP_USR : 0);
	}
	return 0;
}

static int write_map(pid_t pid, const char *name, uint32_t base)
{
	struct err e = ERR_INIT;
	char path[64];
	char line[64];

	(void)snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
	(void)snprintf(line, sizeof(line), "0 %u %u", base, ZYGOTE_IDS);
	if (fd_write_value(AT_FDCWD, path, line, &e) != 0) {
		errno = e.sys;
		return -1;
	}
	return 0;
}

/*
 * Whose the next user namespace is. What the kernel counts for each user (inotify instances, queued
 * signals, timers, locked memory) is counted for the owner of a user namespace too: were that root,
 * one box could use up what all boxes and the host's root have. So it is the last id of the box's
 * own range. Capabilities stay (SECBIT_NO_SETUID_FIXUP, which the new namespace resets).
 */
static int act_as(uid_t uid)
{
	if (setresuid((uid_t)-1, uid, (uid_t)-1) != 0)
		return -1;
	/* a change of ids clears it */
	return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Clones the child and gives it its ids; the child never comes back from here. */
static void clone_box(struct build_job *job, struct zygote_reply *reply, int *out_pidfd)
{
	int group = (job->request.flags & ZYGOTE_HAS_GROUP) != 0 ? job->fds[ZYGOTE_FD_GROUP] : -1;
	uint64_t net = CLONE_NEWNET;
	int ids[2];
	int failed;
	pid_t pid;

	/* the child could not enter it, having no rights outside its user namespace: we do, and it
	 * is born there */
	if ((job->request.flags & ZYGOTE_HAS_NETNS) != 0) {
		net = 0;
		if (setns(job->fds[ZYGOTE_FD_NETNS], CLONE_NEWNET) != 0) {
			reply->stage = ZYGOTE_STAGE_NET;
			reply->sys = errno;
			return;
		}
	}

	if (pipe2(ids, O_CLOEXEC) != 0) {
		reply->stage = ZYGOTE_STAGE_CLONE;
		reply->sys = errno;
		return;
	}
	if (act_as(job->request.uid_base + ZYGOTE_IDS - 1) != 0) {
		reply->stage = ZYGOTE_STAGE_IDS;
		reply->sys = errno;
		(void)close(ids[0]);
		(void)close(ids[1]);
		return;
	}
	/* CLONE_PARENT: cordon-box itself is the parent, so boxes outlive their zygote */
	pid = ksys_clone3(NAMESPACES | CLONE_PARENT | net, 0, group, out_pidfd);
	if (pid == 0) {
		(void)close(ids[1]);
		job->ids_ready = ids[0];
		build_and_serve(job);
	}
	failed = errno;
	if (act_as(0) != 0)
		_exit(74); /* never go on as another */
	if (pid < 0) {
		reply->stage = ZYGOTE_STAGE_CLONE;
		reply->sys = failed;
	} else if (write_map(pid, "uid_map", job->request.uid_base) != 0 ||
		   write_map(pid, "gid_map", job->request.uid_base) != 0) {
		reply->stage = ZYGOTE_STAGE_IDS;
		reply->sys = errno;
	} else if (write(ids[1], "1", 1) != 1) {
		reply->stage = ZYGOTE_STAGE_IDS;
		reply->sys = errno;
	}
	reply->pid = pid < 0 ? 0 : pid;
	(void)close(ids[0]);
	(void)close(ids[1]);
}

static void create(const struct zygote_request *request, int *fds, size_t count,
		   struct zygote_reply *reply, int *out_pidfd)
{
	struct build_job job = {.base = &build_base, .request = *request};

	if (template_fd < 0 || request->tasks > ZYGOTE_MAX_TASKS ||
	    count != ZYGOTE_FD__FIXED + request->tasks) {
		reply->stage = ZYGOTE_STAGE_REQUEST;
		reply->sys = EINVAL;
		return;
	}
	memcpy(job.fds, fds, sizeof(job.fds));
	memcpy(job.tasks, fds + ZYGOTE_FD__FIXED, request->tasks * sizeof(int));
	if (clone_template(&job, reply) != 0)
		return;
	clone_box(&job, reply, out_pidfd);
	close_trees(&job);
}

/* A network namespace of the host's root with lo up. We stay in it until the next one. */
static int make_netns(struct zygote_reply *reply)
{
	int fd = -1;

	if (unshare(CLONE_NEWNET) == 0 && build_lo_up() == 0)
		fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		reply->stage = ZYGOTE_STAGE_NET;
		reply->sys = errno;
	}
	return fd;
}

static void serve_one(int socket)
{
	struct zygote_request request;
	struct zygote_reply reply = {.version = ZYGOTE_VERSION};
	struct err e = ERR_INIT;
	int fds[FDIO_MAX_FDS];
	scope_close int pidfd = -1;
	size_t count;
	ssize_t got = fd_receive(socket, &request, sizeof(request), fds, FDIO_MAX_FDS, &count, &e);

	if (got != (ssize_t)sizeof(request) || request.version != ZYGOTE_VERSION)
		_exit(got == 0 ? 0 : 72);
	reply.verb = request.verb;
	reply.serial = request.serial;
	if (request.verb == ZYGOTE_CONFIGURE && count == 2) {
		if (configure(fds[0], &e) == 0) {
			reply.flags = find_idmap(fds[1]);
		} else {
			log_err(LOG_ERROR, "zygote_configure", &e, "%s", "");
			reply.stage = ZYGOTE_STAGE_TEMPLATE;
			reply.sys = e.sys == 0 ? EINVAL : e.sys;
		}
	} else if (request.verb == ZYGOTE_CREATE) {
		create(&request, fds, count, &reply, &pidfd);
	} else if (request.verb == ZYGOTE_NETNS && count == 0) {
		pidfd = make_netns(&reply);
	} else {
		reply.stage = ZYGOTE_STAGE_REQUEST;
		reply.sys = EINVAL;
	}
	for (size_t i = 0; i < count; i++)
		(void)close(fds[i]);
	err_clear(&e);
	if (fd_send(socket, &reply, sizeof(reply), &pidfd, pidfd >= 0 ? 1 : 0, &e) < 0)
		_exit(73);
}

void zygote_run(int socket)
{
	(void)prctl(PR_SET_DUMPABLE, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
	    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) != 0)
		_exit(74);
	for (;;)
		serve_one(socket);
}
