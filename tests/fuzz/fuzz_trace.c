/* fuzz_trace.c: the text of a trace, as a column or a notice may hold it. */
#include "runners/core/trace.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* NOLINTNEXTLINE(readability-identifier-naming): the name that libFuzzer calls */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace_list list;
	int64_t before = 0;

	trace_decode((const char *)data, size, &list);
	if (list.count > TRACE__MAX)
		abort();
	for (size_t i = 0; i < list.count; i++) {
		if (list.steps[i].has_step && list.steps[i].at_us != before + list.steps[i].step_us)
			abort();
		before = list.steps[i].at_us;
	}
	return 0;
}
