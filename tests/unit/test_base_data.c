/* test_base_data: err mem buf str num clock ident wire: plain data, no system behind it. */
#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/base/wire.h"
#include "tests/lib/test.h"

#include <errno.h>

/* --- err ------------------------------------------------------------------------------------ */

static void test_err_first_wins(void)
{
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(err_set(&e, ERR_IO, ENOENT, "open %s", "x"), -1);
	CU_ASSERT_EQUAL(err_set(&e, ERR_NOMEM, 0, "second"), -1);
	CU_ASSERT_EQUAL(err_show(&e, ERR_INVALID, "third"), -1);
	CU_ASSERT_EQUAL(e.code, ERR_IO);
	CU_ASSERT_EQUAL(e.sys, ENOENT);
	ASSERT_TEXT(e.text, "open x: No such file or directory");
	ASSERT_TEXT(e.shown, "");
	CU_ASSERT_EQUAL(err_wrap(&e, "run %d", 7), -1);
	ASSERT_TEXT(e.text, "run 7: open x: No such file or directory");
	err_clear(&e);
	CU_ASSERT_EQUAL(e.code, ERR_NONE);
	CU_ASSERT_EQUAL(e.sys, 0);
	CU_ASSERT_EQUAL(err_show(&e, ERR_INVALID, "a is %d", 1), -1);
	ASSERT_TEXT(e.shown, "a is 1");
	ASSERT_TEXT(e.text, "a is 1");
}

static void test_err_long(void)
{
	struct err e = ERR_INIT;
	char text[2000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&e, ERR_IO, EIO, "%s", text);
	CU_ASSERT_EQUAL(strlen(e.text), sizeof(e.text) - 1);
	(void)err_wrap(&e, "%s", "front");
	CU_ASSERT_EQUAL(strlen(e.text), sizeof(e.text) - 1);
	CU_ASSERT(str_starts(e.text, "front: xxx"));
	err_clear(&e);
	/* a cut never leaves half a character: `shown` goes into JSON */
	text[0] = 'y';
	for (size_t i = 1; i + 2 < sizeof(text); i += 2) {
		text[i] = '\xc3';
		text[i + 1] = '\xa9';
	}
	(void)err_show(&e, ERR_INVALID, "%s", text);
	CU_ASSERT(str_utf8_valid(e.shown, strlen(e.shown)));
	CU_ASSERT(strlen(e.shown) >= sizeof(e.shown) - 4);
}

static void test_err_names(void)
{
	for (int a = 0; a < ERR__MAX; a++) {
		CU_ASSERT_STRING_NOT_EQUAL(err_code_name((enum err_code)a), "?");
		for (int b = 0; b < a; b++)
			CU_ASSERT_STRING_NOT_EQUAL(err_code_name((enum err_code)a),
						   err_code_name((enum err_code)b));
	}
}

/* --- mem ------------------------------------------------------------------------------------ */

static void test_mem(void)
{
	scope_free char *a = mem_dup("abc");
	scope_free char *b = mem_dup_bytes("a\0c", 3);
	scope_free char *taken = scope_steal(&a);
	scope_free char *zeros = mem_zalloc(3, 5);

	CU_ASSERT_PTR_NULL(a);
	ASSERT_TEXT(taken, "abc");
	CU_ASSERT_EQUAL(memcmp(b, "a\0c", 4), 0);
	for (size_t i = 0; i < 15; i++)
		CU_ASSERT_EQUAL(zeros[i], 0);
	CU_ASSERT_PTR_NULL(mem_dup(NULL));
	CU_ASSERT_PTR_NULL(mem_zalloc(SIZE_MAX / 2, 4));
	CU_ASSERT_PTR_NULL(mem_resize(NULL, SIZE_MAX / 2, 4));
	CU_ASSERT_PTR_NULL(mem_dup_bytes("", SIZE_MAX));
}

