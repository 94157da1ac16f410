/*
 * Sandboxes: boxes that live until they are stopped, and the operations on them: start, stop,
 * delete. cordon-box has their boxes (run id = the sandbox's id) and, where it stays, their
 * workspace (the same name). Here is only what answers "where is the agent of that sandbox": filled
 * from the database's list and cordon-box's list at the start, then by our own operations.
 *
 * Every step can be done again: an operation of an earlier runner is simply carried out anew, after
 * the list of boxes has told what it had reached.
 */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define START_US        (30 * CLOCK_US_PER_S)
#define END_US          (60 * CLOCK_US_PER_S)
#define AGAIN_US        (50 * CLOCK_US_PER_MS)
#define CREATE_MS       20000U
#define DESTROY_MS      20000U
#define TMP_INODES      65536U
#define WORKSPACE_TRIES 3U
#define WHAT_WORKSPACE  0U
#define WHAT_CREATE     1U
#define WHAT_DESTROY    2U

struct sandbox_op *sandbox_op_of(struct supervisor *sup, const char *sandbox)
{
	for (struct sandbox_op *op = sup->ops; op != NULL; op = op->next)
		if (op->state != OP_DONE && str_equal(op->spec.sandbox, sandbox))
			return op;
	return NULL;
}

struct sandbox *sandbox_find(struct supervisor *sup, const char *id)
{
	for (struct sandbox *s = sup->sandboxes; s != NULL; s = s->next)
		if (str_equal(s->id, id))
			return s;
	return NULL;
}

struct sandbox *sandbox_live(struct supervisor *sup, const char *id)
{
	struct sandbox *s = sandbox_find(sup, id);

	return s != NULL && s->live && !s->ending ? s : NULL;
}

static struct sandbox *sandbox_add(struct supervisor *sup, const char *id)
{
	struct sandbox *s = sandbox_find(sup, id);

	if (s != NULL)
		return s;
	s = mem_zalloc(1, sizeof(*s));
	if (s == NULL || str_copy(s->id, sizeof(s->id), id) != 0) {
		mem_free(s);
		return NULL;
	}
	s->next = sup->sandboxes;
	sup->sandboxes = s;
	return s;
}

static void sandbox_drop(struct supervisor *sup, const char *id)
{
	for (struct sandbox **at = &sup->sandboxes; *at != NULL; at = &(*at)->next) {
		struct sandbox *s = *at;

		if (!str_equal(s->id, id))
			continue;
		*at = s->next;
		mem_free(s);
		return;
	}
}

void sandboxes_free(struct supervisor *sup)
{
	while (sup->sandboxes != NULL)
		sandbox_drop(sup, sup->sandboxes->id);
	while (sup->ops != NULL) {
		struct sandbox_op *op = sup->ops;

		sup->ops = op->next;
		spec_release(&op->spec);
		mem_free(op);
	}
}

void sandbox_expected(struct supervisor *sup, const char *id)
{
	(void)sandbox_add(sup, id);
}

static bool set_live(struct sandbox *s, const struct box_reply *box)
{
	s->slot = box->slot;
	s->live = str_copy(s->agent_path, sizeof(s->agent_path), box->agent_path) == 0;
	s->oom_kills = box->stats.oom_kills;
	return s->live;
}

/* --- operations ------------------------------------------------------------------------------ */

static void op_end(struct sandbox_op *op, bool good, const char *message)
{
	struct run_result *result = mem_zalloc(1, sizeof(*result));

	if (op->state == OP_DONE)
		return;
	op->state = OP_DONE;
	log_event(good ? LOG_INFO : LOG_ERROR, "operation_ended",
		  "req=%s operation=%s kind=%s sandbox=%s message=\"%s\"", op->claim.request_id,
		  op->claim.run_id, job_kind_name(op->claim.kind), op->spec.sandbox, message);
	if (result == NULL) {
		/* the next runner of this node does it again */
		log_event(LOG_ERROR, "end_lost", "operation=%s reason=memory", op->claim.run_id);
		return;
	}
	result->claim = op->claim;
	result->phase = good ? RUN_COMPLETED : RUN_FAILED;
	(void)snprintf(result->message, sizeof(result->message), "%s", message);
	jobs_end(op->sup->jobs, result);
}

static void again(struct sandbox_op *op, enum sandbox_op_state step)
{
	op->state = step;
	op->retry_us = clock_monotonic_us() + AGAIN_US;
}

static void send_workspace(struct sandbox_op *op)
{
	enum box_verb verb =
	    op->claim.kind == JOB_START ? BOX_WORKSPACE_MAKE : BOX_WORKSPACE_DELETE;
	struct err e = ERR_INIT;

	op->state = OP_WORKSPACE;
	if (boxclient_workspace(&op->sup->box, verb, op->serial * 4 + WHAT_WORKSPACE,
				op->spec.sandbox, (uint64_t)op->spec.workspace_bytes,
				(uint64_t)op->spec.workspace_inodes, &e) != 0)
		again(op, OP_WORKSPACE_AGAIN);
}

