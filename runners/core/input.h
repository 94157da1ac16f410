/*
 * input.h: what a client types into an interactive run, on its way from the gate to the runner.
 *
 * The runner listens on <paths.run>/input-run/input.sock, whose folder only the gate may enter.
 * Each stream that types has a connection of its own (SOCK_SEQPACKET), so that a command that does
 * not read stops its own stream and nobody else's: the runner leaves the records in the socket, the
 * socket gets full, and the gate stops reading that client.
 *
 * A record is: u8 1 for the first of a client's frame else 0, the run's id (36 bytes), up to
 * INPUT_BYTES bytes. Nothing comes back: what the runner says to the client is in the run's log.
 */
#ifndef CORDON_CORE_INPUT_H
#define CORDON_CORE_INPUT_H

#include "runners/base/err.h"
#include "runners/base/ident.h"

#include <stdbool.h>
#include <stddef.h>

#define INPUT_BYTES  ((size_t)16 << 10)
#define INPUT_FOLDER "input-run"
#define INPUT_SOCKET INPUT_FOLDER "/input.sock"

struct input_record {
	bool first;
	char run_id[IDENT_UUID_SIZE];
	size_t length;
	unsigned char bytes[INPUT_BYTES];
};

/* A non-blocking listener, mode 0660. */
int input_listen(const char *run_dir, struct err *e);
/* A non-blocking connection; ERR_UNAVAILABLE: the runner is not there. */
int input_connect(const char *run_dir, struct err *e);
/* At most INPUT_BYTES. 1: the kernel has it, 0: the socket is full, -1: the connection is over. */
int input_send(int fd, const char *run_id, bool first, const void *data, size_t length,
	       struct err *e);
/* 1: a record; 0: nothing there now; -1: the connection is over (e is clear) or the peer broke the
 * form. */
int input_receive(int fd, struct input_record *out, struct err *e);

#endif
