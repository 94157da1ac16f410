/*
 * Artifacts: the agent walks the workspace and names what matches the patterns; here the caps
 * judge, one file after the other is read, and each becomes <data>/artifacts/<2
 * hex>/<run>/<ordinal>. A name of the box is never a path on the host. Nothing is skipped silently:
 * every reason has its counter. What the box says is hostile: sizes are counted, not believed.
 */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define TAG_COLLECT  1000U
#define TAG_READ     2000U /* plus the entry's index */
#define COLLECT_US   (30 * CLOCK_US_PER_S)
#define LIST_US      (10 * CLOCK_US_PER_S)
#define COUNT_MOST   INT64_C(1000000000)
#define NAMES_MOST   ((size_t)1 << 20) /* bytes of all names: their list must fit one answer */
#define ENTRY_GROWTH 64

static int artifact_path(const struct task *task, size_t ordinal, char *out, size_t size,
			 struct err *e)
{
	char folder[SPOOL_PATH_BYTES];

	if (spool_folder(folder, task->sup->policy->paths.data, "artifacts", task->claim.run_id,
			 e) != 0)
		return -1;
	(void)snprintf(out, size, "%s/%zu", folder, ordinal);
	return 0;
}

static int make_folder(const struct task *task, struct err *e)
{
	char folder[SPOOL_PATH_BYTES];
	char parent[SPOOL_PATH_BYTES];

	if (spool_folder(folder, task->sup->policy->paths.data, "artifacts", task->claim.run_id,
			 e) != 0)
		return -1;
	(void)snprintf(parent, sizeof(parent), "%s", folder);
	*strrchr(parent, '/') = '\0';
	/* the group comes from the folder above (setgid) */
	if ((mkdir(parent, 0750) != 0 && errno != EEXIST) ||
	    (mkdir(folder, 0750) != 0 && errno != EEXIST))
		return err_set(e, errno == ENOSPC ? ERR_STORAGE : ERR_IO, errno, "mkdir %s",
			       folder);
	return 0;
}

void collect_begin(struct task *task)
{
	struct err e = ERR_INIT;

	task->state = TASK_COLLECTING;
	task->collection.fd = -1;
	task->collect_deadline_us = clock_monotonic_us() + LIST_US;
	/* what the command left running must not change files while they are read */
	if (agent_signal_all(&task->agent, TAG_KILL, SIGKILL, &e) != 0 ||
	    agent_collect(&task->agent, TAG_COLLECT, BOX_USER, BOX_USER,
			  (const char *const *)task->spec.patterns, task->spec.pattern_count,
			  &e) != 0) {
		log_err(LOG_WARNING, "collect", &e, "run=%s", task->claim.run_id);
		task->collection.skip_read_error++;
		task_conclude(task);
	}
}

static int add_entry(struct collection *c, const struct agent_entry *entry)
{
	if (c->entry_count == c->entry_room) {
		size_t room = c->entry_room + ENTRY_GROWTH + c->entry_room / 2;
		struct task_entry *more = mem_resize(c->entries, room, sizeof(*more));

		if (more == NULL)
			return -1;
		c->entries = more;
		c->entry_room = room;
	}
	c->entries[c->entry_count].path = mem_dup_bytes(entry->path, entry->path_length);
	if (c->entries[c->entry_count].path == NULL)
		return -1;
	c->entries[c->entry_count].path_length = entry->path_length;
	c->entries[c->entry_count].size = entry->size;
	c->entry_count++;
	c->chosen_bytes += entry->size;
	c->name_bytes += entry->path_length;
	return 0;
}

void collect_entry(struct task *task, const struct agent_entry *entry)
{
	struct collection *c = &task->collection;
	const struct run_spec *spec = &task->spec;
	uint64_t user_left =
	    (uint64_t)spec->artifact_user_bytes > task->claim.user_artifact_bytes
		? (uint64_t)spec->artifact_user_bytes - task->claim.user_artifact_bytes
		: 0;

	if (task->state != TASK_COLLECTING || c->listed)
		return;
	switch (entry->kind) {
	case AGENT_KIND_SYMLINK:
		c->skip_symlink++;
		return;
	case AGENT_KIND_UNREADABLE:
		c->skip_read_error++;
		return;
	case AGENT_KIND_REGULAR:
		break;
	case AGENT_KIND_OTHER:
	case AGENT_KIND_DIRECTORY:
	case AGENT_KIND__MAX:
		c->skip_invalid++;
		return;
	}
	if (!agent_path_ok(entry->path, entry->path_length))
		c->skip_invalid++;
	else if (entry->size > (uint64_t)spec->artifact_file_bytes)
		c->skip_file_limit++;
	else if (c->entry_count >= LIMIT_ARTIFACTS ||
		 c->name_bytes + entry->path_length > NAMES_MOST ||
		 entry->size > (uint64_t)spec->artifact_run_bytes - c->chosen_bytes ||
		 c->chosen_bytes + entry->size > user_left)
		c->skip_total_limit++;
	else if (add_entry(c, entry) != 0)
		c->skip_read_error++;
}

static void drop_file(struct task *task)
{
	struct collection *c = &task->collection;
	char path[SPOOL_PATH_BYTES + 32];
	struct err e = ERR_INIT;

	fd_close_at(&c->fd);
	if (artifact_path(task, c->done_count, path, sizeof(path), &e) == 0)
		(void)unlink(path);
}

