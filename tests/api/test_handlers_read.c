/* test_handlers_read: GET, lists, cancel, artifacts, streams, health, and who may see what. In
 * process, against the private stack's MariaDB. */
#include "fcgi/router.h"
#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/callrig.h"

/* --- GET ------------------------------------------------------------------------------------ */

/* Both answers are the same but for what the caller sent. */
static void same_answer(const char *key, const char *method, const char *format,
			const char *foreign, const char *code)
{
	static const char *const unknown[] = {
	    "0190a5c0-0000-7000-8000-0123456789ab", "x", "..", "%2e%2e", "a%2fb", "'%20OR%201=1"};
	struct answer a;
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/runs/%s%s", BASE, foreign, format);
	call(&(struct call){.method = method, .path = path, .key = key}, &a);
	CU_ASSERT_EQUAL(a.response.status, 404);
	ASSERT_TEXT(a.code, code);
	for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
		struct answer b;

		(void)snprintf(path, sizeof(path), "%s/runs/%s%s", BASE, unknown[i], format);
		call(&(struct call){.method = method, .path = path, .key = key}, &b);
		CU_ASSERT_EQUAL(b.response.status, 404);
		ASSERT_TEXT(buf_text(&b.response.body), buf_text(&a.response.body));
		CU_ASSERT_EQUAL(b.response.header_count, a.response.header_count);
		answer_release(&b);
	}
	answer_release(&a);
}

static void test_b19_foreign(void)
{
	static char *const strangers[] = {bob, mallory};
	char id[IDENT_UUID_SIZE];
	char path[200];

	make_run(alice, id);
	for (size_t i = 0; i < ARRAY_LEN(strangers); i++) {
		same_answer(strangers[i], "GET", "", id, "run_not_found");
		same_answer(strangers[i], "POST", "/cancel", id, "run_not_found");
		same_answer(strangers[i], "GET", "/artifacts", id, "run_not_found");
		same_answer(strangers[i], "GET", "/artifacts/x", id, "run_not_found");
		same_answer(strangers[i], "GET", "/trace", id, "run_not_found");
		same_answer(strangers[i], "GET", "/stream", id, "run_not_found");
	}
	/* the stream is for the exact owner only */
	same_answer(admin, "GET", "/stream", id, "run_not_found");
	same_answer(operator_, "GET", "/stream", id, "run_not_found");
	(void)snprintf(path, sizeof(path), BASE "/runs/%s", id);
	status_is(alice, "GET", path, NULL, 200, "");
	status_is(alice, "HEAD", path, NULL, 200, "");
	status_is(admin, "GET", path, NULL, 200, "");
	status_is(operator_, "GET", path, NULL, 200, "");
	/* and nobody canceled it */
	CU_ASSERT_EQUAL(api_number(api.db,
				   "SELECT COUNT(*) FROM run WHERE id = '%s' AND "
				   "cancel_requested_at IS NULL",
				   id),
			1);
}

static void test_b14_paths(void)
{
	static const char *const bad[] = {"%00", "%", "%zz", "%00x"};
	static const char *const rests[] = {
	    "../x",   "..%2f..%2fetc%2fpasswd", "%252e%252e/", "a/./b//c", "/abs", "a%00.txt",
	    "....//", "%c0%ae%c0%ae/",          "%2e%2e",      "",         ".",    "x/.."};
	char id[IDENT_UUID_SIZE];
	char path[300];

	make_run(alice, id);
	/* the beginning of a name is not the name */
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		(void)snprintf(path, sizeof(path), BASE "/runs/%s%s", id, bad[i]);
		status_is(alice, "GET", path, NULL, 400, "invalid_path");
		(void)snprintf(path, sizeof(path), BASE "/runs/%s%s/cancel", id, bad[i]);
		status_is(alice, "POST", path, NULL, 400, "invalid_path");
	}
	for (size_t i = 0; i < ARRAY_LEN(rests); i++) {
		(void)snprintf(path, sizeof(path), BASE "/runs/%s/artifacts/%s", id, rests[i]);
		status_is(alice, "GET", path, NULL, 400, "invalid_path");
		/* the same for a run that is not there */
		(void)snprintf(path, sizeof(path),
			       BASE "/runs/0190a5c0-0000-7000-8000-0123456789ab/artifacts/%s",
			       rests[i]);
		status_is(alice, "GET", path, NULL, 400, "invalid_path");
	}
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/artifacts/...", id);
	status_is(alice, "GET", path, NULL, 404, "artifact_not_found");
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/artifacts/%%252e%%252e", id);
	status_is(alice, "GET", path, NULL, 404, "artifact_not_found");
}

