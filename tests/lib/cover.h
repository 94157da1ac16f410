/*
 * cover.h: which routes, fields and query parameters of face 1 the cases of tests/suites/runs use.
 *
 *	cover_add(&request, &response);	for each case
 *	cover_check_routes();		asserts: each has a case that is taken and one that is
 *refused cover_check_fields(); cover_check_queries();
 *
 * A field is taken when an answer below 400 had it in its body, not null; it is refused when an
 * error names it in details.fields, by itself or with an index behind it.
 */
#ifndef CORDON_TESTS_LIB_COVER_H
#define CORDON_TESTS_LIB_COVER_H

#include "handlers/fields.h"
#include "handlers/handler.h"

/* A body that a route takes, and its schema in docs/openapi/face1.yaml. */
struct cover_body {
	const char *method;
	const char *pattern;
	const char *within; /* the member that the table is of, "" the body itself */
	const char *schema;
	const struct field_table *table;
};

extern const struct cover_body cover_bodies[];
extern const size_t cover_body_count;

void cover_add(const struct http_request *request, const struct http_response *response);
void cover_check_routes(void);
void cover_check_fields(void);
void cover_check_queries(void);
void cover_release(void);

#endif
