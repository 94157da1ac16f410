/*
 * An upload: a maintenance box on the session's workspace, and in it the agent's unpacker, once for
 * each part that the gate has staged (runners/core/upload.h). The bytes go to its stdin as its
 * window allows; what it says at the end is added up. The first part that fails ends the upload;
 * what the parts before it brought stays. Nobody but the unpacker touches names in the workspace.
 */
#include "runners/supervisor/session.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/json.h"
#include "runners/core/spool.h"
#include "runners/core/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>

#define UPLOAD_US    (120 * CLOCK_US_PER_S)
#define TIDY_US      (60 * CLOCK_US_PER_S)
#define GONE_US      (60 * CLOCK_US_PER_S)
#define AGAIN_US     (50 * CLOCK_US_PER_MS)
#define CREATE_MS    20000U
#define LIFETIME_MS  600000U
#define DESTROY_MS   20000U
#define TMP_INODES   4096U
#define TASKS        16U
#define BOXES_MOST   8U
#define CPU_MILLIS   2000U
#define CHUNK_BYTES  65536U
#define SAID_BYTES   2048U
#define TAG_REMOVE   1U
#define WHAT_CREATE  0U
#define WHAT_DESTROY 1U

enum upload_state {
	UPLOAD_WANTS_BOX, /* at retry_us */
	UPLOAD_CREATING,
	UPLOAD_TIDYING, /* what an earlier one left is removed */
	UPLOAD_UNPACKING,
	UPLOAD_WANTS_END, /* at retry_us */
	UPLOAD_DESTROYING,
	UPLOAD_OVER
};

struct upload {
	enum upload_state state;
	int64_t deadline_us;
	int64_t retry_us;
	uint32_t slot;
	bool has_box;
	const char *verdict; /* it has failed, and what it left is removed in a box of its own */
	struct agent agent;
	bool agent_open;
	int registered_fd;
	bool writes;
	int folder; /* of the parts */
	struct upload_parts parts;
	size_t part;
	int fd; /* of the part */
	char chunk[CHUNK_BYTES];
	size_t chunk_length;
	size_t chunk_at;
	bool end_read; /* of the part's file */
	bool end_sent;
	struct buf said[2]; /* stdout, stderr of the unpacker */
	uint64_t files;
	uint64_t bytes;
	uint64_t skipped;
};

/* --- the agent's socket ---------------------------------------------------------------------- */

static void watch(struct session_op *op)
{
	struct upload *u = op->upload;
	int fd = u->agent_open ? agent_fd(&u->agent) : -1;
	bool writes = fd >= 0 && agent_wants_write(&u->agent);

	agent_watch(op->sup->epoll_fd, fd, writes, u, &u->registered_fd, &u->writes);
}

static void drop_agent(struct session_op *op)
{
	struct upload *u = op->upload;

	if (!u->agent_open)
		return;
	agent_release(&u->agent);
	u->agent_open = false;
	watch(op);
}

/* --- the end --------------------------------------------------------------------------------- */

static void send_destroy(struct session_op *op)
{
	struct upload *u = op->upload;
	struct err e = ERR_INIT;

	u->state = UPLOAD_DESTROYING;
	if (boxclient_destroy(&op->sup->box, op->serial * 4 + WHAT_DESTROY, u->slot,
			      op->claim.run_id, DESTROY_MS, &e) == 0)
		return;
	u->state = UPLOAD_WANTS_END;
	u->retry_us = clock_monotonic_us() + AGAIN_US;
}

/* The answer goes out at once; the box goes behind it. */
static void finish(struct session_op *op, bool good, const char *message, char *text)
{
	struct upload *u = op->upload;
	struct err e = ERR_INIT;

	drop_agent(op);
	fd_close_at(&u->fd);
	fd_close_at(&u->folder);
	session_op_end(op, good, message, text);
	if (spool_remove(op->sup->policy->paths.data, UPLOAD_KIND, op->job.upload, &e) != 0)
		log_err(LOG_WARNING, "upload_files", &e, "upload=%s", op->job.upload);
	u->deadline_us = clock_monotonic_us() + GONE_US;
	if (u->has_box)
		send_destroy(op);
	else
		u->state = u->state == UPLOAD_CREATING ? UPLOAD_CREATING : UPLOAD_OVER;
}

