/*
 * cordon-box: builds and ends the boxes of one host. The privileged part of Cordon.
 *
 * Theory of operation
 *
 * One process, root, one thread, one epoll loop. It asks nothing by name and believes nothing: its
 * one caller (cordon-run, checked by SO_PEERCRED) sends fixed records over SOCK_SEQPACKET
 * (runners/base/boxproto.h) to <run-dir>/box/box.sock, and every limit is judged again against the
 * file of ceilings. It links libseccomp and our base archive, no parser of anything else.
 *
 *	cordon-box (root, host's namespaces)
 *	   |  fork, own mount namespace, exec cordon-init --zygote	      one per image
 *	   +--- zygote (root; sees only its template, /proc and an empty directory)
 *	   |	  |  clone3 with all namespaces, parent = cordon-box
 *	   +------+--- pid 1 of a box, which becomes the box's agent (cordon-init) without an exec
 *
 * A slot is a place for one box: a range of 65,536 ids, a user namespace with that map (for
 * idmapped mounts), control groups. Slots are prepared once and used again when, and only when,
 * nothing of the last box is left. Per box cordon-box sets the limits, opens the agent's listening
 * socket <run-dir>/agents/<slot>-<random>.sock, and hands listener, groups and a control socket to
 * the zygote. The box says on the control socket that it is built; from then on cordon-box only
 * watches its pidfd. The caller talks to the box by the agent's socket, never through here.
 *
 * Who may die when: the caller may come and go, boxes live on (list finds them). A zygote that dies
 * is started again; boxes outlive it, since they are our children. cordon-box itself may be killed,
 * or stopped by TERM: live boxes and their commands go on, and the next start with the same
 * instance name and run directory takes them over by their slot files (box_adopt.c) and removes
 * what no slot file explains (groups by name, with every process in them). INT ends all boxes and
 * leaves nothing; `cordon-box --end-all`, with the same options, does it for a cordon-box that is
 * not running.
 *
 * A box ends by SIGKILL to its pid 1, and by its group if that is not enough; the reply to destroy
 *comes when pid 1 is reaped and the groups are empty, with what the box used.
 */
#include "runners/exec/daemon.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"
#include "runners/exec/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define MAX_EVENTS        64
#define STOP_US           (10 * CLOCK_US_PER_S)
#define ZYGOTE_TIMEOUT_US (20 * CLOCK_US_PER_S)
#define DEFAULT_CALLER    "cordon-run"
#define AGENT_NAME_BYTES  28 /* "/agents/1023-abcdefghijkl.sock" at most */

static const char usage[] =
    "usage: cordon-box --run-dir DIR --data-dir DIR --instance ID --limits FILE [--uid NAME]\n"
    "                  [--init FILE] [--slice NAME] [--probe | --end-all] [--help]\n"
    "  --run-dir DIR    sockets: DIR/box/box.sock and DIR/agents/\n"
    "  --data-dir DIR   images and workspaces\n"
    "  --instance ID    1 to 32 of A-Za-z0-9_-; names the control groups\n"
    "  --limits FILE    ceilings, see below\n"
    "  --uid NAME       the only user that may send requests (default cordon-run)\n"
    "  --init FILE      the cordon-init program (default: beside cordon-box)\n"
    "  --slice NAME     its groups come below that slice of systemd's (\"cordonboxes.slice\")\n"
    "  --probe          say what this host can do, and leave\n"
    "  --end-all        end every box of the instance, remove what is left, and leave\n"
    "TERM leaves live boxes running, for the next start; INT ends them all.\n";

/* --- the loop ------------------------------------------------------------------------------- */

int watch_open(struct daemon *d, struct watch *w, int fd,
	       void (*fn)(struct daemon *d, void *ctx, uint32_t events), void *ctx, struct err *e)
{
	struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = w}};

	w->fn = fn;
	w->ctx = ctx;
	if (epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
		return err_set(e, ERR_IO, errno, "epoll_ctl");
	w->fd = fd;
	return 0;
}

void watch_events(struct daemon *d, const struct watch *w, uint32_t events)
{
	struct epoll_event event = {.events = events, .data = {.ptr = (void *)(uintptr_t)w}};

	(void)epoll_ctl(d->epoll, EPOLL_CTL_MOD, w->fd, &event);
}

