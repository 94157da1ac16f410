/*
 * authn.h: who is calling. A credential comes from X-API-KEY, from Authorization: Bearer, or, for
 * sockets, from the query (auth_token; token too, unless that signs the URL). A table of schemes
 * decides by the credential's form who judges it: what has exactly two dots is a token (token.h;
 * not in X-API-KEY), all else an API key, which has none.
 *
 * API key: ck_<id>_<secret>, id 12 and secret 32 characters of a-z2-7. The row is found by id and
 * the SHA-256 of the secret compared in constant time; a revoked key stops working with the next
 * request, because nothing is cached.
 */
#ifndef CORDON_HANDLERS_AUTHN_H
#define CORDON_HANDLERS_AUTHN_H

#include "handlers/handler.h"

#define AUTHN_KEY_ID_DIGITS     12
#define AUTHN_KEY_SECRET_DIGITS 32

struct authn_scheme {
	const char *name;
	bool (*fits)(const char *credential);
	/* accepted_ms: when the request was first accepted (0: now); tokens compare their expiry
	 * with it. */
	int (*check)(struct handler_context *context, const char *credential, int64_t accepted_ms,
		     struct principal *out, struct err *e);
};

/* ERR_UNAUTHORIZED for a missing or wrong credential, ERR_UNAVAILABLE when it cannot be checked. */
int authn_check(struct handler_context *context, const struct http_request *request,
		bool query_allowed, int64_t accepted_ms, struct principal *out, struct err *e);

#endif
