/*
 * cordon-init: pid 1 of every box, and the agent that runs commands there.
 *
 * Theory of operation
 *
 * One static, single-threaded program with two ways in.
 *
 *  --zygote --fd N   Started once per image by cordon-box, as root, in a mount namespace that holds
 *		      only /proc, the image's template and an empty directory. N is a SOCK_SEQPACKET
 *		      to cordon-box (runners/base/zygoteproto.h). For each CREATE it clones a child
 *		      with all namespaces; that child builds its box and becomes pid 1 of it without
 *		      an exec (build.c), which saves half a millisecond. The child's parent is
 *		      cordon-box (CLONE_PARENT). The zygote dies with cordon-box and at EOF.
 *
 *  --fd N	      Agent on the given listener, for containers, virtual machines and tests.
 *		      --workspace DIR names the tree of the file requests (/workspace).
 *
 * The agent (server.c and its parts) speaks docs/box-protocol.md over a listening unix socket. It
 * is never the command: a command is a forked child in a session of its own with three pipes or a
 * terminal, and when it has ended and its output is acknowledged, the agent goes on. It reaps
 * everything. Clients may come and go: EOF means nothing to an assigned agent, which keeps
 * unacknowledged output and exit statuses for whoever comes next. A box ends from outside, by its
 * cgroup.
 *
 * In a box pid 1 has the box's uid 0, no file capability, the box's seccomp filter, is not dumpable
 * and holds: the box's null device (0 to 2), its listener, its clients, the pipes and terminals of
 * its commands.
 */
#include "runners/init/box.h"
#include "runners/init/server.h"

#include "runners/base/err.h"
#include "runners/base/log.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <fcntl.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: cordon-init --fd N [--workspace DIR]   agent on the listening socket N\n"
    "       cordon-init --zygote --fd N            builder of boxes, started by cordon-box\n";

struct options {
	bool zygote;
	int fd;
	const char *workspace;
};

static int parse(int argc, char **argv, struct options *out, struct err *e)
{
	for (int i = 1; i < argc; i++) {
		uint64_t number;

		if (str_equal(argv[i], "--zygote")) {
			out->zygote = true;
		} else if (str_equal(argv[i], "--fd") && i + 1 < argc) {
			if (num_u64("--fd", argv[++i], 3, 1000000, &number, e) != 0)
				return -1;
			out->fd = (int)number;
		} else if (str_equal(argv[i], "--workspace") && i + 1 < argc) {
			out->workspace = argv[++i];
		} else {
			return err_set(e, ERR_INVALID, 0, "unknown argument: %s", argv[i]);
		}
	}
	if (out->fd < 0)
		return err_set(e, ERR_INVALID, 0, "--fd is missing");
	return 0;
}

int main(int argc, char **argv)
{
	struct options options = {.fd = -1, .workspace = "/workspace"};
	struct err e = ERR_INIT;
	struct stat st;

	log_open("cordon-init", "", LOG_INFO);
	if (argc == 2 && str_equal(argv[1], "--help")) {
		(void)fputs(usage, stdout);
		return 0;
	}
	if (parse(argc, argv, &options, &e) != 0) {
		(void)fprintf(stderr, "cordon-init: %s\n%s", e.text, usage);
		return 2;
	}
	if (fstat(options.fd, &st) != 0 || !S_ISSOCK(st.st_mode) ||
	    fcntl(options.fd, F_SETFD, FD_CLOEXEC) != 0) {
		(void)fprintf(stderr, "cordon-init: --fd %d is no socket\n", options.fd);
		return 2;
	}
	if (options.zygote)
		zygote_run(options.fd);
	server_run(options.fd, -1, options.workspace, 0);
}
