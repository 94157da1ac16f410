/*
 * All artifacts of a run as one tar.gz: GET /runs/{id}/artifacts.tar.gz, behind a worker that has
 * judged the caller. libarchive writes in a thread of its own, into a pipe; the loop moves what
 * comes out of it to the connection, in chunks of HTTP/1.1, so an end that is none (a file that
 * cannot be read, this program's death) is seen by the client. When the client is slow the pipe is
 * full and the thread waits; when it leaves the pipe breaks and the thread ends.
 */
#include "runners/gate/archive.h"

#include "runners/base/fdio.h"
#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/spool.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define PREFIX       "/internal/archive/"
#define AT_ONCE      8
#define PIECE_BYTES  32768U
#define HEADER_BYTES 1024U
#define NAMES_BYTES  (64U << 20)
#define LEVEL        "3"

struct artifact {
	uint32_t ordinal;
	uint64_t size;
	int64_t mtime;
	size_t name_at; /* in job->names */
	size_t name_length;
};

/* The thread's; freed by whoever lets go last. */
struct job {
	const struct policy *policy;
	char run[IDENT_UUID_SIZE];
	int out; /* the pipe's end that is written */
	struct artifact *artifacts;
	size_t count;
	struct buf names;
	atomic_bool failed;
	atomic_int holders;
};

struct archive_request {
	struct gate *gate;
	struct lws *wsi;
	struct job *job;
	int in; /* the pipe's end that is read; -1: none */
	ev_io watcher;
	bool watching;
	bool header_sent;
	bool busy;
	bool ended;
};

static atomic_int running;

static struct gate *gate_of(struct lws *wsi)
{
	return lws_context_user(lws_get_context(wsi));
}

static void let_go(struct job *job)
{
	if (atomic_fetch_sub(&job->holders, 1) != 1)
		return;
	mem_free(job->artifacts);
	buf_release(&job->names);
	mem_free(job);
}

/* --- the thread ------------------------------------------------------------------------------ */

static int add_artifact(struct job *job, const struct store *db, size_t *room, struct err *e)
{
	struct artifact *a;
	const char *name;

	if (job->count == *room) {
		size_t more = *room == 0 ? 64 : *room * 2;
		void *grown = mem_resize(job->artifacts, more, sizeof(*job->artifacts));

		if (grown == NULL)
			return err_set(e, ERR_NOMEM, 0, "artifacts");
		job->artifacts = grown;
		*room = more;
	}
	a = &job->artifacts[job->count++];
	a->ordinal = (uint32_t)store_i64(db, 0);
	name = store_bytes(db, 1, &a->name_length);
	a->name_at = job->names.len;
	buf_add(&job->names, name, a->name_length);
	buf_add(&job->names, "", 1);
	a->size = (uint64_t)store_i64(db, 2);
	a->mtime = store_i64(db, 3);
	return buf_ok(&job->names) ? 0 : err_set(e, buf_error(&job->names), 0, "artifacts");
}

/* All rows at once, so that no connection to the database waits for a client. */
static int read_list(struct job *job, struct err *e)
{
	struct store_options options = {.socket = job->policy->database.socket,
					.database = job->policy->database.name};
	struct store_value in[] = {SV_TEXT(job->run)};
	struct store *db = NULL;
	size_t room = 0;
	int got;

	if (store_open(&options, &db, e) != 0)
		return -1;
	got = store_query(db, STMT_ARTIFACT_LIST, in, 1, e);
	while (got == 0 && (got = store_next(db, e)) == 1)
		got = add_artifact(job, db, &room, e);
	store_done(db);
	store_close(db);
	return got < 0 ? -1 : 0;
}

static int archive_failed(struct archive *a, struct err *e)
{
	const char *why = archive_error_string(a);

	return err_set(e, ERR_IO, archive_errno(a), "%s", why == NULL ? "archive" : why);
}

static int write_bytes(struct archive *a, int fd, uint64_t size, struct err *e)
{
	char block[PIECE_BYTES];
	uint64_t left = size;

	while (left > 0) {
		size_t part = left < sizeof(block) ? (size_t)left : sizeof(block);

		if (fd_read_full(fd, block, part, e) != 0)
			return -1; /* it is shorter than its row says: retention, or a fault */
		if (archive_write_data(a, block, part) != (la_ssize_t)part)
			return archive_failed(a, e);
		left -= part;
	}
	return 0;
}

