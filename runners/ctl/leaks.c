/*
 * doctor --leaks: what is ours on this host and what nothing explains: processes with an id of a
 * box (and with them their namespaces and ids), control groups that are not empty (empty ones are
 * kept and used again), agent sockets, boxes without a live run, mounts below our folders, loop
 * devices and images of workspaces without a sandbox, and folders of spool, staging, artifacts
 * and uploads without a run or an operation.
 *
 * Boxes come and go while we look. So the processes and groups are read first, then cordon-box's
 * list, and what the list does not name counts only if it is still there afterwards.
 */
#include "runners/ctl/report.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/boxclient.h"
#include "runners/core/upload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define IDS_PER_SLOT  65536U
#define SUSPECTS_MAX  1024
#define LIST_WAIT_US  (5 * CLOCK_US_PER_S)
#define FRESH_S       3600
#define WRITE_BACK_US (3 * CLOCK_US_PER_S)
#define MOUNTS_BYTES  (1U << 20)
#define COMMAND_BYTES 4096U

enum mount_pass { GROUPS_BEFORE, GROUPS_AFTER, MOUNTS };

struct box {
	bool listed;
	bool busy; /* a group of the slot had processes before the list was read */
	char run_id[BOX_RUN_ID_SIZE];
	char agent_path[BOX_PATH_SIZE];
};

struct suspect {
	pid_t pid;
	uint32_t slot;
};

struct look {
	struct report *report;
	struct box *boxes; /* BOX_MAX_SLOTS */
	bool list_done;
	struct suspect *suspects; /* SUSPECTS_MAX */
	size_t suspect_count;
	char instance[64]; /* of cordon-box, "" if it cannot be read */
};

static void leak(struct look *l, const char *name, const char *detail, const char *remedy)
{
	report_line(l->report, name, false, detail, remedy);
}

/* --- cordon-box's list */

static void on_reply(void *ctx, const struct box_reply *reply)
{
	struct look *l = ctx;

	if (reply->verb == BOX_LIST)
		l->list_done = true;
}

static void on_entry(void *ctx, const struct box_reply *entry)
{
	struct look *l = ctx;
	struct box *box;

	if (entry->slot >= BOX_MAX_SLOTS)
		return;
	box = &l->boxes[entry->slot];
	box->listed = true;
	memcpy(box->run_id, entry->run_id, sizeof(box->run_id));
	memcpy(box->agent_path, entry->agent_path, sizeof(box->agent_path));
}

static void on_died(void *ctx, const struct box_reply *event)
{
	(void)ctx;
	(void)event;
}

/* The word behind --instance of the process at the other end; it names the control groups. */
static void read_instance(struct look *l, int fd)
{
	scope_buf struct buf words = BUF_NONE;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	char path[64];
	struct err ignored = ERR_INIT;
	size_t at = 0;

	buf_init(&words, COMMAND_BYTES);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		return;
	(void)snprintf(path, sizeof(path), "/proc/%ld/cmdline", (long)peer.pid);
	if (fd_read_file(AT_FDCWD, path, &words, &ignored) != 0)
		return;
	while (at < words.len) {
		const char *word = buf_text(&words) + at;

		at += strlen(word) + 1;
		if (str_equal(word, "--instance") && at < words.len &&
		    str_copy(l->instance, sizeof(l->instance), buf_text(&words) + at) != 0)
			l->instance[0] = '\0';
	}
}

static int wait_list(struct look *l, struct boxclient *c, struct err *e)
{
	int64_t until = clock_monotonic_us() + LIST_WAIT_US;

	while (!l->list_done) {
		struct pollfd p = {.fd = boxclient_fd(c), .events = POLLIN};

		if (boxclient_wants_write(c))
			p.events |= POLLOUT;
		if (clock_monotonic_us() > until)
			return err_set(e, ERR_TIMEOUT, 0, "cordon-box gives no list");
		if (poll(&p, 1, 200) > 0 && boxclient_ready(c, e) != 0)
			return -1;
	}
	return 0;
}

static int ask_list(struct look *l, struct boxclient *c, struct err *e)
{
	if (boxclient_list_all(c, 1, e) != 0)
		return -1;
	return wait_list(l, c, e);
}

/* --- processes and groups */

