#include "handlers/http.h"

#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <stdarg.h>

const char *http_header(const struct http_request *request, const char *name)
{
	for (size_t i = 0; i < request->header_count; i++)
		if (str_equal_nocase(request->headers[i].name, name))
			return request->headers[i].value;
	return NULL;
}

static int decode_parameter(const char *text, size_t length, struct buf *out)
{
	scope_buf struct buf spaced = BUF_NONE;

	buf_init(&spaced, LIMIT_URL_BYTES * 4);
	for (size_t i = 0; i < length; i++)
		buf_add_char(&spaced, text[i] == '+' ? ' ' : text[i]);
	if (buf_error(&spaced) == ERR_NOMEM)
		out->failed = true;
	if (!buf_ok(&spaced) || str_percent_decode(out, buf_text(&spaced), spaced.len) != 0)
		return -1;
	return out->len > 0 && memchr(out->data, '\0', out->len) != NULL ? -1 : 0;
}

int http_query(const struct http_request *request, const char *name, struct buf *out)
{
	const char *at = request->query;
	size_t name_length = strlen(name);

	buf_reset(out);
	while (*at != '\0') {
		size_t length = strcspn(at, "&");
		const char *equals = memchr(at, '=', length);
		size_t key_length = equals == NULL ? length : (size_t)(equals - at);

		if (key_length == name_length && memcmp(at, name, name_length) == 0) {
			if (equals == NULL)
				return 1;
			return decode_parameter(equals + 1, length - key_length - 1, out) == 0 ? 1
											       : -1;
		}
		at += length;
		if (*at == '&')
			at++;
	}
	return 0;
}

void http_response_init(struct http_response *response)
{
	memset(response, 0, sizeof(*response));
	response->status = 200;
	buf_init(&response->body, LIMIT_REPLY_BYTES);
}

void http_response_release(struct http_response *response)
{
	for (size_t i = 0; i < response->header_count; i++)
		mem_free(
		    (void *)(uintptr_t)response->headers[i].value); // NOLINT: ours, made by mem_dup
	response->header_count = 0;
	buf_release(&response->body);
}

void http_response_reset(struct http_response *response)
{
	http_response_release(response);
	http_response_init(response);
}

void http_response_header(struct http_response *response, const char *name, const char *value)
{
	char *copy;

	if (response->header_count >= HTTP_MAX_RESPONSE_HEADERS || strpbrk(value, "\r\n") != NULL) {
		response->failed = true;
		return;
	}
	copy = mem_dup(value);
	if (copy == NULL) {
		response->failed = true;
		return;
	}
	response->headers[response->header_count].name = name;
	response->headers[response->header_count].value = copy;
	response->header_count++;
}

void http_response_headerf(struct http_response *response, const char *name, const char *format,
			   ...)
{
	char value[LIMIT_URL_BYTES];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	if (length < 0 || (size_t)length >= sizeof(value)) {
		response->failed = true;
		return;
	}
	http_response_header(response, name, value);
}

const char *http_response_get(const struct http_response *response, const char *name)
{
	for (size_t i = 0; i < response->header_count; i++)
		if (str_equal_nocase(response->headers[i].name, name))
			return response->headers[i].value;
	return NULL;
}
