/* admin.h: what the administrators' handlers share: who may call, the query of a list, its answer.
 *
 *	struct admin_query q;
 *	if (!admin_may(caller, response)) return;
 *	admin_query_init(&q, request);
 *	admin_query_page(&q, &page);
 *	user = admin_query_text(&q, "user_id", 64);	lives as long as q
 *	if (!admin_query_fits(&q, response)) return;	a 422 with all problems, or short of memory
 */
#ifndef CORDON_HANDLERS_RUNS_ADMIN_H
#define CORDON_HANDLERS_RUNS_ADMIN_H

#include "handlers/fields.h"
#include "handlers/handler.h"
#include "handlers/ops/op_admin.h"
#include "handlers/ops/op_run.h"

#define ADMIN_TEXTS     12
#define ADMIN_TIME_SIZE 27 /* "2026-01-31 12:00:00.000000" and a NUL */

/* An administrator; else the refusal is in response. */
bool admin_may(const struct principal *caller, struct http_response *response);
/* An operator: for what changes the host itself. */
bool admin_may_operate(const struct principal *caller, struct http_response *response);

struct admin_query {
	const struct http_request *request;
	struct problems problems;
	bool no_memory;
	struct buf texts[ADMIN_TEXTS];
	size_t count;
};

void admin_query_init(struct admin_query *q, const struct http_request *request);
void admin_query_release(struct admin_query *q);
/* limit 1 to 1000 (50), offset 0 to 1000000 (0), sort asc or desc. */
void admin_query_page(struct admin_query *q, bool ascending, struct admin_page *out);
/* NULL when it is absent. */
const char *admin_query_text(struct admin_query *q, const char *name, size_t max_bytes);
/* A whole number; *out stays when it is absent. */
void admin_query_number(struct admin_query *q, const char *name, uint64_t lo, uint64_t hi,
			uint64_t *out);
/* One of a list, NULL at its end. */
const char *admin_query_choice(struct admin_query *q, const char *name, const char *const *choices,
			       const char *allowed);
/* A time as the database writes it. */
const char *admin_query_time(struct admin_query *q, const char *name, bool epoch);
/* The tenant whose rows are listed: an admin's own; an operator's: of the query, NULL for all. */
const char *admin_query_tenant(struct admin_query *q, const struct principal *caller);
bool admin_query_fits(struct admin_query *q, struct http_response *response);

/* ISO 8601, with Z, an offset, or neither (UTC), a date alone, and, where epoch is true, seconds
 * since 1970 with up to six decimals. 0 or -1. */
int admin_time(const char *text, bool epoch, char out[ADMIN_TIME_SIZE]);

/* {total, limit, offset, has_more, next_offset, pagination, items}; steals items. */
json_t *admin_list(const struct admin_page *page, json_t *items);

/* The bodies of the two POSTs. */
extern const struct field_table admin_cleanup_table;
extern const struct field_table admin_repair_table;

/* A run as lists of administrators show it. */
json_t *admin_run(const struct policy *policy, const struct run_row *row, bool with_user,
		  bool with_usage);

#endif
