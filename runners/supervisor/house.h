/*
 * house.h: the house thread of cordon-runner: what may take its time and must hold up neither boxes
 * nor claims: the preflight of the host, every 30 s, operations on the host's own stores, and
 * the removal of folders that nothing names. It
 * has a connection to the database of its own.
 *
 * The loop tells it what cordon-box says (house_box) and hands over claimed jobs (house_take); ends
 * go the usual way, through jobs_end. At a stop what is under way is left as it is: its claim is
 * taken over by the next runner, which does it again.
 */
#ifndef CORDON_SUPERVISOR_HOUSE_H
#define CORDON_SUPERVISOR_HOUSE_H

#include "runners/base/boxproto.h"
#include "runners/supervisor/jobs.h"

#define HOUSE_LOOK_US (30 * INT64_C(1000000))

struct house;

int house_start(const struct policy *policy, struct jobs *jobs, struct house **out, struct err *e);
/* Waits for the end of the thread for that long; it is left behind then. True: claims are left for
 * the next runner. */
bool house_stop(struct house *house, int64_t wait_us);
/* The answer to BOX_PROBE. */
void house_box(struct house *house, const struct box_reply *reply);
/* An operation on the stores; takes event->spec. */
void house_take(struct house *house, struct jobs_event *event);

#endif
