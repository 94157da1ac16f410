/* frames.h: the frames of face 1's stream (contract section 2.9), one JSON text each. */
#ifndef CORDON_GATE_FRAMES_H
#define CORDON_GATE_FRAMES_H

#include "runners/gate/gate.h"

int frame_record(struct buf *out, const struct spool_record *record, struct err *e);
/* seq: the one behind the last record. */
int frame_end(struct buf *out, const struct run_end *end, uint64_t seq, struct err *e);

#endif
