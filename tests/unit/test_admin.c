/* test_admin: the query of administrators' lists. */
#include "handlers/runs/admin.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

static void time_is(const char *text, bool epoch, const char *want)
{
	char out[ADMIN_TIME_SIZE] = "";

	if (want == NULL) {
		if (admin_time(text, epoch, out) == 0)
			CU_assertImplementation(CU_FALSE, __LINE__, text, __FILE__, "", CU_FALSE);
		return;
	}
	CU_ASSERT_EQUAL(admin_time(text, epoch, out), 0);
	ASSERT_TEXT(out, want);
}

static void test_iso(void)
{
	time_is("2026-01-31", false, "2026-01-31 00:00:00.000000");
	time_is("2026-01-31T12:34", false, "2026-01-31 12:34:00.000000");
	time_is("2026-01-31T12:34Z", false, "2026-01-31 12:34:00.000000");
	time_is("2026-01-31T12:34:56", false, "2026-01-31 12:34:56.000000");
	time_is("2026-01-31 12:34:56z", false, "2026-01-31 12:34:56.000000");
	time_is("2026-01-31t12:34:56.5Z", false, "2026-01-31 12:34:56.500000");
	time_is("2026-01-31T12:34:56.123456Z", false, "2026-01-31 12:34:56.123456");
	time_is("2026-01-31T12:34:56.123456789Z", false, "2026-01-31 12:34:56.123456");
	time_is("2026-01-31T23:30:00-01:00", false, "2026-02-01 00:30:00.000000");
	time_is("2026-03-01T00:30:00+01:00", false, "2026-02-28 23:30:00.000000");
	/* the plus of a query is a blank */
	time_is("2026-03-01T00:30:00 01:00", false, "2026-02-28 23:30:00.000000");
	time_is("2026-03-01T00:30:00+0130", false, "2026-02-28 23:00:00.000000");
	time_is("2026-03-01T00:30:00+01", false, "2026-02-28 23:30:00.000000");
	time_is("2024-02-29", false, "2024-02-29 00:00:00.000000");
	time_is("2000-02-29", false, "2000-02-29 00:00:00.000000");
	time_is("1970-01-01T00:00:00Z", false, "1970-01-01 00:00:00.000000");
	time_is("9999-12-31T23:59:59.999999Z", false, "9999-12-31 23:59:59.000000");
	/* older than anything */
	time_is("0001-01-01", false, "1970-01-01 00:00:00.000000");
}

static void test_no_iso(void)
{
	static const char *const bad[] = {"",
					  "2026",
					  "2026-01",
					  "2026-1-31",
					  "2026-01-32",
					  "2026-13-01",
					  "2026-00-01",
					  "2026-01-00",
					  "0000-01-01",
					  "2025-02-29",
					  "1900-02-29",
					  "2026-04-31",
					  "2026-01-31T",
					  "2026-01-31T1",
					  "2026-01-31T12",
					  "2026-01-31T12:",
					  "2026-01-31T12:60",
					  "2026-01-31T24:00",
					  "2026-01-31T12:34:60",
					  "2026-01-31T12:34:",
					  "2026-01-31T12:34:56.",
					  "2026-01-31T12:34:56.1234567890123",
					  "2026-01-31T12:34:56ZZ",
					  "2026-01-31T12:34:56Z+01:00x",
					  "2026-01-31T12:34:56+",
					  "2026-01-31T12:34:56+1",
					  "2026-01-31T12:34:56+24:00",
					  "2026-01-31T12:34:56+01:60",
					  "2026-01-31T12:34:56+01:",
					  "2026-01-31x",
					  "-026-01-31",
					  "1700000000",
					  " 2026-01-31",
					  "now"};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		time_is(bad[i], false, NULL);
}

static void test_epoch(void)
{
	static const char *const bad[] = {"-1",   "1e9", "0x10", "1.",           "",
					  "1 ",   " 1",  ".5",   "253402300800", "9999999999999",
					  "1.2.3"};

	time_is("0", true, "1970-01-01 00:00:00.000000");
	time_is("1700000000", true, "2023-11-14 22:13:20.000000");
	time_is("1700000000.25", true, "2023-11-14 22:13:20.250000");
	time_is("253402300799", true, "9999-12-31 23:59:59.000000");
	time_is("2026-01-31", true, "2026-01-31 00:00:00.000000");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		time_is(bad[i], true, NULL);
}

static void test_tenant(void)
{
	struct http_request request = {.query = "tenant=b"};
	struct principal admin = {.tenant = "a", .role = ROLE_ADMIN};
	struct principal operator_ = {.tenant = "a", .role = ROLE_OPERATOR};
	struct admin_query q;

	admin_query_init(&q, &request);
	ASSERT_TEXT(admin_query_tenant(&q, &admin), "a");
	ASSERT_TEXT(admin_query_tenant(&q, &operator_), "b");
	request.query = "";
	CU_ASSERT_PTR_NULL(admin_query_tenant(&q, &operator_));
	admin_query_release(&q);
}

static int query_once(void *context, struct err *e)
{
	struct http_request request = {
	    .query = "limit=10&user_id=abcdefghij&started_at_from=2026-01-31&sort=asc"};
	struct http_response response;
	struct admin_page page;
	struct admin_query q;
	const char *user;
	const char *from;
	bool fits;

	(void)context;
	http_response_init(&response);
	admin_query_init(&q, &request);
	admin_query_page(&q, false, &page);
	user = admin_query_text(&q, "user_id", 64);
	from = admin_query_time(&q, "started_at_from", false);
	fits = admin_query_fits(&q, &response);
	if (fits) {
		CU_ASSERT_EQUAL(page.limit, 10);
		CU_ASSERT(page.ascending);
		ASSERT_TEXT(user, "abcdefghij");
		ASSERT_TEXT(from, "2026-01-31 00:00:00.000000");
	} else {
		/* memory is not the client's fault */
		CU_ASSERT(response.status == 503 || response.status == 500);
		(void)err_set(e, ERR_NOMEM, 0, "query");
	}
	admin_query_release(&q);
	http_response_release(&response);
	return fits ? 0 : -1;
}

static void test_faults(void)
{
	json_setup();
	fault_loop(query_once, NULL);
}

static const struct test tests[] = {
    {"admin", "ISO 8601", test_iso},  {"admin", "no ISO 8601", test_no_iso},
    {"admin", "epoch", test_epoch},   {"admin", "whose rows", test_tenant},
    {"admin", "faults", test_faults},
};

TEST_MAIN(tests)
