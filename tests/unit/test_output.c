/* test_output: bytes of a run into records: nothing lost, text kept whole, the cap exact. */
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/supervisor/output.h"
#include "tests/lib/test.h"

#include <sys/stat.h>

static unsigned int serial;
static char data[200];
static char id[40];

static void start(struct output *out, uint64_t cap)
{
	struct err e = ERR_INIT;
	char path[300];

	(void)snprintf(data, sizeof(data), "%s/data", test_dir());
	(void)mkdir(data, 0700);
	(void)snprintf(path, sizeof(path), "%s/spool", data);
	(void)mkdir(path, 0700);
	(void)snprintf(id, sizeof(id), "0190a5c0-0000-7000-8000-%012x", ++serial);
	CU_ASSERT_EQUAL_FATAL(output_open(out, data, id, cap, 10000000, &e), 0);
}

struct seen {
	struct buf bytes[2];
	uint64_t records;
	uint64_t data_records;
	uint64_t starts;
	uint64_t heartbeats;
	uint64_t truncated;
	uint64_t not_text; /* records that are not valid UTF-8 by themselves */
	bool data_after_truncated;
	char reason[32];
};

static void look(struct seen *s)
{
	scope_free struct spool_record *record = mem_zalloc(1, sizeof(*record));
	struct spool_reader r;
	struct err e = ERR_INIT;

	memset(s, 0, sizeof(*s));
	buf_init(&s->bytes[0], 64U << 20);
	buf_init(&s->bytes[1], 64U << 20);
	CU_ASSERT_EQUAL_FATAL(spool_open(&r, data, id, &e), 0);
	while (spool_next(&r, record, &e) == 1) {
		s->records++;
		CU_ASSERT_EQUAL(record->seq, s->records);
		switch (record->kind) {
		case SPOOL_START:
			s->starts++;
			break;
		case SPOOL_HEARTBEAT:
			s->heartbeats++;
			break;
		case SPOOL_TRUNCATED:
			s->truncated++;
			(void)snprintf(s->reason, sizeof(s->reason), "%.*s", (int)record->length,
				       (const char *)record->bytes);
			break;
		case SPOOL_STDOUT:
		case SPOOL_STDERR:
			s->data_records++;
			s->data_after_truncated |= s->truncated > 0;
			s->not_text += !str_utf8_valid(record->bytes, record->length);
			CU_ASSERT(record->length > 0);
			buf_add(&s->bytes[record->kind == SPOOL_STDERR], record->bytes,
				record->length);
			break;
		}
	}
	spool_reader_close(&r);
}

static void drop(struct seen *s)
{
	buf_release(&s->bytes[0]);
	buf_release(&s->bytes[1]);
}

static bool has(const struct seen *s, int stream, const void *bytes, size_t length)
{
	return s->bytes[stream].len == length &&
	       (length == 0 || memcmp(s->bytes[stream].data, bytes, length) == 0);
}

/* Feeds text cut at every pair of places; all pieces come within the hold time. */
static void all_splits(const char *text, size_t length, bool is_text)
{
	for (size_t a = 0; a <= length; a++) {
		for (size_t b = a; b <= length; b++) {
			struct output out;
			struct seen s;
			struct err e = ERR_INIT;
			bool changed = false;

			start(&out, 1000);
			(void)output_bytes(&out, 0, text, a, 0, &changed, &e);
			(void)output_bytes(&out, 0, text + a, b - a, 10, &changed, &e);
			(void)output_bytes(&out, 0, text + b, length - b, 20, &changed, &e);
			CU_ASSERT_EQUAL(output_tick(&out, 30, true, &changed, &e), 0);
			CU_ASSERT_EQUAL(out.seen_bytes, length);
			CU_ASSERT_EQUAL(out.kept_bytes, length);
			output_close(&out);
			look(&s);
			CU_ASSERT(has(&s, 0, text, length));
			if (is_text)
				CU_ASSERT_EQUAL(s.not_text, 0);
			drop(&s);
		}
	}
}

static void test_b01_splits(void)
{
	all_splits("caf\xc3\xa9", 5, true);
	all_splits("\xe2\x98\x95\xf0\x9f\x98\x80", 7, true);
	all_splits("A\377\376B", 4, false);
	all_splits("\xf0\x9f\x98\xe2\x98\xc3\xed\xa0\x80z", 10, false);
	all_splits("\x80\x80\x80\x80\x80\xf0\x9f", 7, false);
}

