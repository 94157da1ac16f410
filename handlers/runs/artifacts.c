/* Face 1: the list of artifacts and their download. The worker judges, nginx sends the bytes. */
#include "handlers/runs/runs.h"

#include "handlers/ops/op_run.h"
#include "handlers/range.h"
#include "handlers/reply.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define NAME_MAX_BYTES (4096 * 4)

/* A name as JSON can hold it: bytes that are not UTF-8 become \xHH. *out_escaped tells whether that
 * happened. */
static void show_name(struct buf *out, const char *name, size_t length, bool *out_escaped)
{
	size_t done = 0;

	*out_escaped = false;
	while (done < length) {
		bool bad;
		size_t good = str_utf8_prefix(name + done, length - done, &bad);

		buf_add(out, name + done, good);
		done += good;
		if (done < length) {
			buf_addf(out, "\\x%02X", (unsigned int)(unsigned char)name[done]);
			*out_escaped = true;
			done++;
		}
	}
}

struct listing {
	json_t *items;
	const char *run_id;
	bool failed;
};

static void add_item(const struct artifact_row *row, void *arg)
{
	struct listing *list = arg;
	scope_buf struct buf name = BUF_NONE;
	scope_buf struct buf url = BUF_NONE;
	bool escaped;
	json_t *item;

	buf_init(&name, NAME_MAX_BYTES);
	buf_init(&url, NAME_MAX_BYTES);
	show_name(&name, row->path, row->path_length, &escaped);
	buf_addf(&url, "/api/v1/sandbox/runs/%s/artifacts/", list->run_id);
	str_percent_encode(&url, row->path, row->path_length, "/");
	item = json_pack("{s:s, s:I, s:s}", "path", buf_text(&name), "size",
			 (json_int_t)row->size_bytes, "download_url", buf_text(&url));
	if (item == NULL || !buf_ok(&name) || !buf_ok(&url) ||
	    (escaped && json_object_set_new(item, "path_encoding", json_string("escaped")) != 0) ||
	    json_array_append(list->items, item) != 0)
		list->failed = true;
	json_decref(item);
}

static void fail(struct http_response *response, const struct http_request *request,
		 const struct err *e, const char *code)
{
	if (e->code == ERR_NOT_FOUND)
		reply_fail(response, &face_runs, 404, code, e->shown, NULL);
	else
		reply_err(response, &face_runs, request, e);
}

void runs_artifact_list(struct handler_context *context, const struct http_request *request,
			const struct route_match *match, const struct principal *caller,
			struct http_response *response)
{
	struct listing list = {.run_id = match->params[0]};
	struct run_row row;
	struct err e = ERR_INIT;

	if (op_run_get(context, caller, match->params[0], &row, &e) != 0) {
		fail(response, request, &e, "run_not_found");
		return;
	}
	list.items = json_array();
	if (op_artifact_list(context, row.id, add_item, &list, &e) != 0 || list.failed) {
		json_decref(list.items);
		(void)err_set(&e, ERR_NOMEM, 0, "artifact list");
		reply_err(response, &face_runs, request, &e);
		return;
	}
	reply_json(response, 200, json_pack("{s:o}", "items", list.items));
}

static const char *const types[][2] = {
    {".txt", "text/plain; charset=utf-8"},
    {".log", "text/plain; charset=utf-8"},
    {".csv", "text/csv"},
    {".json", "application/json"},
    {".html", "text/html"},
    {".htm", "text/html"},
    {".xml", "application/xml"},
    {".md", "text/markdown; charset=utf-8"},
    {".png", "image/png"},
    {".jpg", "image/jpeg"},
    {".jpeg", "image/jpeg"},
    {".gif", "image/gif"},
    {".svg", "image/svg+xml"},
    {".webp", "image/webp"},
    {".pdf", "application/pdf"},
    {".zip", "application/zip"},
    {".gz", "application/gzip"},
    {".tar", "application/x-tar"},
    {".py", "text/x-python"},
    {".js", "text/javascript"},
    {".css", "text/css"},
    {".wav", "audio/wav"},
    {".mp3", "audio/mpeg"},
    {".mp4", "video/mp4"},
};

static const char *guess_type(const char *path)
{
	const char *base = strrchr(path, '/');
	const char *dot = strrchr(base == NULL ? path : base + 1, '.');

	for (size_t i = 0; dot != NULL && i < ARRAY_LEN(types); i++)
		if (str_equal_nocase(dot, types[i][0]))
			return types[i][1];
	return "application/octet-stream";
}

/* attachment, an ASCII name for old clients and the true one by RFC 8187; nothing in it can end the
 * header. */