static void test_keys(void)
{
	char key[API_KEY_SIZE];
	char query[100];
	struct answer a;
	struct call c = {.method = "GET", .path = BASE "/runs"};

	api_key(api.db, TENANT "-a", "carol", "user", key);
	status_is(key, "GET", BASE "/runs", NULL, 200, "");
	/* another secret of the same id, and the other way round */
	key[20] = key[20] == 'a' ? 'b' : 'a';
	status_is(key, "GET", BASE "/runs", NULL, 401, "unauthorized");
	key[20] = key[20] == 'a' ? 'b' : 'a';
	key[40] = '\0';
	status_is(key, "GET", BASE "/runs", NULL, 401, "unauthorized");
	api_key(api.db, TENANT "-a", "carol", "user", key);
	(void)snprintf(query, sizeof(query), "Bearer  %s", key);
	c.more[0] = (struct http_header){"authorization", query};
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	answer_release(&a);
	c.more[0] = (struct http_header){"Authorization", "Basic Og=="};
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 401);
	ASSERT_TEXT(http_response_get(&a.response, "WWW-Authenticate"), "Bearer");
	answer_release(&a);
	/* only a socket takes it from the query */
	(void)snprintf(query, sizeof(query), "auth_token=%s", key);
	status_is(NULL, "GET", BASE "/runs", query, 401, "unauthorized");
	/* B19: refused at once after its end */
	api_sql(api.db, "UPDATE api_key SET revoked_at = UTC_TIMESTAMP(6) WHERE id = '%.12s'",
		key + 3);
	status_is(key, "GET", BASE "/runs", NULL, 401, "unauthorized");
}

static void test_list(void)
{
	char ids[5][IDENT_UUID_SIZE];
	char key[API_KEY_SIZE];
	char query[200];
	struct answer a;
	const char *cursor;
	size_t seen = 0;

	api_key(api.db, TENANT "-l", "lister", "user", key);
	status_is(key, "GET", BASE "/runs", NULL, 200, "");
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		make_run(key, ids[i]);
		clock_sleep_us(2000);
	}
	/* pages of two, newest first, each run once */
	query[0] = '\0';
	for (int page = 0; page < 5; page++) {
		char with[250];
		json_t *items;

		(void)snprintf(with, sizeof(with), "limit=2%s", query);
		call(
		    &(struct call){
			.method = "GET", .path = BASE "/runs", .query = with, .key = key},
		    &a);
		items = json_object_get(a.body, "items");
		for (size_t i = 0; i < json_array_size(items); i++) {
			ASSERT_TEXT(json_text(json_object_get(json_array_get(items, i), "id")),
				    ids[4 - seen]);
			seen++;
		}
		cursor = json_text(json_object_get(a.body, "next_cursor"));
		if (cursor == NULL) {
			CU_ASSERT(json_is_null(json_object_get(a.body, "next_cursor")));
			CU_ASSERT_EQUAL(page, 2);
			answer_release(&a);
			break;
		}
		(void)snprintf(query, sizeof(query), "&cursor=%s", cursor);
		answer_release(&a);
	}
	CU_ASSERT_EQUAL(seen, 5);
	api_sql(api.db, "UPDATE run SET phase = 'running' WHERE id = '%s'", ids[1]);
	call(
	    &(struct call){
		.method = "GET", .path = BASE "/runs", .query = "phase=running", .key = key},
	    &a);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(a.body, "items")), 1);
	CU_ASSERT(json_is_null(json_object_get(a.body, "next_cursor")));
	answer_release(&a);
	/* others see their own only, operators too: a list is of the caller's runs */
	call(&(struct call){.method = "GET", .path = BASE "/runs", .key = operator_}, &a);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(a.body, "items")), 0);
	answer_release(&a);
}

