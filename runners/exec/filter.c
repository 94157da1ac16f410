#include "runners/exec/filter.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* The first number that this list has not judged (Linux 6.17 ends at file_setattr, 469). */
#define FIRST_UNKNOWN_CALL 470

/*
 * Allowed whatever the arguments: what the default profile of the container engines allows to a
 * container without capabilities, less
 *
 *	ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd, process_madvise
 *			reach into other processes; debuggers do not work in a box
 *	io_uring_*	a second way to most calls that no filter sees, and a long list of holes
 *	io_setup and its like
 *			their number is limited for the whole host (fs.aio-max-nr): one box could
 *			use up all; they do not exist (ENOSYS), and programs fall back
 *	userfaultfd	stops the kernel at a chosen point, the helper of most race exploits
 *	add_key, request_key, keyctl
 *			keyrings are not namespaced by user alone
 *	bpf, perf_event_open
 *			the verifier and perf are large surfaces that programs in a box do not need
 *	vmsplice	pages of a process in a pipe, unprotected from later changes
 *	modify_ldt	16-bit segments; of use to very old programs only
 *	memfd_secret	memory that the host cannot look at
 *	name_to_handle_at, fanotify_mark
 *			half of open_by_handle_at, and of a call that needs a capability anyway
 *	adjtimex, clock_adjtime
 *			clocks of the host
 *	get_mempolicy, set_mempolicy, mbind, migrate_pages, move_pages
 *			placement of memory; as in the reference without CAP_SYS_NICE
 *	mount, umount2, pivot_root, chroot, the new mount calls, unshare, setns, statmount,
 *listmount roots and namespaces of a box are made before the filter
 *	lsm_*		tell of the host's security modules
 *	old names that no kernel serves any more
 */
static const char *const allowed[] = {
    "accept",
    "accept4",
    "access",
    "alarm",
    "arch_prctl",
    "bind",
    "brk",
    "capget",
    "capset",
    "chdir",
    "chmod",
    "chown",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "close_range",
    "connect",
    "copy_file_range",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd",
    "eventfd2",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "fcntl",
    "fdatasync",
    "fgetxattr",
    "flistxattr",
    "flock",
    "fork",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futex",
    "futex_waitv",
    "futimesat",
    "get_robust_list",
    "get_thread_area",
    "getcpu",
    "getcwd",
    "getdents",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getitimer",
    "getpeername",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getpriority",
    "getrandom",
    "getresgid",
    "getresuid",
    "getrlimit",
    "getrusage",
    "getsid",
    "getsockname",
    "getsockopt",
    "gettid",
    "gettimeofday",
    "getuid",
    "getxattr",
    "inotify_add_watch",
    "inotify_init",
    "inotify_init1",
    "inotify_rm_watch",
    "ioprio_get",
    "ioprio_set",
    "kill",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "lchown",
    "lgetxattr",
    "link",
    "linkat",
    "listen",
    "listxattr",
    "llistxattr",
    "lremovexattr",
    "lseek",
    "lsetxattr",
    "lstat",
    "madvise",
    "membarrier",
    "memfd_create",
    "mincore",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "mprotect",
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "mremap",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "msync",
    "munlock",
    "munlockall",
    "munmap",
    "nanosleep",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "pause",
    "pidfd_open",
    "pidfd_send_signal",
    "pipe",
    "pipe2",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "poll",
    "ppoll",
    "prctl",
    "pread64",
    "preadv",
    "preadv2",
    "prlimit64",
    "process_mrelease",
    "pselect6",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readlink",
    "readlinkat",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "remap_file_pages",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "restart_syscall",
    "rmdir",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "sched_yield",
    "seccomp",
    "select",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "set_robust_list",
    "set_thread_area",
    "set_tid_address",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setitimer",
    "setpgid",
    "setpriority",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setrlimit",
    "setsid",
    "setsockopt",
    "setuid",
    "setxattr",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    "shutdown",
    "sigaltstack",
    "signalfd",
    "signalfd4",
    "splice",
    "stat",
    "statfs",
    "statx",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "syncfs",
    "sysinfo",
    "tee",
    "tgkill",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    "times",
    "tkill",
    "truncate",
    "umask",
    "uname",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimes",
    "vfork",
    "wait4",
    "waitid",
    "write",
    "writev",
};

/* As above, by number: newer than libseccomp 2.5.4, the same on every architecture. */
static const int allowed_numbers[] = {
    451, /* cachestat */
    452, /* fchmodat2 */
    453, /* map_shadow_stack */
    454, /* futex_wake */
    455, /* futex_wait */
    456, /* futex_requeue */
    462, /* mseal */
    463, /* setxattrat */
    464, /* getxattrat */
    465, /* listxattrat */
    466, /* removexattrat */
    468, /* file_getattr */
    469, /* file_setattr */
};

