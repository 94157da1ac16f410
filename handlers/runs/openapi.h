/*
 * openapi.h: the description of face 1, docs/openapi/face1.yaml, as JSON. The build turns it into
 * an array of the program, so a worker needs no file for it.
 */
#ifndef CORDON_HANDLERS_RUNS_OPENAPI_H
#define CORDON_HANDLERS_RUNS_OPENAPI_H

#include <stddef.h>

struct openapi_document {
	const char *text; /* no NUL behind it */
	size_t length;
	const char *etag; /* with its quotes */
};

extern const struct openapi_document openapi_face1;

#endif
