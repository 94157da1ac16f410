/*
 * test_filter.c: every system call of both architectures through the compiled seccomp program, by a
 * small interpreter, against the table in data/syscalls.txt; calls that are judged by arguments.
 */
#include "tests/lib/test.h"

#include "runners/base/fdio.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/exec/filter.h"

#include <CUnit/CUnit.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define LAST_NUMBER 600
#define DATA_FILE   "tests/unit/data/syscalls.txt"
#define EPERM_WORD  (SECCOMP_RET_ERRNO | EPERM)
#define ENOSYS_WORD (SECCOMP_RET_ERRNO | ENOSYS)
#define BROKEN      0xdeadbeefU
#define ARGS_WORD   1U /* in the table: by arguments */

static struct sock_filter programs[FILTER_ARCH__MAX][BPF_MAXINSNS];
static size_t counts[FILTER_ARCH__MAX];
static uint32_t wanted[FILTER_ARCH__MAX][LAST_NUMBER + 1];
static unsigned int number_of[FILTER_ARCH__MAX][8]; /* of the calls below */

static const uint32_t audit[FILTER_ARCH__MAX] = {AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64};
static const char *const by_arguments[] = {"clone", "ioctl", "personality", "socket", "socketpair"};

static bool compare(const struct sock_filter *f, uint32_t a)
{
	switch (BPF_OP(f->code)) {
	case BPF_JEQ:
		return a == f->k;
	case BPF_JGT:
		return a > f->k;
	case BPF_JGE:
		return a >= f->k;
	case BPF_JSET:
		return (a & f->k) != 0;
	default:
		return false;
	}
}

/* What the kernel would answer; BROKEN for a program that it would not take. */
static uint32_t run(const struct sock_filter *program, size_t count,
		    const struct seccomp_data *data)
{
	uint32_t memory[BPF_MEMWORDS] = {0};
	uint32_t a = 0;

	for (size_t at = 0; at < count; at++) {
		const struct sock_filter *f = &program[at];

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (f->k > sizeof(*data) - sizeof(a) || f->k % sizeof(a) != 0)
				return BROKEN;
			memcpy(&a, (const char *)data + f->k, sizeof(a));
			break;
		case BPF_LD | BPF_MEM:
			a = memory[f->k % BPF_MEMWORDS];
			break;
		case BPF_ST:
			memory[f->k % BPF_MEMWORDS] = a;
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= f->k;
			break;
		case BPF_RET | BPF_K:
			return f->k;
		case BPF_JMP | BPF_JA:
			at += f->k;
			break;
		default:
			if (BPF_CLASS(f->code) != BPF_JMP || BPF_SRC(f->code) != BPF_K)
				return BROKEN;
			at += compare(f, a) ? f->jt : f->jf;
		}
	}
	return BROKEN;
}

static uint32_t ask(enum filter_arch arch, unsigned int number, uint64_t a0, uint64_t a1,
		    uint64_t a2)
{
	struct seccomp_data data = {
	    .nr = (int)number, .arch = audit[arch], .args = {a0, a1, a2, 0, 0, 0}};

	return run(programs[arch], counts[arch], &data);
}

static void take_number(enum filter_arch arch, const char *text, const char *name, uint32_t answer)
{
	struct err e = ERR_INIT;
	uint64_t number;

	if (str_equal(text, "-"))
		return;
	CU_ASSERT_EQUAL(num_u64("number", text, 0, LAST_NUMBER, &number, &e), 0);
	wanted[arch][number % (LAST_NUMBER + 1)] = answer;
	for (unsigned int i = 0; i < sizeof(by_arguments) / sizeof(by_arguments[0]); i++)
		if (str_equal(by_arguments[i], name))
			number_of[arch][i] = (unsigned int)number;
}

static uint32_t answer_of(const char *word)
{
	if (str_equal(word, "allow"))
		return SECCOMP_RET_ALLOW;
	if (str_equal(word, "enosys"))
		return ENOSYS_WORD;
	if (str_equal(word, "args"))
		return ARGS_WORD;
	CU_ASSERT_STRING_EQUAL(word, "eperm");
	return EPERM_WORD;
}

static void load_table(void)
{
	struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	char *rest;
	int lines = 0;

	for (int arch = 0; arch < FILTER_ARCH__MAX; arch++)
		for (unsigned int i = 0; i <= LAST_NUMBER; i++)
			wanted[arch][i] = i < 470 ? EPERM_WORD : ENOSYS_WORD;
	buf_init(&text, (size_t)1 << 20);
	CU_ASSERT_EQUAL_FATAL(fd_read_file(AT_FDCWD, DATA_FILE, &text, &e), 0);
	rest = text.data;
	while (rest != NULL && *rest != '\0') {
		const char *line = strsep(&rest, "\n");
		char name[32];
		char x86[16];
		char arm[16];
		char word[16];

		if (line[0] == '#' || line[0] == '\0')
			continue;
		CU_ASSERT_EQUAL(sscanf(line, "%31s %15s %15s %15s", name, x86, arm, word), 4);
		take_number(FILTER_X86_64, x86, name, answer_of(word));
		take_number(FILTER_AARCH64, arm, name, answer_of(word));
		lines++;
	}
	CU_ASSERT_TRUE(lines > 350);
	buf_release(&text);
}

