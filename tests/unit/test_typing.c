/* test_typing: the limits of an interactive run's input, and its records from gate to runner. */
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/core/input.h"
#include "runners/supervisor/typing.h"
#include "tests/lib/test.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define S      CLOCK_US_PER_S
#define RUN_ID "0190a5c0-0000-7000-8000-00000000000a"

static const struct typing_limits none = {-1, -1, -1, -1};

static size_t judge(struct typing *t, size_t length, int64_t now, const char *reason)
{
	struct typing_frame frame = {.taken = 0};
	const char *got;
	size_t taken = typing_judge(t, &frame, length, now, &got);

	CU_ASSERT_STRING_EQUAL(got == NULL ? "" : got, reason);
	CU_ASSERT_EQUAL(frame.cut, got != NULL);
	return taken;
}

static void test_no_limits(void)
{
	struct typing t;

	typing_begin(&t, &none, 0, 5);
	CU_ASSERT_EQUAL(judge(&t, 1U << 20, 5, ""), 1U << 20);
	CU_ASSERT_EQUAL(t.taken, 1U << 20);
	CU_ASSERT_FALSE(typing_is_idle(&t, INT64_MAX - 1));
}

static void test_each_limit(void)
{
	struct typing_limits limits = none;
	struct typing t;

	limits.max_frame_bytes = 2048;
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, 2048, 0, ""), 2048);
	CU_ASSERT_EQUAL(judge(&t, 2049, 0, "stdin_frame_cap"), 2048);
	limits = none;
	limits.max_bytes = 10;
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, 10, 0, ""), 10);
	CU_ASSERT_EQUAL(judge(&t, 1, 0, "stdin_cap"), 0);
	/* what an earlier runner took counts, also when a box lies about it */
	typing_begin(&t, &limits, 7, 0);
	CU_ASSERT_EQUAL(judge(&t, 5, 0, "stdin_cap"), 3);
	typing_begin(&t, &limits, UINT64_MAX, 0);
	CU_ASSERT_EQUAL(judge(&t, 5, 0, "stdin_cap"), 0);
	limits = none;
	limits.bytes_per_second = 0;
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, 1, 100 * S, "stdin_rate"), 0);
}

static void test_first_reason(void)
{
	struct typing_limits limits = {
	    .max_bytes = 3, .max_frame_bytes = 5, .bytes_per_second = 4, .idle_sec = -1};
	struct typing t;

	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, 6, 0, "stdin_frame_cap"), 3);
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, 5, 0, "stdin_rate"), 3);
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, 4, 0, "stdin_cap"), 3);
}

static void test_rate(void)
{
	struct typing_limits limits = none;
	struct typing t;
	uint64_t taken = 0;

	limits.bytes_per_second = 1000;
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, 1500, 0, "stdin_rate"), 1000);
	CU_ASSERT_EQUAL(judge(&t, 1, 999, "stdin_rate"), 0);
	CU_ASSERT_EQUAL(judge(&t, 2, 1000, "stdin_rate"), 1);
	CU_ASSERT_EQUAL(judge(&t, 600, S / 2, "stdin_rate"), 499);
	/* it never holds more than a second's bytes */
	CU_ASSERT_EQUAL(judge(&t, 5000, 100 * S, "stdin_rate"), 1000);
	/* small steps lose nothing */
	typing_begin(&t, &limits, 0, 0);
	(void)judge(&t, 1000, 0, "");
	for (int64_t now = 0; now <= 10 * S; now += 333)
		taken +=
		    judge(&t, 7, now, t.tokens < 7 && now - t.tokens_us < 7000 ? "stdin_rate" : "");
	CU_ASSERT(taken >= 9990 && taken <= 10000);
	limits.bytes_per_second = INT64_MAX;
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, SIZE_MAX / 4, 0, "stdin_rate"), (size_t)1 << 40);
	CU_ASSERT_EQUAL(judge(&t, 1U << 20, S, ""), 1U << 20);
}

static void test_pieces(void)
{
	struct typing_limits limits = none;
	struct typing_frame frame = {.taken = 0};
	struct typing t;
	const char *reason;

	limits.max_frame_bytes = 10;
	limits.bytes_per_second = 1000;
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(typing_judge(&t, &frame, 6, 0, &reason), 6);
	CU_ASSERT_PTR_NULL(reason);
	CU_ASSERT_EQUAL(typing_judge(&t, &frame, 6, 0, &reason), 4);
	CU_ASSERT_PTR_NOT_NULL(reason);
	/* the rest of a frame that was cut is dropped, and said once */
	CU_ASSERT_EQUAL(typing_judge(&t, &frame, 1, 0, &reason), 0);
	CU_ASSERT_PTR_NULL(reason);
	CU_ASSERT_EQUAL(t.taken, 10);
}

