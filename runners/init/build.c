#include "runners/init/box.h"

#include "runners/base/err.h"
#include "runners/base/fdio.h"
#include "runners/base/ksys.h"
#include "runners/init/server.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

/*
 * The order is the security order: groups, ids, root, proc, tmpfs, pivot, network, descriptors,
 * privileges, filter. Nothing from a client is read before the last step. A box that somebody waits
 * for is told to be ready before the filter, whose compilation runs beside the answer.
 *
 * The child joins its v1 groups by writing 0 to inherited descriptors (moving a foreign pid stalls
 * the writer for a grace period), and leaves the cgroup namespace only afterwards, so that
 * /proc/self/cgroup shows "/".
 */

#define LISTENER_FD 3
#define CONTROL_FD  4
#define PART_FD     5 /* to 8, if the box waits */
#define HIGH_FD     100
#define WORKSPACE   "/workspace"

#define CAP(name)   (UINT64_C(1) << (name))
/* What pid 1 keeps: to make commands (ids, bounding set) and to signal them. */
#define KEPT_CAPS (CAP(CAP_SETUID) | CAP(CAP_SETGID) | CAP(CAP_SETPCAP) | CAP(CAP_KILL))

#define SECURE_BITS                                                       \
	(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_KEEP_CAPS_LOCKED | \
	 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |    \
	 SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

/* What tells about the host or its other users; load, memory and cpu figures stay for programs. */
static const char *const sensitive_files[] = {
    "cmdline",  "config.gz",     "diskstats",  "interrupts",  "iomem",       "ioports",
    "kallsyms", "kcore",         "key-users",  "keys",        "kmsg",        "latency_stats",
    "locks",    "modules",       "mtrr",       "partitions",  "sched_debug", "schedstat",
    "slabinfo", "sysrq-trigger", "timer_list", "timer_stats", "vmallocinfo",
};
static const char *const sensitive_dirs[] = {"acpi",     "asound", "driver", "fs",
					     "pressure", "scsi",   "tty"};
static const char *const read_only_dirs[] = {"bus", "irq", "sys"};

/* A file that others cannot read or write anyway (kcore, kmsg, ...) needs no mask: its owner has no
 * id in a box, so nobody there has a right to it. Each mask saved is a mount saved per box. */
void build_find_masks(struct build_base *base)
{
	struct stat st;
	char path[64];

	for (size_t i = 0; i < sizeof(sensitive_files) / sizeof(sensitive_files[0]); i++) {
		(void)snprintf(path, sizeof(path), "/proc/%s", sensitive_files[i]);
		if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0007) != 0)
			base->file_masks[base->file_mask_count++] = sensitive_files[i];
	}
	for (size_t i = 0; i < sizeof(sensitive_dirs) / sizeof(sensitive_dirs[0]); i++) {
		(void)snprintf(path, sizeof(path), "/proc/%s", sensitive_dirs[i]);
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			base->dir_masks[base->dir_mask_count++] = sensitive_dirs[i];
	}
	for (size_t i = 0; i < sizeof(read_only_dirs) / sizeof(read_only_dirs[0]); i++) {
		(void)snprintf(path, sizeof(path), "/proc/%s", read_only_dirs[i]);
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			base->read_only[base->read_only_count++] = read_only_dirs[i];
	}
}

static int control_fd = -1;
static int part_fds[ZYGOTE_PARTS] = {-1, -1, -1, -1};

static void tell(int stage, int sys)
{
	struct zygote_ready ready = {.version = ZYGOTE_VERSION, .stage = stage, .sys = sys};
	struct err e = ERR_INIT;
	bool with_parts = stage == ZYGOTE_DONE && part_fds[0] >= 0;

	(void)fd_send(control_fd, &ready, sizeof(ready), part_fds, with_parts ? ZYGOTE_PARTS : 0,
		      &e);
}

static __attribute__((noreturn)) void give_up(int stage)
{
	tell(stage, errno);
	_exit(74);
}

static void must(int result, int stage)
{
	if (result != 0)
		give_up(stage);
}

static void join_groups(const struct build_job *job)
{
	for (uint32_t i = 0; i < job->request.tasks; i++)
		if (write(job->tasks[i], "0", 1) != 1)
			give_up(ZYGOTE_STAGE_GROUPS);
}