static void disposition(struct http_response *response, const struct artifact_row *row)
{
	scope_buf struct buf plain = BUF_NONE;
	scope_buf struct buf shown = BUF_NONE;
	scope_buf struct buf value = BUF_NONE;
	const char *base = memrchr(row->path, '/', row->path_length);
	size_t length;
	bool escaped;

	base = base == NULL ? row->path : base + 1;
	length = row->path_length - (size_t)(base - row->path);
	buf_init(&plain, NAME_MAX_BYTES);
	buf_init(&shown, NAME_MAX_BYTES);
	buf_init(&value, NAME_MAX_BYTES * 4);
	for (size_t i = 0; i < length; i++) {
		char c = base[i];

		buf_add_char(&plain,
			     c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '%' ? c : '_');
	}
	show_name(&shown, base, length, &escaped);
	buf_addf(&value, "attachment; filename=\"%s\"; filename*=UTF-8''", buf_text(&plain));
	str_percent_encode(&value, buf_text(&shown), shown.len, "");
	if (!buf_ok(&value)) {
		response->failed = true;
		return;
	}
	http_response_header(response, "Content-Disposition", buf_text(&value));
}

static void add_common(struct http_response *response, const struct artifact_row *row)
{
	http_response_header(response, "Content-Type", guess_type(row->path));
	disposition(response, row);
	http_response_header(response, "Cache-Control", "private, max-age=0, must-revalidate");
}

/* What nginx adds to files it sends, for the answers that the worker makes itself. */
static void add_own(struct http_response *response, const char *etag, const char *modified)
{
	http_response_header(response, "Accept-Ranges", "bytes");
	http_response_header(response, "ETag", etag);
	http_response_header(response, "Last-Modified", modified);
	http_response_header(response, "X-Content-Type-Options", "nosniff");
	http_response_header(response, "Content-Security-Policy", "sandbox; default-src 'none'");
}

static void http_date(char *out, size_t size, int64_t seconds)
{
	time_t when = (time_t)seconds;
	struct tm parts;

	if (gmtime_r(&when, &parts) == NULL ||
	    strftime(out, size, "%a, %d %b %Y %H:%M:%S GMT", &parts) == 0)
		out[0] = '\0';
}

void runs_artifact_get(struct handler_context *context, const struct http_request *request,
		       const struct route_match *match, const struct principal *caller,
		       struct http_response *response)
{
	scope_free struct artifact_row *file = mem_zalloc(1, sizeof(*file));
	struct run_row row;
	struct err e = ERR_INIT;
	char etag[64];
	char modified[64];
	enum range_verdict verdict;

	if (file == NULL)
		(void)err_set(&e, ERR_NOMEM, 0, "artifact");
	if (file == NULL || op_run_get(context, caller, match->params[0], &row, &e) != 0) {
		fail(response, request, &e, "run_not_found");
		return;
	}
	if (op_artifact_find(context, row.id, match->params[1], match->lengths[1], file, &e) != 0) {
		fail(response, request, &e, "artifact_not_found");
		return;
	}
	(void)snprintf(etag, sizeof(etag), "\"%llx-%llx\"", (unsigned long long)file->mtime_sec,
		       (unsigned long long)file->size_bytes);
	http_date(modified, sizeof(modified), file->mtime_sec);
	verdict = range_judge(str_equal(request->method, "GET"), http_header(request, "Range"),
			      http_header(request, "If-Range"), file->size_bytes, etag, modified);
	if (verdict == RANGE_REFUSED) {
		response->status = 416;
		http_response_headerf(response, "Content-Range", "bytes */%llu",
				      (unsigned long long)file->size_bytes);
		add_own(response, etag, modified);
		return;
	}
	add_common(response, file);
	if (file->size_bytes == 0) {
		add_own(response, etag, modified);
		return;
	}
	http_response_headerf(response, "X-Accel-Redirect", "/internal/%s/%s/%s/%u",
			      verdict == RANGE_PART ? "artifact" : "artifact-whole", row.id + 34,
			      row.id, file->ordinal);
}

void runs_artifact_archive(struct handler_context *context, const struct http_request *request,
			   const struct route_match *match, const struct principal *caller,
			   struct http_response *response)
{
	struct run_row row;
	struct err e = ERR_INIT;

	if (op_run_get(context, caller, match->params[0], &row, &e) != 0) {
		fail(response, request, &e, "run_not_found");
		return;
	}
	http_response_header(response, "Content-Type", "application/gzip");
	http_response_headerf(response, "Content-Disposition",
			      "attachment; filename=\"%s-artifacts.tar.gz\"", row.id);
	/* it is made while it is sent: for HEAD it is not made */
	if (!str_equal(request->method, "HEAD"))
		http_response_headerf(response, "X-Accel-Redirect", "/internal/archive/%s/run/%s",
				      row.node, row.id);
}
