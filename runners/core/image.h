/*
 * image.h: images: what a box sees as its root. Built in is `host`, a read-only view of this host's
 * /usr.
 *
 * The digest of `host` names the set of packages it shows: SHA-256 over /etc/os-release and dpkg's
 * status file, so it changes when a package is installed, removed or upgraded.
 */
#ifndef CORDON_CORE_IMAGE_H
#define CORDON_CORE_IMAGE_H

#include "runners/base/err.h"

#define IMAGE_DIGEST_SIZE 80 /* "sha256:", 64 digits, NUL */

int image_digest(const char *name, char out[IMAGE_DIGEST_SIZE], struct err *e);

#endif
