#include "runners/base/ksys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>

int ksys_openat2(int dir_fd, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve};
	long fd;

	do
		fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
	while (fd < 0 && errno == EINTR);
	return (int)fd;
}

pid_t ksys_clone3(uint64_t flags, int exit_signal, int cgroup_fd, int *out_pidfd)
{
	struct clone_args args = {.flags = flags, .exit_signal = (unsigned int)exit_signal};

	if (cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (unsigned int)cgroup_fd;
	}
	if (out_pidfd != NULL) {
		args.flags |= CLONE_PIDFD;
		args.pidfd = (uint64_t)(uintptr_t)out_pidfd;
	}
	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

int ksys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}

int ksys_capset(uint64_t effective, uint64_t permitted)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
	    {.effective = (uint32_t)effective, .permitted = (uint32_t)permitted},
	    {.effective = (uint32_t)(effective >> 32), .permitted = (uint32_t)(permitted >> 32)},
	};

	return (int)syscall(SYS_capset, &header, data);
}

int ksys_seccomp(const void *instructions, size_t count)
{
	struct sock_fprog program = {.len = (unsigned short)count,
				     .filter = (struct sock_filter *)(uintptr_t)instructions};

	if (count == 0 || count > BPF_MAXINSNS) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

int ksys_fsid(uid_t uid, gid_t gid)
{
	(void)setfsgid(gid);
	(void)setfsuid(uid);
	if ((uid_t)setfsuid((uid_t)-1) != uid || (gid_t)setfsgid((gid_t)-1) != gid) {
		errno = EPERM;
		return -1;
	}
	return 0;
}