/* JSON text of the result, mem; NULL when memory is short. */
static char *result_text(const struct upload *u, const char *part, const char *reason)
{
	scope_json json_t *all =
	    json_pack("{s:I, s:I, s:I, s:s?, s:s?}", "bytes_received", (json_int_t)u->bytes,
		      "file_count", (json_int_t)u->files, "skipped", (json_int_t)u->skipped, "part",
		      part, "reason", reason);
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;

	buf_init(&text, 16384);
	if (all == NULL || json_write(&text, all, &e) != 0)
		return NULL;
	return mem_dup(buf_text(&text));
}

static void finish_good(struct session_op *op)
{
	char *text = result_text(op->upload, NULL, NULL);

	if (text == NULL)
		finish(op, false, "namespace_failed", NULL);
	else
		finish(op, true, "", text);
}

/* What the client may read of a name or a message of libarchive: printable, one line. */
static void printable(char *out, size_t size, const char *text)
{
	size_t used = 0;

	for (; *text != '\0' && *text != '\n' && used + 2 < size; text++)
		out[used++] = *text >= ' ' && *text < 0x7f ? *text : '?';
	out[used] = '\0';
}

static void finish_bad(struct session_op *op, const char *message)
{
	struct upload *u = op->upload;
	char part[256] = "";
	char reason[256] = "";

	if (u->part < u->parts.count)
		printable(part, sizeof(part), u->parts.items[u->part].name);
	printable(reason, sizeof(reason), buf_text(&u->said[1]));
	finish(op, false, message, result_text(u, part, reason));
}

/* The unpacker was stopped in its work, so its folder is still there: the box goes, and in another
 * one it is removed. Then comes the answer. */
static void finish_stopped(struct session_op *op, const char *message)
{
	struct upload *u = op->upload;

	if (u->verdict != NULL || !u->has_box) {
		finish_bad(op, u->verdict != NULL ? u->verdict : message);
		return;
	}
	u->verdict = message;
	u->deadline_us = clock_monotonic_us() + TIDY_US;
	drop_agent(op);
	fd_close_at(&u->fd);
	send_destroy(op);
}

/* --- the parts ------------------------------------------------------------------------------- */

static int open_parts(struct session_op *op, struct err *e)
{
	struct upload *u = op->upload;
	char path[SPOOL_PATH_BYTES];

	if (spool_folder(path, op->sup->policy->paths.data, UPLOAD_KIND, op->job.upload, e) != 0)
		return -1;
	u->folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (u->folder < 0)
		return err_set(e, ERR_NOT_FOUND, errno, "open the folder of the upload");
	return upload_parts_read(&u->parts, u->folder, e);
}

/* 1: bytes wait, 0: there are none (any more), -1. */
static int fill_chunk(struct upload *u, struct err *e)
{
	ssize_t got;

	if (u->chunk_at < u->chunk_length)
		return 1;
	if (u->end_read)
		return 0;
	do
		got = read(u->fd, u->chunk, sizeof(u->chunk));
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_set(e, ERR_IO, errno, "read a part");
	u->chunk_at = 0;
	u->chunk_length = (size_t)got;
	u->end_read = got == 0;
	return got > 0;
}

/* As much as the window takes. */
static int feed(struct session_op *op, struct err *e)
{
	struct upload *u = op->upload;
	uint32_t channel = (uint32_t)u->part + 1;

	while (!u->end_sent) {
		int got = fill_chunk(u, e);
		size_t left = u->chunk_length - u->chunk_at;
		ssize_t taken;

		if (got < 0)
			return -1;
		taken = agent_stdin(&u->agent, channel, u->chunk + u->chunk_at, got > 0 ? left : 0,
				    got == 0, e);
		if (taken < 0)
			return -1;
		if (got == 0)
			u->end_sent = true;
		else if (taken == 0)
			return 0; /* the window is full */
		u->chunk_at += (size_t)taken;
	}
	return 0;
}

