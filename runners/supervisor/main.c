/*
 * cordon-runner: takes runs from the job table and sees them through.
 *
 * Theory of operation. One process per host, user cordon-run, three threads. The loop thread is one
 * epoll loop over: cordon-box's socket (it builds and removes boxes for us), one agent socket per
 * live box (cordon-init inside: inputs, command, output, artifacts), the notice socket (workers say
 * that a job waits or a cancel was wished), the SQL thread's eventfd. The SQL thread (jobs.c)
 * claims, beats and saves ends. The loop never waits for the database, the SQL thread never for a
 * box. The house thread (house.c) looks at the host and after its stores.
 *
 * What clients type comes from the gate (input.c), passes the run's limits and goes to the agent.
 * Output goes straight from the agent into the spool file and is acknowledged when it is there.
 * Limits are enforced from here, by the monotonic clock: start-up and execution time-outs, cancel
 * with its grace.
 *
 * Who may die when: this process at any time. Its node's next runner holds the same lock file and
 * ends what it held as lost; the boxes are removed. cordon-box may die: boxes are made again when
 * it is back, within each run's start-up time. MariaDB may be away: running commands go on, their
 * ends are kept and saved when it is back.
 *
 * Signals: TERM and INT stop claiming and end this process; running commands go on in their boxes
 * and are taken over by the next one.
 */
#include "runners/supervisor/supervisor.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"
#include "runners/core/json.h"
#include "runners/core/program.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define EVENTS_MAX       64
#define TICK_MAX_US      (200 * CLOCK_US_PER_MS)
#define BOX_AGAIN_US     (100 * CLOCK_US_PER_MS)
#define SAVE_WAIT_US     (5 * CLOCK_US_PER_S)
#define TAG_LIST         2U
#define TAG_PROBE        1U
#define NOTICE_CONNS_MAX 256
#define FILES_WANTED     65536

static volatile sig_atomic_t stop_wanted;

static void on_signal(int number)
{
	(void)number;
	stop_wanted = 1;
}

/* What an epoll entry belongs to: a task, or one of these marks. */
static char mark_box;
static char mark_jobs;
static char mark_notice;
static char mark_notice_conn[NOTICE_CONNS_MAX];
static int notice_conns[NOTICE_CONNS_MAX];

struct task *task_find(const struct supervisor *sup, const char *run_id)
{
	for (struct task *t = sup->tasks; t != NULL; t = t->next)
		if (str_equal(t->claim.run_id, run_id))
			return t;
	return NULL;
}

static struct task *find_serial(struct supervisor *sup, uint64_t serial)
{
	for (struct task *t = sup->tasks; t != NULL; t = t->next)
		if (t->serial == serial)
			return t;
	return NULL;
}

static void tell_capacity(struct supervisor *sup)
{
	unsigned int most = (unsigned int)sup->policy->runner.concurrency;
	unsigned int used = 0;

	/* a command in a sandbox takes no place */
	for (const struct task *t = sup->tasks; t != NULL; t = t->next)
		used += t->claim.kind == JOB_RUN ? 1 : 0;
	jobs_capacity(sup->jobs, used >= most ? 0 : most - used, sup->stopping);
}

/* Frees finished tasks; callers deeper down may have held them until now. */
static void reap(struct supervisor *sup)
{
	struct task **at = &sup->tasks;
	bool freed = false;

	while (*at != NULL) {
		struct task *task = *at;

		if (task->state != TASK_DONE) {
			at = &task->next;
			continue;
		}
		*at = task->next;
		task_free(task);
		sup->task_count--;
		freed = true;
	}
	if (freed)
		tell_capacity(sup);
}

/* --- cordon-box
 * --------------------------------------------------------------------------------------------------
 */