static void list_refused(const char *query, const char *field)
{
	struct answer a;

	call(&(struct call){.method = "GET", .path = BASE "/runs", .query = query, .key = alice},
	     &a);
	CU_ASSERT_EQUAL(a.response.status, 422);
	ASSERT_TEXT(json_text(json_object_get(
			json_array_get(json_object_get(details(&a), "fields"), 0), "field")),
		    field);
	answer_release(&a);
}

static void test_list_query(void)
{
	list_refused("limit=0", "limit");
	list_refused("limit=101", "limit");
	list_refused("limit=-1", "limit");
	list_refused("limit=0.5", "limit");
	list_refused("limit=", "limit");
	list_refused("limit=1e2", "limit");
	list_refused("limit=9223372036854775808", "limit");
	list_refused("limit=%00", "limit");
	list_refused("cursor=", "cursor");
	list_refused("cursor=x", "cursor");
	list_refused("cursor=0190a5c0-0000-7000-8000-0123456789ab%00", "cursor");
	list_refused("cursor='%20OR%201=1", "cursor");
	list_refused("phase=Queued", "phase");
	list_refused("phase=", "phase");
	list_refused("phase=queued%00", "phase");
	status_is(alice, "GET", BASE "/runs", "limit=100&unknown=%zz", 200, "");
}

/* --- cancel --------------------------------------------------------------------------------- */

static void test_cancel(void)
{
	char id[IDENT_UUID_SIZE];
	char path[200];
	struct answer a;
	const char *url;

	make_run(alice, id);
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/cancel", id);
	for (int i = 0; i < 2; i++) {
		/* again: still true, this or an earlier cancel ended it */
		call(&(struct call){.method = "POST", .path = path, .key = alice}, &a);
		CU_ASSERT_EQUAL(a.response.status, 200);
		CU_ASSERT_EQUAL(json_object_size(a.body), 3);
		ASSERT_TEXT(member(&a, "id"), id);
		CU_ASSERT(json_is_true(json_object_get(a.body, "cancelled")));
		ASSERT_TEXT(member(&a, "message"), "canceled_by_user");
		answer_release(&a);
	}
	CU_ASSERT_EQUAL(api_number(api.db, "SELECT COUNT(*) FROM job WHERE object_id = '%s'", id),
			0);
	CU_ASSERT_EQUAL(api_number(api.db,
				   "SELECT COUNT(*) FROM run WHERE id = '%s' AND phase = 'killed' "
				   "AND outcome = 'finished' AND exit_code IS NULL AND "
				   "last_seq = 0 AND finished_at IS NOT NULL",
				   id),
			1);
	/* one that ended by itself */
	api_sql(api.db, "UPDATE run SET phase = 'completed', message = 'exit=0' WHERE id = '%s'",
		id);
	call(&(struct call){.method = "POST", .path = path, .key = alice}, &a);
	CU_ASSERT(json_is_false(json_object_get(a.body, "cancelled")));
	ASSERT_TEXT(member(&a, "message"), "not_running_or_not_found");
	answer_release(&a);
	/* one that runs: the wish is written, the answer held */
	make_run(alice, id);
	api_sql(api.db, "UPDATE job SET state = 'claimed' WHERE object_id = '%s'", id);
	api_sql(api.db, "UPDATE run SET phase = 'running' WHERE id = '%s'", id);
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/cancel", id);
	call(&(struct call){.method = "POST", .path = path, .key = alice}, &a);
	url = http_response_get(&a.response, "X-Accel-Redirect");
	CU_ASSERT_PTR_NOT_NULL_FATAL(url);
	CU_ASSERT(strstr(url, "?as=cancel&") != NULL);
	answer_release(&a);
	CU_ASSERT_EQUAL(api_number(api.db,
				   "SELECT COUNT(*) FROM run WHERE id = '%s' AND phase = 'running' "
				   "AND cancel_requested_at IS NOT NULL",
				   id),
			1);
	api_sql(api.db, "DELETE FROM job WHERE object_id = '%s'", id);
}

