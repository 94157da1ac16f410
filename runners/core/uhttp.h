/*
 * uhttp.h: a small HTTP client (libcurl): one request, one bounded answer. For cordonctl now, for
 *engines behind unix sockets later.
 *
 *	struct uhttp_request q = {.method = "GET", .url = url, .headers = headers, .timeout_ms =
 *5000}; struct uhttp_answer a; if (uhttp_do(&q, &a, &e) != 0) ...
 *	... a.status, buf_text(&a.body) ...
 *	uhttp_answer_release(&a);
 *
 * Every time is limited, the answer's size is limited, redirects are not followed, proxies of the
 *environment are not used.
 */
#ifndef CORDON_CORE_UHTTP_H
#define CORDON_CORE_UHTTP_H

#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdint.h>

struct uhttp_request {
	const char *method;
	const char *url;
	const char *socket;         /* path of a unix socket, or NULL */
	const char *ca_file;        /* NULL: the system's */
	const char *const *headers; /* "Name: value", NULL at the end; may be NULL */
	const char *body;           /* NULL: none */
	size_t body_length;
	int64_t timeout_ms;
	size_t max_answer; /* bytes */
};

struct uhttp_answer {
	long status;
	struct buf body;
};

int uhttp_do(const struct uhttp_request *request, struct uhttp_answer *out, struct err *e)
    __attribute__((warn_unused_result));
void uhttp_answer_release(struct uhttp_answer *answer);

#endif
