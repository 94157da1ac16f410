/*
 * probe_box.c: what a program in a box can see and do (case B22 and docs/security.md). Runs inside
 * a box as its user, prints one line per check, "ok NAME" or "FAIL NAME: what was seen", then a
 * summary; exit 0 when all passed. Static, links nothing of ours, built without sanitizers.
 *
 *	probe_box --outside	the same on the host, for comparison, as a user without rights (it
 *				refuses root: it asks for the clock, mounts, a reboot): shows that
 *				the checks can fail. What would fill disks is left out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int passed;
static int failed;

static void check(const char *name, bool good, const char *seen)
{
	if (good) {
		passed++;
		printf("ok %s\n", name);
	} else {
		failed++;
		printf("FAIL %s: %s\n", name, seen);
	}
}

/* A call that must fail with EPERM, EACCES or ENOSYS. */
static void refused(const char *name, long result)
{
	char seen[96];
	int reason = errno;

	snprintf(seen, sizeof(seen), "returned %ld, errno %d", result, reason);
	check(name, result == -1 && (reason == EPERM || reason == EACCES || reason == ENOSYS),
	      seen);
}

static size_t slurp(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t got;

	out[0] = '\0';
	if (fd < 0)
		return 0;
	while (used < size - 1 && (got = read(fd, out + used, size - 1 - used)) > 0)
		used += (size_t)got;
	out[used] = '\0';
	close(fd);
	return used;
}

static bool line_has(const char *text, const char *key, const char *want)
{
	const char *p = strstr(text, key);

	if (p == NULL)
		return false;
	p += strlen(key);
	p += strspn(p, " \t");
	return strncmp(p, want, strlen(want)) == 0 &&
	       (p[strlen(want)] == '\n' || p[strlen(want)] == '\t');
}

/* --- processes and descriptors -------------------------------------------------------------- */

static void processes(void)
{
	DIR *list = opendir("/proc");
	struct dirent *entry;
	char seen[512] = "";
	bool own = true;

	while (list != NULL && (entry = readdir(list)) != NULL) {
		char path[300];
		struct stat st;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s", entry->d_name);
		if (stat(path, &st) == 0 && st.st_uid != getuid()) {
			own = false;
			snprintf(seen, sizeof(seen), "%s belongs to %u", path, st.st_uid);
		}
	}
	if (list != NULL)
		closedir(list);
	check("own processes only", list != NULL && own, seen);
	check("not pid 1", getpid() > 1, "pid 1");
	check("pid 1 is hidden", access("/proc/1/environ", R_OK) != 0, "/proc/1 can be read");
	check("parent is pid 1", getppid() == 1, "another parent");
	check("own session", getsid(0) == getpid() && getpgrp() == getpid(), "not a leader");
}

static void descriptors(void)
{
	char seen[64] = "";
	int count = 0;

	for (int fd = 0; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0) {
			count++;
			if (fd > 2)
				snprintf(seen, sizeof(seen), "descriptor %d is open", fd);
		}
	check("descriptors 0 to 2 only", count == 3, seen);
	for (int fd = 0; fd < 3; fd++) {
		struct stat st;

		if (fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode))
			snprintf(seen, sizeof(seen), "descriptor %d is no pipe", fd);
	}
	check("stdio are pipes", seen[0] == '\0', seen);
	check("no cwd behind a descriptor", chdir("/proc/self/fd/7") != 0, "fd 7");
}

