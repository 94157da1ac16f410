/*
 * err.h: one error object, owned by the caller, fixed size, the first error wins.
 *
 * Calling sequence:
 *	struct err e = ERR_INIT;
 *	if (job_load(db, id, &job, &e) != 0)
 *		return reply_err(res, &e);
 *
 * A function that can fail takes `struct err *e` last and returns 0 or -1. It sets outputs only on
 *success. err_set() returns -1, so a failure is one line. err_wrap() puts context in front on the
 *way up. `text` is for the log and may name paths or SQL errors; only `shown` may reach a client.
 *Nothing here allocates, because errors arise when memory is short.
 */
#ifndef CORDON_BASE_ERR_H
#define CORDON_BASE_ERR_H

enum err_code {
	ERR_NONE = 0,
	ERR_INVALID,         /* a value from outside is wrong; `shown` says which one */
	ERR_NOT_FOUND,       /* no such object, or one that the caller may not see */
	ERR_CONFLICT,        /* the object's state forbids it, or a key was reused */
	ERR_DENIED,          /* known caller, not allowed */
	ERR_UNAUTHORIZED,    /* no valid credential */
	ERR_LIMIT,           /* a quota or a size limit */
	ERR_UNAVAILABLE,     /* a service that we need is down: try again */
	ERR_STORAGE,         /* no space */
	ERR_UNKNOWN_OUTCOME, /* the connection broke at COMMIT and reading back gave no answer */
	ERR_TIMEOUT,         /* a deadline of ours passed */
	ERR_PROTOCOL,        /* the peer sent bytes that do not fit the protocol */
	ERR_IO,              /* a system call failed; see `sys` */
	ERR_NOMEM,           /* memory */
	ERR_INTERNAL,        /* a fault of ours */
	ERR__MAX
};

struct err {
	enum err_code code;
	int sys;         /* errno, 0 if none */
	char text[384];  /* for the log */
	char shown[256]; /* for the client, may be empty */
};

#define ERR_INIT                 \
	{                        \
		.code = ERR_NONE \
	}

/* Sets code, errno and log text unless an error is already set; always returns -1. */
int err_set(struct err *e, enum err_code code, int sys, const char *format, ...)
    __attribute__((format(printf, 4, 5), nonnull(1, 4)));

/* As err_set, and the text may be shown to the client. */
int err_show(struct err *e, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4), nonnull(1, 3)));

/* Puts "context: " in front of the log text; always returns -1. */
int err_wrap(struct err *e, const char *format, ...)
    __attribute__((format(printf, 2, 3), nonnull(1, 2)));

void err_clear(struct err *e) __attribute__((nonnull(1)));

/* The name of a code, for logs and tests: "invalid", "not_found", ... */
const char *err_code_name(enum err_code code);

#endif
