/* test_store_clean: what no row explains is found and removed, and nothing else is. */
#include "runners/base/fdio.h"
#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/supervisor/store_clean.h"
#include "tests/lib/apirig.h"

#include <fcntl.h>
#include <sys/stat.h>

#define NODE   "test-clean"
#define TENANT "t-clean"
#define MINUTE 60
#define DAY    86400

static struct api api;

static void place(const char *path, char out[512])
{
	(void)snprintf(out, 512, "%s/%s", test_dir(), path);
}

static bool there(const char *path)
{
	char whole[512];
	struct stat info;

	place(path, whole);
	return lstat(whole, &info) == 0;
}

static void age(const char *path, int64_t seconds)
{
	struct timespec times[2];
	char whole[512];

	place(path, whole);
	(void)clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= seconds;
	times[1] = times[0];
	CU_ASSERT_EQUAL(utimensat(AT_FDCWD, whole, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* A folder of that age with all above it, and a file in it. */
static void folder(const char *path, int64_t seconds)
{
	char whole[512];
	char file[600];
	struct err e = ERR_INIT;

	place(path, whole);
	for (char *at = whole + strlen(test_dir()) + 1; *at != '\0'; at++)
		if (*at == '/') {
			*at = '\0';
			(void)mkdir(whole, 0770);
			*at = '/';
		}
	CU_ASSERT_EQUAL(mkdir(whole, 0770), 0);
	(void)snprintf(file, sizeof(file), "%s/log", whole);
	CU_ASSERT_EQUAL(fd_replace_file(AT_FDCWD, file, "x", 1, 0640, &e), 0);
	age(path, seconds);
}

static char *new_id(void)
{
	static char ids[16][IDENT_UUID_SIZE];
	static unsigned int next;
	struct err e = ERR_INIT;
	char *id = ids[next++ % 16];

	CU_ASSERT_EQUAL_FATAL(ident_uuid(id, &e), 0);
	return id;
}

/* <place>/<2 hex>/<id> */
static char *path_of(const char *kind, const char *id)
{
	static char paths[16][128];
	static unsigned int next;
	char *path = paths[next++ % 16];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s/%s", kind, id + 34, id);
	return path;
}

static void make_run(const char *id, int64_t job)
{
	api_sql(
	    api.db,
	    "INSERT INTO run (id, face, tenant, user_id, key_id, node, job_id, request_id, "
	    "spec_version, runtime, policy_hash, trust_level, network_policy, phase, created_at) "
	    "VALUES ('%s', 'runs', '" TENANT "', 'u', 'k', '" NODE "', %lld, 'r', '1.0', 'x', "
	    "'h', 'standard', 'deny_all', 'queued', UTC_TIMESTAMP(6))",
	    id, (long long)job);
}

static int64_t make_job(const char *id)
{
	api_sql(
	    api.db,
	    "INSERT INTO job (kind, object_kind, object_id, tenant, user_id, node, state, spec, "
	    "request_id, created_at) VALUES ('run', 'run', '%s', '" TENANT "', 'u', '" NODE "', "
	    "'parked', '{}', 'r', UTC_TIMESTAMP(6))",
	    id);
	return api_number(api.db, "SELECT MAX(id) FROM job WHERE object_id = '%s'", id);
}

/* Empty stores and no rows. */
static void clean(void)
{
	static const char *const kinds[] = {"staging", "spool", "artifacts", "images"};
	char command[700];

	api_sql(api.db, "DELETE FROM job WHERE tenant = '" TENANT "'");
	api_sql(api.db, "DELETE FROM run WHERE tenant = '" TENANT "'");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		char whole[512];

		place(kinds[i], whole);
		(void)snprintf(command, sizeof(command), "%s.%d", whole, rand());
		(void)rename(whole, command);
		CU_ASSERT_EQUAL(mkdir(whole, 0770), 0);
	}
}

static json_t *look(bool remove, const char *types, const char *ids)
{
	scope_json json_t *type_list = types == NULL ? NULL : json_loads(types, 0, NULL);
	scope_json json_t *id_list = ids == NULL ? NULL : json_loads(ids, 0, NULL);
	struct store_clean want = {.policy = api.policy,
				   .db = api.db,
				   .remove = remove,
				   .action_types = type_list,
				   .run_ids = id_list};
	struct err e = ERR_INIT;
	json_t *found = store_clean(&want, &e);

	ASSERT_TEXT(e.text, "");
	CU_ASSERT_PTR_NOT_NULL_FATAL(found);
	return found;
}

/* The item with that path, NULL. */
static const json_t *item_of(const json_t *found, const char *path)
{
	const json_t *items = json_object_get(found, "items");

	for (size_t i = 0; i < json_array_size(items); i++)
		if (str_equal(json_text(json_object_get(json_array_get(items, i), "gc_path")),
			      path))
			return json_array_get(items, i);
	return NULL;
}

static const char *text_of(const json_t *item, const char *name)
{
	const char *text = json_text(json_object_get(item, name));

	return text == NULL ? "-" : text;
}

static void count_is(const json_t *found, const char *name, json_int_t want)
{
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(found, name)), want);
}