static int start_part(struct session_op *op, struct err *e)
{
	struct upload *u = op->upload;
	const struct upload_part *part = &u->parts.items[u->part];
	char nameless[32];
	char file[16];
	char form[8];
	char *argv[3] = {form, NULL, NULL};
	char *env[1] = {NULL};
	struct agent_exec exec = {.argv = argv,
				  .env = env,
				  .cwd = "/workspace",
				  .uid = BOX_USER,
				  .gid = BOX_USER,
				  .stdin_mode = AGENT_STDIN_STREAM,
				  .unpack = true};

	(void)snprintf(file, sizeof(file), "%zu", u->part);
	(void)snprintf(form, sizeof(form), "%s", upload_form_name(upload_form_of(part->name)));
	(void)snprintf(nameless, sizeof(nameless), "file_%zu", u->part);
	argv[1] = part->name[0] == '\0' ? nameless : part->name;
	u->state = UPLOAD_UNPACKING;
	u->fd = openat(u->folder, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (u->fd < 0)
		return err_set(e, ERR_IO, errno, "open a part");
	u->chunk_at = 0;
	u->chunk_length = 0;
	u->end_read = false;
	u->end_sent = false;
	buf_reset(&u->said[0]);
	buf_reset(&u->said[1]);
	if (agent_exec(&u->agent, (uint32_t)u->part + 1, &exec, e) != 0)
		return -1;
	return feed(op, e);
}

static void next_part(struct session_op *op)
{
	struct upload *u = op->upload;
	struct err e = ERR_INIT;

	fd_close_at(&u->fd);
	if (u->verdict != NULL) {
		finish_bad(op, u->verdict);
	} else if (u->part == u->parts.count) {
		finish_good(op);
	} else if (start_part(op, &e) != 0) {
		log_err(LOG_ERROR, "upload", &e, "operation=%s", op->claim.run_id);
		finish_bad(op, "namespace_failed");
	}
}

/* "files=N bytes=N skipped=N", of the unpacker, which a hostile archive may own. */
static bool read_report(const char *text, uint64_t out[3])
{
	static const char *const words[3] = {"files=", "bytes=", "skipped="};
	struct err ignored = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		const char *value = str_after(text, words[i]);
		char number[24];
		size_t length;

		if (value == NULL)
			return false;
		length = strcspn(value, " \n");
		if (length >= sizeof(number))
			return false;
		memcpy(number, value, length);
		number[length] = '\0';
		if (num_u64("report", number, 0, INT64_MAX / 4, &out[i], &ignored) != 0)
			return false;
		text = value + length;
		text += *text == '\0' ? 0 : 1;
	}
	return true;
}

static const char *message_of(const struct agent_exit *status)
{
	if (status->how == AGENT_SIGNALED)
		return "archive_too_large"; /* memory, or its box's time */
	/* a run took the right to enter the workspace */
	if (status->how == AGENT_NOT_STARTED && status->stage == AGENT_STAGE_CHDIR)
		return "path_conflict";
	if (status->how != AGENT_EXITED)
		return "namespace_failed";
	switch (status->code) {
	case AGENT_UNPACK_BROKEN:
		return "invalid_archive";
	case AGENT_UNPACK_FULL:
		return "workspace_full";
	case AGENT_UNPACK_CONFLICT:
		return "path_conflict";
	default:
		return "namespace_failed";
	}
}

/* --- events of the agent --------------------------------------------------------------------- */

static void on_output(void *ctx, uint32_t channel, enum agent_stream stream, uint64_t offset,
		      const void *data, size_t length)
{
	struct session_op *op = ctx;
	struct buf *said = &op->upload->said[stream == AGENT_STREAM_ERR ? 1 : 0];
	struct err e = ERR_INIT;

	/* it says little; what is more is dropped */
	if (said->len + length <= SAID_BYTES)
		buf_add(said, data, length);
	(void)!agent_ack(&op->upload->agent, channel, stream, offset + length, &e);
}

static void on_input(void *ctx, uint32_t channel, uint64_t offset, bool closed)
{
	struct session_op *op = ctx;
	struct err e = ERR_INIT;

	(void)offset;
	(void)closed;
	if (op->upload->state == UPLOAD_UNPACKING && channel == op->upload->part + 1 &&
	    feed(op, &e) != 0 && e.code == ERR_IO) {
		log_err(LOG_ERROR, "upload", &e, "operation=%s", op->claim.run_id);
		finish_bad(op, "namespace_failed");
	}
}

static void on_exited(void *ctx, uint32_t channel, const struct agent_exit *status)
{
	struct session_op *op = ctx;
	struct upload *u = op->upload;
	uint64_t numbers[3];
	struct err e = ERR_INIT;

	if (u->state != UPLOAD_UNPACKING || channel != u->part + 1)
		return;
	(void)!agent_ack_exit(&u->agent, channel, &e);
	if (status->how != AGENT_EXITED || status->code != AGENT_UNPACKED ||
	    !read_report(buf_text(&u->said[0]), numbers)) {
		finish_bad(op, message_of(status));
		return;
	}
	u->files += numbers[0];
	u->bytes += numbers[1];
	u->skipped += numbers[2];
	u->part++;
	next_part(op);
}

static void tidied(struct session_op *op, uint32_t tag)
{
	if (op->upload->state == UPLOAD_TIDYING && tag == TAG_REMOVE)
		next_part(op);
}

