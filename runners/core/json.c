#include "runners/core/json.h"

#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <math.h>
#include <openssl/sha.h>

/* jansson reports a failed allocation as whatever it stumbles over next, or not at all: a string
 * that its buffer could not hold comes out cut. */
static _Thread_local bool allocation_failed;

static void *allocate(size_t size)
{
	void *p = mem_alloc(size);

	if (p == NULL)
		allocation_failed = true;
	return p;
}

void json_setup(void)
{
	json_set_alloc_funcs(allocate, mem_free);
}

/* Depth and number of values, strings skipped, before anything is built: jansson's own limit of
 * depth is compiled in and higher. */
static int judge_shape(const char *text, size_t length, struct err *e)
{
	size_t depth = 0;
	size_t values = 0;
	bool in_string = false;

	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > LIMIT_JSON_DEPTH)
				return err_show(e, ERR_INVALID,
						"the JSON nests deeper than %d levels",
						LIMIT_JSON_DEPTH);
		} else if ((c == '}' || c == ']') && depth > 0) {
			depth--;
		} else if (c == ',' && ++values > LIMIT_JSON_VALUES) {
			/* a large object costs far more time and memory than its bytes */
			return err_show(e, ERR_INVALID, "the JSON has more than %d values",
					LIMIT_JSON_VALUES);
		}
	}
	return 0;
}

/* The key in front of the number that ends at `end`, for the message about it. */
static void field_before(const char *text, size_t end, char *out, size_t size)
{
	size_t i = end;
	size_t stop;

	(void)snprintf(out, size, "a number");
	while (i > 0 && text[i - 1] != ':' && text[i - 1] != ',' && text[i - 1] != '{')
		i--;
	if (i == 0 || text[i - 1] != ':')
		return;
	i--;
	while (i > 0 && text[i - 1] != '"')
		i--;
	if (i == 0)
		return;
	stop = --i;
	while (i > 0 && text[i - 1] != '"')
		i--;
	if (i > 0 && stop > i && stop - i < size) {
		memcpy(out, text + i, stop - i);
		out[stop - i] = '\0';
	}
}

/* jansson's message quotes the text up to the fault, which may be the middle of a character. */
static void make_text(char *message)
{
	size_t length = strlen(message);
	size_t at = 0;
	bool bad;

	while ((at += str_utf8_prefix(message + at, length - at, &bad)) < length)
		message[at++] = '?';
}

int json_parse(const char *text, size_t length, json_t **out, struct err *e)
{
	json_error_t why;
	json_t *value;

	if (judge_shape(text, length, e) != 0)
		return -1;
	allocation_failed = false;
	value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	if (allocation_failed) {
		json_decref(value);
		return err_set(e, ERR_NOMEM, 0, "json");
	}
	if (value != NULL && !json_is_object(value)) {
		json_decref(value);
		return err_show(e, ERR_INVALID, "The body must be a JSON object.");
	}
	if (value != NULL) {
		*out = value;
		return 0;
	}
	if (json_error_code(&why) == json_error_out_of_memory)
		return err_set(e, ERR_NOMEM, 0, "json");
	if (json_error_code(&why) == json_error_numeric_overflow) {
		char field[64];
		size_t at = why.position > 0 && (size_t)why.position <= length
				? (size_t)why.position
				: length;

		field_before(text, at, field, sizeof(field));
		return err_show(e, ERR_LIMIT, "%s", field);
	}
	make_text(why.text);
	return err_show(e, ERR_INVALID, "the body is not valid JSON: %s (line %d, column %d)",
			why.text, why.line, why.column);
}

const char *json_text(const json_t *value)
{
	const char *text = json_string_value(value);

	return text != NULL && strlen(text) == json_string_length(value) ? text : NULL;
}

static int append_chunk(const char *data, size_t size, void *arg)
{
	struct buf *out = arg;

	buf_add(out, data, size);
	return buf_ok(out) ? 0 : -1;
}

int json_write(struct buf *out, const json_t *value, struct err *e)
{
	if (json_dump_callback(value, append_chunk, out,
			       JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) != 0)
		return err_set(e, buf_error(out) == ERR_LIMIT ? ERR_LIMIT : ERR_NOMEM, 0,
			       "cannot write JSON");
	return 0;
}

static void canonical_string(struct buf *out, const char *text, size_t length)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = (const unsigned char *)text;

	buf_add_char(out, '"');
	for (size_t i = 0; i < length; i++) {
		uint32_t c = p[i];
		uint32_t units[2];
		size_t count = 1;
		const char *named = strchr("\"\\\b\f\n\r\t", (int)c);

		if (c != 0 && named != NULL && *named != '\0') {
			buf_add_char(out, '\\');
			buf_add_char(out, "\"\\bfnrt"[named - "\"\\\b\f\n\r\t"]);
			continue;
		}
		if (c >= 0x20 && c < 0x80) {
			buf_add_char(out, (char)c);
			continue;
		}
		/* jansson's strings are valid UTF-8 */
		if (c >= 0xF0 && i + 3 < length) {
			c = (c & 7) << 18 | (uint32_t)(p[i + 1] & 63) << 12 |
			    (uint32_t)(p[i + 2] & 63) << 6 | (p[i + 3] & 63U);
			i += 3;
		} else if (c >= 0xE0 && i + 2 < length) {
			c = (c & 15) << 12 | (uint32_t)(p[i + 1] & 63) << 6 | (p[i + 2] & 63U);
			i += 2;
		} else if (c >= 0xC0 && i + 1 < length) {
			c = (c & 31) << 6 | (p[i + 1] & 63U);
			i += 1;
		}
		units[0] = c;
		if (c >= 0x10000) {
			units[0] = 0xD800 + ((c - 0x10000) >> 10);
			units[1] = 0xDC00 + ((c - 0x10000) & 0x3FF);
			count = 2;
		}
		for (size_t k = 0; k < count; k++) {
			char escape[6] = {'\\',
					  'u',
					  digits[units[k] >> 12 & 15],
					  digits[units[k] >> 8 & 15],
					  digits[units[k] >> 4 & 15],
					  digits[units[k] & 15]};

			buf_add(out, escape, sizeof(escape));
		}
	}
	buf_add_char(out, '"');
}