static void test_planned(void)
{
	char *staged = path_of("staging", new_id());
	char *spooled = path_of("spool", new_id());
	char *kept = path_of("artifacts", new_id());
	json_t *found;
	const json_t *item;

	clean();
	folder(staged, 5 * MINUTE);
	folder(spooled, 5 * MINUTE);
	folder(kept, 5 * MINUTE);
	found = look(false, NULL, NULL);
	count_is(found, "gc_candidates", 3);
	count_is(found, "run_manifests", 3);
	count_is(found, "blocked_live_matches", 0);
	item = item_of(found, staged);
	ASSERT_TEXT(text_of(item, "gc_reason"), "planning_only_run_manifest");
	ASSERT_TEXT(text_of(item, "status"), "planned");
	ASSERT_TEXT(text_of(item, "error"), "-");
	ASSERT_TEXT(text_of(item, "run_id"), staged + strlen("staging/xx/"));
	ASSERT_TEXT(text_of(item, "run_manifest_path"), staged);
	CU_ASSERT(json_is_true(json_object_get(item, "run_manifest_present")));
	item = item_of(found, spooled);
	ASSERT_TEXT(text_of(item, "gc_reason"), "inactive_run");
	CU_ASSERT(str_ends(text_of(item, "run_manifest_path"), "/log"));
	CU_ASSERT(json_is_true(json_object_get(item, "run_manifest_present")));
	item = item_of(found, kept);
	ASSERT_TEXT(text_of(item, "gc_reason"), "inactive_run");
	ASSERT_TEXT(text_of(item, "run_manifest_path"), "-");
	/* a plan changes nothing */
	CU_ASSERT(there(staged) && there(spooled) && there(kept));
	json_decref(found);
	found = look(true, NULL, NULL);
	ASSERT_TEXT(text_of(item_of(found, staged), "status"), "deleted");
	ASSERT_TEXT(text_of(item_of(found, spooled), "status"), "deleted");
	ASSERT_TEXT(text_of(item_of(found, kept), "status"), "deleted");
	CU_ASSERT(!there(staged) && !there(spooled) && !there(kept));
	json_decref(found);
	found = look(true, NULL, NULL);
	count_is(found, "gc_candidates", 0);
	json_decref(found);
}

static void test_explained(void)
{
	char *waiting = new_id();
	char *ended = new_id();
	char *operation = new_id();
	char *young[] = {path_of("staging", new_id()), path_of("spool", new_id())};
	json_t *found;

	clean();
	/* files that a run waits with, and those of an operation */
	make_run(waiting, make_job(waiting));
	folder(path_of("staging", waiting), DAY);
	(void)make_job(operation);
	folder(path_of("staging", operation), DAY);
	/* what runs have left, of any age */
	make_run(ended, 0);
	folder(path_of("spool", ended), 99 * DAY);
	folder(path_of("artifacts", ended), 99 * DAY);
	/* a request may be at work on these */
	folder(young[0], MINUTE);
	folder(young[1], MINUTE);
	found = look(true, NULL, NULL);
	count_is(found, "gc_candidates", 0);
	count_is(found, "run_manifests", 6);
	CU_ASSERT(there(path_of("staging", waiting)) && there(path_of("staging", operation)));
	CU_ASSERT(there(path_of("spool", ended)) && there(path_of("artifacts", ended)));
	CU_ASSERT(there(young[0]) && there(young[1]));
	json_decref(found);
	/* the run has ended, and its job is gone: what it waited with explains nothing */
	api_sql(api.db, "DELETE FROM job WHERE object_id = '%s'", waiting);
	found = look(false, NULL, NULL);
	count_is(found, "gc_candidates", 1);
	CU_ASSERT_PTR_NOT_NULL(item_of(found, path_of("staging", waiting)));
	json_decref(found);
}

