/* test_openapi: docs/openapi/face1.yaml says what the tables of routes, of fields and of error
 * codes say, and it is served. */
#include "handlers/errors.h"
#include "handlers/runs/openapi.h"
#include "handlers/runs/runs.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/cover.h"
#include "tests/lib/test.h"

#define BASE "/api/v1/sandbox"

static json_t *document;

static void fail(const char *what, const char *where)
{
	char message[512];

	(void)snprintf(message, sizeof(message), "%s: %s", what, where);
	CU_assertImplementation(CU_FALSE, 0, message, __FILE__, "", CU_FALSE);
}

/* A member of a member ...; names end with NULL. */
static json_t *member(const json_t *object, ...)
{
	va_list names;
	const char *name;

	va_start(names, object);
	while ((name = va_arg(names, const char *)) != NULL)
		object = json_object_get(object, name);
	va_end(names);
	return (json_t *)(uintptr_t)object;
}

static void test_parses(void)
{
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL_FATAL(json_parse(openapi_face1.text, openapi_face1.length, &document, &e),
			      0);
	ASSERT_TEXT(json_string_value(member(document, "openapi", NULL)), "3.1.0");
}

/* NULL when it leads nowhere. */
static const json_t *resolve(const json_t *value)
{
	const char *at = json_string_value(json_object_get(value, "$ref"));

	if (at == NULL)
		return value;
	if (!str_starts(at, "#/"))
		return NULL;
	value = document;
	for (at += 1; *at == '/';) {
		size_t length = strcspn(at + 1, "/");

		value = json_object_getn(value, at + 1, length);
		at += 1 + length;
	}
	return value;
}

static void check_refs(const json_t *value) // NOLINT(misc-no-recursion)
{
	const char *name;
	json_t *one;

	if (resolve(value) == NULL)
		fail("leads nowhere", json_string_value(json_object_get(value, "$ref")));
	if (json_is_array(value))
		for (size_t i = 0; i < json_array_size(value); i++)
			check_refs(json_array_get(value, i));
	json_object_foreach ((json_t *)(uintptr_t)value, name, one)
		check_refs(one);
}

static void test_refs(void)
{
	check_refs(document);
}

/* --- routes ---------------------------------------------------------------------------------- */

static const char *lower_of(const char *method)
{
	static const char *const names[][2] = {{"GET", "get"},
					       {"POST", "post"},
					       {"PUT", "put"},
					       {"DELETE", "delete"},
					       {"PATCH", "patch"}};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_equal(names[i][0], method))
			return names[i][1];
	return "";
}

/* {path...} is {path} in the document. */
static void path_of(const struct route *route, char *out, size_t size)
{
	const char *from = route->pattern + strlen(BASE);
	const char *rest = strstr(from, "...}");

	if (rest == NULL)
		(void)snprintf(out, size, "%s", from);
	else
		(void)snprintf(out, size, "%.*s}", (int)(rest - from), from);
}

static size_t count_parameters(const json_t *list, const char *path, const char *where)
{
	size_t count = 0;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *p = resolve(json_array_get(list, i));
		char name[128];

		if (!str_equal(json_string_value(member(p, "in", NULL)), "path"))
			continue;
		(void)snprintf(name, sizeof(name), "{%s}",
			       json_string_value(member(p, "name", NULL)));
		if (strstr(path, name) == NULL || !json_is_true(member(p, "required", NULL)))
			fail("no such parameter in the path, or not required", where);
		count++;
	}
	return count;
}

static void check_parameters(const char *path, const json_t *operation, const char *where)
{
	size_t wanted = 0;
	size_t got =
	    count_parameters(member(document, "paths", path, "parameters", NULL), path, where) +
	    count_parameters(member(operation, "parameters", NULL), path, where);

	for (const char *at = path; *at != '\0'; at++)
		wanted += *at == '{' ? 1 : 0;
	if (wanted != got)
		fail("parameters of the path", where);
}

/* Open routes say so, the stream takes queries, all others have what the document says for all. */
static void check_access(enum route_access access, const json_t *operation, const char *where)
{
	const json_t *security = member(operation, "security", NULL);

	if (access == ACCESS_OPEN ? !json_is_array(security) || json_array_size(security) != 0
	    : access == ACCESS_SOCKET
		? json_array_size(security) != 4
		: security != NULL || json_array_size(member(document, "security", NULL)) != 2)
		fail("security", where);
	if (access != ACCESS_OPEN && member(operation, "responses", "401", NULL) == NULL)
		fail("no 401", where);
}

