/* test_boxproto.c: records of cordon-box and the matcher of capture patterns. */
#include "tests/lib/test.h"

#include "runners/base/boxproto.h"
#include "runners/base/clock.h"
#include "runners/base/glob.h"

#include <CUnit/CUnit.h>

static struct box_request request;

static int check(size_t length)
{
	char data[sizeof(request) + 8] = {0};
	struct box_request got;
	struct err e = ERR_INIT;
	uint64_t tag;
	uint32_t verb;
	int result;

	memcpy(data, &request, sizeof(request));
	result = box_request_check(data, length, &got, &tag, &verb, &e);
	if (result != 0)
		CU_ASSERT_TRUE(e.code != ERR_NONE && e.text[0] != '\0');
	return result;
}

static void standard(void)
{
	memset(&request, 0, sizeof(request));
	request.version = BOX_VERSION;
	request.verb = BOX_CREATE;
	request.tag = 1;
	request.slot = BOX_NO_SLOT;
	(void)snprintf(request.run_id, sizeof(request.run_id), "0198-abc");
	(void)snprintf(request.image, sizeof(request.image), "host");
}

static void test_requests(void)
{
	standard();
	CU_ASSERT_EQUAL(check(sizeof(request)), 0);
	CU_ASSERT_EQUAL(check(sizeof(request) - 1), -1);
	CU_ASSERT_EQUAL(check(sizeof(request) + 1), -1);
	CU_ASSERT_EQUAL(check(0), -1);
	request.version++;
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	standard();
	request.verb = 0;
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	request.verb = BOX_VERB__MAX;
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	standard();
	request.tag = 0;
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	standard();
	request.deadline_ms = BOX_DEADLINE_MAX_MS + 1;
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	standard();
	memset(request.run_id, 'a', sizeof(request.run_id));
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	standard();
	memset(request.image, 'a', sizeof(request.image));
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	standard();
	(void)snprintf(request.run_id, sizeof(request.run_id), "../x");
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	standard();
	request.run_id[0] = '\0';
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	request.verb = BOX_LIST;
	CU_ASSERT_EQUAL(check(sizeof(request)), 0);
	standard();
	request.verb = BOX_DESTROY;
	request.slot = BOX_MAX_SLOTS;
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	request.slot = 0;
	CU_ASSERT_EQUAL(check(sizeof(request)), 0);
}

static void test_workspace_requests(void)
{
	standard();
	request.flags = BOX_FRESH_NET;
	request.lifetime_ms = BOX_LIFETIME_MAX_MS;
	(void)snprintf(request.workspace, sizeof(request.workspace), "ws-1");
	CU_ASSERT_EQUAL(check(sizeof(request)), 0);
	request.flags = BOX_WITH_COPIES << 1;
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	request.flags = 0;
	request.lifetime_ms = BOX_LIFETIME_MAX_MS + 1;
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	request.lifetime_ms = 0;
	request.verb = BOX_MAINTAIN; /* for ever */
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	request.lifetime_ms = 1;
	CU_ASSERT_EQUAL(check(sizeof(request)), 0);
	request.workspace[0] = '\0';
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	(void)snprintf(request.workspace, sizeof(request.workspace), ".templates");
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	(void)snprintf(request.workspace, sizeof(request.workspace), "a/b");
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	memset(request.workspace, 'a', sizeof(request.workspace));
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	standard();
	request.run_id[0] = '\0';
	for (uint32_t verb = BOX_WORKSPACE_MAKE; verb <= BOX_WORKSPACE_INFO; verb++) {
		request.verb = verb;
		request.workspace[0] = '\0';
		CU_ASSERT_EQUAL(check(sizeof(request)), -1);
		(void)snprintf(request.workspace, sizeof(request.workspace), "ws-1");
		CU_ASSERT_EQUAL(check(sizeof(request)), 0);
	}
}

static void test_copies(void)
{
	static const char *const wrong[] = {"", "ws-1", ".templates", "a/b", "../x"};

	standard();
	request.run_id[0] = '\0';
	request.verb = BOX_WORKSPACE_COPY;
	(void)snprintf(request.workspace, sizeof(request.workspace), "ws-1");
	(void)snprintf(request.source, sizeof(request.source), "ws-1.snap-0");
	CU_ASSERT_EQUAL(check(sizeof(request)), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		(void)snprintf(request.source, sizeof(request.source), "%s", wrong[i]);
		CU_ASSERT_EQUAL(check(sizeof(request)), -1);
	}
	memset(request.source, 'a', sizeof(request.source));
	CU_ASSERT_EQUAL(check(sizeof(request)), -1);
}