/* As Python's json writes it (the fingerprints of face 1 are defined by that): the fewest digits
 * that read back equal, an exponent only below 1e-4 and from 1e16 on. */
static void canonical_real(struct buf *out, double value)
{
	char text[40];
	const char *exponent;
	int power = 0;
	int digits = 1;

	for (; digits < 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*e", digits - 1, value);
		if (fabs(strtod(text, NULL) - value) <= 0)
			break;
	}
	(void)snprintf(text, sizeof(text), "%.*e", digits - 1, value);
	exponent = strchr(text, 'e');
	for (const char *p = exponent == NULL ? "" : exponent + 2; *p != '\0'; p++)
		power = power * 10 + (*p - '0');
	if (exponent != NULL && exponent[1] == '-')
		power = -power;
	if (power >= -4 && power < 16)
		(void)snprintf(text, sizeof(text), "%.*f",
			       digits - 1 > power ? digits - 1 - power : 1, value);
	buf_add_str(out, text);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* One level a call, at most LIMIT_JSON_DEPTH plus what our own code wraps around: bounded
 * recursion. */
static void canonical(struct buf *out, const json_t *value,
		      unsigned int depth) // NOLINT(misc-no-recursion)
{
	const char **keys;
	size_t count = 0;
	size_t n;

	if (depth > LIMIT_JSON_DEPTH + 8) {
		out->failed = true;
		return;
	}
	switch (json_typeof(value)) {
	case JSON_STRING:
		canonical_string(out, json_string_value(value), json_string_length(value));
		return;
	case JSON_INTEGER:
		buf_addf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		return;
	case JSON_REAL:
		canonical_real(out, json_real_value(value));
		return;
	case JSON_TRUE:
		buf_add_str(out, "true");
		return;
	case JSON_FALSE:
		buf_add_str(out, "false");
		return;
	case JSON_NULL:
		buf_add_str(out, "null");
		return;
	case JSON_ARRAY:
		buf_add_char(out, '[');
		for (size_t i = 0; i < json_array_size(value); i++) {
			if (i > 0)
				buf_add_char(out, ',');
			canonical(out, json_array_get(value, i), depth + 1);
		}
		buf_add_char(out, ']');
		return;
	case JSON_OBJECT:
		break;
	}
	n = json_object_size(value);
	keys = mem_zalloc(n, sizeof(*keys));
	if (keys == NULL) {
		out->failed = true;
		return;
	}
	for (void *iter = json_object_iter((json_t *)(uintptr_t)value); iter != NULL && count < n;
	     iter = json_object_iter_next((json_t *)(uintptr_t)value, iter)) {
		keys[count++] = json_object_iter_key(iter);
	}
	/* the number of keys is the client's: no quadratic sort */
	qsort(keys, count, sizeof(*keys), by_text);
	buf_add_char(out, '{');
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			buf_add_char(out, ',');
		canonical_string(out, keys[i], strlen(keys[i]));
		buf_add_char(out, ':');
		canonical(out, json_object_get(value, keys[i]), depth + 1);
	}
	buf_add_char(out, '}');
	mem_free(keys);
}

int json_canonical(struct buf *out, const json_t *value, struct err *e)
{
	canonical(out, value, 0);
	if (!buf_ok(out))
		return err_set(e, ERR_NOMEM, 0, "cannot write canonical JSON");
	return 0;
}

json_t *
json_without_nulls(const json_t *value) // NOLINT(misc-no-recursion): depth is bounded by json_parse
{
	json_t *copy;

	if (json_is_object(value)) {
		const char *key;
		json_t *member;

		copy = json_object();
		json_object_foreach ((json_t *)(uintptr_t)value, key, member) {
			if (!json_is_null(member) &&
			    json_object_set_new(copy, key, json_without_nulls(member)) != 0) {
				json_decref(copy);
				return NULL;
			}
		}
		return copy;
	}
	if (json_is_array(value)) {
		copy = json_array();
		for (size_t i = 0; i < json_array_size(value); i++) {
			if (json_array_append_new(
				copy, json_without_nulls(json_array_get(value, i))) != 0) {
				json_decref(copy);
				return NULL;
			}
		}
		return copy;
	}
	return json_deep_copy(value);
}

int json_fingerprint(const json_t *value, unsigned char out[32], struct err *e)
{
	struct buf text;
	int result;

	buf_init(&text, LIMIT_REPLY_BYTES * 4);
	result = json_canonical(&text, value, e);
	if (result == 0)
		(void)SHA256((const unsigned char *)buf_text(&text), text.len, out);
	buf_release(&text);
	return result;
}
