/* op_runtime.h: what the runner of this node found out about its host. */
#ifndef CORDON_HANDLERS_OPS_OP_RUNTIME_H
#define CORDON_HANDLERS_OPS_OP_RUNTIME_H

#include "handlers/handler.h"
#include "handlers/runtime.h"

#define OP_STORE_MODE_SIZE 16

/* The facts, read now, or (cached) some seconds ago; they live in the context. NULL and e when they
 * cannot be read. */
const struct runtime_facts *op_runtime_facts(struct handler_context *context, bool cached,
					     struct err *e);

/* "mariadb", or "galera" where the server is a node of a cluster. */
int op_store_mode(struct handler_context *context, char out[OP_STORE_MODE_SIZE], struct err *e);

/* What the host's last look at its stores found, as the runner wrote it: 1 and an object to be
 * released, 0 when there is none (any more), -1. */
int op_store_seen(struct handler_context *context, json_t **out, struct err *e);

#endif
