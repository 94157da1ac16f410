/* test_trace: where the time of a run went, as the route tells it, and the tails that the gate
 * writes. In process, against the private stack's MariaDB. */
#include "runners/gate/tails.h"
#include "runners/supervisor/retention.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/callrig.h"

static struct answer answer;

static json_t *trace_of(const char *key, const char *id)
{
	char path[200];

	answer_release(&answer);
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/trace", id);
	get(key, path, &answer);
	CU_ASSERT_EQUAL_FATAL(answer.response.status, 200);
	ASSERT_TEXT(member(&answer, "run_id"), id);
	ASSERT_TEXT(member(&answer, "request_id"), "req-test");
	return json_object_get(answer.body, "points");
}

/* "name at step" of every point. */
static void points_are(const char *id, const char *wanted)
{
	char got[1024] = "";
	size_t used = 0;
	json_t *points = trace_of(alice, id);

	for (size_t i = 0; i < json_array_size(points); i++) {
		const json_t *p = json_array_get(points, i);
		const json_t *at = json_object_get(p, "at_us");
		const json_t *step = json_object_get(p, "step_us");

		used += (size_t)snprintf(
		    got + used, sizeof(got) - used, "%s%s %lld %lld", i == 0 ? "" : ", ",
		    json_text(json_object_get(p, "name")),
		    json_is_null(at) ? -1LL : (long long)json_integer_value(at),
		    json_is_null(step) ? -1LL : (long long)json_integer_value(step));
	}
	ASSERT_TEXT(got, wanted);
}

static bool is_null(const char *name)
{
	return json_is_null(json_object_get(answer.body, name));
}

static int64_t number(const char *name)
{
	return json_integer_value(json_object_get(answer.body, name));
}

static void test_queued(void)
{
	static const char *const names[] = {"accepted", "authenticated", "admitted", "begun"};
	char id[IDENT_UUID_SIZE];
	json_t *points;
	int64_t sum = 0;

	make_run(alice, id);
	/* what is told to the gate later belongs to this run */
	ASSERT_TEXT(api.context.traced_run, id);
	CU_ASSERT(api.context.trace.at_us[TRACE_COMMITTED] != 0);
	points = trace_of(alice, id);
	CU_ASSERT_EQUAL_FATAL(json_array_size(points), ARRAY_LEN(names));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const json_t *p = json_array_get(points, i);

		ASSERT_TEXT(json_text(json_object_get(p, "name")), names[i]);
		ASSERT_TEXT(json_text(json_object_get(p, "program")), "cordon-fcgi");
		CU_ASSERT(json_integer_value(json_object_get(p, "step_us")) >= 0);
		sum += json_integer_value(json_object_get(p, "step_us"));
	}
	CU_ASSERT_EQUAL(number("total_us"), sum);
	CU_ASSERT(is_null("held"));
	CU_ASSERT(is_null("warm"));
	CU_ASSERT(is_null("answer_us"));
	ASSERT_TEXT(member(&answer, "phase"), "queued");
	/* who may see the run, nobody else; test_handlers_read has the strangers */
	(void)trace_of(admin, id);
	(void)trace_of(operator_, id);
	/* a reader is not traced */
	ASSERT_TEXT(api.context.traced_run, "");
}

