/* test_trace: the parts of a trace: written, put together, read back, and whatever else a column
 * may hold. */
#include "runners/core/trace.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

static struct trace_list list;

static void decode(const char *text)
{
	trace_decode(text, strlen(text), &list);
}

/* "name at step program ..." of the steps. */
static void list_is(const char *text, const char *wanted)
{
	char got[2048] = "";
	size_t used = 0;

	decode(text);
	for (size_t i = 0; i < list.count; i++) {
		const struct trace_step *s = &list.steps[i];

		used += (size_t)snprintf(got + used, sizeof(got) - used, "%s%s%s %lld %lld",
					 i == 0 ? "" : ", ", s->placed ? "" : "~",
					 trace_name(s->point), (long long)s->at_us,
					 s->has_step ? (long long)s->step_us : -1LL);
	}
	ASSERT_TEXT(got, wanted);
}

static void test_there_and_back(void)
{
	struct trace t;
	char part[TRACE_PART_BYTES];

	trace_init(&t);
	CU_ASSERT_FALSE(trace_encode(&t, TRACE_ACCEPTED, TRACE_RENDERED, part));
	ASSERT_TEXT(part, "");
	trace_mark_at(&t, TRACE_ACCEPTED, 5000);
	trace_mark_at(&t, TRACE_LOCKED, 5200);
	trace_mark_at(&t, TRACE_READ, 5010);
	trace_mark_at(&t, TRACE_READ, 9999);
	trace_mark_at(&t, TRACE_COMMITTED, 7000);
	CU_ASSERT(trace_encode(&t, TRACE_ACCEPTED, TRACE_LOCKED, part));
	ASSERT_TEXT(part + 8, "@5000a0b10f200;");
	CU_ASSERT(trace_part_ok(part));
	list_is(part, "accepted 0 0, read 10 10, locked 200 190");
	CU_ASSERT(trace_encode(&t, TRACE_COMMITTED, TRACE_ANSWERED, part));
	ASSERT_TEXT(part + 8, "@7000g0;");
	/* a point need not come in its usual order */
	trace_init(&t);
	trace_mark_at(&t, TRACE_END_BEGUN, 900);
	trace_mark_at(&t, TRACE_BOX_DESTROYED, 800);
	CU_ASSERT(trace_encode(&t, TRACE_NOTICED, TRACE_BOX_DESTROYED, part));
	list_is(part, "box_destroyed 0 0, end_begun 100 100");
	trace_mark(NULL, TRACE_READ);
	trace_mark(&t, TRACE_READ);
	CU_ASSERT(t.at_us[TRACE_READ] > 0);
}

static void test_every_point(void)
{
	struct trace t;
	char part[TRACE_PART_BYTES];
	char text[TRACE_COLUMN_BYTES];
	size_t used = 0;

	trace_init(&t);
	for (enum trace_point i = 0; i < TRACE__MAX; i++)
		trace_mark_at(&t, i, INT64_C(1000000000000) + i * 100000);
	/* the parts that programs write, at their longest */
	CU_ASSERT(trace_encode(&t, TRACE_ACCEPTED, TRACE_ANSWERED, part));
	used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", part);
	CU_ASSERT(trace_encode(&t, TRACE_NOTICED, TRACE_BOX_DESTROYED, part));
	used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", part);
	CU_ASSERT(trace_encode(&t, TRACE_PARKED, TRACE_RENDERED, part));
	used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", part);
	decode(text);
	CU_ASSERT_EQUAL(list.count, TRACE__MAX);
	for (size_t i = 0; i < list.count; i++) {
		CU_ASSERT_EQUAL(list.steps[i].point, i);
		CU_ASSERT_EQUAL(list.steps[i].at_us, (int64_t)i * 100000);
		CU_ASSERT(trace_name(list.steps[i].point)[0] != '\0');
		CU_ASSERT(str_starts(trace_program(list.steps[i].point), "cordon-"));
		CU_ASSERT_PTR_EQUAL(trace_find(&list, (enum trace_point)i), &list.steps[i]);
	}
	/* what does not fit is left out */
	for (enum trace_point i = 1; i < TRACE__MAX; i++)
		t.at_us[i] = INT64_C(999999999999999999);
	CU_ASSERT(trace_encode(&t, TRACE_ACCEPTED, TRACE_RENDERED, part));
	CU_ASSERT(strlen(part) < TRACE_PART_BYTES);
	CU_ASSERT(trace_part_ok(part));
	decode(part);
	CU_ASSERT(list.count > 5 && list.count < TRACE__MAX);
}

