#include "runners/core/input.h"

#include "runners/base/fdio.h"
#include "runners/base/str.h"

#include <errno.h>
#include <sys/socket.h>

#define ID_BYTES   (IDENT_UUID_SIZE - 1)
#define HEAD_BYTES (1 + ID_BYTES)
#define BACKLOG    1024
/* a few records in the kernel are enough: the rest waits with its client */
#define SEND_BUFFER_BYTES (64 << 10)

static int socket_path(char *out, size_t size, const char *run_dir, struct err *e)
{
	int length = snprintf(out, size, "%s/" INPUT_SOCKET, run_dir);

	return length < 0 || (size_t)length >= size
		   ? err_set(e, ERR_INVALID, 0, "socket path too long: %s", run_dir)
		   : 0;
}

int input_listen(const char *run_dir, struct err *e)
{
	char path[108];

	if (socket_path(path, sizeof(path), run_dir, e) != 0)
		return -1;
	return fd_unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 0660, BACKLOG, e);
}

int input_connect(const char *run_dir, struct err *e)
{
	char path[108];
	int bytes = SEND_BUFFER_BYTES;
	scope_close int fd = -1;

	if (socket_path(path, sizeof(path), run_dir, e) != 0)
		return -1;
	fd = fd_unix_connect(path, SOCK_SEQPACKET | SOCK_NONBLOCK, e);
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) != 0)
		return err_set(e, ERR_IO, errno, "SO_SNDBUF");
	return fd_steal(&fd);
}

int input_send(int fd, const char *run_id, bool first, const void *data, size_t length,
	       struct err *e)
{
	unsigned char message[HEAD_BYTES + INPUT_BYTES];

	if (length > INPUT_BYTES || strlen(run_id) != ID_BYTES)
		return err_set(e, ERR_INTERNAL, 0, "an input record out of range");
	message[0] = first ? 1 : 0;
	memcpy(message + 1, run_id, ID_BYTES);
	memcpy(message + HEAD_BYTES, data, length);
	if (fd_send(fd, message, HEAD_BYTES + length, NULL, 0, e) >= 0)
		return 1;
	if (e->code != ERR_UNAVAILABLE)
		return -1;
	err_clear(e);
	return 0;
}

int input_receive(int fd, struct input_record *out, struct err *e)
{
	unsigned char message[HEAD_BYTES + INPUT_BYTES];
	size_t fd_count;
	ssize_t got = fd_receive(fd, message, sizeof(message), NULL, 0, &fd_count, e);

	if (got < 0 && e->code == ERR_UNAVAILABLE) {
		err_clear(e);
		return 0;
	}
	if (got <= 0)
		return -1;
	if ((size_t)got < HEAD_BYTES || message[0] > 1)
		return err_set(e, ERR_PROTOCOL, 0, "an input record is malformed");
	memcpy(out->run_id, message + 1, ID_BYTES);
	out->run_id[ID_BYTES] = '\0';
	if (!ident_is_uuid(out->run_id))
		return err_set(e, ERR_PROTOCOL, 0, "an input record is malformed");
	out->first = message[0] == 1;
	out->length = (size_t)got - HEAD_BYTES;
	memcpy(out->bytes, message + HEAD_BYTES, out->length);
	return 1;
}
