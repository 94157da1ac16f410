#include "runners/core/spec.h"

#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

struct number_field {
	const char *name;
	size_t offset;
	int64_t lo;
};

#define NUMBER(field)                                       \
	{                                                   \
#field, offsetof(struct run_spec, field), 0 \
	}
/* -1 stands for "not set" */
#define OPTIONAL(field)                                      \
	{                                                    \
#field, offsetof(struct run_spec, field), -1 \
	}

static const struct number_field numbers[] = {
    OPTIONAL(stdin_max_bytes),
    OPTIONAL(stdin_max_frame_bytes),
    OPTIONAL(stdin_bytes_per_second),
    OPTIONAL(stdin_idle_timeout_sec),
    NUMBER(startup_timeout_ms),
    NUMBER(timeout_ms),
    NUMBER(cancel_grace_ms),
    NUMBER(cpu_milli),
    NUMBER(memory_bytes),
    NUMBER(workspace_bytes),
    NUMBER(workspace_inodes),
    NUMBER(tmp_bytes),
    NUMBER(result_bytes),
    NUMBER(pids),
    NUMBER(nofile),
    NUMBER(log_bytes),
    NUMBER(artifact_file_bytes),
    NUMBER(artifact_run_bytes),
    NUMBER(artifact_user_bytes),
};

static int64_t *number_at(struct run_spec *spec, const struct number_field *field)
{
	return (int64_t *)(void *)((char *)spec + field->offset);
}

void spec_init(struct run_spec *spec)
{
	memset(spec, 0, sizeof(*spec));
	spec->stdin_max_bytes = -1;
	spec->stdin_max_frame_bytes = -1;
	spec->stdin_bytes_per_second = -1;
	spec->stdin_idle_timeout_sec = -1;
}

static void free_list(char **list, size_t count)
{
	for (size_t i = 0; list != NULL && i < count; i++)
		mem_free(list[i]);
	mem_free(list);
}

void spec_release(struct run_spec *spec)
{
	free_list(spec->command, spec->command_count);
	free_list(spec->environment, spec->environment_count);
	free_list(spec->patterns, spec->pattern_count);
	for (size_t i = 0; spec->files != NULL && i < spec->file_count; i++)
		mem_free(spec->files[i].path);
	mem_free(spec->files);
	mem_free(spec->runtime);
	mem_free(spec->image);
	mem_free(spec->network);
	mem_free(spec->cwd);
	mem_free(spec->sandbox);
	mem_free(spec->session);
	spec_init(spec);
}

static json_t *encode_list(char *const *list, size_t count)
{
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++) {
		if (json_array_append_new(array, json_string(list[i])) != 0) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

int spec_encode(const struct run_spec *spec, struct buf *out, struct err *e)
{
	scope_json json_t *root = json_object();
	json_t *files = json_array();
	char hash[65];
	int bad = 0;

	str_hex(hash, spec->blob_sha256, sizeof(spec->blob_sha256));
	for (size_t i = 0; i < spec->file_count; i++)
		bad |= json_array_append_new(
		    files, json_pack("{s:s, s:I}", "path", spec->files[i].path, "size",
				     (json_int_t)spec->files[i].size_bytes));
	bad |= json_object_set_new(root, "files", files);
	bad |=
	    json_object_set_new(root, "command", encode_list(spec->command, spec->command_count));
	bad |= json_object_set_new(root, "environment",
				   encode_list(spec->environment, spec->environment_count));
	bad |=
	    json_object_set_new(root, "patterns", encode_list(spec->patterns, spec->pattern_count));
	bad |= json_object_set_new(root, "blob_bytes", json_integer((json_int_t)spec->blob_bytes));
	bad |= json_object_set_new(root, "blob_sha256", json_string(hash));
	bad |= json_object_set_new(root, "runtime", json_string(spec->runtime));
	bad |= json_object_set_new(root, "image", json_string(spec->image));
	bad |= json_object_set_new(root, "network", json_string(spec->network));
	bad |= json_object_set_new(root, "cwd",
				   json_string(spec->cwd == NULL ? "/workspace" : spec->cwd));
	bad |= json_object_set_new(root, "sandbox",
				   json_string(spec->sandbox == NULL ? "" : spec->sandbox));
	if (spec->session != NULL && spec->session[0] != '\0')
		bad |= json_object_set_new(root, "session", json_string(spec->session));
	bad |= json_object_set_new(root, "persistent", json_boolean(spec->persistent));
	bad |= json_object_set_new(root, "fresh_network", json_boolean(spec->fresh_network));
	bad |= json_object_set_new(root, "interactive", json_boolean(spec->interactive));
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		int64_t value = *number_at((struct run_spec *)(uintptr_t)spec, &numbers[i]);

		bad |= json_object_set_new(root, numbers[i].name, json_integer(value));
	}
	if (bad != 0)
		return err_set(e, ERR_NOMEM, 0, "spec");
	return json_write(out, root, e);
}

static int decode_list(const json_t *root, const char *name, char ***out, size_t *out_count,
		       struct err *e)
{
	const json_t *array = json_object_get(root, name);
	size_t count = json_array_size(array);