static void test_live(void)
{
	char *id = new_id();
	json_t *found;

	clean();
	(void)make_job(id);
	folder(path_of("spool", id), DAY);
	found = look(true, NULL, NULL);
	count_is(found, "gc_candidates", 1);
	count_is(found, "blocked_live_matches", 1);
	CU_ASSERT(json_is_true(json_object_get(item_of(found, path_of("spool", id)), "live")));
	ASSERT_TEXT(text_of(item_of(found, path_of("spool", id)), "status"), "-");
	CU_ASSERT(there(path_of("spool", id)));
	json_decref(found);
}

static void test_legacy(void)
{
	json_t *found;

	clean();
	folder("spool/old", 2 * DAY);
	folder("spool/young", DAY / 2);
	folder("spool/ab/NOT-A-UUID", 2 * DAY);
	folder("spool/ab/.hidden", 2 * DAY);
	folder("staging/AB", 2 * DAY);
	folder("images/old-image", 2 * DAY);
	folder("images/host", 2 * DAY);
	folder("workspaces/old", 2 * DAY);
	folder("spool/bad\xff", 2 * DAY);
	found = look(false, NULL, NULL);
	count_is(found, "gc_candidates", 5);
	ASSERT_TEXT(text_of(item_of(found, "spool/old"), "gc_reason"), "legacy_run_directory");
	ASSERT_TEXT(text_of(item_of(found, "spool/old"), "run_id"), "old");
	CU_ASSERT_PTR_NOT_NULL(item_of(found, "spool/ab/NOT-A-UUID"));
	CU_ASSERT_PTR_NOT_NULL(item_of(found, "staging/AB"));
	CU_ASSERT_PTR_NOT_NULL(item_of(found, "images/old-image"));
	CU_ASSERT_PTR_NOT_NULL(item_of(found, "spool/bad\\xFF"));
	json_decref(found);
	json_decref(look(true, NULL, NULL));
	CU_ASSERT(!there("spool/old") && !there("spool/ab/NOT-A-UUID") && !there("staging/AB"));
	CU_ASSERT(!there("images/old-image") && !there("spool/bad\xff"));
	CU_ASSERT(there("spool/young") && there("spool/ab/.hidden") && there("images/host"));
	CU_ASSERT(there("workspaces/old"));
}

static void test_filters(void)
{
	char *one = new_id();
	char *two = new_id();
	char list[64];
	json_t *found;

	clean();
	folder(path_of("staging", one), DAY);
	folder(path_of("spool", one), DAY);
	folder(path_of("spool", two), DAY);
	folder("spool/old", 2 * DAY);
	found = look(true, "[]", NULL);
	count_is(found, "gc_candidates", 4);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(found, "items")), 0);
	json_decref(found);
	found = look(true, NULL, "[]");
	CU_ASSERT_EQUAL(json_array_size(json_object_get(found, "items")), 0);
	json_decref(found);
	found = look(true, "[\"remove_run_manifest\"]", NULL);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(found, "items")), 1);
	CU_ASSERT(!there(path_of("staging", one)) && there(path_of("spool", one)));
	json_decref(found);
	(void)snprintf(list, sizeof(list), "[\"%s\"]", two);
	found = look(true, "[\"remove_run_directory\", \"remove_legacy_run_directory\"]", list);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(found, "items")), 1);
	CU_ASSERT(!there(path_of("spool", two)) && there(path_of("spool", one)));
	json_decref(found);
	found = look(true, NULL, "[\"old\"]");
	CU_ASSERT(!there("spool/old") && there(path_of("spool", one)));
	json_decref(found);
}

