#include "tests/lib/boxrig.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#define SKIPPED 77

int rig_main(struct rig *r, unsigned int slots, int argc, char **argv, const struct test *tests,
	     size_t count)
{
	char instance[sizeof(r->instance)];
	char why[128];
	int result;

	if (!rig_possible(why, sizeof(why))) {
		(void)printf("skipped: %s\n", why);
		return SKIPPED;
	}
	if (rig_start(r, slots) != 0) {
		(void)printf("cordon-box does not start\n");
		return 1;
	}
	memcpy(instance, r->instance, sizeof(instance));
	result = test_main(argc, argv, tests, count);
	if (!rig_stop(r) || rig_groups_left(instance) != 0) {
		(void)printf("cordon-box did not stop cleanly\n");
		return 1;
	}
	return result;
}