static void test_whole(void)
{
	char id[IDENT_UUID_SIZE];

	make_run(alice, id);
	api_sql(api.db,
		"UPDATE run SET trace = '00000001@100a0b5;00000001@200k0n30w50;' WHERE id = '%s'",
		id);
	api_sql(
	    api.db,
	    "INSERT INTO run_trace VALUES ('%s', '00000001@110g0h40;00000001@300x0;00000001@310D"
	    "0F20;')",
	    id);
	points_are(id, "accepted 0 0, read 5 5, committed 10 5, held 50 40, claim_begun 100 50, "
		       "box_ready 130 30, end_begun 150 20, end_committed 200 50, render_begun 210 "
		       "10, answered 230 20");
	CU_ASSERT(json_is_true(json_object_get(answer.body, "held")));
	CU_ASSERT(json_is_true(json_object_get(answer.body, "warm")));
	CU_ASSERT_EQUAL(number("answer_us"), 230);
	CU_ASSERT_EQUAL(number("total_us"), 230);
	api_sql(api.db, "UPDATE run_trace SET points = '00000001@110g0i9;' WHERE run_id = '%s'",
		id);
	api_sql(api.db, "UPDATE run SET trace = '00000001@100a0;00000001@200o0;' WHERE id = '%s'",
		id);
	points_are(id, "accepted 0 0, committed 10 10, answered 19 9, box_ready 100 81");
	CU_ASSERT(json_is_false(json_object_get(answer.body, "held")));
	CU_ASSERT(json_is_false(json_object_get(answer.body, "warm")));
	CU_ASSERT_EQUAL(number("answer_us"), 19);
	CU_ASSERT_EQUAL(number("total_us"), 100);
	/* a runner on another host: distances only */
	api_sql(api.db, "UPDATE run SET trace = '00000001@100a0;00000002@7k0l4;' WHERE id = '%s'",
		id);
	points_are(id,
		   "accepted 0 0, committed 10 10, answered 19 9, claim_begun -1 -1, claimed -1 "
		   "4");
	CU_ASSERT_EQUAL(number("total_us"), 19);
}

static void test_broken(void)
{
	char id[IDENT_UUID_SIZE];

	make_run(alice, id);
	api_sql(api.db, "UPDATE run SET trace = NULL WHERE id = '%s'", id);
	points_are(id, "");
	CU_ASSERT(is_null("total_us"));
	api_sql(api.db, "UPDATE run SET trace = REPEAT(x'00ff27', 256) WHERE id = '%s'", id);
	api_sql(api.db, "INSERT INTO run_trace VALUES ('%s', REPEAT(';@\"', 256))", id);
	points_are(id, "");
	/* without the accept there is nothing to count from */
	api_sql(api.db, "UPDATE run SET trace = '00000001@5k0l9;' WHERE id = '%s'", id);
	points_are(id, "claim_begun 0 0, claimed 9 9");
	CU_ASSERT(is_null("total_us"));
}

static void test_tails(void)
{
	struct tails tails = {0};
	struct err e = ERR_INIT;
	char ids[40][IDENT_UUID_SIZE];
	char part[TRACE_PART_BYTES];

	CU_ASSERT_EQUAL(tails_write(&tails, api.db, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		make_run(alice, ids[i]);
		api_sql(api.db, "UPDATE run SET trace = '00000001@1a0;' WHERE id = '%s'", ids[i]);
	}
	/* more runs than a batch has rows, several parts each */
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
			(void)snprintf(part, sizeof(part), "00000001@%d%c0;", 10 + round,
				       "ghx"[round]);
			tails_add(&tails, ids[i], part);
		}
	CU_ASSERT_EQUAL(tails_write(&tails, api.db, &e), 0);
	tails_release(&tails);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		points_are(ids[i], "accepted 0 0, committed 9 9, held 10 1, end_committed 11 1");
	/* a later second adds to the row */
	tails_add(&tails, ids[0], "00000001@20y0;");
	CU_ASSERT_EQUAL(tails_write(&tails, api.db, &e), 0);
	tails_release(&tails);
	points_are(
	    ids[0],
	    "accepted 0 0, committed 9 9, held 10 1, end_committed 11 1, box_destroyed 19 8");
	points_are(ids[1], "accepted 0 0, committed 9 9, held 10 1, end_committed 11 1");
	/* a row takes what it has room for */
	memset(part, '1', sizeof(part) - 2);
	memcpy(part + sizeof(part) - 2, ";", 2);
	for (int i = 0; i < 9; i++)
		tails_add(&tails, ids[2], part);
	CU_ASSERT_EQUAL(tails_write(&tails, api.db, &e), 0);
	CU_ASSERT_EQUAL(tails_write(&tails, api.db, &e), 0);
	tails_release(&tails);
	CU_ASSERT_EQUAL(
	    api_number(api.db, "SELECT LENGTH(points) FROM run_trace WHERE run_id = '%s'", ids[2]),
	    TRACE_COLUMN_BYTES);
	points_are(ids[2], "accepted 0 0, committed 9 9, held 10 1, end_committed 11 1");
	/* the list is bounded, and what is no id or no part is not taken */
	for (int i = 0; i < 10000; i++)
		tails_add(&tails, ids[3], "00000001@30A0;");
	CU_ASSERT_EQUAL(tails.count, 8192);
	tails_release(&tails);
	memset(part, 'x', sizeof(part));
	part[sizeof(part) - 1] = '\0';
	tails_add(&tails, "an id that is longer than any that is an id", "a;");
	CU_ASSERT_EQUAL(tails.count, 0);
	tails_release(&tails);
	CU_ASSERT_EQUAL(e.code, ERR_NONE);
}

