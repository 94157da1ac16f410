/*
 * test_suites: cases as folders of data: tests/suites/FACE/CASE/{request,response,setup.sql}.
 *
 * request: "METHOD PATH", header lines, an empty line, the body (its last newline is cut). Words:
 * @KEY a user's key, @ADMIN an admin's of the same tenant, @OTHER another tenant's, @OPERATOR an
 * operator's, @RUN a run of the user that setup.sql of the rig made (completed, with the artifact
 * ten.txt of 10 bytes and an empty none.txt), @SESSION a session of the user, new for each case
 * that names it, with the snapshot @SNAPSHOT, @NUL the byte 0. response: the status, header lines
 * that must be there (a value "-" means absent), an empty line, and JSON whose members must be in
 * the body with these values:
 * "@any" fits anything, "@uuid" an id, "@time" a time; arrays must have the same length. No JSON:
 * the body is not looked at. setup.sql: one statement a line, run before.
 *
 * Each case is one CUnit test, so a failure is named by its folder. Then it is counted what the
 * cases of face 1 cover (tests/lib/cover.h). Every answer below /api/v1/sandbox is a line of
 * BUILD/tests/log/answers.jsonl, which tests/e2e/test_openapi.py validates: {case, method, path,
 * query, body, status, redirect (not an answer: the web server goes on), type, allow, answer}; a
 * body that is no text is null.
 */
#include "fcgi/router.h"
#include "runners/base/fdio.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "tests/lib/apirig.h"
#include "tests/lib/cover.h"

#include <dirent.h>
#include <fcntl.h>

#define SUITES     "tests/suites"
#define CASES_MAX  2000
#define NODE       "suites"
#define TENANT     "suites-t"
#define WORD_COUNT 8
#define SNAPSHOT   "snap-0123456789ab"

struct suite_case {
	char face[64];
	char name[128];
};

static struct suite_case cases[CASES_MAX];
static size_t case_count;
static struct api api;
static FILE *answers;
static char session[IDENT_UUID_SIZE];
static char words[WORD_COUNT][2][64];

static void add_word(size_t i, const char *word, const char *value)
{
	(void)snprintf(words[i][0], sizeof(words[i][0]), "%s", word);
	(void)snprintf(words[i][1], sizeof(words[i][1]), "%s", value);
}

/* A file with the words replaced; false when it is not there. */
static bool read_case_file(const struct suite_case *c, const char *file, struct buf *out)
{
	char path[512];
	struct buf raw;
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), SUITES "/%s/%s/%s", c->face, c->name, file);
	buf_init(&raw, LIMIT_BODY_BYTES);
	if (fd_read_file(AT_FDCWD, path, &raw, &e) != 0) {
		buf_release(&raw);
		return false;
	}
	for (size_t i = 0; i < raw.len;) {
		bool found = false;

		for (size_t w = 0; w < WORD_COUNT && !found; w++) {
			size_t length = strlen(words[w][0]);

			if (length > 0 && raw.len - i >= length &&
			    memcmp(raw.data + i, words[w][0], length) == 0) {
				buf_add_str(out, words[w][1]);
				i += length;
				found = true;
			}
		}
		if (!found && raw.len - i >= 4 && memcmp(raw.data + i, "@NUL", 4) == 0) {
			buf_add_char(out, '\0');
			i += 4;
		} else if (!found) {
			buf_add_char(out, raw.data[i++]);
		}
	}
	buf_release(&raw);
	return true;
}

/* Cuts a line off; the text behind it or NULL at an empty line or the end. */
static char *cut_line(char *text)
{
	char *end = strchr(text, '\n');

	if (end == NULL)
		return text + strlen(text);
	*end = '\0';
	return end + 1;
}

static void fail(const struct suite_case *c, const char *what, const char *detail)
{
	char message[1024];

	(void)snprintf(message, sizeof(message), "%s/%s: %s: %.600s", c->face, c->name, what,
		       detail);
	CU_assertImplementation(CU_FALSE, 0, message, __FILE__, "", CU_FALSE);
}

static bool fits_text(const char *want, const json_t *got)
{
	const char *text = json_string_value(got);

	if (str_equal(want, "@any"))
		return true;
	if (text == NULL)
		return false;
	if (str_equal(want, "@uuid"))
		return ident_is_uuid(text);
	if (str_equal(want, "@time"))
		return strlen(text) == 27 && str_ends(text, "Z");
	return str_equal(want, text);
}

