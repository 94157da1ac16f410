/* The keys of tokens: from a secret and a JWKS (RFC 7517) to what libjwt reads, which is PEM. */
#include "handlers/token_keys.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>

#define NUMBER_MAX_BYTES 2048 /* of n: RSA keys to 16,384 bits */
#define P256_BYTES       32

struct token_keys {
	struct token_key list[TOKEN_KEYS_MAX + 1]; /* and the secret */
	size_t count;
};

int token_base64(struct buf *out, const char *text, size_t length, size_t most)
{
	buf_init(out, most + 8);
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (c == '+' || c == '/' || c == '=')
			return -1;
		buf_add_char(out, c == '-' ? '+' : c == '_' ? '/' : c);
	}
	while (length % 4 != 0) {
		buf_add_char(out, '=');
		length++;
	}
	return buf_ok(out) ? 0 : -1;
}

/* A member of a JWK as bytes. */
static int member(const json_t *jwk, const char *name, struct buf *out)
{
	const char *text = json_text(json_object_get(jwk, name));
	scope_buf struct buf plain = BUF_NONE;

	if (text == NULL || text[0] == '\0' ||
	    token_base64(&plain, text, strlen(text), (size_t)NUMBER_MAX_BYTES * 2) != 0)
		return -1;
	buf_init(out, NUMBER_MAX_BYTES);
	return str_unbase64(out, buf_text(&plain), plain.len) != 0 || !buf_ok(out) ? -1 : 0;
}

static EVP_PKEY *make_key(const char *type, OSSL_PARAM_BLD *build)
{
	OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
	EVP_PKEY *key = NULL;

	if (params == NULL || context == NULL || EVP_PKEY_fromdata_init(context) != 1 ||
	    EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
		key = NULL;
	EVP_PKEY_CTX_free(context);
	OSSL_PARAM_free(params);
	return key;
}

static EVP_PKEY *rsa_key(const json_t *jwk)
{
	scope_buf struct buf n = BUF_NONE;
	scope_buf struct buf e = BUF_NONE;
	OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
	BIGNUM *n_number = NULL;
	BIGNUM *e_number = NULL;
	EVP_PKEY *key = NULL;

	if (member(jwk, "n", &n) == 0 && member(jwk, "e", &e) == 0) {
		n_number = BN_bin2bn((const unsigned char *)n.data, (int)n.len, NULL);
		e_number = BN_bin2bn((const unsigned char *)e.data, (int)e.len, NULL);
	}
	if (build != NULL && n_number != NULL && e_number != NULL &&
	    OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n_number) == 1 &&
	    OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e_number) == 1)
		key = make_key("RSA", build);
	OSSL_PARAM_BLD_free(build);
	BN_free(n_number);
	BN_free(e_number);
	return key;
}

static EVP_PKEY *ec_key(const json_t *jwk)
{
	scope_buf struct buf x = BUF_NONE;
	scope_buf struct buf y = BUF_NONE;
	unsigned char point[1 + 2 * P256_BYTES] = {POINT_CONVERSION_UNCOMPRESSED};
	OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
	EVP_PKEY *key = NULL;

	if (build != NULL && member(jwk, "x", &x) == 0 && member(jwk, "y", &y) == 0 &&
	    x.len == P256_BYTES && y.len == P256_BYTES) {
		memcpy(point + 1, x.data, P256_BYTES);
		memcpy(point + 1 + P256_BYTES, y.data, P256_BYTES);
		if (OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1",
						    0) == 1 &&
		    OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point,
						     sizeof(point)) == 1)
			key = make_key("EC", build);
	}
	OSSL_PARAM_BLD_free(build);
	return key;
}

static int to_pem(EVP_PKEY *key, struct token_key *out)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL;
	long length = 0;

	if (bio != NULL && PEM_write_bio_PUBKEY(bio, key) == 1)
		length = BIO_get_mem_data(bio, &text);
	out->bytes = length > 0 ? mem_dup_bytes(text, (size_t)length) : NULL;
	out->length = (size_t)length;
	BIO_free(bio);
	return out->bytes == NULL ? -1 : 0;
}

static bool is_one_of(const json_t *jwk, const char *name, const char *wanted)
{
	const json_t *value = json_object_get(jwk, name);
	const char *text = json_text(value);

	return value == NULL || (text != NULL && str_equal(text, wanted));
}

/* What this JWK verifies: JWT_ALG_NONE when it is for something else. */
static jwt_alg_t kind_of(const json_t *jwk)
{
	const char *type = json_text(json_object_get(jwk, "kty"));
	const char *curve = json_text(json_object_get(jwk, "crv"));

	if (type == NULL || !is_one_of(jwk, "use", "sig"))
		return JWT_ALG_NONE;
	if (str_equal(type, "RSA") && is_one_of(jwk, "alg", "RS256"))
		return JWT_ALG_RS256;
	if (str_equal(type, "EC") && curve != NULL && str_equal(curve, "P-256") &&
	    is_one_of(jwk, "alg", "ES256"))
		return JWT_ALG_ES256;
	return JWT_ALG_NONE;
}

