/*
 * cordon-gate: everything that waits or carries bytes.
 *
 * Theory of operation. One process, user cordon-gate, two threads. The loop thread runs
 * libwebsockets on two unix sockets of nginx and on the notice socket; it never calls the database.
 * The SQL thread (sql.c) owns the connection.
 *
 * - control.sock: holds (hold.c). nginx obeys X-Accel-Redirect from here, so only this program
 * answers on it.
 * - bytes.sock: WebSocket streams (stream.c). What a box wrote goes out here, and nginx obeys
 * nothing that comes from it. What clients type into interactive runs goes to the runner's socket
 * (input.c).
 * - gate.sock: notices from workers and the runner: "this run changed".
 *
 * Who may die when: this program at any time. nginx sends the requests that it held to the render
 * location, and a worker sends them to hold again; streams are resumed by their clients with
 * from_seq. If the service manager owns the listening sockets (words control-fd, bytes-fd),
 * connections wait in them while the gate restarts.
 *
 * Signals: TERM and INT close the streams with 1012 and drop the holds (nginx brings them back),
 * then end; HUP reads the policy again.
 */
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"
#include "runners/core/json.h"
#include "runners/core/program.h"
#include "runners/gate/archive.h"
#include "runners/gate/gate.h"

#include <errno.h>
#include <ev.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define LISTEN_BACKLOG 4096
#define DRAIN_US       (2 * CLOCK_US_PER_S)
#define HEADER_BYTES   8192
#define FILES_WANTED   65536

static volatile sig_atomic_t stop_wanted;
static volatile sig_atomic_t reload_wanted;
static struct lws_context *signal_context;

static void on_signal(int number)
{
	if (number == SIGHUP)
		reload_wanted = 1;
	else
		stop_wanted = 1;
	/* async-signal-safe: it writes to a pipe */
	if (signal_context != NULL)
		lws_cancel_service(signal_context);
}

/* --- listening sockets and notices as raw descriptors in the loop
 * ----------------------------------------------- */

static int accept_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
			   size_t len)
{
	struct gate *gate = lws_context_user(lws_get_context(wsi));
	struct lws_vhost *target = lws_get_vhost(wsi);

	(void)user;
	(void)in;
	(void)len;
	if (reason != LWS_CALLBACK_RAW_RX_FILE)
		return 0;
	for (int i = 0; i < 64; i++) {
		int fd = accept4(lws_get_socket_fd(wsi), NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			break;
		/* on failure libwebsockets has closed it */
		if (lws_adopt_socket_vhost(target, fd) == NULL)
			log_event(LOG_WARNING, "adopt_failed", "runs=%zu", gate->run_count);
	}
	return 0;
}

static int notice_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
			   size_t len)
{
	struct gate *gate = lws_context_user(lws_get_context(wsi));
	int fd = lws_get_socket_fd(wsi);

	(void)user;
	(void)in;
	(void)len;
	if (reason != LWS_CALLBACK_RAW_RX_FILE)
		return 0;
	for (int i = 0; i < 64; i++) {
		struct notice notice;
		struct err e = ERR_INIT;
		int got = notify_receive(fd, &notice, &e);

		if (got < 0)
			return -1;
		if (got == 0)
			return 0;
		gate_noticed(gate, &notice);
	}
	return 0;
}

static int notice_accept_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user,
				  void *in, size_t len)
{
	(void)user;
	(void)in;
	(void)len;
	if (reason != LWS_CALLBACK_RAW_RX_FILE)
		return 0;
	for (int i = 0; i < 64; i++) {
		lws_sock_file_fd_type fd;
		struct gate *gate = lws_context_user(lws_get_context(wsi));

		fd.filefd =
		    accept4(lws_get_socket_fd(wsi), NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd.filefd < 0)
			break;
		if (lws_adopt_descriptor_vhost(gate->control, LWS_ADOPT_RAW_FILE_DESC, fd,
					       "cordon-notice", NULL) == NULL)
			log_event(LOG_WARNING, "adopt_failed", "%s", "notice");
		/* what was sent before this connection may be lost: look at the table */
		gate_compare(gate);
	}
	return 0;
}

static const struct lws_protocols control_protocols[] = {
    {.name = "cordon-hold",
     .callback = hold_callback,
     .per_session_data_size = sizeof(struct hold)},
    {.name = "cordon-accept", .callback = accept_callback},
    {.name = "cordon-notice", .callback = notice_callback},
    {.name = "cordon-notice-accept", .callback = notice_accept_callback},
    {.name = NULL}};