static void test_order(void)
{
	list_is("00000001@90j15k0l30;00000001@100a0;",
		"accepted 0 0, claim_begun 0 0, noticed 5 5, claimed 20 15");
	/* equal times stand in the order of the path */
	list_is("00000001@100x0w0a0;", "accepted 0 0, end_begun 0 0, end_committed 0 0");
	/* the first of two counts */
	list_is("00000001@100a0;00000001@50a0;00000001@150A0;", "accepted 0 0, parked 50 50");
	/* another host's times have no place, only distances */
	list_is("00000002@7j0k5;00000001@100a0b9;00000003@1A0;",
		"accepted 0 0, read 9 9, ~noticed 0 -1, ~claim_begun 5 5, ~parked 0 -1");
	CU_ASSERT_PTR_NULL(trace_find(&list, TRACE_CLAIMED));
}

static void test_broken(void)
{
	static const char *const nothing[] = {
	    "",
	    ";",
	    ";;;;",
	    "@",
	    "00000001",
	    "00000001@",
	    "00000001@;",
	    "00000001@1",
	    "00000001@1;",
	    "00000001@a0;",
	    "0000000g@1a0;",
	    "00000001 1a0;",
	    "00000001@-1a0;",
	    "00000001@1a;",
	    "00000001@1a-5;",
	    "00000001@1Z5;",
	    "00000001@1a0",
	    "1@1a0;",
	};
	char many[4096] = "";
	static const char nul[] = "00000001@1a0;\0000000001@1b0;00000001@1c0;";

	for (size_t i = 0; i < ARRAY_LEN(nothing); i++)
		list_is(nothing[i], "");
	list_is("nonsense;00000001@1a0;more", "accepted 0 0");
	/* a column that was cut: the last number may be a part of one */
	list_is("00000001@1a0b20c3", "accepted 0 0, read 20 20");
	/* a later version's letter */
	list_is("00000001@1a0Z7b9;", "accepted 0 0, read 9 9");
	list_is("00000001@999999999999999999a0b999999999999999999;",
		"accepted 0 0, read 999999999999999999 999999999999999999");
	list_is("00000001@1a0b99999999999999999999999c5;",
		"accepted 0 0, authenticated 5 5, read 999999999999999999 999999999999999994");
	trace_decode(nul, sizeof(nul) - 1, &list);
	CU_ASSERT_EQUAL(list.count, 2);
	/* more clocks and more parts than there can be */
	for (int i = 0; i < 100; i++)
		(void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "%08x@%da0b1c2d3;",
			       (unsigned int)i, i);
	decode(many);
	CU_ASSERT_EQUAL(list.count, 4);
}

static void test_part_ok(void)
{
	char text[TRACE_PART_BYTES + 1];

	CU_ASSERT(trace_part_ok("00000001@1a0;"));
	CU_ASSERT_FALSE(trace_part_ok(""));
	CU_ASSERT_FALSE(trace_part_ok("00000001@1a0"));
	CU_ASSERT_FALSE(trace_part_ok("00000001@1 a0;"));
	CU_ASSERT_FALSE(trace_part_ok("'\x80;"));
	memset(text, ';', sizeof(text));
	text[TRACE_PART_BYTES] = '\0';
	CU_ASSERT_FALSE(trace_part_ok(text));
	text[TRACE_PART_BYTES - 1] = '\0';
	CU_ASSERT(trace_part_ok(text));
}

static const struct test tests[] = {
    {"trace", "there and back", test_there_and_back}, {"trace", "every point", test_every_point},
    {"trace", "order and clocks", test_order},        {"trace", "broken texts", test_broken},
    {"trace", "what may be kept", test_part_ok},
};

TEST_MAIN(tests)
