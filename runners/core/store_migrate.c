#include "runners/core/store_migrate.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#define FILE_MAX_BYTES (1U << 20)
#define FILES_MAX      1000
#define NAME_MAX_BYTES 128

/* Behind the comment at p, or p itself. The plain client's rules: `-- ` and `#` to the end of the
 * line, slash-star pairs. */
static const char *skip_comment(const char *p)
{
	const char *end;

	if (p[0] == '#' || (p[0] == '-' && p[1] == '-' && strchr(" \t\r\n", p[2]) != NULL))
		return p + strcspn(p, "\n");
	if (p[0] != '/' || p[1] != '*')
		return p;
	end = strstr(p + 2, "*/");
	return end == NULL ? p + strlen(p) : end + 2;
}

/* Behind the quoted text that begins at p; a doubled quote is two texts, which comes to the same.
 */
static const char *skip_quoted(const char *p)
{
	char quote = *p++;

	for (; *p != '\0' && *p != quote; p++)
		if (*p == '\\' && quote != '`' && p[1] != '\0')
			p++;
	return *p == '\0' ? p : p + 1;
}

#define DELIMITER_ON  "DELIMITER //\n"
#define DELIMITER_OFF "DELIMITER ;"

/* A statement that holds semicolons stands between two DELIMITER lines of its own, as the plain
 * client wants it. */
static bool split_delimited(const char *p, const char **at, const char **out_start,
			    size_t *out_length)
{
	const char *start = p + strlen(DELIMITER_ON);
	const char *end = strstr(start, "\n//\n");
	const char *rest;

	*out_start = start;
	*out_length = end == NULL ? strlen(start) : (size_t)(end - start);
	rest = end == NULL ? start + strlen(start) : end + strlen("\n//\n");
	*at = str_starts(rest, DELIMITER_OFF) ? rest + strlen(DELIMITER_OFF) : rest;
	return *out_length > 0;
}

bool migrate_split(const char **at, const char **out_start, size_t *out_length)
{
	const char *p = *at;
	const char *before;

	/* to the first byte of a statement */
	do {
		before = p;
		p += strspn(p, " \t\r\n;");
		p = skip_comment(p);
	} while (p != before);
	if (str_starts(p, DELIMITER_ON))
		return split_delimited(p, at, out_start, out_length);
	*out_start = p;
	while (*p != '\0' && *p != ';') {
		before = p;
		if (*p == '\'' || *p == '"' || *p == '`')
			p = skip_quoted(p);
		else
			p = skip_comment(p);
		if (p == before)
			p++;
	}
	*out_length = (size_t)(p - *out_start);
	*at = *p == ';' ? p + 1 : p;
	return *out_length > 0;
}

static int run_file(struct store *db, const char *dir, const char *name, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;
	char path[512];
	const char *at;
	const char *start;
	size_t length;
	unsigned int count = 0;

	buf_init(&text, FILE_MAX_BYTES);
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (fd_read_file(AT_FDCWD, path, &text, e) != 0)
		return -1;
	at = buf_text(&text);
	while (migrate_split(&at, &start, &length)) {
		count++;
		if (store_run_text(db, start, length, e) != 0)
			return err_wrap(e, "%s, statement %u", name, count);
	}
	return 0;
}

struct migration {
	unsigned int version;
	char name[NAME_MAX_BYTES];
};

static int by_version(const void *a, const void *b)
{
	const struct migration *x = a;
	const struct migration *y = b;

	return x->version < y->version ? -1 : x->version > y->version;
}