static int write_one(struct archive *a, const struct job *job, int folder,
		     const struct artifact *artifact, struct err *e)
{
	struct archive_entry *entry = archive_entry_new();
	scope_close int fd = -1;
	char file[16];
	int result = 0;

	(void)snprintf(file, sizeof(file), "%u", artifact->ordinal);
	fd = openat(folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || entry == NULL) {
		archive_entry_free(entry);
		return err_set(e, ERR_IO, errno, "open an artifact");
	}
	archive_entry_set_pathname(entry, job->names.data + artifact->name_at);
	archive_entry_set_size(entry, (la_int64_t)artifact->size);
	archive_entry_set_mtime(entry, (time_t)artifact->mtime, 0);
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 0644);
	/* a warning is about a name's alphabet: it goes in as it is */
	if (archive_write_header(a, entry) < ARCHIVE_WARN)
		result = archive_failed(a, e);
	archive_entry_free(entry);
	return result == 0 ? write_bytes(a, fd, artifact->size, e) : -1;
}

static int open_folder(const struct job *job, int *out, struct err *e)
{
	char path[SPOOL_PATH_BYTES];

	*out = -1;
	if (job->count == 0)
		return 0;
	if (spool_folder(path, job->policy->paths.data, "artifacts", job->run, e) != 0)
		return -1;
	*out = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return *out < 0 ? err_set(e, ERR_IO, errno, "open the artifacts of a run") : 0;
}

static int write_all(struct job *job, struct archive *a, struct err *e)
{
	scope_close int folder = -1;

	if (read_list(job, e) != 0 || open_folder(job, &folder, e) != 0)
		return -1;
	/* names are any bytes, and stay so: what is no ASCII is marked as binary by itself */
	if (archive_write_set_format_pax_restricted(a) != ARCHIVE_OK ||
	    archive_write_add_filter_gzip(a) != ARCHIVE_OK ||
	    archive_write_set_filter_option(a, "gzip", "compression-level", LEVEL) < ARCHIVE_WARN ||
	    archive_write_set_bytes_in_last_block(a, 1) != ARCHIVE_OK ||
	    archive_write_open_fd(a, job->out) != ARCHIVE_OK)
		return archive_failed(a, e);
	for (size_t i = 0; i < job->count; i++)
		if (write_one(a, job, folder, &job->artifacts[i], e) != 0)
			return -1;
	return archive_write_close(a) == ARCHIVE_OK ? 0 : archive_failed(a, e);
}

static void *run_job(void *arg)
{
	struct job *job = arg;
	struct archive *a = archive_write_new();
	struct err e = ERR_INIT;

	if (a == NULL)
		(void)err_set(&e, ERR_NOMEM, 0, "archive");
	if (a == NULL || write_all(job, a, &e) != 0) {
		atomic_store(&job->failed, true);
		if (e.sys != EPIPE) /* the client left */
			log_err(LOG_ERROR, "archive", &e, "run=%s", job->run);
	}
	(void)archive_write_free(a);
	(void)close(job->out);
	(void)atomic_fetch_sub(&running, 1);
	let_go(job);
	return NULL;
}

static int start_job(struct archive_request *r, const char *run, struct err *e)
{
	struct job *job = mem_zalloc(1, sizeof(*job));
	pthread_attr_t detached;
	pthread_t thread;
	int ends[2];
	int failed;

	if (job == NULL)
		return err_set(e, ERR_NOMEM, 0, "archive");
	if (pipe2(ends, O_CLOEXEC) != 0) {
		mem_free(job);
		return err_set(e, ERR_IO, errno, "pipe");
	}
	job->policy = r->gate->policy;
	job->out = ends[1];
	buf_init(&job->names, NAMES_BYTES);
	atomic_init(&job->failed, false);
	atomic_init(&job->holders, 2);
	memcpy(job->run, run, sizeof(job->run));
	r->in = ends[0];
	r->job = job;
	failed = pthread_attr_init(&detached);
	if (failed == 0) {
		(void)pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
		(void)atomic_fetch_add(&running, 1);
		failed = pthread_create(&thread, &detached, run_job, job);
		(void)pthread_attr_destroy(&detached);
		if (failed != 0)
			(void)atomic_fetch_sub(&running, 1);
	}
	if (failed != 0) {
		(void)close(ends[1]);
		let_go(job); /* the thread's part */
		return err_set(e, ERR_UNAVAILABLE, failed, "no thread for an archive");
	}
	return fd_set_nonblock(r->in, true, e);
}

/* --- the loop -------------------------------------------------------------------------------- */

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
	struct archive_request *r = watcher->data;

	(void)events;
	ev_io_stop(loop, watcher);
	r->watching = false;
	(void)lws_callback_on_writable(r->wsi);
}

static void leave(struct archive_request *r)
{
	if (r->watching)
		ev_io_stop(r->gate->loop, &r->watcher);
	r->watching = false;
	fd_close_at(&r->in);
	if (r->job != NULL)
		let_go(r->job);
	r->job = NULL;
}

