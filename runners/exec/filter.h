/*
 * filter.h: the seccomp program of all boxes, compiled once.
 *
 * Denied calls fail with EPERM; clone3 with ENOSYS (callers then use clone, whose flags a filter
 * can read), calls newer than this list with ENOSYS, and so does every call by a foreign entry
 * (32-bit, x32).
 */
#ifndef CORDON_EXEC_FILTER_H
#define CORDON_EXEC_FILTER_H

#include "runners/base/err.h"

/* A memfd with the program, an array of struct sock_filter. */
int filter_build(int *out_fd, struct err *e);

#endif
