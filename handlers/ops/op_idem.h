/*
 * op_idem.h: reservations of Idempotency-Keys. Reservation and object are one transaction; the
 * caller holds the tenant's lock, so that equal requests come one after another.
 *
 *	got = op_idem_find(db, caller, &key, &found, e);   1: answered earlier, 0: free, -1
 *	... make the object ...
 *	op_idem_reserve(db, caller, &key, id, ttl_sec, e);
 */
#ifndef CORDON_HANDLERS_OPS_OP_IDEM_H
#define CORDON_HANDLERS_OPS_OP_IDEM_H

#include "handlers/handler.h"
#include "runners/base/clock.h"

#define OP_FINGERPRINT_BYTES 32

struct op_idem {
	const char *endpoint; /* the key's scope, with tenant and user */
	const char *key;
	const unsigned char *fingerprint;
};

struct op_idem_found {
	bool same; /* as now; else another body came with this key */
	char object[IDENT_UUID_SIZE];
	char created_at[CLOCK_ISO_SIZE];
};

/* A reservation whose time is over is removed. */
int op_idem_find(struct store *db, const struct principal *caller, const struct op_idem *idem,
		 struct op_idem_found *out, struct err *e);
int op_idem_reserve(struct store *db, const struct principal *caller, const struct op_idem *idem,
		    const char *object, int64_t ttl_sec, struct err *e);

#endif
