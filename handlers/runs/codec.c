#include "handlers/runs/codec.h"

#include "handlers/admit.h"
#include "handlers/runs/reason.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define INT_MAX_FIELD INT64_C(9007199254740991)

const char *const codec_trust_levels[] = {"trusted", "standard", "untrusted", NULL};
const char *const codec_network_policies[] = {"deny_all", "allowlist", NULL};

#define AT(member) offsetof(struct run_body, member)

static const struct field run_fields[] = {
    {"spec_version", FIELD_TEXT, AT(spec_version), .hi = LIMIT_ID_BYTES},
    {"session_id", FIELD_TEXT, AT(session_id), .hi = LIMIT_ID_BYTES},
    {"base_image", FIELD_TEXT, AT(base_image), .hi = LIMIT_ID_BYTES},
    {"runtime", FIELD_CHOICE, AT(runtime), .choices = admit_runtimes},
    {"command", FIELD_ARRAY, AT(command), .required = true},
    {"env", FIELD_OBJECT, AT(env)},
    {"startup_timeout_sec", FIELD_INT, AT(startup_timeout_sec), .lo = 1, .hi = 600},
    {"timeout_sec", FIELD_INT, AT(timeout_sec), .lo = 1, .hi = 3600},
    {"resources", FIELD_OBJECT, AT(resources)},
    {"network_policy", FIELD_CHOICE, AT(network_policy), .choices = codec_network_policies},
    {"files", FIELD_ARRAY, AT(files)},
    {"capture_patterns", FIELD_ARRAY, AT(capture_patterns)},
    {"interactive", FIELD_BOOL, AT(interactive)},
    {"stdin_max_bytes", FIELD_INT, AT(stdin_max_bytes), .hi = INT_MAX_FIELD},
    {"stdin_max_frame_bytes", FIELD_INT, AT(stdin_max_frame_bytes), .hi = INT_MAX_FIELD},
    {"stdin_bps", FIELD_INT, AT(stdin_bps), .hi = INT_MAX_FIELD},
    {"stdin_idle_timeout_sec", FIELD_INT, AT(stdin_idle_timeout_sec), .hi = INT_MAX_FIELD},
    {"resume_from_seq", FIELD_INT, AT(resume_from_seq), .hi = INT_MAX_FIELD},
    {"trust_level", FIELD_CHOICE, AT(trust_level), .choices = codec_trust_levels},
    {"persona_id", FIELD_TEXT, AT(persona_id), .hi = LIMIT_ID_BYTES},
    {"workspace_id", FIELD_TEXT, AT(workspace_id), .hi = LIMIT_ID_BYTES},
    {"workspace_group_id", FIELD_TEXT, AT(workspace_group_id), .hi = LIMIT_ID_BYTES},
    {"scope_snapshot_id", FIELD_TEXT, AT(scope_snapshot_id), .hi = LIMIT_ID_BYTES},
};

static const struct field resource_fields[] = {
    {"cpu", FIELD_NUMBER, AT(cpu), .lo = 0, .hi = 1000000},
    {"memory_mb", FIELD_INT, AT(memory_mb), .lo = 64, .hi = 1 << 30},
};

const struct field_table codec_run_table = {run_fields, ARRAY_LEN(run_fields)};
const struct field_table codec_resources_table = {resource_fields, ARRAY_LEN(resource_fields)};

bool codec_blank(const struct field_text *text)
{
	return text->state != FIELD_SET || text->value[strspn(text->value, " \t\r\n")] == '\0';
}

void codec_decode_run(json_t *object, struct run_body *out, struct problems *p)
{
	memset(out, 0, sizeof(*out));
	fields_decode(object, "", run_fields, ARRAY_LEN(run_fields), out, p);
	if (out->resources.state == FIELD_SET)
		fields_decode(out->resources.value, "resources.", resource_fields,
			      ARRAY_LEN(resource_fields), out, p);
	/* a blank name is no name: only one of the two may be more than that */
	if (codec_blank(&out->session_id) == codec_blank(&out->base_image))
		problems_add(p, "base_image", "exactly one of session_id and base_image",
			     "exactly one of session_id and base_image must be given");
	if (codec_blank(&out->session_id))
		out->session_id.state = FIELD_NULL;
	if (codec_blank(&out->base_image))
		out->base_image.state = FIELD_NULL;
}

/* Texts of an array with a limit of items, bytes per item and in all. */
static int fill_texts(const json_t *array, const char *name, size_t min_items, size_t max_items,
		      size_t item_bytes, size_t total_bytes, char ***out, size_t *out_count,
		      struct problems *p, struct err *e)
{
	size_t count = json_array_size(array);
	size_t total = 0;

