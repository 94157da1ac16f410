/*
 * log.h: one line an event, to stderr: time, level, program, pid, event, then key=value.
 *
 *	log_event(LOG_INFO, "run_done", "req=%s run=%s phase=%s", req, run, phase);
 *
 * Every byte below 0x20, 0x7f and the backslash is written as an escape, so client text cannot
 *forge a line. Keys, tokens and query strings are never logged. Programs log at their boundary;
 *base and core never log above LOG_DEBUG.
 */
#ifndef CORDON_BASE_LOG_H
#define CORDON_BASE_LOG_H

#include "runners/base/err.h"

enum log_level { LOG_ERROR = 0, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* program: static text such as "cordon-gate"; instance: short tag or "". */
void log_open(const char *program, const char *instance, enum log_level level);
int log_level_parse(const char *name, enum log_level *out);
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* An error object as one line: code=... error=... and the given pairs. */
void log_err(enum log_level level, const char *event, const struct err *e, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
