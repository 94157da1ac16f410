/*
 * Taking over the boxes of an earlier cordon-box: by their slot files, each checked with the
 * kernel. What no slot file explains is removed afterwards (cgroups_open, adopt_clean).
 */
#include "runners/exec/daemon.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/exec/slot_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/pidfd.h>

void adopt_prepare(struct slot *s)
{
	struct err ignored = ERR_INIT;

	(void)proc_start_ticks(s->pid, &s->start_ticks, &ignored);
}

int adopt_keep(struct daemon *d, struct slot *s, struct err *e)
{
	struct slot_record r;

	memset(&r, 0, sizeof(r));
	r.slot = s->number;
	r.uid_base = s->uid_base;
	r.pid = s->pid;
	r.mode = d->groups.mode;
	r.created_us = s->created_us;
	r.limits = s->limits;
	r.base_cpu_us = s->groups.base_cpu_us;
	r.base_oom_kills = s->groups.base_oom_kills;
	r.base_pids_hits = s->groups.base_pids_hits;
	r.base_memory = s->groups.base_memory;
	r.maintain = s->maintain ? 1 : 0;
	r.until_us = s->until_us;
	memcpy(r.workspace, s->workspace, sizeof(r.workspace));
	memcpy(r.run_id, s->run_id, sizeof(r.run_id));
	memcpy(r.agent_path, s->agent_path, sizeof(r.agent_path));
	if (str_copy(r.instance, sizeof(r.instance), d->instance) != 0)
		return err_set(e, ERR_INTERNAL, 0, "the instance's name is too long");
	if (s->start_ticks == 0 && proc_start_ticks(s->pid, &s->start_ticks, e) != 0)
		return -1;
	r.start_ticks = s->start_ticks;
	slot_record_seal(&r);
	return slot_file_write(d->boxes_dir, &r, e);
}

void adopt_forget(const struct daemon *d, const struct slot *s)
{
	slot_file_remove(d->boxes_dir, s->number);
}

/* Whether the record fits this cordon-box, whatever the kernel says. */
static int check_fit(const struct daemon *d, const struct slot_record *r, struct err *e)
{
	char agents[BOX_PATH_SIZE];

	(void)snprintf(agents, sizeof(agents), "%s/agents/", d->run_dir);
	if (!str_equal(r->instance, d->instance) || !str_starts(r->agent_path, agents) ||
	    strchr(r->agent_path + strlen(agents), '/') != NULL)
		return err_set(e, ERR_CONFLICT, 0, "it is another instance's");
	if (r->slot >= d->config.slots ||
	    r->uid_base != d->config.uid_base + (uint64_t)r->slot * ZYGOTE_IDS ||
	    r->mode != d->groups.mode)
		return err_set(e, ERR_CONFLICT, 0, "ids or groups of slots have changed");
	return 0;
}

/*
 * A pidfd of the box's pid 1, or -1. The order matters: the descriptor first; while it says that
 * its process lives, the pid cannot be another's.
 */
static int open_process(const struct daemon *d, const struct slot_record *r, struct err *e)
{
	scope_close int fd = pidfd_open(r->pid, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t ticks;

	if (fd < 0)
		return err_set(e, ERR_NOT_FOUND, errno, "process %d is gone", r->pid);
	if (proc_start_ticks(r->pid, &ticks, e) != 0)
		return -1;
	if (ticks != r->start_ticks)
		return err_set(e, ERR_NOT_FOUND, 0, "pid %d is another process's now", r->pid);
	if (!cgroups_has_member(&d->groups, d->instance, r->slot, r->pid))
		return err_set(e, ERR_NOT_FOUND, 0, "process %d is not in the slot's group",
			       r->pid);
	if (poll(&p, 1, 0) != 0)
		return err_set(e, ERR_NOT_FOUND, 0, "process %d has ended", r->pid);
	return fd_steal(&fd);
}

void adopt_find(struct daemon *d, struct adopt_list *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned int i = 0; i < BOX_MAX_SLOTS; i++) {
		struct slot_record *r = &out->records[i];
		struct err e = ERR_INIT;

		out->pidfds[i] = -1;
		if (slot_file_read(d->boxes_dir, i, r, &e) != 0) {
			if (e.sys == ENOENT)
				continue;
		} else if (check_fit(d, r, &e) == 0) {
			out->pidfds[i] = open_process(d, r, &e);
		}
		if (out->pidfds[i] < 0) {
			log_err(LOG_WARNING, "slot_file_refused", &e, "slot=%u", i);
			slot_file_remove(d->boxes_dir, i);
			continue;
		}
		out->keep[i] = true;
		out->count++;
	}
}