static int list_files(const char *dir, struct migration *out, size_t *out_count, struct err *e)
{
	char path[512];
	DIR *folder;
	struct dirent *entry;
	size_t count = 0;

	(void)snprintf(path, sizeof(path), "%s/migrations", dir);
	folder = opendir(path);
	if (folder == NULL)
		return err_set(e, ERR_NOT_FOUND, errno, "open %s", path);
	while ((entry = readdir(folder)) != NULL && count < FILES_MAX) {
		char digits[5];
		uint64_t version;
		struct err ignored = ERR_INIT;

		if (strlen(entry->d_name) < 10 || strlen(entry->d_name) >= NAME_MAX_BYTES ||
		    !str_ends(entry->d_name, ".sql") || entry->d_name[4] != '_')
			continue;
		memcpy(digits, entry->d_name, 4);
		digits[4] = '\0';
		if (num_u64("version", digits, 1, 9999, &version, &ignored) != 0)
			continue;
		out[count].version = (unsigned int)version;
		(void)snprintf(out[count].name, sizeof(out[count].name), "%.127s", entry->d_name);
		count++;
	}
	(void)closedir(folder);
	qsort(out, count, sizeof(*out), by_version);
	for (size_t i = 1; i < count; i++)
		if (out[i].version == out[i - 1].version)
			return err_set(e, ERR_CONFLICT, 0,
				       "two migrations have number %u: %s and %s", out[i].version,
				       out[i - 1].name, out[i].name);
	*out_count = count;
	return 0;
}

static int current_version(struct store *db, int64_t *out, struct err *e)
{
	int64_t present;

	*out = 0;
	if (store_query_row(db, STMT_SCHEMA_PRESENT, NULL, 0, e) != 1)
		return -1;
	present = store_i64(db, 0);
	store_done(db);
	if (present == 0)
		return 0;
	if (store_query_row(db, STMT_SCHEMA_VERSION, NULL, 0, e) != 1)
		return -1;
	*out = store_i64(db, 0);
	store_done(db);
	return 0;
}

static int apply(struct store *db, const char *dir, const struct migration *m,
		 migrate_progress *progress, void *arg, struct err *e)
{
	char name[NAME_MAX_BYTES + 16];
	struct store_value in[] = {SV_I64(m->version), SV_TEXT(m->name)};

	(void)snprintf(name, sizeof(name), "migrations/%s", m->name);
	if (run_file(db, dir, name, e) != 0 ||
	    store_exec(db, STMT_SCHEMA_APPLIED, in, ARRAY_LEN(in), NULL, e) != 0)
		return -1;
	if (progress != NULL)
		progress(m->version, m->name, arg);
	return 0;
}

static int migrate_locked(struct store *db, const char *sql_dir, migrate_progress *progress,
			  void *arg, struct err *e)
{
	scope_free struct migration *files = mem_zalloc(FILES_MAX, sizeof(*files));
	size_t count = 0;
	int64_t have;

	if (files == NULL)
		return err_set(e, ERR_NOMEM, 0, "migrate");
	if (list_files(sql_dir, files, &count, e) != 0 || current_version(db, &have, e) != 0)
		return -1;
	if (count > 0 && have > files[count - 1].version)
		return err_set(
		    e, ERR_CONFLICT, 0,
		    "the database is at version %lld, this program knows %u: use a newer program",
		    (long long)have, files[count - 1].version);
	for (size_t i = 0; i < count; i++)
		if (files[i].version > have && apply(db, sql_dir, &files[i], progress, arg, e) != 0)
			return -1;
	if (run_file(db, sql_dir, "procedures.sql", e) != 0)
		return -1;
	return run_file(db, sql_dir, "grants.sql", e);
}

int store_migrate(const struct store_options *options, const char *sql_dir,
		  migrate_progress *progress, void *arg, struct err *e)
{
	struct store_options bare = *options;
	struct store *db = NULL;
	int result;

	bare.database = NULL;
	if (store_open(&bare, &db, e) != 0)
		return -1;
	result = run_file(db, sql_dir, "database.sql", e);
	store_close(db);
	if (result != 0)
		return -1;
	db = NULL;
	if (store_open(options, &db, e) != 0)
		return -1;
	result = store_query_row(db, STMT_MIGRATE_LOCK, NULL, 0, e);
	if (result == 1 && store_i64(db, 0) != 1)
		result = err_set(e, ERR_TIMEOUT, 0, "another migration is running");
	store_done(db);
	if (result == 1)
		result = migrate_locked(db, sql_dir, progress, arg, e);
	/* the lock goes with the connection */
	store_close(db);
	return result;
}
