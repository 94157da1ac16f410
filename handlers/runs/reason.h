/* reason.h: status_reason_code and its details, derived from phase, message, exit code and counters
 * (contract sections 2.2, 2.3). */
#ifndef CORDON_HANDLERS_RUNS_REASON_H
#define CORDON_HANDLERS_RUNS_REASON_H

#include "runners/core/json.h"

struct reason {
	const char *code;
	const char *category;
	const char *severity;
	bool terminal;
	bool retryable;
	const char *operator_action;
};

/* message may be NULL; usage may be NULL; exit_code counts only when has_exit is true. */
const struct reason *reason_derive(const char *phase, const char *message, bool has_exit,
				   int64_t exit_code, const json_t *usage);
/* The row of a code, for tests; NULL if there is none. */
const struct reason *reason_find(const char *code);
json_t *reason_details(const struct reason *reason);

#endif