static void send_create(struct sandbox_op *op)
{
	struct box_limits limits = {.memory_bytes = (uint64_t)op->spec.memory_bytes,
				    .workspace_bytes = (uint64_t)op->spec.workspace_bytes,
				    .workspace_inodes = (uint64_t)op->spec.workspace_inodes,
				    .tmp_bytes = (uint64_t)op->spec.tmp_bytes,
				    .pids = (uint32_t)op->spec.pids,
				    .cpu_millis = (uint32_t)op->spec.cpu_milli};
	struct box_wish wish = {.run_id = op->spec.sandbox,
				.image = op->spec.image,
				.limits = &limits,
				.workspace = op->spec.persistent ? op->spec.sandbox : NULL,
				.fresh_net = op->spec.fresh_network,
				.shared_proc = true,
				.deadline_ms = CREATE_MS};
	struct err e = ERR_INIT;

	/* the tmpfs that waits in the box is covered; it is a small one then */
	if (op->spec.persistent) {
		limits.workspace_bytes = 1U << 20;
		/* of /tmp and /dev/shm too */
		if (limits.workspace_inodes > TMP_INODES)
			limits.workspace_inodes = TMP_INODES;
	}
	op->state = OP_CREATE;
	if (boxclient_make(&op->sup->box, op->serial * 4 + WHAT_CREATE, &wish, &e) != 0)
		again(op, OP_CREATE_AGAIN);
}

static void send_destroy(struct sandbox_op *op, const struct sandbox *s)
{
	struct err e = ERR_INIT;

	op->state = OP_DESTROY;
	if (boxclient_destroy(&op->sup->box, op->serial * 4 + WHAT_DESTROY, s->slot, s->id,
			      DESTROY_MS, &e) != 0)
		again(op, OP_DESTROY_AGAIN);
}

static void box_is_gone(struct sandbox_op *op)
{
	sandbox_drop(op->sup, op->spec.sandbox);
	if (op->claim.kind == JOB_DELETE && op->spec.persistent)
		send_workspace(op);
	else
		op_end(op, true, "");
}

/* From where it stands by what is known of the box. */
static void op_step(struct sandbox_op *op)
{
	struct sandbox *s = sandbox_find(op->sup, op->spec.sandbox);

	if (!op->sup->box_open || !op->sup->boxes_known) {
		op->state = OP_WAITS;
		return;
	}
	if (op->claim.kind == JOB_START) {
		if (s != NULL && s->live)
			op_end(op, true, "");
		else if (op->spec.persistent)
			send_workspace(op);
		else
			send_create(op);
		return;
	}
	if (s == NULL || !s->live) {
		box_is_gone(op);
		return;
	}
	s->ending = true;
	send_destroy(op, s);
}

void sandbox_op_begin(struct supervisor *sup, struct jobs_event *event)
{
	struct sandbox_op *op = mem_zalloc(1, sizeof(*op));
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
	op->deadline_us =
	    clock_monotonic_us() + (event->claim.kind == JOB_START ? START_US : END_US);
	spec_init(&op->spec);
	op->next = sup->ops;
	sup->ops = op;
	log_event(LOG_INFO, "operation_claimed", "req=%s operation=%s kind=%s",
		  event->claim.request_id, event->claim.run_id, job_kind_name(event->claim.kind));
	if (spec_decode(event->spec, event->spec_length, &op->spec, &e) != 0) {
		log_err(LOG_ERROR, "operation", &e, "operation=%s", event->claim.run_id);
		op_end(op, false, "namespace_failed");
	} else {
		op_step(op);
	}
	mem_free(event->spec);
}

static void created(struct sandbox_op *op, const struct box_reply *reply)
{
	struct sandbox *s;

	if (reply->code == BOX_ERR_BUSY) {
		again(op, OP_CREATE_AGAIN);
		return;
	}
	if (reply->code != BOX_OK) {
		log_event(LOG_ERROR, "sandbox_create", "sandbox=%s code=%s errno=%d text=\"%s\"",
			  op->spec.sandbox, box_code_name((enum box_code)reply->code), reply->sys,
			  reply->text);
		op_end(op, false,
		       reply->code == BOX_ERR_UNSUPPORTED ? "runtime_provisioning_image"
		       : reply->code == BOX_ERR_TIMEOUT   ? "startup_timeout"
							  : "namespace_failed");
		return;
	}
	s = sandbox_add(op->sup, op->spec.sandbox);
	if (s == NULL || !set_live(s, reply)) {
		op_end(op, false, "namespace_failed");
		return;
	}
	op_end(op, true, "");
}

static void workspace_done(struct sandbox_op *op, const struct box_reply *reply)
{
	bool start = op->claim.kind == JOB_START;

	/* it is there from an earlier start; what has no image fails at the create */
	if (start && (reply->code == BOX_OK || reply->code == BOX_ERR_BUSY)) {
		send_create(op);
	} else if (!start && (reply->code == BOX_OK || reply->code == BOX_ERR_NOT_FOUND)) {
		op_end(op, true, "");
	} else if (!start && reply->code == BOX_ERR_BUSY) {
		again(op, OP_WORKSPACE_AGAIN); /* the last bytes are being written back */
	} else if (reply->code == BOX_ERR_FAILED && op->workspace_tries < WORKSPACE_TRIES) {
		op->workspace_tries++; /* the keeper of the workspace died */
		again(op, OP_WORKSPACE_AGAIN);
	} else {
		log_event(LOG_ERROR, "sandbox_workspace", "sandbox=%s code=%s errno=%d text=\"%s\"",
			  op->spec.sandbox, box_code_name((enum box_code)reply->code), reply->sys,
			  reply->text);
		op_end(op, false, "workspace_failed");
	}
}

