/*
 * egress_rules.c: rules of nftables for one source, under a label.
 *
 * Table `ip cordon_egress` of this network namespace, one base chain per label on the forward hook,
 * before the filters of others. Its accept ends that chain only, its drop is final. `add` of what
 * is there and `flush` do no harm, so the same text makes and renews; nft applies all of it or
 * nothing.
 */
#include "runners/core/egress.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define NFT         "/usr/sbin/nft"
#define TABLE       "ip cordon_egress"
#define PATIENCE_MS 10000

bool egress_label_ok(const char *label)
{
	size_t length = strlen(label);

	return length > 0 && length <= EGRESS_LABEL_MAX &&
	       strspn(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
		   length;
}

static void add_chain(struct buf *out, const char *label)
{
	/* the letter in front keeps labels apart from the words of nft */
	buf_addf(out,
		 "add table " TABLE "\n"
		 "add chain " TABLE
		 " r_%s { type filter hook forward priority -10; policy accept; }\n"
		 "flush chain " TABLE " r_%s\n",
		 label, label);
}

void egress_rules(struct buf *out, const char *label, uint32_t source,
		  const struct egress_range *targets, size_t count)
{
	struct egress_range from = {source, 32};
	char from_text[EGRESS_CIDR_SIZE];
	char to_text[EGRESS_CIDR_SIZE];

	egress_range_text(&from, from_text);
	add_chain(out, label);
	for (size_t i = 0; i < count; i++) {
		egress_range_text(&targets[i], to_text);
		buf_addf(out,
			 "add rule " TABLE
			 " r_%s ip saddr %s ip daddr %s counter accept comment \"%s\"\n",
			 label, from_text, to_text, label);
	}
	buf_addf(out, "add rule " TABLE " r_%s ip saddr %s counter drop comment \"%s\"\n", label,
		 from_text, label);
}

void egress_rules_remove(struct buf *out, const char *label)
{
	add_chain(out, label);
	buf_addf(out, "delete chain " TABLE " r_%s\n", label);
}

/* The text as a file that has no name: nft may be slow to read it. */
static int text_file(const struct buf *rules, struct err *e)
{
	scope_close int fd = memfd_create("rules", MFD_CLOEXEC);

	if (fd < 0)
		return err_set(e, ERR_IO, errno, "memfd_create");
	if (fd_write_full(fd, rules->data, rules->len, e) != 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) != 0)
		return err_set(e, ERR_IO, errno, "lseek");
	return fd_steal(&fd);
}

/* What nft says, until it ends or the time is over. */
static void read_words(int fd, struct buf *out)
{
	int64_t until = clock_monotonic_us() + PATIENCE_MS * CLOCK_US_PER_MS;
	char part[1024];

	for (;;) {
		struct pollfd look = {.fd = fd, .events = POLLIN};
		int64_t left = (until - clock_monotonic_us()) / CLOCK_US_PER_MS;
		ssize_t got;

		if (left <= 0 || poll(&look, 1, (int)left) <= 0)
			return;
		got = read(fd, part, sizeof(part));
		if (got <= 0)
			return;
		/* what is beyond the buffer is read and dropped */
		if (out->len + (size_t)got < out->max)
			buf_add(out, part, (size_t)got);
	}
}

static void one_line(struct buf *text)
{
	for (size_t i = 0; i < text->len; i++)
		if (text->data[i] == '\n' || text->data[i] == '\t')
			text->data[i] = ' ';
}

int egress_apply(const struct buf *rules, struct err *e)
{
	static char name[] = NFT;
	static char option[] = "-f";
	static char input[] = "-";
	static char locale[] = "LC_ALL=C";
	char *argv[] = {name, option, input, NULL};
	char *environment[] = {locale, NULL};
	struct proc_options options = PROC_OPTIONS_INIT;
	scope_buf struct buf words = BUF_NONE;
	scope_close int file = -1;
	int ends[2];
	pid_t pid;
	int status = 0;

	buf_init(&words, 4096);
	file = text_file(rules, e);
	if (file < 0)
		return -1;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return err_set(e, ERR_IO, errno, "pipe2");
	options.program = NFT;
	options.argv = argv;
	options.environment = environment;
	options.stdin_fd = file;
	options.stdout_fd = ends[1];
	options.stderr_fd = ends[1];
	if (proc_spawn(&options, &pid, e) != 0) {
		(void)close(ends[0]);
		(void)close(ends[1]);
		return e->sys == ENOENT ? err_show(e, ERR_UNAVAILABLE, "there is no " NFT) : -1;
	}
	(void)close(ends[1]);
	read_words(ends[0], &words);
	(void)close(ends[0]);
	if (waitpid(pid, &status, WNOHANG) == 0) {
		(void)poll(NULL, 0, 100);
		(void)kill(pid, SIGKILL);
		if (proc_wait(pid, &status, e) != 0)
			return -1;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	one_line(&words);
	return err_set(e, ERR_IO, 0, "nft: %.300s",
		       words.len == 0 ? "it gave up" : buf_text(&words));
}