void watch_close(struct daemon *d, struct watch *w)
{
	if (w->fd < 0)
		return;
	(void)epoll_ctl(d->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	fd_close_at(&w->fd);
}

static void on_signal(struct daemon *d, void *ctx, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)ctx;
	(void)events;
	while (read(d->signals.fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo != SIGTERM && info.ssi_signo != SIGINT)
			continue;
		if (d->stop_by_us != 0 && (d->end_boxes || info.ssi_signo == SIGTERM))
			continue;
		d->end_boxes = info.ssi_signo == SIGINT;
		log_event(LOG_INFO, "stopping", "boxes=%s", d->end_boxes ? "end" : "stay");
		d->stop_by_us = clock_monotonic_us() + STOP_US;
		box_end_all(d);
	}
}

static int wait_events(struct daemon *d, struct epoll_event *events, int64_t next_us,
		       int64_t now_us)
{
	int64_t left_us = next_us <= now_us ? 0 : next_us - now_us;
	struct timespec wait = {.tv_sec = (time_t)(left_us / CLOCK_US_PER_S),
				.tv_nsec = (long)(left_us % CLOCK_US_PER_S) * 1000};

	return epoll_pwait2(d->epoll, events, MAX_EVENTS, next_us == INT64_MAX ? NULL : &wait,
			    NULL);
}

static void loop(struct daemon *d)
{
	struct epoll_event events[MAX_EVENTS];

	for (;;) {
		int64_t now = clock_monotonic_us();
		int64_t next = box_turn(d, now);
		int64_t refill = pool_turn(d, now);
		int64_t keepers = workspace_turn(d, now);
		int count;

		if (refill < next)
			next = refill;
		if (keepers < next)
			next = keepers;

		zygote_turn(d, now);
		if (d->zygote.restart_us != 0 && d->zygote.restart_us < next)
			next = d->zygote.restart_us;
		if (d->stop_by_us != 0) {
			if (!box_any(d) || now >= d->stop_by_us)
				return;
			if (d->stop_by_us < next)
				next = d->stop_by_us;
		}
		count = wait_events(d, events, next, now);
		for (int i = 0; i < count; i++) {
			struct watch *w = events[i].data.ptr;

			/* an earlier event of this round may have closed it */
			if (w->fd >= 0)
				w->fn(d, w->ctx, events[i].events);
		}
	}
}

/* --- options -------------------------------------------------------------------------------- */

struct options {
	const char *limits;
	const char *caller;
	const char *slice;
	bool probe;
	bool end_all;
};

static bool instance_ok(const char *text)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789_-";
	size_t length = strlen(text);

	return length >= 1 && length <= 32 && strspn(text, allowed) == length;
}

static int parse(int argc, char **argv, struct daemon *d, struct options *o, struct err *e)
{
	const struct {
		const char *name;
		const char **value;
	} texts[] = {
	    {"--run-dir", &d->run_dir},   {"--data-dir", &d->data_dir}, {"--limits", &o->limits},
	    {"--instance", &d->instance}, {"--uid", &o->caller},        {"--init", &d->init_path},
	    {"--slice", &o->slice},
	};

	for (int i = 1; i < argc; i++) {
		bool known = false;

		if (str_equal(argv[i], "--probe")) {
			o->probe = true;
			continue;
		}
		if (str_equal(argv[i], "--end-all")) {
			o->end_all = true;
			continue;
		}
		for (size_t k = 0; k < ARRAY_LEN(texts) && !known; k++) {
			if (!str_equal(argv[i], texts[k].name) || i + 1 >= argc)
				continue;
			*texts[k].value = argv[++i];
			known = true;
		}
		if (!known)
			return err_set(e, ERR_INVALID, 0, "unknown or incomplete argument: %s",
				       argv[i]);
	}
	if (d->run_dir == NULL || d->data_dir == NULL || d->instance == NULL || o->limits == NULL)
		return err_set(e, ERR_INVALID, 0,
			       "--run-dir, --data-dir, --instance and --limits are needed");
	if (!instance_ok(d->instance))
		return err_set(e, ERR_INVALID, 0, "--instance must be 1 to 32 of A-Za-z0-9_-");
	if (d->run_dir[0] != '/' || strlen(d->run_dir) + AGENT_NAME_BYTES >= BOX_PATH_SIZE)
		return err_set(e, ERR_INVALID, 0,
			       "--run-dir must be an absolute path of at most %d bytes",
			       BOX_PATH_SIZE - AGENT_NAME_BYTES - 1);
	return 0;
}

static int find_caller(struct daemon *d, const char *name, struct err *e)
{
	const struct passwd *entry = getpwnam(name);

	if (entry == NULL)
		return err_set(e, ERR_INVALID, 0, "no user %s", name);
	d->caller_uid = entry->pw_uid;
	d->caller_gid = entry->pw_gid;
	return 0;
}