static void take_ids(const struct build_job *job)
{
	char byte;
	ssize_t got;

	do
		got = read(job->ids_ready, &byte, 1);
	while (got < 0 && errno == EINTR);
	if (got != 1)
		_exit(75); /* the zygote has answered already */
	must(unshare(CLONE_NEWCGROUP), ZYGOTE_STAGE_GROUPS);
	must(setgroups(0, NULL), ZYGOTE_STAGE_IDS);
	must(setresgid(0, 0, 0), ZYGOTE_STAGE_IDS);
	must(setresuid(0, 0, 0), ZYGOTE_STAGE_IDS);
	/* until it is assigned, a box does not outlive cordon-box; a change of ids clears this */
	must(prctl(PR_SET_PDEATHSIG, SIGKILL), ZYGOTE_STAGE_IDS);
}

static void mount_proc(const struct build_base *base)
{
	char path[64];

	must(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible"),
	     ZYGOTE_STAGE_PROC);
	for (size_t i = 0; i < base->file_mask_count; i++) {
		(void)snprintf(path, sizeof(path), "proc/%s", base->file_masks[i]);
		must(mount("dev/null", path, NULL, MS_BIND, NULL), ZYGOTE_STAGE_PROC);
	}
	for (size_t i = 0; i < base->dir_mask_count; i++) {
		(void)snprintf(path, sizeof(path), "proc/%s", base->dir_masks[i]);
		must(mount("run", path, NULL, MS_BIND, NULL), ZYGOTE_STAGE_PROC);
	}
	for (size_t i = 0; i < base->read_only_count; i++) {
		(void)snprintf(path, sizeof(path), "proc/%s", base->read_only[i]);
		must(mount(path, path, NULL, MS_BIND, NULL), ZYGOTE_STAGE_PROC);
		must(mount(NULL, path, NULL,
			   MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
			   NULL),
		     ZYGOTE_STAGE_PROC);
	}
}

static void mount_tmpfs(const char *name, const char *target, uint64_t bytes, uint64_t inodes,
			const char *owner)
{
	char options[128];

	(void)snprintf(options, sizeof(options), "size=%llu,nr_inodes=%llu,%s",
		       (unsigned long long)bytes, (unsigned long long)inodes, owner);
	must(mount(name, target, "tmpfs", MS_NOSUID | MS_NODEV, options), ZYGOTE_STAGE_TMPFS);
}

static void mount_root(const struct build_job *job)
{
	const struct zygote_request *r = &job->request;
	char owner[64];

	must(move_mount(job->tree, "", AT_FDCWD, ZYGOTE_NEW_ROOT, MOVE_MOUNT_F_EMPTY_PATH),
	     ZYGOTE_STAGE_ROOT);
	must(chdir(ZYGOTE_NEW_ROOT), ZYGOTE_STAGE_ROOT);
	if (job->usr >= 0)
		must(move_mount(job->usr, "", AT_FDCWD, "usr", MOVE_MOUNT_F_EMPTY_PATH),
		     ZYGOTE_STAGE_ROOT);
	mount_proc(job->base);
	(void)snprintf(owner, sizeof(owner), "mode=0755,uid=%u,gid=%u", r->workspace_uid,
		       r->workspace_uid);
	mount_tmpfs("workspace", "workspace", r->workspace_bytes, r->workspace_inodes, owner);
	mount_tmpfs("tmp", "tmp", r->tmp_bytes, r->tmp_inodes, "mode=1777");
	mount_tmpfs("shm", "dev/shm", r->tmp_bytes, r->tmp_inodes, "mode=1777");
	/* terminals of the box alone; one belongs to whoever opened its master */
	must(mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		   "newinstance,ptmxmode=0666,mode=0620,max=64"),
	     ZYGOTE_STAGE_TMPFS);
	/* the old root goes on top of the new one and away: nothing of the zygote is left */
	must(ksys_pivot_root(".", "."), ZYGOTE_STAGE_PIVOT);
	must(umount2(".", MNT_DETACH), ZYGOTE_STAGE_PIVOT);
	must(chdir("/"), ZYGOTE_STAGE_PIVOT);
}

int build_lo_up(void)
{
	struct ifreq request = {.ifr_name = "lo"};
	scope_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	return ioctl(fd, SIOCSIFFLAGS, &request);
}

