/*
 * test_box.c: cordon-box, its zygote, and the agent in real boxes. Starts a cordon-box of its own.
 */
#include "tests/lib/boxrig.h"

#include "runners/base/clock.h"
#include "runners/base/str.h"

#include <CUnit/Basic.h>

static struct rig rig;

static bool text_is(const struct buf *b, const char *text)
{
	return b->len == strlen(text) && memcmp(buf_text(b), text, b->len) == 0;
}

static void test_true(void)
{
	struct rig_box b;
	struct box_reply end;
	char program[] = "true";
	char *argv[] = {program, NULL};

	CU_ASSERT_EQUAL_FATAL(rig_create(&rig, &b, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(rig_run(&rig, &b, argv), 0);
	CU_ASSERT_EQUAL(b.status.how, AGENT_EXITED);
	CU_ASSERT_EQUAL(b.status.code, 0);
	CU_ASSERT_TRUE(b.started);
	CU_ASSERT_EQUAL_FATAL(rig_destroy(&rig, &b, &end), 0);
	CU_ASSERT_TRUE(end.stats.wall_us > 0);
	CU_ASSERT_TRUE(end.stats.cpu_us > 0);
	CU_ASSERT_EQUAL(end.stats.oom_kills, 0);
}

int main(void)
{
	char why[128];
	unsigned int failed;
	CU_pSuite suite;

	if (!rig_possible(why, sizeof(why))) {
		(void)printf("skipped: %s\n", why);
		return 77;
	}
	if (rig_start(&rig, 24) != 0) {
		(void)printf("cordon-box does not start\n");
		return 1;
	}
	if (CU_initialize_registry() != CUE_SUCCESS)
		return 1;
	suite = CU_add_suite("box", NULL, NULL);
	CU_add_test(suite, "true", test_true);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	(void)CU_basic_run_tests();
	failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	(void)text_is;
	if (!rig_stop(&rig)) {
		(void)printf("cordon-box did not stop cleanly\n");
		return 1;
	}
	return failed == 0 ? 0 : 1;
}
