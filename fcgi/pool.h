/*
 * pool.h: the master: N workers on one listening socket.
 *
 * - A worker that ends after its share is replaced at once; one that crashes, after a back-off (10
 * ms doubling to 5 s).
 * - Emergency: more than POOL_CRASH_LIMIT crashes within POOL_CRASH_WINDOW_US end the master with
 * exit 1, so that the service manager sees it.
 * - HUP loads the policy anew; when it is good, new workers start and each old one gets TERM when
 * its successor runs. A bad file keeps the old policy and workers.
 * - TERM and INT drain: workers finish their request; TERM is repeated until they are gone (libfcgi
 * can miss one), KILL after pool.request_timeout_ms.
 * - A worker that handles one request for longer than pool.request_timeout_ms is killed.
 */
#ifndef CORDON_FCGI_POOL_H
#define CORDON_FCGI_POOL_H

#include "runners/core/policy.h"

#define POOL_CRASH_LIMIT     20
#define POOL_CRASH_WINDOW_US (10 * 1000000LL)

/* Runs until told to stop; takes the policy over. Returns the exit code. */
int pool_run(const char *policy_path, struct policy *policy, int listen_fd);

#endif
