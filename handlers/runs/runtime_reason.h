/* runtime_reason.h: the raw facts of hosts as the 15 reasons of face 1 (contract section 3.1). */
#ifndef CORDON_HANDLERS_RUNS_RUNTIME_REASON_H
#define CORDON_HANDLERS_RUNS_RUNTIME_REASON_H

#include "runners/core/json.h"

struct runtime_reason {
	const char *code;
	const char *category;
	const char *operator_action;
};

/* Never NULL: what nobody knows is `unknown`. */
const struct runtime_reason *runtime_reason_of(const char *raw);
/* The row of a code, NULL if there is none. */
const struct runtime_reason *runtime_reason_find(const char *code);

/* Of an array of raw texts: the codes, each once, in the order of their first sight; and their
 * details. NULL without memory. */
json_t *runtime_reason_codes(const json_t *raw);
json_t *runtime_reason_details(const json_t *codes);

#endif