static void on_box_reply(void *ctx, const struct box_reply *reply)
{
	struct supervisor *sup = ctx;
	struct task *task = find_serial(sup, reply->tag / 4);

	if (reply->tag == TAG_PROBE) {
		house_box(sup->house, reply);
		return;
	}
	if (reply->tag == TAG_LIST && reply->verb == BOX_LIST && sup->taken_over) {
		sandboxes_settle(sup);
		sessions_settle(sup);
		for (struct task *t = sup->tasks; t != NULL; t = t->next)
			if (t->state == TASK_ADOPTING)
				adopt_settle(t);
		return;
	}
	if (task != NULL)
		task_box_reply(task, (unsigned int)(reply->tag % 4), reply);
	else if (!sandbox_op_reply(sup, reply))
		session_op_reply(sup, reply);
}

/* A box in the list that none of our tasks owns was an earlier runner's, and its run is over.
 * Before all adopted claims are known nobody can say that. */
static void on_box_entry(void *ctx, const struct box_reply *entry)
{
	struct supervisor *sup = ctx;
	struct task *task = task_find(sup, entry->run_id);
	struct err e = ERR_INIT;

	if (!sup->taken_over)
		return;
	if (task != NULL) {
		if (task->state == TASK_ADOPTING)
			adopt_box(task, entry);
		return;
	}
	if (sandbox_entry(sup, entry) || session_entry(sup, entry))
		return;
	log_event(LOG_WARNING, "box_foreign", "run=%s slot=%u", entry->run_id, entry->slot);
	(void)boxclient_destroy(&sup->box, SANDBOX_TAG_NOBODY, entry->slot, entry->run_id, 0, &e);
}

static void on_box_died(void *ctx, const struct box_reply *event)
{
	struct task *task = task_find(ctx, event->run_id);

	if (task != NULL && task->has_box && task->slot == event->slot)
		task_box_died(task);
	else
		(void)sandbox_died(ctx, event);
}

static const struct boxclient_events box_events = {
    .reply = on_box_reply, .entry = on_box_entry, .died = on_box_died};

static void box_watch(struct supervisor *sup)
{
	int fd = sup->box_open ? boxclient_fd(&sup->box) : -1;
	bool writes = fd >= 0 && boxclient_wants_write(&sup->box);
	struct epoll_event want = {.events = EPOLLIN | (writes ? (uint32_t)EPOLLOUT : 0U),
				   .data.ptr = &mark_box};

	if (fd == sup->box_registered_fd && writes == sup->box_writes)
		return;
	if (fd >= 0)
		(void)epoll_ctl(sup->epoll_fd,
				fd == sup->box_registered_fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
				&want);
	sup->box_registered_fd = fd;
	sup->box_writes = writes;
}

static void list_boxes(struct supervisor *sup)
{
	struct err e = ERR_INIT;

	if (sup->box_open && boxclient_list(&sup->box, TAG_LIST, &e) != 0)
		log_err(LOG_WARNING, "box_list", &e, "%s", "");
}

static void box_connect(struct supervisor *sup, int64_t now)
{
	char path[256];
	struct err e = ERR_INIT;

	if (sup->box_open || now < sup->box_retry_us)
		return;
	sup->box_retry_us = now + BOX_AGAIN_US;
	(void)snprintf(path, sizeof(path), "%s/box/box.sock", sup->policy->paths.run);
	if (boxclient_connect(&sup->box, path, &e) != 0)
		return;
	sup->box_open = true;
	log_event(LOG_INFO, "box_connected", "tasks=%u", sup->task_count);
	list_boxes(sup);
	sup->next_probe_us = now;
	for (struct task *t = sup->tasks; t != NULL; t = t->next)
		task_box_again(t);
	box_watch(sup);
}

/* What cordon-box says of itself, for the preflight. */
static void probe_box(struct supervisor *sup, int64_t now)
{
	struct err e = ERR_INIT;

	if (!sup->box_open || now < sup->next_probe_us)
		return;
	sup->next_probe_us = now + HOUSE_LOOK_US;
	if (boxclient_probe(&sup->box, TAG_PROBE, &e) != 0)
		log_err(LOG_WARNING, "box_probe", &e, "%s", "");
}

