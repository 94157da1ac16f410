/* token_keys.h: what token.c and token_keys.c share. Nobody else includes it. */
#ifndef CORDON_HANDLERS_TOKEN_KEYS_H
#define CORDON_HANDLERS_TOKEN_KEYS_H

#include "handlers/token.h"

#include <jwt.h>

struct token_key {
	jwt_alg_t alg;
	char *kid;   /* mem; NULL: none */
	char *bytes; /* mem: a secret, or PEM */
	size_t length;
};

/* kid NULL: the only key of that algorithm. */
const struct token_key *token_key_find(const struct token_keys *keys, jwt_alg_t alg,
				       const char *kid);
/* base64url without padding as plain base64 into out (which is made); -1: it is neither. */
int token_base64(struct buf *out, const char *text, size_t length, size_t most);

#endif