static int take_over(struct daemon *d, struct slot *s, const struct slot_record *r, int *pidfd,
		     struct err *e)
{
	if (slot_prepare(d, s, e) != 0)
		return -1;
	cgroup_slot_settle(&s->groups);
	s->serial = ++d->next_serial;
	memcpy(s->run_id, r->run_id, sizeof(s->run_id));
	memcpy(s->agent_path, r->agent_path, sizeof(s->agent_path));
	s->limits = r->limits;
	memcpy(s->workspace, r->workspace, sizeof(s->workspace));
	s->maintain = r->maintain != 0;
	s->until_us = r->until_us;
	s->adopted = true;
	s->replied = true;
	s->ready = true;
	s->pid = r->pid;
	s->created_us = r->created_us;
	s->groups.base_cpu_us = r->base_cpu_us;
	s->groups.base_oom_kills = r->base_oom_kills;
	s->groups.base_pids_hits = r->base_pids_hits;
	s->groups.base_memory = r->base_memory;
	s->groups.frozen = cgroup_slot_is_frozen(&s->groups, true);
	if (watch_open(d, &s->pidfd, *pidfd, box_on_pidfd, s, e) != 0)
		return -1;
	*pidfd = -1;
	if (s->workspace[0] != '\0')
		workspace_adopt(d, s);
	s->state = s->groups.frozen ? BOX_FROZEN : BOX_LIVE;
	log_event(LOG_INFO, "box_adopted", "slot=%u run=%s pid=%d", s->number, s->run_id, s->pid);
	return 0;
}

int adopt_all(struct daemon *d, struct adopt_list *list, struct err *e)
{
	for (unsigned int i = 0; i < d->config.slots; i++)
		if (list->keep[i] &&
		    take_over(d, &d->slots[i], &list->records[i], &list->pidfds[i], e) != 0)
			return err_wrap(e, "slot %u", i);
	return 0;
}

void adopt_list_release(struct adopt_list *list)
{
	for (unsigned int i = 0; i < BOX_MAX_SLOTS; i++)
		fd_close_at(&list->pidfds[i]);
}

void adopt_keep_list(const struct daemon *d, bool keep[BOX_MAX_SLOTS])
{
	memset(keep, 0, sizeof(bool) * BOX_MAX_SLOTS);
	for (unsigned int i = 0; d->slots != NULL && i < d->config.slots; i++)
		keep[i] = d->slots[i].state == BOX_LIVE || d->slots[i].state == BOX_FROZEN;
}

static bool is_kept_socket(const struct daemon *d, const char *name)
{
	for (unsigned int i = 0; d->slots != NULL && i < d->config.slots; i++) {
		const char *own = strrchr(d->slots[i].agent_path, '/');

		if (own != NULL && str_equal(own + 1, name))
			return true;
	}
	return false;
}

/* s<slot> of a box that we have */
static bool is_kept_file(const struct daemon *d, const char *name)
{
	struct err ignored = ERR_INIT;
	uint64_t slot;

	if (name[0] != 's' || num_u64("slot", name + 1, 0, BOX_MAX_SLOTS - 1, &slot, &ignored) != 0)
		return false;
	return d->slots != NULL && slot < d->config.slots && d->slots[slot].state != BOX_STATE_NONE;
}

static int clean(const struct daemon *d, int dir,
		 bool (*is_kept)(const struct daemon *d, const char *name), struct err *e)
{
	scope_close int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;

	if (list == NULL)
		return err_set(e, ERR_IO, errno, "list a folder");
	(void)fd_steal(&copy);
	while ((entry = readdir(list)) != NULL)
		if (entry->d_name[0] != '.' && !is_kept(d, entry->d_name) &&
		    unlinkat(dir, entry->d_name, 0) != 0)
			(void)unlinkat(dir, entry->d_name, AT_REMOVEDIR);
	(void)closedir(list);
	return 0;
}

int adopt_clean(const struct daemon *d, struct err *e)
{
	if (clean(d, d->boxes_dir, is_kept_file, e) != 0)
		return -1;
	return clean(d, d->agents_dir, is_kept_socket, e);
}