static void identity(void)
{
	char text[8192];
	static const char *const caps[] = {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"};
	struct rlimit core;
	char oom[32];

	slurp("/proc/self/status", text, sizeof(text));
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
		check(caps[i], line_has(text, caps[i], "0000000000000000"), text);
	check("NoNewPrivs 1", line_has(text, "NoNewPrivs:", "1"), text);
	check("Seccomp 2", line_has(text, "Seccomp:", "2"), text);
	check("no groups",
	      line_has(text, "Groups:", "\n") || strstr(text, "Groups:\t \n") != NULL ||
		  strstr(text, "Groups:\t\n") != NULL,
	      text);
	check("uid 1000", getuid() == 1000 && geteuid() == 1000 && getgid() == 1000, "other ids");
	slurp("/proc/self/oom_score_adj", oom, sizeof(oom));
	check("oom_score_adj 1000", atoi(oom) == 1000, oom);
	/* 0 would not stop a program that core_pattern pipes to */
	check("RLIMIT_CORE 1",
	      getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur == 1 && core.rlim_max == 1, "");
	slurp("/proc/self/cgroup", text, sizeof(text));
	check("cgroup names hidden", strstr(text, "cordon") == NULL && strstr(text, "..") == NULL,
	      text);
	slurp("/proc/self/uid_map", text, sizeof(text));
	check("an id range of its own", strstr(text, "4294967295") == NULL && text[0] != '\0',
	      text);
	refused("setuid 0", setuid(0));
	refused("setgroups", syscall(SYS_setgroups, 0, NULL));
}

static void mounts(void)
{
	static char text[65536];
	static const char *const names[] = {"/srv/",  "/home/", "/var/lib",
					    "cordon", "zygote", "/root"};

	slurp("/proc/self/mountinfo", text, sizeof(text));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check("mountinfo without host paths", strstr(text, names[i]) == NULL, text);
	check("root is read-only",
	      open("/x", O_CREAT | O_WRONLY, 0600) < 0 && (errno == EROFS || errno == EACCES),
	      "could create /x");
	check("usr is read-only", access("/usr/bin", W_OK) != 0, "writable");
	check("files belong to root", ({
		      struct stat st;
		      stat("/usr/bin/env", &st) == 0 && st.st_uid == 0 && st.st_gid == 0;
	      }),
	      "other owner");
	check("workspace is mine", ({
		      struct stat st;
		      stat("/workspace", &st) == 0 && st.st_uid == getuid();
	      }),
	      "other owner");
	check("no /sys", access("/sys/kernel", F_OK) != 0, "there");
	check("no host /home", access("/home/.", F_OK) == 0 && rmdir("/home/x") != 0, "?");
}

/* --- proc ----------------------------------------------------------------------------------- */

static void proc_masks(void)
{
	static const char *const empty[] = {
	    "/proc/kcore",       "/proc/kmsg",      "/proc/keys",       "/proc/timer_list",
	    "/proc/sched_debug", "/proc/iomem",     "/proc/interrupts", "/proc/kallsyms",
	    "/proc/config.gz",   "/proc/locks",     "/proc/slabinfo",   "/proc/vmallocinfo",
	    "/proc/1/environ",   "/proc/1/cmdline", "/proc/key-users"};
	static const char *const unwritable[] = {"/proc/sysrq-trigger",
						 "/proc/sys/kernel/core_pattern",
						 "/proc/sys/kernel/hostname",
						 "/proc/sys/net/ipv4/ip_forward",
						 "/proc/sys/kernel/shmmax",
						 "/proc/irq/0/smp_affinity",
						 "/proc/mtrr"};
	static const char *const dirs[] = {"/proc/acpi", "/proc/scsi"};
	char text[256];

	for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++)
		check(empty[i], slurp(empty[i], text, sizeof(text)) == 0, text);
	for (size_t i = 0; i < sizeof(unwritable) / sizeof(unwritable[0]); i++) {
		int fd = open(unwritable[i], O_WRONLY);

		check(unwritable[i], fd < 0 || write(fd, "0", 1) < 0 || i == 6, "written");
		if (fd >= 0)
			close(fd);
	}
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		DIR *list = opendir(dirs[i]);
		int count = 0;

		while (list != NULL && readdir(list) != NULL)
			count++;
		check(dirs[i], count <= 2, "has entries");
		if (list != NULL)
			closedir(list);
	}
	check("meminfo can be read", slurp("/proc/meminfo", text, sizeof(text)) > 0, "no");
}

/* --- system calls --------------------------------------------------------------------------- */

