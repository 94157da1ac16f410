/*
 * cordon-fcgi: HTTP to SQL and back.
 *
 * Theory of operation. nginx speaks FastCGI over one unix socket to a pool of processes. The master
 * (pool.c) binds the socket or gets it as a descriptor from the service manager, forks N workers
 * and does nothing with requests itself. Each worker (worker.c) has one connection to MariaDB and
 * serves one request at a time: read (request.c), route (router.c), handle (handlers/), write
 * (response.c).
 *
 * A worker never waits for a box and never carries bulk bytes: what must wait is answered with
 * X-Accel-Redirect to the gate, and the gate sends it back to the render location when there is
 * something to say (DESIGN section 1). So every request takes milliseconds and a handful of workers
 * is enough.
 *
 * All processes run as cordon-web, without any privilege. Who may die when: a worker at any time
 * (nginx answers 502 outcome_unknown for the request it held, the master starts another); the
 * master with its workers (the service manager starts it again; the socket stays if it belongs to
 * the manager).
 *
 * Signals of the master: TERM, INT drain; HUP reloads the policy and replaces the workers one by
 * one.
 */
#include "fcgi/pool.h"
#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/num.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"
#include "runners/core/program.h"

#include <sys/socket.h>
#include <sys/stat.h>

#define LISTEN_BACKLOG 4096

static int listen_socket(const struct policy *policy, int argc, char **argv, int first_word,
			 struct err *e)
{
	char path[256];
	uint64_t fd;

	if (first_word < argc) {
		if (argc - first_word != 2 || !str_equal(argv[first_word], "socket-fd"))
			return err_set(e, ERR_INVALID, 0, "the only words are: socket-fd N");
		if (num_u64("socket-fd", argv[first_word + 1], 3, 1023, &fd, e) != 0 ||
		    fd_set_cloexec((int)fd, true, e) != 0)
			return -1;
		return (int)fd;
	}
	(void)snprintf(path, sizeof(path), "%s/web/fcgi.sock", policy->paths.run);
	return fd_unix_listen(path, SOCK_STREAM, 0660, LISTEN_BACKLOG, e);
}

int main(int argc, char **argv)
{
	static const struct program_info info = {
	    .name = "cordon-fcgi",
	    .about = "serves the API to nginx over FastCGI",
	    .more = "Words: socket-fd N   use the listening socket at descriptor N instead of "
		    "<paths.run>/web/fcgi.sock",
	    .takes_words = true};
	struct policy *policy = NULL;
	struct program_options options;
	struct err e = ERR_INIT;
	int status;
	int fd;

	if (program_start(&info, argc, argv, &options, &policy, &status) != 0)
		return status;
	proc_harden();
	/* what a worker stages is for the runner's group, not for others */
	(void)umask(0007);
	fd = listen_socket(policy, argc, argv, options.first_word, &e);
	if (fd < 0) {
		log_err(LOG_ERROR, "start", &e, "%s", "");
		policy_free(policy);
		return 1;
	}
	return pool_run(options.policy_path, policy, fd);
}