static void check_route(const struct route *route)
{
	char path[256];
	char where[300];
	const json_t *operation;

	if (!str_starts(route->pattern, BASE "/"))
		return;
	path_of(route, path, sizeof(path));
	(void)snprintf(where, sizeof(where), "%s %s", route->method, path);
	operation = member(document, "paths", path, lower_of(route->method), NULL);
	if (operation == NULL) {
		fail("not in the document", where);
		return;
	}
	check_parameters(path, operation, where);
	check_access(route->access, operation, where);
	if (str_equal(route->method, "GET") &&
	    member(document, "paths", path, "head", "responses", NULL) == NULL)
		fail("GET without HEAD", where);
}

static void test_routes_are_described(void)
{
	for (size_t i = 0; i < runs_route_count; i++)
		check_route(&runs_routes[i]);
	for (size_t i = 0; i < system_route_count; i++)
		check_route(&system_routes[i]);
}

static bool is_served(const struct route *routes, size_t count, const char *path,
		      const char *method)
{
	char served[256];

	for (size_t i = 0; i < count; i++) {
		if (!str_starts(routes[i].pattern, BASE "/"))
			continue;
		path_of(&routes[i], served, sizeof(served));
		if (str_equal(served, path) &&
		    str_equal(lower_of(routes[i].method),
			      str_equal(method, "head") ? "get" : method))
			return true;
	}
	return false;
}

static void test_descriptions_are_served(void)
{
	const char *path;
	const char *method;
	json_t *item;
	json_t *operation;
	scope_json json_t *ids = json_object();

	json_object_foreach (member(document, "paths", NULL), path, item) {
		json_object_foreach (item, method, operation) {
			const char *id = json_string_value(member(operation, "operationId", NULL));

			if (str_equal(method, "parameters"))
				continue;
			if (id == NULL || json_object_get(ids, id) != NULL)
				fail("no operationId of its own", path);
			(void)json_object_set_new(ids, id == NULL ? "" : id, json_true());
			if (!is_served(runs_routes, runs_route_count, path, method) &&
			    !is_served(system_routes, system_route_count, path, method))
				fail("no route", path);
		}
	}
	CU_ASSERT(json_object_size(ids) > 40);
}

/* --- fields ---------------------------------------------------------------------------------- */

static bool has_text(const json_t *list, const char *text)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (str_equal(json_string_value(json_array_get(list, i)), text))
			return true;
	return false;
}

/* The type is the one wanted, and null too unless the field is required. */
static bool type_fits(const json_t *schema, const char *type, bool required)
{
	const json_t *got = json_object_get(schema, "type");

	if (required)
		return str_equal(json_string_value(got), type);
	return json_array_size(got) == 2 && has_text(got, type) && has_text(got, "null");
}

static bool is_number(const json_t *schema, const char *name, int64_t wanted)
{
	const json_t *got = json_object_get(schema, name);

	return json_is_integer(got) && json_integer_value(got) == wanted;
}

static bool choices_fit(const json_t *schema, const struct field *f)
{
	const json_t *list = json_object_get(schema, "enum");
	size_t count = 0;

	for (; f->choices[count] != NULL; count++)
		if (!has_text(list, f->choices[count]))
			return false;
	return json_array_size(list) == count + (f->required ? 0 : 1);
}

static bool field_fits(const json_t *schema, const struct field *f)
{
	switch (f->kind) {
	case FIELD_INT:
		return type_fits(schema, "integer", f->required) &&
		       is_number(schema, "minimum", f->lo) && is_number(schema, "maximum", f->hi);
	case FIELD_NUMBER:
		return type_fits(schema, "number", f->required) &&
		       is_number(schema, "minimum", f->lo) && is_number(schema, "maximum", f->hi);
	case FIELD_BOOL:
		return type_fits(schema, "boolean", f->required);
	case FIELD_TEXT:
		return type_fits(schema, "string", f->required) &&
		       (f->hi == 0 || is_number(schema, "maxLength", f->hi));
	case FIELD_CHOICE:
		return type_fits(schema, "string", f->required) && choices_fit(schema, f);
	case FIELD_ARRAY:
		return type_fits(schema, "array", f->required);
	case FIELD_OBJECT:
		return type_fits(schema, "object", f->required);
	}
	return false;
}