/* --- artifacts ------------------------------------------------------------------------------ */

struct name {
	const char *bytes;
	size_t length;
	const char *shown; /* NULL: the bytes themselves */
	const char *plain; /* filename="..." */
};

#define NAME(text, plain)                           \
	{                                           \
		text, sizeof(text) - 1, NULL, plain \
	}

static const struct name names[] = {
    NAME("90%.txt", "90_.txt"),
    NAME("r%41.txt", "r_41.txt"),
    NAME("rA.txt", "rA.txt"),
    NAME("q?x=1#y", "q?x=1#y"),
    NAME("a b+c.txt", "a b+c.txt"),
    NAME("caf\xc3\xa9", "caf__"),
    NAME("cafe\xcc\x81", "cafe__"),
    NAME("x\r\nX-Accel-Redirect: /etc/passwd", "passwd"),
    NAME("quote\"back\\slash", "quote_back_slash"),
    {"byte\xff", 5, "byte\\xFF", "byte_"},
    {"half\xe2\x98", 6, "half\\xE2\\x98", "half__"},
    NAME("-rf", "-rf"),
    NAME(".hidden", ".hidden"),
    NAME("tab\there", "tab_here"),
    NAME("   ", "   "),
    NAME("con", "con"),
    NAME("...", "..."),
    NAME("a..b", "a..b"),
    NAME("d/e/f.csv", "f.csv"),
    NAME("%2e%2e", "_2e_2e"),
    NAME("\xe7\x95\x8c\xe7\x95\x8c\xe7\x95\x8c", "_________"),
};

static size_t index_of(const char *shown)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_equal(names[i].shown == NULL ? names[i].bytes : names[i].shown, shown))
			return i;
	return SIZE_MAX;
}

static bool is_header_ascii(const char *text)
{
	for (; *text != '\0'; text++)
		if (*text < 0x20 || *text > 0x7e)
			return false;
	return true;
}

static void download(const char *id, const char *url, size_t index)
{
	struct answer a;
	char want[200];
	const char *disposition;

	get(alice, url, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	(void)snprintf(want, sizeof(want), "/internal/artifact-whole/%s/%s/%zu", id + 34, id,
		       index);
	ASSERT_TEXT(http_response_get(&a.response, "X-Accel-Redirect"), want);
	disposition = http_response_get(&a.response, "Content-Disposition");
	CU_ASSERT_PTR_NOT_NULL_FATAL(disposition);
	CU_ASSERT(is_header_ascii(disposition));
	(void)snprintf(want, sizeof(want), "attachment; filename=\"%s\"; filename*=UTF-8''",
		       names[index].plain);
	CU_ASSERT(str_starts(disposition, want));
	if (!str_starts(disposition, want))
		ASSERT_TEXT(disposition, want);
	/* nothing behind it but the encoded name */
	CU_ASSERT_EQUAL(strpbrk(disposition + strlen(want), " \";"), NULL);
	CU_ASSERT_EQUAL(a.response.body.len, 0);
	answer_release(&a);
}

static void test_b23_names(void)
{
	char id[IDENT_UUID_SIZE];
	char path[200];
	struct answer a;
	json_t *items;
	bool found[ARRAY_LEN(names)] = {false};

	make_run(alice, id);
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/artifacts", id);
	get(alice, path, &a);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(a.body, "items")), 0);
	answer_release(&a);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		add_artifact(id, i, names[i].bytes, names[i].length, (int64_t)i + 1);
	get(alice, path, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	items = json_object_get(a.body, "items");
	CU_ASSERT_EQUAL(json_array_size(items), ARRAY_LEN(names));
	for (size_t i = 0; i < json_array_size(items); i++) {
		json_t *item = json_array_get(items, i);
		const char *url = json_text(json_object_get(item, "download_url"));
		size_t index = index_of(json_text(json_object_get(item, "path")));

		CU_ASSERT_FATAL(index < ARRAY_LEN(names) && !found[index]);
		found[index] = true;
		CU_ASSERT_EQUAL(json_integer_value(json_object_get(item, "size")),
				(json_int_t)index + 1);
		CU_ASSERT_EQUAL(json_object_get(item, "path_encoding") != NULL,
				names[index].shown != NULL);
		/* the URL is always the way to fetch, and plain ASCII */
		CU_ASSERT_EQUAL(strspn(url, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					    "0123456789-._~/%"),
				strlen(url));
		download(id, url, index);
	}
	answer_release(&a);
	/* a name shown with an escape is not its own path */
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/artifacts/byte%%5CxFF", id);
	status_is(alice, "GET", path, NULL, 404, "artifact_not_found");
}

