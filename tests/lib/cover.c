#include "tests/lib/cover.h"

#include "fcgi/router.h"
#include "handlers/runs/admin.h"
#include "handlers/runs/codec.h"
#include "handlers/runs/codec_session.h"
#include "handlers/runs/openapi.h"
#include "handlers/runs/sessions.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

#define BASE     "/api/v1/sandbox"
#define KEY_SIZE 512

static const struct field file_fields[] = {
    {.name = "path", .kind = FIELD_TEXT, .hi = 1024, .required = true},
    {.name = "content_b64", .kind = FIELD_TEXT, .required = true},
};
static const struct field_table file_table = {file_fields, ARRAY_LEN(file_fields)};

const struct cover_body cover_bodies[] = {
    {"POST", BASE "/runs", "", "RunCreate", &codec_run_table},
    {"POST", BASE "/runs", "resources", "RunCreate", &codec_resources_table},
    {"POST", BASE "/runs", "files", "RunCreate", &file_table},
    {"POST", BASE "/sessions", "", "SessionCreate", &codec_session_table},
    {"POST", BASE "/sessions/{id}/restore", "", "Restore", &snapshots_restore_table},
    {"POST", BASE "/sessions/{id}/clone", "", "Clone", &snapshots_clone_table},
    {"POST", BASE "/admin/macos-image-store/cleanup", "", "Cleanup", &admin_cleanup_table},
    {"POST", BASE "/admin/macos-reconciliation/repair", "", "Repair", &admin_repair_table},
};
const size_t cover_body_count = ARRAY_LEN(cover_bodies);

/* "route METHOD PATTERN", "field METHOD PATTERN NAME", "query METHOD PATTERN NAME", each with
 * " taken" or " refused" behind it. */
static json_t *seen;

static void note(const char *kind, const struct route *route, const char *name, bool taken)
{
	char key[KEY_SIZE];

	if (seen == NULL)
		seen = json_object();
	(void)snprintf(key, sizeof(key), "%s %s %s %s %s", kind, route->method, route->pattern,
		       name, taken ? "taken" : "refused");
	(void)json_object_set_new(seen, key, json_true());
}

static void expect(const char *kind, const char *method, const char *pattern, const char *name,
		   bool taken)
{
	char key[KEY_SIZE];
	char message[KEY_SIZE + 32];

	(void)snprintf(key, sizeof(key), "%s %s %s %s %s", kind, method, pattern, name,
		       taken ? "taken" : "refused");
	(void)snprintf(message, sizeof(message), "no case: %s", key);
	CU_assertImplementation(json_object_get(seen, key) != NULL, 0, message, __FILE__, "",
				CU_FALSE);
}

static bool is_public(const struct route *route)
{
	return str_starts(route->pattern, BASE "/");
}

static const struct route *find(const struct route *routes, size_t count,
				const struct http_request *request)
{
	for (size_t i = 0; i < count; i++) {
		struct route_match match;
		int fits;

		memset(&match, 0, sizeof(match));
		fits = is_public(&routes[i]) && str_equal(routes[i].method, request->method)
			   ? router_match(routes[i].pattern, request->path, &match)
			   : 0;
		router_match_release(&match);
		if (fits == 1)
			return &routes[i];
	}
	return NULL;
}

static bool has_value(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	return value != NULL && !json_is_null(value);
}

static void note_taken_fields(const struct route *route, const json_t *body)
{
	char name[128];

	for (size_t b = 0; b < cover_body_count; b++) {
		const struct cover_body *c = &cover_bodies[b];
		const json_t *object =
		    c->within[0] == '\0' ? body : json_object_get(body, c->within);

		if (!str_equal(c->method, route->method) || !str_equal(c->pattern, route->pattern))
			continue;
		if (json_is_array(object))
			object = json_array_get(object, 0);
		for (size_t i = 0; i < c->table->count; i++) {
			(void)snprintf(name, sizeof(name), "%s%s%s", c->within,
				       c->within[0] == '\0' ? "" : ".", c->table->fields[i].name);
			if (has_value(object, c->table->fields[i].name))
				note("field", route, name, true);
		}
	}
}