/* True when everything in want is in got; where: the path of the first difference. */
static bool fits(const json_t *want, const json_t *got, char *where,
		 size_t size) // NOLINT(misc-no-recursion)
{
	size_t used = strlen(where);

	if (json_is_string(want))
		return fits_text(json_string_value(want), got);
	if (json_is_object(want)) {
		const char *key;
		json_t *value;

		if (!json_is_object(got))
			return false;
		json_object_foreach ((json_t *)(uintptr_t)want, key, value) {
			(void)snprintf(where + used, size - used, ".%s", key);
			if (!fits(value, json_object_get(got, key), where, size))
				return false;
			where[used] = '\0';
		}
		return true;
	}
	if (json_is_array(want)) {
		if (json_array_size(want) != json_array_size(got))
			return false;
		for (size_t i = 0; i < json_array_size(want); i++) {
			(void)snprintf(where + used, size - used, "[%zu]", i);
			if (!fits(json_array_get(want, i), json_array_get(got, i), where, size))
				return false;
			where[used] = '\0';
		}
		return true;
	}
	return got != NULL && json_equal(want, got) != 0;
}

static void check_body(const struct suite_case *c, const char *want_text,
		       const struct http_response *response)
{
	json_t *want;
	json_t *got;
	char where[256] = "body";

	if (want_text[strspn(want_text, " \n")] == '\0')
		return;
	want = json_loads(want_text, JSON_DECODE_ANY, NULL);
	got = json_loadb(buf_text(&response->body), response->body.len, JSON_DECODE_ANY, NULL);
	if (want == NULL)
		fail(c, "the case's JSON is broken", want_text);
	else if (got == NULL)
		fail(c, "the answer is not JSON", buf_text(&response->body));
	else if (!fits(want, got, where, sizeof(where))) {
		char detail[900];

		(void)snprintf(detail, sizeof(detail), "%s in %.600s", where,
			       buf_text(&response->body));
		fail(c, "differs at", detail);
	}
	json_decref(want);
	json_decref(got);
}

static void check_response(const struct suite_case *c, char *text,
			   const struct http_response *response)
{
	char *next = cut_line(text);
	uint64_t status;
	struct err e = ERR_INIT;

	if (num_u64("status", text, 100, 599, &status, &e) != 0) {
		fail(c, "no status", text);
		return;
	}
	if ((int)status != response->status) {
		char detail[700];

		(void)snprintf(detail, sizeof(detail), "%d %.600s", response->status,
			       buf_text(&response->body));
		fail(c, "status", detail);
		return;
	}
	for (text = next; *text != '\0' && *text != '\n'; text = next) {
		char *colon;
		const char *got;

		next = cut_line(text);
		colon = strstr(text, ": ");
		if (colon == NULL) {
			fail(c, "not a header", text);
			return;
		}
		*colon = '\0';
		got = http_response_get(response, text);
		if (str_equal(colon + 2, "-") ? got != NULL
					      : got == NULL || strstr(got, colon + 2) == NULL)
			fail(c, text, got == NULL ? "absent" : got);
	}
	if (*text == '\n')
		check_body(c, text + 1, response);
}

/* Reads the request; lines of `text` are cut apart and pointed to. */
static bool read_request(const struct suite_case *c, struct buf *text, struct http_request *out)
{
	char *line = text->data;
	char *next = cut_line(line);
	char *path = strchr(line, ' ');
	char *query;

	memset(out, 0, sizeof(*out));
	if (path == NULL) {
		fail(c, "no request line", line);
		return false;
	}
	*path++ = '\0';
	query = strchr(path, '?');
	if (query != NULL)
		*query++ = '\0';
	out->method = line;
	out->path = path;
	out->query = query == NULL ? "" : query;
	out->request_id = "suite";
	out->body = "";
	while (next < text->data + text->len && *next != '\n') {
		char *colon;

		line = next;
		next = cut_line(line);
		colon = strstr(line, ": ");
		if (colon == NULL || out->header_count >= HTTP_MAX_REQUEST_HEADERS) {
			fail(c, "not a header", line);
			return false;
		}
		*colon = '\0';
		out->headers[out->header_count].name = line;
		out->headers[out->header_count++].value = colon + 2;
	}
	if (next < text->data + text->len) {
		out->body = next + 1;
		out->body_length = (size_t)(text->data + text->len - out->body);
		if (out->body_length > 0 && out->body[out->body_length - 1] == '\n')
			out->body_length--;
	}
	return true;
}

