#include "handlers/fields.h"

#include "runners/base/buf.h"
#include "runners/base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#define PROBLEMS_MAX 20
#define NAME_BYTES   128

void problems_init(struct problems *p)
{
	p->list = json_array();
	p->failed = p->list == NULL;
}

void problems_release(struct problems *p)
{
	json_decref(p->list);
	p->list = NULL;
}

bool problems_any(const struct problems *p)
{
	return p->failed || json_array_size(p->list) > 0;
}

void problems_add(struct problems *p, const char *field, const char *allowed, const char *format,
		  ...)
{
	char message[256];
	va_list args;
	json_t *item;

	if (p->failed || json_array_size(p->list) >= PROBLEMS_MAX)
		return;
	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	item =
	    json_pack("{s:s, s:s, s:s?}", "field", field, "message", message, "allowed", allowed);
	if (item == NULL || json_array_append_new(p->list, item) != 0)
		p->failed = true;
}

static void decode_int(const json_t *value, const struct field *f, const char *name,
		       struct field_int *out, struct problems *p)
{
	char allowed[80];
	int64_t number = 0;
	bool good = false;

	(void)snprintf(allowed, sizeof(allowed), "a whole number from %" PRId64 " to %" PRId64,
		       f->lo, f->hi);
	if (json_is_integer(value)) {
		number = json_integer_value(value);
		good = true;
	} else if (json_is_real(value)) {
		double real = json_real_value(value);

		/* 2^53: beyond it a double does not hold every integer */
		good = fabs(real) <= 9007199254740992.0 && fabs(real - floor(real)) <= 0;
		number = good ? (int64_t)real : 0;
	}
	if (!good || number < f->lo || number > f->hi) {
		problems_add(p, name, allowed, "%s must be %s", name, allowed);
		return;
	}
	out->state = FIELD_SET;
	out->value = number;
}

static void decode_number(const json_t *value, const struct field *f, const char *name,
			  struct field_number *out, struct problems *p)
{
	char allowed[80];
	double number = json_is_number(value) ? json_number_value(value) : -1;

	(void)snprintf(allowed, sizeof(allowed), "a number from %" PRId64 " to %" PRId64, f->lo,
		       f->hi);
	if (!json_is_number(value) || number < (double)f->lo || number > (double)f->hi) {
		problems_add(p, name, allowed, "%s must be %s", name, allowed);
		return;
	}
	out->state = FIELD_SET;
	out->value = number;
}

static void decode_choice(const json_t *value, const struct field *f, const char *name,
			  struct field_text *out, struct problems *p)
{
	const char *text = json_text(value);
	char allowed[256] = "one of";
	size_t used;

	for (size_t i = 0; f->choices[i] != NULL; i++) {
		if (text != NULL && str_equal(text, f->choices[i])) {
			out->state = FIELD_SET;
			out->value = f->choices[i];
			return;
		}
		used = strlen(allowed);
		(void)snprintf(allowed + used, sizeof(allowed) - used, "%s %s", i == 0 ? "" : ",",
			       f->choices[i]);
	}
	problems_add(p, name, allowed, "%s must be %s", name, allowed);
}

static void decode_text(const json_t *value, const struct field *f, const char *name,
			struct field_text *out, struct problems *p)
{
	char allowed[80];

	(void)snprintf(allowed, sizeof(allowed),
		       "a string of at most %" PRId64 " bytes without NUL", f->hi);
	if (json_text(value) == NULL || (int64_t)json_string_length(value) > f->hi) {
		problems_add(p, name, allowed, "%s must be %s", name, allowed);
		return;
	}
	out->state = FIELD_SET;
	out->value = json_string_value(value);
}

static void decode_one(json_t *value, const struct field *f, const char *name, void *out,
		       struct problems *p)
{
	switch (f->kind) {
	case FIELD_INT:
		decode_int(value, f, name, out, p);
		return;
	case FIELD_NUMBER:
		decode_number(value, f, name, out, p);
		return;
	case FIELD_CHOICE:
		decode_choice(value, f, name, out, p);
		return;
	case FIELD_TEXT:
		decode_text(value, f, name, out, p);
		return;
	case FIELD_BOOL:
		if (!json_is_boolean(value)) {
			problems_add(p, name, "true or false", "%s must be true or false", name);
			return;
		}
		((struct field_bool *)out)->state = FIELD_SET;
		((struct field_bool *)out)->value = json_is_true(value);
		return;
	case FIELD_ARRAY:
	case FIELD_OBJECT:
		if (f->kind == FIELD_ARRAY ? !json_is_array(value) : !json_is_object(value)) {
			const char *allowed = f->kind == FIELD_ARRAY ? "an array" : "an object";

			problems_add(p, name, allowed, "%s must be %s", name, allowed);
			return;
		}
		((struct field_value *)out)->state = FIELD_SET;
		((struct field_value *)out)->value = value;
		return;
	}
}

void fields_decode(json_t *object, const char *prefix, const struct field *fields, size_t count,
		   void *out, struct problems *p)
{
	for (size_t i = 0; i < count; i++) {
		json_t *value = json_object_get(object, fields[i].name);
		char name[NAME_BYTES];
		/* every field struct starts with its state */
		enum field_state *state = (void *)((char *)out + fields[i].offset);

		(void)snprintf(name, sizeof(name), "%s%s", prefix, fields[i].name);
		if (value == NULL) {
			if (fields[i].required)
				problems_add(p, name, NULL, "%s is required", name);
		} else if (json_is_null(value)) {
			if (fields[i].required)
				problems_add(p, name, NULL, "%s must not be null", name);
			*state = FIELD_NULL;
		} else {
			decode_one(value, &fields[i], name, state, p);
		}
	}
}