static void test_mem_fail_at(void)
{
	scope_free char *first = NULL;
	scope_free char *third = NULL;

	mem_fail_at(2);
	first = mem_alloc(1);
	CU_ASSERT_PTR_NOT_NULL(first);
	CU_ASSERT_FALSE(mem_has_failed());
	CU_ASSERT_PTR_NULL(mem_alloc(1));
	CU_ASSERT(mem_has_failed());
	third = mem_alloc(1);
	CU_ASSERT_PTR_NOT_NULL(third);
	mem_fail_at(0);
	CU_ASSERT_FALSE(mem_has_failed());
}

/* --- buf ------------------------------------------------------------------------------------ */

static void test_buf_limit(void)
{
	scope_buf struct buf b;

	buf_init(&b, 10);
	ASSERT_TEXT(buf_text(&b), "");
	buf_add_str(&b, "12345");
	buf_addf(&b, "%d", 67890);
	CU_ASSERT(buf_ok(&b));
	ASSERT_TEXT(buf_text(&b), "1234567890");
	buf_add_char(&b, 'x');
	CU_ASSERT_FALSE(buf_ok(&b));
	CU_ASSERT_EQUAL(buf_error(&b), ERR_LIMIT);
	/* sticky, also for what would fit */
	buf_consume(&b, 9);
	buf_add_char(&b, 'y');
	ASSERT_TEXT(buf_text(&b), "0");
	CU_ASSERT_PTR_NULL(buf_steal(&b, NULL));
	buf_reset(&b);
	CU_ASSERT(buf_ok(&b));
	CU_ASSERT_EQUAL(buf_error(&b), ERR_NONE);
	buf_add(&b, "a\0b", 3);
	CU_ASSERT_EQUAL(b.len, 3);
	buf_consume(&b, 100);
	CU_ASSERT_EQUAL(b.len, 0);
	CU_ASSERT_EQUAL(buf_reserve(&b, 11), -1);
	buf_reset(&b);
	CU_ASSERT_EQUAL(buf_reserve(&b, SIZE_MAX), -1);
}

static void test_buf_steal(void)
{
	scope_buf struct buf b;
	scope_free char *text = NULL;
	scope_free char *empty = NULL;
	size_t length = 99;

	buf_init(&b, 100);
	empty = buf_steal(&b, &length);
	ASSERT_TEXT(empty, "");
	CU_ASSERT_EQUAL(length, 0);
	buf_addf(&b, "%s", "hello");
	text = buf_steal(&b, &length);
	ASSERT_TEXT(text, "hello");
	CU_ASSERT_EQUAL(length, 5);
	CU_ASSERT_EQUAL(b.len, 0);
	buf_add_str(&b, "again");
	ASSERT_TEXT(buf_text(&b), "again");
}

static int fill_buf(void *context, struct err *e)
{
	scope_buf struct buf b;

	(void)context;
	buf_init(&b, 1 << 20);
	for (int i = 0; i < 2000; i++)
		buf_addf(&b, "%d ", i);
	str_base64(&b, "abc", 3);
	str_percent_encode(&b, "a b", 3, "");
	if (!buf_ok(&b)) {
		CU_ASSERT_EQUAL(buf_error(&b), ERR_NOMEM);
		return err_set(e, buf_error(&b), 0, "buf");
	}
	CU_ASSERT(str_ends(buf_text(&b), "1999 YWJja%20b"));
	return 0;
}

static void test_buf_faults(void)
{
	fault_loop(fill_buf, NULL);
}

/* --- str ------------------------------------------------------------------------------------ */

static void test_str_compare(void)
{
	char small[4];

	CU_ASSERT_EQUAL(str_copy(small, sizeof(small), "abc"), 0);
	ASSERT_TEXT(small, "abc");
	CU_ASSERT_EQUAL(str_copy(small, sizeof(small), "abcd"), -1);
	ASSERT_TEXT(small, "");
	CU_ASSERT_EQUAL(str_copy(small, 0, ""), -1);
	CU_ASSERT(str_equal_nocase("X-Api-KEY", "x-aPI-key"));
	CU_ASSERT_FALSE(str_equal_nocase("abc", "abcd"));
	CU_ASSERT_FALSE(str_equal_nocase("abc[", "abc{"));
	CU_ASSERT(str_ends("a.sql", ".sql"));
	CU_ASSERT_FALSE(str_ends("sql", ".sql"));
	CU_ASSERT_PTR_NULL(str_after("ab", "abc"));
	ASSERT_TEXT(str_after("abc", "ab"), "c");
	CU_ASSERT(str_equal_constant_time("a\0b", "a\0b", 3));
	CU_ASSERT_FALSE(str_equal_constant_time("a\0b", "a\0c", 3));
	CU_ASSERT_FALSE(str_equal_constant_time("xa", "ya", 2));
}

