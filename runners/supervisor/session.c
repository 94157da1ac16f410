/*
 * Operations on sessions: snapshot, restore, clone, delete; uploads are begun here and done in
 * upload.c. A session has no box of its own: its workspace is an image file that cordon-box copies
 * and removes, and that boxes of runs are given (task.c).
 *
 * The operations of one session are carried out one after another, in the order in which they were
 * accepted. While one changes the workspace no box gets it: a run that was accepted meanwhile waits
 * (session_is_held). Every step can be done again, so an operation of an earlier runner is simply
 * carried out anew.
 */
#include "runners/supervisor/session.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

#include <errno.h>

#define COPY_US        (120 * CLOCK_US_PER_S)
#define DELETE_US      (60 * CLOCK_US_PER_S) /* after its runs have ended */
#define AGAIN_US       (20 * CLOCK_US_PER_MS)
#define TRIES          3U
#define NAME_BYTES     64
#define COVERED_INODES 65536U

void session_op_end(struct session_op *op, bool good, const char *message, char *text)
{
	struct run_result *result = mem_zalloc(1, sizeof(*result));
	struct session_job *job = mem_zalloc(1, sizeof(*job));

	if (op->state == SESSION_OP_DONE) {
		mem_free(result);
		mem_free(job);
		mem_free(text);
		return;
	}
	op->state = SESSION_OP_DONE;
	log_event(good ? LOG_INFO : LOG_ERROR, "operation_ended",
		  "req=%s operation=%s kind=%s session=%s message=\"%s\"", op->claim.request_id,
		  op->claim.run_id, job_kind_name(op->claim.kind), op->job.session, message);
	if (result == NULL || job == NULL) {
		/* the next runner of this node does it again */
		log_event(LOG_ERROR, "end_lost", "operation=%s reason=memory", op->claim.run_id);
		mem_free(result);
		mem_free(job);
		mem_free(text);
		return;
	}
	*job = op->job;
	result->claim = op->claim;
	result->phase = good ? RUN_COMPLETED : RUN_FAILED;
	result->session = ident_is_uuid(job->session) ? job : NULL;
	if (result->session == NULL)
		mem_free(job);
	result->session_bytes = op->used_bytes;
	result->result = text;
	(void)snprintf(result->message, sizeof(result->message), "%s", message);
	jobs_end(op->sup->jobs, result);
}

void session_op_again(struct session_op *op)
{
	op->state = SESSION_OP_AGAIN;
	op->retry_us = clock_monotonic_us() + AGAIN_US;
}

/* --- whose turn it is ------------------------------------------------------------------------ */

bool session_is_held(const struct supervisor *sup, const char *session)
{
	for (const struct session_op *op = sup->session_ops; op != NULL; op = op->next)
		if (op->state != SESSION_OP_DONE && op->claim.kind != JOB_UPLOAD &&
		    op->claim.kind != JOB_SNAPSHOT_DELETE && str_equal(op->job.session, session))
			return true;
	return false;
}

static bool is_first(const struct session_op *op)
{
	for (const struct session_op *other = op->sup->session_ops; other != op;
	     other = other->next)
		if (other->state != SESSION_OP_DONE &&
		    str_equal(other->job.session, op->job.session))
			return false;
	return true;
}

/* A delete does not wait for uploads. */
static void cancel_uploads(const struct session_op *op)
{
	for (struct session_op *other = op->sup->session_ops; other != op; other = other->next)
		if (other->state != SESSION_OP_DONE && other->claim.kind == JOB_UPLOAD &&
		    str_equal(other->job.session, op->job.session))
			upload_cancel(other);
}

/* A run of the session that is here and has not ended; one that waits for this operation has not
 * begun. */
static bool has_runs(const struct session_op *op, bool begun)
{
	for (const struct task *t = op->sup->tasks; t != NULL; t = t->next)
		if (t->state != TASK_DONE && (!begun || t->state != TASK_WANTS_BOX) &&
		    t->spec.session != NULL && str_equal(t->spec.session, op->job.session))
			return true;
	return false;
}

/* --- runs ------------------------------------------------------------------------------------- */

/* The workspace is the session's, made at its first use; while an operation changes it the run
 * waits, and that is no part of its start-up time. */
bool session_gives(struct task *task, struct box_wish *wish, struct box_limits *limits)
{
	int64_t now = clock_monotonic_us();

	if (session_is_held(task->sup, task->spec.session)) {
		task->state = TASK_WANTS_BOX;
		task->retry_us = now + AGAIN_US;
		task->startup_deadline_us = now + task->spec.startup_timeout_ms * CLOCK_US_PER_MS;
		return false;
	}
	wish->workspace = task->spec.session;
	wish->make_bytes = limits->workspace_bytes;
	wish->make_inodes = limits->workspace_inodes;
	/* the tmpfs that waits in the box is covered; its inodes are /tmp's too */
	limits->workspace_bytes = 1U << 20;
	if (limits->workspace_inodes > COVERED_INODES)
		limits->workspace_inodes = COVERED_INODES;
	return true;
}