static void on_result(void *ctx, uint32_t tag, const uint64_t values[AGENT_RESULT_VALUES])
{
	(void)values;
	tidied(ctx, tag);
}

static void on_error(void *ctx, uint32_t tag, const struct agent_error *error)
{
	struct session_op *op = ctx;

	/* there was nothing to tidy */
	if (op->upload->state == UPLOAD_TIDYING) {
		tidied(op, tag);
		return;
	}
	log_event(LOG_WARNING, "upload_refused", "operation=%s text=\"%s\"", op->claim.run_id,
		  error->text);
	if (op->upload->state == UPLOAD_UNPACKING && tag == op->upload->part + 1)
		finish_bad(op, "namespace_failed");
}

static const struct agent_events events = {.output = on_output,
					   .input = on_input,
					   .exited = on_exited,
					   .result = on_result,
					   .error = on_error};

/* --- the box --------------------------------------------------------------------------------- */

/* Uploads must not take the slots of all runs. */
static bool may_have_box(const struct session_op *op)
{
	unsigned int boxes = 0;

	for (const struct session_op *other = op->sup->session_ops; other != NULL;
	     other = other->next)
		if (other != op && other->upload != NULL &&
		    other->upload->state != UPLOAD_WANTS_BOX && other->upload->state != UPLOAD_OVER)
			boxes++;
	return boxes < BOXES_MOST;
}

static void send_create(struct session_op *op)
{
	struct upload *u = op->upload;
	struct box_limits limits = {
	    .memory_bytes =
		(uint64_t)(POLICY_UPLOAD_MEMORY_MB + op->sup->policy->sessions.upload_mb) << 20,
	    .workspace_bytes = 1U << 20,
	    .workspace_inodes = TMP_INODES,
	    .tmp_bytes = ((uint64_t)op->sup->policy->sessions.upload_mb + 1) << 20,
	    .pids = TASKS,
	    .cpu_millis = CPU_MILLIS};
	struct box_wish wish = {.run_id = op->claim.run_id,
				.image = "host",
				.limits = &limits,
				.workspace = op->job.session,
				.make_bytes = (uint64_t)op->job.workspace_bytes,
				.make_inodes = (uint64_t)op->job.workspace_inodes,
				.maintain = true,
				.lifetime_ms = LIFETIME_MS,
				.deadline_ms = CREATE_MS};
	struct err e = ERR_INIT;

	u->state = UPLOAD_CREATING;
	if (may_have_box(op) &&
	    boxclient_make(&op->sup->box, op->serial * 4 + WHAT_CREATE, &wish, &e) == 0)
		return;
	u->state = UPLOAD_WANTS_BOX;
	u->retry_us = clock_monotonic_us() + AGAIN_US;
}

void upload_begin(struct session_op *op)
{
	struct upload *u = mem_zalloc(1, sizeof(*u));
	struct err e = ERR_INIT;

	if (u == NULL) {
		session_op_end(op, false, "namespace_failed", NULL);
		return;
	}
	u->folder = -1;
	u->fd = -1;
	u->registered_fd = -1;
	u->deadline_us = clock_monotonic_us() + UPLOAD_US;
	buf_init(&u->said[0], SAID_BYTES + 1);
	buf_init(&u->said[1], SAID_BYTES + 1);
	op->upload = u;
	op->state = SESSION_OP_UPLOADS;
	if (open_parts(op, &e) != 0) {
		log_err(LOG_ERROR, "upload", &e, "operation=%s", op->claim.run_id);
		finish(op, false, e.code == ERR_NOT_FOUND ? "upload_lost" : "namespace_failed",
		       NULL);
		return;
	}
	send_create(op);
}

void upload_cancel(struct session_op *op)
{
	struct err e = ERR_INIT;

	if (op->upload != NULL) {
		finish(op, false, "session_gone", NULL);
		return;
	}
	session_op_end(op, false, "session_gone", NULL);
	if (spool_remove(op->sup->policy->paths.data, UPLOAD_KIND, op->job.upload, &e) != 0)
		log_err(LOG_WARNING, "upload_files", &e, "upload=%s", op->job.upload);
}