static void test_long_names(void)
{
	char id[IDENT_UUID_SIZE];
	scope_free char *name = mem_zalloc(5000, 1);
	scope_buf struct buf url;
	struct answer a;

	make_run(alice, id);
	/* 255 bytes of CJK, and the longest path, of bytes that are no text */
	for (size_t i = 0; i < 255; i += 3)
		memcpy(name + i, "\xe7\x95\x8c", 3);
	add_artifact(id, 0, name, 255, 5);
	memset(name, 0xC3, 4096);
	for (size_t i = 255; i < 4096; i += 256)
		name[i] = '/';
	name[4095] = 'x';
	add_artifact(id, 1, name, 4096, 5);
	buf_init(&url, 100000);
	buf_addf(&url, BASE "/runs/%s/artifacts", id);
	get(alice, buf_text(&url), &a);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(a.body, "items")), 2);
	answer_release(&a);
	buf_add_str(&url, "/");
	str_percent_encode(&url, name, 4096, "/");
	get(alice, buf_text(&url), &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	CU_ASSERT(str_ends(http_response_get(&a.response, "X-Accel-Redirect"), "/1"));
	answer_release(&a);
}

static void ranged(const char *id, const char *file, const char *method, const char *range,
		   const char *if_range, int status, const char *location)
{
	char path[200];
	char want[200];
	struct answer a;
	struct call c = {.method = method, .path = path, .key = alice};

	(void)snprintf(path, sizeof(path), BASE "/runs/%s/artifacts/%s", id, file);
	c.more[0] = (struct http_header){"Range", range};
	if (if_range != NULL)
		c.more[1] = (struct http_header){"If-Range", if_range};
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, status);
	(void)snprintf(want, sizeof(want), "/internal/%s/%s/%s/", location, id + 34, id);
	CU_ASSERT_EQUAL(location[0] == '\0',
			http_response_get(&a.response, "X-Accel-Redirect") == NULL);
	if (location[0] != '\0')
		CU_ASSERT(str_starts(http_response_get(&a.response, "X-Accel-Redirect"), want));
	if (status == 416) {
		ASSERT_TEXT(http_response_get(&a.response, "Content-Range"),
			    str_equal(file, "ten") ? "bytes */10" : "bytes */0");
		CU_ASSERT_EQUAL(a.response.body.len, 0);
		ASSERT_TEXT(http_response_get(&a.response, "Accept-Ranges"), "bytes");
	}
	answer_release(&a);
}

static void test_b16_ranges(void)
{
	char id[IDENT_UUID_SIZE];

	make_run(alice, id);
	add_artifact(id, 0, "ten", 3, 10);
	add_artifact(id, 1, "empty", 5, 0);
	ranged(id, "ten", "GET", "bytes=0-4", NULL, 200, "artifact");
	ranged(id, "ten", "GET", "Bytes=-3", NULL, 200, "artifact");
	ranged(id, "ten", "GET", "bytes=10-", NULL, 416, "");
	ranged(id, "ten", "GET", "bytes=5-2", NULL, 416, "");
	ranged(id, "ten", "GET", "bytes=0-1,3-4", NULL, 416, "");
	ranged(id, "ten", "GET", "bytes=a-b", NULL, 416, "");
	ranged(id, "ten", "GET", "items=0-1", NULL, 200, "artifact-whole");
	ranged(id, "ten", "HEAD", "bytes=0-4", NULL, 200, "artifact-whole");
	ranged(id, "ten", "GET", "bytes=0-4", "\"stale\"", 200, "artifact-whole");
	/* the ETag that nginx makes of 1767225600 and 10 */
	ranged(id, "ten", "GET", "bytes=0-4", "\"6955b900-a\"", 200, "artifact");
	ranged(id, "ten", "GET", "bytes=0-4", "Thu, 01 Jan 2026 00:00:00 GMT", 200, "artifact");
	ranged(id, "empty", "GET", "bytes=0-4", NULL, 200, "");
	ranged(id, "empty", "GET", "bytes=-0", NULL, 200, "");
	ranged(id, "empty", "GET", "bytes=5-2", NULL, 416, "");
	ranged(id, "empty", "GET", "bytes=0-1,3-4", NULL, 416, "");
}

