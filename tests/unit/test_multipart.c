/* test_multipart: forms as clients send them, in pieces of every size, and what is no form. */
#include "runners/base/buf.h"
#include "runners/base/str.h"
#include "runners/core/multipart.h"
#include "tests/lib/test.h"

#include <CUnit/CUnit.h>

#define TYPE "multipart/form-data; boundary=b0"

static struct buf log_text;
static int fail_after = -1;

static int on_begin(void *ctx, const struct multipart_part *part, struct err *e)
{
	(void)ctx;
	if (fail_after == 0)
		return err_set(e, ERR_STORAGE, 0, "begin");
	buf_addf(&log_text, "[%s|%s%s|", part->name, part->has_filename ? "=" : "-",
		 part->filename);
	return 0;
}

static int on_data(void *ctx, const char *data, size_t length, struct err *e)
{
	(void)ctx;
	if (fail_after == 1)
		return err_set(e, ERR_STORAGE, 0, "data");
	buf_add(&log_text, data, length);
	return 0;
}

static int on_end(void *ctx, struct err *e)
{
	(void)ctx;
	(void)e;
	buf_add_str(&log_text, "]");
	return 0;
}

static const struct multipart_events events = {.begin = on_begin, .data = on_data, .end = on_end};

/* 0 whole, -1 refused; the events are in log_text. */
static int parse(const char *type, const char *body, size_t length, size_t piece, struct err *e)
{
	static struct multipart m;

	buf_release(&log_text);
	buf_init(&log_text, 1U << 20);
	err_clear(e);
	if (multipart_init(&m, type, &events, NULL, e) != 0)
		return -1;
	for (size_t at = 0; at < length; at += piece)
		if (multipart_feed(&m, body + at, length - at < piece ? length - at : piece, e) !=
		    0)
			return -1;
	return multipart_finish(&m, e);
}

static void gives(const char *type, const char *body, const char *wanted)
{
	size_t length = strlen(body);
	struct err e = ERR_INIT;

	for (size_t piece = 1; piece <= length; piece = piece < 40 ? piece + 1 : piece * 2) {
		CU_ASSERT_EQUAL(parse(type, body, length, piece, &e), 0);
		ASSERT_TEXT(buf_text(&log_text), wanted);
	}
	CU_ASSERT_EQUAL(parse(type, body, length, length, &e), 0);
	ASSERT_TEXT(buf_text(&log_text), wanted);
}

static void refuses(const char *type, const char *body, const char *why)
{
	struct err e = ERR_INIT;

	for (size_t piece = 1; piece < 20; piece++) {
		CU_ASSERT_EQUAL(parse(type, body, strlen(body), piece, &e), -1);
		CU_ASSERT_EQUAL(e.code, ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(e.shown, why));
	}
}

#define PART(disposition, data) "--b0\r\nContent-Disposition: " disposition "\r\n\r\n" data "\r\n"
#define END                     "--b0--\r\n"

static void test_forms(void)
{
	gives(TYPE, PART("form-data; name=\"files\"; filename=\"a.txt\"", "text") END,
	      "[files|=a.txt|text]");
	gives(TYPE,
	      "preamble\r\n" PART("form-data; name=\"x\"", "")
		  PART("form-data; filename=b; name=files", "--b\r\n--bx\r\r\n\r\n-") END
	      "epilogue",
	      "[x|-|][files|=b|--b\r\n--bx\r\r\n\r\n-]");
	gives("Multipart/Form-Data ; charset=utf-8; boundary=\"a b;c\"",
	      "--a b;c \t\r\nX: y\r\ncontent-DISPOSITION : form-data ;name = files ; "
	      "filename=\"\"\r\nContent-Type: text/plain\r\n\r\n1\r\n--a b;c--",
	      "[files|=|1]");
	/* nothing in it */
	gives(TYPE, END, "");
	gives(TYPE, "\r\n" END, "");
	/* the file has boundaries of others, and ends with a part of ours */
	gives(TYPE, PART("form-data; name=files; filename=x", "\r\n--b\r\n--B0--\r\n-") END,
	      "[files|=x|\r\n--b\r\n--B0--\r\n-]");
}

