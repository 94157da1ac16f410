/* The SQL thread's part in sandboxes: operations claimed and ended, boxes that are gone, lifetimes.
 */
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/store_sandbox.h"
#include "runners/supervisor/jobs_private.h"

struct lost_node {
	struct lost_node *next;
	char sandbox[IDENT_UUID_SIZE];
	char why[64];
};

int jobs_operation_claimed(struct store *db, const struct claim *claim, struct err *e)
{
	struct store_value operation[] = {SV_TEXT(claim->run_id)};
	struct store_value sandbox[] = {SV_TEXT(sandbox_state_name(sandbox_during(claim->kind))),
					SV_TEXT(claim->run_id)};

	if (store_exec(db, STMT_OPERATION_RUNNING, operation, 1, NULL, e) != 0)
		return -1;
	if (job_kind_is_store(claim->kind) || job_kind_is_session(claim->kind))
		return 0;
	return store_exec(db, STMT_SANDBOX_DURING, sandbox, ARRAY_LEN(sandbox), NULL, e);
}

int jobs_operation_end(struct store *db, const struct run_result *r, struct err *e)
{
	bool good = r->phase == RUN_COMPLETED;
	const char *error = good ? NULL : r->message;
	struct store_value started[] = {SV_TEXT(r->claim.run_id)};
	struct store_value ended[] = {
	    SV_TEXT(sandbox_state_name(sandbox_after(r->claim.kind, good))), SV_TEXT(error),
	    SV_TEXT(r->claim.run_id)};
	struct store_value operation[] = {
	    SV_TEXT(operation_state_name(good ? OPERATION_SUCCEEDED : OPERATION_FAILED)),
	    SV_TEXT(error), SV_TEXT(r->claim.run_id)};
	struct store_value result[] = {SV_TEXT(r->result), SV_TEXT(r->claim.run_id)};
	int got = 0;

	if (r->result != NULL &&
	    store_exec(db, STMT_OPERATION_RESULT_SET, result, ARRAY_LEN(result), NULL, e) != 0)
		return -1;
	if (job_kind_is_store(r->claim.kind))
		got = 0;
	else if (good && r->claim.kind == JOB_START)
		got = store_exec(db, STMT_SANDBOX_STARTED, started, 1, NULL, e);
	else
		got = store_exec(db, STMT_SANDBOX_ENDED, ended, ARRAY_LEN(ended), NULL, e);
	if (got != 0)
		return -1;
	return store_exec(db, STMT_OPERATION_END, operation, ARRAY_LEN(operation), NULL, e);
}

int jobs_list_sandboxes(struct jobs *jobs, struct err *e)
{
	struct store_value in[] = {SV_TEXT(jobs->policy->node)};
	int got;

	if (store_query(jobs->db, STMT_SANDBOX_OF_NODE, in, 1, e) != 0)
		return -1;
	while ((got = store_next(jobs->db, e)) == 1)
		jobs_put_simple(jobs, JOBS_SANDBOX, store_text(jobs->db, 0));
	return got;
}

void jobs_sandbox_lost(struct jobs *jobs, const char *sandbox, const char *why)
{
	struct lost_node *node = mem_zalloc(1, sizeof(*node));

	/* without it the row says `running` until the next runner looks */
	if (node == NULL || str_copy(node->sandbox, sizeof(node->sandbox), sandbox) != 0 ||
	    str_copy(node->why, sizeof(node->why), why) != 0) {
		mem_free(node);
		return;
	}
	(void)pthread_mutex_lock(&jobs->lock);
	node->next = jobs->lost;
	jobs->lost = node;
	(void)pthread_cond_signal(&jobs->wake);
	(void)pthread_mutex_unlock(&jobs->lock);
}

int jobs_write_lost(struct jobs *jobs, struct err *e)
{
	for (;;) {
		struct lost_node *node;

		(void)pthread_mutex_lock(&jobs->lock);
		node = jobs->lost;
		if (node != NULL)
			jobs->lost = node->next;
		(void)pthread_mutex_unlock(&jobs->lock);
		if (node == NULL)
			return 0;
		{
			struct store_value in[] = {SV_TEXT(node->why), SV_TEXT(node->sandbox)};

			if (store_exec(jobs->db, STMT_SANDBOX_LOST, in, ARRAY_LEN(in), NULL, e) !=
			    0) {
				/* again, when the database is back */
				(void)pthread_mutex_lock(&jobs->lock);
				node->next = jobs->lost;
				jobs->lost = node;
				(void)pthread_mutex_unlock(&jobs->lock);
				return -1;
			}
		}
		log_event(LOG_WARNING, "sandbox_lost", "sandbox=%s reason=%s", node->sandbox,
			  node->why);
		mem_free(node);
	}
}

int jobs_stop_expired(struct jobs *jobs, struct err *e)
{
	size_t count;

	if (sweep_sandboxes(jobs->db, jobs->policy->node, &count, e) != 0)
		return -1;
	if (count > 0) {
		log_event(LOG_INFO, "sandboxes_expired", "count=%zu", count);
		(void)pthread_mutex_lock(&jobs->lock);
		jobs->look = true;
		(void)pthread_mutex_unlock(&jobs->lock);
	}
	return 0;
}