/* --- stream, render, health ----------------------------------------------------------------- */

static void test_stream(void)
{
	char id[IDENT_UUID_SIZE];
	char path[200];
	char query[200];
	struct answer a;
	struct call c = {.method = "GET", .path = path, .query = query};
	const char *url;

	make_run(alice, id);
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/stream", id);
	(void)snprintf(query, sizeof(query), "from_seq=7");
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 401);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(details(&a), "close_code")), 4401);
	answer_release(&a);
	c.key = mallory;
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 404);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(details(&a), "close_code")), 4404);
	answer_release(&a);
	c.key = alice;
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 426);
	ASSERT_TEXT(a.code, "upgrade_required");
	ASSERT_TEXT(http_response_get(&a.response, "Upgrade"), "websocket");
	answer_release(&a);
	c.more[0] = (struct http_header){"Upgrade", "WebSocket"};
	c.more[1] = (struct http_header){"Sec-WebSocket-Version", "13"};
	call(&c, &a);
	CU_ASSERT_EQUAL(a.response.status, 426);
	answer_release(&a);
	c.more[2] = (struct http_header){"Sec-WebSocket-Key", "d2Fsa2luZyBhbG9uZyBpdA=="};
	call(&c, &a);
	url = http_response_get(&a.response, "X-Accel-Redirect");
	CU_ASSERT_PTR_NOT_NULL_FATAL(url);
	(void)snprintf(path, sizeof(path),
		       "/internal/stream/" NODE "/run/%s?from=7&p=" TENANT
		       "-a%%2Falice&k=%.12s&req=req-test",
		       id, alice + 3);
	ASSERT_TEXT(url, path);
	answer_release(&a);
	/* the credential may stand in the query, and does not go on */
	(void)snprintf(path, sizeof(path), BASE "/runs/%s/stream", id);
	for (int i = 0; i < 2; i++) {
		(void)snprintf(query, sizeof(query), "from_seq=-1&%s=%s",
			       i == 0 ? "token" : "auth_token", alice);
		c.key = NULL;
		call(&c, &a);
		url = http_response_get(&a.response, "X-Accel-Redirect");
		CU_ASSERT_PTR_NOT_NULL_FATAL(url);
		CU_ASSERT(strstr(url, "?from=0&") != NULL);
		CU_ASSERT_PTR_NULL(strstr(url, alice + 16));
		answer_release(&a);
	}
}

/* What the gate's release makes of a held request. */
static void rendered(const char *key, const char *id, const char *query, bool internal,
		     struct answer *a)
{
	char path[200];
	struct http_request request = {.method = "POST",
				       .path = path,
				       .query = query,
				       .request_id = "req-test",
				       .internal = internal,
				       .body = ""};
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "/internal/render/" NODE "/run/%s", id);
	if (key != NULL)
		request.headers[request.header_count++] = (struct http_header){"X-API-KEY", key};
	memset(a, 0, sizeof(*a));
	http_response_init(&a->response);
	router_serve(&api.context, &request, &a->response);
	if (a->response.body.len > 0)
		CU_ASSERT_EQUAL(
		    json_parse(buf_text(&a->response.body), a->response.body.len, &a->body, &e), 0);
	check_no_leak(a, key);
}

