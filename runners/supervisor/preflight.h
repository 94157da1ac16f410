/*
 * preflight.h: what this host could run: looked up in the file system, by the Docker engine's
 * socket and, for `namespace`, by what cordon-box said last. Everything has a deadline; it runs in
 * the house thread (house.h) and is written to runtime_fact, where the web workers read it.
 *
 * The raw reasons are face 1's. Whether a driver of ours exists is not asked here.
 */
#ifndef CORDON_SUPERVISOR_PREFLIGHT_H
#define CORDON_SUPERVISOR_PREFLIGHT_H

#include "runners/base/boxproto.h"
#include "runners/core/json.h"
#include "runners/core/policy.h"
#include "runners/core/store.h"

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* What cordon-box said of itself. */
struct preflight_box {
	bool known; /* false: it is too early to say, the old row stays */
	bool good;
	enum box_mode mode;
	uint32_t slots;
};

/* What is kept from one look to the next. */
struct preflight {
	const char *docker_socket; /* NULL: the usual one; for tests */
	const char *path; /* folders that are searched for programs; NULL: the usual ones */
	dev_t git_device;
	ino_t git_inode;
	time_t git_mtime;
	bool git_good;
};

/* {name: {available, reasons, host}} of every runtime that can be judged now; NULL without memory.
 */
json_t *preflight_look(struct preflight *p, const struct preflight_box *box);
int preflight_write(struct store *db, const char *node, json_t *facts, struct err *e);

/* "git version 2.39.5": at least 2.15. */
bool preflight_git_fits(const char *text);

#endif
