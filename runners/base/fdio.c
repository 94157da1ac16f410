#include "runners/base/fdio.h"

#include "runners/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static int change_flag(int fd, int get, int set, int flag, bool on, struct err *e)
{
	int flags = fcntl(fd, get);

	if (flags < 0 || fcntl(fd, set, on ? flags | flag : flags & ~flag) < 0)
		return err_set(e, ERR_IO, errno, "fcntl");
	return 0;
}

int fd_set_nonblock(int fd, bool on, struct err *e)
{
	return change_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on, e);
}

int fd_set_cloexec(int fd, bool on, struct err *e)
{
	return change_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on, e);
}

int fd_write_full(int fd, const void *data, size_t length, struct err *e)
{
	const char *p = data;

	while (length > 0) {
		ssize_t done = write(fd, p, length);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return err_set(e, errno == ENOSPC ? ERR_STORAGE : ERR_IO, errno, "write");
		p += done;
		length -= (size_t)done;
	}
	return 0;
}

int fd_read_full(int fd, void *data, size_t length, struct err *e)
{
	char *p = data;

	while (length > 0) {
		ssize_t done = read(fd, p, length);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return err_set(e, ERR_IO, errno, "read");
		if (done == 0)
			return err_set(e, ERR_PROTOCOL, 0, "the data ends %zu bytes early", length);
		p += done;
		length -= (size_t)done;
	}
	return 0;
}

int fd_read_file(int dir_fd, const char *path, struct buf *out, struct err *e)
{
	scope_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s", path);
	for (;;) {
		char chunk[16384];

		got = read(fd, chunk, sizeof(chunk));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		buf_add(out, chunk, (size_t)got);
		if (buf_error(out) == ERR_LIMIT)
			return err_set(e, ERR_LIMIT, 0, "%s is larger than %zu bytes", path,
				       out->max);
		if (!buf_ok(out))
			return err_set(e, ERR_NOMEM, 0, "read %s", path);
	}
	if (got < 0)
		return err_set(e, ERR_IO, errno, "read %s", path);
	return 0;
}

int fd_replace_file(int dir_fd, const char *path, const void *data, size_t length,
		    unsigned int mode, struct err *e)
{
	char temporary[512];
	scope_close int fd = -1;
	int used = snprintf(temporary, sizeof(temporary), "%s.new.%ld", path, (long)getpid());

	if (used < 0 || (size_t)used >= sizeof(temporary))
		return err_set(e, ERR_INTERNAL, 0, "path too long: %s", path);
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return err_set(e, ERR_IO, errno, "create %s", temporary);
	if (fchmod(fd, mode) != 0)
		(void)err_set(e, ERR_IO, errno, "chmod %s", temporary);
	else if (fd_write_full(fd, data, length, e) == 0 &&
		 renameat(dir_fd, temporary, dir_fd, path) == 0)
		return 0;
	(void)err_set(e, ERR_IO, errno, "replace %s", path);
	(void)unlinkat(dir_fd, temporary, 0);
	return -1;
}

int fd_write_value(int dir_fd, const char *path, const char *text, struct err *e)
{
	scope_close int fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC);
	size_t length = strlen(text);
	ssize_t done;

	if (fd < 0)
		return err_set(e, ERR_IO, errno, "open %s", path);
	do
		done = write(fd, text, length);
	while (done < 0 && errno == EINTR);
	if (done != (ssize_t)length)
		return err_set(e, ERR_IO, done < 0 ? errno : 0, "write \"%s\" to %s", text, path);
	return 0;
}

static int unix_address(const char *path, struct sockaddr_un *out, struct err *e)
{
	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	if (str_copy(out->sun_path, sizeof(out->sun_path), path) != 0)
		return err_set(e, ERR_INVALID, 0, "socket path is longer than %zu bytes: %s",
			       sizeof(out->sun_path) - 1, path);
	return 0;
}

int fd_unix_listen(const char *path, int type, unsigned int mode, int backlog, struct err *e)
{
	struct sockaddr_un address;
	scope_close int fd = -1;
	mode_t old;
	int bound;

	if (unix_address(path, &address, e) != 0)
		return -1;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(e, ERR_IO, errno, "socket");
	(void)unlink(path);
	old = umask(0777 & ~mode);
	bound = bind(fd, (struct sockaddr *)&address, sizeof(address));
	(void)umask(old);
	if (bound != 0)
		return err_set(e, ERR_IO, errno, "bind %s", path);
	if (listen(fd, backlog) != 0)
		return err_set(e, ERR_IO, errno, "listen %s", path);
	return fd_steal(&fd);
}

int fd_unix_connect(const char *path, int type, struct err *e)
{
	struct sockaddr_un address;
	scope_close int fd = -1;
	int done;

	if (unix_address(path, &address, e) != 0)
		return -1;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(e, ERR_IO, errno, "socket");
	do
		done = connect(fd, (struct sockaddr *)&address, sizeof(address));
	while (done != 0 && errno == EINTR);
	if (done != 0)
		return err_set(e, ERR_UNAVAILABLE, errno, "connect %s", path);
	return fd_steal(&fd);
}

int fd_peer_uid(int fd, uid_t *out_uid, struct err *e)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		return err_set(e, ERR_IO, errno, "SO_PEERCRED");
	*out_uid = peer.uid;
	return 0;
}

union control {
	char room[CMSG_SPACE(sizeof(int) * FDIO_MAX_FDS)];
	struct cmsghdr align;
};

ssize_t fd_send(int socket, const void *data, size_t length, const int *fds, size_t fd_count,
		struct err *e)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = length};
	union control control;
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t done;

	if (fd_count > FDIO_MAX_FDS)
		return err_set(e, ERR_INTERNAL, 0, "too many descriptors");
	memset(&control, 0, sizeof(control));
	if (fd_count > 0) {
		struct cmsghdr *head;

		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * fd_count);
	}
	do
		done = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (done < 0 && errno == EINTR);
	if (done < 0)
		return err_set(e, errno == EAGAIN || errno == ENOBUFS ? ERR_UNAVAILABLE : ERR_IO,
			       errno, "sendmsg");
	return done;
}

ssize_t fd_receive(int socket, void *data, size_t size, int *fds, size_t max_fds,
		   size_t *out_fd_count, struct err *e)
{
	struct iovec part = {.iov_base = data, .iov_len = size};
	union control control;
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	size_t count = 0;
	ssize_t done;

	*out_fd_count = 0;
	memset(&control, 0, sizeof(control));
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	do
		done = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (done < 0 && errno == EINTR);
	if (done < 0)
		return err_set(e, errno == EAGAIN ? ERR_UNAVAILABLE : ERR_IO, errno, "recvmsg");
	for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head != NULL;
	     head = CMSG_NXTHDR(&message, head)) {
		size_t bytes;

		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		bytes = head->cmsg_len - CMSG_LEN(0);
		for (size_t i = 0; i < bytes / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
			if (count < max_fds)
				fds[count++] = fd;
			else
				(void)close(fd);
		}
	}
	if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
		while (count > 0)
			(void)close(fds[--count]);
		return err_set(e, ERR_PROTOCOL, 0, "a message was cut");
	}
	*out_fd_count = count;
	return done;
}
