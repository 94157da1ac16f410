#include "runners/base/num.h"

#include <inttypes.h>
#include <stdbool.h>

/* Digits only; false on anything else and on overflow. */
static bool digits_value(const char *text, uint64_t *out)
{
	uint64_t value = 0;

	if (*text == '\0')
		return false;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9')
			return false;
		if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	}
	*out = value;
	return true;
}

int num_u64(const char *field, const char *text, uint64_t lo, uint64_t hi, uint64_t *out,
	    struct err *e)
{
	uint64_t value;

	if (text == NULL || !digits_value(text, &value) || value < lo || value > hi)
		return err_show(e, ERR_INVALID,
				"%s must be a whole number from %" PRIu64 " to %" PRIu64, field, lo,
				hi);
	*out = value;
	return 0;
}

int num_i64(const char *field, const char *text, int64_t lo, int64_t hi, int64_t *out,
	    struct err *e)
{
	bool negative = text != NULL && text[0] == '-';
	uint64_t value = 0;
	int64_t signed_value = 0;
	bool good = text != NULL && digits_value(negative ? text + 1 : text, &value);

	if (good && negative && value == (uint64_t)INT64_MAX + 1)
		signed_value = INT64_MIN;
	else if (good && value <= INT64_MAX)
		signed_value = negative ? -(int64_t)value : (int64_t)value;
	else
		good = false;
	if (!good || signed_value < lo || signed_value > hi)
		return err_show(e, ERR_INVALID,
				"%s must be a whole number from %" PRId64 " to %" PRId64, field, lo,
				hi);
	*out = signed_value;
	return 0;
}
