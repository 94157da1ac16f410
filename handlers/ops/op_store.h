/*
 * op_store.h: operations on the stores of this node: what no row explains, planned or removed. The
 * runner carries them out; the answer is the operation's result.
 */
#ifndef CORDON_HANDLERS_OPS_OP_STORE_H
#define CORDON_HANDLERS_OPS_OP_STORE_H

#include "handlers/handler.h"
#include "runners/base/state.h"

/* Arrays of texts, NULL for any. */
struct store_wish {
	bool remove;
	json_t *action_types;
	json_t *run_ids;
};

/* Stores the operation and its job. ERR_UNAVAILABLE with nothing stored, *out_away true: no runner
 * of this node lives. */
int op_store_begin(struct handler_context *context, const struct principal *caller,
		   const struct store_wish *wish, const char *request_id,
		   char out_id[IDENT_UUID_SIZE], bool *out_away, struct err *e);

struct store_operation {
	enum operation_state state;
	bool remove;
	char node[65];
	char error[256];
	json_t *result; /* NULL as long as there is none */
};

/* Another tenant's is ERR_NOT_FOUND; an operator sees all. The caller releases out->result. */
int op_store_get(struct handler_context *context, const struct principal *caller, const char *id,
		 struct store_operation *out, struct err *e);

#endif