static void test_idle(void)
{
	struct typing_limits limits = none;
	struct typing t;

	limits.idle_sec = 2;
	typing_begin(&t, &limits, 0, S);
	CU_ASSERT_EQUAL(t.idle_at_us, 3 * S);
	CU_ASSERT_FALSE(typing_is_idle(&t, 3 * S - 1));
	CU_ASSERT_EQUAL(judge(&t, 1, 3 * S - 1, ""), 1);
	CU_ASSERT_FALSE(typing_is_idle(&t, 5 * S - 2));
	CU_ASSERT_TRUE(typing_is_idle(&t, 5 * S - 1));
	CU_ASSERT_FALSE(typing_is_idle(&t, 500 * S));
	/* what a limit dropped is no input */
	limits.max_bytes = 0;
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(judge(&t, 1, S, "stdin_cap"), 0);
	CU_ASSERT_EQUAL(t.idle_at_us, 2 * S);
	limits.idle_sec = 0;
	typing_begin(&t, &limits, 0, 0);
	CU_ASSERT_EQUAL(t.idle_at_us, INT64_MAX);
	limits.idle_sec = INT64_MAX;
	typing_begin(&t, &limits, 0, S);
	CU_ASSERT_EQUAL(t.idle_at_us, INT64_MAX);
}

static void test_records(void)
{
	static unsigned char data[INPUT_BYTES + 1];
	static struct input_record got;
	char folder[300];
	struct err e = ERR_INIT;
	int listener;
	int from;
	int to;

	(void)snprintf(folder, sizeof(folder), "%s/" INPUT_FOLDER, test_dir());
	CU_ASSERT_EQUAL(input_connect(test_dir(), &e), -1);
	err_clear(&e);
	(void)mkdir(folder, 0700);
	listener = input_listen(test_dir(), &e);
	CU_ASSERT_FATAL(listener >= 0);
	to = input_connect(test_dir(), &e);
	CU_ASSERT_FATAL(to >= 0);
	from = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	CU_ASSERT_FATAL(from >= 0);
	CU_ASSERT_EQUAL(input_receive(from, &got, &e), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7);
	CU_ASSERT_EQUAL(input_send(to, RUN_ID, true, data, INPUT_BYTES, &e), 1);
	CU_ASSERT_EQUAL(input_send(to, RUN_ID, false, data, 3, &e), 1);
	CU_ASSERT_EQUAL(input_receive(from, &got, &e), 1);
	CU_ASSERT(got.first && got.length == INPUT_BYTES &&
		  memcmp(got.bytes, data, INPUT_BYTES) == 0);
	CU_ASSERT_STRING_EQUAL(got.run_id, RUN_ID);
	CU_ASSERT_EQUAL(input_receive(from, &got, &e), 1);
	CU_ASSERT(!got.first && got.length == 3);
	CU_ASSERT_EQUAL(input_send(to, RUN_ID, true, data, INPUT_BYTES + 1, &e), -1);
	err_clear(&e);
	/* the socket gets full before much is in it, and goes on when it is read */
	for (size_t i = 0; input_send(to, RUN_ID, true, data, INPUT_BYTES, &e) == 1; i++)
		CU_ASSERT_FATAL(i < 64);
	CU_ASSERT_EQUAL(e.code, ERR_NONE);
	while (input_receive(from, &got, &e) == 1)
		;
	CU_ASSERT_EQUAL(input_send(to, RUN_ID, true, data, 1, &e), 1);
	(void)close(to);
	CU_ASSERT_EQUAL(input_receive(from, &got, &e), 1);
	CU_ASSERT_EQUAL(input_receive(from, &got, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_NONE);
	(void)close(from);
	(void)close(listener);
}

static void test_malformed_records(void)
{
	static const struct {
		const char *bytes;
		size_t length;
	} bad[] = {{"\1", 1},
		   {"\1" RUN_ID, 36},
		   {"\2" RUN_ID "x", 38},
		   {"\1"
		    "0190a5c0-0000-7000-8000-00000000000/"
		    "x",
		    38}};
	static struct input_record got;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err e = ERR_INIT;
		int ends[2];

		CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
		CU_ASSERT_EQUAL(send(ends[0], bad[i].bytes, bad[i].length, 0),
				(ssize_t)bad[i].length);
		CU_ASSERT_EQUAL(input_receive(ends[1], &got, &e), -1);
		CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
		(void)close(ends[0]);
		(void)close(ends[1]);
	}
}

static const struct test tests[] = {
    {"typing", "no limits", test_no_limits},
    {"typing", "each limit", test_each_limit},
    {"typing", "the first reason", test_first_reason},
    {"typing", "rate", test_rate},
    {"typing", "a frame in pieces", test_pieces},
    {"typing", "idle", test_idle},
    {"input", "records", test_records},
    {"input", "malformed records", test_malformed_records},
};

TEST_MAIN(tests)