/* action_types[3] and files[0].path are the fields action_types and files.path. */
static void note_refused_fields(const struct route *route, const json_t *body)
{
	const json_t *fields =
	    json_object_get(json_object_get(json_object_get(body, "error"), "details"), "fields");

	for (size_t i = 0; i < json_array_size(fields); i++) {
		const char *field =
		    json_string_value(json_object_get(json_array_get(fields, i), "field"));
		const char *open = field == NULL ? NULL : strchr(field, '[');
		const char *close = open == NULL ? NULL : strchr(open, ']');
		char name[128];

		if (field == NULL)
			continue;
		if (close == NULL)
			(void)snprintf(name, sizeof(name), "%s", field);
		else
			(void)snprintf(name, sizeof(name), "%.*s%s", (int)(open - field), field,
				       close + 1);
		note("field", route, name, false);
		note("query", route, name, false);
	}
}

static void note_query(const struct route *route, const char *query)
{
	while (*query != '\0') {
		size_t length = strcspn(query, "&");
		char name[128];

		(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(query, "=&"), query);
		note("query", route, name, true);
		query += length;
		query += *query == '&' ? 1 : 0;
	}
}

void cover_add(const struct http_request *request, const struct http_response *response)
{
	const struct route *route = find(runs_routes, runs_route_count, request);
	bool taken = response->status < 400;
	json_t *body = NULL;

	if (route == NULL)
		route = find(system_routes, system_route_count, request);
	if (route == NULL)
		return;
	note("route", route, "", taken);
	if (taken) {
		body = json_loadb(request->body, request->body_length, 0, NULL);
		note_taken_fields(route, body);
		note_query(route, request->query);
	} else {
		body = json_loadb(buf_text(&response->body), response->body.len, 0, NULL);
		note_refused_fields(route, body);
	}
	json_decref(body);
}

static void check_routes(const struct route *routes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct route *r = &routes[i];
		/* those that nobody sees succeed or fail in this process: the web server lets
		 * uploads come here only to be refused, and an open route refuses nobody */
		bool refuses_only = str_equal(r->pattern, BASE "/sessions/{id}/files");

		if (!is_public(r))
			continue;
		if (!refuses_only)
			expect("route", r->method, r->pattern, "", true);
		if (r->access != ACCESS_OPEN)
			expect("route", r->method, r->pattern, "", false);
	}
}

void cover_check_routes(void)
{
	check_routes(runs_routes, runs_route_count);
	check_routes(system_routes, system_route_count);
}

void cover_check_fields(void)
{
	char name[128];

	for (size_t b = 0; b < cover_body_count; b++) {
		const struct cover_body *c = &cover_bodies[b];

		for (size_t i = 0; i < c->table->count; i++) {
			(void)snprintf(name, sizeof(name), "%s%s%s", c->within,
				       c->within[0] == '\0' ? "" : ".", c->table->fields[i].name);
			expect("field", c->method, c->pattern, name, true);
			expect("field", c->method, c->pattern, name, false);
		}
	}
}

/* What a $ref of this document leads to, or the value itself. */
static const json_t *resolve(const json_t *document, const json_t *value)
{
	const char *at = json_string_value(json_object_get(value, "$ref"));

	if (at == NULL || !str_starts(at, "#/"))
		return value;
	value = document;
	for (at += 1; *at == '/';) {
		size_t length = strcspn(at + 1, "/");

		value = json_object_getn(value, at + 1, length);
		at += 1 + length;
	}
	return value;
}

static bool is_limited(const json_t *schema)
{
	return json_object_get(schema, "enum") != NULL ||
	       json_object_get(schema, "minimum") != NULL ||
	       json_object_get(schema, "maxLength") != NULL ||
	       json_object_get(schema, "pattern") != NULL;
}

static void check_queries_of(const json_t *document, const char *path, const json_t *operation)
{
	const json_t *list = json_object_get(operation, "parameters");
	char pattern[KEY_SIZE];

	(void)snprintf(pattern, sizeof(pattern), "%s%s", BASE, path);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *p = resolve(document, json_array_get(list, i));
		const char *name = json_string_value(json_object_get(p, "name"));
		const json_t *schema = resolve(document, json_object_get(p, "schema"));

		if (!str_equal(json_string_value(json_object_get(p, "in")), "query"))
			continue;
		expect("query", "GET", pattern, name, true);
		/* this one has a code of its own and no fields */
		if (is_limited(schema) && !str_equal(name, "source_label"))
			expect("query", "GET", pattern, name, false);
	}
}

void cover_check_queries(void)
{
	scope_json json_t *document = json_loadb(openapi_face1.text, openapi_face1.length, 0, NULL);
	const char *path;
	json_t *item;

	CU_ASSERT_PTR_NOT_NULL_FATAL(document);
	json_object_foreach (json_object_get(document, "paths"), path, item)
		check_queries_of(document, path, json_object_get(item, "get"));
}

void cover_release(void)
{
	json_decref(seen);
	seen = NULL;
}