static void test_b01_many_characters(void)
{
	scope_buf struct buf text;
	struct output out;
	struct seen s;
	struct err e = ERR_INIT;
	bool changed = false;

	buf_init(&text, 1 << 20);
	for (int i = 0; i < 100000; i++)
		buf_add_str(&text, "\xe2\x98\x95");
	/* pieces of 4096 bytes, as a pipe gives them, and one larger than a record */
	for (size_t piece = 4096; piece <= 100000; piece += 100000 - 4096) {
		start(&out, 10U << 20);
		for (size_t at = 0; at < text.len; at += piece) {
			size_t part = text.len - at < piece ? text.len - at : piece;

			CU_ASSERT_EQUAL(
			    output_bytes(&out, 0, text.data + at, part, 0, &changed, &e), 0);
		}
		CU_ASSERT_EQUAL(output_tick(&out, 0, true, &changed, &e), 0);
		output_close(&out);
		look(&s);
		CU_ASSERT(has(&s, 0, text.data, text.len));
		CU_ASSERT_EQUAL(s.not_text, 0);
		CU_ASSERT_EQUAL(s.truncated, 0);
		drop(&s);
	}
}

static void test_tail_waits_50_ms(void)
{
	struct output out;
	struct seen s;
	struct err e = ERR_INIT;
	bool changed = false;

	start(&out, 1000);
	CU_ASSERT_EQUAL(output_due_us(&out), INT64_MAX);
	CU_ASSERT_EQUAL(output_bytes(&out, 0, "\xc3", 1, 1000, &changed, &e), 0);
	CU_ASSERT_FALSE(changed);
	CU_ASSERT_EQUAL(output_due_us(&out), 51000);
	CU_ASSERT_EQUAL(output_tick(&out, 50999, false, &changed, &e), 0);
	CU_ASSERT_FALSE(changed);
	CU_ASSERT_EQUAL(output_tick(&out, 51000, false, &changed, &e), 0);
	CU_ASSERT(changed);
	CU_ASSERT_EQUAL(output_due_us(&out), INT64_MAX);
	/* the rest comes too late: its own record, no byte lost; the other stream is not touched */
	changed = false;
	CU_ASSERT_EQUAL(output_bytes(&out, 1, "\xe2\x98", 2, 60000, &changed, &e), 0);
	CU_ASSERT_FALSE(changed);
	CU_ASSERT_EQUAL(output_bytes(&out, 0, "\xa9", 1, 61000, &changed, &e), 0);
	CU_ASSERT(changed);
	/* a second piece of the same character does not lengthen its wait */
	CU_ASSERT_EQUAL(output_due_us(&out), 110000);
	changed = false;
	CU_ASSERT_EQUAL(output_bytes(&out, 1, "\x95", 1, 70000, &changed, &e), 0);
	CU_ASSERT(changed);
	output_close(&out);
	look(&s);
	CU_ASSERT(has(&s, 0, "\xc3\xa9", 2));
	CU_ASSERT(has(&s, 1, "\xe2\x98\x95", 3));
	CU_ASSERT_EQUAL(s.data_records, 3);
	CU_ASSERT_EQUAL(s.not_text, 2);
	drop(&s);
}

static void test_b03_lines(void)
{
	struct output out;
	struct seen s;
	struct err e = ERR_INIT;
	bool changed = false;

	start(&out, 1000);
	CU_ASSERT_EQUAL(output_start(&out, 0, &e), 0);
	CU_ASSERT_EQUAL(output_bytes(&out, 0, "a\n\nb\r\n\r\n\n\nc", 11, 0, &changed, &e), 0);
	CU_ASSERT_EQUAL(output_bytes(&out, 0, NULL, 0, 0, &changed, &e), 0);
	CU_ASSERT_EQUAL(output_tick(&out, 0, true, &changed, &e), 0);
	output_close(&out);
	look(&s);
	CU_ASSERT_EQUAL(s.starts, 1);
	CU_ASSERT(has(&s, 0, "a\n\nb\r\n\r\n\n\nc", 11));
	drop(&s);
}

/* One enormous line of `length` bytes with a cap, in pieces. */
static void one_line(size_t length, size_t cap, size_t piece)
{
	scope_free char *text = mem_zalloc(length, 1);
	struct output out;
	struct seen s;
	struct err e = ERR_INIT;
	bool changed = false;
	size_t kept = length < cap ? length : cap;

	memset(text, 'x', length);
	start(&out, cap);
	for (size_t at = 0; at < length; at += piece) {
		size_t part = length - at < piece ? length - at : piece;

		CU_ASSERT_EQUAL_FATAL(output_bytes(&out, 0, text + at, part, 0, &changed, &e), 0);
	}
	CU_ASSERT_EQUAL(output_tick(&out, 0, true, &changed, &e), 0);
	CU_ASSERT_EQUAL(out.seen_bytes, length);
	CU_ASSERT_EQUAL(out.kept_bytes, kept);
	CU_ASSERT_EQUAL(out.truncated, length > cap);
	output_close(&out);
	look(&s);
	CU_ASSERT(has(&s, 0, text, kept));
	CU_ASSERT_EQUAL(s.truncated, length > cap ? 1 : 0);
	CU_ASSERT_FALSE(s.data_after_truncated);
	if (length > cap)
		ASSERT_TEXT(s.reason, "log_cap");
	drop(&s);
}

