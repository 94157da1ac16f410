#include "tests/lib/callrig.h"

#include "fcgi/router.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <openssl/sha.h>

struct api api;
char alice[API_KEY_SIZE];
char bob[API_KEY_SIZE];
char mallory[API_KEY_SIZE];
char admin[API_KEY_SIZE];
char operator_[API_KEY_SIZE];

void callrig_clean(void)
{
	api_open(&api, NODE);
	api_forget(api.db, TENANT);
	api_key(api.db, TENANT "-a", "alice", "user", alice);
	api_key(api.db, TENANT "-a", "bob", "user", bob);
	api_key(api.db, TENANT "-b", "alice", "user", mallory);
	api_key(api.db, TENANT "-a", "root", "admin", admin);
	api_key(api.db, TENANT "-c", "op", "operator", operator_);
	CU_ASSERT_EQUAL(
	    api_number(api.db, "SELECT COUNT(*) FROM api_key WHERE tenant LIKE '%s%%'", TENANT), 5);
}

void callrig_leave_nothing(void)
{
	api_forget(api.db, TENANT);
	CU_ASSERT_EQUAL(api_number(api.db, "SELECT COUNT(*) FROM job WHERE node = '%s'", NODE), 0);
	api_close(&api);
}

void answer_release(struct answer *a)
{
	json_decref(a->body);
	http_response_release(&a->response);
}

void check_no_leak(const struct answer *a, const char *key)
{
	static const char *const words[] = {"SELECT",         "INSERT",   "UPDATE ", "mysql",
					    "MariaDB server", "/var/lib", "/run/",   "/work",
					    "cordon-dev",     "sha256_",  ".c:",     "errno"};
	const char *text = buf_text(&a->response.body);

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		CU_ASSERT_PTR_NULL(strstr(text, words[i]));
	if (key != NULL && key[0] != '\0')
		CU_ASSERT_PTR_NULL(strstr(text, key));
	for (size_t i = 0; i < a->response.header_count; i++) {
		CU_ASSERT_PTR_NULL(strpbrk(a->response.headers[i].value, "\r\n"));
		for (size_t k = 0; k < i; k++)
			CU_ASSERT_FALSE(str_equal_nocase(a->response.headers[i].name,
							 a->response.headers[k].name));
	}
}

void call(const struct call *c, struct answer *a)
{
	struct http_request request = {.method = c->method,
				       .path = c->path,
				       .query = c->query == NULL ? "" : c->query,
				       .request_id = "req-test",
				       .body = c->body == NULL ? "" : c->body,
				       .body_length = c->body == NULL ? 0 : strlen(c->body)};
	struct err e = ERR_INIT;

	if (c->key != NULL)
		request.headers[request.header_count++] = (struct http_header){"X-API-KEY", c->key};
	for (size_t i = 0; i < ARRAY_LEN(c->more) && c->more[i].name != NULL; i++)
		request.headers[request.header_count++] = c->more[i];
	memset(a, 0, sizeof(*a));
	http_response_init(&a->response);
	trace_init(&api.context.trace);
	trace_mark(&api.context.trace, TRACE_ACCEPTED);
	api.context.traced_run[0] = '\0';
	router_serve(&api.context, &request, &a->response);
	CU_ASSERT_FALSE(a->response.failed);
	a->code = "";
	if (a->response.body.len > 0 &&
	    json_parse(buf_text(&a->response.body), a->response.body.len, &a->body, &e) != 0)
		CU_FAIL("the body is no JSON");
	if (a->response.status >= 400 && a->response.status != 416) {
		json_t *error = json_object_get(a->body, "error");

		ASSERT_TEXT(http_response_get(&a->response, "Content-Type"), "application/json");
		CU_ASSERT_EQUAL(json_object_size(a->body), 1);
		CU_ASSERT_EQUAL(json_object_size(error), 3);
		CU_ASSERT_PTR_NOT_NULL(json_text(json_object_get(error, "message")));
		CU_ASSERT(json_is_object(json_object_get(error, "details")));
		a->code = json_text(json_object_get(error, "code"));
		CU_ASSERT_PTR_NOT_NULL_FATAL(a->code);
	}
	check_no_leak(a, c->key);
}

json_t *details(const struct answer *a)
{
	return json_object_get(json_object_get(a->body, "error"), "details");
}

const char *member(const struct answer *a, const char *name)
{
	const char *text = json_text(json_object_get(a->body, name));

	return text == NULL ? "(none)" : text;
}

void post(const char *key, const char *idem, const char *body, struct answer *a)
{
	struct call c = {.method = "POST", .path = BASE "/runs", .key = key, .body = body};

	c.more[0] = (struct http_header){"Prefer", "respond-async"};
	if (idem != NULL)
		c.more[1] = (struct http_header){"Idempotency-Key", idem};
	call(&c, a);
}

/* A new queued run of this key's owner. */
void make_run(const char *key, char id[IDENT_UUID_SIZE])
{
	struct answer a;

	post(key, NULL, RUN, &a);
	CU_ASSERT_EQUAL_FATAL(a.response.status, 200);
	CU_ASSERT_EQUAL_FATAL(str_copy(id, IDENT_UUID_SIZE, member(&a, "id")), 0);
	answer_release(&a);
}

void get(const char *key, const char *path, struct answer *a)
{
	call(&(struct call){.method = "GET", .path = path, .key = key}, a);
}

void status_is(const char *key, const char *method, const char *path, const char *query, int status,
	       const char *code)
{
	struct answer a;

	call(&(struct call){.method = method, .path = path, .query = query, .key = key}, &a);
	CU_ASSERT_EQUAL(a.response.status, status);
	ASSERT_TEXT(a.code, code);
	answer_release(&a);
}

void body_is(const char *body, int status, const char *code)
{
	struct answer a;

	post(alice, NULL, body, &a);
	CU_ASSERT_EQUAL(a.response.status, status);
	ASSERT_TEXT(a.code, code);
	answer_release(&a);
}

void add_artifact(const char *id, size_t ordinal, const char *path, size_t length, int64_t size)
{
	unsigned char hash[SHA256_DIGEST_LENGTH];
	struct err e = ERR_INIT;
	struct store_value in[] = {SV_TEXT(id),
				   SV_I64((int64_t)ordinal),
				   SV_BYTES(path, length),
				   SV_BYTES(hash, sizeof(hash)),
				   SV_I64(size),
				   SV_I64(1767225600)};

	(void)SHA256((const unsigned char *)path, length, hash);
	CU_ASSERT_EQUAL_FATAL(store_exec(api.db, STMT_ARTIFACT_INSERT, in, ARRAY_LEN(in), NULL, &e),
			      0);
}
