/*
 * tails.h: parts of traces that came after a run's own commits, kept for a second and written for
 * many runs in one transaction. What does not fit, or cannot be written, is lost: it harms nobody.
 * Not thread safe.
 */
#ifndef CORDON_GATE_TAILS_H
#define CORDON_GATE_TAILS_H

#include "runners/base/ident.h"
#include "runners/core/store.h"
#include "runners/core/trace.h"

struct tail {
	char run_id[IDENT_UUID_SIZE];
	char part[TRACE_PART_BYTES];
};

struct tails {
	struct tail *list; /* mem */
	size_t count;
	size_t room;
};

void tails_add(struct tails *tails, const char *run_id, const char *part);
/* Sorts the list and writes it. */
int tails_write(struct tails *tails, struct store *db, struct err *e);
void tails_release(struct tails *tails);

#endif