static bool slot_of_pid(const struct policy *policy, pid_t pid, uint32_t *out_slot)
{
	char path[64];
	char program[8];
	struct stat info;
	uint64_t base = (uint64_t)policy->box.uid_base;

	(void)snprintf(path, sizeof(path), "/proc/%ld", (long)pid);
	if (stat(path, &info) != 0 || info.st_uid < base ||
	    info.st_uid >= base + (uint64_t)policy->box.slots_max * IDS_PER_SLOT)
		return false;
	/* a dead one that its new parent has not reaped yet (cordon-box was killed) holds nothing
	 */
	(void)snprintf(path, sizeof(path), "/proc/%ld/exe", (long)pid);
	if (readlink(path, program, sizeof(program)) < 0 && errno == ENOENT)
		return false;
	*out_slot = (uint32_t)((info.st_uid - base) / IDS_PER_SLOT);
	return true;
}

static int find_processes(struct look *l, struct err *e)
{
	DIR *top = opendir("/proc");
	struct dirent *entry;

	if (top == NULL)
		return err_set(e, ERR_IO, errno, "open /proc");
	while ((entry = readdir(top)) != NULL && l->suspect_count < SUSPECTS_MAX) {
		struct suspect *s = &l->suspects[l->suspect_count];
		struct err ignored = ERR_INIT;
		uint64_t pid;

		if (num_u64("pid", entry->d_name, 1, INT32_MAX, &pid, &ignored) != 0)
			continue;
		s->pid = (pid_t)pid;
		if (slot_of_pid(l->report->ctl->policy, s->pid, &s->slot))
			l->suspect_count++;
	}
	(void)closedir(top);
	return 0;
}

static bool slot_is_listed(const struct look *l, uint32_t slot)
{
	return slot < BOX_MAX_SLOTS && l->boxes[slot].listed;
}

static void judge_processes(struct look *l)
{
	for (size_t i = 0; i < l->suspect_count; i++) {
		const struct suspect *s = &l->suspects[i];
		char detail[96];
		uint32_t slot;

		if (slot_is_listed(l, s->slot) ||
		    !slot_of_pid(l->report->ctl->policy, s->pid, &slot) || slot != s->slot)
			continue;
		(void)snprintf(detail, sizeof(detail), "pid %ld of slot %u", (long)s->pid, s->slot);
		leak(l, "process", detail, "cordon-box has no box in this slot: kill it");
	}
}

static bool group_has_processes(const char *path)
{
	scope_buf struct buf text = BUF_NONE;
	char file[900];
	struct err ignored = ERR_INIT;

	(void)snprintf(file, sizeof(file), "%s/cgroup.procs", path);
	buf_init(&text, 1U << 16);
	return fd_read_file(AT_FDCWD, file, &text, &ignored) == 0 && text.len > 0;
}

/* <parent>/cordon-<instance>/s<slot> that has processes, but whose slot is not listed */
static void judge_groups(struct look *l, const char *parent, enum mount_pass pass)
{
	char root[600];
	DIR *top;
	struct dirent *entry;

	(void)snprintf(root, sizeof(root), "%s/cordon-%s", parent, l->instance);
	top = opendir(root);
	while (top != NULL && (entry = readdir(top)) != NULL) {
		char path[800];
		struct err ignored = ERR_INIT;
		uint64_t slot;

		if (entry->d_name[0] != 's' ||
		    num_u64("slot", entry->d_name + 1, 0, BOX_MAX_SLOTS - 1, &slot, &ignored) != 0)
			continue;
		(void)snprintf(path, sizeof(path), "%s/%.100s", root, entry->d_name);
		if (!group_has_processes(path))
			continue;
		if (pass == GROUPS_BEFORE)
			l->boxes[slot].busy = true;
		else if (l->boxes[slot].busy && !l->boxes[slot].listed)
			leak(l, "cgroup", path, "cordon-box has no box in this slot");
	}
	if (top != NULL)
		(void)closedir(top);
}

