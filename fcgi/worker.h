/*
 * worker.h: one worker process: accept, read, serve, write, until it is told to stop or has served
 * its share. TERM lets the current request finish. Its exit code tells the master why it ended.
 */
#ifndef CORDON_FCGI_WORKER_H
#define CORDON_FCGI_WORKER_H

#include "fcgi/scoreboard.h"
#include "handlers/secrets.h"
#include "runners/core/policy.h"

#define WORKER_EXIT_STOPPED 0
#define WORKER_EXIT_SERVED  10 /* max_requests reached: replace it */
#define WORKER_EXIT_BROKEN  11

int worker_run(const struct policy *policy, const struct secrets *secrets, const char *image_digest,
	       int listen_fd, struct score *slot);

#endif