static void set_up_network(const struct build_job *job)
{
	if ((job->request.flags & ZYGOTE_HAS_NETNS) == 0)
		must(build_lo_up(), ZYGOTE_STAGE_NET);
	must(sethostname("box", 3), ZYGOTE_STAGE_NET);
}

/* What cordon-box needs to set the sizes at assignment; sent away with the first ready. */
static void pick_parts(void)
{
	static const char *const paths[ZYGOTE_PARTS] = {WORKSPACE, "/tmp", "/dev/shm", "/proc"};

	for (int i = 0; i < ZYGOTE_PARTS; i++) {
		scope_close int fd = fspick(AT_FDCWD, paths[i], FSPICK_CLOEXEC);

		/* beyond the numbers that arrange_fds gives out */
		part_fds[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
		if (part_fds[i] < 0)
			give_up(ZYGOTE_STAGE_TMPFS);
	}
}

/* 0 to 2 are the box's own null device, then the listener and the control socket; all else goes. */
static void arrange_fds(const struct build_job *job)
{
	int listener = fcntl(job->fds[ZYGOTE_FD_LISTENER], F_DUPFD_CLOEXEC, HIGH_FD);
	int control = fcntl(control_fd, F_DUPFD_CLOEXEC, HIGH_FD);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int next = PART_FD;

	if (listener < 0 || control < 0 || null < 0)
		give_up(ZYGOTE_STAGE_FDS);
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			give_up(ZYGOTE_STAGE_FDS);
	if (dup3(listener, LISTENER_FD, O_CLOEXEC) < 0)
		give_up(ZYGOTE_STAGE_FDS);
	control_fd = control;
	if (dup3(control, CONTROL_FD, O_CLOEXEC) < 0)
		give_up(ZYGOTE_STAGE_FDS);
	control_fd = CONTROL_FD;
	for (int i = 0; i < ZYGOTE_PARTS && part_fds[0] >= 0; i++) {
		if (dup3(part_fds[i], next, O_CLOEXEC) < 0)
			give_up(ZYGOTE_STAGE_FDS);
		part_fds[i] = next++;
	}
	must(close_range((unsigned int)next, ~0U, 0), ZYGOTE_STAGE_FDS);
}

static void drop_privileges(void)
{
	for (int cap = 0; cap <= 63; cap++)
		if (prctl(PR_CAPBSET_DROP, cap) != 0) {
			if (errno == EINVAL && cap > CAP_LAST_CAP)
				break; /* this kernel has no more */
			give_up(ZYGOTE_STAGE_PRIVILEGES);
		}
	must(prctl(PR_SET_SECUREBITS, SECURE_BITS), ZYGOTE_STAGE_PRIVILEGES);
	must(ksys_capset(KEPT_CAPS, KEPT_CAPS), ZYGOTE_STAGE_PRIVILEGES);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), ZYGOTE_STAGE_PRIVILEGES);
	must(prctl(PR_SET_DUMPABLE, 0), ZYGOTE_STAGE_PRIVILEGES);
}

/* For pid 1 too, and inherited by every command at no cost. The kernel compiles it each time. */
static int use_filter(const struct build_base *base)
{
	return ksys_seccomp(base->filter, base->filter_count);
}

void build_and_serve(struct build_job *job)
{
	bool assigned = (job->request.flags & ZYGOTE_WAIT) == 0;

	control_fd = job->fds[ZYGOTE_FD_CONTROL];
	join_groups(job);
	take_ids(job);
	mount_root(job);
	set_up_network(job);
	if (!assigned)
		pick_parts();
	arrange_fds(job);
	drop_privileges();
	if (assigned)
		(void)prctl(PR_SET_PDEATHSIG, 0);
	else
		must(use_filter(job->base), ZYGOTE_STAGE_FILTER);
	tell(ZYGOTE_DONE, 0);
	/* somebody waits for an assigned box: beside the reply to the create, and before anything
	 * of a client is read */
	if (assigned && use_filter(job->base) != 0)
		_exit(76);
	if (assigned)
		fd_close_at(&control_fd);
	for (int i = 0; i < ZYGOTE_PARTS; i++)
		fd_close_at(&part_fds[i]);
	/* beside the reply to the create: needs no right, and all is mounted */
	if (landlock_use() != 0)
		_exit(76);
	server_run(LISTENER_FD, assigned ? -1 : CONTROL_FD, WORKSPACE, job->request.workspace_uid);
}
