/* test_errors: the table of error codes is in order, complete and printable. */
#include "handlers/errors.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

static void test_rows(void)
{
	for (size_t i = 0; i < error_row_count; i++) {
		const struct error_row *row = &error_rows[i];

		CU_ASSERT(row->status >= 400 && row->status <= 599);
		CU_ASSERT(row->meaning[0] != '\0' && row->action[0] != '\0');
		CU_ASSERT_PTR_NULL(strpbrk(row->meaning, "|\n"));
		CU_ASSERT_PTR_NULL(strpbrk(row->action, "|\n"));
		CU_ASSERT_PTR_EQUAL(error_find(row->code), row);
		if (i > 0)
			CU_ASSERT(
			    row[-1].status < row->status ||
			    (row[-1].status == row->status && strcmp(row[-1].code, row->code) < 0));
	}
	CU_ASSERT_PTR_NULL(error_find("no_such_code"));
}

static void test_texts(void)
{
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, 1U << 16);
	errors_list(&text);
	CU_ASSERT(buf_ok(&text));
	CU_ASSERT(str_starts(buf_text(&text), "400 image_store_cleanup_confirmation_required\n"));
	buf_reset(&text);
	errors_doc(&text);
	CU_ASSERT(buf_ok(&text));
	CU_ASSERT_PTR_NOT_NULL(strstr(buf_text(&text), "| 429 | `queue_full` |"));
}

static const struct test tests[] = {
    {"errors", "rows", test_rows},
    {"errors", "texts", test_texts},
};

TEST_MAIN(tests)
