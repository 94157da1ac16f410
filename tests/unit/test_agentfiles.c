/* test_agentfiles.c: requests about names and their answer: round trips, refusals, random bytes. */
#include "tests/lib/test.h"

#include "runners/base/agentfiles.h"
#include "runners/base/str.h"
#include "runners/base/wire.h"

#include <CUnit/CUnit.h>

static struct buf out;
static struct agent_frame frame;

static void begin(void)
{
	buf_release(&out);
	buf_init(&out, (size_t)1 << 20);
}

static void take(uint16_t type)
{
	struct err e = ERR_INIT;

	CU_ASSERT_TRUE_FATAL(buf_ok(&out));
	CU_ASSERT_EQUAL_FATAL(agent_peek(out.data, out.len, &frame, &e), 1);
	CU_ASSERT_EQUAL(frame.head.type, type);
	CU_ASSERT_EQUAL(frame.head.length + AGENT_HEADER_BYTES, out.len);
}

static struct agent_name_request request(uint16_t type, uint16_t flags, const char *path,
					 const char *to)
{
	struct agent_name_request want = {.type = type, .flags = flags, .uid = 1, .gid = 65534};

	CU_ASSERT_EQUAL(str_copy(want.path, sizeof(want.path), path), 0);
	CU_ASSERT_EQUAL(str_copy(want.to, sizeof(want.to), to), 0);
	return want;
}

static void test_round_trips(void)
{
	struct agent_name_request wants[] = {
	    request(AGENT_LIST, 0, "", ""),
	    request(AGENT_LIST, 0, "a/-rf\n\377", ""),
	    request(AGENT_STAT, 0, "", ""),
	    request(AGENT_STAT, 0, "a/b", ""),
	    request(AGENT_REMOVE, 0, "a", ""),
	    request(AGENT_REMOVE, AGENT_F_RECURSIVE, "", ""),
	    request(AGENT_REMOVE, AGENT_F_RECURSIVE, "-rf", ""),
	    request(AGENT_MKDIR, AGENT_F_PARENTS, "a/b/c", ""),
	    request(AGENT_RENAME, 0, "a", "b/c"),
	};

	wants[1].limit = UINT64_MAX;
	wants[7].mode = 0777;
	for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
		struct agent_name_request got;
		struct err e = ERR_INIT;
		uint32_t length;

		begin();
		CU_ASSERT_EQUAL(agent_put_name_request(&out, 3, 4, &wants[i], &e), 0);
		take(wants[i].type);
		CU_ASSERT_EQUAL(frame.head.channel, 4);
		CU_ASSERT_EQUAL(agent_get_name_request(&frame, &got, &e), 0);
		CU_ASSERT_EQUAL(memcmp(&got, &wants[i], sizeof(got)), 0);
		/* any cut and any byte more is refused */
		length = frame.head.length;
		for (frame.head.length = 0; frame.head.length < length; frame.head.length++) {
			err_clear(&e);
			CU_ASSERT_EQUAL(agent_get_name_request(&frame, &got, &e), -1);
			CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
		}
		buf_add(&out, "x", 1);
		frame.payload = out.data + AGENT_HEADER_BYTES;
		frame.head.length = length + 1;
		CU_ASSERT_EQUAL(agent_get_name_request(&frame, &got, &e), -1);
	}
}