/* --- what cordon-box is asked ---------------------------------------------------------------- */

static void snapshot_name(const struct session_op *op, char out[NAME_BYTES])
{
	(void)snprintf(out, NAME_BYTES, "%s.%s", op->job.session, op->job.snapshot);
}

static int ask(struct session_op *op, struct err *e)
{
	struct boxclient *box = &op->sup->box;
	const struct session_job *job = &op->job;
	uint64_t tag = op->serial * 4;
	uint64_t bytes = (uint64_t)job->workspace_bytes;
	uint64_t inodes = (uint64_t)job->workspace_inodes;
	char name[NAME_BYTES];

	snapshot_name(op, name);
	if (op->claim.kind == JOB_SNAPSHOT)
		return boxclient_copy(box, tag, job->session, name, bytes, inodes, e);
	if (op->claim.kind == JOB_RESTORE)
		return boxclient_copy(box, tag, name, job->session, 0, 0, e);
	if (op->claim.kind == JOB_CLONE)
		return boxclient_copy(box, tag, job->session, job->clone, bytes, inodes, e);
	if (op->claim.kind == JOB_SNAPSHOT_DELETE)
		return boxclient_workspace(box, BOX_WORKSPACE_DELETE, tag, name, 0, 0, e);
	return boxclient_workspace_remove(box, tag, job->session, e);
}

/* From where it stands. */
static void op_step(struct session_op *op)
{
	int64_t now = clock_monotonic_us();
	bool removes = op->claim.kind == JOB_SESSION_DELETE;
	struct err e = ERR_INIT;

	if (op->state == SESSION_OP_DONE || op->state == SESSION_OP_UPLOADS)
		return;
	if (removes)
		cancel_uploads(op);
	if (!op->sup->box_open || !op->sup->boxes_known || !is_first(op)) {
		session_op_again(op);
		return;
	}
	if (op->claim.kind == JOB_UPLOAD) {
		upload_begin(op);
		return;
	}
	/* a snapshot is a file of its own: runs do not matter to its end */
	if (op->claim.kind != JOB_SNAPSHOT_DELETE && has_runs(op, !removes)) {
		if (removes && now >= op->drain_until_us)
			session_op_end(op, false, "session_cancel_drain_timeout", NULL);
		else
			session_op_again(op);
		return;
	}
	if (ask(op, &e) != 0) {
		session_op_again(op);
		return;
	}
	op->state = SESSION_OP_ASKED;
}

void session_op_begin(struct supervisor *sup, struct jobs_event *event)
{
	struct session_op *op = mem_zalloc(1, sizeof(*op));
	struct session_op **at = &sup->session_ops;
	int64_t now = clock_monotonic_us();
	struct err e = ERR_INIT;

	if (op == NULL) {
		log_event(LOG_ERROR, "claim_dropped", "operation=%s reason=memory",
			  event->claim.run_id);
		mem_free(event->spec);
		return;
	}
	op->sup = sup;
	op->serial = ++sup->next_serial;
	op->claim = event->claim;
	op->drain_until_us = now + sup->policy->sessions.delete_drain_ms * CLOCK_US_PER_MS;
	op->deadline_us = event->claim.kind == JOB_SESSION_DELETE ? op->drain_until_us + DELETE_US
								  : now + COPY_US;
	while (*at != NULL && (*at)->claim.job_id < op->claim.job_id)
		at = &(*at)->next;
	op->next = *at;
	*at = op;
	log_event(LOG_INFO, "operation_claimed", "req=%s operation=%s kind=%s",
		  event->claim.request_id, event->claim.run_id, job_kind_name(event->claim.kind));
	if (session_job_decode(event->spec, event->spec_length, &op->job, &e) != 0) {
		log_err(LOG_ERROR, "operation", &e, "operation=%s", event->claim.run_id);
		session_op_end(op, false, "namespace_failed", NULL);
	} else {
		op_step(op);
	}
	mem_free(event->spec);
}