static void test_replies(void)
{
	struct box_reply reply = {.version = BOX_VERSION, .record = BOX_RECORD_REPLY};
	struct box_reply got;
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(box_reply_check(&reply, sizeof(reply), &got, &e), 0);
	CU_ASSERT_EQUAL(box_reply_check(&reply, sizeof(reply) - 1, &got, &e), -1);
	reply.code = BOX_CODE__MAX;
	err_clear(&e);
	CU_ASSERT_EQUAL(box_reply_check(&reply, sizeof(reply), &got, &e), -1);
	reply.code = 0;
	memset(reply.text, 'x', sizeof(reply.text));
	err_clear(&e);
	CU_ASSERT_EQUAL(box_reply_check(&reply, sizeof(reply), &got, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_PROTOCOL);
}

static void test_random_records(void)
{
	static unsigned char noise[sizeof(struct box_reply)];
	uint32_t state = 7;

	for (int round = 0; round < 20000; round++) {
		struct box_request got;
		struct box_reply reply;
		struct err e = ERR_INIT;
		uint64_t tag;
		uint32_t verb;

		for (size_t i = 0; i < sizeof(noise); i++) {
			state = state * 1664525U + 1013904223U;
			noise[i] = (unsigned char)(state >> 24);
		}
		noise[0] = BOX_VERSION;
		noise[1] = noise[2] = noise[3] = 0;
		(void)box_request_check(noise, sizeof(got), &got, &tag, &verb, &e);
		(void)box_reply_check(noise, sizeof(reply), &reply, &e);
	}
	CU_PASS("no crash");
}

static bool match(const char *pattern, const char *text)
{
	return glob_match(pattern, strlen(pattern), text, strlen(text),
			  &(uint64_t){UINT64_C(1) << 40});
}

static void test_glob(void)
{
	CU_ASSERT_TRUE(match("*.csv", "a/b/c.csv"));
	CU_ASSERT_TRUE(match("out/*", "out/a/b"));
	CU_ASSERT_TRUE(match("**/x", "a/b/x"));
	CU_ASSERT_TRUE(match("a?b", "a/b"));
	CU_ASSERT_TRUE(match("*", ""));
	CU_ASSERT_TRUE(match("", ""));
	CU_ASSERT_FALSE(match("", "a"));
	CU_ASSERT_FALSE(match("?", ""));
	CU_ASSERT_FALSE(match("*.CSV", "a.csv"));
	CU_ASSERT_TRUE(match("[a-c]x", "bx"));
	CU_ASSERT_FALSE(match("[!a-c]x", "bx"));
	CU_ASSERT_TRUE(match("[!a-c]x", "dx"));
	CU_ASSERT_TRUE(match("[]]", "]"));
	CU_ASSERT_TRUE(match("[!]]", "a"));
	CU_ASSERT_TRUE(match("[-a]", "-"));
	CU_ASSERT_TRUE(match("[a-]", "-"));
	CU_ASSERT_TRUE(match("a[b", "a[b"));
	CU_ASSERT_TRUE(match("[", "["));
	CU_ASSERT_TRUE(match("a\\*", "a\\b"));
	CU_ASSERT_TRUE(match("caf?", "caf\303\251"));
	CU_ASSERT_TRUE(match("caf[\303\251]", "caf\303\251"));
	CU_ASSERT_TRUE(match("caf[\303\240-\303\277]", "caf\303\251"));
	CU_ASSERT_TRUE(match("x??", "x\377\376"));
	CU_ASSERT_FALSE(match("x?", "x\377\376"));
	CU_ASSERT_TRUE(match("*a*b*c", "xxaxxbxxc"));
	CU_ASSERT_FALSE(match("*a*b*c", "xxaxxbxxd"));
}

static void test_glob_is_bounded(void)
{
	static char pattern[1024];
	static char text[1024];
	int64_t start = clock_monotonic_us();

	memset(text, 'a', sizeof(text));
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = i % 2 == 0 ? '*' : 'a';
	pattern[sizeof(pattern) - 1] = 'b';
	CU_ASSERT_FALSE(glob_match(pattern, sizeof(pattern), text, sizeof(text),
				   &(uint64_t){UINT64_C(1) << 40}));
	memset(pattern, '[', sizeof(pattern));
	memset(text, '[', sizeof(text));
	pattern[0] = '*';
	pattern[sizeof(pattern) - 1] = 'b';
	CU_ASSERT_FALSE(glob_match(pattern, sizeof(pattern), text, sizeof(text),
				   &(uint64_t){UINT64_C(1) << 40}));
	CU_ASSERT_TRUE(clock_monotonic_us() - start < CLOCK_US_PER_S);
}

static const struct test tests[] = {
    {"boxproto", "requests", test_requests},
    {"boxproto", "workspaces", test_workspace_requests},
    {"boxproto", "copies", test_copies},
    {"boxproto", "replies", test_replies},
    {"boxproto", "random records", test_random_records},
    {"glob", "glob", test_glob},
    {"glob", "glob is bounded", test_glob_is_bounded},
};
TEST_MAIN(tests)