static void test_b02_one_line(void)
{
	one_line(65535, 10485760, 65536);
	one_line(65536, 10485760, 65536);
	one_line(65537, 10485760, 65536);
	one_line(5U << 20, 10485760, 65536);
	one_line(20U << 20, 10485760, 65536);
	one_line(20U << 20, 10485760, 4000);
	/* exactly the cap is not truncated */
	one_line(1000, 1000, 7);
	one_line(1001, 1000, 7);
	one_line(10, 0, 3);
}

/* Wherever the cap falls in a character, the sum of the bytes is the cap. */
static void test_cap_in_a_character(void)
{
	static const char text[] = "a\xe2\x98\x95\xf0\x9f\x98\x80\xc3\xa9\xff\xe2\x98\x95 tail";
	size_t length = sizeof(text) - 1;

	for (size_t cap = 0; cap <= length; cap++) {
		for (size_t piece = 1; piece <= length; piece++) {
			struct output out;
			struct seen s;
			struct err e = ERR_INIT;
			bool changed = false;

			start(&out, cap);
			for (size_t at = 0; at < length; at += piece)
				(void)output_bytes(&out, 0, text + at,
						   length - at < piece ? length - at : piece, 0,
						   &changed, &e);
			CU_ASSERT_EQUAL(output_tick(&out, 0, true, &changed, &e), 0);
			CU_ASSERT_EQUAL(out.kept_bytes, cap);
			CU_ASSERT_EQUAL(out.seen_bytes, length);
			output_close(&out);
			look(&s);
			CU_ASSERT(has(&s, 0, text, cap));
			CU_ASSERT_EQUAL(s.truncated, cap < length ? 1 : 0);
			CU_ASSERT_FALSE(s.data_after_truncated);
			drop(&s);
		}
	}
}

static void test_cap_of_both_streams(void)
{
	struct output out;
	struct seen s;
	struct err e = ERR_INIT;
	bool changed = false;

	start(&out, 10);
	CU_ASSERT_EQUAL(output_bytes(&out, 0, "123456", 6, 0, &changed, &e), 0);
	CU_ASSERT_EQUAL(output_bytes(&out, 0, "\xc3", 1, 0, &changed, &e), 0);
	CU_ASSERT_EQUAL(output_bytes(&out, 1, "abcdefgh", 8, 0, &changed, &e), 0);
	/* what waited is past the cap now */
	CU_ASSERT_EQUAL(output_bytes(&out, 0, "\xa9", 1, 0, &changed, &e), 0);
	CU_ASSERT_EQUAL(output_tick(&out, 0, true, &changed, &e), 0);
	CU_ASSERT_EQUAL(out.kept_bytes, 10);
	CU_ASSERT_EQUAL(out.seen_bytes, 16);
	output_close(&out);
	look(&s);
	CU_ASSERT(has(&s, 0, "123456", 6));
	CU_ASSERT(has(&s, 1, "abcd", 4));
	CU_ASSERT_EQUAL(s.truncated, 1);
	drop(&s);
}

static void test_heartbeats(void)
{
	struct output out;
	struct seen s;
	struct err e = ERR_INIT;
	bool changed = false;

	start(&out, 10);
	CU_ASSERT_EQUAL(output_start(&out, 1000, &e), 0);
	CU_ASSERT_EQUAL(output_due_us(&out), 10001000);
	CU_ASSERT_EQUAL(output_tick(&out, 10000999, false, &changed, &e), 0);
	CU_ASSERT_FALSE(changed);
	CU_ASSERT_EQUAL(output_tick(&out, 10001000, false, &changed, &e), 0);
	CU_ASSERT(changed);
	/* after a long sleep one, not a burst */
	CU_ASSERT_EQUAL(output_tick(&out, 90000000, false, &changed, &e), 0);
	CU_ASSERT_EQUAL(output_due_us(&out), 100000000);
	CU_ASSERT_EQUAL(output_tick(&out, 200000000, true, &changed, &e), 0);
	CU_ASSERT_EQUAL(output_truncated(&out, "stdin_cap", &e), 0);
	output_close(&out);
	look(&s);
	CU_ASSERT_EQUAL(s.heartbeats, 2);
	CU_ASSERT_EQUAL(s.records, 4);
	ASSERT_TEXT(s.reason, "stdin_cap");
	drop(&s);
}

static const struct test tests[] = {
    {"output", "B01 any split", test_b01_splits},
    {"output", "B01 100,000 characters", test_b01_many_characters},
    {"output", "B01 a tail waits 50 ms", test_tail_waits_50_ms},
    {"output", "B02 one enormous line", test_b02_one_line},
    {"output", "B02 cap within a character", test_cap_in_a_character},
    {"output", "B02 cap of both streams", test_cap_of_both_streams},
    {"output", "B03 blank lines", test_b03_lines},
    {"output", "heartbeats", test_heartbeats},
};

TEST_MAIN(tests)
