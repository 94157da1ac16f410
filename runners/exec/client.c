/* Connections of the caller: records in, records out. */
#include "runners/exec/daemon.h"

#include "runners/base/fdio.h"
#include "runners/base/log.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define OUT_RECORDS (2U * BOX_MAX_SLOTS + 64U)

static void client_close(struct daemon *d, struct client *c)
{
	watch_close(d, &c->watch);
	buf_release(&c->out);
	c->serial = 0;
}

void client_close_all(struct daemon *d)
{
	for (int i = 0; i < DAEMON_MAX_CLIENTS; i++)
		if (d->clients[i].watch.fd >= 0)
			client_close(d, &d->clients[i]);
}

/* Sends waiting records; false when the connection broke. */
static bool flush(struct daemon *d, struct client *c)
{
	while (c->out.len >= sizeof(struct box_reply)) {
		ssize_t done =
		    send(c->watch.fd, c->out.data, sizeof(struct box_reply), MSG_NOSIGNAL);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && errno == EAGAIN) {
			watch_events(d, &c->watch, EPOLLIN | EPOLLOUT);
			return true;
		}
		if (done < 0)
			return false;
		buf_consume(&c->out, sizeof(struct box_reply));
	}
	watch_events(d, &c->watch, EPOLLIN);
	return true;
}

static void send_record(struct daemon *d, struct client *c, const struct box_reply *reply)
{
	if (c->out.len == 0) {
		ssize_t done;

		do
			done = send(c->watch.fd, reply, sizeof(*reply), MSG_NOSIGNAL);
		while (done < 0 && errno == EINTR);
		if (done >= 0)
			return;
		if (errno != EAGAIN) {
			/* its end comes as an event of the socket */
			return;
		}
	}
	buf_add(&c->out, reply, sizeof(*reply));
	if (!buf_ok(&c->out)) {
		log_event(LOG_WARNING, "client", "does not read its records, closed%s", "");
		(void)shutdown(c->watch.fd, SHUT_RDWR);
		return;
	}
	watch_events(d, &c->watch, EPOLLIN | EPOLLOUT);
}

void client_send(struct daemon *d, uint64_t serial, const struct box_reply *reply)
{
	for (int i = 0; i < DAEMON_MAX_CLIENTS; i++)
		if (d->clients[i].watch.fd >= 0 && d->clients[i].serial == serial)
			send_record(d, &d->clients[i], reply);
}

void client_broadcast(struct daemon *d, const struct box_reply *reply)
{
	for (int i = 0; i < DAEMON_MAX_CLIENTS; i++)
		if (d->clients[i].watch.fd >= 0)
			send_record(d, &d->clients[i], reply);
}

static void handle_record(struct daemon *d, struct client *c, const void *data, size_t length)
{
	struct box_request request;
	struct err e = ERR_INIT;
	uint64_t tag;
	uint32_t verb;

	if (box_request_check(data, length, &request, &tag, &verb, &e) != 0) {
		box_refuse(d, c->serial, tag, verb, BOX_ERR_INVALID, 0, e.text);
		return;
	}
	box_request(d, c->serial, &request);
}

static void on_client(struct daemon *d, void *ctx, uint32_t events)
{
	struct client *c = ctx;

	if ((events & EPOLLOUT) != 0 && !flush(d, c)) {
		client_close(d, c);
		return;
	}
	for (;;) {
		/* one byte more than a request, so that a longer record is seen */
		char data[sizeof(struct box_request) + 1];
		ssize_t got = recv(c->watch.fd, data, sizeof(data), 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0) {
			client_close(d, c);
			return;
		}
		handle_record(d, c, data, (size_t)got);
	}
}

void client_accept(struct daemon *d, void *ctx, uint32_t events)
{
	struct err e = ERR_INIT;
	uid_t uid;
	scope_close int fd = accept4(d->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)ctx;
	(void)events;
	if (fd < 0)
		return;
	if (fd_peer_uid(fd, &uid, &e) != 0 || (uid != 0 && uid != d->caller_uid)) {
		log_event(LOG_WARNING, "client_refused", "uid=%u", uid);
		return;
	}
	for (int i = 0; i < DAEMON_MAX_CLIENTS; i++) {
		struct client *c = &d->clients[i];

		if (c->watch.fd >= 0)
			continue;
		if (watch_open(d, &c->watch, fd, on_client, c, &e) != 0) {
			log_err(LOG_ERROR, "client", &e, "%s", "");
			return;
		}
		(void)fd_steal(&fd);
		c->serial = ++d->next_serial;
		buf_init(&c->out, OUT_RECORDS * sizeof(struct box_reply));
		return;
	}
	log_event(LOG_WARNING, "client_refused", "more than %d connections", DAEMON_MAX_CLIENTS);
}