static void test_render(void)
{
	char id[IDENT_UUID_SIZE];
	char query[200];
	struct answer a;
	long long now_ms = clock_real_us() / 1000;

	make_run(alice, id);
	(void)snprintf(query, sizeof(query), "as=run&t0=%lld&until=%lld&f=e&n=0", now_ms,
		       now_ms + 60000);
	rendered(alice, id, query, false, &a);
	CU_ASSERT_EQUAL(a.response.status, 404);
	answer_release(&a);
	rendered(NULL, id, query, true, &a);
	CU_ASSERT_EQUAL(a.response.status, 401);
	answer_release(&a);
	rendered(mallory, id, query, true, &a);
	CU_ASSERT_EQUAL(a.response.status, 404);
	answer_release(&a);
	rendered(alice, id, "as=run", true, &a);
	CU_ASSERT_EQUAL(a.response.status, 404);
	answer_release(&a);
	/* not over yet: back to hold, but not for ever */
	rendered(alice, id, query, true, &a);
	CU_ASSERT_PTR_NOT_NULL_FATAL(http_response_get(&a.response, "X-Accel-Redirect"));
	CU_ASSERT(str_ends(http_response_get(&a.response, "X-Accel-Redirect"), "&n=1"));
	answer_release(&a);
	(void)snprintf(query, sizeof(query), "as=run&t0=%lld&until=%lld&f=e&n=2", now_ms,
		       now_ms + 60000);
	rendered(alice, id, query, true, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	ASSERT_TEXT(member(&a, "phase"), "queued");
	answer_release(&a);
	api_sql(api.db, "UPDATE run SET phase = 'running' WHERE id = '%s'", id);
	(void)snprintf(query, sizeof(query), "as=run&t0=%lld&until=%lld&f=r&n=0", now_ms,
		       now_ms + 60000);
	rendered(alice, id, query, true, &a);
	ASSERT_TEXT(member(&a, "phase"), "running");
	answer_release(&a);
	api_sql(api.db,
		"UPDATE run SET phase = 'killed', message = 'canceled_by_user' WHERE id = '%s'",
		id);
	(void)snprintf(query, sizeof(query), "as=cancel&t0=%lld&until=%lld&f=e&n=0&gone=1", now_ms,
		       now_ms + 60000);
	rendered(alice, id, query, true, &a);
	CU_ASSERT(json_is_true(json_object_get(a.body, "cancelled")));
	answer_release(&a);
}

static void test_health(void)
{
	struct answer a;

	call(&(struct call){.method = "GET", .path = BASE "/health", .key = alice}, &a);
	CU_ASSERT_EQUAL(a.response.status, 200);
	CU_ASSERT(json_is_true(json_object_get(a.body, "ok")));
	ASSERT_TEXT(json_text(json_object_get(json_object_get(a.body, "store"), "mode")),
		    "mariadb");
	CU_ASSERT(json_is_false(json_object_get(json_object_get(a.body, "redis"), "enabled")));
	CU_ASSERT(json_is_real(json_object_get(json_object_get(a.body, "timings"), "store_ms")));
	answer_release(&a);
	status_is(NULL, "GET", BASE "/health", NULL, 401, "unauthorized");
	status_is(NULL, "GET", BASE "/health/public", NULL, 200, "");
}

static const struct test tests[] = {
    {"handlers_read", "clean", callrig_clean},
    {"get", "B19 foreign is unknown", test_b19_foreign},
    {"get", "B14 paths", test_b14_paths},
    {"get", "keys", test_keys},
    {"list", "pages and phases", test_list},
    {"list", "query", test_list_query},
    {"cancel", "queued, ended, running", test_cancel},
    {"artifacts", "B23 names", test_b23_names},
    {"artifacts", "B23 long names", test_long_names},
    {"artifacts", "B16 ranges", test_b16_ranges},
    {"stream", "refusals and hand-over", test_stream},
    {"render", "after a hold", test_render},
    {"health", "both", test_health},
    {"handlers_read", "leave nothing", callrig_leave_nothing},
};

int main(int argc, char **argv)
{
	return api_main(argc, argv, tests, ARRAY_LEN(tests));
}
