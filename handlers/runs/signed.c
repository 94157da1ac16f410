#include "handlers/runs/signed.h"

#include "handlers/ops/op_run.h"
#include "handlers/secrets.h"
#include "runners/base/clock.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

int signed_token(const void *secret, size_t length, const char *run_id, int64_t expires_sec,
		 char out[SIGNED_TOKEN_SIZE], struct err *e)
{
	char text[IDENT_UUID_SIZE + 32];
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned int size = 0;

	(void)snprintf(text, sizeof(text), "%s:%lld", run_id, (long long)expires_sec);
	if (HMAC(EVP_sha256(), secret, (int)length, (const unsigned char *)text, strlen(text), hash,
		 &size) == NULL ||
	    size * 2 + 1 != SIGNED_TOKEN_SIZE)
		return err_set(e, ERR_INTERNAL, 0, "HMAC");
	str_hex(out, hash, size);
	return 0;
}

bool signed_wanted(const struct handler_context *context)
{
	return context->policy->streams.signed_urls;
}

json_t *signed_run(const struct handler_context *context, const struct run_row *row, json_t *run)
{
	const struct secrets *secrets = context->secrets;
	int64_t expires = clock_real_us() / CLOCK_US_PER_S + context->policy->streams.url_ttl_sec;
	const char *url = json_text(json_object_get(run, "log_stream_url"));
	char token[SIGNED_TOKEN_SIZE];
	struct err e = ERR_INIT;
	json_t *with = NULL;

	/* without a secret nothing is issued, and every socket is refused */
	if (run == NULL || url == NULL || !signed_wanted(context) || secrets == NULL ||
	    secrets->stream.len == 0)
		return run;
	if (signed_token(secrets->stream.data, secrets->stream.len, row->id, expires, token, &e) ==
	    0)
		with =
		    json_sprintf("%s%ctoken=%s&exp=%lld", url, strchr(url, '?') == NULL ? '?' : '&',
				 token, (long long)expires);
	if (with != NULL && json_object_set_new(run, "log_stream_url", with) == 0)
		return run;
	json_decref(run);
	return NULL;
}

static int refuse(struct err *e)
{
	return err_show(e, ERR_DENIED,
			"The stream needs the token and exp of a fresh log_stream_url.");
}

int signed_check(const struct handler_context *context, const struct http_request *request,
		 const char *run_id, int64_t now_sec, struct err *e)
{
	const struct secrets *secrets = context->secrets;
	scope_buf struct buf given = BUF_NONE;
	scope_buf struct buf exp = BUF_NONE;
	char token[SIGNED_TOKEN_SIZE];
	struct err ignored = ERR_INIT;
	int64_t expires;

	buf_init(&given, SIGNED_TOKEN_SIZE);
	buf_init(&exp, 32);
	if (http_query(request, "token", &given) != 1 || http_query(request, "exp", &exp) != 1) {
		if (buf_error(&given) == ERR_NOMEM || buf_error(&exp) == ERR_NOMEM)
			return err_set(e, ERR_NOMEM, 0, "signature");
		return refuse(e);
	}
	if (secrets == NULL || secrets->stream.len == 0 ||
	    num_i64("exp", buf_text(&exp), 0, INT64_MAX, &expires, &ignored) != 0 ||
	    expires <= now_sec || given.len != SIGNED_TOKEN_SIZE - 1)
		return refuse(e);
	if (signed_token(secrets->stream.data, secrets->stream.len, run_id, expires, token, e) != 0)
		return -1;
	if (!str_equal_constant_time(token, given.data, SIGNED_TOKEN_SIZE - 1))
		return refuse(e);
	return 0;
}