struct utf8_case {
	const char *bytes;
	size_t length;
	size_t prefix;
	bool bad;
};

/* RFC 3629 and the tables of Unicode 15, section 3.9 */
static const struct utf8_case utf8_cases[] = {
    {"", 0, 0, false},
    {"abc", 3, 3, false},
    {"a\0b", 3, 3, false},
    {"\xc3\xa9", 2, 2, false},
    {"a\xc3", 2, 1, false},
    {"\xe2\x98\x95", 3, 3, false},
    {"\xe2\x98", 2, 0, false},
    {"\xf0\x9f\x98\x80", 4, 4, false},
    {"\xf0\x9f\x98", 3, 0, false},
    {"\xf4\x8f\xbf\xbf", 4, 4, false},
    {"\xf4\x90\x80\x80", 4, 0, true}, /* above U+10FFFF */
    {"\xf4\x90", 2, 0, true},
    {"\xed\x9f\xbf", 3, 3, false},
    {"\xed\xa0\x80", 3, 0, true}, /* a surrogate */
    {"\xed\xa0", 2, 0, true},
    {"\xc0\xae", 2, 0, true}, /* overlong */
    {"\xc1\xbf", 2, 0, true},
    {"\xe0\x80\x80", 3, 0, true},
    {"\xe0\x9f\xbf", 3, 0, true},
    {"\xf0\x80\x80\x80", 4, 0, true},
    {"\xf0\x8f", 2, 0, true},
    {"\xf5\x80\x80\x80", 4, 0, true},
    {"A\377\376B", 4, 1, true},
    {"\x80", 1, 0, true},
    {"a\xe2\x28\xa1", 4, 1, true},
};

static void test_str_utf8(void)
{
	for (size_t i = 0; i < ARRAY_LEN(utf8_cases); i++) {
		const struct utf8_case *c = &utf8_cases[i];
		bool bad = !c->bad;

		CU_ASSERT_EQUAL(str_utf8_prefix(c->bytes, c->length, &bad), c->prefix);
		CU_ASSERT_EQUAL(bad, c->bad);
		CU_ASSERT_EQUAL(str_utf8_valid(c->bytes, c->length), c->prefix == c->length);
	}
}

static void test_str_utf8_all(void)
{
	unsigned long count = 0;

	/* every sequence of three bytes that is one whole character: U+0800..U+FFFF less surrogates
	 */
	for (unsigned int v = 0; v < 0x1000000U; v++) {
		unsigned char p[3] = {(unsigned char)(v >> 16), (unsigned char)(v >> 8),
				      (unsigned char)v};

		if (p[0] >= 0xE0 && str_utf8_valid(p, 3))
			count++;
	}
	CU_ASSERT_EQUAL(count, 0x10000 - 0x800 - 0x800);
}

static void test_str_hex(void)
{
	unsigned char raw[3];
	char hex[7];

	str_hex(hex, "\x00\xab\xff", 3);
	ASSERT_TEXT(hex, "00abff");
	CU_ASSERT_EQUAL(str_unhex(raw, 3, "00aBFf"), 0);
	CU_ASSERT_EQUAL(memcmp(raw, "\x00\xab\xff", 3), 0);
	CU_ASSERT_EQUAL(str_unhex(raw, 3, "00abf"), -1);
	CU_ASSERT_EQUAL(str_unhex(raw, 3, "00abff0"), -1);
	CU_ASSERT_EQUAL(str_unhex(raw, 3, "00abfg"), -1);
	CU_ASSERT_EQUAL(str_unhex(raw, 3, "00 bff"), -1);
}

