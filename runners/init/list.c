#include "runners/init/server.h"

#include "runners/base/agentfiles.h"
#include "runners/base/fdio.h"
#include "runners/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* LIST: one directory in its own order, so that nothing is kept but one piece of it. */

struct list {
	struct task task;
	int fd;
	uint64_t limit; /* UINT64_MAX: none */
	uint64_t sent;
	uint64_t gone; /* removed between their name and their stat */
	struct name_reader names;
};

static void list_release(struct task *t)
{
	struct list *l = (struct list *)t;

	fd_close_at(&l->fd);
	mem_free(l);
}

static void finish(struct conn *c, const struct list *l, bool cut, int reason)
{
	uint64_t values[AGENT_RESULT_VALUES] = {l->sent, cut ? 1 : 0, l->gone, (uint64_t)reason};

	agent_put_result(&c->out, &l->task.head, values);
}

static bool list_step(struct server *s, struct conn *c, struct task *t)
{
	struct list *l = (struct list *)t;
	struct agent_info info = {.kind = AGENT_KIND_UNREADABLE};
	const char *name;
	struct stat st;
	int found = name_next(&l->names, l->fd, &name, NULL);

	(void)s;
	if (found <= 0) {
		finish(c, l, false, found < 0 ? errno : 0);
		return false;
	}
	if (l->sent >= l->limit) {
		finish(c, l, true, 0);
		return false;
	}
	if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		name_describe(&info, &st);
	} else if (errno == ENOENT) {
		l->gone++;
		return true;
	}
	info.name = name;
	info.name_length = strlen(name);
	agent_put_info(&c->out, &t->head, &info);
	l->sent++;
	return true;
}

int list_start(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct agent_name_request want;
	struct list *l;
	int reason;
	int fd;

	if (agent_get_name_request(f, &want, e) != 0 || file_act_as(want.uid, want.gid, e) != 0)
		return -1;
	fd = file_open_beneath(s, want.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	reason = errno;
	file_act_as_self();
	if (fd < 0)
		return err_set(e, file_error_code(reason), reason, "open directory");
	l = mem_zalloc(1, sizeof(*l));
	if (l == NULL) {
		(void)close(fd);
		return err_set(e, ERR_NOMEM, 0, "no memory for a list");
	}
	l->task = (struct task){.head = f->head,
				.uid = want.uid,
				.gid = want.gid,
				.step = list_step,
				.release = list_release};
	l->fd = fd;
	l->limit = want.limit == 0 ? UINT64_MAX : want.limit;
	return task_start(c, &l->task, false, e);
}