static void check_body(const struct cover_body *body)
{
	const json_t *schema = member(document, "components", "schemas", body->schema, NULL);
	size_t required = 0;

	if (body->within[0] != '\0') {
		schema = member(schema, "properties", body->within, NULL);
		if (json_object_get(schema, "items") != NULL)
			schema = json_object_get(schema, "items");
	}
	for (size_t i = 0; i < body->table->count; i++) {
		const struct field *f = &body->table->fields[i];
		const json_t *property = member(schema, "properties", f->name, NULL);

		if (property == NULL || !field_fits(resolve(property), f))
			fail("the field is described otherwise", f->name);
		if (has_text(member(schema, "required", NULL), f->name) != f->required)
			fail("required is described otherwise", f->name);
		required += f->required ? 1 : 0;
	}
	CU_ASSERT_EQUAL(json_object_size(member(schema, "properties", NULL)), body->table->count);
	CU_ASSERT_EQUAL(json_array_size(member(schema, "required", NULL)), required);
	CU_ASSERT_PTR_NOT_NULL(
	    member(document, "paths", body->pattern + strlen(BASE), "post", "requestBody", NULL));
}

static void test_fields(void)
{
	for (size_t i = 0; i < cover_body_count; i++)
		check_body(&cover_bodies[i]);
}

/* --- errors ---------------------------------------------------------------------------------- */

static const json_t *codes_of(int status)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "Error%d", status);
	return member(
	    json_array_get(member(document, "components", "schemas", name, "allOf", NULL), 1),
	    "properties", "error", "properties", "code", "enum", NULL);
}

static void test_errors(void)
{
	size_t described = 0;

	for (size_t i = 0; i < error_row_count; i++)
		if (!has_text(codes_of(error_rows[i].status), error_rows[i].code))
			fail("the code is not described", error_rows[i].code);
	for (int status = 400; status < 600; status++)
		described += json_array_size(codes_of(status));
	CU_ASSERT_EQUAL(described, error_row_count);
}

/* --- how it is served ------------------------------------------------------------------------ */

static void serve(const char *if_none_match, struct http_response *response)
{
	struct http_request request = {.method = "GET", .path = BASE "/openapi.json", .query = ""};

	if (if_none_match != NULL) {
		request.headers[0] = (struct http_header){"If-None-Match", if_none_match};
		request.header_count = 1;
	}
	http_response_init(response);
	runs_openapi(NULL, &request, NULL, NULL, response);
	CU_ASSERT(!response->failed);
}

static void test_served(void)
{
	struct http_response response;

	serve(NULL, &response);
	CU_ASSERT_EQUAL(response.status, 200);
	ASSERT_TEXT(http_response_get(&response, "Content-Type"), "application/json");
	ASSERT_TEXT(http_response_get(&response, "ETag"), openapi_face1.etag);
	CU_ASSERT_PTR_NOT_NULL(http_response_get(&response, "Cache-Control"));
	CU_ASSERT_EQUAL(response.body.len, openapi_face1.length);
	CU_ASSERT_EQUAL(memcmp(buf_text(&response.body), openapi_face1.text, response.body.len), 0);
	http_response_release(&response);
}

static void test_not_modified(void)
{
	static const struct {
		const char *format;
		int status;
	} cases[] = {{"%s", 304},
		     {"W/%s", 304},
		     {"\"other\", %s", 304},
		     {"\"other\",W/%s , \"more\"", 304},
		     {"*", 304},
		     {"\"other\"", 200},
		     {"", 200},
		     {"\"\"", 200},
		     {",,,", 200}};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct http_response response;
		char value[128];
		const char *place = strstr(cases[i].format, "%s");

		(void)snprintf(value, sizeof(value), "%.*s%s%s",
			       (int)(place == NULL ? strlen(cases[i].format)
						   : (size_t)(place - cases[i].format)),
			       cases[i].format, place == NULL ? "" : openapi_face1.etag,
			       place == NULL ? "" : place + 2);
		serve(value, &response);
		CU_ASSERT_EQUAL(response.status, cases[i].status);
		CU_ASSERT_EQUAL(response.body.len == 0, cases[i].status == 304);
		ASSERT_TEXT(http_response_get(&response, "ETag"), openapi_face1.etag);
		http_response_release(&response);
	}
}

static void test_release(void)
{
	json_decref(document);
	document = NULL;
}

static const struct test tests[] = {
    {"openapi", "parses", test_parses},
    {"openapi", "refs", test_refs},
    {"openapi", "routes are described", test_routes_are_described},
    {"openapi", "descriptions are served", test_descriptions_are_served},
    {"openapi", "fields", test_fields},
    {"openapi", "errors", test_errors},
    {"openapi", "served", test_served},
    {"openapi", "not modified", test_not_modified},
    {"openapi", "release", test_release},
};

TEST_MAIN(tests)
