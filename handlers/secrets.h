/*
 * secrets.h: what the policy's secret files hold, read once by the master of the workers. A file
 * that is missing, too short or malformed refuses the start, and a reload keeps what was there.
 */
#ifndef CORDON_HANDLERS_SECRETS_H
#define CORDON_HANDLERS_SECRETS_H

#include "handlers/token.h"
#include "runners/core/policy.h"

struct secrets {
	struct buf stream;        /* signs stream URLs; empty: they are not signed */
	struct token_keys *token; /* NULL: no tokens are taken */
};

int secrets_load(const struct policy *policy, struct secrets **out, struct err *e);
/* NULL is allowed. */
void secrets_free(struct secrets *secrets);

#endif
