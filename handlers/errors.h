/*
 * errors.h: every error code that a client of face 1 can meet, with what it means and what the
 * client should do. docs/errors.md is made from this table by `make docs`.
 *
 * The workers, the gate and nginx write their codes as literals where they refuse;
 * tests/check/check_errors.sh compares those with this table, status included, both ways. Adding a
 * code is one row here and `make docs`.
 */
#ifndef CORDON_HANDLERS_ERRORS_H
#define CORDON_HANDLERS_ERRORS_H

#include "runners/base/buf.h"

#include <stddef.h>

struct error_row {
	int status;
	const char *code;
	const char *details; /* members of details, "" if it is empty */
	const char *meaning;
	const char *action; /* of the client */
};

extern const struct error_row error_rows[];
extern const size_t error_row_count;

/* The row of a code, or NULL. */
const struct error_row *error_find(const char *code);
/* docs/errors.md */
void errors_doc(struct buf *out);
/* One line "status code" per row, for the check. */
void errors_list(struct buf *out);

#endif