	if (!json_is_array(array))
		return err_set(e, ERR_PROTOCOL, 0, "spec: %s", name);
	*out = mem_zalloc(count + 1, sizeof(**out));
	if (*out == NULL)
		return err_set(e, ERR_NOMEM, 0, "spec");
	*out_count = count;
	for (size_t i = 0; i < count; i++) {
		const char *text = json_text(json_array_get(array, i));

		if (text == NULL)
			return err_set(e, ERR_PROTOCOL, 0, "spec: %s", name);
		(*out)[i] = mem_dup(text);
		if ((*out)[i] == NULL)
			return err_set(e, ERR_NOMEM, 0, "spec");
	}
	return 0;
}

static int decode_files(const json_t *root, struct run_spec *out, struct err *e)
{
	const json_t *array = json_object_get(root, "files");
	size_t count = json_array_size(array);

	if (!json_is_array(array) || count > LIMIT_FILES)
		return err_set(e, ERR_PROTOCOL, 0, "spec: files");
	out->files = mem_zalloc(count, sizeof(*out->files));
	if (out->files == NULL)
		return err_set(e, ERR_NOMEM, 0, "spec");
	out->file_count = count;
	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_array_get(array, i);
		const char *path = json_text(json_object_get(item, "path"));
		const json_t *size = json_object_get(item, "size");

		if (path == NULL || !json_is_integer(size) || json_integer_value(size) < 0)
			return err_set(e, ERR_PROTOCOL, 0, "spec: files");
		out->files[i].path = mem_dup(path);
		out->files[i].size_bytes = (uint64_t)json_integer_value(size);
		if (out->files[i].path == NULL)
			return err_set(e, ERR_NOMEM, 0, "spec");
	}
	return 0;
}

static int decode_text(const json_t *root, const char *name, char **out, struct err *e)
{
	const char *text = json_text(json_object_get(root, name));

	if (text == NULL)
		return err_set(e, ERR_PROTOCOL, 0, "spec: %s", name);
	*out = mem_dup(text);
	return *out == NULL ? err_set(e, ERR_NOMEM, 0, "spec") : 0;
}

static int decode_flag(const json_t *root, const char *name, bool *out, struct err *e)
{
	const json_t *value = json_object_get(root, name);

	if (!json_is_boolean(value))
		return err_set(e, ERR_PROTOCOL, 0, "spec: %s", name);
	*out = json_is_true(value);
	return 0;
}

static int decode(const json_t *root, struct run_spec *out, struct err *e)
{
	const json_t *size = json_object_get(root, "blob_bytes");
	const char *hash = json_text(json_object_get(root, "blob_sha256"));
	uint64_t files = 0;

	if (!json_is_integer(size) || json_integer_value(size) < 0 || hash == NULL ||
	    str_unhex(out->blob_sha256, sizeof(out->blob_sha256), hash) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "spec: blob");
	out->blob_bytes = (uint64_t)json_integer_value(size);
	if (decode_flag(root, "interactive", &out->interactive, e) != 0 ||
	    decode_flag(root, "persistent", &out->persistent, e) != 0 ||
	    decode_flag(root, "fresh_network", &out->fresh_network, e) != 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		const json_t *value = json_object_get(root, numbers[i].name);

		if (!json_is_integer(value) || json_integer_value(value) < numbers[i].lo)
			return err_set(e, ERR_PROTOCOL, 0, "spec: %s", numbers[i].name);
		*number_at(out, &numbers[i]) = json_integer_value(value);
	}
	if (decode_files(root, out, e) != 0 ||
	    decode_list(root, "command", &out->command, &out->command_count, e) != 0 ||
	    decode_list(root, "environment", &out->environment, &out->environment_count, e) != 0 ||
	    decode_list(root, "patterns", &out->patterns, &out->pattern_count, e) != 0 ||
	    decode_text(root, "runtime", &out->runtime, e) != 0 ||
	    decode_text(root, "image", &out->image, e) != 0 ||
	    decode_text(root, "network", &out->network, e) != 0 ||
	    decode_text(root, "cwd", &out->cwd, e) != 0 ||
	    decode_text(root, "sandbox", &out->sandbox, e) != 0)
		return -1;
	if (json_object_get(root, "session") != NULL &&
	    decode_text(root, "session", &out->session, e) != 0)
		return -1;
	if (out->command_count == 0 && out->sandbox[0] == '\0')
		return err_set(e, ERR_PROTOCOL, 0, "spec: command is empty");
	/* the files lie one behind the other in the blob: nobody may read past it */
	for (size_t i = 0; i < out->file_count; i++)
		if (__builtin_add_overflow(files, out->files[i].size_bytes, &files))
			return err_set(e, ERR_PROTOCOL, 0, "spec: files");
	if (files != out->blob_bytes)
		return err_set(e, ERR_PROTOCOL, 0, "spec: files and blob_bytes differ");
	return 0;
}

int spec_decode(const char *text, size_t length, struct run_spec *out, struct err *e)
{
	scope_json json_t *root = NULL;
	struct run_spec spec;

	struct err why = ERR_INIT;

	if (json_parse(text, length, &root, &why) != 0)
		return err_set(e, why.code == ERR_NOMEM ? ERR_NOMEM : ERR_PROTOCOL, 0, "spec: %s",
			       why.text);
	spec_init(&spec);
	if (decode(root, &spec, e) != 0) {
		spec_release(&spec);
		return -1;
	}
	*out = spec;
	return 0;
}
