/*
 * signed.h: signed stream URLs: token = lowercase hex of HMAC-SHA256(secret, "<run id>:<exp>"), exp
 * in seconds since 1970. They come on top of the usual credential.
 */
#ifndef CORDON_HANDLERS_RUNS_SIGNED_H
#define CORDON_HANDLERS_RUNS_SIGNED_H

#include "handlers/handler.h"

#define SIGNED_TOKEN_SIZE 65

struct run_row;

int signed_token(const void *secret, size_t length, const char *run_id, int64_t expires_sec,
		 char out[SIGNED_TOKEN_SIZE], struct err *e);

/* True when streams need a signature. */
bool signed_wanted(const struct handler_context *context);
/* The face's object of a run with its log_stream_url signed, where that is wanted; NULL stays NULL
 * and a failure is NULL. */
json_t *signed_run(const struct handler_context *context, const struct run_row *row, json_t *run);
/* 0: the request's token and exp are good now. ERR_DENIED: they are not, ERR_NOMEM. */
int signed_check(const struct handler_context *context, const struct http_request *request,
		 const char *run_id, int64_t now_sec, struct err *e);

#endif