static void end_run(const char *id, const char *part)
{
	struct err e = ERR_INIT;
	uint64_t changed = 0;
	struct store_value end[] = {SV_TEXT("completed"),
				    SV_TEXT("finished"),
				    SV_TEXT("exit=0"),
				    SV_I64(0),
				    SV_I64(1),
				    SV_NULL,
				    SV_I64(0),
				    SV_I64(0),
				    SV_TEXT(part),
				    SV_TEXT(id)};

	CU_ASSERT_EQUAL(store_exec(api.db, STMT_RUN_END, end, ARRAY_LEN(end), &changed, &e), 0);
	CU_ASSERT_EQUAL(changed, 1);
}

static void test_end_keeps_the_beginning(void)
{
	char id[IDENT_UUID_SIZE];

	for (int i = 0; i < 2; i++) {
		make_run(alice, id);
		api_sql(api.db, "UPDATE run SET phase = 'running', trace = %s WHERE id = '%s'",
			i == 0 ? "'00000001@1a0;'" : "NULL", id);
		end_run(id, "00000001@5k0w7;");
		points_are(id, i == 0 ? "accepted 0 0, claim_begun 4 4, end_begun 11 7"
				      : "claim_begun 0 0, end_begun 7 7");
	}
	/* a column that is full must not keep a run from ending */
	make_run(alice, id);
	api_sql(api.db,
		"UPDATE run SET phase = 'running', trace = REPEAT('x', 768) WHERE id = '%s'", id);
	end_run(id, "00000001@5k0w7;");
	answer_release(&answer);
}

static void note_gone(const char *run_id, void *arg)
{
	(void)run_id;
	(*(size_t *)arg)++;
}

static void test_goes_with_the_run(void)
{
	struct err e = ERR_INIT;
	char ids[2][IDENT_UUID_SIZE];
	size_t gone = 0;

	for (int i = 0; i < 2; i++) {
		make_run(alice, ids[i]);
		api_sql(api.db, "INSERT INTO run_trace VALUES ('%s', '00000001@1x0;')", ids[i]);
	}
	api_sql(
	    api.db,
	    "UPDATE run SET phase = 'completed', finished_at = UTC_TIMESTAMP(6) - INTERVAL %lld "
	    "DAY WHERE id = '%s'",
	    (long long)api.policy->runs.row_ttl_days + 1, ids[0]);
	CU_ASSERT_EQUAL(retention_sweep(api.db, api.policy, note_gone, &gone, &e), 0);
	CU_ASSERT(gone >= 1);
	for (int i = 0; i < 2; i++)
		CU_ASSERT_EQUAL(api_number(api.db,
					   "SELECT COUNT(*) FROM run_trace WHERE run_id = '%s'",
					   ids[i]),
				i);
}

static const struct test tests[] = {
    {"handlers", "clean", callrig_clean},
    {"trace", "a queued run", test_queued},
    {"trace", "a whole one", test_whole},
    {"trace", "broken columns", test_broken},
    {"trace", "tails", test_tails},
    {"trace", "the end keeps the beginning", test_end_keeps_the_beginning},
    {"trace", "goes with the run", test_goes_with_the_run},
    {"handlers", "leave nothing", callrig_leave_nothing},
};

int main(int argc, char **argv)
{
	return api_main(argc, argv, tests, ARRAY_LEN(tests));
}
