/* fuzz_boxproto.c: records into both checks, and pattern against path into the matcher. */
#include "runners/base/boxproto.h"
#include "runners/base/glob.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* NOLINTNEXTLINE(readability-identifier-naming): the name that libFuzzer calls */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct box_request request;
	struct box_reply reply;
	struct err e = ERR_INIT;
	uint64_t tag;
	uint32_t verb;

	if (box_request_check(data, size, &request, &tag, &verb, &e) == 0)
		(void)box_verb_name(request.verb);
	err_clear(&e);
	if (box_reply_check(data, size, &reply, &e) == 0)
		(void)strlen(reply.text);
	if (size > 1 && data[0] < size)
		(void)glob_match((const char *)data + 1, data[0] == 0 ? 0 : data[0] - 1U,
				 (const char *)data + data[0], size - data[0],
				 &(uint64_t){UINT64_C(1) << 40});
	return 0;
}
