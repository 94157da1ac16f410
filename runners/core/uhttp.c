#include "runners/core/uhttp.h"

#include <curl/curl.h>

#define CONNECT_MS 5000L

static size_t take(char *data, size_t size, size_t count, void *arg)
{
	struct buf *body = arg;

	buf_add(body, data, size * count);
	/* anything but the full count makes libcurl stop */
	return buf_ok(body) ? size * count : 0;
}

static int set_headers(const struct uhttp_request *request, struct curl_slist **out, struct err *e)
{
	for (size_t i = 0; request->headers != NULL && request->headers[i] != NULL; i++) {
		struct curl_slist *more = curl_slist_append(*out, request->headers[i]);

		if (more == NULL)
			return err_set(e, ERR_NOMEM, 0, "headers");
		*out = more;
	}
	return 0;
}

static int configure(CURL *curl, const struct uhttp_request *request, struct curl_slist *headers,
		     struct buf *body)
{
	int bad = 0;

	bad |= curl_easy_setopt(curl, CURLOPT_URL, request->url) != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method) != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_PROXY, "") != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L) != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms) != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers) != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take) != CURLE_OK;
	bad |= curl_easy_setopt(curl, CURLOPT_WRITEDATA, body) != CURLE_OK;
	if (request->socket != NULL)
		bad |=
		    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, request->socket) != CURLE_OK;
	if (request->ca_file != NULL)
		bad |= curl_easy_setopt(curl, CURLOPT_CAINFO, request->ca_file) != CURLE_OK;
	if (request->body != NULL) {
		bad |= curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
					(curl_off_t)request->body_length) != CURLE_OK;
		bad |= curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body) != CURLE_OK;
	}
	return bad;
}

int uhttp_do(const struct uhttp_request *request, struct uhttp_answer *out, struct err *e)
{
	struct curl_slist *headers = NULL;
	CURL *curl = curl_easy_init();
	CURLcode code = CURLE_OK;

	memset(out, 0, sizeof(*out));
	buf_init(&out->body, request->max_answer);
	if (curl == NULL)
		return err_set(e, ERR_NOMEM, 0, "curl");
	if (set_headers(request, &headers, e) == 0) {
		if (configure(curl, request, headers, &out->body) != 0)
			(void)err_set(e, ERR_INTERNAL, 0, "curl options");
		else
			code = curl_easy_perform(curl);
	}
	if (e->code == ERR_NONE && code != CURLE_OK)
		(void)err_set(e,
			      code == CURLE_WRITE_ERROR          ? ERR_LIMIT
			      : code == CURLE_OPERATION_TIMEDOUT ? ERR_TIMEOUT
								 : ERR_UNAVAILABLE,
			      0, "%s: %s", request->url, curl_easy_strerror(code));
	if (e->code == ERR_NONE)
		(void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &out->status);
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	if (e->code != ERR_NONE) {
		uhttp_answer_release(out);
		return -1;
	}
	return 0;
}

void uhttp_answer_release(struct uhttp_answer *answer)
{
	buf_release(&answer->body);
}