static const struct {
	uint32_t audit;
	uint32_t token; /* libseccomp's */
	unsigned int ioctl;
	unsigned int personality;
} arches[FILTER_ARCH__MAX] = {
    [FILTER_X86_64] = {AUDIT_ARCH_X86_64, SCMP_ARCH_X86_64, 16, 135},
    [FILTER_AARCH64] = {AUDIT_ARCH_AARCH64, SCMP_ARCH_AARCH64, 29, 92},
};

#define RANGE_BOUNDS_MAX 254U

#define NAMESPACE_FLAGS                                                                \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

static int failed(int result, const char *what, struct err *e)
{
	return err_set(e, ERR_INTERNAL, -result, "seccomp rule %s", what);
}

/*
 * clone without new namespaces (CLONE_NEWTIME lies in its signal byte and cannot be asked for);
 * clone3 does not exist, since its flags cannot be read here, and callers then use clone.
 * Sockets: AF_UNIX, AF_INET, AF_INET6 and routing netlink. The comparison is of 64 bits, so a
 * family with a set high half is refused.
 */
static int allow_arguments(scmp_filter_ctx ctx, struct err *e)
{
	static const unsigned int families[] = {AF_UNIX, AF_INET, AF_INET6};
	static const int missing[] = {SCMP_SYS(clone3),       SCMP_SYS(io_setup),
				      SCMP_SYS(io_destroy),   SCMP_SYS(io_submit),
				      SCMP_SYS(io_getevents), SCMP_SYS(io_pgetevents),
				      SCMP_SYS(io_cancel)};
	int result = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, NAMESPACE_FLAGS, 0));

	for (size_t i = 0; i < ARRAY_LEN(missing) && result == 0; i++)
		result = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), missing[i], 0);
	for (size_t i = 0; i < ARRAY_LEN(families) && result == 0; i++)
		result = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
					  SCMP_A0(SCMP_CMP_EQ, families[i]));
	if (result == 0)
		result =
		    seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
				     SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_EQ, 0));
	if (result == 0)
		result = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
					  SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
	return result == 0 ? 0 : failed(result, "with arguments", e);
}

#define LOAD(field)          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define EQUAL(k, yes, no)    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)(k), yes, no)
#define AT_LEAST(k, yes, no) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned int)(k), yes, no)
#define ANSWER(value)        BPF_STMT(BPF_RET | BPF_K, value)
#define NO_SUCH_CALL         (SECCOMP_RET_ERRNO | ENOSYS)
#define REFUSED              (SECCOMP_RET_ERRNO | EPERM)

/*
 * The program is four parts, one behind the other: foreign entries and unknown numbers; the ranges
 * of what is allowed whatever the arguments; two calls by their arguments' values; and what
 * libseccomp makes of the rules above, which also refuses the rest.
 */

/* 32-bit entries, x32 (by its numbers) and numbers that the list has not judged do not exist. */
static int write_prefix(enum filter_arch arch, int fd, struct err *e)
{
	const struct sock_filter head[] = {
	    LOAD(arch), EQUAL(arches[arch].audit, 1, 0),    ANSWER(NO_SUCH_CALL),
	    LOAD(nr),   AT_LEAST(FIRST_UNKNOWN_CALL, 0, 1), ANSWER(NO_SUCH_CALL),
	};

	return fd_write_full(fd, head, sizeof(head), e);
}

/*
 * The allowed names as ranges of numbers, found by halving: bounds[0] begins the first range,
 * bounds[1] is behind its end, and so on, so a number with an odd count of bounds at or below it is
 * allowed. libseccomp writes an instruction for each name; the kernel compiles the program for
 * every box and asks it about every number, which took twice as long.
 */
struct ranges {
	struct sock_filter code[RANGE_BOUNDS_MAX];
	unsigned int bounds[RANGE_BOUNDS_MAX];
	unsigned int bound_count;
	unsigned int used;
};

static int by_number(const void *a, const void *b)
{
	const int *x = a;
	const int *y = b;

	return (*x > *y) - (*x < *y);
}

/* Absent names are left out: an architecture need not have all of them. */
static int find_ranges(enum filter_arch arch, struct ranges *r, struct err *e)
{
	int numbers[ARRAY_LEN(allowed) + ARRAY_LEN(allowed_numbers)];
	size_t count = 0;

	for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
		int number = seccomp_syscall_resolve_name_arch(arches[arch].token, allowed[i]);

		/* a name that libseccomp does not know would leave a hole in the list unseen */
		if (number == __NR_SCMP_ERROR || number >= FIRST_UNKNOWN_CALL)
			return failed(-EINVAL, allowed[i], e);
		if (number >= 0)
			numbers[count++] = number;
	}
	for (size_t i = 0; i < ARRAY_LEN(allowed_numbers); i++)
		numbers[count++] = allowed_numbers[i];
	qsort(numbers, count, sizeof(numbers[0]), by_number);
	for (size_t i = 0; i < count; i++) {
		if (i > 0 && numbers[i] <= numbers[i - 1] + 1) {
			r->bounds[r->bound_count - 1] = (unsigned int)numbers[i] + 1;
			continue;
		}
		/* a jump reaches 255 instructions */
		if (r->bound_count + 2 > RANGE_BOUNDS_MAX)
			return err_set(e, ERR_INTERNAL, 0, "too many ranges of system calls");
		r->bounds[r->bound_count++] = (unsigned int)numbers[i];
		r->bounds[r->bound_count++] = (unsigned int)numbers[i] + 1;
	}
	return 0;
}