static void base64_is(const char *plain, const char *coded)
{
	scope_buf struct buf out;
	scope_buf struct buf back;

	buf_init(&out, 100);
	buf_init(&back, 100);
	str_base64(&out, plain, strlen(plain));
	ASSERT_TEXT(buf_text(&out), coded);
	CU_ASSERT_EQUAL(str_unbase64(&back, coded, strlen(coded)), 0);
	ASSERT_TEXT(buf_text(&back), plain);
}

static void base64_refused(const char *coded, size_t length)
{
	scope_buf struct buf out;

	buf_init(&out, 100);
	CU_ASSERT_EQUAL(str_unbase64(&out, coded, length), -1);
}

static void test_str_base64(void)
{
	scope_buf struct buf out;
	scope_buf struct buf back;
	unsigned char all[256];

	/* RFC 4648 section 10 */
	base64_is("", "");
	base64_is("f", "Zg==");
	base64_is("fo", "Zm8=");
	base64_is("foo", "Zm9v");
	base64_is("foob", "Zm9vYg==");
	base64_is("fooba", "Zm9vYmE=");
	base64_is("foobar", "Zm9vYmFy");
	base64_refused("Zg", 2);
	base64_refused("Zg=", 3);
	base64_refused("Zg===", 5);
	base64_refused("Zh==", 4); /* stray bits */
	base64_refused("Zm9=", 4);
	base64_refused("Zg==Zg==", 8);
	base64_refused("=m9v", 4);
	base64_refused("Z===", 4);
	base64_refused("====", 4);
	base64_refused("Zm9v\n", 5);
	base64_refused("Zm 9", 4);
	base64_refused("Zm-_", 4);
	base64_refused("Zm9\0", 4);
	for (size_t i = 0; i < sizeof(all); i++)
		all[i] = (unsigned char)i;
	for (size_t n = 0; n <= sizeof(all); n++) {
		buf_init(&out, 1000);
		buf_init(&back, 1000);
		str_base64(&out, all, n);
		CU_ASSERT_EQUAL(str_unbase64(&back, buf_text(&out), out.len), 0);
		CU_ASSERT(back.len == n && (n == 0 || memcmp(back.data, all, n) == 0));
		buf_release(&out);
		buf_release(&back);
	}
	/* past the buffer's maximum */
	buf_init(&out, 2);
	CU_ASSERT_EQUAL(str_unbase64(&out, "Zm9v", 4), -1);
	buf_release(&out);
	buf_init(&out, 3);
	str_base64(&out, "f", 1);
	CU_ASSERT_FALSE(buf_ok(&out));
	buf_release(&out);
	buf_init(&out, 8);
	buf_init(&back, 8);
}

static void decode_is(const char *text, int result, const char *bytes, size_t length)
{
	scope_buf struct buf out;

	buf_init(&out, 100);
	CU_ASSERT_EQUAL(str_percent_decode(&out, text, strlen(text)), result);
	if (result == 0) {
		CU_ASSERT_EQUAL(out.len, length);
		CU_ASSERT_EQUAL(memcmp(buf_text(&out), bytes, length), 0);
	}
}

static void test_str_percent(void)
{
	scope_buf struct buf out;
	scope_buf struct buf back;
	unsigned char all[256];

	decode_is("", 0, "", 0);
	decode_is("a%20b+c", 0, "a b+c", 5);
	decode_is("%252e", 0, "%2e", 3);
	decode_is("%00", 0, "\0", 1);
	decode_is("%fF", 0, "\xff", 1);
	decode_is("%", -1, NULL, 0);
	decode_is("%2", -1, NULL, 0);
	decode_is("a%2", -1, NULL, 0);
	decode_is("%zz", -1, NULL, 0);
	decode_is("% 2", -1, NULL, 0);
	decode_is("%+2", -1, NULL, 0);
	buf_init(&out, 1000);
	buf_init(&back, 1000);
	str_percent_encode(&out, "a b/c?%\xc3\xa9~._-", 13, "/");
	ASSERT_TEXT(buf_text(&out), "a%20b/c%3F%25%C3%A9~._-");
	buf_reset(&out);
	for (size_t i = 0; i < sizeof(all); i++)
		all[i] = (unsigned char)i;
	str_percent_encode(&out, all, sizeof(all), "");
	CU_ASSERT_EQUAL(str_percent_decode(&back, buf_text(&out), out.len), 0);
	CU_ASSERT_EQUAL(back.len, sizeof(all));
	CU_ASSERT_EQUAL(memcmp(back.data, all, sizeof(all)), 0);
}

