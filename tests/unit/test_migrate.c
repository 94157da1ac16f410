/* test_migrate: the splitter of migration files agrees with the plain client; the image digest. */
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/image.h"
#include "runners/core/store_migrate.h"
#include "tests/lib/test.h"

/* The statements of text joined by '|'. */
static void split_is(const char *text, const char *want)
{
	scope_buf struct buf got;
	const char *at = text;
	const char *start;
	size_t length;
	size_t count = 0;

	buf_init(&got, 10000);
	while (migrate_split(&at, &start, &length)) {
		CU_ASSERT(length > 0);
		buf_addf(&got, "%s%.*s", count++ == 0 ? "" : "|", (int)length, start);
	}
	ASSERT_TEXT(buf_text(&got), want);
	CU_ASSERT_EQUAL(*at, '\0');
}

static void test_split(void)
{
	split_is("", "");
	split_is("  \r\n\t", "");
	split_is("-- only a comment", "");
	split_is("A", "A");
	split_is("A;", "A");
	split_is("A;B", "A|B");
	split_is("A; B ;\n", "A|B ");
	split_is(";;A;;\n;B;", "A|B");
	split_is("-- x;y\nA;\n-- z\n  -- w\nB;", "A|B");
	split_is("A 1 -- c; d\n + 2; B", "A 1 -- c; d\n + 2|B");
	split_is("A -- c", "A -- c");
	split_is("# x;y\nA; # z;\nB", "A|B");
	split_is("/* a;b */ A /* c;d */ 1; B /* e", "A /* c;d */ 1|B /* e");
	split_is("A '/*'; B '*/'", "A '/*'|B '*/'");
	/* no comment without a blank behind it, as in the client */
	split_is("A 5--3; B", "A 5--3|B");
	split_is("A 1--\n;B", "A 1--\n|B");
	split_is("A --", "A --");
}

static void test_split_quotes(void)
{
	split_is("A 'x;y'; B", "A 'x;y'|B");
	split_is("A \"x;'y\"; B", "A \"x;'y\"|B");
	split_is("A `x;\\`; B", "A `x;\\`|B");
	split_is("A 'it''s; x'; B", "A 'it''s; x'|B");
	split_is("A 'it\\'s; x'; B", "A 'it\\'s; x'|B");
	split_is("A '\\\\'; B", "A '\\\\'|B");
	split_is("A '-- x\n;'; B", "A '-- x\n;'|B");
	split_is("A 'open; B", "A 'open; B");
	split_is("A 'x\\", "A 'x\\");
	split_is("A -- it's\n; B", "A -- it's\n|B");
	split_is("A # it's\n; B 'x'", "A # it's\n|B 'x'");
}

static void test_split_delimited(void)
{
	split_is("DELIMITER //\nCREATE P BEGIN A; B; END\n//\nDELIMITER ;\nC;",
		 "CREATE P BEGIN A; B; END|C");
	split_is(
	    "A;\n-- x\nDELIMITER //\nP 'x;' END\n//\nDELIMITER ;\n\nDELIMITER //\nQ;\n//\nDELIMITER ;\n",
	    "A|P 'x;' END|Q;");
	/* a word in the middle is none */
	split_is("A DELIMITER //\nB; C", "A DELIMITER //\nB|C");
	split_is("DELIMITER //\nopen; end", "open; end");
	split_is("DELIMITER //\n", "");
}

static void test_image_digest(void)
{
	char a[IMAGE_DIGEST_SIZE] = "";
	char b[IMAGE_DIGEST_SIZE] = "";
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(image_digest("host", a, &e), 0);
	CU_ASSERT_EQUAL(image_digest("host", b, &e), 0);
	ASSERT_TEXT(a, b);
	CU_ASSERT(str_starts(a, "sha256:"));
	CU_ASSERT_EQUAL(strlen(a), 7 + 64);
	CU_ASSERT_EQUAL(strspn(a + 7, "0123456789abcdef"), 64);
	CU_ASSERT_EQUAL(image_digest("../host", a, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_NOT_FOUND);
}

static int digest(void *context, struct err *e)
{
	char out[IMAGE_DIGEST_SIZE];

	(void)context;
	return image_digest("host", out, e);
}

static void test_image_faults(void)
{
	char right[IMAGE_DIGEST_SIZE];
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(image_digest("host", right, &e), 0);
	fault_loop(digest, NULL);
	/* a digest of half of the sources would be a wrong name */
	for (unsigned long n = 1; n < 100; n++) {
		char out[IMAGE_DIGEST_SIZE] = "";
		int done;
		bool failed;

		err_clear(&e);
		mem_fail_at(n);
		done = image_digest("host", out, &e);
		failed = mem_has_failed();
		mem_fail_at(0);
		if (done == 0)
			ASSERT_TEXT(out, right);
		if (!failed)
			break;
	}
}

static const struct test tests[] = {
    {"migrate", "split", test_split},
    {"migrate", "split quotes", test_split_quotes},
    {"migrate", "delimiters", test_split_delimited},
    {"image", "digest", test_image_digest},
    {"image", "digest faults", test_image_faults},
};

TEST_MAIN(tests)