static void box_ready(struct supervisor *sup)
{
	struct err e = ERR_INIT;

	if (!sup->box_open || boxclient_ready(&sup->box, &e) == 0)
		return;
	log_err(LOG_ERROR, "box_lost_connection", &e, "%s", "");
	sup->box_open = false;
	sup->boxes_known = false;
	sup->box_registered_fd = -1;
}

/* --- notices
 * ------------------------------------------------------------------------------------------------------
 */

static void notice_accept(struct supervisor *sup)
{
	for (;;) {
		int fd = accept4(sup->notice_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		int slot = 0;
		struct epoll_event want = {.events = EPOLLIN};

		if (fd < 0)
			return;
		while (slot < NOTICE_CONNS_MAX && notice_conns[slot] >= 0)
			slot++;
		if (slot == NOTICE_CONNS_MAX) {
			(void)close(fd);
			continue;
		}
		want.data.ptr = &mark_notice_conn[slot];
		if (epoll_ctl(sup->epoll_fd, EPOLL_CTL_ADD, fd, &want) != 0) {
			(void)close(fd);
			continue;
		}
		notice_conns[slot] = fd;
	}
}

static void notice_read(struct supervisor *sup, int slot)
{
	for (;;) {
		struct notice notice;
		struct err e = ERR_INIT;
		int got = notify_receive(notice_conns[slot], &notice, &e);

		if (got < 0) {
			fd_close_at(&notice_conns[slot]);
			return;
		}
		if (got == 0)
			return;
		if (notice.hint == NOTICE_QUEUED)
			jobs_look(sup->jobs, notice.id);
		else if (notice.hint == NOTICE_CANCEL)
			jobs_look_wishes(sup->jobs);
	}
}

/* --- the SQL thread's events
 * --------------------------------------------------------------------------------------- */

static void remove_files(struct supervisor *sup, const char *kind, const char *run_id)
{
	struct err e = ERR_INIT;

	if (spool_remove(sup->policy->paths.data, kind, run_id, &e) != 0)
		log_err(LOG_WARNING, "expire", &e, "run=%s", run_id);
}

static void expire(struct supervisor *sup, const char *run_id)
{
	remove_files(sup, "spool", run_id);
	remove_files(sup, "artifacts", run_id);
}

static void begin_operation(struct supervisor *sup, struct jobs_event *event)
{
	if (job_kind_is_store(event->claim.kind))
		house_take(sup->house, event);
	else if (job_kind_is_session(event->claim.kind))
		session_op_begin(sup, event);
	else
		sandbox_op_begin(sup, event);
}

static void handle_jobs(struct supervisor *sup)
{
	struct jobs_event event;

	while (jobs_next(sup->jobs, &event)) {
		struct task *task;

		switch (event.kind) {
		case JOBS_EARLY:
			task_early(sup, &event);
			break;
		case JOBS_UNCLAIMED:
			task = task_find(sup, event.claim.run_id);
			if (task != NULL && task->unclaimed)
				task_unclaim(task);
			break;
		case JOBS_CLAIMED:
			task = task_find(sup, event.claim.run_id);
			if (task != NULL && task_is_early(task))
				task_confirm(task, &event);
			else if (job_kind_is_operation(event.claim.kind))
				begin_operation(sup, &event);
			else
				task_begin(sup, &event);
			break;
		case JOBS_ADOPTED:
			if (job_kind_is_operation(event.claim.kind))
				begin_operation(sup, &event);
			else
				task_adopt(sup, &event);
			break;
		case JOBS_SANDBOX:
			sandbox_expected(sup, event.claim.run_id);
			break;
		case JOBS_READY:
			sup->taken_over = true;
			list_boxes(sup);
			break;
		case JOBS_WISH:
			task = task_find(sup, event.claim.run_id);
			if (task != NULL)
				task_cancel(task);
			break;
		case JOBS_OUTLAWED:
			sup->outlawed = true;
			break;
		case JOBS_EXPIRED:
			expire(sup, event.claim.run_id);
			break;
		case JOBS_ARTIFACTS:
			remove_files(sup, "artifacts", event.claim.run_id);
			break;
		case JOBS_SAVED:
		case JOBS_LOST:
			result_remove(sup->policy, event.claim.run_id);
			task = task_find(sup, event.claim.run_id);
			if (task != NULL)
				task_saved(task, &event.trace);
			else if (event.kind == JOBS_SAVED)
				task_tell_trace(sup, event.claim.run_id, &event.trace);
			break;
		}
	}
	tell_capacity(sup);
}

/* --- the loop
 * ------------------------------------------------------------------------------------------------------
 */

static int64_t next_due(const struct supervisor *sup, int64_t now)
{
	int64_t due = now + TICK_MAX_US;
	int64_t operations = sandboxes_due_us(sup);
	int64_t inputs = inputs_due_us(sup);

	if (operations < due)
		due = operations;
	operations = sessions_due_us(sup);
	if (operations < due)
		due = operations;
	if (inputs < due)
		due = inputs;
	if (!sup->box_open && sup->box_retry_us < due)
		due = sup->box_retry_us;
	for (const struct task *t = sup->tasks; t != NULL; t = t->next) {
		int64_t mine = task_due_us(t);

		if (mine < due)
			due = mine;
	}
	return due;
}

static void dispatch(struct supervisor *sup, const struct epoll_event *event)
{
	char *mark = event->data.ptr;

	if (mark == &mark_box)
		box_ready(sup);
	else if (mark == &mark_jobs)
		handle_jobs(sup);
	else if (mark == &mark_notice)
		notice_accept(sup);
	else if (mark >= mark_notice_conn && mark < mark_notice_conn + NOTICE_CONNS_MAX)
		notice_read(sup, (int)(mark - mark_notice_conn));
	else if (!inputs_ready(sup, mark) && !upload_agent_ready(sup, event->data.ptr))
		task_agent_ready(event->data.ptr);
}

/* One turn; false: the loop ends. */
static bool turn(struct supervisor *sup)
{
	struct epoll_event events[EVENTS_MAX];
	int64_t now = clock_monotonic_us();
	int64_t due = next_due(sup, now);
	int wait_ms = due <= now ? 0 : (int)((due - now + 999) / 1000);
	int count = epoll_wait(sup->epoll_fd, events, EVENTS_MAX, wait_ms);

	for (int i = 0; i < count; i++)
		dispatch(sup, &events[i]);
	now = clock_monotonic_us();
	box_connect(sup, now);
	probe_box(sup, now);
	for (struct task *t = sup->tasks; t != NULL; t = t->next)
		task_tick(t, now);
	sandboxes_tick(sup, now);
	sessions_tick(sup, now);
	inputs_tick(sup, now);
	box_watch(sup);
	if (now >= trace_mail_due_us(&sup->mail))
		trace_mail_send(&sup->mail, &sup->to_gate);
	/* freed only here, when no event of this turn can name a task any more */
	reap(sup);
	if (sup->outlawed)
		return false;
	if (stop_wanted != 0 && !sup->stopping) {
		log_event(LOG_INFO, "stopping", "tasks=%u", sup->task_count);
		sup->stopping = true;
		tell_capacity(sup);
	}
	/* commands go on in their boxes: the next runner of this node takes them over */
	return !sup->stopping;
}

/* The node's lock: whoever holds it is the node's runner. The file is never removed. */
static int lock_node(const struct policy *policy, int *out_fd, struct err *e)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/notify-run/runner.lock", policy->paths.run);
	*out_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*out_fd < 0)
		return err_set(e, ERR_IO, errno, "open %s", path);
	if (flock(*out_fd, LOCK_EX | LOCK_NB) != 0)
		return err_set(e, ERR_CONFLICT, errno, "another runner of this node holds %s",
			       path);
	return 0;
}

