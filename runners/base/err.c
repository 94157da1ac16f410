#include "runners/base/err.h"

#include "runners/base/str.h"

#include <errno.h>
#include <stdarg.h>

/* A text that was cut may end in the middle of a character: `shown` must stay valid in JSON. */
static void drop_half_character(char *text)
{
	size_t length = strlen(text);
	size_t start = length > 3 ? length - 3 : 0;

	for (size_t i = start; i < length; i++) {
		bool bad;

		if (((unsigned char)text[i] & 0xC0) == 0xC0 &&
		    str_utf8_prefix(text + i, length - i, &bad) == 0 && !bad) {
			text[i] = '\0';
			return;
		}
	}
}

int err_set(struct err *e, enum err_code code, int sys, const char *format, ...)
{
	va_list args;
	size_t used;

	if (e->code != ERR_NONE)
		return -1;
	e->code = code;
	e->sys = sys;
	va_start(args, format);
	if (vsnprintf(e->text, sizeof(e->text), format, args) >= (int)sizeof(e->text))
		drop_half_character(e->text);
	va_end(args);
	used = strlen(e->text);
	if (sys != 0 && used + 4 < sizeof(e->text)) {
		char name[96];
		const char *reason = strerror_r(sys, name, sizeof(name));

		(void)snprintf(e->text + used, sizeof(e->text) - used, ": %s", reason);
	}
	return -1;
}

int err_show(struct err *e, enum err_code code, const char *format, ...)
{
	va_list args;

	if (e->code != ERR_NONE)
		return -1;
	e->code = code;
	va_start(args, format);
	if (vsnprintf(e->shown, sizeof(e->shown), format, args) >= (int)sizeof(e->shown))
		drop_half_character(e->shown);
	va_end(args);
	(void)snprintf(e->text, sizeof(e->text), "%s", e->shown);
	return -1;
}

int err_wrap(struct err *e, const char *format, ...)
{
	char context[sizeof(e->text)];
	char whole[sizeof(e->text) * 2];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(context, sizeof(context), format, args);
	va_end(args);
	(void)snprintf(whole, sizeof(whole), "%s: %s", context, e->text);
	(void)snprintf(e->text, sizeof(e->text), "%.*s", (int)sizeof(e->text) - 1, whole);
	return -1;
}

void err_clear(struct err *e)
{
	e->code = ERR_NONE;
	e->sys = 0;
	e->text[0] = '\0';
	e->shown[0] = '\0';
}

const char *err_code_name(enum err_code code)
{
	static const char *const names[ERR__MAX] = {
	    [ERR_NONE] = "none",
	    [ERR_INVALID] = "invalid",
	    [ERR_NOT_FOUND] = "not_found",
	    [ERR_CONFLICT] = "conflict",
	    [ERR_DENIED] = "denied",
	    [ERR_UNAUTHORIZED] = "unauthorized",
	    [ERR_LIMIT] = "limit",
	    [ERR_UNAVAILABLE] = "unavailable",
	    [ERR_STORAGE] = "storage",
	    [ERR_UNKNOWN_OUTCOME] = "unknown_outcome",
	    [ERR_TIMEOUT] = "timeout",
	    [ERR_PROTOCOL] = "protocol",
	    [ERR_IO] = "io",
	    [ERR_NOMEM] = "nomem",
	    [ERR_INTERNAL] = "internal",
	};

	return code < ERR__MAX && names[code] != NULL ? names[code] : "?";
}