static void test_links(void)
{
	char target[512];
	char link[512];
	char *id = new_id();
	char shard[16];

	clean();
	folder("elsewhere/folder", DAY);
	place("elsewhere/folder", target);
	(void)snprintf(shard, sizeof(shard), "spool/%s", id + 34);
	folder(shard, DAY);
	/* in place of a run's folder, in one, and of a shard */
	place(path_of("spool", id), link);
	CU_ASSERT_EQUAL(symlink(target, link), 0);
	age(path_of("spool", id), DAY);
	folder("spool/old", 2 * DAY);
	place("spool/old/link", link);
	CU_ASSERT_EQUAL(symlink(target, link), 0);
	age("spool/old", 2 * DAY);
	place("staging/ab", link);
	CU_ASSERT_EQUAL(symlink(target, link), 0);
	json_decref(look(true, NULL, NULL));
	CU_ASSERT(!there(path_of("spool", id)) && !there("spool/old"));
	CU_ASSERT(there("elsewhere/folder") && there("elsewhere/folder/log"));
}

static void test_refused(void)
{
	char path[200] = "spool/deep";
	json_t *found;

	clean();
	for (int i = 0; i < 20; i++)
		(void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%d", i);
	folder(path, 2 * DAY);
	age("spool/deep", 2 * DAY);
	found = look(true, NULL, NULL);
	ASSERT_TEXT(text_of(item_of(found, "spool/deep"), "status"), "error");
	ASSERT_TEXT(text_of(item_of(found, "spool/deep"), "error"), "io_error");
	CU_ASSERT(there("spool/deep"));
	json_decref(found);
}

static void test_many(void)
{
	json_t *found;

	clean();
	for (int i = 0; i < STORE_ITEMS_MAX + 5; i++) {
		char path[64];
		char whole[512];

		(void)snprintf(path, sizeof(path), "spool/ab/00000000-0000-7000-8000-%010dab", i);
		if (i == 0) {
			folder(path, DAY);
			continue;
		}
		place(path, whole);
		CU_ASSERT_EQUAL(mkdir(whole, 0770), 0);
		age(path, DAY);
	}
	found = look(false, NULL, NULL);
	count_is(found, "gc_candidates", STORE_ITEMS_MAX + 5);
	CU_ASSERT(json_is_true(json_object_get(found, "truncated")));
	CU_ASSERT_EQUAL(json_array_size(json_object_get(found, "items")), STORE_ITEMS_MAX);
	json_decref(found);
	/* what was not shown is not removed */
	json_decref(look(true, NULL, NULL));
	found = look(false, NULL, NULL);
	count_is(found, "gc_candidates", 5);
	CU_ASSERT(json_is_false(json_object_get(found, "truncated")));
	json_decref(found);
}

static bool always(void *arg)
{
	(void)arg;
	return true;
}

static void test_stopped(void)
{
	struct store_clean want = {
	    .policy = api.policy, .db = api.db, .remove = true, .stopped = always};
	struct err e = ERR_INIT;

	clean();
	folder(path_of("spool", new_id()), DAY);
	CU_ASSERT_PTR_NULL(store_clean(&want, &e));
	CU_ASSERT_EQUAL(e.code, ERR_CONFLICT);
}

static void test_without_stores(void)
{
	char whole[512];
	char other[600];
	json_t *found;

	clean();
	place("staging", whole);
	(void)snprintf(other, sizeof(other), "%s.gone", whole);
	CU_ASSERT_EQUAL(rename(whole, other), 0);
	found = look(true, NULL, NULL);
	count_is(found, "gc_candidates", 0);
	json_decref(found);
}

static void test_open(void)
{
	api_open(&api, NODE);
	api_forget(api.db, TENANT);
}

static void test_close(void)
{
	api_forget(api.db, TENANT);
	api_close(&api);
}

static const struct test tests[] = {
    {"store clean", "open", test_open},
    {"store clean", "planned, then removed", test_planned},
    {"store clean", "what is explained stays", test_explained},
    {"store clean", "what is live stays", test_live},
    {"store clean", "what fits no layout", test_legacy},
    {"store clean", "filters", test_filters},
    {"store clean", "links", test_links},
    {"store clean", "what cannot be removed", test_refused},
    {"store clean", "many", test_many},
    {"store clean", "stopped", test_stopped},
    {"store clean", "no stores", test_without_stores},
    {"store clean", "close", test_close},
};

int main(int argc, char **argv)
{
	return api_main(argc, argv, tests, ARRAY_LEN(tests));
}
