/* test_agentproto.c: frames of the agent: round trips, refusals, random bytes, lack of memory. */
#include "tests/lib/test.h"

#include "runners/base/agentproto.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/base/wire.h"

#include <CUnit/CUnit.h>

static struct buf out;
static struct agent_frame frame;

static void begin(void)
{
	buf_release(&out);
	buf_init(&out, (size_t)8 << 20);
}

/* The one frame in the buffer. */
static void take(uint16_t type)
{
	struct err e = ERR_INIT;

	CU_ASSERT_TRUE_FATAL(buf_ok(&out));
	CU_ASSERT_EQUAL_FATAL(agent_peek(out.data, out.len, &frame, &e), 1);
	CU_ASSERT_EQUAL(frame.head.type, type);
	CU_ASSERT_EQUAL(frame.head.length + AGENT_HEADER_BYTES, out.len);
}

static void test_header(void)
{
	struct agent_header head = {.type = AGENT_OUT,
				    .flags = AGENT_STREAM_ERR | AGENT_F_EOF,
				    .client = 0xFFFFFFFF,
				    .channel = 7,
				    .offset = UINT64_MAX - 1};
	struct err e = ERR_INIT;

	begin();
	agent_put(&out, &head, "abc", 3);
	take(AGENT_OUT);
	CU_ASSERT_EQUAL(frame.head.flags, head.flags);
	CU_ASSERT_EQUAL(frame.head.client, head.client);
	CU_ASSERT_EQUAL(frame.head.channel, head.channel);
	CU_ASSERT_EQUAL(frame.head.offset, head.offset);
	CU_ASSERT_EQUAL(memcmp(frame.payload, "abc", 3), 0);
	for (size_t i = 0; i < out.len; i++)
		CU_ASSERT_EQUAL(agent_peek(out.data, i, &frame, &e), 0);
	wire_store_u32((unsigned char *)out.data, LIMIT_FRAME_BYTES + 1);
	CU_ASSERT_EQUAL(agent_peek(out.data, out.len, &frame, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
}

static void test_frame_too_long(void)
{
	struct agent_header head = {.type = AGENT_OUT};
	scope_free char *large = mem_zalloc(1, LIMIT_FRAME_BYTES + 1);

	CU_ASSERT_PTR_NOT_NULL_FATAL(large);
	begin();
	agent_put(&out, &head, large, LIMIT_FRAME_BYTES);
	CU_ASSERT_TRUE(buf_ok(&out));
	begin();
	agent_put(&out, &head, large, LIMIT_FRAME_BYTES + 1);
	CU_ASSERT_FALSE(buf_ok(&out));
}

/* Joins the payloads of EXEC frames. */
static size_t join(char *joined, size_t size)
{
	size_t at = 0;
	size_t used = 0;
	struct err e = ERR_INIT;

	while (at < out.len) {
		CU_ASSERT_EQUAL_FATAL(agent_peek(out.data + at, out.len - at, &frame, &e), 1);
		CU_ASSERT_EQUAL(frame.head.offset, used);
		CU_ASSERT_TRUE_FATAL(used + frame.head.length <= size);
		memcpy(joined + used, frame.payload, frame.head.length);
		used += frame.head.length;
		at += AGENT_HEADER_BYTES + frame.head.length;
		CU_ASSERT_EQUAL((frame.head.flags & AGENT_F_MORE) != 0, at < out.len);
	}
	return used;
}

static void test_exec(void)
{
	static char joined[AGENT_EXEC_BYTES];
	static char *pointers[AGENT_EXEC_POINTERS];
	char program[] = "sh";
	char empty[] = "";
	scope_free char *large = mem_alloc(600001);
	char *argv[] = {program, empty, large, NULL};
	char variable[] = "A=b";
	char *env[] = {variable, NULL};
	struct agent_exec spec = {.argv = argv,
				  .env = env,
				  .cwd = "/workspace",
				  .uid = 1000,
				  .gid = 1001,
				  .nofile = 64,
				  .nproc = 9,
				  .core_bytes = 5,
				  .grace_ms = 300,
				  .stdin_mode = AGENT_STDIN_STREAM};
	struct agent_exec got;
	struct err e = ERR_INIT;
	size_t length;

	CU_ASSERT_PTR_NOT_NULL_FATAL(large);
	memset(large, 'x', 600000);
	large[600000] = '\0';
	begin();
	CU_ASSERT_EQUAL(agent_put_exec(&out, 1, 2, &spec, &e), 0);
	length = join(joined, sizeof(joined));
	CU_ASSERT_EQUAL(agent_exec_parse(joined, length, pointers, &got, &e), 0);
	CU_ASSERT_STRING_EQUAL(got.argv[0], "sh");
	CU_ASSERT_STRING_EQUAL(got.argv[1], "");
	CU_ASSERT_STRING_EQUAL(got.argv[2], large);
	CU_ASSERT_PTR_NULL(got.argv[3]);
	CU_ASSERT_STRING_EQUAL(got.env[0], "A=b");
	CU_ASSERT_PTR_NULL(got.env[1]);
	CU_ASSERT_STRING_EQUAL(got.cwd, "/workspace");
	CU_ASSERT_EQUAL(got.uid, 1000);
	CU_ASSERT_EQUAL(got.gid, 1001);
	CU_ASSERT_EQUAL(got.nofile, 64);
	CU_ASSERT_EQUAL(got.nproc, 9);
	CU_ASSERT_EQUAL(got.core_bytes, 5);
	CU_ASSERT_EQUAL(got.grace_ms, 300);
	CU_ASSERT_EQUAL(got.stdin_mode, AGENT_STDIN_STREAM);
	/* any cut and any extra byte is refused */
	for (size_t i = 0; i < length; i += i < 100 ? 1 : 7919) {
		err_clear(&e);
		CU_ASSERT_EQUAL(agent_exec_parse(joined, i, pointers, &got, &e), -1);
	}
	err_clear(&e);
	CU_ASSERT_EQUAL(agent_exec_parse(joined, length + 1, pointers, &got, &e), -1);
}

static void test_exec_bounds(void)
{
	static char joined[AGENT_EXEC_BYTES];
	static char *pointers[AGENT_EXEC_POINTERS];
	static char *many[LIMIT_COMMAND_ITEMS + 2];
	char item[] = "x";
	char *one[] = {item, NULL};
	char *none[] = {NULL};
	struct agent_exec spec = {.argv = many, .env = none, .cwd = "/"};
	struct agent_exec got;
	struct err e = ERR_INIT;

	for (size_t i = 0; i <= LIMIT_COMMAND_ITEMS; i++)
		many[i] = item;
	begin();
	CU_ASSERT_EQUAL(agent_put_exec(&out, 1, 2, &spec, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	many[LIMIT_COMMAND_ITEMS] = NULL;
	err_clear(&e);
	begin();
	CU_ASSERT_EQUAL(agent_put_exec(&out, 1, 2, &spec, &e), 0);
	CU_ASSERT_EQUAL(agent_exec_parse(joined, join(joined, sizeof(joined)), pointers, &got, &e),
			0);
	/* nothing to run, a foreign id */
	spec.argv = none;
	begin();
	CU_ASSERT_EQUAL(agent_put_exec(&out, 1, 2, &spec, &e), 0);
	CU_ASSERT_EQUAL(agent_exec_parse(joined, join(joined, sizeof(joined)), pointers, &got, &e),
			-1);
	spec.argv = one;
	spec.uid = 70000;
	err_clear(&e);
	begin();
	CU_ASSERT_EQUAL(agent_put_exec(&out, 1, 2, &spec, &e), 0);
	CU_ASSERT_EQUAL(agent_exec_parse(joined, join(joined, sizeof(joined)), pointers, &got, &e),
			-1);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
}

static void test_exec_terminal(void)
{
	static char joined[AGENT_EXEC_BYTES];
	static char *pointers[AGENT_EXEC_POINTERS];
	static const struct {
		uint8_t pty;
		uint16_t rows;
		uint16_t cols;
		int result;
	} cases[] = {{1, 24, 80, 0},  {1, 0, 0, 0},  {1, 65535, 65535, 0}, {0, 0, 0, 0},
		     {0, 24, 80, -1}, {0, 0, 1, -1}, {2, 24, 80, -1},      {255, 0, 0, -1}};
	char item[] = "x";
	char *one[] = {item, NULL};
	char *none[] = {NULL};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct agent_exec spec = {.argv = one,
					  .env = none,
					  .cwd = "/",
					  .pty = cases[i].pty,
					  .rows = cases[i].rows,
					  .cols = cases[i].cols};
		struct agent_exec got;
		struct err e = ERR_INIT;
		size_t length;

		begin();
		CU_ASSERT_EQUAL(agent_put_exec(&out, 1, 2, &spec, &e), 0);
		length = join(joined, sizeof(joined));
		CU_ASSERT_EQUAL(agent_exec_parse(joined, length, pointers, &got, &e),
				cases[i].result);
		if (cases[i].result != 0) {
			CU_ASSERT_EQUAL(e.code, ERR_INVALID);
			continue;
		}
		CU_ASSERT_EQUAL(got.rows, cases[i].rows);
		CU_ASSERT_EQUAL(got.cols, cases[i].cols);
		CU_ASSERT_EQUAL(got.pty, cases[i].pty);
		/* what is reserved is 0 */
		joined[6] = 1;
		CU_ASSERT_EQUAL(agent_exec_parse(joined, length, pointers, &got, &e), -1);
	}
}

static void test_resize(void)
{
	uint16_t rows = 0;
	uint16_t cols = 0;
	struct err e = ERR_INIT;

	begin();
	agent_put_resize(&out, 3, 4, 65535, 80);
	take(AGENT_RESIZE);
	CU_ASSERT_EQUAL(frame.head.channel, 4);
	CU_ASSERT_EQUAL(agent_get_resize(&frame, &rows, &cols, &e), 0);
	CU_ASSERT_EQUAL(rows, 65535);
	CU_ASSERT_EQUAL(cols, 80);
	frame.head.flags = AGENT_F_ALL;
	CU_ASSERT_EQUAL(agent_get_resize(&frame, &rows, &cols, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
	frame.head.flags = 0;
	for (frame.head.length = 0; frame.head.length < 4; frame.head.length++) {
		err_clear(&e);
		CU_ASSERT_EQUAL(agent_get_resize(&frame, &rows, &cols, &e), -1);
		CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
	}
	frame.head.length = 5;
	agent_put(&out, &frame.head, "12345", 5);
	CU_ASSERT_EQUAL(agent_get_resize(&frame, &rows, &cols, &e), -1);
}

static void test_small_requests(void)
{
	uint32_t number = 0;
	uint64_t offsets[2];
	int sig = 0;
	struct err e = ERR_INIT;

	begin();
	agent_put_hello(&out, 3, 77);
	take(AGENT_HELLO);
	CU_ASSERT_EQUAL(agent_get_hello(&frame, &number, &e), 0);
	CU_ASSERT_EQUAL(number, 77);
	begin();
	agent_put_signal(&out, 3, 4, true, 15);
	take(AGENT_SIGNAL);
	CU_ASSERT_TRUE((frame.head.flags & AGENT_F_ALL) != 0);
	CU_ASSERT_EQUAL(agent_get_signal(&frame, &sig, &e), 0);
	CU_ASSERT_EQUAL(sig, 15);
	begin();
	agent_put_signal(&out, 3, 4, false, 65);
	take(AGENT_SIGNAL);
	CU_ASSERT_EQUAL(agent_get_signal(&frame, &sig, &e), -1);
	begin();
	agent_put_reattach(&out, 3, 4, 5, UINT64_MAX);
	take(AGENT_REATTACH);
	err_clear(&e);
	CU_ASSERT_EQUAL(agent_get_reattach(&frame, offsets, &e), 0);
	CU_ASSERT_EQUAL(offsets[0], 5);
	CU_ASSERT_EQUAL(offsets[1], UINT64_MAX);
	frame.head.length--;
	CU_ASSERT_EQUAL(agent_get_reattach(&frame, offsets, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
}

static void test_files(void)
{
	struct agent_file_write part = {
	    .path = "a/b", .mode = 0755, .uid = 1, .gid = 2, .data = "xyz", .length = 3};
	struct agent_file_write got;
	struct agent_file_read want;
	struct err e = ERR_INIT;

	begin();
	CU_ASSERT_EQUAL(agent_put_file_write(&out, 1, 9, 100, true, &part, &e), 0);
	take(AGENT_FILE_WRITE);
	CU_ASSERT_EQUAL(agent_get_file_write(&frame, &got, &e), 0);
	CU_ASSERT_STRING_EQUAL(got.path, "a/b");
	CU_ASSERT_EQUAL(got.mode, 0755);
	CU_ASSERT_EQUAL(got.length, 3);
	CU_ASSERT_EQUAL(frame.head.offset, 100);
	part.path = "../b";
	CU_ASSERT_EQUAL(agent_put_file_write(&out, 1, 9, 0, true, &part, &e), -1);
	err_clear(&e);
	begin();
	CU_ASSERT_EQUAL(agent_put_file_read(&out, 1, 9, 5, 6, "x/\377y", 4, 10, UINT64_MAX, &e), 0);
	take(AGENT_FILE_READ);
	CU_ASSERT_EQUAL(agent_get_file_read(&frame, &want, &e), 0);
	CU_ASSERT_STRING_EQUAL(want.path, "x/\377y");
	CU_ASSERT_EQUAL(want.uid, 5);
	CU_ASSERT_EQUAL(want.length, UINT64_MAX);
	CU_ASSERT_EQUAL(agent_put_file_read(&out, 1, 9, 5, 6, "/x", 2, 10, 1, &e), -1);
}

static void test_paths(void)
{
	char longest[LIMIT_PATH_BYTES + 1];

	memset(longest, 'a', sizeof(longest));
	CU_ASSERT_TRUE(agent_path_ok(longest, LIMIT_PATH_BYTES));
	CU_ASSERT_FALSE(agent_path_ok(longest, LIMIT_PATH_BYTES + 1));
	CU_ASSERT_TRUE(agent_path_ok("a..b/...", 8));
	CU_ASSERT_FALSE(agent_path_ok("", 0));
	CU_ASSERT_FALSE(agent_path_ok("/a", 2));
	CU_ASSERT_FALSE(agent_path_ok("a/", 2));
	CU_ASSERT_FALSE(agent_path_ok("a//b", 4));
	CU_ASSERT_FALSE(agent_path_ok("./a", 3));
	CU_ASSERT_FALSE(agent_path_ok("a/..", 4));
	CU_ASSERT_FALSE(agent_path_ok("..", 2));
	CU_ASSERT_FALSE(agent_path_ok("a\0b", 3));
}

static void test_answers(void)
{
	struct agent_header request = {.type = AGENT_PING, .client = 1, .channel = 2, .offset = 3};
	uint64_t values[AGENT_RESULT_VALUES] = {1, 2, 3, 4, 5, 6, 7, UINT64_MAX};
	uint64_t got[AGENT_RESULT_VALUES];
	struct agent_exit status = {.how = AGENT_SIGNALED, .code = 9, .user_us = 1, .wall_us = 2};
	struct agent_exit end;
	struct agent_error error;
	struct agent_entry entry = {
	    .path = "a\377", .path_length = 2, .kind = AGENT_KIND_SYMLINK, .size = 5};
	struct agent_entry named;
	uint32_t pid = 0;
	struct err e = ERR_INIT;

	begin();
	agent_put_result(&out, &request, values);
	take(AGENT_RESULT);
	CU_ASSERT_EQUAL(agent_get_result(&frame, got, &e), 0);
	CU_ASSERT_EQUAL(memcmp(values, got, sizeof(values)), 0);
	begin();
	agent_put_exit(&out, 1, 2, &status);
	take(AGENT_EXIT);
	CU_ASSERT_EQUAL(agent_get_exit(&frame, &end, &e), 0);
	CU_ASSERT_EQUAL(end.how, AGENT_SIGNALED);
	CU_ASSERT_EQUAL(end.code, 9);
	CU_ASSERT_EQUAL(end.wall_us, 2);
	begin();
	agent_put_error(&out, &request, ERR_STORAGE, ENOSPC, "no\nspace \033[2J");
	take(AGENT_ERROR);
	CU_ASSERT_EQUAL(agent_get_error(&frame, &error, &e), 0);
	CU_ASSERT_EQUAL(error.code, ERR_STORAGE);
	CU_ASSERT_EQUAL(error.sys, ENOSPC);
	CU_ASSERT_STRING_EQUAL(error.text, "no?space ?[2J");
	begin();
	agent_put_entry(&out, &request, &entry);
	take(AGENT_ENTRY);
	CU_ASSERT_EQUAL(agent_get_entry(&frame, &named, &e), 0);
	CU_ASSERT_EQUAL(named.kind, AGENT_KIND_SYMLINK);
	CU_ASSERT_EQUAL(named.path_length, 2);
	begin();
	agent_put_started(&out, 1, 2, 33);
	take(AGENT_STARTED);
	CU_ASSERT_EQUAL(agent_get_started(&frame, &pid, &e), 0);
	CU_ASSERT_EQUAL(pid, 33);
}

static void refuse_exit(const struct agent_exit *status)
{
	struct agent_exit end;
	struct err e = ERR_INIT;

	begin();
	agent_put_exit(&out, 1, 2, status);
	take(AGENT_EXIT);
	CU_ASSERT_EQUAL(agent_get_exit(&frame, &end, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
}

static void test_hostile_answers(void)
{
	struct agent_welcome welcome = {.version = 1, .count = 1};
	struct agent_welcome got;
	struct err e = ERR_INIT;

	refuse_exit(&(struct agent_exit){.how = AGENT_EXITED, .code = 256});
	refuse_exit(&(struct agent_exit){.how = AGENT_EXITED, .code = -1});
	refuse_exit(&(struct agent_exit){.how = AGENT_SIGNALED, .code = 0});
	refuse_exit(&(struct agent_exit){.how = AGENT_SIGNALED, .code = 65});
	refuse_exit(&(struct agent_exit){.how = AGENT_HOW__MAX});
	refuse_exit(&(struct agent_exit){.stage = AGENT_STAGE__MAX});
	refuse_exit(&(struct agent_exit){.sys = 100000});
	welcome.channels[0].end[1] = AGENT_WINDOW_BYTES;
	begin();
	agent_put_welcome(&out, 1, &welcome);
	take(AGENT_WELCOME);
	CU_ASSERT_EQUAL(agent_get_welcome(&frame, &got, &e), 0);
	welcome.channels[0].end[1]++;
	begin();
	agent_put_welcome(&out, 1, &welcome);
	take(AGENT_WELCOME);
	CU_ASSERT_EQUAL(agent_get_welcome(&frame, &got, &e), -1);
	wire_store_u32((unsigned char *)out.data + AGENT_HEADER_BYTES + 4, 1U << 31);
	err_clear(&e);
	CU_ASSERT_EQUAL(agent_get_welcome(&frame, &got, &e), -1);
}

static uint32_t next_random(void)
{
	static uint32_t state = 1;

	state = state * 1664525U + 1013904223U;
	return state >> 8;
}

/* Every decoder over noise: no crash, no read out of bounds (the sanitizers watch). */
static void test_random_bytes(void)
{
	static char *pointers[AGENT_EXEC_POINTERS];
	char noise[256];

	for (int round = 0; round < 50000; round++) {
		struct agent_frame f = {.payload = noise};
		struct agent_welcome welcome;
		struct agent_exec spec;
		struct agent_exit end;
		struct agent_error error;
		struct agent_entry entry;
		struct agent_file_write part;
		struct agent_file_read want;
		uint64_t values[AGENT_RESULT_VALUES];
		uint32_t number;
		uint16_t rows;
		uint16_t cols;
		int sig;
		struct err e = ERR_INIT;

		f.head.length = next_random() % sizeof(noise);
		for (size_t i = 0; i < f.head.length; i++)
			noise[i] = next_random() % 3 == 0 ? (char)next_random() : 0;
		(void)agent_get_welcome(&f, &welcome, &e);
		(void)agent_get_exit(&f, &end, &e);
		(void)agent_get_error(&f, &error, &e);
		(void)agent_get_entry(&f, &entry, &e);
		(void)agent_get_file_write(&f, &part, &e);
		(void)agent_get_file_read(&f, &want, &e);
		(void)agent_get_result(&f, values, &e);
		(void)agent_get_reattach(&f, values, &e);
		(void)agent_get_started(&f, &number, &e);
		(void)agent_get_hello(&f, &number, &e);
		(void)agent_get_signal(&f, &sig, &e);
		(void)agent_get_resize(&f, &rows, &cols, &e);
		(void)agent_exec_parse(noise, f.head.length, pointers, &spec, &e);
		(void)agent_peek(noise, f.head.length, &f, &e);
	}
	CU_PASS("no crash");
}

static void test_no_memory(void)
{
	char program[] = "true";
	char *argv[] = {program, NULL};
	char *env[] = {NULL};
	struct agent_exec spec = {.argv = argv, .env = env, .cwd = "/"};
	bool passed = false;

	for (unsigned long n = 1; n < 100 && !passed; n++) {
		struct err e = ERR_INIT;
		int result;

		begin();
		mem_fail_at(n);
		result = agent_put_exec(&out, 1, 2, &spec, &e);
		passed = !mem_has_failed();
		mem_fail_at(0);
		CU_ASSERT_EQUAL(result == 0 && buf_ok(&out), passed);
	}
	CU_ASSERT_TRUE(passed);
}

static const struct test tests[] = {
    {"agentproto", "header", test_header},
    {"agentproto", "frame too long", test_frame_too_long},
    {"agentproto", "exec", test_exec},
    {"agentproto", "exec bounds", test_exec_bounds},
    {"agentproto", "exec with a terminal", test_exec_terminal},
    {"agentproto", "resize", test_resize},
    {"agentproto", "small requests", test_small_requests},
    {"agentproto", "files", test_files},
    {"agentproto", "paths", test_paths},
    {"agentproto", "answers", test_answers},
    {"agentproto", "hostile answers", test_hostile_answers},
    {"agentproto", "random bytes", test_random_bytes},
    {"agentproto", "no memory", test_no_memory},
};
TEST_MAIN(tests)