	if (count < min_items || count > max_items) {
		problems_add(p, name, NULL, "%s must have %zu to %zu items", name, min_items,
			     max_items);
		return 0;
	}
	*out = mem_zalloc(count + 1, sizeof(**out));
	if (*out == NULL)
		return err_set(e, ERR_NOMEM, 0, "%s", name);
	*out_count = count;
	for (size_t i = 0; i < count; i++) {
		const char *text = json_text(json_array_get(array, i));

		if (text == NULL || strlen(text) > item_bytes) {
			problems_add(p, name, NULL,
				     "%s[%zu] must be a string of at most %zu bytes without NUL",
				     name, i, item_bytes);
			text = "";
		}
		total += strlen(text);
		(*out)[i] = mem_dup(text);
		if ((*out)[i] == NULL)
			return err_set(e, ERR_NOMEM, 0, "%s", name);
	}
	if (total > total_bytes)
		problems_add(p, name, NULL, "%s may have at most %zu bytes in all", name,
			     total_bytes);
	return 0;
}

/* name: of that length. */
static int add_variable(struct run_spec *spec, const char *name, size_t length, const char *value,
			struct err *e)
{
	size_t size = length + strlen(value) + 2;
	char *text = mem_alloc(size);

	if (text == NULL)
		return err_set(e, ERR_NOMEM, 0, "env");
	(void)snprintf(text, size, "%.*s=%s", (int)length, name, value);
	spec->environment[spec->environment_count++] = text;
	return 0;
}

static int fill_environment(json_t *env, struct run_spec *spec, struct problems *p, struct err *e)
{
	size_t room = json_object_size(env) + ADMIT_ENVIRONMENT + 1;
	size_t total = 0;
	const char *name;
	json_t *value;

	if (json_object_size(env) > LIMIT_MAP_ENTRIES) {
		problems_add(p, "env", NULL, "env may have at most %d entries", LIMIT_MAP_ENTRIES);
		return 0;
	}
	spec->environment = mem_zalloc(room, sizeof(*spec->environment));
	if (spec->environment == NULL)
		return err_set(e, ERR_NOMEM, 0, "env");
	for (size_t i = 0; i < ADMIT_ENVIRONMENT; i++) {
		const char *line = admit_environment[i];
		size_t length = strcspn(line, "=");

		if (json_object_getn(env, line, length) == NULL &&
		    add_variable(spec, line, length, line + length + 1, e) != 0)
			return -1;
	}
	json_object_foreach (env, name, value) {
		const char *text = json_text(value);

		if (name[0] == '\0' || strchr(name, '=') != NULL || text == NULL) {
			problems_add(p, "env", NULL,
				     "env takes names without '=' and string values without NUL");
			continue;
		}
		total += strlen(name) + strlen(text);
		if (add_variable(spec, name, strlen(name), text, e) != 0)
			return -1;
	}
	if (total > LIMIT_MAP_BYTES)
		problems_add(p, "env", NULL, "env may have at most %u bytes in all",
			     LIMIT_MAP_BYTES);
	return 0;
}

static int64_t int_or(const struct field_int *field, int64_t otherwise)
{
	return field->state == FIELD_SET ? field->value : otherwise;
}

int codec_fill_spec(const struct run_body *body, struct run_spec *spec, struct problems *p,
		    struct err *e)
{
	if (body->command.state == FIELD_SET) {
		const char *first = json_text(json_array_get(body->command.value, 0));

		if (fill_texts(body->command.value, "command", 1, LIMIT_COMMAND_ITEMS,
			       LIMIT_COMMAND_ITEM_BYTES, LIMIT_COMMAND_TOTAL_BYTES, &spec->command,
			       &spec->command_count, p, e) != 0)
			return -1;
		if (first != NULL && first[0] == '\0')
			problems_add(p, "command", NULL, "command[0] must name a program");
	}
	if (fill_environment(body->env.state == FIELD_SET ? body->env.value : NULL, spec, p, e) !=
	    0)
		return -1;
	if (body->capture_patterns.state == FIELD_SET &&
	    fill_texts(body->capture_patterns.value, "capture_patterns", 0, LIMIT_PATTERNS,
		       LIMIT_PATTERN_BYTES, LIMIT_PATTERNS * LIMIT_PATTERN_BYTES, &spec->patterns,
		       &spec->pattern_count, p, e) != 0)
		return -1;
	spec->interactive = body->interactive.state == FIELD_SET && body->interactive.value;
	spec->stdin_max_bytes = int_or(&body->stdin_max_bytes, -1);
	spec->stdin_max_frame_bytes = int_or(&body->stdin_max_frame_bytes, -1);
	spec->stdin_bytes_per_second = int_or(&body->stdin_bps, -1);
	spec->stdin_idle_timeout_sec = int_or(&body->stdin_idle_timeout_sec, -1);
	return 0;
}