static int clone_child(void *unused)
{
	(void)unused;
	return 0;
}

static void namespaces(void)
{
	static char stack[65536];

	refused("mount", mount("x", "/tmp", "tmpfs", 0, NULL));
	refused("umount", umount2("/workspace", MNT_DETACH));
	refused("pivot_root", syscall(SYS_pivot_root, ".", "."));
	refused("chroot", chroot("/tmp"));
	refused("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
	refused("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
	refused("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/", AT_FDCWD, "/", 0));
	refused("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, NULL, 0));
	refused("open_tree_attr", syscall(467, AT_FDCWD, "/", 0, NULL, 0));
	refused("statmount", syscall(457, NULL, NULL, 0, 0));
	refused("unshare user", unshare(CLONE_NEWUSER));
	refused("unshare net", unshare(CLONE_NEWNET));
	refused("setns", setns(0, 0));
	refused("clone user",
		clone(clone_child, stack + sizeof(stack), CLONE_NEWUSER | SIGCHLD, NULL));
	refused("clone3", syscall(SYS_clone3, NULL, 0));
	refused("sethostname", sethostname("x", 1));
}

/* In a child: whoever succeeds is stopped at its next signal. */
static void traceme(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		long result = ptrace(PTRACE_TRACEME, 0, NULL, NULL);

		_exit(result == 0 ? 0 : errno);
	}
	waitpid(pid, &status, 0);
	errno = WEXITSTATUS(status);
	refused("ptrace traceme", errno == 0 ? 0 : -1);
}

static void kernel_surface(void)
{
	refused("ptrace pid 1", ptrace(PTRACE_ATTACH, 1, NULL, NULL));
	traceme();
	refused("process_vm_readv", syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0));
	refused("kcmp", syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0));
	refused("pidfd_getfd", syscall(SYS_pidfd_getfd, 0, 0, 0));
	refused("io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL));
	refused("bpf", syscall(SYS_bpf, 0, NULL, 0));
	refused("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
	refused("userfaultfd", syscall(SYS_userfaultfd, 0));
	refused("keyctl", syscall(SYS_keyctl, 0, -3, 0));
	refused("add_key", syscall(SYS_add_key, "user", "x", "y", 1, -3));
	refused("request_key", syscall(SYS_request_key, "user", "x", NULL, 0));
	refused("init_module", syscall(SYS_init_module, NULL, 0, ""));
	refused("finit_module", syscall(SYS_finit_module, 0, "", 0));
	refused("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
	refused("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL));
	refused("swapon", syscall(SYS_swapon, "/tmp/x", 0));
	refused("acct", syscall(SYS_acct, NULL));
	refused("syslog", syscall(SYS_syslog, 10, NULL, 0));
	refused("name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, "/", NULL, NULL, 0));
	refused("open_by_handle_at", syscall(SYS_open_by_handle_at, AT_FDCWD, NULL, 0));
	refused("quotactl", syscall(SYS_quotactl, 0, NULL, 0, NULL));
	refused("lookup_dcookie", syscall(SYS_lookup_dcookie, 0, NULL, 0));
	refused("vhangup", syscall(SYS_vhangup));
	refused("iopl", syscall(SYS_iopl, 3));
	refused("ioperm", syscall(SYS_ioperm, 0, 1, 1));
	refused("unknown call", syscall(480));
	refused("personality", personality(ADDR_NO_RANDOMIZE));
	check("personality query", personality(0xffffffff) == PER_LINUX, "refused");
	refused("TIOCSTI", ioctl(0, TIOCSTI, "x"));
	refused("TIOCSTI, high half set", syscall(SYS_ioctl, 0, 0x100000000UL | TIOCSTI, "x"));
	refused("mknod", mknod("/tmp/null", S_IFCHR | 0666, makedev(1, 3)));
}

/* A 32-bit entry, in a child that may die of it. */
static void foreign_entries(void)
{
#ifdef __x86_64__
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		long result = 20; /* getpid of i386 */

		__asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
		_exit(result < 0 ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	check("32-bit entry", WIFSIGNALED(status) || WEXITSTATUS(status) == 1, "getpid worked");
	refused("x32 entry", syscall(0x40000000L | SYS_getpid));
#endif
}

static void clocks(void)
{
	struct timeval now = {.tv_sec = 1000000000};
	struct timespec when = {.tv_sec = 1000000000};
	struct timex tx = {.modes = ADJ_OFFSET};

	refused("settimeofday", settimeofday(&now, NULL));
	refused("clock_settime", clock_settime(CLOCK_REALTIME, &when));
	refused("adjtimex", adjtimex(&tx));
	refused("clock_adjtime", syscall(SYS_clock_adjtime, 0, &tx));
}

/* --- network -------------------------------------------------------------------------------- */

static void network(void)
{
	static const struct {
		const char *name;
		int family;
		int type;
		int protocol;
	} families[] = {
	    {"AF_PACKET", AF_PACKET, SOCK_RAW, 0},
	    {"AF_VSOCK", 40, SOCK_STREAM, 0},
	    {"AF_ALG", 38, SOCK_SEQPACKET, 0},
	    {"AF_BLUETOOTH", 31, SOCK_RAW, 1},
	    {"AF_TIPC", 30, SOCK_STREAM, 0},
	    {"AF_KEY", 15, SOCK_RAW, 2},
	    {"NETLINK_AUDIT", AF_NETLINK, SOCK_RAW, 9},
	    {"NETLINK_KOBJECT", AF_NETLINK, SOCK_DGRAM, 15},
	    {"raw IP", AF_INET, SOCK_RAW, 1},
	    {"AF_XDP", 44, SOCK_RAW, 0},
	};
	struct if_nameindex *list = if_nameindex();
	char seen[256] = "";
	int other = 0;

	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		refused(families[i].name,
			socket(families[i].family, families[i].type, families[i].protocol));
	refused("AF_VSOCK, high half set", syscall(SYS_socket, 0x100000000UL | 40, SOCK_STREAM, 0));
	refused("socketpair inet", syscall(SYS_socketpair, AF_INET, SOCK_STREAM, 0, (int[2]){0}));
	check("netlink route", socket(AF_NETLINK, SOCK_RAW, 0) >= 0, "refused");
	for (struct if_nameindex *i = list; i != NULL && i->if_index != 0; i++) {
		struct ifreq request = {0};
		int fd = socket(AF_INET, SOCK_DGRAM, 0);

		if (strcmp(i->if_name, "lo") == 0) {
			close(fd);
			continue;
		}
		/* the kernel makes fallback tunnels in every namespace; they must be down */
		snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", i->if_name);
		if (ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0) {
			other++;
			snprintf(seen, sizeof(seen), "%s is up", i->if_name);
		}
		close(fd);
	}
	check("no interface but lo", list != NULL && other == 0, seen);
}

/* --- files ---------------------------------------------------------------------------------- */

static void setuid_program(void)
{
	int in = open("/bin/sleep", O_RDONLY);
	int out = open("/workspace/.suid", O_CREAT | O_WRONLY, 0755);
	static char chunk[65536];
	ssize_t got;
	struct stat st;

	while (in >= 0 && out >= 0 && (got = read(in, chunk, sizeof(chunk))) > 0)
		if (write(out, chunk, (size_t)got) != got)
			break;
	close(in);
	check("chmod 4755", fchmod(out, 04755) == 0, "refused");
	close(out);
	check("setuid file stays mine", stat("/workspace/.suid", &st) == 0 && st.st_uid == 1000,
	      "?");
	{
		struct statvfs fs;

		check("workspace is nosuid",
		      statvfs("/workspace", &fs) == 0 && (fs.f_flag & ST_NOSUID) != 0, "suid");
		check("workspace is nodev",
		      statvfs("/workspace", &fs) == 0 && (fs.f_flag & ST_NODEV) != 0, "dev");
		check("usr is nosuid", statvfs("/usr", &fs) == 0 && (fs.f_flag & ST_NOSUID) != 0,
		      "suid");
		check("usr is mounted ro",
		      statvfs("/usr", &fs) == 0 && (fs.f_flag & ST_RDONLY) != 0, "rw");
	}
	unlink("/workspace/.suid");
}

static void devices(void)
{
	static const char *const allowed[] = {"null", "zero", "full",  "random", "urandom",
					      "tty",  "fd",   "stdin", "stdout", "stderr",
					      "shm",  "pts",  "ptmx"};
	DIR *list = opendir("/dev");
	struct dirent *entry;
	char seen[300] = "";
	char byte = 1;
	int fd;

	while (list != NULL && (entry = readdir(list)) != NULL) {
		bool known = entry->d_name[0] == '.';

		for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
			known |= strcmp(entry->d_name, allowed[i]) == 0;
		if (!known)
			snprintf(seen, sizeof(seen), "/dev/%s", entry->d_name);
	}
	if (list != NULL)
		closedir(list);
	check("only the known devices", list != NULL && seen[0] == '\0', seen);
	fd = open("/dev/zero", O_RDWR);
	check("/dev/zero works", fd >= 0 && read(fd, &byte, 1) == 1 && byte == 0, "no");
	close(fd);
	fd = open("/dev/null", O_RDWR);
	check("/dev/null works", fd >= 0 && write(fd, "x", 1) == 1, "no");
	close(fd);
	fd = open("/dev/full", O_WRONLY);
	check("/dev/full works", fd >= 0 && write(fd, "x", 1) < 0 && errno == ENOSPC, "no");
	close(fd);
	fd = open("/dev/urandom", O_RDONLY);
	check("/dev/urandom works", fd >= 0 && read(fd, &byte, 1) == 1, "no");
	close(fd);
}

/* A devpts of its own: nothing in it but the way to a new terminal, and not many of them. */
static void terminals(void)
{
	int masters[128];
	int made = 0;
	int names = 0;
	int unlock = 0;
	int slave = -1;
	char byte = 0;
	struct stat st;
	struct statvfs fs;
	DIR *list = opendir("/dev/pts");
	struct dirent *entry;

	while (list != NULL && (entry = readdir(list)) != NULL)
		if (entry->d_name[0] != '.' && strcmp(entry->d_name, "ptmx") != 0)
			names++;
	if (list != NULL)
		closedir(list);
	check("no terminal of others", list != NULL && names == 0, "there are some");
	check("terminals are nosuid and noexec",
	      statvfs("/dev/pts", &fs) == 0 && (fs.f_flag & ST_NOSUID) != 0 &&
		  (fs.f_flag & ST_NOEXEC) != 0,
	      "not");
	for (made = 0; made < 128; made++) {
		masters[made] = open("/dev/ptmx", O_RDWR | O_NOCTTY);
		if (masters[made] < 0)
			break;
	}
	check("terminals end", made >= 1 && made <= 64 && errno == ENOSPC, "too many or none");
	if (made > 0 && ioctl(masters[0], TIOCSPTLCK, &unlock) == 0)
		slave = open("/dev/pts/0", O_RDWR | O_NOCTTY);
	check("a terminal of mine", slave >= 0 && fstat(slave, &st) == 0 && st.st_uid == getuid(),
	      "no");
	check("it works",
	      write(slave, "x", 1) == 1 && read(masters[0], &byte, 1) == 1 && byte == 'x', "no");
	refused("TIOCSTI into my terminal", ioctl(slave, TIOCSTI, &byte));
	refused("a new devpts", mount("x", "/tmp", "devpts", 0, "newinstance"));
	close(slave);
	while (made-- > 0)
		close(masters[made]);
}

/* Writes until it fails; the errno. */
static int fill(const char *path, uint64_t limit)
{
	static char chunk[1 << 20];
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	uint64_t done = 0;
	int reason = 0;

	while (fd >= 0 && reason == 0 && done < limit) {
		ssize_t wrote = write(fd, chunk, sizeof(chunk));

		if (wrote < 0)
			reason = errno;
		else
			done += (uint64_t)wrote;
	}
	close(fd);
	unlink(path);
	return reason;
}

static void space(void)
{
	char path[64];
	int made = 0;
	int reason = 0;

	check("bytes of the workspace end", fill("/workspace/fill", 4ULL << 30) == ENOSPC,
	      "no ENOSPC");
	check("bytes of /tmp end", fill("/tmp/fill", 4ULL << 30) == ENOSPC, "no ENOSPC");
	check("bytes of /dev/shm end", fill("/dev/shm/fill", 4ULL << 30) == ENOSPC, "no ENOSPC");
	mkdir("/workspace/many", 0700);
	for (made = 0; made < 2000000 && reason == 0; made++) {
		int fd;

		snprintf(path, sizeof(path), "/workspace/many/%d", made);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			reason = errno;
		else
			close(fd);
	}
	check("inodes of the workspace end", reason == ENOSPC, "no ENOSPC");
	while (made-- > 0) {
		snprintf(path, sizeof(path), "/workspace/many/%d", made);
		unlink(path);
	}
	rmdir("/workspace/many");
}

static bool can_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* What the modes of the files would allow and only Landlock refuses, and what must work with it. */
static void landlock(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);

	if (abi >= 2) {
		refused("Landlock: write below /proc", open("/proc/self/comm", O_WRONLY));
		refused("Landlock: write to its oom_score_adj",
			open("/proc/self/oom_score_adj", O_WRONLY));
	}
	check("/ can be listed", can_open("/", O_RDONLY | O_DIRECTORY), "refused");
	check("/proc/self can be read", can_open("/proc/self/status", O_RDONLY), "refused");
	check("/dev/null with O_TRUNC", can_open("/dev/null", O_WRONLY | O_CREAT | O_TRUNC),
	      "refused");
	check("/dev/stdout", can_open("/dev/stdout", O_WRONLY), "refused");
	check("write below /dev/shm", can_open("/dev/shm/.l", O_WRONLY | O_CREAT), "refused");
	check("write below /var/tmp", can_open("/var/tmp/.l", O_WRONLY | O_CREAT), "refused");
	mkdir("/workspace/.a", 0700);
	mkdir("/workspace/.b", 0700);
	check("file in a new folder", can_open("/workspace/.a/f", O_WRONLY | O_CREAT), "refused");
	check("rename between folders", rename("/workspace/.a/f", "/workspace/.b/f") == 0,
	      "refused");
	check("link between folders", link("/workspace/.b/f", "/workspace/.a/g") == 0, "refused");
	check("truncate", truncate("/workspace/.b/f", 10) == 0, "refused");
	check("fifo", mkfifo("/workspace/.a/p", 0600) == 0, "refused");
	check("symlink", symlink("x", "/workspace/.a/s") == 0, "refused");
	unlink("/dev/shm/.l");
	unlink("/var/tmp/.l");
	unlink("/workspace/.a/g");
	unlink("/workspace/.a/p");
	unlink("/workspace/.a/s");
	unlink("/workspace/.b/f");
	rmdir("/workspace/.a");
	rmdir("/workspace/.b");
}

static void names(void)
{
	struct utsname name;

	uname(&name);
	check("host name is box", strcmp(name.nodename, "box") == 0, name.nodename);
}

int main(int argc, char **argv)
{
	bool outside = argc == 2 && strcmp(argv[1], "--outside") == 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	if (outside && (getuid() == 0 || geteuid() == 0)) {
		printf("probe_box: not as root outside of a box\n");
		return 2;
	}
	processes();
	descriptors();
	identity();
	mounts();
	proc_masks();
	namespaces();
	kernel_surface();
	foreign_entries();
	clocks();
	network();
	if (!outside) {
		setuid_program();
		space();
	}
	devices();
	if (!outside)
		terminals();
	landlock();
	names();
	printf("probe_box: %d passed, %d failed\n", passed, failed);
	return failed == 0 ? 0 : 1;
}
