/*
 * fields.h: decoding a JSON object into a struct by a table, and collecting every problem found.
 *
 *	static const struct field fields[] = {
 *	    {"timeout_sec", FIELD_INT, offsetof(struct x, timeout), .lo = 1, .hi = 3600},
 *	};
 *	fields_decode(object, "", fields, ARRAY_LEN(fields), &x, &problems);
 *
 * Types are strict: a number in a string, a boolean or a fraction for an integer is a problem; 60.0
 *is 60. An absent member leaves the struct as it is; null sets FIELD_NULL in the member's state.
 *Unknown members are ignored. Texts point into the JSON value, which the caller keeps; text with a
 *NUL cannot come from json_parse.
 */
#ifndef CORDON_HANDLERS_FIELDS_H
#define CORDON_HANDLERS_FIELDS_H

#include "runners/core/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_state { FIELD_ABSENT = 0, FIELD_NULL, FIELD_SET };

struct field_int {
	enum field_state state;
	int64_t value;
};

struct field_number {
	enum field_state state;
	double value;
};

struct field_bool {
	enum field_state state;
	bool value;
};

struct field_text {
	enum field_state state;
	const char *value;
};

/* An array or object that the caller walks itself. */
struct field_value {
	enum field_state state;
	json_t *value; /* borrowed */
};

enum field_kind {
	FIELD_INT,
	FIELD_NUMBER,
	FIELD_BOOL,
	FIELD_TEXT,
	FIELD_CHOICE,
	FIELD_ARRAY,
	FIELD_OBJECT
};

struct field {
	const char *name;
	enum field_kind kind;
	size_t offset;
	int64_t lo; /* FIELD_INT, FIELD_NUMBER: bounds; FIELD_TEXT: hi is the maximum of bytes */
	int64_t hi;
	const char *const *choices; /* FIELD_CHOICE: NULL at the end */
	bool required;
};

/* What one object of a request is decoded by, for those who compare it with its description. */
struct field_table {
	const struct field *fields;
	size_t count;
};

/* Problems as a JSON array of {field, message, allowed}; at most 20 are kept. */
struct problems {
	json_t *list;
	bool failed;
};

void problems_init(struct problems *p);
void problems_release(struct problems *p);
bool problems_any(const struct problems *p);
/* allowed may be NULL. */
void problems_add(struct problems *p, const char *field, const char *allowed, const char *format,
		  ...) __attribute__((format(printf, 4, 5)));

void fields_decode(json_t *object, const char *prefix, const struct field *fields, size_t count,
		   void *out, struct problems *p);

#endif
