/* runtimes.h: the rows of discovery, which the operators' diagnostics are made from too. */
#ifndef CORDON_HANDLERS_RUNS_RUNTIMES_H
#define CORDON_HANDLERS_RUNS_RUNTIMES_H

#include "handlers/ops/op_runtime.h"

/* The rows of GET /runtimes: facts may be NULL. NULL without memory. */
json_t *runtimes_encode(const struct policy *policy, const struct runtime_facts *facts,
			const char *store_mode);

#endif
