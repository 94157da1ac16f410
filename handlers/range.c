#include "handlers/range.h"

#include "runners/base/num.h"
#include "runners/base/str.h"

#include <strings.h>

/* A position: 1 good, 0 empty, -1 broken or beyond 2^63-1. */
static int position(const char *text, size_t length, uint64_t *out)
{
	char digits[24];
	struct err ignored = ERR_INIT;

	if (length == 0)
		return 0;
	if (length >= sizeof(digits))
		return -1;
	memcpy(digits, text, length);
	digits[length] = '\0';
	return num_u64("position", digits, 0, INT64_MAX, out, &ignored) == 0 ? 1 : -1;
}

static bool fresh(const char *if_range, const char *etag, const char *modified)
{
	return if_range == NULL || str_equal(if_range, if_range[0] == '"' ? etag : modified);
}

enum range_verdict range_judge(bool is_get, const char *range, const char *if_range, uint64_t size,
			       const char *etag, const char *modified)
{
	const char *spec;
	const char *dash;
	uint64_t first = 0;
	uint64_t last = INT64_MAX;
	int has_first;
	int has_last;

	if (!is_get || range == NULL || strncasecmp(range, "bytes=", 6) != 0)
		return RANGE_WHOLE;
	if (!fresh(if_range, etag, modified))
		return RANGE_WHOLE;
	spec = range + 6;
	dash = strchr(spec, '-');
	/* a comma makes the second half broken */
	if (dash == NULL)
		return RANGE_REFUSED;
	has_first = position(spec, (size_t)(dash - spec), &first);
	has_last = position(dash + 1, strlen(dash + 1), &last);
	if (has_first < 0 || has_last < 0 || (has_first == 0 && has_last == 0))
		return RANGE_REFUSED;
	if (has_first == 1 && has_last == 1 && last < first)
		return RANGE_REFUSED;
	if (size == 0)
		return RANGE_WHOLE;
	if (has_first == 0)
		return last == 0 ? RANGE_REFUSED : RANGE_PART;
	return first < size ? RANGE_PART : RANGE_REFUSED;
}