static void load(void)
{
	if (counts[0] != 0)
		return;
	load_table();
	for (int arch = 0; arch < FILTER_ARCH__MAX; arch++) {
		scope_close int fd = memfd_create("filter", MFD_CLOEXEC);
		struct err e = ERR_INIT;
		ssize_t got;

		CU_ASSERT_EQUAL(filter_export((enum filter_arch)arch, fd, &e), 0);
		got = pread(fd, programs[arch], sizeof(programs[arch]), 0);
		CU_ASSERT_TRUE(got > 0 && (size_t)got < sizeof(programs[arch]));
		counts[arch] = (size_t)got / sizeof(struct sock_filter);
	}
}

static void test_every_number(void)
{
	load();
	for (int arch = 0; arch < FILTER_ARCH__MAX; arch++)
		for (unsigned int i = 0; i <= LAST_NUMBER; i++) {
			uint32_t got = ask((enum filter_arch)arch, i, 0, 0, 0);

			if (wanted[arch][i] == ARGS_WORD)
				continue;
			CU_ASSERT_EQUAL(got, wanted[arch][i]);
			if (got != wanted[arch][i])
				(void)printf("arch %d call %u: 0x%x, not 0x%x\n", arch, i, got,
					     wanted[arch][i]);
		}
}

static void test_foreign_entries(void)
{
	struct seccomp_data data = {.nr = 1, .arch = AUDIT_ARCH_I386};

	load();
	CU_ASSERT_EQUAL(run(programs[FILTER_X86_64], counts[FILTER_X86_64], &data), ENOSYS_WORD);
	data.arch = AUDIT_ARCH_ARM;
	CU_ASSERT_EQUAL(run(programs[FILTER_AARCH64], counts[FILTER_AARCH64], &data), ENOSYS_WORD);
	for (unsigned int i = 0; i <= LAST_NUMBER; i++) /* x32 */
		CU_ASSERT_EQUAL(ask(FILTER_X86_64, 0x40000000U + i, 0, 0, 0), ENOSYS_WORD);
	CU_ASSERT_EQUAL(ask(FILTER_X86_64, 0xFFFFFFFFU, 0, 0, 0), ENOSYS_WORD);
}

static void test_arguments(void)
{
	static const uint64_t flags[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
					 CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
	const uint64_t high = UINT64_C(1) << 32;

	load();
	for (int k = 0; k < FILTER_ARCH__MAX; k++) {
		enum filter_arch arch = (enum filter_arch)k;
		const unsigned int *n = number_of[arch];

		CU_ASSERT_EQUAL(ask(arch, n[0], SIGCHLD, 0, 0), SECCOMP_RET_ALLOW);
		CU_ASSERT_EQUAL(ask(arch, n[0], CLONE_VM | CLONE_THREAD | CLONE_SIGHAND, 0, 0),
				SECCOMP_RET_ALLOW);
		for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
			CU_ASSERT_EQUAL(ask(arch, n[0], flags[i] | SIGCHLD | high, 0, 0),
					EPERM_WORD);
		CU_ASSERT_EQUAL(ask(arch, n[1], 0, TCGETS, 0), SECCOMP_RET_ALLOW);
		CU_ASSERT_EQUAL(ask(arch, n[1], 0, TIOCSTI, 0), EPERM_WORD);
		CU_ASSERT_EQUAL(ask(arch, n[1], 0, TIOCSTI | high, 0), EPERM_WORD);
		CU_ASSERT_EQUAL(ask(arch, n[1], 0, TIOCLINUX, 0), EPERM_WORD);
		CU_ASSERT_EQUAL(ask(arch, n[2], 0xFFFFFFFFU, 0, 0), SECCOMP_RET_ALLOW);
		CU_ASSERT_EQUAL(ask(arch, n[2], 0, 0, 0), SECCOMP_RET_ALLOW);
		CU_ASSERT_EQUAL(ask(arch, n[2], 0x0040000, 0, 0), EPERM_WORD);
		CU_ASSERT_EQUAL(ask(arch, n[2], 0x0400000, 0, 0), EPERM_WORD);
		for (uint64_t family = 0; family < 64; family++) {
			bool good = family == AF_UNIX || family == AF_INET || family == AF_INET6;

			CU_ASSERT_EQUAL(ask(arch, n[3], family, SOCK_DGRAM, 7),
					good ? SECCOMP_RET_ALLOW : EPERM_WORD);
			CU_ASSERT_EQUAL(ask(arch, n[3], family | high, SOCK_DGRAM, 0), EPERM_WORD);
			CU_ASSERT_EQUAL(ask(arch, n[4], family, SOCK_STREAM, 0),
					family == AF_UNIX ? SECCOMP_RET_ALLOW : EPERM_WORD);
		}
		CU_ASSERT_EQUAL(ask(arch, n[3], AF_NETLINK, SOCK_RAW, 0), SECCOMP_RET_ALLOW);
	}
}

static const struct test tests[] = {
    {"filter", "every number of both architectures", test_every_number},
    {"filter", "foreign entries", test_foreign_entries},
    {"filter", "arguments", test_arguments},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
