#include "fcgi/private.h"

#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <errno.h>
#include <malloc.h>

#define NAMES_BYTES     (64U << 10)
#define KEPT_BODY_BYTES (256U << 10)

int fcgi_request_open(int listen_fd, struct fcgi_request **out, struct err *e)
{
	struct fcgi_request *r = mem_zalloc(1, sizeof(*r));

	if (r == NULL)
		return err_set(e, ERR_NOMEM, 0, "fcgi");
	if (FCGX_Init() != 0 ||
	    FCGX_InitRequest(&r->fcgx, listen_fd, FCGI_FAIL_ACCEPT_ON_INTR) != 0) {
		mem_free(r);
		return err_set(e, ERR_INTERNAL, 0, "FCGX_Init");
	}
	buf_init(&r->body, LIMIT_BODY_BYTES + 1);
	buf_init(&r->text, 3 * LIMIT_URL_BYTES * 4);
	buf_init(&r->names, NAMES_BYTES);
	*out = r;
	return 0;
}

void fcgi_request_close(struct fcgi_request *r)
{
	if (r == NULL)
		return;
	FCGX_Free(&r->fcgx, 1);
	buf_release(&r->body);
	buf_release(&r->text);
	buf_release(&r->names);
	mem_free(r);
}

int fcgi_request_accept(struct fcgi_request *r)
{
	int result = FCGX_Accept_r(&r->fcgx);

	if (result == 0)
		return 1;
	return result == -EAGAIN || result == -EINTR ? 0 : -1;
}

static const char *parameter(struct fcgi_request *r, const char *name)
{
	const char *value = FCGX_GetParam(name, r->fcgx.envp);

	return value == NULL ? "" : value;
}

/* HTTP_X_API_KEY to x-api-key, kept in r->names; the offset of its text. */
static size_t header_name(struct fcgi_request *r, const char *name, size_t length)
{
	size_t start = r->names.len;

	for (size_t i = 0; i < length; i++) {
		char c = name[i];

		buf_add_char(&r->names, c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c + 32) : c);
	}
	buf_add_char(&r->names, '\0');
	return start;
}

static int read_headers(struct fcgi_request *r, struct http_request *out, struct err *e)
{
	size_t starts[HTTP_MAX_REQUEST_HEADERS];
	const char *type = parameter(r, "CONTENT_TYPE");

	for (char **at = r->fcgx.envp; at != NULL && *at != NULL; at++) {
		const char *name = str_after(*at, "HTTP_");
		const char *equals = name == NULL ? NULL : strchr(name, '=');

		if (equals == NULL)
			continue;
		if (out->header_count >= HTTP_MAX_REQUEST_HEADERS - 1) {
			out->too_many_headers = true;
			return 0;
		}
		starts[out->header_count] = header_name(r, name, (size_t)(equals - name));
		out->headers[out->header_count++].value = equals + 1;
	}
	if (!buf_ok(&r->names))
		return err_set(e, ERR_LIMIT, 0, "header names");
	for (size_t i = 0; i < out->header_count; i++)
		out->headers[i].name = r->names.data + starts[i];
	if (type[0] != '\0') {
		out->headers[out->header_count].name = "content-type";
		out->headers[out->header_count++].value = type;
	}
	return 0;
}

static int read_body(struct fcgi_request *r, size_t max_body, struct http_request *out,
		     struct err *e)
{
	uint64_t length = 0;
	const char *text = parameter(r, "CONTENT_LENGTH");

	/* nginx buffers bodies, so a chunked one has a length here, too */
	if (text[0] != '\0' && num_u64("CONTENT_LENGTH", text, 0, INT64_MAX, &length, e) != 0)
		return -1;
	if (length > max_body) {
		out->body_too_large = true;
		return 0;
	}
	if (buf_reserve(&r->body, length) != 0)
		return err_set(e, ERR_NOMEM, 0, "body");
	while (r->body.len < length) {
		int got = FCGX_GetStr(r->body.data + r->body.len, (int)(length - r->body.len),
				      r->fcgx.in);

		if (got <= 0)
			return err_set(e, ERR_PROTOCOL, 0, "the body ends early");
		r->body.len += (size_t)got;
	}
	r->body.data[r->body.len] = '\0';
	out->body = r->body.data;
	out->body_length = r->body.len;
	return 0;
}

int fcgi_request_read(struct fcgi_request *r, size_t max_body, struct http_request *out,
		      struct err *e)
{
	/* the render location hands over the internal URL; everywhere else it is the client's own
	 */
	const char *uri = parameter(r, "REQUEST_URI");
	/* after a redirect nginx calls every method GET: the client's own has a parameter of ours
	 */
	const char *method = parameter(r, "CORDON_METHOD");
	size_t path_length = strcspn(uri, "?#");
	const char *rest = uri[path_length] == '?' ? uri + path_length + 1 : "";
	size_t query_at;

	memset(out, 0, sizeof(*out));
	buf_reset(&r->body);
	buf_reset(&r->text);
	buf_reset(&r->names);
	buf_add(&r->text, uri, path_length);
	buf_add_char(&r->text, '\0');
	query_at = r->text.len;
	buf_add(&r->text, rest, strcspn(rest, "#"));
	buf_add_char(&r->text, '\0');
	if (!buf_ok(&r->text))
		return err_set(e, ERR_LIMIT, 0, "the URL is too long");
	out->path = r->text.data;
	out->query = r->text.data + query_at;
	out->internal = parameter(r, "CORDON_INTERNAL")[0] != '\0';
	out->http2 = str_starts(parameter(r, "SERVER_PROTOCOL"), "HTTP/2");
	out->method = method[0] == '\0' ? parameter(r, "REQUEST_METHOD") : method;
	out->request_id = parameter(r, "CORDON_REQUEST_ID");
	out->body = "";
	if (read_headers(r, out, e) != 0)
		return -1;
	return out->internal ? 0 : read_body(r, max_body, out, e);
}

void fcgi_request_finish(struct fcgi_request *r)
{
	/* what a large body took is given back, or every worker would keep it */
	if (r->body.cap > KEPT_BODY_BYTES) {
		buf_release(&r->body);
		(void)malloc_trim(0);
	}
	FCGX_Finish_r(&r->fcgx);
}