/* In the hierarchy mounted there, or in a slice of it. */
static void judge_hierarchy(struct look *l, const char *mount, enum mount_pass pass)
{
	DIR *top = opendir(mount);
	struct dirent *entry;

	judge_groups(l, mount, pass);
	while (top != NULL && (entry = readdir(top)) != NULL) {
		const char *dot = strrchr(entry->d_name, '.');
		char slice[500];

		if (dot == NULL || !str_equal(dot, ".slice"))
			continue;
		(void)snprintf(slice, sizeof(slice), "%s/%.64s", mount, entry->d_name);
		judge_groups(l, slice, pass);
	}
	if (top != NULL)
		(void)closedir(top);
}

static bool is_below(const char *path, const char *folder)
{
	const char *rest = str_after(path, folder);

	return rest != NULL && *rest == '/';
}

/* Every line of mountinfo: a mount of ours, or a hierarchy of control groups. */
static int judge_mounts(struct look *l, enum mount_pass pass, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;
	const struct policy *policy = l->report->ctl->policy;
	char *line;
	char *next;

	buf_init(&text, MOUNTS_BYTES);
	if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &text, e) != 0)
		return -1;
	for (line = text.len > 0 ? text.data : NULL; line != NULL; line = next) {
		char point[400];

		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		if (sscanf(line, "%*s %*s %*s %*s %399s", point) != 1)
			continue;
		if (pass == MOUNTS) {
			if (is_below(point, policy->paths.data) ||
			    is_below(point, policy->paths.run))
				leak(l, "mount", point, "nothing of ours is mounted there: umount");
		} else if (strstr(line, " - cgroup ") != NULL ||
			   strstr(line, " - cgroup2 ") != NULL) {
			judge_hierarchy(l, point, pass);
		}
	}
	return 0;
}

/* --- boxes and their sockets */

static void judge_sockets(struct look *l)
{
	char folder[300];
	DIR *top;
	struct dirent *entry;

	(void)snprintf(folder, sizeof(folder), "%s/agents", l->report->ctl->policy->paths.run);
	top = opendir(folder);
	while (top != NULL && (entry = readdir(top)) != NULL) {
		char path[600];
		struct stat info;
		bool known = false;

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		for (size_t i = 0; i < BOX_MAX_SLOTS && !known; i++)
			known = l->boxes[i].listed && str_equal(l->boxes[i].agent_path, path);
		/* a box that was made after the list */
		if (!known && stat(path, &info) == 0 && info.st_mtime < time(NULL) - 60)
			leak(l, "socket", path, "no box listens there: remove it");
	}
	if (top != NULL)
		(void)closedir(top);
}

/* 1: a sandbox of this id that may have a box (workspace: that may have a workspace), 0: none */
static int sandbox_lives(struct store *db, const char *id, bool workspace, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got = store_query_row(db, STMT_SANDBOX_HELD, in, 1, e);
	bool lives = got == 1 && store_i64(db, workspace ? 1 : 0) != 0;

	store_done(db);
	return got < 0 ? -1 : lives;
}

/* The same for the workspace of a session and its snapshots, whose names begin with its id. */
static int session_lives(struct store *db, const char *name, struct err *e)
{
	char id[IDENT_UUID_SIZE] = "";
	struct store_value in[] = {SV_TEXT(id)};
	bool lives;
	int got;

	(void)snprintf(id, sizeof(id), "%.36s", name);
	in[0] = SV_TEXT(id);
	if (!ident_is_uuid(id) || (name[36] != '\0' && name[36] != '.'))
		return 0;
	got = store_query_row(db, STMT_SESSION_HELD, in, 1, e);
	lives = got == 1 && store_i64(db, 0) != 0;
	store_done(db);
	return got < 0 ? -1 : lives;
}

/* Of a sandbox or of a session. */
static int workspace_lives(struct store *db, const char *name, struct err *e)
{
	int got = sandbox_lives(db, name, true, e);

	return got != 0 ? got : session_lives(db, name, e);
}

/* A maintenance box has the name of its operation. */
static int operation_lives(struct store *db, const char *id, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got = store_query_row(db, STMT_OPERATION_LIVES, in, 1, e);

	store_done(db);
	return got;
}

/* 1: a run or sandbox of this id that has not ended, 0: none */
static int run_lives(struct store *db, const char *id, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got = store_query_row(db, STMT_RUN_ENDED, in, 1, e);
	bool lives = got == 1 && store_i64(db, 0) == 0;

	store_done(db);
	if (got < 0 || lives)
		return got < 0 ? -1 : 1;
	got = sandbox_lives(db, id, false, e);
	return got != 0 ? got : operation_lives(db, id, e);
}