static const struct lws_protocols bytes_protocols[] = {
    {.name = "cordon-stream",
     .callback = stream_callback,
     .per_session_data_size = sizeof(struct stream),
     .rx_buffer_size = 4096},
    {.name = "cordon-accept", .callback = accept_callback},
    {.name = NULL}};

static struct lws_protocols archive_protocols[] = {
    {.name = "cordon-archive", .callback = archive_callback}, {.name = NULL}};

static int add_raw(struct lws_vhost *vhost, int fd, const char *protocol, struct err *e)
{
	lws_sock_file_fd_type what = {.filefd = fd};

	if (fd_set_nonblock(fd, true, e) != 0)
		return -1;
	if (lws_adopt_descriptor_vhost(vhost, LWS_ADOPT_RAW_FILE_DESC, what, protocol, NULL) ==
	    NULL)
		return err_set(e, ERR_INTERNAL, 0, "cannot add the %s socket", protocol);
	return 0;
}

struct sockets {
	int control;
	int bytes;
	int notices;
};

static int read_words(int argc, char **argv, int at, struct sockets *out, struct err *e)
{
	for (; at + 1 < argc; at += 2) {
		uint64_t fd;

		if (num_u64(argv[at], argv[at + 1], 3, 1023, &fd, e) != 0 ||
		    fd_set_cloexec((int)fd, true, e) != 0)
			return -1;
		if (str_equal(argv[at], "control-fd"))
			out->control = (int)fd;
		else if (str_equal(argv[at], "bytes-fd"))
			out->bytes = (int)fd;
		else
			return err_set(e, ERR_INVALID, 0, "the words are: control-fd N bytes-fd N");
	}
	return at == argc ? 0
			  : err_set(e, ERR_INVALID, 0, "the words are: control-fd N bytes-fd N");
}

static int open_sockets(const struct policy *policy, struct sockets *out, struct err *e)
{
	char path[256];

	if (out->control < 0) {
		(void)snprintf(path, sizeof(path), "%s/gate/control.sock", policy->paths.run);
		out->control = fd_unix_listen(path, SOCK_STREAM, 0660, LISTEN_BACKLOG, e);
	}
	if (out->bytes < 0) {
		(void)snprintf(path, sizeof(path), "%s/gate/bytes.sock", policy->paths.run);
		out->bytes = fd_unix_listen(path, SOCK_STREAM, 0660, LISTEN_BACKLOG, e);
	}
	(void)snprintf(path, sizeof(path), "%s/notify-gate/gate.sock", policy->paths.run);
	out->notices = notify_listen(path, e);
	return out->control < 0 || out->bytes < 0 || out->notices < 0 ? -1 : 0;
}

static void quiet(int level, const char *line)
{
	/* libwebsockets' errors name no request; the access log does */
	log_event(level == LLL_ERR ? LOG_WARNING : LOG_DEBUG, "lws", "%s", line);
}

static int make_context(struct gate *gate, struct err *e)
{
	static const lws_retry_bo_t liveness = {.secs_since_valid_ping = 20,
						.secs_since_valid_hangup = 60};
	struct lws_context_creation_info info;
	struct lws_context_creation_info vhost;
	void *loops[1];

	memset(&info, 0, sizeof(info));
	lws_set_log_level(LLL_ERR | LLL_WARN, quiet);
	info.port = CONTEXT_PORT_NO_LISTEN;
	/* libev's epoll: poll() looks at every waiting connection each time */
	gate->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
	if (gate->loop == NULL)
		return err_set(e, ERR_INTERNAL, 0, "ev_loop_new");
	loops[0] = gate->loop;
	info.foreign_loops = loops;
	info.options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_LIBEV;
	info.user = gate;
	info.max_http_header_data = HEADER_BYTES;
	info.max_http_header_pool = 0;
	info.gid = -1;
	info.uid = -1;
	gate->context = lws_create_context(&info);
	if (gate->context == NULL)
		return err_set(e, ERR_INTERNAL, 0, "lws_create_context");
	memset(&vhost, 0, sizeof(vhost));
	vhost.port = CONTEXT_PORT_NO_LISTEN_SERVER;
	/* libwebsockets chooses between vhosts without a port by the Host header: nginx sends these
	 * names */
	vhost.vhost_name = "control";
	vhost.protocols = control_protocols;
	vhost.timeout_secs = 30;
	gate->control = lws_create_vhost(gate->context, &vhost);
	archive_protocols[0].per_session_data_size = archive_request_size();
	vhost.vhost_name = "archive";
	vhost.protocols = archive_protocols;
	gate->archive = lws_create_vhost(gate->context, &vhost);
	vhost.vhost_name = "bytes";
	vhost.protocols = bytes_protocols;
	vhost.retry_and_idle_policy = &liveness;
	gate->bytes = lws_create_vhost(gate->context, &vhost);
	if (gate->control == NULL || gate->bytes == NULL || gate->archive == NULL)
		return err_set(e, ERR_INTERNAL, 0, "lws_create_vhost");
	return 0;
}

