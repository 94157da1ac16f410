/*
 * token.h: JWTs: keys at load, judgement at a request.
 *
 * HS256 with a secret, RS256 and ES256 with the public keys of a JWKS. Each key serves exactly the
 * algorithm of its kind, so that a public key is never a secret and `none` is nothing. Among public
 * keys the token's `kid` chooses; one without kid is taken when a single key of its kind is there.
 *
 * Header and claims are read by our strict parser; libjwt checks the signature. `exp` is required,
 * `nbf` counts when it is there. iss and aud are compared where the policy names them. Who the
 * caller is stands in claims that the policy names; a role of the claims makes an admin at most.
 */
#ifndef CORDON_HANDLERS_TOKEN_H
#define CORDON_HANDLERS_TOKEN_H

#include "handlers/handler.h"

#define TOKEN_MAX_BYTES      8192
#define TOKEN_JWKS_MAX_BYTES ((size_t)256 << 10)
#define TOKEN_KEYS_MAX       64
#define TOKEN_RSA_MIN_BITS   2048

struct token_keys;

/* secret may be NULL, jwks may be NULL. Keys of a JWKS that cannot verify such tokens are passed
 * over; a private key, a kid twice, a short RSA key and a set without any key are refused. */
int token_keys_make(const void *secret, size_t secret_length, const char *jwks, size_t jwks_length,
		    struct token_keys **out, struct err *e);
/* NULL is allowed. */
void token_keys_free(struct token_keys *keys);

/* True for what has exactly two dots. */
bool token_fits(const char *credential);

/*
 * ERR_UNAUTHORIZED, with a reason for the client that says nothing of keys; ERR_NOMEM. now_sec:
 * when the request was accepted. The tenant is named, not looked up.
 */
int token_check(const struct token_keys *keys, const struct policy *policy, const char *token,
		int64_t now_sec, struct principal *out, struct err *e);

#endif
