#include "handlers/secrets.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"

#include <fcntl.h>
#include <openssl/crypto.h>

#define SECRET_MAX_BYTES 4096
#define STREAM_MIN_BYTES 8
/* RFC 7518: an HS256 key has at least the size of the hash */
#define HS256_MIN_BYTES 32

/* The bytes of a file without the line feed at its end. */
static int read_secret(const char *key, const char *path, size_t least, struct buf *out,
		       struct err *e)
{
	buf_init(out, SECRET_MAX_BYTES + 1);
	if (fd_read_file(AT_FDCWD, path, out, e) != 0)
		return err_wrap(e, "%s", key);
	if (out->len > 0 && out->data[out->len - 1] == '\n')
		out->len--;
	if (out->len < least || out->len > SECRET_MAX_BYTES)
		return err_set(e, ERR_INVALID, 0, "%s: %s must hold %zu to %d bytes", key, path,
			       least, SECRET_MAX_BYTES);
	return 0;
}

static void forget(struct buf *secret)
{
	if (secret->data != NULL)
		OPENSSL_cleanse(secret->data, secret->cap);
	buf_release(secret);
}

static int load_token_keys(const struct policy *policy, struct token_keys **out, struct err *e)
{
	struct buf secret = BUF_NONE;
	scope_buf struct buf jwks = BUF_NONE;
	int result = 0;

	if (policy->auth.jwt.secret_file[0] != '\0')
		result = read_secret("auth.jwt.secret_file", policy->auth.jwt.secret_file,
				     HS256_MIN_BYTES, &secret, e);
	buf_init(&jwks, TOKEN_JWKS_MAX_BYTES);
	if (result == 0 && policy->auth.jwt.jwks_file[0] != '\0' &&
	    fd_read_file(AT_FDCWD, policy->auth.jwt.jwks_file, &jwks, e) != 0)
		result = err_wrap(e, "auth.jwt.jwks_file");
	if (result == 0)
		result =
		    token_keys_make(secret.data, secret.len,
				    policy->auth.jwt.jwks_file[0] == '\0' ? NULL : buf_text(&jwks),
				    jwks.len, out, e);
	forget(&secret);
	return result;
}

int secrets_load(const struct policy *policy, struct secrets **out, struct err *e)
{
	struct secrets *s = mem_zalloc(1, sizeof(*s));
	int result = 0;

	if (s == NULL)
		return err_set(e, ERR_NOMEM, 0, "secrets");
	if (policy->streams.signed_urls)
		result = read_secret("streams.secret_file", policy->streams.secret_file,
				     STREAM_MIN_BYTES, &s->stream, e);
	if (result == 0 &&
	    (policy->auth.jwt.secret_file[0] != '\0' || policy->auth.jwt.jwks_file[0] != '\0'))
		result = load_token_keys(policy, &s->token, e);
	if (result != 0) {
		secrets_free(s);
		return -1;
	}
	*out = s;
	return 0;
}

void secrets_free(struct secrets *secrets)
{
	if (secrets == NULL)
		return;
	forget(&secrets->stream);
	token_keys_free(secrets->token);
	mem_free(secrets);
}
