#include "runners/base/str.h"

#include <stdint.h>

int str_copy(char *out, size_t size, const char *text)
{
	size_t length = strlen(text);

	if (length >= size) {
		if (size > 0)
			out[0] = '\0';
		return -1;
	}
	memcpy(out, text, length + 1);
	return 0;
}

bool str_equal(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static unsigned char lower(unsigned char c)
{
	return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

bool str_equal_nocase(const char *a, const char *b)
{
	for (; *a != '\0' && *b != '\0'; a++, b++)
		if (lower((unsigned char)*a) != lower((unsigned char)*b))
			return false;
	return *a == *b;
}

const char *str_after(const char *text, const char *prefix)
{
	size_t length = strlen(prefix);

	return strncmp(text, prefix, length) == 0 ? text + length : NULL;
}

bool str_starts(const char *text, const char *prefix)
{
	return str_after(text, prefix) != NULL;
}

bool str_ends(const char *text, const char *suffix)
{
	size_t a = strlen(text);
	size_t b = strlen(suffix);

	return a >= b && memcmp(text + a - b, suffix, b) == 0;
}

bool str_equal_constant_time(const void *a, const void *b, size_t length)
{
	const unsigned char *x = a;
	const unsigned char *y = b;
	unsigned int difference = 0;

	for (size_t i = 0; i < length; i++)
		difference |= (unsigned int)(x[i] ^ y[i]);
	return difference == 0;
}

/* The length of the character that starts with c, 0 if none does; lo and hi bound the second byte.
 */
static size_t utf8_length(unsigned char c, unsigned char *lo, unsigned char *hi)
{
	*lo = 0x80;
	*hi = 0xBF;
	if (c < 0x80)
		return 1;
	if (c >= 0xC2 && c <= 0xDF)
		return 2;
	if (c >= 0xE0 && c <= 0xEF) {
		if (c == 0xE0)
			*lo = 0xA0;
		if (c == 0xED)
			*hi = 0x9F;
		return 3;
	}
	if (c >= 0xF0 && c <= 0xF4) {
		if (c == 0xF0)
			*lo = 0x90;
		if (c == 0xF4)
			*hi = 0x8F;
		return 4;
	}
	return 0;
}

size_t str_utf8_prefix(const void *data, size_t length, bool *out_bad)
{
	const unsigned char *p = data;
	size_t i = 0;

	*out_bad = false;
	while (i < length) {
		unsigned char lo;
		unsigned char hi;
		size_t need = utf8_length(p[i], &lo, &hi);

		if (need == 0) {
			*out_bad = true;
			return i;
		}
		for (size_t k = 1; k < need; k++) {
			if (i + k >= length)
				return i;
			if (p[i + k] < lo || p[i + k] > hi) {
				*out_bad = true;
				return i;
			}
			lo = 0x80;
			hi = 0xBF;
		}
		i += need;
	}
	return i;
}

bool str_utf8_valid(const void *data, size_t length)
{
	bool bad;

	return str_utf8_prefix(data, length, &bad) == length;
}

void str_hex(char *out, const void *data, size_t length)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = data;

	for (size_t i = 0; i < length; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * length] = '\0';
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int str_unhex(void *out, size_t size, const char *text)
{
	unsigned char *p = out;

	if (strlen(text) != 2 * size)
		return -1;
	for (size_t i = 0; i < size; i++) {
		int high = hex_value(text[2 * i]);
		int low = hex_value(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -1;
		p[i] = (unsigned char)(high * 16 + low);
	}
	return 0;
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void str_base64(struct buf *out, const void *data, size_t length)
{
	const unsigned char *p = data;
	size_t i = 0;
	char *w;

	if (length > SIZE_MAX / 2 || buf_reserve(out, (length + 2) / 3 * 4) != 0)
		return;
	w = out->data + out->len;
	for (; i + 2 < length; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2];

		*w++ = base64_digits[v >> 18];
		*w++ = base64_digits[v >> 12 & 63];
		*w++ = base64_digits[v >> 6 & 63];
		*w++ = base64_digits[v & 63];
	}
	if (i < length) {
		uint32_t v = (uint32_t)p[i] << 16;
		bool two = i + 1 < length;

		if (two)
			v |= (uint32_t)p[i + 1] << 8;
		*w++ = base64_digits[v >> 18];
		*w++ = base64_digits[v >> 12 & 63];
		*w++ = two ? base64_digits[v >> 6 & 63] : '=';
		*w++ = '=';
	}
	*w = '\0';
	out->len = (size_t)(w - out->data);
}

static int base64_value(char c)
{
	const char *at = c == '\0' ? NULL : strchr(base64_digits, c);

	return at == NULL ? -1 : (int)(at - base64_digits);
}

int str_unbase64(struct buf *out, const char *text, size_t length)
{
	if (length % 4 != 0)
		return -1;
	for (size_t i = 0; i < length; i += 4) {
		int a = base64_value(text[i]);
		int b = base64_value(text[i + 1]);
		int c = base64_value(text[i + 2]);
		int d = base64_value(text[i + 3]);
		bool last = i + 4 == length;
		unsigned char three[3];
		size_t count = 3;

		if (last && text[i + 3] == '=') {
			count = text[i + 2] == '=' ? 1 : 2;
			d = 0;
			if (count == 1)
				c = 0;
		}
		if (a < 0 || b < 0 || c < 0 || d < 0)
			return -1;
		if ((count == 1 && (b & 15) != 0) || (count == 2 && (c & 3) != 0))
			return -1;
		three[0] = (unsigned char)(a << 2 | b >> 4);
		three[1] = (unsigned char)((b & 15) << 4 | c >> 2);
		three[2] = (unsigned char)((c & 3) << 6 | d);
		buf_add(out, three, count);
	}
	return buf_ok(out) ? 0 : -1;
}

static bool unreserved(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

void str_percent_encode(struct buf *out, const void *data, size_t length, const char *keep)
{
	static const char digits[] = "0123456789ABCDEF";
	const unsigned char *p = data;

	for (size_t i = 0; i < length; i++) {
		if (unreserved(p[i]) || (p[i] != '\0' && strchr(keep, p[i]) != NULL)) {
			buf_add_char(out, (char)p[i]);
		} else {
			char escape[3] = {'%', digits[p[i] >> 4], digits[p[i] & 15]};

			buf_add(out, escape, sizeof(escape));
		}
	}
}

int str_percent_decode(struct buf *out, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		int high;
		int low;

		if (text[i] != '%') {
			buf_add_char(out, text[i]);
			continue;
		}
		if (length - i < 3)
			return -1;
		high = hex_value(text[i + 1]);
		low = hex_value(text[i + 2]);
		if (high < 0 || low < 0)
			return -1;
		buf_add_char(out, (char)(high * 16 + low));
		i += 2;
	}
	return buf_ok(out) ? 0 : -1;
}