/* cordon-init beside this program, unless named. */
static int open_init(struct daemon *d, struct err *e)
{
	char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 16);
	char *slash;

	if (length < 0)
		return err_set(e, ERR_IO, errno, "readlink of this program");
	path[length] = '\0';
	slash = strrchr(path, '/');
	if (slash == NULL)
		return err_set(e, ERR_INTERNAL, 0, "this program has no directory");
	(void)snprintf(slash + 1, sizeof(path) - (size_t)(slash + 1 - path), "cordon-init");
	d->init_fd = open(d->init_path == NULL ? path : d->init_path, O_PATH | O_CLOEXEC);
	if (d->init_fd < 0)
		return err_set(e, ERR_IO, errno, "open %s",
			       d->init_path == NULL ? path : d->init_path);
	return 0;
}

/* --- start and stop ------------------------------------------------------------------------- */

static int make_dir(const struct daemon *d, const char *name, struct err *e)
{
	char path[BOX_PATH_SIZE + 16];
	scope_close int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/%s", d->run_dir, name);
	if (mkdir(path, 0750) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "mkdir %s", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, 0, d->caller_gid) != 0 || fchmod(fd, 0750) != 0)
		return err_set(e, ERR_IO, errno, "%s", path);
	return fd_steal(&fd);
}

/* One cordon-box per run directory. */
static int take_lock(struct daemon *d, int box_dir, struct err *e)
{
	d->lock_fd = openat(box_dir, "box.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd < 0)
		return err_set(e, ERR_IO, errno, "open box.lock");
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return err_set(e, ERR_CONFLICT, errno, "another cordon-box uses %s", d->run_dir);
	return 0;
}

static int open_dirs(struct daemon *d, struct err *e)
{
	scope_close int box_dir = -1;
	struct stat st;

	if (stat(d->data_dir, &st) != 0 || !S_ISDIR(st.st_mode))
		return err_set(e, ERR_INVALID, 0, "--data-dir %s is no directory", d->data_dir);
	if (mkdir(d->run_dir, 0755) != 0 && errno != EEXIST)
		return err_set(e, ERR_IO, errno, "mkdir %s", d->run_dir);
	box_dir = make_dir(d, "box", e);
	if (box_dir < 0 || take_lock(d, box_dir, e) != 0)
		return -1;
	d->agents_dir = make_dir(d, "agents", e);
	d->boxes_dir = make_dir(d, "boxes", e);
	if (d->agents_dir < 0 || d->boxes_dir < 0)
		return -1;
	if (fchown(d->boxes_dir, 0, 0) != 0 || fchmod(d->boxes_dir, 0700) != 0)
		return err_set(e, ERR_IO, errno, "the folder of slot files");
	return 0;
}

static int open_signals(struct daemon *d, struct err *e)
{
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)sigaddset(&set, SIGPIPE);
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
		return err_set(e, ERR_IO, errno, "sigprocmask");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_set(e, ERR_IO, errno, "signalfd");
	return watch_open(d, &d->signals, fd, on_signal, NULL, e);
}

static int open_listener(struct daemon *d, struct err *e)
{
	char path[BOX_PATH_SIZE];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/box/box.sock", d->run_dir);
	fd = fd_unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 0660, 64, e);
	if (fd < 0)
		return -1;
	if (chown(path, 0, d->caller_gid) != 0) {
		(void)close(fd);
		return err_set(e, ERR_IO, errno, "chown %s", path);
	}
	return watch_open(d, &d->listener, fd, client_accept, NULL, e);
}

static void raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

static void init(struct daemon *d)
{
	memset(d, 0, sizeof(*d));
	d->epoll = -1;
	d->lock_fd = -1;
	d->init_fd = -1;
	d->filter_fd = -1;
	d->instance_lock = -1;
	d->agents_dir = -1;
	d->boxes_dir = -1;
	d->workspaces_dir = -1;
	d->listener.fd = -1;
	d->signals.fd = -1;
	d->zygote.watch.fd = -1;
	for (int i = 0; i < DAEMON_UID_LOCKS; i++)
		d->uid_locks[i] = -1;
	for (int i = 0; i < DAEMON_MAX_CLIENTS; i++)
		d->clients[i].watch.fd = -1;
	for (int i = 0; i < CG__MAX; i++)
		d->groups.roots[i] = -1;
}

