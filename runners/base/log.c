#include "runners/base/log.h"

#include "runners/base/clock.h"
#include "runners/base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>

#define LINE_BYTES 2048

static const char *log_program = "cordon";
static const char *log_instance = "";
static enum log_level log_threshold = LOG_INFO;
static const char *const level_names[] = {"error", "warning", "info", "debug"};

void log_open(const char *program, const char *instance, enum log_level level)
{
	log_program = program;
	log_instance = instance;
	log_threshold = level;
}

int log_level_parse(const char *name, enum log_level *out)
{
	for (unsigned int i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (str_equal(name, level_names[i])) {
			*out = (enum log_level)i;
			return 0;
		}
	}
	return -1;
}

/* Appends text with escapes for what could forge a line, and for quotes in what stands between
 * quotes. */
static size_t escape(char *out, size_t size, const char *text, bool quoted)
{
	static const char digits[] = "0123456789abcdef";
	size_t used = 0;

	for (; *text != '\0' && used + 5 < size; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < 0x20 || c == 0x7f || c == '\\' || (quoted && c == '"')) {
			out[used++] = '\\';
			out[used++] = 'x';
			out[used++] = digits[c >> 4];
			out[used++] = digits[c & 15];
		} else {
			out[used++] = (char)c;
		}
	}
	return used;
}

/* The room for the end of a line. */
#define TAIL_BYTES 8

/* error may be NULL. */
static void emit(enum log_level level, const char *event, const char *body, const struct err *error)
{
	char line[LINE_BYTES];
	char now[CLOCK_ISO_SIZE];
	int head;
	size_t used;

	clock_iso(now, clock_real_us());
	head = snprintf(line, sizeof(line), "%s %s %s%s%s pid=%ld %s ", now, level_names[level],
			log_program, log_instance[0] == '\0' ? "" : "/", log_instance,
			(long)getpid(), event);
	if (head < 0 || (size_t)head >= sizeof(line) / 4)
		return;
	used = (size_t)head;
	/* long pairs leave room for the error */
	used += escape(line + used,
		       sizeof(line) - used - (error == NULL ? TAIL_BYTES : sizeof(line) / 2), body,
		       false);
	if (error != NULL) {
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%scode=%s error=\"",
					 body[0] == '\0' ? "" : " ", err_code_name(error->code));
		used += escape(line + used, sizeof(line) - used - TAIL_BYTES, error->text, true);
		line[used++] = '"';
	}
	line[used++] = '\n';
	(void)!write(STDERR_FILENO, line, used);
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
	char body[LINE_BYTES];
	va_list args;

	if (level > log_threshold)
		return;
	va_start(args, format);
	(void)vsnprintf(body, sizeof(body), format, args);
	va_end(args);
	emit(level, event, body, NULL);
}

void log_err(enum log_level level, const char *event, const struct err *e, const char *format, ...)
{
	char pairs[LINE_BYTES / 2];
	va_list args;

	if (level > log_threshold)
		return;
	va_start(args, format);
	(void)vsnprintf(pairs, sizeof(pairs), format, args);
	va_end(args);
	emit(level, event, pairs, e);
}