bool sandbox_op_reply(struct supervisor *sup, const struct box_reply *reply)
{
	struct sandbox_op *op = sup->ops;
	unsigned int what = (unsigned int)(reply->tag % 4);

	while (op != NULL && op->serial != reply->tag / 4)
		op = op->next;
	if (op == NULL)
		return false;
	if (what == WHAT_WORKSPACE && op->state == OP_WORKSPACE) {
		workspace_done(op, reply);
	} else if (what == WHAT_CREATE && op->state == OP_CREATE) {
		created(op, reply);
	} else if (what == WHAT_DESTROY && op->state == OP_DESTROY) {
		if (reply->code == BOX_OK || reply->code == BOX_ERR_NOT_FOUND)
			box_is_gone(op);
		else
			again(op, OP_DESTROY_AGAIN);
	}
	return true;
}

static void retry(struct sandbox_op *op, int64_t now_us)
{
	const struct sandbox *s = sandbox_find(op->sup, op->spec.sandbox);

	if (now_us >= op->deadline_us) {
		op_end(op, false,
		       op->claim.kind == JOB_START ? "startup_timeout" : "namespace_failed");
		return;
	}
	if (now_us < op->retry_us || !op->sup->box_open)
		return;
	if (op->state == OP_WORKSPACE_AGAIN)
		send_workspace(op);
	else if (op->state == OP_CREATE_AGAIN)
		send_create(op);
	else if (s == NULL)
		box_is_gone(op);
	else
		send_destroy(op, s);
}

void sandboxes_tick(struct supervisor *sup, int64_t now_us)
{
	struct sandbox_op **at = &sup->ops;

	while (*at != NULL) {
		struct sandbox_op *op = *at;

		if (op->state == OP_WORKSPACE_AGAIN || op->state == OP_CREATE_AGAIN ||
		    op->state == OP_DESTROY_AGAIN)
			retry(op, now_us);
		if (op->state != OP_DONE) {
			at = &op->next;
			continue;
		}
		*at = op->next;
		spec_release(&op->spec);
		mem_free(op);
	}
}

int64_t sandboxes_due_us(const struct supervisor *sup)
{
	int64_t due = INT64_MAX;

	for (const struct sandbox_op *op = sup->ops; op != NULL; op = op->next)
		if ((op->state == OP_WORKSPACE_AGAIN || op->state == OP_CREATE_AGAIN ||
		     op->state == OP_DESTROY_AGAIN) &&
		    op->retry_us < due)
			due = op->retry_us;
	return due;
}

/* --- what cordon-box tells ------------------------------------------------------------------- */

bool sandbox_entry(struct supervisor *sup, const struct box_reply *entry)
{
	struct sandbox *s = sandbox_find(sup, entry->run_id);
	struct sandbox_op *op = sandbox_op_of(sup, entry->run_id);

	if (s == NULL && op != NULL)
		s = sandbox_add(sup, entry->run_id); /* made, and then its runner died */
	if (s == NULL)
		return false;
	if (entry->state == BOX_DEAD || entry->state == BOX_ENDING) {
		/* of no use; if nobody stops it, it is lost */
		return op != NULL && set_live(s, entry);
	}
	s->seen = true;
	(void)set_live(s, entry);
	return true;
}

void sandboxes_settle(struct supervisor *sup)
{
	struct sandbox *next;

	sup->boxes_known = true;
	for (struct sandbox *s = sup->sandboxes; s != NULL; s = next) {
		next = s->next;
		if (s->seen || sandbox_op_of(sup, s->id) != NULL) {
			s->seen = false;
			continue;
		}
		jobs_sandbox_lost(sup->jobs, s->id, "box_lost");
		sandbox_drop(sup, s->id);
	}
	/* what was under way when the connection broke, and what waited for the list */
	for (struct sandbox_op *op = sup->ops; op != NULL; op = op->next)
		if (op->state != OP_DONE)
			op_step(op);
}

bool sandbox_died(struct supervisor *sup, const struct box_reply *event)
{
	struct sandbox *s = sandbox_find(sup, event->run_id);
	struct err e = ERR_INIT;

	if (s == NULL || !s->live || s->slot != event->slot)
		return false;
	if (sandbox_op_of(sup, s->id) != NULL)
		return true; /* its operation ends it */
	jobs_sandbox_lost(sup->jobs, s->id,
			  event->stats.oom_kills > s->oom_kills ? "out_of_memory" : "box_lost");
	(void)boxclient_destroy(&sup->box, SANDBOX_TAG_NOBODY, event->slot, event->run_id, 0, &e);
	sandbox_drop(sup, event->run_id);
	return true;
}
