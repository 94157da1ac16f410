#include "fcgi/private.h"

#include "runners/base/str.h"

static const char *reason_phrase(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 206:
		return "Partial Content";
	case 400:
		return "Bad Request";
	case 401:
		return "Unauthorized";
	case 403:
		return "Forbidden";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 409:
		return "Conflict";
	case 413:
		return "Content Too Large";
	case 415:
		return "Unsupported Media Type";
	case 416:
		return "Range Not Satisfiable";
	case 422:
		return "Unprocessable Content";
	case 426:
		return "Upgrade Required";
	case 429:
		return "Too Many Requests";
	case 431:
		return "Request Header Fields Too Large";
	case 502:
		return "Bad Gateway";
	case 503:
		return "Service Unavailable";
	default:
		return "Internal Server Error";
	}
}

int fcgi_request_write(struct fcgi_request *r, const struct http_request *request,
		       const struct http_response *response)
{
	FCGX_Stream *out = r->fcgx.out;
	bool redirect = http_response_get(response, "X-Accel-Redirect") != NULL;
	int bad = 0;

	bad |= FCGX_FPrintF(out, "Status: %d %s\r\n", response->status,
			    reason_phrase(response->status)) < 0;
	for (size_t i = 0; i < response->header_count; i++) {
		/* FCGX_FPrintF cuts long values, so the parts go out one by one */
		bad |= FCGX_PutS(response->headers[i].name, out) < 0;
		bad |= FCGX_PutS(": ", out) < 0;
		bad |= FCGX_PutS(response->headers[i].value, out) < 0;
		bad |= FCGX_PutS("\r\n", out) < 0;
	}
	if (!redirect)
		bad |= FCGX_FPrintF(out, "Content-Length: %lu\r\n",
				    (unsigned long)response->body.len) < 0;
	bad |= FCGX_PutS("\r\n", out) < 0;
	if (!str_equal(request->method, "HEAD") && response->body.len > 0)
		bad |= FCGX_PutStr(response->body.data, (int)response->body.len, out) < 0;
	return bad != 0 ? -1 : 0;
}