/* --- num ------------------------------------------------------------------------------------ */

static void u64_is(const char *text, bool good, uint64_t want)
{
	struct err e = ERR_INIT;
	uint64_t value = 77;

	CU_ASSERT_EQUAL(num_u64("n", text, 0, UINT64_MAX, &value, &e), good ? 0 : -1);
	CU_ASSERT_EQUAL(value, good ? want : 77);
	CU_ASSERT_EQUAL(e.code, good ? ERR_NONE : ERR_INVALID);
}

static void i64_is(const char *text, bool good, int64_t want)
{
	struct err e = ERR_INIT;
	int64_t value = 77;

	CU_ASSERT_EQUAL(num_i64("n", text, INT64_MIN, INT64_MAX, &value, &e), good ? 0 : -1);
	CU_ASSERT_EQUAL(value, good ? want : 77);
}

static void test_num(void)
{
	struct err e = ERR_INIT;
	uint64_t value = 0;

	u64_is("0", true, 0);
	u64_is("18446744073709551615", true, UINT64_MAX);
	u64_is("18446744073709551616", false, 0);
	u64_is("99999999999999999999999", false, 0);
	u64_is("", false, 0);
	u64_is(NULL, false, 0);
	u64_is("+1", false, 0);
	u64_is("-1", false, 0);
	u64_is("-0", false, 0);
	u64_is(" 1", false, 0);
	u64_is("1 ", false, 0);
	u64_is("1x", false, 0);
	u64_is("0x10", false, 0);
	u64_is("1e3", false, 0);
	u64_is("1.0", false, 0);
	i64_is("-1", true, -1);
	i64_is("9223372036854775807", true, INT64_MAX);
	i64_is("9223372036854775808", false, 0);
	i64_is("-9223372036854775808", true, INT64_MIN);
	i64_is("-9223372036854775809", false, 0);
	i64_is("-", false, 0);
	i64_is("--1", false, 0);
	i64_is("+1", false, 0);
	CU_ASSERT_EQUAL(num_u64("timeout", "3601", 1, 3600, &value, &e), -1);
	ASSERT_TEXT(e.shown, "timeout must be a whole number from 1 to 3600");
	err_clear(&e);
	CU_ASSERT_EQUAL(num_u64("timeout", "0", 1, 3600, &value, &e), -1);
	err_clear(&e);
	CU_ASSERT_EQUAL(num_u64("timeout", "3600", 1, 3600, &value, &e), 0);
	CU_ASSERT_EQUAL(value, 3600);
}

/* --- clock, ident --------------------------------------------------------------------------- */

static void iso_is(int64_t us, const char *want)
{
	char text[CLOCK_ISO_SIZE];

	clock_iso(text, us);
	ASSERT_TEXT(text, want);
}

static void test_clock(void)
{
	int64_t before = clock_monotonic_us();

	iso_is(0, "1970-01-01T00:00:00.000000Z");
	iso_is(1, "1970-01-01T00:00:00.000001Z");
	iso_is(-1, "1969-12-31T23:59:59.999999Z");
	iso_is(INT64_C(951782399999999), "2000-02-28T23:59:59.999999Z");
	iso_is(INT64_C(951782400000000), "2000-02-29T00:00:00.000000Z");
	iso_is(INT64_C(1893456000123456), "2030-01-01T00:00:00.123456Z");
	clock_sleep_us(3000);
	clock_sleep_us(0);
	clock_sleep_us(-5);
	CU_ASSERT(clock_monotonic_us() - before >= 3000);
	CU_ASSERT(clock_real_us() > INT64_C(1700000000000000));
}