static void created(struct session_op *op, const struct box_reply *reply)
{
	struct upload *u = op->upload;
	struct err e = ERR_INIT;

	if (reply->code == BOX_OK) {
		u->has_box = true;
		u->slot = reply->slot;
	}
	if (op->state == SESSION_OP_DONE) { /* its time was over meanwhile */
		if (u->has_box)
			send_destroy(op);
		else
			u->state = UPLOAD_OVER;
		return;
	}
	if (reply->code == BOX_ERR_BUSY || reply->code == BOX_ERR_TIMEOUT) {
		u->state = UPLOAD_WANTS_BOX;
		u->retry_us = clock_monotonic_us() + AGAIN_US;
		return;
	}
	if (reply->code != BOX_OK) {
		log_event(LOG_ERROR, "upload_box", "operation=%s code=%s errno=%d text=\"%s\"",
			  op->claim.run_id, box_code_name((enum box_code)reply->code), reply->sys,
			  reply->text);
		u->state = UPLOAD_OVER;
		finish_stopped(op, "namespace_failed");
		return;
	}
	agent_init(&u->agent, &events, op, 1);
	u->agent_open = true;
	u->state = UPLOAD_TIDYING;
	if (agent_connect(&u->agent, reply->agent_path, &e) != 0 ||
	    agent_remove(&u->agent, TAG_REMOVE, BOX_USER, BOX_USER, AGENT_UNPACK_FOLDER, true,
			 &e) != 0) {
		log_err(LOG_ERROR, "upload_box", &e, "operation=%s", op->claim.run_id);
		finish_stopped(op, "namespace_failed");
		return;
	}
	watch(op);
}

void upload_reply(struct session_op *op, const struct box_reply *reply)
{
	struct upload *u = op->upload;
	unsigned int what = (unsigned int)(reply->tag % 4);

	if (what == WHAT_CREATE && u->state == UPLOAD_CREATING) {
		created(op, reply);
	} else if (what == WHAT_DESTROY && u->state == UPLOAD_DESTROYING) {
		if (reply->code == BOX_OK || reply->code == BOX_ERR_NOT_FOUND) {
			u->has_box = false;
			u->state = UPLOAD_OVER;
			if (op->state != SESSION_OP_DONE)
				send_create(op); /* for what it left */
			return;
		}
		u->state = UPLOAD_WANTS_END;
		u->retry_us = clock_monotonic_us() + AGAIN_US;
	}
}

void upload_again(struct session_op *op)
{
	/* cordon-box has cleared away what it was making; the box that there is lives on */
	if (op->upload->state == UPLOAD_CREATING && op->state == SESSION_OP_DONE)
		op->upload->state = UPLOAD_OVER;
	else if (op->upload->state == UPLOAD_CREATING)
		send_create(op);
	else if (op->upload->state == UPLOAD_DESTROYING)
		send_destroy(op);
}

bool upload_agent_ready(struct supervisor *sup, const void *mark)
{
	struct err e = ERR_INIT;

	for (struct session_op *op = sup->session_ops; op != NULL; op = op->next) {
		if (op->upload != mark)
			continue;
		if (op->upload->agent_open && agent_ready(&op->upload->agent, &e) != 0) {
			log_err(LOG_WARNING, "upload_agent", &e, "operation=%s", op->claim.run_id);
			/* most of all it is memory that ends its box while it unpacks */
			finish_stopped(op, op->upload->state == UPLOAD_UNPACKING
					       ? "archive_too_large"
					       : "namespace_failed");
		}
		watch(op);
		return true;
	}
	return false;
}

void upload_tick(struct session_op *op, int64_t now_us)
{
	struct upload *u = op->upload;

	if (now_us >= u->deadline_us && op->state != SESSION_OP_DONE)
		finish_stopped(op, u->has_box ? "archive_too_large" : "workspace_busy");
	else if (now_us >= u->deadline_us)
		u->state = UPLOAD_OVER; /* its lifetime ends the box */
	else if (u->state == UPLOAD_WANTS_BOX && now_us >= u->retry_us && op->sup->box_open)
		send_create(op);
	else if (u->state == UPLOAD_WANTS_END && now_us >= u->retry_us && op->sup->box_open)
		send_destroy(op);
}

int64_t upload_due_us(const struct session_op *op)
{
	const struct upload *u = op->upload;

	if (u->state == UPLOAD_WANTS_BOX || u->state == UPLOAD_WANTS_END)
		return u->retry_us;
	return u->deadline_us;
}

bool upload_is_over(const struct session_op *op)
{
	return op->upload->state == UPLOAD_OVER;
}

void upload_free(struct session_op *op)
{
	struct upload *u = op->upload;

	if (u == NULL)
		return;
	if (u->agent_open)
		agent_release(&u->agent);
	fd_close_at(&u->fd);
	fd_close_at(&u->folder);
	upload_parts_release(&u->parts);
	buf_release(&u->said[0]);
	buf_release(&u->said[1]);
	mem_free(u);
	op->upload = NULL;
}
