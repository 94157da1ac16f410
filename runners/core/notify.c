#include "runners/core/notify.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/str.h"

#include <sys/socket.h>

#define RETRY_AFTER_US (200 * CLOCK_US_PER_MS)
#define LISTEN_BACKLOG 128
#define MESSAGE_BYTES  64
#define MAIL_KIND      "traces "
#define MAIL_WAIT_US   (300 * CLOCK_US_PER_MS)

int notifier_init(struct notifier *n, const char *path, struct err *e)
{
	memset(n, 0, sizeof(*n));
	n->fd = -1;
	if (str_copy(n->path, sizeof(n->path), path) != 0)
		return err_set(e, ERR_INVALID, 0, "socket path too long: %s", path);
	return 0;
}

void notifier_release(struct notifier *n)
{
	fd_close_at(&n->fd);
}

static bool connect_now(struct notifier *n)
{
	struct err ignored = ERR_INIT;
	int64_t now = clock_monotonic_us();

	if (n->fd >= 0)
		return true;
	if (now < n->retry_at_us)
		return false;
	n->fd = fd_unix_connect(n->path, SOCK_SEQPACKET | SOCK_NONBLOCK, &ignored);
	if (n->fd < 0)
		n->retry_at_us = now + RETRY_AFTER_US;
	return n->fd >= 0;
}

static bool send_message(struct notifier *n, const char *message, size_t length)
{
	/* a receiver that was restarted shows as a broken connection: try once on a new one */
	for (int attempt = 0; attempt < 2; attempt++) {
		struct err e = ERR_INIT;

		if (!connect_now(n))
			return false;
		if (fd_send(n->fd, message, length, NULL, 0, &e) >= 0)
			return true;
		if (e.code == ERR_UNAVAILABLE)
			return false;
		fd_close_at(&n->fd);
	}
	return false;
}

bool notify_send(struct notifier *n, const char *kind, const char *id, enum notice_hint hint)
{
	char message[MESSAGE_BYTES];
	int length = snprintf(message, sizeof(message), "%s %s %c", kind, id, (char)hint);

	return length >= 0 && (size_t)length < sizeof(message) &&
	       send_message(n, message, (size_t)length);
}

void trace_mail_add(struct trace_mail *mail, struct notifier *n, const char *run_id,
		    const char *part)
{
	char line[IDENT_UUID_SIZE + TRACE_PART_BYTES + 2];
	int length = snprintf(line, sizeof(line), "%s %s\n", run_id, part);

	if (length < 0 || (size_t)length >= sizeof(line))
		return;
	if (mail->used + (size_t)length >= sizeof(mail->text))
		trace_mail_send(mail, n);
	if (mail->used == 0) {
		mail->since_us = clock_monotonic_us();
		mail->used = strlen(MAIL_KIND);
		memcpy(mail->text, MAIL_KIND, mail->used);
	}
	memcpy(mail->text + mail->used, line, (size_t)length);
	mail->used += (size_t)length;
}

void trace_mail_send(struct trace_mail *mail, struct notifier *n)
{
	if (mail->used > 0)
		(void)send_message(n, mail->text, mail->used);
	mail->used = 0;
}

int64_t trace_mail_due_us(const struct trace_mail *mail)
{
	return mail->used == 0 ? INT64_MAX : mail->since_us + MAIL_WAIT_US;
}

bool notice_trace(struct notice *notice, char run_id[IDENT_UUID_SIZE], char part[TRACE_PART_BYTES])
{
	char *end = strchr(notice->text, '\n');
	char *space = strchr(notice->text, ' ');
	bool good;

	if (end == NULL || space == NULL || space > end)
		return false;
	*end++ = '\0';
	*space++ = '\0';
	good = ident_is_uuid(notice->text) && trace_part_ok(space) &&
	       str_copy(part, TRACE_PART_BYTES, space) == 0 &&
	       str_copy(run_id, IDENT_UUID_SIZE, notice->text) == 0;
	/* behind a fault nothing is believed */
	memmove(notice->text, good ? end : "", good ? strlen(end) + 1 : 1);
	return good;
}

int notify_listen(const char *path, struct err *e)
{
	return fd_unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 0660, LISTEN_BACKLOG, e);
}

int notify_receive(int fd, struct notice *out, struct err *e)
{
	char message[TRACE_MAIL_BYTES + 1];
	size_t fd_count;
	ssize_t got = fd_receive(fd, message, sizeof(message) - 1, NULL, 0, &fd_count, e);
	char *id;
	char *hint;

	if (got < 0 && e->code == ERR_UNAVAILABLE) {
		err_clear(e);
		return 0;
	}
	if (got <= 0)
		return -1;
	message[got] = '\0';
	id = strchr(message, ' ');
	hint = id == NULL ? NULL : strchr(id + 1, ' ');
	if (strlen(message) != (size_t)got)
		return err_set(e, ERR_PROTOCOL, 0, "a notice is malformed");
	if (str_starts(message, MAIL_KIND)) {
		memset(out, 0, offsetof(struct notice, text));
		out->hint = NOTICE_TRACE;
		memcpy(out->text, message + strlen(MAIL_KIND), (size_t)got + 1 - strlen(MAIL_KIND));
		return 1;
	}
	out->text[0] = '\0';
	if (id == NULL || hint == NULL || hint[1] == '\0' || hint[2] != '\0')
		return err_set(e, ERR_PROTOCOL, 0, "a notice is malformed");
	*id++ = '\0';
	*hint++ = '\0';
	if (str_copy(out->kind, sizeof(out->kind), message) != 0 || !ident_is_uuid(id) ||
	    strchr("qcroe", *hint) == NULL)
		return err_set(e, ERR_PROTOCOL, 0, "a notice is malformed");
	memcpy(out->id, id, sizeof(out->id));
	out->hint = (enum notice_hint) * hint;
	return 1;
}