static void test_ident_uuid(void)
{
	struct err e = ERR_INIT;
	char a[IDENT_UUID_SIZE];
	char b[IDENT_UUID_SIZE];
	int64_t now_ms = clock_real_us() / 1000;
	char front[13];

	CU_ASSERT_EQUAL(ident_uuid(a, &e), 0);
	clock_sleep_us(2000);
	CU_ASSERT_EQUAL(ident_uuid(b, &e), 0);
	CU_ASSERT(ident_is_uuid(a));
	CU_ASSERT_EQUAL(a[14], '7');
	CU_ASSERT(strchr("89ab", a[19]) != NULL);
	/* a later one is greater: the database's order is the order of time */
	CU_ASSERT(strcmp(a, b) < 0);
	(void)snprintf(front, sizeof(front), "%012llx", (unsigned long long)now_ms);
	CU_ASSERT(strncmp(a, front, 7) == 0);
}

static void test_ident_is_uuid(void)
{
	CU_ASSERT(ident_is_uuid("0190a5c0-0000-7000-8000-0123456789ab"));
	CU_ASSERT_FALSE(ident_is_uuid(""));
	CU_ASSERT_FALSE(ident_is_uuid(".."));
	CU_ASSERT_FALSE(ident_is_uuid("0190a5c0-0000-7000-8000-0123456789a"));
	CU_ASSERT_FALSE(ident_is_uuid("0190a5c0-0000-7000-8000-0123456789abc"));
	CU_ASSERT_FALSE(ident_is_uuid("0190A5C0-0000-7000-8000-0123456789AB"));
	CU_ASSERT_FALSE(ident_is_uuid("0190a5c0x0000-7000-8000-0123456789ab"));
	CU_ASSERT_FALSE(ident_is_uuid("0190a5c0-0000-7000-8000-0123456789a/"));
	CU_ASSERT_FALSE(ident_is_uuid("../../../../../../../../../../passwd"));
}

static void test_ident_token(void)
{
	struct err e = ERR_INIT;
	char a[33];
	char b[33];
	unsigned char random[64];
	unsigned char zeros[64] = {0};

	memset(a, 'X', sizeof(a));
	CU_ASSERT_EQUAL(ident_token(a, 32, &e), 0);
	CU_ASSERT_EQUAL(ident_token(b, 32, &e), 0);
	CU_ASSERT_EQUAL(strlen(a), 32);
	CU_ASSERT_EQUAL(strspn(a, "abcdefghijklmnopqrstuvwxyz234567"), 32);
	CU_ASSERT_STRING_NOT_EQUAL(a, b);
	memset(random, 0, sizeof(random));
	CU_ASSERT_EQUAL(ident_random(random, sizeof(random), &e), 0);
	CU_ASSERT(memcmp(random, zeros, sizeof(zeros)) != 0);
}

/* --- wire ----------------------------------------------------------------------------------- */

