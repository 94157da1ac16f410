/*
 * archive.h: all artifacts of a run as one tar.gz, on the bytes socket under the name "archive"
 * (its vhost). GET /internal/archive/<node>/run/<id>. 429 when too many are made at once.
 */
#ifndef CORDON_GATE_ARCHIVE_H
#define CORDON_GATE_ARCHIVE_H

#include "runners/gate/gate.h"

int archive_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		     size_t len);
/* Of a connection's data. */
size_t archive_request_size(void);

#endif