/* From the instruction `at` to the answer for a number with that many bounds at or below it: the
 * instruction behind the tree allows, the one behind that goes on. */
static unsigned char to_answer(const struct ranges *r, unsigned int at, unsigned int bounds_below)
{
	return (unsigned char)(r->bound_count - at - (bounds_below % 2));
}

/* The bounds from lo to below hi; those before are at or below the number, those from hi above. */
static void put_tree(struct ranges *r, unsigned int lo, unsigned int hi)
{
	unsigned int middle = lo + (hi - lo) / 2;
	unsigned int at = r->used++;
	unsigned char yes =
	    middle + 1 < hi ? (unsigned char)(middle - lo) : to_answer(r, at, middle + 1);
	unsigned char no = lo < middle ? 0 : to_answer(r, at, lo);

	r->code[at] = (struct sock_filter)AT_LEAST(r->bounds[middle], yes, no);
	if (lo < middle)
		put_tree(r, lo, middle);
	if (middle + 1 < hi)
		put_tree(r, middle + 1, hi);
}

static int write_names(enum filter_arch arch, int fd, struct err *e)
{
	const struct sock_filter allow = ANSWER(SECCOMP_RET_ALLOW);
	struct ranges r = {.used = 0};

	if (find_ranges(arch, &r, e) != 0)
		return -1;
	put_tree(&r, 0, r.bound_count);
	if (fd_write_full(fd, r.code, r.used * sizeof(r.code[0]), e) != 0)
		return -1;
	return fd_write_full(fd, &allow, sizeof(allow), e);
}

/*
 * ioctl without the two requests that put text into a terminal's input; personality with a list of
 * allowed values (0, PER_LINUX32, UNAME26, both, and the query). The kernel takes the low half of
 * both arguments, as is done here; libseccomp compares all of it.
 */
static int write_by_value(enum filter_arch arch, int fd, struct err *e)
{
	const struct sock_filter code[] = {
	    EQUAL(arches[arch].ioctl, 0, 5),
	    LOAD(args[1]),
	    EQUAL(TIOCSTI, 2, 0),
	    EQUAL(TIOCLINUX, 1, 0),
	    ANSWER(SECCOMP_RET_ALLOW),
	    ANSWER(REFUSED),
	    EQUAL(arches[arch].personality, 0, 8),
	    LOAD(args[0]),
	    EQUAL(0, 4, 0),
	    EQUAL(0x0008, 3, 0),
	    EQUAL(0x20000, 2, 0),
	    EQUAL(0x20008, 1, 0),
	    EQUAL(0xFFFFFFFF, 0, 1),
	    ANSWER(SECCOMP_RET_ALLOW),
	    ANSWER(REFUSED),
	};

	return fd_write_full(fd, code, sizeof(code), e);
}

static int build_rules(scmp_filter_ctx ctx, enum filter_arch arch, struct err *e)
{
	int result = 0;

	if (seccomp_arch_native() != arches[arch].token) {
		result = seccomp_arch_add(ctx, arches[arch].token);
		if (result == 0)
			result = seccomp_arch_remove(ctx, seccomp_arch_native());
	}
	if (result == 0)
		result = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	if (result != 0)
		return failed(result, "attributes", e);
	return allow_arguments(ctx, e);
}

int filter_export(enum filter_arch arch, int fd, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int result = 0;

	if (ctx == NULL)
		return err_set(e, ERR_INTERNAL, errno, "seccomp_init");
	result = build_rules(ctx, arch, e);
	if (result == 0)
		result = write_prefix(arch, fd, e);
	if (result == 0)
		result = write_names(arch, fd, e);
	if (result == 0)
		result = write_by_value(arch, fd, e);
	if (result == 0) {
		int exported = seccomp_export_bpf(ctx, fd);

		if (exported != 0)
			result = failed(exported, "export", e);
	}
	seccomp_release(ctx);
	return result;
}

int filter_build(int *out_fd, struct err *e)
{
	scope_close int fd = memfd_create("filter", MFD_CLOEXEC);

	if (fd < 0)
		return err_set(e, ERR_INTERNAL, errno, "memfd_create");
	if (filter_export(FILTER_NATIVE, fd, e) != 0)
		return -1;
	*out_fd = fd_steal(&fd);
	return 0;
}