static int judge_boxes(struct look *l, struct store *db, struct err *e)
{
	for (uint32_t slot = 0; slot < BOX_MAX_SLOTS; slot++) {
		char detail[160];
		int lives;

		if (!l->boxes[slot].listed || l->boxes[slot].run_id[0] == '\0')
			continue; /* a box that waits has no run */
		lives = run_lives(db, l->boxes[slot].run_id, e);
		if (lives < 0)
			return -1;
		(void)snprintf(detail, sizeof(detail), "slot %u of run %s", slot,
			       l->boxes[slot].run_id);
		if (lives == 0)
			leak(l, "box", detail,
			     "its run or sandbox has ended: restart cordon-runner");
	}
	return 0;
}

/* --- folders */

/* An upload is the operation that takes it. */
static int owner_exists(struct store *db, const char *kind, const char *id, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	enum statement find = str_equal(kind, UPLOAD_KIND) ? STMT_OPERATION_LIVES : STMT_RUN_EXISTS;
	int got = store_query_row(db, find, in, 1, e);

	store_done(db);
	return got;
}

static void judge_runs_in(struct look *l, struct store *db, const char *kind, const char *path,
			  struct err *e)
{
	DIR *inner = opendir(path);
	struct dirent *entry;

	while (inner != NULL && e->code == ERR_NONE && (entry = readdir(inner)) != NULL) {
		struct stat info;
		int got;

		if (entry->d_name[0] == '.' ||
		    fstatat(dirfd(inner), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
		    info.st_mtime > time(NULL) - FRESH_S)
			continue;
		got = ident_is_uuid(entry->d_name) ? owner_exists(db, kind, entry->d_name, e) : 0;
		if (got == 0)
			leak(l, kind, entry->d_name, "no run or upload has this id");
	}
	if (inner != NULL)
		(void)closedir(inner);
}

/* Folders <data>/<kind>/<2 hex>/<run> older than an hour whose run (upload) has no row. */
static int judge_folder(struct look *l, struct store *db, const char *kind, struct err *e)
{
	char root[600];
	DIR *top;
	struct dirent *outer;

	(void)snprintf(root, sizeof(root), "%s/%s", l->report->ctl->policy->paths.data, kind);
	top = opendir(root);
	if (top == NULL)
		return errno == ENOENT ? 0 : err_set(e, ERR_IO, errno, "open %s", root);
	while (e->code == ERR_NONE && (outer = readdir(top)) != NULL) {
		char path[900];

		(void)snprintf(path, sizeof(path), "%s/%s", root, outer->d_name);
		if (outer->d_name[0] != '.')
			judge_runs_in(l, db, kind, path, e);
	}
	(void)closedir(top);
	return e->code == ERR_NONE ? 0 : -1;
}

/* Images <data>/workspaces/<name> whose sandbox or session is deleted or unknown. */
static int judge_workspaces(struct look *l, struct store *db, struct err *e)
{
	char root[600];
	DIR *top;
	struct dirent *entry;

	(void)snprintf(root, sizeof(root), "%s/workspaces", l->report->ctl->policy->paths.data);
	top = opendir(root);
	if (top == NULL)
		return errno == ENOENT ? 0 : err_set(e, ERR_IO, errno, "open %s", root);
	while (e->code == ERR_NONE && (entry = readdir(top)) != NULL) {
		if (entry->d_name[0] == '.')
			continue; /* templates */
		if (workspace_lives(db, entry->d_name, e) == 0)
			leak(l, "workspace", entry->d_name,
			     "no sandbox and no session has it: remove the file");
	}
	(void)closedir(top);
	return e->code == ERR_NONE ? 0 : -1;
}

/* True when nothing explains a loop device on that image ("<sandbox>", or with " (deleted)"). */
static int loop_is_left(struct store *db, const char *image, struct err *e)
{
	int lives;

	if (strstr(image, " (deleted)") != NULL)
		return 1;
	lives = sandbox_lives(db, image, false, e);
	if (lives == 0)
		lives = session_lives(db, image, e);
	return lives < 0 ? -1 : lives == 0;
}

/* Loop devices on images of workspaces whose sandbox cannot have a box. One that was stopped just
 * now is still written back: what is left must be there twice. */
static int judge_loops(struct look *l, struct store *db, bool tell, bool *out_any, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;
	char root[600];
	DIR *top = opendir("/sys/block");
	struct dirent *entry;
	int left = 0;

	(void)snprintf(root, sizeof(root), "%s/workspaces", l->report->ctl->policy->paths.data);
	if (top == NULL)
		return errno == ENOENT ? 0 : err_set(e, ERR_IO, errno, "open /sys/block");
	buf_init(&text, COMMAND_BYTES);
	while (left >= 0 && (entry = readdir(top)) != NULL) {
		struct err none = ERR_INIT;
		char path[300];

		(void)snprintf(path, sizeof(path), "/sys/block/%.200s/loop/backing_file",
			       entry->d_name);
		buf_reset(&text);
		if (!str_starts(entry->d_name, "loop") ||
		    fd_read_file(AT_FDCWD, path, &text, &none) != 0 || !buf_ok(&text) ||
		    !is_below(buf_text(&text), root))
			continue;
		text.data[strcspn(text.data, "\n")] = '\0';
		left = loop_is_left(db, text.data + strlen(root) + 1, e);
		*out_any |= left == 1;
		if (left == 1 && tell)
			leak(l, "loop device", entry->d_name,
			     "no sandbox has its image in use: losetup -d /dev/<its name>");
	}
	(void)closedir(top);
	return left < 0 ? -1 : 0;
}

static int judge_loops_twice(struct look *l, struct store *db, struct err *e)
{
	bool any = false;

	if (judge_loops(l, db, false, &any, e) != 0)
		return -1;
	if (!any)
		return 0;
	clock_sleep_us(WRITE_BACK_US);
	return judge_loops(l, db, true, &any, e);
}

static int judge_all(struct look *l, struct store *db, struct boxclient *box, struct err *e)
{
	static const char *const kinds[] = {"spool", "staging", "artifacts", UPLOAD_KIND};
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/box/box.sock", l->report->ctl->policy->paths.run);
	if (boxclient_connect(box, path, e) != 0)
		return -1;
	read_instance(l, boxclient_fd(box));
	if (l->instance[0] == '\0')
		return err_set(e, ERR_DENIED, 0,
			       "cordon-box's instance cannot be read: run as root");
	if (find_processes(l, e) != 0 || judge_mounts(l, GROUPS_BEFORE, e) != 0 ||
	    ask_list(l, box, e) != 0)
		return -1;
	judge_processes(l);
	judge_sockets(l);
	if (judge_boxes(l, db, e) != 0 || judge_mounts(l, MOUNTS, e) != 0 ||
	    judge_mounts(l, GROUPS_AFTER, e) != 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (judge_folder(l, db, kinds[i], e) != 0)
			return -1;
	if (judge_loops_twice(l, db, e) != 0)
		return -1;
	return judge_workspaces(l, db, e);
}

int leaks_check(struct report *r, struct err *e)
{
	static const struct boxclient_events events = {
	    .reply = on_reply, .entry = on_entry, .died = on_died};
	scope_free struct box *boxes = mem_zalloc(BOX_MAX_SLOTS, sizeof(*boxes));
	scope_free struct suspect *suspects = mem_zalloc(SUSPECTS_MAX, sizeof(*suspects));
	struct look l = {.report = r, .boxes = boxes, .suspects = suspects};
	struct boxclient box;
	struct store *db = NULL;
	int result;

	if (boxes == NULL || suspects == NULL)
		return err_set(e, ERR_NOMEM, 0, "leaks");
	boxclient_init(&box, &events, &l);
	result = ctl_store(r->ctl, &db, e);
	if (result == 0)
		result = judge_all(&l, db, &box, e);
	if (result != 0 && e->code == ERR_UNAVAILABLE)
		(void)err_wrap(
		    e,
		    "cordon-box and the database tell what lives, and one of them does not answer "
		    "(of a private stack that is down, tests/stack/leaks.sh finds what is left)");
	boxclient_release(&box);
	store_close(db);
	return result;
}