static int add_mark(struct supervisor *sup, int fd, void *mark, struct err *e)
{
	struct epoll_event want = {.events = EPOLLIN, .data.ptr = mark};

	if (epoll_ctl(sup->epoll_fd, EPOLL_CTL_ADD, fd, &want) != 0)
		return err_set(e, ERR_IO, errno, "epoll_ctl");
	return 0;
}

static int start(struct supervisor *sup, struct err *e)
{
	char path[256];
	char instance[IDENT_UUID_SIZE];
	struct rlimit limit;

	for (int i = 0; i < NOTICE_CONNS_MAX; i++)
		notice_conns[i] = -1;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	/* folders and files get exactly the modes that they ask for, less what others may */
	(void)umask(0007);
	sup->box_registered_fd = -1;
	boxclient_init(&sup->box, &box_events, sup);
	sup->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (sup->epoll_fd < 0)
		return err_set(e, ERR_IO, errno, "epoll_create1");
	(void)snprintf(path, sizeof(path), "%s/notify-gate/gate.sock", sup->policy->paths.run);
	if (notifier_init(&sup->to_gate, path, e) != 0 || ident_uuid(instance, e) != 0)
		return -1;
	(void)snprintf(path, sizeof(path), "%s/notify-run/runner.sock", sup->policy->paths.run);
	sup->notice_fd = notify_listen(path, e);
	if (sup->notice_fd < 0 || jobs_start(sup->policy, instance, &sup->jobs, e) != 0 ||
	    house_start(sup->policy, sup->jobs, &sup->house, e) != 0 ||
	    add_mark(sup, sup->notice_fd, &mark_notice, e) != 0 ||
	    add_mark(sup, jobs_fd(sup->jobs), &mark_jobs, e) != 0 || inputs_start(sup, e) != 0)
		return -1;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct program_info info = {
	    .name = "cordon-runner",
	    .about = "takes runs from the job table and sees them through"};
	struct policy *policy = NULL;
	struct program_options options;
	struct supervisor sup;
	scope_close int lock_fd = -1;
	struct err e = ERR_INIT;
	int status;
	bool left;

	if (program_start(&info, argc, argv, &options, &policy, &status) != 0)
		return status;
	proc_harden();
	json_setup();
	memset(&sup, 0, sizeof(sup));
	sup.policy = policy;
	if (proc_on_signal(SIGTERM, on_signal, &e) != 0 ||
	    proc_on_signal(SIGINT, on_signal, &e) != 0 || proc_on_signal(SIGPIPE, NULL, &e) != 0 ||
	    proc_on_signal(SIGHUP, NULL, &e) != 0 || lock_node(policy, &lock_fd, &e) != 0 ||
	    start(&sup, &e) != 0) {
		log_err(LOG_ERROR, "start", &e, "%s", "");
		return 1;
	}
	box_connect(&sup, clock_monotonic_us());
	tell_capacity(&sup);
	log_event(LOG_INFO, "started", "node=%s concurrency=%lld", policy->node,
		  (long long)policy->runner.concurrency);
	while (turn(&sup))
		;
	left = house_stop(sup.house, SAVE_WAIT_US);
	if (!sup.outlawed)
		jobs_stop(sup.jobs, SAVE_WAIT_US, sup.task_count > 0 || left);
	inputs_free(&sup);
	sandboxes_free(&sup);
	sessions_free(&sup);
	boxclient_release(&sup.box);
	trace_mail_send(&sup.mail, &sup.to_gate);
	notifier_release(&sup.to_gate);
	log_event(LOG_INFO, "stopped", "tasks=%u", sup.task_count);
	return sup.outlawed ? 1 : 0;
}
