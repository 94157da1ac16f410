/* A run's result on disk, from before its box is removed until the database has it. JSON, because
 * it is read once in a blue moon. */
#include "runners/supervisor/supervisor.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

#include <fcntl.h>

#define RESULT_MAX_BYTES (16U << 20)

static int result_path(const struct policy *policy, const char *run_id, char *out, size_t size,
		       struct err *e)
{
	char folder[SPOOL_PATH_BYTES];

	if (spool_folder(folder, policy->paths.data, "spool", run_id, e) != 0)
		return -1;
	(void)snprintf(out, size, "%s/result", folder);
	return 0;
}

static json_t *encode_artifacts(const struct run_result *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->artifact_count; i++) {
		const struct ended_artifact *a = &r->artifacts[i];
		struct buf path;
		json_t *item = NULL;

		buf_init(&path, LIMIT_PATH_BYTES * 4);
		str_base64(&path, a->path, a->path_length);
		if (buf_ok(&path))
			item =
			    json_pack("{s:s, s:I, s:I}", "path", buf_text(&path), "size",
				      (json_int_t)a->size_bytes, "mtime", (json_int_t)a->mtime_sec);
		buf_release(&path);
		if (item == NULL || json_array_append_new(list, item) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

int result_save(const struct policy *policy, const struct run_result *result, struct err *e)
{
	scope_json json_t *root = NULL;
	scope_buf struct buf text = BUF_NONE;
	char path[SPOOL_PATH_BYTES + 16];
	json_t *artifacts = encode_artifacts(result);

	buf_init(&text, RESULT_MAX_BYTES);
	root =
	    json_pack("{s:s, s:b, s:s, s:b, s:I, s:I, s:s?, s:I, s:I, s:o}", "phase",
		      run_phase_name(result->phase), "ours", result->ours, "message",
		      result->message, "has_exit", result->has_exit, "exit_code",
		      (json_int_t)result->exit_code, "last_seq", (json_int_t)result->last_seq,
		      "usage", result->usage, "log_bytes", (json_int_t)result->log_bytes,
		      "artifact_bytes", (json_int_t)result->artifact_bytes, "artifacts", artifacts);
	if (root == NULL)
		return err_set(e, ERR_NOMEM, 0, "result");
	if (json_write(&text, root, e) != 0 ||
	    result_path(policy, result->claim.run_id, path, sizeof(path), e) != 0)
		return -1;
	return fd_replace_file(AT_FDCWD, path, text.data, text.len, 0600, e);
}

static int decode_artifacts(const json_t *list, struct run_result *out, struct err *e)
{
	size_t count = json_array_size(list);

	out->artifacts = mem_zalloc(count, sizeof(*out->artifacts));
	if (out->artifacts == NULL)
		return err_set(e, ERR_NOMEM, 0, "result");
	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_array_get(list, i);
		const json_t *path = json_object_get(item, "path");
		struct ended_artifact *a = &out->artifacts[i];
		struct buf bytes;

		buf_init(&bytes, LIMIT_PATH_BYTES * 2);
		if (!json_is_string(path) ||
		    str_unbase64(&bytes, json_string_value(path), json_string_length(path)) != 0) {
			buf_release(&bytes);
			return err_set(e, ERR_PROTOCOL, 0, "result: artifact");
		}
		a->path = buf_steal(&bytes, &a->path_length);
		a->size_bytes = (uint64_t)json_integer_value(json_object_get(item, "size"));
		a->mtime_sec = json_integer_value(json_object_get(item, "mtime"));
		if (a->path == NULL)
			return err_set(e, ERR_NOMEM, 0, "result");
		out->artifact_count++;
	}
	return 0;
}

static int decode(const json_t *root, struct run_result *out, struct err *e)
{
	const char *phase = json_string_value(json_object_get(root, "phase"));
	const char *message = json_string_value(json_object_get(root, "message"));
	const char *usage = json_string_value(json_object_get(root, "usage"));

	if (phase == NULL || run_phase_parse(phase, &out->phase) != 0 || message == NULL ||
	    !run_phase_terminal(out->phase) ||
	    str_copy(out->message, sizeof(out->message), message) != 0)
		return err_set(e, ERR_PROTOCOL, 0, "result: phase or message");
	out->ours = json_is_true(json_object_get(root, "ours"));
	out->has_exit = json_is_true(json_object_get(root, "has_exit"));
	out->exit_code = json_integer_value(json_object_get(root, "exit_code"));
	out->last_seq = (uint64_t)json_integer_value(json_object_get(root, "last_seq"));
	out->log_bytes = (uint64_t)json_integer_value(json_object_get(root, "log_bytes"));
	out->artifact_bytes = (uint64_t)json_integer_value(json_object_get(root, "artifact_bytes"));
	out->usage = mem_dup(usage);
	if (usage != NULL && out->usage == NULL)
		return err_set(e, ERR_NOMEM, 0, "result");
	return decode_artifacts(json_object_get(root, "artifacts"), out, e);
}

int result_load(const struct policy *policy, const struct claim *claim, struct run_result **out,
		struct err *e)
{
	scope_json json_t *root = NULL;
	scope_buf struct buf text = BUF_NONE;
	char path[SPOOL_PATH_BYTES + 16];
	struct run_result *result;

	buf_init(&text, RESULT_MAX_BYTES);
	if (result_path(policy, claim->run_id, path, sizeof(path), e) != 0)
		return -1;
	if (fd_read_file(AT_FDCWD, path, &text, e) != 0) {
		if (e->code != ERR_NOT_FOUND)
			return -1;
		err_clear(e);
		return 0;
	}
	if (json_parse(buf_text(&text), text.len, &root, e) != 0)
		return -1;
	result = mem_zalloc(1, sizeof(*result));
	if (result == NULL)
		return err_set(e, ERR_NOMEM, 0, "result");
	result->claim = *claim;
	if (decode(root, result, e) != 0) {
		run_result_free(result);
		return -1;
	}
	*out = result;
	return 1;
}

void result_remove(const struct policy *policy, const char *run_id)
{
	char path[SPOOL_PATH_BYTES + 16];
	struct err ignored = ERR_INIT;

	if (result_path(policy, run_id, path, sizeof(path), &ignored) == 0)
		(void)unlink(path);
}
