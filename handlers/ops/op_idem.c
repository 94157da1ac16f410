#include "handlers/ops/op_idem.h"

#include "handlers/ops/op_run.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

int op_idem_find(struct store *db, const struct principal *caller, const struct op_idem *idem,
		 struct op_idem_found *out, struct err *e)
{
	struct store_value in[] = {SV_TEXT(idem->endpoint), SV_TEXT(caller->tenant),
				   SV_TEXT(caller->user), SV_TEXT(idem->key)};
	size_t length;
	const char *stored;
	bool expired;
	int got = store_query_row(db, STMT_IDEM_FIND, in, ARRAY_LEN(in), e);

	if (got <= 0)
		return got;
	stored = store_bytes(db, 0, &length);
	out->same = length == OP_FINGERPRINT_BYTES &&
		    memcmp(stored, idem->fingerprint, OP_FINGERPRINT_BYTES) == 0;
	expired = store_i64(db, 3) != 0;
	if (str_copy(out->object, sizeof(out->object), store_text(db, 1)) != 0)
		out->object[0] = '\0';
	op_iso_time(out->created_at, store_text(db, 2));
	store_done(db);
	if (!expired)
		return 1;
	return store_exec(db, STMT_IDEM_DELETE, in, ARRAY_LEN(in), NULL, e);
}

int op_idem_reserve(struct store *db, const struct principal *caller, const struct op_idem *idem,
		    const char *object, int64_t ttl_sec, struct err *e)
{
	struct store_value in[] = {SV_TEXT(idem->endpoint),
				   SV_TEXT(caller->tenant),
				   SV_TEXT(caller->user),
				   SV_TEXT(idem->key),
				   SV_BYTES(idem->fingerprint, OP_FINGERPRINT_BYTES),
				   SV_TEXT(object),
				   SV_I64(ttl_sec)};

	return store_exec(db, STMT_IDEM_INSERT, in, ARRAY_LEN(in), NULL, e);
}
