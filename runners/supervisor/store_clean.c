#include "runners/supervisor/store_clean.h"

#include "runners/base/fdio.h"
#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#define BATCH          32 /* the parameters of RUN_WATCH */
#define TREE_DEPTH     16
#define YOUNG_LEAST_MS 60000
#define NAME_BYTES     256
#define PLACE_BYTES    64

enum place { PLACE_STAGING, PLACE_SPOOL, PLACE_ARTIFACTS, PLACE__MAX };

static const char *const places[PLACE__MAX] = {"staging", "spool", "artifacts"};

struct scan {
	const struct store_clean *want;
	json_t *items;
	time_t now;
	time_t young_sec; /* what is younger is not judged */
	json_int_t manifests;
	json_int_t candidates;
	json_int_t blocked;
	bool truncated;
};

/* One folder that is walked, and its name below <data>. */
struct folder {
	int fd;
	char path[PLACE_BYTES];
};

struct candidate {
	const struct folder *folder;
	const char *name;
	const char *reason;
	bool live;
};

const char *store_action(const char *gc_reason)
{
	static const char *const actions[][2] = {
	    {"planning_only_run_manifest", "remove_run_manifest"},
	    {"inactive_run", "remove_run_directory"},
	    {"legacy_run_directory", "remove_legacy_run_directory"},
	};

	for (size_t i = 0; i < ARRAY_LEN(actions); i++)
		if (str_equal(actions[i][0], gc_reason))
			return actions[i][1];
	return NULL;
}

/* --- removal --------------------------------------------------------------------------------- */

static int remove_tree(int parent, const char *name, unsigned int depth);

/* Empties an open folder; its descriptor is closed. */
static int empty_folder(int fd, unsigned int depth) // NOLINT(misc-no-recursion)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	int result = 0;

	if (dir == NULL) {
		(void)close(fd);
		return -1;
	}
	while (result == 0 && (entry = readdir(dir)) != NULL) {
		if (str_equal(entry->d_name, ".") || str_equal(entry->d_name, ".."))
			continue;
		result = remove_tree(dirfd(dir), entry->d_name, depth + 1);
		if (result < 0 && errno == ENOENT)
			result = 0;
	}
	if (closedir(dir) != 0 && result == 0)
		result = -1;
	return result;
}

/* 0, or -1 with errno. */
static int remove_tree(int parent, const char *name,
		       unsigned int depth) // NOLINT(misc-no-recursion)
{
	int fd;

	if (depth > TREE_DEPTH) {
		errno = ELOOP;
		return -1;
	}
	if (unlinkat(parent, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || empty_folder(fd, depth) != 0)
		return -1;
	return unlinkat(parent, name, AT_REMOVEDIR);
}

static void remove_candidate(const struct candidate *c, const char **status, const char **error)
{
	*error = NULL;
	if (remove_tree(c->folder->fd, c->name, 0) == 0) {
		*status = "deleted";
	} else if (errno == ENOENT) {
		*status = "already_absent";
	} else {
		*status = "error";
		*error = errno == EACCES || errno == EPERM || errno == EROFS ? "permission_denied"
									     : "io_error";
	}
}

/* --- candidates ------------------------------------------------------------------------------ */

static bool lists(const json_t *list, const char *text)
{
	if (list == NULL)
		return true;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *one = json_text(json_array_get(list, i));

		if (one != NULL && str_equal(one, text))
			return true;
	}
	return false;
}

/* A name that is no text is shown with a mark for each bad byte, as artifacts are. */
static json_t *shown(const char *folder, const char *name)
{
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, NAME_BYTES * 4 + PLACE_BYTES);
	if (folder != NULL)
		buf_addf(&text, "%s/", folder);
	if (str_utf8_valid(name, strlen(name)))
		buf_add_str(&text, name);
	else
		for (const char *at = name; *at != '\0'; at++)
			if ((unsigned char)*at < 0x80)
				buf_add_char(&text, *at);
			else
				buf_addf(&text, "\\x%02X", (unsigned int)(unsigned char)*at);
	return buf_ok(&text) ? json_string(buf_text(&text)) : NULL;
}

static json_t *manifest_of(const struct candidate *c, bool *out_present)
{
	char path[NAME_BYTES + PLACE_BYTES];
	struct stat info;

	*out_present = false;
	if (str_equal(c->reason, "planning_only_run_manifest")) {
		*out_present = true;
		return shown(c->folder->path, c->name);
	}
	if (!str_starts(c->folder->path, "spool/"))
		return json_null();
	(void)snprintf(path, sizeof(path), "%s/log", c->name);
	*out_present = fstatat(c->folder->fd, path, &info, AT_SYMLINK_NOFOLLOW) == 0;
	return shown(c->folder->path, path);
}

