/*
 * fuzz_agentproto.c: bytes from a hostile box into the client of the agent, and bytes of a client
 * into the parsers of cordon-init. The first byte chooses.
 */
#include "runners/core/agent.h"

#include "runners/base/fdio.h"

#include <stdint.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_output(void *ctx, uint32_t channel, enum agent_stream stream, uint64_t offset,
		      const void *data, size_t length)
{
	struct agent *a = ctx;
	struct err e = ERR_INIT;

	(void)data;
	(void)agent_ack(a, channel, stream, offset + length, &e);
}

/* An event may end the agent. */
static void on_error(void *ctx, uint32_t tag, const struct agent_error *error)
{
	(void)error;
	if (tag % 3 == 1)
		agent_close(ctx);
	else if (tag % 3 == 2)
		agent_release(ctx);
}

static const struct agent_events events = {.output = on_output, .error = on_error};

static void client(const uint8_t *data, size_t size)
{
	struct agent a;
	struct err e = ERR_INIT;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
		return;
	agent_init(&a, &events, &a, 1);
	if (agent_connect_fd(&a, pair[0], &e) == 0) {
		(void)agent_attach(&a, 1, 0, 0, &e);
		(void)!send(pair[1], data, size, MSG_NOSIGNAL);
		for (int i = 0; i < 8 && agent_fd(&a) >= 0; i++) {
			err_clear(&e);
			if (i == 6)
				(void)shutdown(pair[1], SHUT_WR);
			(void)agent_ready(&a, &e);
		}
	}
	agent_release(&a);
	(void)close(pair[1]);
}

static void server(const uint8_t *data, size_t size)
{
	static char *pointers[AGENT_EXEC_POINTERS];
	static char copy[LIMIT_FRAME_BYTES];
	struct agent_exec spec;
	struct agent_file_write part;
	struct agent_file_read want;
	struct agent_name_request name;
	uint16_t rows;
	uint16_t cols;
	struct agent_frame f = {.payload = data};
	struct err e = ERR_INIT;

	if (size > sizeof(copy))
		return;
	memcpy(copy, data, size);
	f.head.length = (uint32_t)size;
	(void)agent_exec_parse(copy, size, pointers, &spec, &e);
	(void)agent_get_file_write(&f, &part, &e);
	(void)agent_get_file_read(&f, &want, &e);
	(void)agent_get_resize(&f, &rows, &cols, &e);
	for (f.head.type = AGENT_LIST; f.head.type <= AGENT_RENAME; f.head.type++)
		for (f.head.flags = 0; f.head.flags <= AGENT_F_PARENTS;
		     f.head.flags += AGENT_F_RECURSIVE)
			(void)agent_get_name_request(&f, &name, &e);
}

/* NOLINTNEXTLINE(readability-identifier-naming): the name that libFuzzer calls */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] % 2 == 0)
		client(data + 1, size - 1);
	else
		server(data + 1, size - 1);
	return 0;
}
