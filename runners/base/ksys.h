/*
 * ksys.h: system calls that glibc 2.36 has no wrapper for. All return -1 and set errno on failure.
 *
 * ksys_clone3 has no CLONE_VM, so it returns twice like fork. The child keeps the parent's signal
 * dispositions and mask: it must set them itself.
 */
#ifndef CORDON_BASE_KSYS_H
#define CORDON_BASE_KSYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* resolve: RESOLVE_* of linux/openat2.h. O_CLOEXEC is added. */
int ksys_openat2(int dir_fd, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve);

/*
 * flags: CLONE_* (CLONE_PIDFD and CLONE_INTO_CGROUP are added as needed). cgroup_fd: directory of a
 * v2 group, or -1. out_pidfd may be NULL. exit_signal must be 0 with CLONE_PARENT.
 */
pid_t ksys_clone3(uint64_t flags, int exit_signal, int cgroup_fd, int *out_pidfd);

int ksys_pivot_root(const char *new_root, const char *put_old);
/* The three capability sets of the calling thread, as bit masks; inheritable is emptied. */
int ksys_capset(uint64_t effective, uint64_t permitted);
/* Loads an exported filter: `count` instructions of 8 bytes (struct sock_filter). */
int ksys_seccomp(const void *instructions, size_t count);
/* setfsuid and setfsgid; the calls cannot report failure, so the result is read back. */
int ksys_fsid(uid_t uid, gid_t gid);

#endif