static int take_candidate(struct scan *s, const struct candidate *c, struct err *e)
{
	const char *status = "planned";
	const char *error = NULL;
	bool present;
	json_t *manifest;

	s->candidates++;
	if (!lists(s->want->action_types, store_action(c->reason)) ||
	    !lists(s->want->run_ids, c->name))
		return 0;
	s->blocked += c->live ? 1 : 0;
	if (json_array_size(s->items) == STORE_ITEMS_MAX) {
		s->truncated = true;
		return 0;
	}
	manifest = manifest_of(c, &present);
	if (s->want->remove && !c->live)
		remove_candidate(c, &status, &error);
	if (json_array_append_new(
		s->items, json_pack("{s:o, s:s, s:o, s:o, s:b, s:b, s:s?, s:s?}", "run_id",
				    shown(NULL, c->name), "gc_reason", c->reason, "gc_path",
				    shown(c->folder->path, c->name), "run_manifest_path", manifest,
				    "run_manifest_present", present, "live", c->live, "status",
				    c->live ? NULL : status, "error", error)) != 0)
		return err_set(e, ERR_NOMEM, 0, "store");
	return 0;
}

static bool is_old(const struct scan *s, const struct folder *f, const char *name, time_t age)
{
	struct stat info;

	return fstatat(f->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
	       info.st_mtime <= s->now - age;
}

/* 1, 0 or -1. */
static int finds(struct store *db, enum statement which, const char *id, struct err *e)
{
	struct store_value in[] = {SV_TEXT(id)};
	int got = store_query_row(db, which, in, 1, e);

	store_done(db);
	return got;
}

/* A folder of a run whose row was not among those that are known: asked once more by itself. */
static int judge_run(struct scan *s, const struct folder *f, enum place place, const char *id,
		     struct err *e)
{
	struct candidate c = {.folder = f, .name = id};
	int row = finds(s->want->db, place == PLACE_STAGING ? STMT_RUN_JOB_EXISTS : STMT_RUN_EXISTS,
			id, e);
	int job = row == 0 ? finds(s->want->db, STMT_JOB_OF_OBJECT, id, e) : 0;

	if (row < 0 || job < 0)
		return -1;
	/* what is staged for any job is explained by it */
	if (row > 0 || (place == PLACE_STAGING && job > 0))
		return 0;
	c.reason = place == PLACE_STAGING ? "planning_only_run_manifest" : "inactive_run";
	c.live = job > 0;
	return take_candidate(s, &c, e);
}

/* --- the walk -------------------------------------------------------------------------------- */

struct batch {
	char ids[BATCH][IDENT_UUID_SIZE];
	bool known[BATCH];
	size_t count;
};

static int look_up(struct scan *s, struct batch *b, struct err *e)
{
	struct store_value in[BATCH];
	int got;

	memset(b->known, 0, sizeof(b->known));
	for (size_t i = 0; i < BATCH; i++)
		in[i] = SV_TEXT(b->ids[i < b->count ? i : 0]);
	if (store_query(s->want->db, STMT_RUN_WATCH, in, BATCH, e) != 0)
		return -1;
	while ((got = store_next(s->want->db, e)) == 1)
		for (size_t i = 0; i < b->count; i++)
			if (str_equal(b->ids[i], store_text(s->want->db, 0)))
				b->known[i] = true;
	store_done(s->want->db);
	return got;
}

static int flush(struct scan *s, const struct folder *f, enum place place, struct batch *b,
		 struct err *e)
{
	size_t count = b->count;

	/* a staged folder of a run that is known may still be one that nobody waits for */
	if (count > 0 && place != PLACE_STAGING && look_up(s, b, e) != 0)
		return -1;
	b->count = 0;
	for (size_t i = 0; i < count; i++)
		if (!(place != PLACE_STAGING && b->known[i]) &&
		    judge_run(s, f, place, b->ids[i], e) != 0)
			return -1;
	if (s->want->stopped != NULL && s->want->stopped(s->want->arg))
		return err_set(e, ERR_CONFLICT, 0, "stopped");
	return 0;
}

static int judge_legacy(struct scan *s, const struct folder *f, const char *name, struct err *e)
{
	struct candidate c = {.folder = f, .name = name, .reason = "legacy_run_directory"};

	return is_old(s, f, name, STORE_LEGACY_AGE_SEC) ? take_candidate(s, &c, e) : 0;
}

/* 1: opened, 0: there is none, -1. */
static int open_folder(int parent, const char *name, const char *below, struct folder *out,
		       struct err *e)
{
	out->fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (out->fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
			   ? 0
			   : err_set(e, ERR_IO, errno, "open %s", name);
	(void)snprintf(out->path, sizeof(out->path), "%s%s%s", below, below[0] == '\0' ? "" : "/",
		       name);
	return 1;
}

/* Calls each() for every entry; names with a dot in front are somebody's work in progress. */
static int walk(struct scan *s, const struct folder *f,
		int (*each)(struct scan *s, const struct folder *f, const char *name, void *arg,
			    struct err *e),
		void *arg, struct err *e)
{
	int copy = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	int result = 0;

	if (dir == NULL) {
		if (copy >= 0)
			(void)close(copy);
		return err_set(e, ERR_IO, errno, "read %s", f->path);
	}
	while (result == 0 && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			result = each(s, f, entry->d_name, arg, e);
	(void)closedir(dir);
	return result;
}

struct run_walk {
	enum place place;
	struct batch batch;
};

static int each_run(struct scan *s, const struct folder *f, const char *name, void *arg,
		    struct err *e)
{
	struct run_walk *w = arg;

	if (!ident_is_uuid(name))
		return judge_legacy(s, f, name, e);
	s->manifests++;
	if (!is_old(s, f, name, s->young_sec))
		return 0;
	(void)snprintf(w->batch.ids[w->batch.count++], IDENT_UUID_SIZE, "%.36s", name);
	return w->batch.count < BATCH ? 0 : flush(s, f, w->place, &w->batch, e);
}

static bool is_shard(const char *name)
{
	return strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2;
}

static int each_shard(struct scan *s, const struct folder *f, const char *name, void *arg,
		      struct err *e)
{
	struct run_walk w = {.place = *(const enum place *)arg};
	struct folder shard;
	int got;

	if (!is_shard(name))
		return judge_legacy(s, f, name, e);
	got = open_folder(f->fd, name, f->path, &shard, e);
	if (got <= 0)
		return got;
	got = walk(s, &shard, each_run, &w, e);
	if (got == 0)
		got = flush(s, &shard, w.place, &w.batch, e);
	(void)close(shard.fd);
	return got;
}

static int each_image(struct scan *s, const struct folder *f, const char *name, void *arg,
		      struct err *e)
{
	const struct policy *policy = s->want->policy;

	(void)arg;
	for (size_t i = 0; i < policy->images.count; i++)
		if (str_equal(policy->images.items[i].value, name))
			return 0;
	return judge_legacy(s, f, name, e);
}

static int scan_all(struct scan *s, struct err *e)
{
	scope_close int data =
	    open(s->want->policy->paths.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_PATH);
	struct folder f;
	int got = 0;

	if (data < 0)
		return err_set(e, ERR_IO, errno, "open the data folder");
	for (int i = 0; i < PLACE__MAX && got == 0; i++) {
		enum place place = (enum place)i;

		got = open_folder(data, places[i], "", &f, e);
		if (got <= 0)
			continue;
		got = walk(s, &f, each_shard, &place, e);
		(void)close(f.fd);
	}
	if (got != 0)
		return got;
	got = open_folder(data, "images", "", &f, e);
	if (got <= 0)
		return got;
	got = walk(s, &f, each_image, NULL, e);
	(void)close(f.fd);
	return got;
}

json_t *store_clean(const struct store_clean *want, struct err *e)
{
	scope_json json_t *items = json_array();
	struct scan s = {.want = want, .items = items, .now = time(NULL)};
	int64_t request_ms = want->policy->pool.request_timeout_ms;
	json_t *out;

	/* a worker may be at work on it for so long */
	s.young_sec =
	    (time_t)((request_ms > YOUNG_LEAST_MS ? request_ms : YOUNG_LEAST_MS) * 2 / 1000);
	if (scan_all(&s, e) != 0)
		return NULL;
	out = json_pack("{s:I, s:I, s:I, s:b, s:O}", "run_manifests", s.manifests, "gc_candidates",
			s.candidates, "blocked_live_matches", s.blocked, "truncated", s.truncated,
			"items", items);
	if (out == NULL)
		(void)err_set(e, ERR_NOMEM, 0, "store");
	return out;
}
