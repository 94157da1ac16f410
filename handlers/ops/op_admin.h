/*
 * op_admin.h: lists for administrators: over all users of a tenant, or (tenant NULL) over all
 * tenants. Whether the caller may is the face's to check. Texts of a filter are NULL when they are
 * not given; times are as the database writes them.
 */
#ifndef CORDON_HANDLERS_OPS_OP_ADMIN_H
#define CORDON_HANDLERS_OPS_OP_ADMIN_H

#include "handlers/handler.h"
#include "handlers/ops/op_run.h"

/* Counting ends here, so that a list costs the same however much there is. */
#define OP_ADMIN_TOTAL_MAX 100000

struct admin_page {
	uint64_t limit;
	uint64_t offset;
	bool ascending;
	/* filled */
	uint64_t total; /* OP_ADMIN_TOTAL_MAX at most */
	bool has_more;
};

struct admin_runs_filter {
	const char *tenant;
	const char *user;
	const char *image_digest;
	const char *workspace_id;
	const char *workspace_group_id;
	const char *scope_snapshot_id;
	const char *phase;
	const char *started_from;
	const char *started_to;
};

/* By start, those that have not started last (first when ascending). Steals nothing; each is called
 * for at most page->limit rows. */
typedef int op_admin_run_fn(const struct run_row *row, void *arg);
int op_admin_runs(struct handler_context *context, const struct admin_runs_filter *filter,
		  struct admin_page *page, op_admin_run_fn *each, void *arg, struct err *e);

/* The caller's own runs with that workspace_id, newest first; *out_total as in a page. */
int op_workspace_runs(struct handler_context *context, const struct principal *caller,
		      const char *workspace_id, struct admin_page *page, op_admin_run_fn *each,
		      void *arg, struct err *e);

struct admin_idempotency_filter {
	const char *tenant;
	const char *endpoint;
	const char *user;
	const char *key;
	const char *created_from;
	const char *created_to;
};

struct idempotency_row {
	char endpoint[17];
	char user[65];
	char key[256];
	char fingerprint[65];
	char object_id[IDENT_UUID_SIZE];
	char created_at[CLOCK_ISO_SIZE];
};

typedef int op_admin_idempotency_fn(const struct idempotency_row *row, void *arg);
/* Living keys by their age. */
int op_admin_idempotency(struct handler_context *context,
			 const struct admin_idempotency_filter *filter, struct admin_page *page,
			 op_admin_idempotency_fn *each, void *arg, struct err *e);

struct usage_row {
	char user[65];
	int64_t runs;
	int64_t log_bytes;
	int64_t artifact_bytes;
};

typedef int op_admin_usage_fn(const struct usage_row *row, void *arg);
/* By user. */
int op_admin_usage(struct handler_context *context, const char *tenant, const char *user,
		   struct admin_page *page, op_admin_usage_fn *each, void *arg, struct err *e);

#endif
