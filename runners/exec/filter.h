/*
 * filter.h: the seccomp program of all boxes: a list of allowed calls by name, compiled once and
 * handed to boxes as bytes.
 *
 * A call that is not on the list fails with EPERM; clone3 with ENOSYS (callers then use clone,
 * whose flags a filter can read), calls newer than this list with ENOSYS, and so does every call by
 * a foreign entry (32-bit, x32). tests/unit/data/syscalls.txt shows the answer to every call.
 */
#ifndef CORDON_EXEC_FILTER_H
#define CORDON_EXEC_FILTER_H

#include "runners/base/err.h"

enum filter_arch { FILTER_X86_64, FILTER_AARCH64, FILTER_ARCH__MAX };

#if defined(__x86_64__)
#define FILTER_NATIVE FILTER_X86_64
#elif defined(__aarch64__)
#define FILTER_NATIVE FILTER_AARCH64
#else
#error "no filter for this architecture"
#endif

/* A memfd with the program of this machine, an array of struct sock_filter. */
int filter_build(int *out_fd, struct err *e);
/* Writes the program for one architecture. */
int filter_export(enum filter_arch arch, int fd, struct err *e);

#endif