static int begin(struct lws *wsi, struct archive_request *r, const char *path)
{
	const char *rest = str_after(path, PREFIX);
	const char *run = rest == NULL ? NULL : strrchr(rest, '/');
	struct err e = ERR_INIT;

	memset(r, 0, sizeof(*r));
	r->gate = gate_of(wsi);
	r->wsi = wsi;
	r->in = -1;
	if (run == NULL || !ident_is_uuid(run + 1))
		return -1;
	r->busy = atomic_load(&running) >= AT_ONCE;
	if (!r->busy && start_job(r, run + 1, &e) != 0) {
		log_err(LOG_ERROR, "archive", &e, "run=%s", run + 1);
		leave(r);
		return -1;
	}
	/* a compressed archive may take its time */
	lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
	(void)lws_callback_on_writable(wsi);
	return 0;
}

static int send_header(struct lws *wsi, struct archive_request *r)
{
	unsigned char room[LWS_PRE + HEADER_BYTES];
	unsigned char *start = room + LWS_PRE;
	unsigned char *p = start;
	unsigned char *end = room + sizeof(room) - 1;
	static const char chunked[] = "chunked";

	r->header_sent = true;
	if (lws_add_http_common_headers(wsi, r->busy ? 429 : HTTP_STATUS_OK, "application/gzip",
					r->busy ? 0 : LWS_ILLEGAL_HTTP_CONTENT_LEN, &p, end) != 0 ||
	    (!r->busy && lws_add_http_header_by_name(
			     wsi, (const unsigned char *)"transfer-encoding:",
			     (const unsigned char *)chunked, (int)strlen(chunked), &p, end) != 0) ||
	    lws_finalize_http_header(wsi, &p, end) != 0 ||
	    lws_write(wsi, start, (size_t)(p - start), LWS_WRITE_HTTP_HEADERS) < 0)
		return -1;
	if (r->busy)
		return lws_http_transaction_completed(wsi) != 0 ? -1 : 0;
	(void)lws_callback_on_writable(wsi);
	return 0;
}

/* The last chunk; without it the client knows that something is missing. */
static int send_end(struct lws *wsi, struct archive_request *r)
{
	unsigned char room[LWS_PRE + 8];

	r->ended = true;
	if (atomic_load(&r->job->failed))
		return -1;
	memcpy(room + LWS_PRE, "0\r\n\r\n", 5);
	if (lws_write(wsi, room + LWS_PRE, 5, LWS_WRITE_HTTP) < 0)
		return -1;
	return -1; /* nothing follows on this connection */
}

static int send_piece(struct lws *wsi, struct archive_request *r)
{
	unsigned char room[LWS_PRE + 16 + PIECE_BYTES + 2];
	unsigned char *data = room + LWS_PRE + 16;
	char size[16];
	ssize_t got;
	int length;

	do
		got = read(r->in, data, PIECE_BYTES);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN) {
		ev_io_init(&r->watcher, on_readable, r->in, EV_READ);
		r->watcher.data = r;
		ev_io_start(r->gate->loop, &r->watcher);
		r->watching = true;
		return 0;
	}
	if (got < 0)
		return -1;
	if (got == 0)
		return send_end(wsi, r);
	length = snprintf(size, sizeof(size), "%zx\r\n", (size_t)got);
	memcpy(data - length, size, (size_t)length);
	memcpy(data + got, "\r\n", 2);
	if (lws_write(wsi, data - length, (size_t)(length + got + 2), LWS_WRITE_HTTP) < 0)
		return -1;
	(void)lws_callback_on_writable(wsi);
	return 0;
}

size_t archive_request_size(void)
{
	return sizeof(struct archive_request);
}

int archive_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		     size_t len)
{
	struct archive_request *r = user;

	switch ((int)reason) {
	case LWS_CALLBACK_HTTP:
		return begin(wsi, r, in);
	case LWS_CALLBACK_HTTP_WRITEABLE:
		if (r == NULL || r->gate == NULL || r->ended || r->watching)
			return 0;
		return r->header_sent ? send_piece(wsi, r) : send_header(wsi, r);
	case LWS_CALLBACK_CLOSED_HTTP:
	case LWS_CALLBACK_HTTP_DROP_PROTOCOL:
		if (r != NULL && r->gate != NULL)
			leave(r);
		return 0;
	case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
	case LWS_CALLBACK_FILTER_HTTP_CONNECTION:
	case LWS_CALLBACK_HTTP_BIND_PROTOCOL:
		return 0;
	default:
		return lws_callback_http_dummy(wsi, reason, user, in, len);
	}
}
