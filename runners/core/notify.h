/*
 * notify.h: notices: "this object changed", from whoever committed the change to the gate or the
 *runner.
 *
 * A notice is one SOCK_SEQPACKET message "<kind> <id> <hint>". Sending never blocks; a notice that
 *is lost costs latency only, because every receiver compares with the table after a connect and
 *every 2 s. The receiver trusts a hint for speed only: it decides by the row.
 *
 *	struct notifier n;
 *	notifier_init(&n, "/run/.../notify-gate/gate.sock");
 *	notify_send(&n, "run", id, NOTICE_ENDED);
 *	notifier_release(&n);
 *
 * What a program has to add to the traces of runs goes to the gate the same way, many in one
 *message, because every message wakes the gate; it is lost with the message:
 *
 *	struct trace_mail mail = {0};
 *	trace_mail_add(&mail, &n, id, part);		sends by itself when it is full
 *	if (clock_monotonic_us() >= trace_mail_due_us(&mail))
 *		trace_mail_send(&mail, &n);
 *
 * Receiver: notify_listen, accept in its own loop, notify_receive per readable connection.
 */
#ifndef CORDON_CORE_NOTIFY_H
#define CORDON_CORE_NOTIFY_H

#include "runners/base/err.h"
#include "runners/base/ident.h"
#include "runners/core/trace.h"

#include <stdbool.h>

enum notice_hint {
	NOTICE_QUEUED = 'q',  /* a job waits */
	NOTICE_CANCEL = 'c',  /* a cancel wish was written */
	NOTICE_RUNNING = 'r', /* the phase is running now */
	NOTICE_OUTPUT = 'o',  /* the spool grew */
	NOTICE_ENDED = 'e',   /* terminal */
	NOTICE_TRACE = 't'    /* parts of traces: notice_trace; nothing has changed */
};

#define TRACE_MAIL_BYTES 3072

struct notice {
	char kind[16];
	char id[IDENT_UUID_SIZE];
	enum notice_hint hint;
	char text[TRACE_MAIL_BYTES]; /* NOTICE_TRACE: what notice_trace has not given yet */
};

struct notifier {
	char path[108];
	int fd;
	int64_t retry_at_us; /* no connect before this monotonic time */
};

int notifier_init(struct notifier *n, const char *path, struct err *e);
void notifier_release(struct notifier *n);
/* true when it was handed to the kernel. */
bool notify_send(struct notifier *n, const char *kind, const char *id, enum notice_hint hint);

struct trace_mail {
	char text[TRACE_MAIL_BYTES];
	size_t used;
	int64_t since_us; /* of the oldest part */
};

void trace_mail_add(struct trace_mail *mail, struct notifier *n, const char *run_id,
		    const char *part);
/* Sends what there is and forgets it. */
void trace_mail_send(struct trace_mail *mail, struct notifier *n);
/* When that is due, INT64_MAX: there is nothing. */
int64_t trace_mail_due_us(const struct trace_mail *mail);

/* A non-blocking listener; the socket's mode is 0660. */
int notify_listen(const char *path, struct err *e);
/* 1: a notice; 0: nothing there now; -1: the connection is over or the peer broke the form (e is
 * set for the latter). */
int notify_receive(int fd, struct notice *out, struct err *e);

/* NOTICE_TRACE: takes the next part out of the notice; false: there is no further one, or it is
 * malformed. */
bool notice_trace(struct notice *notice, char run_id[IDENT_UUID_SIZE], char part[TRACE_PART_BYTES]);

#endif
