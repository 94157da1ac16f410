/*
 * hold.h: the arguments of internal URLs (DESIGN section 1). A worker that must wait answers only
 * X-Accel-Redirect to the hold location; the gate hands the arguments on unread to the render
 * location, where a worker answers.
 */
#ifndef CORDON_HANDLERS_HOLD_H
#define CORDON_HANDLERS_HOLD_H

#include "handlers/handler.h"

#define HOLD_MAX_TRIES 2

struct hold {
	const char *kind;    /* segment of the render path: whose answer; NULL: run */
	char as[16];         /* which answer of it */
	int64_t accepted_ms; /* real time */
	int64_t until_ms;    /* real time; the gate releases then at the latest */
	bool until_running;  /* release when the phase is running, too */
	int64_t tries;       /* how often the request went back to hold */
	bool gone;           /* the gate was lost */
	bool traced;         /* the request that made the run: its way is part of the trace */
};

/* Answers with the redirect to the hold location. */
void hold_redirect(struct http_response *response, const char *node, const char *id,
		   const struct hold *hold, const struct principal *caller);
/* The arguments alone, in the header X-Cordon-Args: of an upload into that session, which the web
 * server hands to the gate. */
void hold_arguments(struct http_response *response, const struct hold *hold,
		    const struct principal *caller, const char *session);
/* Reads the arguments of a render request; -1 when they are not ours. */
int hold_parse(const struct http_request *request, struct hold *out, struct err *e);

#endif
