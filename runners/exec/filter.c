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
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "no filter for this architecture"
#endif

/* The first number that this list has not judged (Linux 6.17 ends at file_setattr, 469). */
#define FIRST_UNKNOWN_CALL 470
#define CLONE_NEWTIME_FLAG 0x00000080U

/* Refused whatever the arguments. Names that libseccomp does not know on this machine are passed
 * over: they have no number here, or one that is refused as unknown. */
static const char *const denied[] = {
    /* mounts and roots */
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "chroot",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "swapon",
    "swapoff",
    "quotactl",
    "quotactl_fd",
    "nfsservctl",
    "fanotify_init",
    "fanotify_mark",
    /* namespaces */
    "unshare",
    "setns",
    "sethostname",
    "setdomainname",
    /* kernel surface that programs in a box do not need */
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    "lookup_dcookie",
    "vmsplice",
    "uselib",
    "ustat",
    "sysfs",
    "_sysctl",
    "modify_ldt",
    "vm86",
    "vm86old",
    "get_mempolicy",
    "mbind",
    "set_mempolicy",
    "set_mempolicy_home_node",
    "migrate_pages",
    "move_pages",
    /* other processes */
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "kcmp",
    "pidfd_getfd",
    "process_madvise",
    /* modules, kernels, the machine */
    "create_module",
    "init_module",
    "finit_module",
    "delete_module",
    "query_module",
    "get_kernel_syms",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "acct",
    "syslog",
    "vhangup",
    "iopl",
    "ioperm",
    "pciconfig_read",
    "pciconfig_write",
    "pciconfig_iobase",
    /* clocks */
    "settimeofday",
    "stime",
    "clock_settime",
    "clock_settime64",
    "clock_adjtime",
    "clock_adjtime64",
    "adjtimex",
    /* handles that open files past their paths */
    "open_by_handle_at",
    "name_to_handle_at",
};

/* As above, by number: newer than libseccomp 2.5.4. The same on every architecture. */
static const int denied_numbers[] = {
    457, /* statmount */
    458, /* listmount */
    459, /* lsm_get_self_attr */
    460, /* lsm_set_self_attr */
    461, /* lsm_list_modules */
    467, /* open_tree_attr */
};

static const unsigned int namespace_flags[] = {CLONE_NEWNS,  CLONE_NEWCGROUP,   CLONE_NEWUTS,
					       CLONE_NEWIPC, CLONE_NEWUSER,     CLONE_NEWPID,
					       CLONE_NEWNET, CLONE_NEWTIME_FLAG};

static int failed(int result, const char *what, struct err *e)
{
	return err_set(e, ERR_INTERNAL, -result, "seccomp rule %s", what);
}

static int deny_names(scmp_filter_ctx ctx, struct err *e)
{
	int result;

	for (size_t i = 0; i < ARRAY_LEN(denied); i++) {
		int number = seccomp_syscall_resolve_name(denied[i]);

		if (number < 0)
			continue;
		result = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number, 0);
		if (result != 0)
			return failed(result, denied[i], e);
	}
	for (size_t i = 0; i < ARRAY_LEN(denied_numbers); i++) {
		result = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), denied_numbers[i], 0);
		if (result != 0)
			return failed(result, "by number", e);
	}
	result = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return result == 0 ? 0 : failed(result, "clone3", e);
}

/* The kernel takes the low half of these arguments, so a mask guards against set high halves. */
static int deny_arguments(scmp_filter_ctx ctx, struct err *e)
{
	static const unsigned int terminals[] = {TIOCSTI, TIOCLINUX};
	int result;

	for (size_t i = 0; i < ARRAY_LEN(namespace_flags); i++) {
		unsigned int flag = namespace_flags[i];

		/* CLONE_NEWTIME lies in the signal byte of clone(2) and cannot be asked for there
		 */
		if (flag == CLONE_NEWTIME_FLAG)
			continue;
		result = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
					  SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
		if (result != 0)
			return failed(result, "clone", e);
	}
	for (size_t i = 0; i < ARRAY_LEN(terminals); i++) {
		result = seccomp_rule_add(
		    ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
		    SCMP_A1(SCMP_CMP_MASKED_EQ, UINT64_C(0xFFFFFFFF), terminals[i]));
		if (result != 0)
			return failed(result, "ioctl", e);
	}
	return 0;
}

/* AF_UNIX, AF_INET, AF_INET6 and routing netlink stay. A family with a set high half is above
 * AF_NETLINK in the 64-bit comparison, so it is refused too. */
static int deny_sockets(scmp_filter_ctx ctx, struct err *e)
{
	int result = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
				      SCMP_A0(SCMP_CMP_GT, AF_NETLINK));

	for (unsigned int family = 0; family < AF_NETLINK && result == 0; family++) {
		if (family == AF_UNIX || family == AF_INET || family == AF_INET6)
			continue;
		result = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
					  SCMP_A0(SCMP_CMP_EQ, family));
	}
	if (result == 0)
		result =
		    seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 2,
				     SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_NE, 0));
	if (result == 0)
		result = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socketpair), 1,
					  SCMP_A0(SCMP_CMP_NE, AF_UNIX));
	return result == 0 ? 0 : failed(result, "socket", e);
}

#define LOAD(field)          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define EQUAL(k, yes, no)    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)(k), yes, no)
#define AT_LEAST(k, yes, no) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned int)(k), yes, no)
#define ANSWER(value)        BPF_STMT(BPF_RET | BPF_K, value)

/*
 * What libseccomp cannot say, put in front of its program: foreign entries and unknown numbers, and
 * personality with a list of allowed values (0, PER_LINUX32, UNAME26, both, and the query).
 */
static const struct sock_filter prefix[] = {
    LOAD(arch),
    EQUAL(NATIVE_ARCH, 1, 0),
    ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
    LOAD(nr),
    AT_LEAST(FIRST_UNKNOWN_CALL, 0, 1),
    ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
    EQUAL(SYS_personality, 0, 8),
    LOAD(args[0]),
    EQUAL(0, 4, 0),
    EQUAL(0x0008, 3, 0),
    EQUAL(0x20000, 2, 0),
    EQUAL(0x20008, 1, 0),
    EQUAL(0xFFFFFFFF, 0, 1),
    ANSWER(SECCOMP_RET_ALLOW),
    ANSWER(SECCOMP_RET_ERRNO | EPERM),
};

static int build_rules(scmp_filter_ctx ctx, struct err *e)
{
	/* 2: a binary tree, which loads in half the time of a list */
	int result = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);

	if (result == 0)
		result = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	if (result != 0)
		return failed(result, "attributes", e);
	if (deny_names(ctx, e) != 0 || deny_arguments(ctx, e) != 0)
		return -1;
	return deny_sockets(ctx, e);
}

int filter_build(int *out_fd, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	scope_close int fd = memfd_create("filter", MFD_CLOEXEC);
	int result = 0;

	if (ctx == NULL || fd < 0)
		result = err_set(e, ERR_INTERNAL, errno, "seccomp_init");
	if (result == 0)
		result = build_rules(ctx, e);
	if (result == 0)
		result = fd_write_full(fd, prefix, sizeof(prefix), e);
	if (result == 0) {
		int exported = seccomp_export_bpf(ctx, fd);

		if (exported != 0)
			result = failed(exported, "export", e);
	}
	if (ctx != NULL)
		seccomp_release(ctx);
	if (result != 0)
		return -1;
	*out_fd = fd_steal(&fd);
	return 0;
}
