/* test_notify: notices from both ends. */
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/core/notify.h"
#include "tests/lib/test.h"

#include <sys/socket.h>
#include <sys/stat.h>

#define ID "0190a5c0-0000-7000-8000-0123456789ab"

static char path[200];

static int accept_one(int listener)
{
	for (int i = 0; i < 200; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0)
			return fd;
		clock_sleep_us(1000);
	}
	return -1;
}

static void test_both_ends(void)
{
	static const enum notice_hint hints[] = {NOTICE_QUEUED, NOTICE_CANCEL, NOTICE_RUNNING,
						 NOTICE_OUTPUT, NOTICE_ENDED};
	struct notifier n;
	struct notice got;
	struct err e = ERR_INIT;
	struct stat info;
	scope_close int listener = -1;
	scope_close int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/n.sock", test_dir());
	listener = notify_listen(path, &e);
	CU_ASSERT_FATAL(listener >= 0);
	CU_ASSERT_EQUAL(stat(path, &info), 0);
	CU_ASSERT_EQUAL(info.st_mode & 07777, 0660);
	CU_ASSERT_EQUAL(notifier_init(&n, path, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(hints); i++) {
		CU_ASSERT(notify_send(&n, "run", ID, hints[i]));
		if (fd < 0)
			fd = accept_one(listener);
		CU_ASSERT_EQUAL(notify_receive(fd, &got, &e), 1);
		ASSERT_TEXT(got.kind, "run");
		ASSERT_TEXT(got.id, ID);
		CU_ASSERT_EQUAL(got.hint, hints[i]);
	}
	CU_ASSERT_EQUAL(notify_receive(fd, &got, &e), 0);
	CU_ASSERT_EQUAL(e.code, ERR_NONE);
	/* what cannot be sent whole is not sent */
	CU_ASSERT_FALSE(notify_send(&n, "a kind that is so long that the notice does not fit", ID,
				    NOTICE_ENDED));
	CU_ASSERT_EQUAL(notify_receive(fd, &got, &e), 0);
	notifier_release(&n);
	CU_ASSERT_EQUAL(n.fd, -1);
	CU_ASSERT_EQUAL(notify_receive(fd, &got, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_NONE);
}

static int take_mail(int fd, char *out, size_t size)
{
	struct notice got;
	struct err e = ERR_INIT;
	char id[IDENT_UUID_SIZE];
	char part[TRACE_PART_BYTES];
	size_t used = 0;
	int count = 0;

	out[0] = '\0';
	if (notify_receive(fd, &got, &e) != 1)
		return -1;
	CU_ASSERT_EQUAL(got.hint, NOTICE_TRACE);
	while (notice_trace(&got, id, part)) {
		ASSERT_TEXT(id, ID);
		if (used < size)
			used += (size_t)snprintf(out + used, size - used, "%s", part);
		count++;
	}
	CU_ASSERT_FALSE(notice_trace(&got, id, part));
	return count;
}

static void test_trace_mail(void)
{
	static const struct {
		const char *text;
		int parts;
	} raw[] = {{"traces ", 0},
		   {"traces \n", 0},
		   {"traces  \n", 0},
		   {"traces " ID "\n", 0},
		   {"traces " ID " 00000001@1a0;", 0},
		   {"traces " ID " 00000001@1a0\n", 0},
		   {"traces " ID " 00000001@1a0;\n" ID " 00000001@2b0;\n", 2},
		   {"traces " ID " 00000001@1a0;\nx 00000001@2b0;\n" ID " 00000001@2b0;\n", 1},
		   {"traces " ID " \x80;\n", 0}};
	struct trace_mail mail = {0};
	struct notifier n;
	struct err e = ERR_INIT;
	char text[TRACE_MAIL_BYTES];
	int pair[2];
	int sent = 0;

	CU_ASSERT_EQUAL_FATAL(
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	CU_ASSERT_EQUAL(notifier_init(&n, "unused", &e), 0);
	n.fd = pair[0];
	CU_ASSERT_EQUAL(trace_mail_due_us(&mail), INT64_MAX);
	trace_mail_send(&mail, &n);
	CU_ASSERT_EQUAL(take_mail(pair[1], text, sizeof(text)), -1);
	trace_mail_add(&mail, &n, ID, "00000001@1a0;");
	trace_mail_add(&mail, &n, ID, "00000001@2b0;");
	CU_ASSERT(trace_mail_due_us(&mail) > clock_monotonic_us());
	CU_ASSERT(trace_mail_due_us(&mail) < clock_monotonic_us() + CLOCK_US_PER_S);
	CU_ASSERT_EQUAL(take_mail(pair[1], text, sizeof(text)), -1);
	trace_mail_send(&mail, &n);
	CU_ASSERT_EQUAL(trace_mail_due_us(&mail), INT64_MAX);
	CU_ASSERT_EQUAL(take_mail(pair[1], text, sizeof(text)), 2);
	ASSERT_TEXT(text, "00000001@1a0;00000001@2b0;");
	/* a full one goes by itself, and nothing is cut */
	memset(text, '1', TRACE_PART_BYTES - 2);
	memcpy(text + TRACE_PART_BYTES - 2, ";", 2);
	for (int i = 0; i < 25; i++)
		trace_mail_add(&mail, &n, ID, text);
	trace_mail_send(&mail, &n);
	for (int got; (got = take_mail(pair[1], text, sizeof(text))) > 0;)
		sent += got;
	CU_ASSERT_EQUAL(sent, 25);
	for (size_t i = 0; i < ARRAY_LEN(raw); i++) {
		CU_ASSERT_EQUAL(fd_send(pair[0], raw[i].text, strlen(raw[i].text), NULL, 0, &e),
				(ssize_t)strlen(raw[i].text));
		CU_ASSERT_EQUAL(take_mail(pair[1], text, sizeof(text)), raw[i].parts);
	}
	notifier_release(&n);
	(void)close(pair[1]);
}

static void test_receiver_restarts(void)
{
	struct notifier n;
	struct notice got;
	struct err e = ERR_INIT;
	int before = fd_count();
	int listener;
	int fd;

	(void)unlink(path);
	CU_ASSERT_EQUAL(notifier_init(&n, path, &e), 0);
	CU_ASSERT_FALSE(notify_send(&n, "run", ID, NOTICE_ENDED));
	listener = notify_listen(path, &e);
	/* not at once: a missing receiver must not cost a connect a notice */
	CU_ASSERT_FALSE(notify_send(&n, "run", ID, NOTICE_ENDED));
	n.retry_at_us = 0;
	CU_ASSERT(notify_send(&n, "run", ID, NOTICE_ENDED));
	fd = accept_one(listener);
	(void)close(fd);
	(void)close(listener);
	listener = notify_listen(path, &e);
	/* the broken connection is replaced within the same call */
	CU_ASSERT(notify_send(&n, "run", ID, NOTICE_QUEUED));
	fd = accept_one(listener);
	CU_ASSERT_EQUAL(notify_receive(fd, &got, &e), 1);
	CU_ASSERT_EQUAL(got.hint, NOTICE_QUEUED);
	(void)close(fd);
	(void)close(listener);
	CU_ASSERT_FALSE(notify_send(&n, "run", ID, NOTICE_QUEUED));
	notifier_release(&n);
	CU_ASSERT_EQUAL(fd_count(), before);
}

static void test_full_queue(void)
{
	struct notifier n;
	struct notice got;
	struct err e = ERR_INIT;
	scope_close int listener = notify_listen(path, &e);
	scope_close int fd = -1;
	unsigned int sent = 0;
	unsigned int received = 0;

	CU_ASSERT_EQUAL(notifier_init(&n, path, &e), 0);
	while (sent < 1000000 && notify_send(&n, "run", ID, NOTICE_OUTPUT))
		sent++;
	/* more than the ten of a datagram socket, and the sender does not block */
	CU_ASSERT(sent > 20 && sent < 1000000);
	fd = accept_one(listener);
	while (notify_receive(fd, &got, &e) == 1)
		received++;
	CU_ASSERT_EQUAL(received, sent);
	CU_ASSERT(notify_send(&n, "run", ID, NOTICE_ENDED));
	CU_ASSERT_EQUAL(notify_receive(fd, &got, &e), 1);
	CU_ASSERT_EQUAL(got.hint, NOTICE_ENDED);
	notifier_release(&n);
}

struct raw {
	const char *bytes;
	size_t length;
};

#define RAW(text)                      \
	{                              \
		text, sizeof(text) - 1 \
	}

static void test_malformed(void)
{
	static const struct raw bad[] = {
	    RAW("x"),
	    RAW("run"),
	    RAW("run " ID),
	    RAW("run " ID " "),
	    RAW("run " ID " ee"),
	    RAW("run " ID " e "),
	    RAW("run " ID " x"),
	    RAW("run  " ID " e"),
	    RAW("run 0190a5c0-0000-7000-8000-0123456789aB e"),
	    RAW("run ../../../../../../../../../../../passwd e"),
	    RAW("a_kind_too_long_ " ID " e"),
	    RAW("run\0" ID " e"),
	    RAW("run " ID "\0e"),
	    RAW("run " ID " \0"),
	    RAW("run " ID " e and much more than a notice may have, which is cut"),
	    RAW("run " ID " e 00000001@1a0;"),
	    RAW("run " ID " t"),
	    RAW("traces"),
	    RAW("traces " ID " 00000001@1a0;\n\0"),
	};
	struct notice got;
	size_t count = 0;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = ERR_INIT;
		int pair[2];

		CU_ASSERT_EQUAL_FATAL(
		    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
		CU_ASSERT_EQUAL(fd_send(pair[0], bad[i].bytes, bad[i].length, pair, 1, &e),
				(ssize_t)bad[i].length);
		CU_ASSERT_EQUAL(notify_receive(pair[1], &got, &e), -1);
		count += e.code == ERR_PROTOCOL;
		(void)close(pair[0]);
		(void)close(pair[1]);
	}
	CU_ASSERT_EQUAL(count, ARRAY_LEN(bad));
}

static void test_long_path(void)
{
	struct notifier n;
	struct err e = ERR_INIT;
	char text[120];

	memset(text, 'p', sizeof(text) - 1);
	text[108] = '\0';
	CU_ASSERT_EQUAL(notifier_init(&n, text, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
	text[107] = '\0';
	err_clear(&e);
	CU_ASSERT_EQUAL(notifier_init(&n, text, &e), 0);
	CU_ASSERT_FALSE(notify_send(&n, "run", ID, NOTICE_ENDED));
}

static const struct test tests[] = {
    {"notify", "both ends", test_both_ends},
    {"notify", "parts of traces", test_trace_mail},
    {"notify", "the receiver restarts", test_receiver_restarts},
    {"notify", "full queue", test_full_queue},
    {"notify", "malformed", test_malformed},
    {"notify", "long path", test_long_path},
};

TEST_MAIN(tests)