/* Asks for the next chosen file, or ends the collection. */
static void read_next(struct task *task)
{
	struct collection *c = &task->collection;

	while (c->next < c->entry_count) {
		const struct task_entry *entry = &c->entries[c->next];
		char path[SPOOL_PATH_BYTES + 32];
		struct err e = ERR_INIT;

		c->written = 0;
		c->file_failed = false;
		if (artifact_path(task, c->done_count, path, sizeof(path), &e) == 0)
			c->fd =
			    open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
		if (c->fd >= 0 &&
		    agent_get_file(&task->agent, TAG_READ + (uint32_t)c->next, BOX_USER, BOX_USER,
				   entry->path, entry->path_length, 0, entry->size, &e) == 0)
			return;
		log_event(LOG_WARNING, "artifact_skipped", "run=%s errno=%d", task->claim.run_id,
			  errno);
		c->skip_read_error++;
		drop_file(task);
		c->next++;
	}
	task_conclude(task);
}

void collect_data(struct task *task, const void *data, size_t length)
{
	struct collection *c = &task->collection;
	struct err e = ERR_INIT;

	if (c->fd < 0 || c->file_failed)
		return;
	/* never more than the size that the caps were judged with */
	if (length > c->entries[c->next].size - c->written)
		length = (size_t)(c->entries[c->next].size - c->written);
	if (fd_write_full(c->fd, data, length, &e) != 0) {
		log_err(LOG_WARNING, "artifact_write", &e, "run=%s", task->claim.run_id);
		c->file_failed = true;
		return;
	}
	c->written += length;
}

/* The file is whole: its time is set to a full second, because the web server's ETag is made of it.
 */
static int keep_file(struct task *task)
{
	struct collection *c = &task->collection;
	struct task_entry *entry = &c->entries[c->next];
	struct timespec times[2] = {{.tv_sec = time(NULL)}, {.tv_sec = time(NULL)}};
	struct ended_artifact *more = mem_resize(c->done, c->done_count + 1, sizeof(*more));

	if (more == NULL)
		return -1;
	c->done = more;
	if (futimens(c->fd, times) != 0 || fdatasync(c->fd) != 0)
		return -1;
	fd_close_at(&c->fd);
	c->done[c->done_count].path = entry->path;
	c->done[c->done_count].path_length = entry->path_length;
	c->done[c->done_count].size_bytes = c->written;
	c->done[c->done_count].mtime_sec = (int64_t)times[1].tv_sec;
	entry->path = NULL;
	c->done_count++;
	c->done_bytes += c->written;
	return 0;
}

/* A count that a box tells: hostile. */
static int64_t bounded(uint64_t count)
{
	return count > COUNT_MOST ? COUNT_MOST : (int64_t)count;
}

void collect_result(struct task *task, uint32_t tag, const uint64_t values[AGENT_RESULT_VALUES])
{
	struct collection *c = &task->collection;

	if (task->state != TASK_COLLECTING)
		return;
	if (tag == TAG_COLLECT && !c->listed) {
		struct err e = ERR_INIT;

		c->listed = true;
		task->collect_deadline_us = clock_monotonic_us() + COLLECT_US;
		c->skip_invalid += bounded(values[2]);
		c->skip_read_error += bounded(values[3]);
		if (c->entry_count > 0 && make_folder(task, &e) != 0) {
			log_err(LOG_ERROR, "artifacts", &e, "run=%s", task->claim.run_id);
			c->skip_read_error += (int64_t)c->entry_count;
			task_conclude(task);
			return;
		}
		read_next(task);
	} else if (tag == TAG_READ + (uint32_t)c->next && c->fd >= 0) {
		if (c->file_failed || c->written != c->entries[c->next].size ||
		    keep_file(task) != 0) {
			c->skip_read_error++;
			drop_file(task);
		}
		c->next++;
		read_next(task);
	}
}

void collect_error(struct task *task, uint32_t tag, const struct agent_error *error)
{
	struct collection *c = &task->collection;

	if (task->state != TASK_COLLECTING)
		return;
	if (tag == TAG_COLLECT && !c->listed) {
		log_event(LOG_WARNING, "collect", "run=%s error=\"%s\"", task->claim.run_id,
			  error->text);
		c->skip_read_error++;
		task_conclude(task);
	} else if (tag == TAG_READ + (uint32_t)c->next && c->fd >= 0) {
		c->skip_read_error++;
		drop_file(task);
		c->next++;
		read_next(task);
	}
}

void collect_end(struct task *task)
{
	struct collection *c = &task->collection;

	if (c->fd >= 0)
		drop_file(task);
	/* the walk did not come to its end: at least that is told */
	if (task->state == TASK_COLLECTING && !c->listed)
		c->skip_read_error += c->entry_count > 0 ? (int64_t)c->entry_count : 1;
	if (c->listed && c->next < c->entry_count) {
		c->skip_read_error += (int64_t)(c->entry_count - c->next);
		c->next = c->entry_count;
	}
}

void collect_release(struct collection *c)
{
	fd_close_at(&c->fd);
	for (size_t i = 0; i < c->entry_count; i++)
		mem_free(c->entries[i].path);
	mem_free(c->entries);
	for (size_t i = 0; i < c->done_count; i++)
		mem_free(c->done[i].path);
	mem_free(c->done);
	memset(c, 0, sizeof(*c));
	c->fd = -1;
}