static void run_setup(const struct suite_case *c)
{
	struct buf text;
	char *at;

	buf_init(&text, LIMIT_BODY_BYTES);
	if (read_case_file(c, "setup.sql", &text)) {
		for (at = text.data; at != NULL && *at != '\0';) {
			char *next = cut_line(at);

			if (*at != '\0' && !str_starts(at, "--"))
				api_sql(api.db, "%s", at);
			at = next;
		}
	}
	buf_release(&text);
}

/* The session of the cases, as if nobody had used it. */
static void make_session(void)
{
	api_sql(api.db, "DELETE FROM job WHERE session_id = '%s'", session);
	api_sql(api.db, "DELETE FROM operation WHERE sandbox_id = '%s'", session);
	api_sql(api.db,
		"REPLACE INTO session (id, tenant, user_id, key_id, node, request_id, state, "
		"spec_version, runtime, base_image, cpu_milli, memory_mb, timeout_sec, "
		"network_policy, trust_level, policy_hash, env, labels, workspace_bytes, "
		"workspace_inodes, created_at, expires_at) VALUES ('%s', '" TENANT
		"', 'u', 'k', '" NODE
		"', 'r', 'active', '1.0', 'namespace', 'host', 1500, 512, 300, 'deny_all', "
		"'standard', '0123456789abcdef', '{\"A\":\"b\"}', '{\"team\":\"red\"}', "
		"268435456, 65536, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)",
		session);
	api_sql(api.db,
		"REPLACE INTO snapshot VALUES ('%s', '" SNAPSHOT "', 4096, UTC_TIMESTAMP(6))",
		session);
}

/* Text of a request or an answer; null when JSON cannot hold it. */
static json_t *text_or_null(const char *text, size_t length)
{
	json_t *value = length == 0 ? NULL : json_stringn(text, length);

	return value == NULL ? json_null() : value;
}

static void record(const struct suite_case *c, const struct http_request *request,
		   const struct http_response *response)
{
	struct buf line;
	struct err e = ERR_INIT;
	scope_json json_t *answer = json_pack(
	    "{s:s, s:s, s:s, s:s, s:o, s:i, s:b, s:s?, s:s?, s:o}", "case", c->name, "method",
	    request->method, "path", request->path, "query", request->query, "body",
	    text_or_null(request->body, request->body_length), "status", response->status,
	    "redirect", http_response_get(response, "X-Accel-Redirect") != NULL, "type",
	    http_response_get(response, "Content-Type"), "allow",
	    http_response_get(response, "Allow"), "answer",
	    text_or_null(buf_text(&response->body), response->body.len));

	buf_init(&line, LIMIT_REPLY_BYTES);
	if (answer == NULL || json_write(&line, answer, &e) != 0 ||
	    fprintf(answers, "%s\n", buf_text(&line)) < 0)
		fail(c, "the answer cannot be recorded", e.text);
	buf_release(&line);
}

static void run_case(const struct suite_case *c)
{
	struct buf request_text;
	struct buf response_text;
	struct http_request request;
	struct http_response response;

	buf_init(&request_text, LIMIT_BODY_BYTES);
	buf_init(&response_text, LIMIT_BODY_BYTES);
	http_response_init(&response);
	if (!read_case_file(c, "request", &request_text) ||
	    !read_case_file(c, "response", &response_text)) {
		fail(c, "request or response is missing", "");
	} else if (read_request(c, &request_text, &request)) {
		if (memmem(request_text.data, request_text.len, session, strlen(session)) != NULL)
			make_session();
		/* the runs of earlier cases must not fill the queue */
		api_sql(api.db, "DELETE FROM job WHERE tenant = '" TENANT "'");
		run_setup(c);
		api.context.facts_until_us = 0;
		router_serve(&api.context, &request, &response);
		CU_ASSERT(!response.failed);
		check_response(c, response_text.data, &response);
		if (str_equal(c->face, "runs")) {
			cover_add(&request, &response);
			if (str_starts(request.path, "/api/v1/sandbox/"))
				record(c, &request, &response);
		}
	}
	http_response_release(&response);
	buf_release(&request_text);
	buf_release(&response_text);
}

static size_t next_case;

static void test_next(void)
{
	run_case(&cases[next_case++]);
}

static int by_name(const void *a, const void *b)
{
	const struct suite_case *x = a;
	const struct suite_case *y = b;
	int order = strcmp(x->face, y->face);

	return order != 0 ? order : strcmp(x->name, y->name);
}