static void reload(struct gate *gate, const char *path, struct policy **owned)
{
	struct policy *fresh = NULL;
	struct err e = ERR_INIT;

	reload_wanted = 0;
	if (policy_load(path, &fresh, &e) != 0) {
		log_err(LOG_ERROR, "reload_refused", &e, "%s", "");
		return;
	}
	/* the SQL thread may be reading the old one: it is kept until the end */
	gate->policy = fresh;
	*owned = fresh;
	log_event(LOG_INFO, "reloaded", "%s", "");
}

static void serve(struct gate *gate, const char *policy_path, struct policy **owned)
{
	int64_t stop_at_us = 0;

	gate_compare_start(gate);
	while (stop_at_us == 0 || clock_monotonic_us() < stop_at_us) {
		ev_run(gate->loop, EVRUN_ONCE);
		if (reload_wanted != 0)
			reload(gate, policy_path, owned);
		if (stop_wanted != 0 && stop_at_us == 0) {
			log_event(LOG_INFO, "stopping", "streams=%u runs=%zu", gate->streams.count,
				  gate->run_count);
			gate->stopping = true;
			stream_close_all(gate, NULL);
			stop_at_us = clock_monotonic_us() + DRAIN_US;
		}
		if (gate->stopping && gate->streams.count == 0)
			break;
	}
}

static void raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int start(struct gate *gate, struct sockets *sockets, struct err *e)
{
	gate->record = mem_zalloc(1, sizeof(*gate->record));
	if (gate->record == NULL)
		return err_set(e, ERR_NOMEM, 0, "gate");
	raise_files();
	/* the files of uploads are for the runner's group too */
	(void)umask(0007);
	if (make_context(gate, e) != 0 || open_sockets(gate->policy, sockets, e) != 0 ||
	    sql_start(gate, &gate->sql, e) != 0 ||
	    add_raw(gate->control, sockets->control, "cordon-accept", e) != 0 ||
	    add_raw(gate->bytes, sockets->bytes, "cordon-accept", e) != 0 ||
	    add_raw(gate->control, sockets->notices, "cordon-notice-accept", e) != 0)
		return -1;
	signal_context = gate->context;
	gate->started_us = clock_monotonic_us();
	return 0;
}

int main(int argc, char **argv)
{
	static const struct program_info info = {
	    .name = "cordon-gate",
	    .about = "holds requests and carries streams",
	    .more =
		"Words: control-fd N bytes-fd N   use listening sockets that the service manager owns",
	    .takes_words = true};
	struct policy *policy = NULL;
	struct policy *fresh = NULL;
	struct program_options options;
	struct sockets sockets = {-1, -1, -1};
	struct gate gate;
	struct err e = ERR_INIT;
	int status;

	if (program_start(&info, argc, argv, &options, &policy, &status) != 0)
		return status;
	proc_harden();
	json_setup();
	memset(&gate, 0, sizeof(gate));
	gate.policy = policy;
	if (read_words(argc, argv, options.first_word, &sockets, &e) != 0 ||
	    proc_on_signal(SIGTERM, on_signal, &e) != 0 ||
	    proc_on_signal(SIGINT, on_signal, &e) != 0 ||
	    proc_on_signal(SIGHUP, on_signal, &e) != 0 || proc_on_signal(SIGPIPE, NULL, &e) != 0 ||
	    start(&gate, &sockets, &e) != 0) {
		log_err(LOG_ERROR, "start", &e, "%s", "");
		return 1;
	}
	log_event(LOG_INFO, "started", "%s", "");
	serve(&gate, options.policy_path, &fresh);
	signal_context = NULL;
	sql_stop(gate.sql);
	gate.sql = NULL;
	lws_context_destroy(gate.context);
	ev_loop_destroy(gate.loop);
	mem_free(gate.record);
	policy_free(policy);
	policy_free(fresh);
	log_event(LOG_INFO, "stopped", "%s", "");
	return 0;
}
