#include "runners/base/glob.h"

#include "runners/base/str.h"

#include <stdint.h>

/* One character at p (at least one byte left): its length; *out_code is above Unicode for bad
 * bytes.
 */
static size_t next_char(const char *p, size_t left, uint32_t *out_code)
{
	const unsigned char *u = (const unsigned char *)p;
	size_t length = u[0] < 0x80 ? 1 : u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
	uint32_t code;

	if (length == 1) {
		*out_code = u[0];
		return 1;
	}
	if (length > left || !str_utf8_valid(p, length)) {
		*out_code = UINT32_C(0x200000) + u[0];
		return 1;
	}
	code = u[0] & (0xFFU >> (length + 1));
	for (size_t i = 1; i < length; i++)
		code = code << 6 | (u[i] & 0x3FU);
	*out_code = code;
	return length;
}

/* The offset behind the `]` that closes the set at p[0] == '[', or 0 when it is not closed. */
static size_t set_end(const char *p, size_t left)
{
	size_t i = 1;

	if (i < left && p[i] == '!')
		i++;
	if (i < left && p[i] == ']')
		i++;
	while (i < left && p[i] != ']')
		i++;
	return i < left ? i + 1 : 0;
}

/* set: the bytes between the brackets. */
static bool set_has(const char *set, size_t length, uint32_t code)
{
	bool inverted = length > 0 && set[0] == '!';
	size_t i = inverted ? 1 : 0;
	bool found = false;

	while (i < length && !found) {
		uint32_t low;
		uint32_t high;

		i += next_char(set + i, length - i, &low);
		high = low;
		if (length - i >= 2 && set[i] == '-') {
			i++;
			i += next_char(set + i, length - i, &high);
		}
		found = low <= code && code <= high;
	}
	return found != inverted;
}

/* One pattern item other than `*` at p against one character; the item's length, or 0: no match.
 * may_close: a `]` stands at or behind p (else looking for it each time would cost too much). */
static size_t item_match(const char *p, size_t left, bool may_close, uint32_t code,
			 uint64_t *budget)
{
	uint32_t want;
	size_t end;

	if (p[0] == '?')
		return 1;
	if (p[0] == '[' && may_close) {
		end = set_end(p, left);
		/* a set costs its length */
		*budget -= *budget < end ? *budget : end;
		if (end != 0)
			return set_has(p + 1, end - 2, code) ? end : 0;
	}
	end = next_char(p, left, &want);
	return want == code ? end : 0;
}

bool glob_match(const char *pattern, size_t pattern_length, const char *text, size_t text_length,
		uint64_t *budget)
{
	size_t p = 0;
	size_t t = 0;
	size_t star = SIZE_MAX; /* the offset behind the last `*` */
	size_t mark = 0;        /* where that `*` ends its match so far */
	const char *last = memrchr(pattern, ']', pattern_length);
	size_t closed = last == NULL ? 0 : (size_t)(last - pattern) + 1;

	while (t < text_length) {
		uint32_t code;
		size_t used = next_char(text + t, text_length - t, &code);
		size_t item = 0;

		if (*budget == 0)
			return false;
		(*budget)--;
		if (p < pattern_length && pattern[p] == '*') {
			star = ++p;
			mark = t;
			continue;
		}
		if (p < pattern_length)
			item =
			    item_match(pattern + p, pattern_length - p, p < closed, code, budget);
		if (item > 0) {
			p += item;
			t += used;
			continue;
		}
		if (star == SIZE_MAX)
			return false;
		mark += next_char(text + mark, text_length - mark, &code);
		p = star;
		t = mark;
	}
	while (p < pattern_length && pattern[p] == '*')
		p++;
	return p == pattern_length;
}