/* Relative, no empty, "." or ".." segment. */
static bool path_is_good(const char *path)
{
	size_t length = strlen(path);

	if (length == 0 || length > LIMIT_PATH_BYTES)
		return false;
	for (;;) {
		size_t segment = strcspn(path, "/");

		if (segment == 0 || segment > 255 || (segment == 1 && path[0] == '.') ||
		    (segment == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += segment;
		if (*path == '\0')
			return true;
		path++;
	}
}

/* "a" is above "a/b". */
static bool is_above(const char *folder, const char *path)
{
	const char *rest = str_after(path, folder);

	return rest != NULL && rest[0] == '/';
}

static int decode_file(const json_t *item, size_t index, struct run_spec *spec, struct buf *blob,
		       struct err *e)
{
	const char *path = json_text(json_object_get(item, "path"));
	const json_t *content = json_object_get(item, "content_b64");
	size_t before = blob->len;

	if (path == NULL || !path_is_good(path))
		return err_show(
		    e, ERR_INVALID,
		    "files[%zu].path must be a relative path of at most %d bytes without empty, "
		    "\".\" or \"..\" segments and without NUL",
		    index, LIMIT_PATH_BYTES);
	for (size_t k = 0; k < spec->file_count; k++) {
		const char *other = spec->files[k].path;

		if (str_equal(other, path))
			return err_show(e, ERR_INVALID, "files[%zu].path is there twice", index);
		if (is_above(other, path) || is_above(path, other))
			return err_show(
			    e, ERR_INVALID,
			    "files[%zu].path and files[%zu].path: one is a folder of the "
			    "other",
			    index, k);
	}
	if (content == NULL)
		return err_show(e, ERR_INVALID, "files[%zu].content_b64 is required", index);
	if (!json_is_string(content) ||
	    str_unbase64(blob, json_string_value(content), json_string_length(content)) != 0) {
		if (buf_error(blob) == ERR_NOMEM)
			return err_set(e, ERR_NOMEM, 0, "files");
		if (!buf_ok(blob))
			return err_show(e, ERR_INVALID,
					"files may have at most %zu bytes decoded in all",
					blob->max);
		return err_show(e, ERR_INVALID,
				"files[%zu].content_b64 must be base64 with padding", index);
	}
	spec->files[spec->file_count].path = mem_dup(path);
	if (spec->files[spec->file_count].path == NULL)
		return err_set(e, ERR_NOMEM, 0, "files");
	spec->files[spec->file_count].size_bytes = blob->len - before;
	spec->file_count++;
	return 0;
}

int codec_decode_files(const struct run_body *body, const struct policy *policy,
		       struct run_spec *spec, struct buf *blob, struct err *e)
{
	size_t count = body->files.state == FIELD_SET ? json_array_size(body->files.value) : 0;

	buf_init(blob, (size_t)policy->runs.inline_files_bytes);
	if (count == 0)
		return 0;
	if (count > LIMIT_FILES)
		return err_show(e, ERR_INVALID, "files may have at most %d items", LIMIT_FILES);
	spec->files = mem_zalloc(count, sizeof(*spec->files));
	if (spec->files == NULL)
		return err_set(e, ERR_NOMEM, 0, "files");
	for (size_t i = 0; i < count; i++)
		if (decode_file(json_array_get(body->files.value, i), i, spec, blob, e) != 0)
			return -1;
	return 0;
}

static json_t *as_integer(const json_t *number)
{
	double value = json_number_value(number);

	return json_is_integer(number) ? json_integer(json_integer_value(number))
				       : json_integer((json_int_t)value);
}

/* The known members of the inline files. */
static json_t *known_files(const json_t *files)
{
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(files); i++) {
		const json_t *item = json_array_get(files, i);

		if (json_array_append_new(list,
					  json_pack("{s:O?, s:O?}", "path",
						    json_object_get(item, "path"), "content_b64",
						    json_object_get(item, "content_b64"))) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

int codec_copy_known(json_t *known, const json_t *object, const struct field *fields, size_t count)
{
	int bad = 0;

	for (size_t i = 0; i < count; i++) {
		json_t *value = json_object_get(object, fields[i].name);

		if (value != NULL)
			bad |= json_object_set(known, fields[i].name, value);
	}
	/* the model holds integers as integers and the cpu share as a real: 60.0 is 60 and 1 is 1.0
	 */
	for (size_t i = 0; i < count; i++) {
		json_t *value = json_object_get(known, fields[i].name);

		if (fields[i].kind == FIELD_INT && json_is_real(value))
			bad |= json_object_set_new(known, fields[i].name, as_integer(value));
		if (fields[i].kind == FIELD_NUMBER && json_is_number(value))
			bad |= json_object_set_new(known, fields[i].name,
						   json_real(json_number_value(value)));
	}
	return bad;
}

int codec_fingerprint_run(const json_t *object, unsigned char out[32], struct err *e)
{
	scope_json json_t *known = json_object();
	scope_json json_t *clean = NULL;
	json_t *resources;
	int bad = 0;

	bad |= json_object_set_new(known, "spec_version", json_string("1.0"));
	bad |= json_object_set_new(known, "timeout_sec", json_integer(300));
	bad |= json_object_set_new(known, "trust_level", json_string("standard"));
	bad |= codec_copy_known(known, object, run_fields, ARRAY_LEN(run_fields));
	if (json_is_array(json_object_get(known, "files")))
		bad |= json_object_set_new(known, "files",
					   known_files(json_object_get(known, "files")));
	resources = json_object_get(known, "resources");
	if (json_is_object(resources)) {
		json_t *copy = json_object();

		bad |=
		    codec_copy_known(copy, resources, resource_fields, ARRAY_LEN(resource_fields));
		bad |= json_object_set_new(known, "resources", copy);
	}
	clean = json_without_nulls(known);
	if (bad != 0 || clean == NULL)
		return err_set(e, ERR_NOMEM, 0, "fingerprint");
	return json_fingerprint(clean, out, e);
}

static json_t *text_or_null(const char *text)
{
	return text[0] == '\0' ? json_null() : json_string(text);
}

static json_t *stream_url(const struct policy *policy, const struct run_row *row)
{
	char url[1024];
	size_t used;

	(void)snprintf(url, sizeof(url), "%s/api/v1/sandbox/runs/%s/stream", policy->stream_url,
		       row->id);
	used = strlen(url);
	if (row->resume_from_seq > 0)
		(void)snprintf(url + used, sizeof(url) - used, "?from_seq=%lld",
			       (long long)row->resume_from_seq);
	return json_string(url);
}

json_t *codec_run(const struct policy *policy, const struct run_row *row)
{
	scope_json json_t *usage = NULL;
	struct err ignored = ERR_INIT;
	const struct reason *reason;
	json_t *run = json_object();
	int bad = 0;

	if (row->resource_usage[0] == '\0')
		usage = json_null();
	else if (json_parse(row->resource_usage, strlen(row->resource_usage), &usage, &ignored) !=
		 0)
		bad = -1;
	reason = reason_derive(run_phase_name(row->phase), row->message, row->has_exit,
			       row->exit_code, usage);

#define SET(name, value) (bad |= json_object_set_new(run, name, value))
	SET("id", json_string(row->id));
	SET("spec_version", json_string(row->spec_version));
	SET("runtime", json_string(row->runtime));
	SET("runtime_version", text_or_null(row->runtime_version));
	SET("base_image", text_or_null(row->base_image));
	SET("image_digest", text_or_null(row->image_digest));
	SET("policy_hash", text_or_null(row->policy_hash));
	SET("phase", json_string(run_phase_name(row->phase)));
	SET("status_reason_code", json_string(reason->code));
	SET("status_reason_details", reason_details(reason));
	SET("exit_code", row->has_exit ? json_integer(row->exit_code) : json_null());
	SET("created_at", text_or_null(row->created_at));
	SET("started_at", text_or_null(row->started_at));
	SET("finished_at", text_or_null(row->finished_at));
	SET("message", text_or_null(row->message));
	SET("resource_usage", json_incref(usage));
	SET("estimated_start_time",
	    row->phase == RUN_QUEUED ? text_or_null(row->estimated_start_at) : json_null());
	SET("log_stream_url", stream_url(policy, row));
	SET("session_id", text_or_null(row->session_id));
	SET("persona_id", text_or_null(row->persona_id));
	SET("workspace_id", text_or_null(row->workspace_id));
	SET("workspace_group_id", text_or_null(row->workspace_group_id));
	SET("scope_snapshot_id", text_or_null(row->scope_snapshot_id));
#undef SET
	if (bad != 0) {
		json_decref(run);
		return NULL;
	}
	return run;
}