static int add_jwk(struct token_keys *keys, size_t number, const json_t *jwk, struct err *e)
{
	struct token_key *out = &keys->list[keys->count];
	const json_t *kid = json_object_get(jwk, "kid");
	EVP_PKEY *key;
	int done = 0;

	if (json_object_get(jwk, "d") != NULL)
		return err_set(e, ERR_INVALID, 0, "JWKS: key %zu is private", number);
	out->alg = kind_of(jwk);
	if (out->alg == JWT_ALG_NONE)
		return 0;
	if (kid != NULL && json_text(kid) == NULL)
		return err_set(e, ERR_INVALID, 0, "JWKS: the kid of key %zu is no text", number);
	if (keys->count >= TOKEN_KEYS_MAX)
		return err_set(e, ERR_LIMIT, 0, "JWKS: more than %d keys", TOKEN_KEYS_MAX);
	for (size_t i = 0; kid != NULL && i < keys->count; i++)
		if (keys->list[i].kid != NULL && str_equal(keys->list[i].kid, json_text(kid)))
			return err_set(e, ERR_INVALID, 0, "JWKS: the kid of key %zu is there twice",
				       number);
	key = out->alg == JWT_ALG_RS256 ? rsa_key(jwk) : ec_key(jwk);
	if (key == NULL)
		return err_set(e, ERR_INVALID, 0, "JWKS: key %zu is malformed", number);
	if (out->alg == JWT_ALG_RS256 && EVP_PKEY_get_bits(key) < TOKEN_RSA_MIN_BITS)
		done = err_set(e, ERR_INVALID, 0, "JWKS: key %zu has less than %d bits", number,
			       TOKEN_RSA_MIN_BITS);
	if (done == 0) {
		out->kid = kid == NULL ? NULL : mem_dup(json_text(kid));
		if ((kid != NULL && out->kid == NULL) || to_pem(key, out) != 0) {
			mem_free(out->kid);
			out->kid = NULL;
			done = err_set(e, ERR_NOMEM, 0, "JWKS");
		} else {
			keys->count++;
		}
	}
	EVP_PKEY_free(key);
	return done;
}

static int add_jwks(struct token_keys *keys, const char *text, size_t length, struct err *e)
{
	scope_json json_t *root = NULL;
	const json_t *list;
	const json_t *jwk;
	size_t i;

	if (json_parse(text, length, &root, e) != 0)
		return err_wrap(e, "JWKS");
	list = json_object_get(root, "keys");
	if (!json_is_array(list))
		return err_set(e, ERR_INVALID, 0, "JWKS: no list `keys`");
	json_array_foreach (list, i, jwk) {
		if (!json_is_object(jwk))
			return err_set(e, ERR_INVALID, 0, "JWKS: key %zu is no object", i + 1);
		if (add_jwk(keys, i + 1, jwk, e) != 0)
			return -1;
	}
	if (keys->count == 0)
		return err_set(e, ERR_INVALID, 0, "JWKS: no key for RS256 or ES256");
	return 0;
}

int token_keys_make(const void *secret, size_t secret_length, const char *jwks, size_t jwks_length,
		    struct token_keys **out, struct err *e)
{
	struct token_keys *keys = mem_zalloc(1, sizeof(*keys));

	if (keys == NULL)
		return err_set(e, ERR_NOMEM, 0, "token keys");
	if (jwks != NULL && add_jwks(keys, jwks, jwks_length, e) != 0) {
		token_keys_free(keys);
		return -1;
	}
	if (secret != NULL) {
		struct token_key *key = &keys->list[keys->count];

		key->alg = JWT_ALG_HS256;
		key->kid = NULL;
		key->bytes = mem_dup_bytes(secret, secret_length);
		key->length = secret_length;
		if (key->bytes == NULL) {
			token_keys_free(keys);
			return err_set(e, ERR_NOMEM, 0, "token keys");
		}
		keys->count++;
	}
	*out = keys;
	return 0;
}

void token_keys_free(struct token_keys *keys)
{
	if (keys == NULL)
		return;
	for (size_t i = 0; i < keys->count; i++) {
		OPENSSL_cleanse(keys->list[i].bytes, keys->list[i].length);
		mem_free(keys->list[i].bytes);
		mem_free(keys->list[i].kid);
	}
	mem_free(keys);
}

const struct token_key *token_key_find(const struct token_keys *keys, jwt_alg_t alg,
				       const char *kid)
{
	const struct token_key *found = NULL;

	for (size_t i = 0; i < keys->count; i++) {
		const struct token_key *key = &keys->list[i];

		if (key->alg != alg)
			continue;
		/* the one secret has no kid, so whatever a token says of it is no choice */
		if (alg == JWT_ALG_HS256)
			return key;
		if (kid != NULL && key->kid != NULL && str_equal(key->kid, kid))
			return key;
		if (kid == NULL && found != NULL)
			return NULL;
		if (kid == NULL)
			found = key;
	}
	return found;
}
