/* What makes logs, artifacts and rows end; see retention.h. */
#include "runners/supervisor/retention.h"

#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include "runners/core/spool.h"
#include "runners/core/upload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define RETENTION_MAX  50
#define STRAY_AGE_SEC  3600
#define UPLOAD_AGE_SEC 120
#define STRAYS_TURN    32 /* folders between two questions whether to stop */

struct retention_work {
	const struct policy *policy;
	char ids[RETENTION_MAX][IDENT_UUID_SIZE];
	char tenants[RETENTION_MAX][65];
	char users[RETENTION_MAX][65];
	int64_t bytes[RETENTION_MAX];
	size_t count;
};

/* Logs and artifacts whose time is over: the rows first, then the files. */
static int files_body(struct store *db, void *arg, struct err *e)
{
	struct retention_work *w = arg;
	struct store_value in[] = {SV_I64(w->policy->runs.artifact_ttl_hours * 3600),
				   SV_I64(RETENTION_MAX)};
	int got;

	w->count = 0;
	if (store_query(db, STMT_ARTIFACT_EXPIRED, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && w->count < RETENTION_MAX) {
		size_t i = w->count;

		if (str_copy(w->ids[i], IDENT_UUID_SIZE, store_text(db, 0)) != 0 ||
		    str_copy(w->tenants[i], 65, store_text(db, 1)) != 0 ||
		    str_copy(w->users[i], 65, store_text(db, 2)) != 0)
			continue;
		w->bytes[w->count++] = store_i64(db, 3);
	}
	store_done(db);
	for (size_t i = 0; got >= 0 && i < w->count; i++) {
		struct store_value id[] = {SV_TEXT(w->ids[i])};
		struct store_value less[] = {SV_I64(w->bytes[i]), SV_I64(w->bytes[i]),
					     SV_TEXT(w->tenants[i]), SV_TEXT(w->users[i])};

		if (store_exec(db, STMT_ARTIFACT_DELETE, id, 1, NULL, e) != 0 ||
		    store_exec(db, STMT_RUN_FILES_GONE, id, 1, NULL, e) != 0 ||
		    store_exec(db, STMT_USAGE_SUBTRACT, less, ARRAY_LEN(less), NULL, e) != 0)
			got = -1;
	}
	return got < 0 ? -1 : 0;
}

static int rows_body(struct store *db, void *arg, struct err *e)
{
	struct retention_work *w = arg;
	struct store_value in[] = {SV_I64(w->policy->runs.row_ttl_days * 86400),
				   SV_I64(RETENTION_MAX)};
	int got;

	w->count = 0;
	if (store_query(db, STMT_RUN_EXPIRED_ROWS, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && w->count < RETENTION_MAX)
		if (str_copy(w->ids[w->count], IDENT_UUID_SIZE, store_text(db, 0)) == 0)
			w->count++;
	store_done(db);
	for (size_t i = 0; got >= 0 && i < w->count; i++) {
		struct store_value id[] = {SV_TEXT(w->ids[i])};

		if (store_exec(db, STMT_ARTIFACT_DELETE, id, 1, NULL, e) != 0 ||
		    store_exec(db, STMT_RUN_TRACE_DELETE, id, 1, NULL, e) != 0 ||
		    store_exec(db, STMT_RUN_DELETE, id, 1, NULL, e) != 0)
			got = -1;
	}
	return got < 0 ? -1 : 0;
}

/* Rows that nothing else names: operations that have ended, sandboxes that were deleted. */
struct plain_work {
	struct retention_work *w;
	enum statement find;
	enum statement remove;
};

static int plain_body(struct store *db, void *arg, struct err *e)
{
	struct plain_work *p = arg;
	struct retention_work *w = p->w;
	struct store_value in[] = {SV_I64(w->policy->runs.row_ttl_days * 86400),
				   SV_I64(RETENTION_MAX)};
	int got;

	w->count = 0;
	if (store_query(db, p->find, in, ARRAY_LEN(in), e) != 0)
		return -1;
	while ((got = store_next(db, e)) == 1 && w->count < RETENTION_MAX)
		if (str_copy(w->ids[w->count], IDENT_UUID_SIZE, store_text(db, 0)) == 0)
			w->count++;
	store_done(db);
	for (size_t i = 0; got >= 0 && i < w->count; i++) {
		struct store_value id[] = {SV_TEXT(w->ids[i])};

		if (store_exec(db, p->remove, id, 1, NULL, e) != 0)
			got = -1;
	}
	return got < 0 ? -1 : 0;
}

static int remove_plain(struct store *db, struct retention_work *w, enum statement find,
			enum statement remove, struct err *e)
{
	struct plain_work p = {.w = w, .find = find, .remove = remove};

	do {
		if (store_retry(db, plain_body, &p, e) != 0)
			return -1;
	} while (w->count == RETENTION_MAX);
	return 0;
}

int retention_sweep(struct store *db, const struct policy *policy, retention_gone *gone, void *arg,
		    struct err *e)
{
	scope_free struct retention_work *w = mem_zalloc(1, sizeof(*w));

	if (w == NULL)
		return err_set(e, ERR_NOMEM, 0, "retention");
	w->policy = policy;
	do {
		if (store_retry(db, files_body, w, e) != 0)
			return -1;
		for (size_t i = 0; i < w->count; i++)
			gone(w->ids[i], arg);
	} while (w->count == RETENTION_MAX);
	do {
		if (store_retry(db, rows_body, w, e) != 0)
			return -1;
		for (size_t i = 0; i < w->count; i++)
			gone(w->ids[i], arg);
	} while (w->count == RETENTION_MAX);
	if (remove_plain(db, w, STMT_OPERATION_EXPIRED, STMT_OPERATION_DELETE, e) != 0)
		return -1;
	if (remove_plain(db, w, STMT_SANDBOX_EXPIRED_ROWS, STMT_SANDBOX_DELETE, e) != 0)
		return -1;
	return remove_plain(db, w, STMT_SESSION_EXPIRED_ROWS, STMT_SESSION_DELETE, e);
}

struct strays {
	struct store *db;
	const struct policy *policy;
	bool (*stopped)(void *arg);
	void *arg;
	time_t age_sec;
	unsigned int judged;
	bool stop;
	size_t count;
};

/* Removes the entry, which is old, when the statement finds no row for its id. */
static int judge_stray(struct strays *s, const char *kind, enum statement alive, const char *id,
		       struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got = store_query_row(s->db, alive, in, 1, e);

	store_done(s->db);
	if (++s->judged % STRAYS_TURN == 0 && s->stopped(s->arg))
		s->stop = true;
	if (got != 0)
		return got < 0 ? -1 : 0;
	s->count++;
	return spool_remove(s->policy->paths.data, kind, id, e);
}

static int sweep_folder(struct strays *s, const char *kind, enum statement alive, const char *path,
			struct err *e)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	if (dir == NULL)
		return errno == ENOENT ? 0 : err_set(e, ERR_IO, errno, "open %s", path);
	while (e->code == ERR_NONE && !s->stop && (entry = readdir(dir)) != NULL) {
		struct stat info;

		if (!ident_is_uuid(entry->d_name) ||
		    fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
		    info.st_mtime > time(NULL) - s->age_sec)
			continue;
		if (judge_stray(s, kind, alive, entry->d_name, e) != 0)
			break;
	}
	(void)closedir(dir);
	return e->code == ERR_NONE ? 0 : -1;
}

static int sweep_kind(struct strays *s, const char *kind, enum statement alive, struct err *e)
{
	for (unsigned int i = 0; i < 256 && !s->stop; i++) {
		char path[SPOOL_PATH_BYTES];

		(void)snprintf(path, sizeof(path), "%s/%s/%02x", s->policy->paths.data, kind, i);
		if (sweep_folder(s, kind, alive, path, e) != 0)
			return -1;
	}
	return 0;
}

int retention_uploads(struct store *db, const struct policy *policy, bool (*stopped)(void *arg),
		      void *arg, size_t *out_count, struct err *e)
{
	struct strays s = {
	    .db = db, .policy = policy, .stopped = stopped, .arg = arg, .age_sec = UPLOAD_AGE_SEC};
	int result = sweep_kind(&s, UPLOAD_KIND, STMT_OPERATION_LIVES, e);

	*out_count = s.count;
	return result;
}

int retention_strays(struct store *db, const struct policy *policy, bool (*stopped)(void *arg),
		     void *arg, size_t *out_count, struct err *e)
{
	struct strays s = {
	    .db = db, .policy = policy, .stopped = stopped, .arg = arg, .age_sec = STRAY_AGE_SEC};
	int result = 0;

	if (sweep_kind(&s, "staging", STMT_RUN_JOB_EXISTS, e) != 0 ||
	    sweep_kind(&s, "spool", STMT_RUN_EXISTS, e) != 0 ||
	    sweep_kind(&s, "artifacts", STMT_RUN_EXISTS, e) != 0)
		result = -1;
	*out_count = s.count;
	return result;
}
