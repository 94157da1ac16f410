/* test_box_channels.c: as many commands at once in one box as there are channels, and one more. */
#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include "runners/base/clock.h"

#include <CUnit/CUnit.h>
#include <poll.h>

#define SLOTS 2
#define MOST  AGENT_MAX_CHANNELS
#define FIRST 100
#define USER  1000

static struct rig rig;
static struct rig_box box;

/* A client that follows many channels. */
struct many {
	struct agent agent;
	struct buf out[MOST];
	unsigned int exited;
	unsigned int wrong;
	unsigned int errors;
	struct agent_error error;
	uint32_t error_tag;
	bool welcomed;
	unsigned int listed;
};

static void on_output(void *ctx, uint32_t channel, enum agent_stream stream, uint64_t offset,
		      const void *data, size_t length)
{
	struct many *m = ctx;
	struct err e = ERR_INIT;

	if (channel >= FIRST && channel < FIRST + MOST)
		buf_add(&m->out[channel - FIRST], data, length);
	(void)agent_ack(&m->agent, channel, stream, offset + length, &e);
}

static void on_exited(void *ctx, uint32_t channel, const struct agent_exit *status)
{
	struct many *m = ctx;
	struct err e = ERR_INIT;

	m->exited++;
	m->wrong += status->code == (int)(channel - FIRST) ? 0 : 1;
	(void)agent_ack_exit(&m->agent, channel, &e);
}

static void on_error(void *ctx, uint32_t tag, const struct agent_error *error)
{
	struct many *m = ctx;

	m->errors++;
	m->error = *error;
	m->error_tag = tag;
}

static void on_welcome(void *ctx, const struct agent_welcome *welcome)
{
	struct many *m = ctx;

	m->welcomed = true;
	m->listed = welcome->count;
}

static const struct agent_events events = {
    .welcome = on_welcome, .output = on_output, .exited = on_exited, .error = on_error};

static void many_open(struct many *m, uint32_t client)
{
	struct err e = ERR_INIT;

	memset(m, 0, sizeof(*m));
	agent_init(&m->agent, &events, m, client);
	for (int i = 0; i < MOST; i++)
		buf_init(&m->out[i], (size_t)1 << 20);
	CU_ASSERT_EQUAL_FATAL(agent_connect(&m->agent, box.path, &e), 0);
}

static void many_close(struct many *m)
{
	agent_release(&m->agent);
	for (int i = 0; i < MOST; i++)
		buf_release(&m->out[i]);
}

static void many_step(struct many *m)
{
	struct pollfd p = {.fd = agent_fd(&m->agent), .events = POLLIN};
	struct err e = ERR_INIT;

	if (agent_wants_write(&m->agent))
		p.events |= POLLOUT;
	if (poll(&p, 1, 50) > 0)
		CU_ASSERT_EQUAL(agent_ready(&m->agent, &e), 0);
}

static int start(struct many *m, uint32_t channel, const char *script, bool pty)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char *argv[] = {shell, option, (char *)(uintptr_t)script, NULL};
	char path[] = "PATH=/usr/bin:/bin";
	char *env[] = {path, NULL};
	struct agent_exec spec = {.argv = argv,
				  .env = env,
				  .cwd = "/workspace",
				  .uid = USER,
				  .gid = USER,
				  .grace_ms = AGENT_GRACE_MS,
				  .pty = pty ? 1 : 0};
	struct err e = ERR_INIT;
	int result = agent_exec(&m->agent, channel, &spec, &e);

	return result == 0 ? 0 : (int)e.code;
}

static void open_box(void)
{
	struct box_limits limits;

	rig_limits(&limits);
	limits.pids = 256;
	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &box, &limits), 0);
}

/* They wait for each other, so all run at the same time. */
static void start_all(struct many *m, bool pty)
{
	for (int i = 0; i < MOST; i++) {
		char script[160];

		(void)snprintf(script, sizeof(script),
			       "echo %d; touch here-%d; while ! test -e go; do sleep 0.05; done; "
			       "seq 1 2000; exit %d",
			       i, i, i);
		CU_ASSERT_EQUAL(start(m, FIRST + (uint32_t)i, script, pty && i % 2 == 0), 0);
	}
}

static void wait_until_all_run(struct many *m)
{
	int64_t until = clock_monotonic_us() + 10 * CLOCK_US_PER_S * rig_slow();
	int running = 0;

	while (running < MOST && clock_monotonic_us() < until) {
		running = 0;
		many_step(m);
		for (int i = 0; i < MOST; i++)
			running += m->out[i].len > 0 ? 1 : 0;
	}
	CU_ASSERT_EQUAL(running, MOST);
}

static void check_all(struct many *m, bool pty)
{
	int64_t until = clock_monotonic_us() + 20 * CLOCK_US_PER_S * rig_slow();

	while (m->exited < MOST && clock_monotonic_us() < until)
		many_step(m);
	CU_ASSERT_EQUAL(m->exited, MOST);
	CU_ASSERT_EQUAL(m->wrong, 0);
	CU_ASSERT_EQUAL(m->errors, 0);
	for (size_t i = 0; i < MOST; i++) {
		bool ends = pty && i % 2 == 0;
		size_t head = (i < 10 ? 2 : 3) + (ends ? 1U : 0U);

		CU_ASSERT_EQUAL(m->out[i].len, head + 8893 + (ends ? 2000U : 0U));
	}
}

static void test_most_at_once(void)
{
	static struct many m;
	static struct many other;
	struct err e = ERR_INIT;
	int64_t until = clock_monotonic_us() + 5 * CLOCK_US_PER_S * rig_slow();

	for (int pty = 0; pty < 2; pty++) {
		open_box();
		many_open(&m, 1);
		start_all(&m, pty == 1);
		wait_until_all_run(&m);
		/* the client's own bound, nothing sent */
		CU_ASSERT_EQUAL(start(&m, FIRST + MOST, "echo never", false), ERR_LIMIT);
		/* the agent's, for another client */
		many_open(&other, 2);
		CU_ASSERT_EQUAL(start(&other, FIRST + MOST, "echo never", false), 0);
		until = clock_monotonic_us() + 5 * CLOCK_US_PER_S;
		while ((other.errors == 0 || !other.welcomed) && clock_monotonic_us() < until)
			many_step(&other);
		CU_ASSERT_EQUAL(other.listed, MOST);
		CU_ASSERT_EQUAL(other.errors, 1);
		CU_ASSERT_EQUAL(other.error_tag, FIRST + MOST);
		CU_ASSERT_EQUAL(other.error.code, ERR_LIMIT);
		CU_ASSERT_STRING_EQUAL(other.error.text, "32 channels are in use");
		many_close(&other);
		CU_ASSERT_EQUAL(agent_put_file(&m.agent, 7, "go", 0644, USER, USER, "", 0, &e), 0);
		check_all(&m, pty == 1);
		/* all are free again */
		m.exited = 0;
		for (int i = 0; i < MOST; i++)
			buf_reset(&m.out[i]);
		start_all(&m, pty == 1);
		check_all(&m, pty == 1);
		many_close(&m);
		CU_ASSERT_EQUAL(rig_destroy(&rig, &box, NULL), 0);
	}
}

static const struct test tests[] = {
    {"channels", "as many as there are at once, and one more", test_most_at_once},
};

int main(int argc, char **argv)
{
	return rig_main(&rig, SLOTS, argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
