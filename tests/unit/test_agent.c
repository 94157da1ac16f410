/* test_agent.c: the client of a box's agent against a scripted peer: events that end it, and the
 * order of what a hostile agent may send. */
#include "tests/lib/test.h"

#include "runners/base/buf.h"
#include "runners/base/fdio.h"
#include "runners/core/agent.h"

#include <CUnit/CUnit.h>
#include <errno.h>
#include <sys/socket.h>

enum deed { DO_NOTHING, DO_CLOSE, DO_RELEASE };

static struct agent a;
static enum deed deed;
static int events_seen;
static int peer;
static char said[64];

static void act(void)
{
	events_seen++;
	if (deed == DO_CLOSE)
		agent_close(&a);
	else if (deed == DO_RELEASE)
		agent_release(&a);
}

static void on_started(void *ctx, uint32_t channel, uint32_t pid)
{
	(void)ctx;
	(void)channel;
	(void)pid;
	act();
}

static void on_result(void *ctx, uint32_t tag, const uint64_t values[AGENT_RESULT_VALUES])
{
	(void)ctx;
	(void)tag;
	(void)values;
	act();
}

/* Reads what it was given after it ended the agent. */
static void on_error(void *ctx, uint32_t tag, const struct agent_error *error)
{
	(void)ctx;
	(void)tag;
	act();
	(void)snprintf(said, sizeof(said), "%s", error->text);
}

static void on_data(void *ctx, uint32_t tag, uint64_t offset, const void *data, size_t length)
{
	(void)ctx;
	(void)tag;
	(void)offset;
	act();
	(void)snprintf(said, sizeof(said), "%.*s", (int)length, (const char *)data);
}

static const struct agent_events events = {
    .started = on_started, .result = on_result, .error = on_error, .data = on_data};

static void put_error(struct buf *out)
{
	static const struct agent_header request = {.type = AGENT_EXEC, .client = 1, .channel = 7};

	agent_put_error(out, &request, ERR_LIMIT, EAGAIN, "as full as can be");
}

static void put_data(struct buf *out)
{
	static const struct agent_header head = {.type = AGENT_DATA, .client = 1, .channel = 9};

	agent_put(out, &head, "as full as can be", 17);
}

static void put_result(struct buf *out)
{
	static const struct agent_header request = {
	    .type = AGENT_FILE_WRITE, .client = 1, .channel = 8};
	static const uint64_t values[AGENT_RESULT_VALUES] = {0};

	agent_put_result(out, &request, values);
}

static void open_agent(void)
{
	struct err e = ERR_INIT;
	int pair[2];

	CU_ASSERT_EQUAL_FATAL(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	agent_init(&a, &events, NULL, 1);
	CU_ASSERT_EQUAL_FATAL(agent_connect_fd(&a, pair[0], &e), 0);
	peer = pair[1];
	events_seen = 0;
	said[0] = '\0';
}

/* The peer sends `frames` of them at once; the first event does the deed. */
static void one_deed(enum deed what, void (*put)(struct buf *out), int frames)
{
	struct err e = ERR_INIT;
	struct buf out;

	open_agent();
	deed = what;
	buf_init(&out, (size_t)1 << 20);
	for (int i = 0; i < frames; i++)
		put(&out);
	CU_ASSERT_TRUE_FATAL(buf_ok(&out));
	CU_ASSERT_EQUAL(send(peer, out.data, out.len, MSG_NOSIGNAL), (ssize_t)out.len);
	CU_ASSERT_EQUAL(agent_ready(&a, &e), 0);
	CU_ASSERT_EQUAL(e.code, 0);
	CU_ASSERT_EQUAL(events_seen, what == DO_NOTHING ? frames : 1);
	CU_ASSERT_TRUE((agent_fd(&a) >= 0) == (what == DO_NOTHING));
	CU_ASSERT_EQUAL(a.in.len, 0);
	if (put != put_result)
		CU_ASSERT_STRING_EQUAL(said, "as full as can be");
	agent_release(&a);
	CU_ASSERT_PTR_NULL(a.in.data);
	CU_ASSERT_PTR_NULL(a.out.data);
	buf_release(&out);
	(void)close(peer);
}

static void every_event(enum deed what)
{
	one_deed(what, put_error, 1);
	one_deed(what, put_error, 3);
	one_deed(what, put_data, 2);
	one_deed(what, put_result, 2);
}

static void test_events_go_on(void)
{
	every_event(DO_NOTHING);
}

static void test_event_closes(void)
{
	every_event(DO_CLOSE);
}

static void test_event_releases(void)
{
	every_event(DO_RELEASE);
}

/* A half frame stays, the rest of it comes later; after a close nothing of it is left. */
static void test_connect_again(void)
{
	struct err e = ERR_INIT;
	struct buf out;
	int pair[2];

	open_agent();
	deed = DO_CLOSE;
	buf_init(&out, (size_t)1 << 20);
	put_error(&out);
	put_error(&out);
	CU_ASSERT_EQUAL(send(peer, out.data, out.len - 3, MSG_NOSIGNAL), (ssize_t)out.len - 3);
	CU_ASSERT_EQUAL(agent_ready(&a, &e), 0);
	CU_ASSERT_EQUAL(agent_fd(&a), -1);
	CU_ASSERT_EQUAL(agent_ready(&a, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	(void)close(peer);
	CU_ASSERT_EQUAL_FATAL(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	err_clear(&e);
	CU_ASSERT_EQUAL_FATAL(agent_connect_fd(&a, pair[0], &e), 0);
	peer = pair[1];
	deed = DO_NOTHING;
	events_seen = 0;
	CU_ASSERT_EQUAL(send(peer, out.data, out.len - 3, MSG_NOSIGNAL), (ssize_t)out.len - 3);
	CU_ASSERT_EQUAL(agent_ready(&a, &e), 0);
	CU_ASSERT_EQUAL(events_seen, 1);
	CU_ASSERT_EQUAL(send(peer, (const char *)out.data + out.len - 3, 3, MSG_NOSIGNAL), 3);
	CU_ASSERT_EQUAL(agent_ready(&a, &e), 0);
	CU_ASSERT_EQUAL(events_seen, 2);
	agent_release(&a);
	buf_release(&out);
	(void)close(peer);
}

static const struct test tests[] = {
    {"agent", "events that go on", test_events_go_on},
    {"agent", "an event closes it", test_event_closes},
    {"agent", "an event releases it", test_event_releases},
    {"agent", "connect again", test_connect_again},
};
TEST_MAIN(tests)
