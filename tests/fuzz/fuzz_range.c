/* fuzz_range: "<Range>\n<size>": a part is only ever given of what is there. */
#include "handlers/range.h"
#include "runners/base/mem.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	scope_free char *text = mem_dup_bytes(data, size);
	char *line = text == NULL ? NULL : strchr(text, '\n');
	uint64_t length = 0;
	enum range_verdict verdict;

	if (line != NULL) {
		*line++ = '\0';
		for (; *line >= '0' && *line <= '9'; line++)
			length = length * 10 + (uint64_t)(*line - '0');
	}
	if (text == NULL)
		return 0;
	verdict = range_judge(true, text, NULL, length, "\"e\"", "m");
	if (verdict == RANGE_PART && (length == 0 || strchr(text, ',') != NULL))
		abort();
	if (range_judge(false, text, NULL, length, "\"e\"", "m") != RANGE_WHOLE)
		abort();
	if (verdict != RANGE_WHOLE &&
	    range_judge(true, text, "\"old\"", length, "\"e\"", "m") != RANGE_WHOLE)
		abort();
	return 0;
}