static void refuse(const struct agent_name_request *want)
{
	struct err e = ERR_INIT;

	begin();
	CU_ASSERT_EQUAL(agent_put_name_request(&out, 3, 4, want, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
	CU_ASSERT_EQUAL(out.len, 0);
}

static void test_refused_by_the_sender(void)
{
	struct agent_name_request want;

	want = request(AGENT_REMOVE, 0, "", "");
	refuse(&want);
	want = request(AGENT_MKDIR, AGENT_F_PARENTS, "", "");
	refuse(&want);
	want = request(AGENT_RENAME, 0, "a", "");
	refuse(&want);
	want = request(AGENT_RENAME, 0, "", "a");
	refuse(&want);
	want = request(AGENT_RENAME, 0, "a", "../a");
	refuse(&want);
	want = request(AGENT_STAT, 0, "../a", "");
	refuse(&want);
	want = request(AGENT_LIST, 0, "/", "");
	refuse(&want);
	want = request(AGENT_LIST, 0, ".", "");
	refuse(&want);
	want = request(AGENT_LIST, AGENT_F_RECURSIVE, "a", "");
	refuse(&want);
	want = request(AGENT_REMOVE, AGENT_F_PARENTS, "a", "");
	refuse(&want);
	want = request(AGENT_MKDIR, AGENT_F_RECURSIVE, "a", "");
	refuse(&want);
	want = request(AGENT_STAT, AGENT_F_MORE, "a", "");
	refuse(&want);
	want = request(AGENT_PING, 0, "a", "");
	refuse(&want);
	want = request(AGENT_STAT, 0, "a", "");
	want.uid = 65535;
	refuse(&want);
	want.uid = 0;
	want.gid = UINT32_MAX;
	refuse(&want);
	want = request(AGENT_MKDIR, 0, "a", "");
	want.mode = 01000;
	refuse(&want);
}

/* What a sender of its own would put on the wire. */
static int get_raw(uint16_t type, uint16_t flags, const void *path, size_t length)
{
	struct agent_header head = {.type = type, .flags = flags};
	struct agent_name_request got;
	struct buf raw;
	struct err e = ERR_INIT;

	buf_init(&raw, 8192);
	wire_put_u32(&raw, 1);
	wire_put_u32(&raw, 1);
	wire_put_bytes(&raw, path, length);
	begin();
	agent_put(&out, &head, raw.data, raw.len);
	buf_release(&raw);
	take(type);
	return agent_get_name_request(&frame, &got, &e) == 0 ? 0 : (int)e.code;
}

static void test_refused_by_the_agent(void)
{
	static char longest[LIMIT_PATH_BYTES + 1];

	memset(longest, 'a', sizeof(longest));
	CU_ASSERT_EQUAL(get_raw(AGENT_STAT, 0, longest, LIMIT_PATH_BYTES), 0);
	CU_ASSERT_EQUAL(get_raw(AGENT_STAT, 0, longest, LIMIT_PATH_BYTES + 1), ERR_INVALID);
	CU_ASSERT_EQUAL(get_raw(AGENT_STAT, 0, "a\0b", 3), ERR_INVALID);
	CU_ASSERT_EQUAL(get_raw(AGENT_STAT, 0, "\0", 1), ERR_INVALID);
	CU_ASSERT_EQUAL(get_raw(AGENT_STAT, 0, "a/../b", 6), ERR_INVALID);
	CU_ASSERT_EQUAL(get_raw(AGENT_STAT, 0, "/etc", 4), ERR_INVALID);
	CU_ASSERT_EQUAL(get_raw(AGENT_STAT, AGENT_F_RECURSIVE, "a", 1), ERR_INVALID);
	CU_ASSERT_EQUAL(get_raw(AGENT_REMOVE, 0, "", 0), ERR_INVALID);
	CU_ASSERT_EQUAL(get_raw(AGENT_REMOVE, AGENT_F_RECURSIVE, "", 0), 0);
	CU_ASSERT_EQUAL(get_raw(AGENT_REMOVE, AGENT_F_RECURSIVE | AGENT_F_ALL, "", 0), ERR_INVALID);
	CU_ASSERT_EQUAL(get_raw(AGENT_RENAME, 0, "a", 1), ERR_PROTOCOL);
	CU_ASSERT_EQUAL(get_raw(AGENT_MKDIR, 0, "a", 1), ERR_PROTOCOL);
}

static int get_info(const struct agent_info *info)
{
	static const struct agent_header asked = {.type = AGENT_LIST, .client = 1, .channel = 2};
	struct agent_info got;
	struct err e = ERR_INIT;

	begin();
	agent_put_info(&out, &asked, info);
	if (!buf_ok(&out))
		return -2;
	take(AGENT_INFO);
	if (agent_get_info(&frame, &got, &e) != 0) {
		CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
		return -1;
	}
	CU_ASSERT_EQUAL(got.name_length, info->name_length);
	CU_ASSERT_EQUAL(memcmp(got.name, info->name, info->name_length), 0);
	got.name = info->name;
	CU_ASSERT_EQUAL(memcmp(&got, info, sizeof(got)), 0);
	for (uint32_t i = frame.head.length; i-- > 0;) {
		frame.head.length = i;
		CU_ASSERT_EQUAL(agent_get_info(&frame, &got, &e), -1);
	}
	return 0;
}

static void test_info(void)
{
	static char name[AGENT_NAME_BYTES + 1];
	struct agent_info info;

	memset(&info, 0, sizeof(info)); /* padding too: compared whole */
	memset(name, 'n', sizeof(name));
	info.name = name;
	info.name_length = AGENT_NAME_BYTES;
	info.kind = AGENT_KIND_DIRECTORY;
	info.mode = 07777;
	info.uid = 1;
	info.gid = 2;
	info.links = 3;
	info.inode = UINT64_MAX;
	info.size = INT64_MAX;
	info.allocated = INT64_MAX;
	info.mtime_us = INT64_MIN;
	info.ctime_us = -1;
	info.atime_us = INT64_MAX;
	CU_ASSERT_EQUAL(get_info(&info), 0);
	info.name_length++;
	CU_ASSERT_EQUAL(get_info(&info), -2);
	info.name_length = 0;
	CU_ASSERT_EQUAL(get_info(&info), 0);
	info.name_length = 1;
	info.mode++;
	CU_ASSERT_EQUAL(get_info(&info), -1);
	info.mode = 0;
	info.size++;
	CU_ASSERT_EQUAL(get_info(&info), -1);
	info.size = 0;
	info.allocated++;
	CU_ASSERT_EQUAL(get_info(&info), -1);
	info.allocated = 0;
	info.kind = AGENT_KIND__MAX;
	CU_ASSERT_EQUAL(get_info(&info), -1);
	info.kind = AGENT_KIND_UNREADABLE;
	CU_ASSERT_EQUAL(get_info(&info), 0);
	info.name = "a/b";
	info.name_length = 3;
	CU_ASSERT_EQUAL(get_info(&info), -1);
	info.name = "..";
	info.name_length = 2;
	CU_ASSERT_EQUAL(get_info(&info), -1);
	info.name = "a\0b";
	info.name_length = 3;
	CU_ASSERT_EQUAL(get_info(&info), -1);
}

static uint32_t next_random(void)
{
	static uint32_t state = 7;

	state = state * 1664525U + 1013904223U;
	return state >> 8;
}

static void test_random_bytes(void)
{
	char noise[256];

	for (int round = 0; round < 50000; round++) {
		struct agent_frame f = {.payload = noise};
		struct agent_name_request want;
		struct agent_info info;
		struct err e = ERR_INIT;

		f.head.type = (uint16_t)(AGENT_LIST - 1 + next_random() % 7);
		f.head.flags = (uint16_t)(next_random() % 3 == 0 ? next_random() : 0);
		f.head.length = next_random() % sizeof(noise);
		for (size_t i = 0; i < f.head.length; i++)
			noise[i] = next_random() % 3 == 0 ? (char)next_random() : 0;
		(void)agent_get_name_request(&f, &want, &e);
		(void)agent_get_info(&f, &info, &e);
	}
	CU_PASS("no crash");
}

static const struct test tests[] = {
    {"agentfiles", "round trips", test_round_trips},
    {"agentfiles", "refused by the sender", test_refused_by_the_sender},
    {"agentfiles", "refused by the agent", test_refused_by_the_agent},
    {"agentfiles", "info", test_info},
    {"agentfiles", "random bytes", test_random_bytes},
};
TEST_MAIN(tests)
