/*
 * fdio.h: file descriptors: closing by scope, whole reads and writes, small files, unix sockets,
 * descriptors over sockets.
 *
 * All descriptors made here are close-on-exec. Paths of unix sockets are limited to 107 bytes
 * (unix(7)); a longer one is an error, never a truncation.
 */
#ifndef CORDON_BASE_FDIO_H
#define CORDON_BASE_FDIO_H

#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define FDIO_MAX_FDS 16

static inline void fd_close_at(int *fd)
{
	if (*fd >= 0) {
		(void)close(*fd);
		*fd = -1;
	}
}

static inline int fd_steal(int *fd)
{
	int value = *fd;

	*fd = -1;
	return value;
}

#define scope_close __attribute__((cleanup(fd_close_at)))

int fd_set_nonblock(int fd, bool on, struct err *e);
int fd_set_cloexec(int fd, bool on, struct err *e);

/* Writes or reads all; EINTR is repeated. fd_read_full sets ERR_PROTOCOL on an early end. */
int fd_write_full(int fd, const void *data, size_t length, struct err *e);
int fd_read_full(int fd, void *data, size_t length, struct err *e);

/* Appends the whole file to out (bounded by out's maximum). dir_fd may be AT_FDCWD. */
int fd_read_file(int dir_fd, const char *path, struct buf *out, struct err *e);
/* Writes through a temporary name and rename, so that a reader sees the old or the new file. */
int fd_replace_file(int dir_fd, const char *path, const void *data, size_t length,
		    unsigned int mode, struct err *e);
/* Writes a value into an existing file (control files of the kernel). */
int fd_write_value(int dir_fd, const char *path, const char *text, struct err *e);

/* A listening unix socket (SOCK_STREAM or SOCK_SEQPACKET) at path, which is replaced; mode is
 * exact. */
int fd_unix_listen(const char *path, int type, unsigned int mode, int backlog, struct err *e);
int fd_unix_connect(const char *path, int type, struct err *e);
/* The user of the peer of a unix socket. */
int fd_peer_uid(int fd, uid_t *out_uid, struct err *e);

/*
 * One message with up to FDIO_MAX_FDS descriptors. fd_send returns the bytes sent or -1
 * (ERR_UNAVAILABLE when the socket is full and non-blocking). fd_receive returns the bytes read, 0
 * at the end, -1 on error (ERR_UNAVAILABLE: nothing there); received descriptors are the caller's.
 * A message that was cut is ERR_PROTOCOL.
 */
ssize_t fd_send(int socket, const void *data, size_t length, const int *fds, size_t fd_count,
		struct err *e);
ssize_t fd_receive(int socket, void *data, size_t size, int *fds, size_t max_fds,
		   size_t *out_fd_count, struct err *e);

#endif