/* What the answer needs to know. */
static void end_good(struct session_op *op)
{
	scope_json json_t *all = NULL;
	scope_buf struct buf text = BUF_NONE;
	char *copy = NULL;
	struct err e = ERR_INIT;

	if (op->claim.kind != JOB_SESSION_DELETE) {
		all = op->claim.kind == JOB_CLONE
			  ? json_pack("{s:s}", "session_id", op->job.clone)
			  : json_pack("{s:s}", "snapshot_id", op->job.snapshot);
		buf_init(&text, 256);
		if (all == NULL || json_write(&text, all, &e) != 0 ||
		    (copy = mem_dup(buf_text(&text))) == NULL) {
			/* the next runner of this node does it again */
			log_event(LOG_ERROR, "end_lost", "operation=%s reason=memory",
				  op->claim.run_id);
			op->state = SESSION_OP_DONE;
			return;
		}
	}
	session_op_end(op, true, "", copy);
}

static void failed(struct session_op *op, const struct box_reply *reply)
{
	log_event(LOG_ERROR, "session_workspace", "session=%s kind=%s code=%s errno=%d text=\"%s\"",
		  op->job.session, job_kind_name(op->claim.kind),
		  box_code_name((enum box_code)reply->code), reply->sys, reply->text);
	if (reply->code == BOX_ERR_NOT_FOUND)
		session_op_end(op, false, "snapshot_lost", NULL);
	else if (reply->sys == ENOSPC || reply->sys == EDQUOT)
		session_op_end(op, false, "storage_low", NULL);
	else
		session_op_end(op, false, "workspace_failed", NULL);
}

static void answered(struct session_op *op, const struct box_reply *reply)
{
	bool removes =
	    op->claim.kind == JOB_SESSION_DELETE || op->claim.kind == JOB_SNAPSHOT_DELETE;

	if (reply->code == BOX_OK || (removes && reply->code == BOX_ERR_NOT_FOUND)) {
		op->used_bytes = reply->workspace_used;
		end_good(op);
	} else if (reply->code == BOX_ERR_BUSY || reply->code == BOX_ERR_TIMEOUT) {
		session_op_again(op); /* a box gives it back just now */
	} else if (reply->code == BOX_ERR_FAILED && reply->sys == 0 && op->tries < TRIES) {
		op->tries++; /* the keeper of the workspace died */
		session_op_again(op);
	} else {
		failed(op, reply);
	}
}

void session_op_reply(struct supervisor *sup, const struct box_reply *reply)
{
	for (struct session_op *op = sup->session_ops; op != NULL; op = op->next) {
		if (op->serial != reply->tag / 4)
			continue;
		if (op->upload != NULL)
			upload_reply(op, reply);
		else if (op->state == SESSION_OP_ASKED)
			answered(op, reply);
		return;
	}
}

bool session_entry(struct supervisor *sup, const struct box_reply *entry)
{
	for (struct session_op *op = sup->session_ops; op != NULL; op = op->next)
		if (op->state != SESSION_OP_DONE && op->upload != NULL &&
		    str_equal(op->claim.run_id, entry->run_id))
			return true;
	return false;
}

void sessions_settle(struct supervisor *sup)
{
	/* what was asked when the connection broke has no answer */
	for (struct session_op *op = sup->session_ops; op != NULL; op = op->next) {
		if (op->upload != NULL)
			upload_again(op);
		else if (op->state == SESSION_OP_ASKED || op->state == SESSION_OP_AGAIN)
			op_step(op);
	}
}

static void tick_one(struct session_op *op, int64_t now_us)
{
	if (op->upload != NULL)
		upload_tick(op, now_us);
	else if (op->state == SESSION_OP_AGAIN && now_us >= op->deadline_us)
		session_op_end(op, false, "workspace_busy", NULL);
	else if (op->state == SESSION_OP_AGAIN && now_us >= op->retry_us)
		op_step(op);
}

void sessions_tick(struct supervisor *sup, int64_t now_us)
{
	struct session_op **at = &sup->session_ops;

	while (*at != NULL) {
		struct session_op *op = *at;

		tick_one(op, now_us);
		if (op->state != SESSION_OP_DONE || (op->upload != NULL && !upload_is_over(op))) {
			at = &op->next;
			continue;
		}
		*at = op->next;
		upload_free(op);
		mem_free(op);
	}
}

int64_t sessions_due_us(const struct supervisor *sup)
{
	int64_t due = INT64_MAX;

	for (const struct session_op *op = sup->session_ops; op != NULL; op = op->next) {
		int64_t mine = op->upload != NULL              ? upload_due_us(op)
			       : op->state == SESSION_OP_AGAIN ? op->retry_us
							       : INT64_MAX;

		if (mine < due)
			due = mine;
	}
	return due;
}

void sessions_free(struct supervisor *sup)
{
	while (sup->session_ops != NULL) {
		struct session_op *op = sup->session_ops;

		sup->session_ops = op->next;
		upload_free(op);
		mem_free(op);
	}
}