static void list_face(const char *face)
{
	char path[256];
	DIR *dir;
	struct dirent *entry;

	(void)snprintf(path, sizeof(path), SUITES "/%s", face);
	dir = opendir(path);
	while (dir != NULL && (entry = readdir(dir)) != NULL && case_count < CASES_MAX) {
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(cases[case_count].face, sizeof(cases[0].face), "%.63s", face);
		(void)snprintf(cases[case_count].name, sizeof(cases[0].name), "%.127s",
			       entry->d_name);
		case_count++;
	}
	if (dir != NULL)
		(void)closedir(dir);
}

static void list_cases(void)
{
	DIR *dir = opendir(SUITES);
	struct dirent *entry;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			list_face(entry->d_name);
	if (dir != NULL)
		(void)closedir(dir);
	qsort(cases, case_count, sizeof(cases[0]), by_name);
}

/* The user's run that cases read. */
static void make_run(const char *id)
{
	api_sql(
	    api.db,
	    "INSERT INTO run (id, face, tenant, user_id, key_id, node, job_id, request_id, spec_version, "
	    "runtime, base_image, policy_hash, trust_level, network_policy, phase, outcome, message, "
	    "exit_code, last_seq, resource_usage, created_at, started_at, finished_at) VALUES ('%s', "
	    "'runs', '" TENANT "', 'u', 'k', '" NODE "', 1, 'r', '1.0', 'namespace', 'host', 'h', "
	    "'standard', 'deny_all', 'completed', 'finished', 'exit=0', 0, 3, "
	    "'{\"artifact_bytes\":10,\"cpu_time_ms\":3,\"cpu_time_sec\":0,\"log_bytes\":0,"
	    "\"peak_rss_mb\":2,\"wall_time_ms\":5,\"wall_time_sec\":0}', "
	    "UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
	    id);
	api_sql(
	    api.db,
	    "INSERT INTO artifact (run_id, ordinal, path, path_hash, size_bytes, mtime_sec, created_at) "
	    "VALUES ('%s', 0, 'ten.txt', UNHEX(SHA2('ten.txt', 256)), 10, 1700000000, UTC_TIMESTAMP(6))",
	    id);
	api_sql(
	    api.db,
	    "INSERT INTO artifact (run_id, ordinal, path, path_hash, size_bytes, mtime_sec, created_at) "
	    "VALUES ('%s', 1, 'none.txt', UNHEX(SHA2('none.txt', 256)), 0, 1700000000, UTC_TIMESTAMP(6))",
	    id);
}

static void open_answers(void)
{
	const char *build = getenv("CORDON_BUILD");
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/tests/log/answers.jsonl",
		       build == NULL ? "build" : build);
	answers = fopen(path, "we");
	if (answers == NULL) {
		perror(path);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static struct test tests[CASES_MAX + 3];
	char key[API_KEY_SIZE];
	char run[IDENT_UUID_SIZE];
	struct err e = ERR_INIT;
	int status;

	if (getenv("CORDON_POLICY") == NULL) {
		(void)puts("skipped: needs the private stack (make test starts it)");
		return 77;
	}
	api_open(&api, NODE);
	api_forget(api.db, TENANT);
	api_key(api.db, TENANT, "u", "user", key);
	add_word(0, "@KEY", key);
	api_key(api.db, TENANT "-other", "u", "user", key);
	add_word(1, "@OTHER", key);
	api_key(api.db, TENANT "-op", "u", "operator", key);
	add_word(2, "@OPERATOR", key);
	api_key(api.db, TENANT, "adm", "admin", key);
	add_word(4, "@ADMIN", key);
	if (ident_uuid(run, &e) != 0 || ident_uuid(session, &e) != 0)
		return 1;
	add_word(3, "@RUN", run);
	make_run(run);
	add_word(5, "@SESSION", session);
	add_word(6, "@SNAPSHOT", SNAPSHOT);
	open_answers();
	list_cases();
	for (size_t i = 0; i < case_count; i++)
		tests[i] = (struct test){cases[i].face, cases[i].name, test_next};
	tests[case_count] = (struct test){"cover", "routes", cover_check_routes};
	tests[case_count + 1] = (struct test){"cover", "fields", cover_check_fields};
	tests[case_count + 2] = (struct test){"cover", "query parameters", cover_check_queries};
	(void)argc;
	status = test_main(1, argv, tests, case_count + 3);
	if (fclose(answers) != 0)
		status = 1;
	cover_release();
	api_sql(api.db, "DELETE FROM runner WHERE node = '" NODE "'");
	api_sql(api.db, "DELETE FROM runtime_fact WHERE node = '" NODE "'");
	api_forget(api.db, TENANT);
	api_close(&api);
	return case_count == 0 ? 1 : status;
}
