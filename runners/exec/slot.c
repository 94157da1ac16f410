/* What a slot keeps from box to box: its ids, a user namespace with their map, its groups. */
#include "runners/exec/daemon.h"

#include "runners/base/fdio.h"
#include "runners/base/ksys.h"
#include "runners/base/mem.h"
#include "runners/base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>

#define LOCK_DIR          "/run/cordon-box"
#define LOCK_IDS          (UINT64_C(1) << 22)
#define PREPARED_AT_START 64

/* --- locks ---------------------------------------------------------------------------------- */

/* A lock that ends with this process. Its name is removed when we leave in order. */
static int lock_name(const char *name, int *out_fd, struct err *e)
{
	char path[96];
	struct stat held;
	struct stat named;

	(void)snprintf(path, sizeof(path), LOCK_DIR "/%s.lock", name);
	for (;;) {
		scope_close int fd = -1;

		if (mkdir(LOCK_DIR, 0700) != 0 && errno != EEXIST)
			return err_set(e, ERR_IO, errno, "mkdir " LOCK_DIR);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno == ENOENT)
			continue; /* the last holder of any lock removed the directory */
		if (fd < 0)
			return err_set(e, ERR_IO, errno, "open %s", path);
		if (flock(fd, LOCK_EX | LOCK_NB) != 0)
			return err_set(e, ERR_CONFLICT, errno, "another cordon-box holds %s", path);
		if (fstat(fd, &held) != 0)
			return err_set(e, ERR_IO, errno, "stat %s", path);
		/* the last holder may have removed the name meanwhile */
		if (stat(path, &named) == 0 && named.st_ino == held.st_ino) {
			*out_fd = fd_steal(&fd);
			return 0;
		}
	}
}

static void unlock_name(const char *name, int *fd)
{
	char path[96];

	if (*fd < 0)
		return;
	(void)snprintf(path, sizeof(path), LOCK_DIR "/%s.lock", name);
	(void)unlink(path);
	fd_close_at(fd);
}

static void block_name(const struct daemon *d, uint64_t i, char out[32])
{
	(void)snprintf(out, 32, "uid-%llx",
		       (unsigned long long)((d->config.uid_base / LOCK_IDS + i) * LOCK_IDS));
}

static void instance_name(const struct daemon *d, char out[64])
{
	(void)snprintf(out, 64, "instance-%s", d->instance);
}

int locks_take(struct daemon *d, struct err *e)
{
	uint64_t first = d->config.uid_base / LOCK_IDS;
	uint64_t last = (d->config.uid_base + d->config.slots * ZYGOTE_IDS - 1) / LOCK_IDS;
	char name[64];

	instance_name(d, name);
	if (lock_name(name, &d->instance_lock, e) != 0)
		return -1;
	for (uint64_t i = 0; i <= last - first && i < DAEMON_UID_LOCKS; i++) {
		block_name(d, i, name);
		if (lock_name(name, &d->uid_locks[i], e) != 0)
			return -1;
	}
	return 0;
}

void locks_release(struct daemon *d)
{
	char name[64];

	for (uint64_t i = 0; i < DAEMON_UID_LOCKS; i++) {
		block_name(d, i, name);
		unlock_name(name, &d->uid_locks[i]);
	}
	instance_name(d, name);
	unlock_name(name, &d->instance_lock);
	(void)rmdir(LOCK_DIR);
}

/* --- the user namespace --------------------------------------------------------------------- */

static int write_map(pid_t pid, const char *name, uint32_t base, struct err *e)
{
	char path[64];
	char line[64];

	(void)snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
	(void)snprintf(line, sizeof(line), "0 %u %u", base, ZYGOTE_IDS);
	return fd_write_value(AT_FDCWD, path, line, e);
}

/* A user namespace that no process lives in; idmapped mounts of the slot use it. */
static int make_userns(uint32_t base, int *out_fd, struct err *e)
{
	scope_close int hold = -1;
	scope_close int release = -1;
	scope_close int ns = -1;
	char path[64];
	int pair[2];
	int status;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) != 0)
		return err_set(e, ERR_IO, errno, "pipe");
	hold = pair[0];
	release = pair[1];
	pid = ksys_clone3(CLONE_NEWUSER, SIGCHLD, -1, NULL);
	if (pid == 0) {
		char byte;

		(void)close(release);
		(void)!read(hold, &byte, 1);
		_exit(0);
	}
	if (pid < 0)
		return err_set(e, ERR_IO, errno, "user namespace");
	(void)snprintf(path, sizeof(path), "/proc/%ld/ns/user", (long)pid);
	if (write_map(pid, "uid_map", base, e) == 0 && write_map(pid, "gid_map", base, e) == 0) {
		ns = open(path, O_RDONLY | O_CLOEXEC);
		if (ns < 0)
			(void)err_set(e, ERR_IO, errno, "open %s", path);
	}
	fd_close_at(&release);
	(void)proc_wait(pid, &status, e);
	if (ns < 0)
		return -1;
	*out_fd = fd_steal(&ns);
	return 0;
}

/* --- slots ---------------------------------------------------------------------------------- */

int slot_prepare(struct daemon *d, struct slot *s, struct err *e)
{
	if (s->userns < 0 && make_userns(s->uid_base, &s->userns, e) != 0)
		return err_wrap(e, "slot %u", s->number);
	/* each time: somebody may have removed an empty group */
	if (cgroup_slot_ready(&d->groups, &s->groups, e) != 0)
		return err_wrap(e, "slot %u", s->number);
	s->prepared = true;
	return 0;
}

int slots_open(struct daemon *d, struct err *e)
{
	d->slots = mem_zalloc(d->config.slots, sizeof(*d->slots));
	if (d->slots == NULL)
		return err_set(e, ERR_NOMEM, 0, "no memory for %llu slots",
			       (unsigned long long)d->config.slots);
	for (unsigned int i = 0; i < d->config.slots; i++) {
		struct slot *s = &d->slots[i];

		s->number = i;
		s->groups.number = i;
		s->userns = -1;
		s->control.fd = -1;
		s->pidfd.fd = -1;
		s->netns.fd = -1;
		for (int k = 0; k < ZYGOTE_PARTS; k++)
			s->parts[k] = -1;
		s->uid_base = (uint32_t)(d->config.uid_base + (uint64_t)i * ZYGOTE_IDS);
		if (i < PREPARED_AT_START && slot_prepare(d, s, e) != 0)
			return -1;
	}
	return 0;
}

void slots_close(struct daemon *d)
{
	for (unsigned int i = 0; d->slots != NULL && i < d->config.slots; i++) {
		fd_close_at(&d->slots[i].userns);
		fd_close_at(&d->slots[i].netns.fd);
		pool_close_parts(&d->slots[i]);
		cgroup_slot_close(&d->groups, &d->slots[i].groups);
	}
	mem_free(d->slots);
	d->slots = NULL;
}
