/* report.h: what doctor finds, one line a thing, as text or as JSON. */
#ifndef CORDON_CTL_REPORT_H
#define CORDON_CTL_REPORT_H

#include "runners/ctl/ctl.h"

struct report {
	struct ctl *ctl;
	json_t *items; /* with --json: {name, found, detail, remedy} */
	bool leaks;    /* what is not found is something left behind */
	unsigned int missing;
};

/* found false counts. name is the column in front; remedy may be NULL. */
void report_line(struct report *r, const char *name, bool found, const char *detail,
		 const char *remedy);

/* What is ours on this host and what no live row or box explains: a line each. -1 when it cannot be
 * judged, because the database or cordon-box does not answer. */
int leaks_check(struct report *r, struct err *e);

#endif
