/* image.h: images as templates. Now there is one, `host`. */
#ifndef CORDON_EXEC_IMAGE_H
#define CORDON_EXEC_IMAGE_H

#include "runners/base/err.h"

#include <stdbool.h>

#define IMAGE_HOST "host"

/*
 * In a forked child only: leaves the host's mount namespace for one that holds /t (the template),
 * /n (empty) and /proc, and nothing of the host. scratch: any directory to mount on meanwhile.
 */
int image_host_enter(const char *scratch, bool with_local, struct err *e);

#endif
