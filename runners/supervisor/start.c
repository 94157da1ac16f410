/* What a command needs before it starts: its inline files, the mark that it may have been started,
 * and EXEC itself. */
#include "runners/supervisor/supervisor.h"

#include "runners/base/fdio.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>

#define TAG_FILE 1U /* plus the file's index */

/* Reads the inline files' bytes and compares their hash with the spec's. */
static int read_blob(struct task *task, struct buf *out, struct err *e)
{
	char path[SPOOL_PATH_BYTES];
	unsigned char hash[SHA256_DIGEST_LENGTH];

	if (spool_folder(path, task->sup->policy->paths.data, "staging", task->claim.run_id, e) !=
		0 ||
	    fd_read_file(AT_FDCWD, path, out, e) != 0)
		return -1;
	(void)SHA256((const unsigned char *)buf_text(out), out->len, hash);
	if (out->len != task->spec.blob_bytes ||
	    memcmp(hash, task->spec.blob_sha256, sizeof(hash)) != 0)
		return err_set(e, ERR_INTERNAL, 0, "the staged files of %s are damaged",
			       task->claim.run_id);
	return 0;
}

static int send_files(struct task *task, struct err *e)
{
	scope_buf struct buf blob = BUF_NONE;
	uint64_t at = 0;

	buf_init(&blob, LIMIT_FILES_BYTES * 2);
	if (task->spec.blob_bytes > 0 && read_blob(task, &blob, e) != 0)
		return -1;
	for (size_t i = 0; i < task->spec.file_count; i++) {
		const struct spec_file *file = &task->spec.files[i];

		if (file->size_bytes > blob.len - at)
			return err_set(e, ERR_PROTOCOL, 0, "the spec's files do not fit the blob");
		if (agent_put_file(&task->agent, TAG_FILE + (uint32_t)i % 700U, file->path, 0644,
				   BOX_USER, BOX_USER, buf_text(&blob) + at, file->size_bytes,
				   e) != 0)
			return -1;
		at += file->size_bytes;
	}
	return 0;
}

static int mark_path(const struct task *task, char *out, size_t size, struct err *e)
{
	char folder[SPOOL_PATH_BYTES];

	if (spool_folder(folder, task->sup->policy->paths.data, "spool", task->claim.run_id, e) !=
	    0)
		return -1;
	(void)snprintf(out, size, "%s/sent", folder);
	return 0;
}

bool task_was_sent(const struct task *task)
{
	char path[SPOOL_PATH_BYTES + 8];
	struct err ignored = ERR_INIT;

	/* in a sandbox its agent is asked, and when that is gone nobody can say */
	if (task->claim.kind == JOB_EXEC)
		return true;
	return mark_path(task, path, sizeof(path), &ignored) != 0 || access(path, F_OK) == 0;
}

/* From here on nobody may start this run in another box. */
static int mark_sent(const struct task *task, struct err *e)
{
	char path[SPOOL_PATH_BYTES + 8];
	scope_close int fd = -1;

	if (mark_path(task, path, sizeof(path), e) != 0)
		return -1;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	return fd < 0 ? err_set(e, ERR_IO, errno, "create %s", path) : 0;
}

int task_send_command(struct task *task, struct err *e)
{
	struct agent_exec exec = {.argv = task->spec.command,
				  .env = task->spec.environment,
				  .cwd = task->spec.cwd,
				  .uid = BOX_USER,
				  .gid = BOX_USER,
				  .nofile = (uint64_t)task->spec.nofile,
				  .nproc = 0,
				  .core_bytes = 0,
				  .grace_ms = (uint32_t)task->sup->policy->runner.drain_grace_ms,
				  .stdin_mode = task->spec.interactive ? AGENT_STDIN_STREAM
								       : AGENT_STDIN_NONE};

	if (send_files(task, e) != 0 || (task->claim.kind == JOB_RUN && mark_sent(task, e) != 0) ||
	    agent_exec(&task->agent, task->channel, &exec, e) != 0)
		return -1;
	trace_mark(&task->trace, TRACE_EXEC_SENT);
	task->state = TASK_STARTING;
	task_agent_watch(task);
	return 0;
}