static void test_names(void)
{
	static const struct {
		const char *sent;
		const char *name;
	} names[] = {
	    {"filename=\"a;b.txt\"", "a;b.txt"},
	    {"filename=\"a\\\"b\\\\c\"", "a\"b\\c"},
	    {"filename=\"C:\\dir\\f\"", "C:\\dir\\f"},
	    {"filename=\"90%.txt\"", "90%.txt"},
	    {"filename=\"a%22b\"", "a%22b"},
	    {"filename=\" x = y \"", " x = y "},
	    {"filename=\"caf\xc3\xa9\"", "caf\xc3\xa9"},
	    {"filename=\"\xff\"", "\xff"},
	    {"filename=\"../../etc/passwd\"", "../../etc/passwd"},
	    {"filename=plain.txt", "plain.txt"},
	    {"filename=\"x\"; filename*=UTF-8''caf%C3%A9%20%22", "caf\xc3\xa9 \""},
	    {"filename*=iso-8859-1'en'%A3x; filename=\"x\"", "\xc2\xa3x"},
	    {"filename*=utf-8'en'a", "a"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char body[512];
		char wanted[256];

		(void)snprintf(body, sizeof(body),
			       "--b0\r\nContent-Disposition: form-data; name=\"files\"; %s\r\n\r\nd"
			       "\r\n--b0--",
			       names[i].sent);
		(void)snprintf(wanted, sizeof(wanted), "[files|=%s|d]", names[i].name);
		gives(TYPE, body, wanted);
	}
}

static void test_refusals(void)
{
	struct err e = ERR_INIT;

	refuses("application/json", END, "not multipart/form-data");
	refuses("multipart/form-datax; boundary=a", END, "not multipart/form-data");
	refuses("multipart/form-data", END, "no boundary");
	refuses("multipart/form-data; boundary=", END, "no boundary");
	refuses("multipart/form-data; boundary=\"open", END, "no boundary");
	refuses(TYPE, "", "before its last boundary");
	refuses(TYPE, "text", "before its last boundary");
	refuses(TYPE, PART("form-data; name=files", "x"), "before its last boundary");
	refuses(TYPE, "--b0\r\n\r\nx\r\n" END, "no Content-Disposition");
	refuses(TYPE, "--b0\r\nX: y\r\n\r\nx\r\n" END, "no Content-Disposition");
	refuses(TYPE, PART("attachment; name=files", "x") END, "not form-data");
	refuses(TYPE, PART("form-data", "x") END, "no name");
	refuses(TYPE, PART("form-data; filename=x", "x") END, "no name");
	refuses(TYPE, PART("form-data; name=\"open", "x") END, "no name");
	refuses(TYPE, PART("form-data; name=f; filename=\"open", "x") END, "file name");
	refuses(TYPE, PART("form-data; name=f; filename*=x", "x") END, "file name");
	refuses(TYPE, PART("form-data; name=f; filename*=UTF-7''x", "x") END, "file name");
	refuses(TYPE, PART("form-data; name=f; filename*=UTF-8''%0", "x") END, "file name");
	refuses(TYPE, PART("form-data; name=f; filename*=UTF-8''%00", "x") END, "file name");
	refuses(TYPE, PART("form-data; name=f; filename*=UTF-8''%0d%0aX", "x") END, "file name");
	refuses(TYPE, "--b0x\r\n" END, "behind a boundary");
	refuses(TYPE, "--b0\n" END, "behind a boundary");
	refuses(TYPE, "--b0-\r\n" END, "behind a boundary");
	refuses(TYPE,
		"--b0\r\nContent-Disposition: form-data; name=a\r\nContent-Disposition: form-data; "
		"name=b\r\n\r\n" END,
		"two Content-Disposition");
	CU_ASSERT_EQUAL(parse(TYPE, "--b0\r\nX: \0\r\n\r\n", 14, 14, &e), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.shown, "NUL"));
}

static void test_long(void)
{
	static char body[40000];
	struct err e = ERR_INIT;
	size_t length;

	/* a header without end */
	(void)snprintf(body, sizeof(body), "--b0\r\nX: ");
	length = strlen(body);
	memset(body + length, 'x', sizeof(body) - length);
	CU_ASSERT_EQUAL(parse(TYPE, body, sizeof(body), 1000, &e), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.shown, "16384"));
	/* names of 4095 bytes, and of 4096 */
	for (size_t extra = 0; extra < 2; extra++) {
		(void)snprintf(body, sizeof(body),
			       "--b0\r\nContent-Disposition: form-data; name=f; filename=\"");
		length = strlen(body);
		memset(body + length, 'n', 4095 + extra);
		(void)snprintf(body + length + 4095 + extra, 64, "\"\r\n\r\nd\r\n--b0--");
		CU_ASSERT_EQUAL(parse(TYPE, body, strlen(body), 100, &e), extra == 0 ? 0 : -1);
	}
}

static void test_what_an_event_gives(void)
{
	static const char body[] = PART("form-data; name=files; filename=a", "text") END;
	struct err e = ERR_INIT;

	for (fail_after = 0; fail_after < 2; fail_after++) {
		CU_ASSERT_EQUAL(parse(TYPE, body, strlen(body), 7, &e), -1);
		CU_ASSERT_EQUAL(e.code, ERR_STORAGE);
	}
	fail_after = -1;
}

static const struct test tests[] = {
    {"multipart", "forms", test_forms},
    {"multipart", "names", test_names},
    {"multipart", "refusals", test_refusals},
    {"multipart", "long ones", test_long},
    {"multipart", "what an event gives", test_what_an_event_gives},
};

int main(int argc, char **argv)
{
	int result = test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));

	buf_release(&log_text);
	return result;
}