static void test_wire_round_trip(void)
{
	scope_buf struct buf b;
	struct wire_reader r;
	size_t length;
	const char *bytes;

	buf_init(&b, 100);
	wire_put_u8(&b, 0xAB);
	wire_put_u16(&b, 0x0102);
	wire_put_u32(&b, 0xFFFEFDFC);
	wire_put_u64(&b, UINT64_MAX - 1);
	wire_put_bytes(&b, "x\0y", 3);
	wire_put_text(&b, "");
	CU_ASSERT_EQUAL(memcmp(b.data, "\xab\x02\x01\xfc\xfd\xfe\xff\xfe\xff", 9), 0);
	/* every cut fails at the end, and only there; nothing is read past it */
	for (size_t n = 0; n <= b.len; n++) {
		scope_free char *copy = mem_dup_bytes(b.data, n);

		wire_reader_init(&r, copy, n);
		(void)wire_get_u8(&r);
		(void)wire_get_u16(&r);
		(void)wire_get_u32(&r);
		(void)wire_get_u64(&r);
		(void)wire_get_bytes(&r, &length);
		(void)wire_get_bytes(&r, &length);
		CU_ASSERT_EQUAL(wire_done(&r), n == b.len);
	}
	wire_reader_init(&r, b.data, b.len);
	CU_ASSERT_EQUAL(wire_get_u8(&r), 0xAB);
	CU_ASSERT_EQUAL(wire_get_u16(&r), 0x0102);
	CU_ASSERT_EQUAL(wire_get_u32(&r), 0xFFFEFDFC);
	CU_ASSERT_EQUAL(wire_get_u64(&r), UINT64_MAX - 1);
	bytes = wire_get_bytes(&r, &length);
	CU_ASSERT_EQUAL(length, 3);
	CU_ASSERT_EQUAL(memcmp(bytes, "x\0y", 3), 0);
	CU_ASSERT_FALSE(wire_done(&r));
	(void)wire_get_bytes(&r, &length);
	CU_ASSERT_EQUAL(length, 0);
	CU_ASSERT(wire_done(&r));
	/* sticky */
	CU_ASSERT_EQUAL(wire_get_u8(&r), 0);
	CU_ASSERT_FALSE(wire_done(&r));
	CU_ASSERT_EQUAL(wire_get_u64(&r), 0);
	ASSERT_TEXT(wire_get_bytes(&r, &length), "");
}

static void test_wire_length_lies(void)
{
	static const unsigned char lie[] = {0xff, 0xff, 0xff, 0xff, 'a'};
	struct wire_reader r;
	size_t length = 9;

	wire_reader_init(&r, lie, sizeof(lie));
	ASSERT_TEXT(wire_get_bytes(&r, &length), "");
	CU_ASSERT_EQUAL(length, 0);
	CU_ASSERT_FALSE(wire_done(&r));
}

static void test_wire_crc32c(void)
{
	unsigned char bytes[32];

	/* RFC 3720 B.4 */
	memset(bytes, 0, sizeof(bytes));
	CU_ASSERT_EQUAL(wire_crc32c(0, bytes, sizeof(bytes)), 0x8A9136AA);
	memset(bytes, 0xff, sizeof(bytes));
	CU_ASSERT_EQUAL(wire_crc32c(0, bytes, sizeof(bytes)), 0x62A8AB43);
	for (unsigned char i = 0; i < 32; i++)
		bytes[i] = i;
	CU_ASSERT_EQUAL(wire_crc32c(0, bytes, sizeof(bytes)), 0x46DD794E);
	CU_ASSERT_EQUAL(wire_crc32c(wire_crc32c(0, bytes, 13), bytes + 13, 19), 0x46DD794E);
	CU_ASSERT_EQUAL(wire_crc32c(0, "123456789", 9), 0xE3069283);
	CU_ASSERT_EQUAL(wire_crc32c(5, NULL, 0), 5);
}

static const struct test tests[] = {
    {"err", "first error wins", test_err_first_wins},
    {"err", "long texts", test_err_long},
    {"err", "names", test_err_names},
    {"mem", "copies", test_mem},
    {"mem", "fail at", test_mem_fail_at},
    {"buf", "limit", test_buf_limit},
    {"buf", "steal", test_buf_steal},
    {"buf", "faults", test_buf_faults},
    {"str", "compare", test_str_compare},
    {"str", "B01 utf-8", test_str_utf8},
    {"str", "B01 utf-8, all of three bytes", test_str_utf8_all},
    {"str", "hex", test_str_hex},
    {"str", "base64", test_str_base64},
    {"str", "percent", test_str_percent},
    {"num", "B11 whole and within bounds", test_num},
    {"clock", "iso and sleep", test_clock},
    {"ident", "uuid", test_ident_uuid},
    {"ident", "B14 strict pattern", test_ident_is_uuid},
    {"ident", "token", test_ident_token},
    {"wire", "round trip", test_wire_round_trip},
    {"wire", "a length that lies", test_wire_length_lies},
    {"wire", "crc32c", test_wire_crc32c},
};

TEST_MAIN(tests)