/* Groups, slots, and the boxes of an earlier cordon-box; with end_all none of them. */
static int open_slots(struct daemon *d, bool end_all, struct err *e)
{
	const struct cgroups_wish wish = {.instance = d->instance,
					  .host_reserve_mb = d->config.host_reserve_mb,
					  .io_weight = d->config.io_weight};
	static struct adopt_list list;
	int result;

	adopt_find(d, &list);
	if (end_all)
		memset(list.keep, 0, sizeof(list.keep));
	d->adopting = list.count > 0 && !end_all;
	result = cgroups_open(&d->groups, &wish, list.keep, e);
	if (result == 0)
		result = slots_open(d, e);
	if (result == 0)
		result = workspaces_open(d, e);
	if (result == 0)
		result = adopt_all(d, &list, e);
	if (result == 0)
		result = adopt_clean(d, e);
	if (result == 0)
		d->adopting = false;
	adopt_list_release(&list);
	return result;
}

static int start(struct daemon *d, const struct options *o, struct err *e)
{
	if (geteuid() != 0)
		return err_set(e, ERR_DENIED, 0, "needs root");
	raise_files();
	d->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (d->epoll < 0)
		return err_set(e, ERR_IO, errno, "epoll_create1");
	if (box_config_load(o->limits, &d->config, e) != 0 || find_caller(d, o->caller, e) != 0 ||
	    open_init(d, e) != 0 || open_dirs(d, e) != 0 || open_signals(d, e) != 0 ||
	    locks_take(d, e) != 0 || cgroups_probe(&d->groups, e) != 0 ||
	    (o->slice != NULL && cgroups_enter_slice(&d->groups, o->slice, e) != 0) ||
	    filter_build(&d->filter_fd, e) != 0 || open_slots(d, o->end_all, e) != 0)
		return -1;
	if (o->end_all)
		return 0;
	box_config_ceilings(&d->config, &d->ceilings);
	if (zygote_start(d, e) != 0 || zygote_wait(d, ZYGOTE_TIMEOUT_US, e) != 0)
		return -1;
	return 0;
}

static int stop(struct daemon *d)
{
	bool keep[BOX_MAX_SLOTS];
	struct err e = ERR_INIT;
	char path[BOX_PATH_SIZE];
	int result = 0;

	if (d->listener.fd >= 0) {
		(void)snprintf(path, sizeof(path), "%s/box/box.sock", d->run_dir);
		(void)unlink(path);
	}
	watch_close(d, &d->listener);
	client_close_all(d);
	zygote_stop(d);
	adopt_keep_list(d, keep);
	if (d->end_boxes)
		memset(keep, 0, sizeof(keep));
	workspaces_close(d);
	slots_close(d);
	ring_close(d);
	if (!d->adopting && d->groups.name[0] != '\0' && cgroups_sweep(&d->groups, keep, &e) != 0) {
		log_err(LOG_ERROR, "groups_left", &e, "%s", "");
		result = 1;
	}
	cgroups_close(&d->groups);
	locks_release(d);
	return result;
}

static void print_probe(const struct daemon *d)
{
	(void)printf("cgroups     %s\n", box_mode_name(d->groups.mode));
	(void)printf("filter      compiled\n");
	(void)printf("image       host (idmapped: %s)\n", d->zygote.idmap ? "yes" : "no");
	(void)printf("slots       %llu, ids from %llu\n", (unsigned long long)d->config.slots,
		     (unsigned long long)d->config.uid_base);
}

int main(int argc, char **argv)
{
	static struct daemon d;
	struct options o = {.caller = DEFAULT_CALLER};
	struct err e = ERR_INIT;
	int result;

	init(&d);
	log_open("cordon-box", "", LOG_INFO);
	for (int i = 1; i < argc; i++)
		if (str_equal(argv[i], "--help")) {
			(void)fputs(usage, stdout);
			box_config_help();
			return 0;
		}
	if (parse(argc, argv, &d, &o, &e) != 0) {
		(void)fprintf(stderr, "cordon-box: %s\n%s", e.text, usage);
		return 2;
	}
	log_open("cordon-box", d.instance, LOG_INFO);
	proc_harden();
	if (start(&d, &o, &e) != 0 || (!o.probe && !o.end_all && open_listener(&d, &e) != 0)) {
		log_err(LOG_ERROR, "start", &e, "%s", "");
		(void)stop(&d);
		return 1;
	}
	if (o.probe)
		print_probe(&d);
	d.end_boxes = o.end_all;
	if (o.probe || o.end_all)
		return stop(&d);
	log_event(LOG_INFO, "ready", "cgroups=%s slots=%llu idmap=%d", box_mode_name(d.groups.mode),
		  (unsigned long long)d.config.slots, d.zygote.idmap ? 1 : 0);
	loop(&d);
	result = stop(&d);
	log_event(LOG_INFO, "stopped", "result=%d", result);
	return result;
}
