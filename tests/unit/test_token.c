/* test_token: JWTs made with libjwt and OpenSSL: keys at load, signatures, algorithms, times,
 * claims, and everything that must be refused. */
#include "handlers/secrets.h"
#include "handlers/token.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

#include <jwt.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#define SECRET "0123456789abcdef0123456789abcdef"
#define NOW    1800000000

static EVP_PKEY *rsa;
static EVP_PKEY *rsa_small;
static EVP_PKEY *ec;
static EVP_PKEY *ec_other;

static void to_url(char *text)
{
	for (; *text != '\0'; text++)
		*text = *text == '+' ? '-' : *text == '/' ? '_' : *text == '=' ? '\0' : *text;
}

static void encode(struct buf *out, const void *data, size_t length)
{
	buf_init(out, 65536);
	str_base64(out, data, length);
	buf_add_char(out, '\0');
	to_url(out->data);
}

static const char *private_pem(EVP_PKEY *key)
{
	static char text[8192];
	BIO *bio = BIO_new(BIO_s_mem());
	int got;

	CU_ASSERT_EQUAL_FATAL(PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL), 1);
	got = BIO_read(bio, text, sizeof(text) - 1);
	CU_ASSERT_FATAL(got > 0);
	text[got] = '\0';
	BIO_free(bio);
	return text;
}

static const char *public_pem(EVP_PKEY *key)
{
	static char text[8192];
	BIO *bio = BIO_new(BIO_s_mem());
	int got;

	CU_ASSERT_EQUAL_FATAL(PEM_write_bio_PUBKEY(bio, key), 1);
	got = BIO_read(bio, text, sizeof(text) - 1);
	CU_ASSERT_FATAL(got > 0);
	text[got] = '\0';
	BIO_free(bio);
	return text;
}

static void number(struct buf *out, EVP_PKEY *key, const char *name, size_t size)
{
	BIGNUM *value = NULL;
	unsigned char bytes[512];
	int length;

	CU_ASSERT_EQUAL_FATAL(EVP_PKEY_get_bn_param(key, name, &value), 1);
	length = size == 0 ? BN_num_bytes(value) : (int)size;
	CU_ASSERT_EQUAL_FATAL(BN_bn2binpad(value, bytes, length), length);
	encode(out, bytes, (size_t)length);
	BN_free(value);
}

/* A JWK; more: further members with a comma before them. */
static void add_jwk(struct buf *out, EVP_PKEY *key, const char *kid, const char *more)
{
	bool is_rsa = EVP_PKEY_is_a(key, "RSA") == 1;
	scope_buf struct buf a = BUF_NONE;
	scope_buf struct buf b = BUF_NONE;

	number(&a, key, is_rsa ? OSSL_PKEY_PARAM_RSA_N : OSSL_PKEY_PARAM_EC_PUB_X, is_rsa ? 0 : 32);
	number(&b, key, is_rsa ? OSSL_PKEY_PARAM_RSA_E : OSSL_PKEY_PARAM_EC_PUB_Y, is_rsa ? 0 : 32);
	if (is_rsa)
		buf_addf(out, "{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"%s\"", buf_text(&a),
			 buf_text(&b));
	else
		buf_addf(out, "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"",
			 buf_text(&a), buf_text(&b));
	if (kid != NULL)
		buf_addf(out, ",\"kid\":\"%s\"", kid);
	buf_addf(out, "%s}", more);
}

static void jwks_of(struct buf *out)
{
	buf_init(out, TOKEN_JWKS_MAX_BYTES);
	buf_add_str(out, "{\"keys\":[");
	add_jwk(out, rsa, "r1", ",\"use\":\"sig\",\"alg\":\"RS256\"");
	buf_add_char(out, ',');
	add_jwk(out, ec, "e1", "");
	buf_add_char(out, ',');
	add_jwk(out, ec_other, "enc", ",\"use\":\"enc\"");
	buf_add_str(out, ",{\"kty\":\"oct\",\"k\":\"AAAA\",\"kid\":\"o1\"}]}");
}

static struct token_keys *keys_of(void)
{
	scope_buf struct buf jwks = BUF_NONE;
	struct token_keys *keys = NULL;
	struct err e = ERR_INIT;

	if (rsa == NULL) {
		json_setup();
		rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
		rsa_small = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024);
		ec = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
		ec_other = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
	}
	CU_ASSERT_FATAL(rsa != NULL && rsa_small != NULL && ec != NULL && ec_other != NULL);
	jwks_of(&jwks);
	if (token_keys_make(SECRET, strlen(SECRET), buf_text(&jwks), jwks.len, &keys, &e) != 0)
		CU_FAIL_FATAL("keys");
	return keys;
}

static struct policy *policy_of(const char *more)
{
	struct policy *policy = NULL;
	char text[1024];
	struct err e = ERR_INIT;

	(void)snprintf(text, sizeof(text), "public_url: https://h\n%s", more);
	if (policy_parse("p", text, strlen(text), &policy, &e) != 0)
		CU_FAIL_FATAL("policy");
	return policy;
}

/* libjwt's text comes from the plain malloc of the library (jansson's is ours) */
static void free_made(char *text)
{
	free(text);
}

/* key: a secret or PEM. The static text is overwritten by the next call. */
static const char *token_of(jwt_alg_t alg, const char *key, const char *kid, const char *claims)
{
	static char text[65536];
	jwt_t *jwt = NULL;
	char *made;

	CU_ASSERT_EQUAL_FATAL(jwt_new(&jwt), 0);
	CU_ASSERT_EQUAL_FATAL(jwt_add_grants_json(jwt, claims), 0);
	if (kid != NULL)
		CU_ASSERT_EQUAL_FATAL(jwt_add_header(jwt, "kid", kid), 0);
	CU_ASSERT_EQUAL_FATAL(
	    jwt_set_alg(jwt, alg, (const unsigned char *)key, key == NULL ? 0 : (int)strlen(key)),
	    0);
	made = jwt_encode_str(jwt);
	CU_ASSERT_FATAL(made != NULL && strlen(made) < sizeof(text));
	memcpy(text, made, strlen(made) + 1);
	free_made(made);
	jwt_free(jwt);
	return text;
}

#define LIVE ",\"exp\":1800000100}"

static void good(const struct token_keys *keys, const struct policy *policy, const char *token,
		 const char *user, const char *tenant, enum role role)
{
	struct principal who;
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL_FATAL(token_check(keys, policy, token, NOW, &who, &e), 0);
	CU_ASSERT_STRING_EQUAL(who.user, user);
	CU_ASSERT_STRING_EQUAL(who.tenant, tenant);
	CU_ASSERT_STRING_EQUAL(who.key_id, "");
	CU_ASSERT_EQUAL(who.role, role);
	CU_ASSERT_EQUAL(who.expires_ms, 1800000100000 + policy->auth.jwt.leeway_sec * 1000);
}

static void bad(const struct token_keys *keys, const struct policy *policy, const char *token,
		const char *why)
{
	struct principal who = {.user = "untouched"};
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(token_check(keys, policy, token, NOW, &who, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAUTHORIZED);
	CU_ASSERT_STRING_EQUAL(who.user, "untouched");
	if (strstr(e.shown, why) == NULL) {
		(void)printf("\n    %s: not %s\n", e.shown, why);
		CU_FAIL("another reason");
	}
}

static void test_three_algorithms(void)
{
	struct token_keys *keys = keys_of();
	scope_policy struct policy *p = policy_of("");

	good(keys, p, token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"ann\"" LIVE), "ann",
	     "default", ROLE_USER);
	good(keys, p, token_of(JWT_ALG_RS256, private_pem(rsa), "r1", "{\"sub\":\"ann\"" LIVE),
	     "ann", "default", ROLE_USER);
	good(keys, p, token_of(JWT_ALG_ES256, private_pem(ec), "e1", "{\"sub\":\"ann\"" LIVE),
	     "ann", "default", ROLE_USER);
	/* the only key of its kind needs no kid */
	good(keys, p, token_of(JWT_ALG_ES256, private_pem(ec), NULL, "{\"sub\":\"ann\"" LIVE),
	     "ann", "default", ROLE_USER);
	token_keys_free(keys);
}

static void test_signatures(void)
{
	struct token_keys *keys = keys_of();
	scope_policy struct policy *p = policy_of("");
	char token[8192];
	char *dot;

	bad(keys, p,
	    token_of(JWT_ALG_HS256, "fedcba9876543210fedcba9876543210", NULL,
		     "{\"sub\":\"a\"" LIVE),
	    "signature");
	bad(keys, p, token_of(JWT_ALG_ES256, private_pem(ec_other), "e1", "{\"sub\":\"a\"" LIVE),
	    "signature");
	bad(keys, p, token_of(JWT_ALG_RS256, private_pem(rsa_small), "r1", "{\"sub\":\"a\"" LIVE),
	    "signature");
	/* a public key is no secret */
	bad(keys, p, token_of(JWT_ALG_HS256, public_pem(rsa), "r1", "{\"sub\":\"a\"" LIVE),
	    "signature");
	/* another algorithm than the key's, and those that nobody has */
	bad(keys, p, token_of(JWT_ALG_ES256, private_pem(ec), "r1", "{\"sub\":\"a\"" LIVE),
	    "no key");
	bad(keys, p, token_of(JWT_ALG_HS512, SECRET, NULL, "{\"sub\":\"a\"" LIVE), "alg must be");
	bad(keys, p, token_of(JWT_ALG_RS512, private_pem(rsa), "r1", "{\"sub\":\"a\"" LIVE),
	    "alg must be");
	bad(keys, p, token_of(JWT_ALG_NONE, NULL, NULL, "{\"sub\":\"a\"" LIVE), "alg must be");
	/* unknown kid; one whose key is for encryption; one that is a secret */
	bad(keys, p, token_of(JWT_ALG_ES256, private_pem(ec), "e2", "{\"sub\":\"a\"" LIVE),
	    "no key");
	bad(keys, p, token_of(JWT_ALG_ES256, private_pem(ec_other), "enc", "{\"sub\":\"a\"" LIVE),
	    "no key");
	bad(keys, p, token_of(JWT_ALG_RS256, private_pem(rsa), "o1", "{\"sub\":\"a\"" LIVE),
	    "no key");
	/* each byte counts */
	(void)snprintf(token, sizeof(token), "%s",
		       token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"ann\"" LIVE));
	dot = strchr(strchr(token, '.') + 1, '.');
	dot[5] = dot[5] == 'A' ? 'B' : 'A';
	bad(keys, p, token, "signature");
	dot[1] = '\0';
	bad(keys, p, token, "signature");
	bad(NULL, p, token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"ann\"" LIVE), "takes none");
	token_keys_free(keys);
}

/* header.payload.signature of plain texts, signed as HS256 */
static void bad_text(const struct token_keys *keys, const struct policy *p, const char *header,
		     const char *claims, const char *why)
{
	scope_buf struct buf a = BUF_NONE;
	scope_buf struct buf b = BUF_NONE;
	scope_buf struct buf c = BUF_NONE;
	unsigned char hash[EVP_MAX_MD_SIZE];
	size_t size = 0;
	char token[4096];

	encode(&a, header, strlen(header));
	encode(&b, claims, strlen(claims));
	(void)snprintf(token, sizeof(token), "%s.%s", buf_text(&a), buf_text(&b));
	CU_ASSERT_PTR_NOT_NULL_FATAL(EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, SECRET,
					       strlen(SECRET), (const unsigned char *)token,
					       strlen(token), hash, sizeof(hash), &size));
	encode(&c, hash, size);
	(void)snprintf(token, sizeof(token), "%s.%s.%s", buf_text(&a), buf_text(&b), buf_text(&c));
	if (why != NULL)
		bad(keys, p, token, why);
	else
		good(keys, p, token, "a", "default", ROLE_USER);
}

static void test_malformed(void)
{
	static const char *const texts[] = {"..",         "a.b.c",          "e30.e30.", ".e30.x",
					    "e30=.e30.x", "%.%.%",          "a.b",      "a.b.c.d",
					    "",           "e30.e30.e30.e30"};
	struct token_keys *keys = keys_of();
	scope_policy struct policy *p = policy_of("");
	char *large = mem_zalloc(1, TOKEN_MAX_BYTES + 2);

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		bad(keys, p, texts[i], "malformed");
	CU_ASSERT_FATAL(large != NULL);
	memset(large, 'A', TOKEN_MAX_BYTES + 1);
	large[10] = '.';
	large[20] = '.';
	bad(keys, p, large, "longer than");
	mem_free(large);
	bad_text(keys, p, "{\"alg\":\"HS256\"}", "{\"sub\":\"a\"" LIVE, NULL);
	bad_text(keys, p, "{\"alg\":\"HS256\",\"alg\":\"none\"}", "{\"sub\":\"a\"" LIVE,
		 "malformed");
	bad_text(keys, p, "{\"alg\":1}", "{\"sub\":\"a\"" LIVE, "malformed");
	bad_text(keys, p, "{\"alg\":\"HS256\",\"kid\":1}", "{\"sub\":\"a\"" LIVE, "malformed");
	bad_text(keys, p, "{\"alg\":\"HS256\",\"crit\":[\"b64\"],\"b64\":false}",
		 "{\"sub\":\"a\"" LIVE, "crit");
	bad_text(keys, p, "[]", "{\"sub\":\"a\"" LIVE, "malformed");
	bad_text(keys, p, "{\"alg\":\"HS256\"}", "{\"sub\":\"a\",\"sub\":\"b\"" LIVE, "");
	bad_text(keys, p, "{\"alg\":\"HS256\"}", "[1]", "");
	CU_ASSERT_TRUE(token_fits("a.b.c"));
	CU_ASSERT_FALSE(token_fits("a.b"));
	CU_ASSERT_FALSE(token_fits("a.b.c.d"));
	CU_ASSERT_FALSE(token_fits("ck_abcdefghijkl_abcdefghijklmnopqrstuvwxyz234567"));
	token_keys_free(keys);
}

static void test_times(void)
{
	struct token_keys *keys = keys_of();
	scope_policy struct policy *p = policy_of("");
	scope_policy struct policy *lax = policy_of("auth:\n  jwt:\n    leeway_sec: 30\n");
	static const struct {
		const char *claims;
		const char *why;
	} rows[] = {
	    {"{\"sub\":\"a\",\"exp\":1800000000}", "expired"},
	    {"{\"sub\":\"a\",\"exp\":1}", "expired"},
	    {"{\"sub\":\"a\",\"exp\":1799999999.9}", "expired"},
	    {"{\"sub\":\"a\"}", "no exp"},
	    {"{\"sub\":\"a\",\"exp\":null}", "no exp"},
	    {"{\"sub\":\"a\",\"exp\":\"1800000100\"}", "no exp"},
	    {"{\"sub\":\"a\",\"exp\":-1}", "no exp"},
	    {"{\"sub\":\"a\",\"exp\":1e300}", "no exp"},
	    {"{\"sub\":\"a\",\"nbf\":1800000001" LIVE, "not valid yet"},
	    {"{\"sub\":\"a\",\"nbf\":true" LIVE, "nbf is no time"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		bad(keys, p, token_of(JWT_ALG_HS256, SECRET, NULL, rows[i].claims), rows[i].why);
	good(keys, p,
	     token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"a\",\"nbf\":1800000000" LIVE), "a",
	     "default", ROLE_USER);
	good(keys, lax,
	     token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"a\",\"nbf\":1800000030" LIVE), "a",
	     "default", ROLE_USER);
	bad(keys, lax, token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"a\",\"exp\":1799999970}"),
	    "expired");
	token_keys_free(keys);
}

static void test_claims(void)
{
	struct token_keys *keys = keys_of();
	scope_policy struct policy *p = policy_of("");
	scope_policy struct policy *named = policy_of(
	    "auth:\n  jwt:\n    issuer: https://i\n    audience: cordon\n    user_claim: email\n"
	    "    roles_claim: groups\n    admin_role: boss\n    tenant_claim: org\n");
#define OURS "{\"iss\":\"https://i\",\"aud\":[\"x\",\"cordon\"],\"email\":\"a@b\",\"org\":\"acme\""
	static const struct {
		const char *claims;
		const char *why;
	} rows[] = {
	    {"{\"aud\":\"cordon\",\"email\":\"a\",\"org\":\"t\"" LIVE, "issuer"},
	    {"{\"iss\":\"https://j\",\"aud\":\"cordon\",\"email\":\"a\",\"org\":\"t\"" LIVE,
	     "issuer"},
	    {"{\"iss\":\"https://i\",\"email\":\"a\",\"org\":\"t\"" LIVE, "somebody else"},
	    {"{\"iss\":\"https://i\",\"aud\":[\"cord\"],\"email\":\"a\",\"org\":\"t\"" LIVE,
	     "somebody else"},
	    {"{\"iss\":\"https://i\",\"aud\":\"cordon\",\"sub\":\"a\",\"org\":\"t\"" LIVE,
	     "no user"},
	    {"{\"iss\":\"https://i\",\"aud\":\"cordon\",\"email\":\"\",\"org\":\"t\"" LIVE,
	     "no user"},
	    {"{\"iss\":\"https://i\",\"aud\":\"cordon\",\"email\":7,\"org\":\"t\"" LIVE, "no user"},
	    {"{\"iss\":\"https://i\",\"aud\":\"cordon\",\"email\":\"a\\nb\",\"org\":\"t\"" LIVE,
	     "no user"},
	    {"{\"iss\":\"https://i\",\"aud\":\"cordon\",\"email\":"
	     "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"org\":\"t\"" LIVE,
	     "no user"},
	    {"{\"iss\":\"https://i\",\"aud\":\"cordon\",\"email\":\"a\"" LIVE, "no tenant"},
	    {"{\"iss\":\"https://i\",\"aud\":\"cordon\",\"email\":\"a\",\"org\":\"a/b\"" LIVE,
	     "no tenant"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		bad(keys, named, token_of(JWT_ALG_HS256, SECRET, NULL, rows[i].claims),
		    rows[i].why);
	good(keys, named, token_of(JWT_ALG_HS256, SECRET, NULL, OURS LIVE), "a@b", "acme",
	     ROLE_USER);
	good(keys, named,
	     token_of(JWT_ALG_HS256, SECRET, NULL, OURS ",\"groups\":[\"x\",\"boss\"]" LIVE), "a@b",
	     "acme", ROLE_ADMIN);
	good(keys, named, token_of(JWT_ALG_HS256, SECRET, NULL, OURS ",\"groups\":\"x boss\"" LIVE),
	     "a@b", "acme", ROLE_ADMIN);
	good(keys, named, token_of(JWT_ALG_HS256, SECRET, NULL, OURS ",\"groups\":\"bosses\"" LIVE),
	     "a@b", "acme", ROLE_USER);
	bad_text(keys, p, "{\"alg\":\"HS256\"}", "{\"sub\":\"a\\u0000b\"" LIVE, "");
	/* no claim makes an operator */
	good(keys, p,
	     token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"a\",\"roles\":[\"operator\"]" LIVE),
	     "a", "default", ROLE_USER);
	token_keys_free(keys);
}

static void refuse_jwks(const char *text, const char *why)
{
	struct token_keys *keys = NULL;
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(token_keys_make(NULL, 0, text, strlen(text), &keys, &e), -1);
	CU_ASSERT_PTR_NULL(keys);
	if (strstr(e.text, why) == NULL) {
		(void)printf("\n    %s: not %s\n", e.text, why);
		CU_FAIL("another reason");
	}
}

static void test_key_sets(void)
{
	scope_buf struct buf text = BUF_NONE;
	struct token_keys *keys = keys_of();

	token_keys_free(keys);
	refuse_jwks("", "JWKS");
	refuse_jwks("{}", "no list");
	refuse_jwks("{\"keys\":{}}", "no list");
	refuse_jwks("{\"keys\":[]}", "no key for");
	refuse_jwks("{\"keys\":[1]}", "no object");
	refuse_jwks("{\"keys\":[{\"kty\":\"oct\",\"k\":\"AA\"}]}", "no key for");
	refuse_jwks("{\"keys\":[{\"kty\":\"RSA\"}]}", "malformed");
	refuse_jwks("{\"keys\":[{\"kty\":\"RSA\",\"n\":\"=\",\"e\":\"AQAB\"}]}", "malformed");
	refuse_jwks("{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAA\",\"y\":\"AAAA\"}]}",
		    "malformed");
	/* not on the curve */
	refuse_jwks(
	    "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\","
	    "\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\"}]}",
	    "malformed");
	buf_init(&text, 65536);
	buf_add_str(&text, "{\"keys\":[");
	add_jwk(&text, rsa_small, "s", "");
	buf_add_str(&text, "]}");
	refuse_jwks(buf_text(&text), "less than 2048 bits");
	buf_reset(&text);
	buf_add_str(&text, "{\"keys\":[");
	add_jwk(&text, ec, "k", ",\"d\":\"AAAA\"");
	buf_add_str(&text, "]}");
	refuse_jwks(buf_text(&text), "private");
	buf_reset(&text);
	buf_add_str(&text, "{\"keys\":[");
	add_jwk(&text, ec, "k", "");
	buf_add_char(&text, ',');
	add_jwk(&text, ec_other, "k", "");
	buf_add_str(&text, "]}");
	refuse_jwks(buf_text(&text), "twice");
	/* two of a kind: a token must say which */
	buf_reset(&text);
	buf_add_str(&text, "{\"keys\":[");
	add_jwk(&text, ec, "k", "");
	buf_add_char(&text, ',');
	add_jwk(&text, ec_other, NULL, "");
	buf_add_str(&text, "]}");
	{
		struct err e = ERR_INIT;
		scope_policy struct policy *p = policy_of("");

		CU_ASSERT_EQUAL_FATAL(
		    token_keys_make(NULL, 0, buf_text(&text), text.len, &keys, &e), 0);
		bad(keys, p,
		    token_of(JWT_ALG_ES256, private_pem(ec_other), NULL, "{\"sub\":\"a\"" LIVE),
		    "no key");
		good(keys, p, token_of(JWT_ALG_ES256, private_pem(ec), "k", "{\"sub\":\"a\"" LIVE),
		     "a", "default", ROLE_USER);
		bad(keys, p, token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"a\"" LIVE),
		    "no key");
		token_keys_free(keys);
	}
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	CU_ASSERT_FATAL(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void test_secret_files(void)
{
	char path[300];
	char more[700];
	struct secrets *secrets = NULL;
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "%s/secret", test_dir());
	(void)snprintf(
	    more, sizeof(more),
	    "streams:\n  signed_urls: true\n  secret_file: %s\nauth:\n  jwt:\n    secret_file: %s\n",
	    path, path);
	{
		scope_policy struct policy *p = policy_of(more);
		scope_policy struct policy *none = policy_of("");

		CU_ASSERT_EQUAL(secrets_load(p, &secrets, &e), -1);
		err_clear(&e);
		write_file(path, "short\n");
		CU_ASSERT_EQUAL(secrets_load(p, &secrets, &e), -1);
		CU_ASSERT_EQUAL(e.code, ERR_INVALID);
		err_clear(&e);
		write_file(path, SECRET "\n");
		CU_ASSERT_EQUAL_FATAL(secrets_load(p, &secrets, &e), 0);
		CU_ASSERT_EQUAL(secrets->stream.len, strlen(SECRET));
		good(secrets->token, p,
		     token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"a\"" LIVE), "a", "default",
		     ROLE_USER);
		secrets_free(secrets);
		CU_ASSERT_EQUAL_FATAL(secrets_load(none, &secrets, &e), 0);
		CU_ASSERT_PTR_NULL(secrets->token);
		CU_ASSERT_EQUAL(secrets->stream.len, 0);
		secrets_free(secrets);
	}
}

struct work {
	struct buf jwks;
	char token[4096];
};

static int make_and_check(void *context, struct err *e)
{
	struct work *w = context;
	struct token_keys *keys = NULL;
	scope_policy struct policy *p = NULL;
	struct principal who;
	int result = 0;

	if (policy_parse("p", "public_url: https://h\n", 22, &p, e) != 0)
		return -1;
	result = token_keys_make(SECRET, strlen(SECRET), w->jwks.data, w->jwks.len, &keys, e);
	if (result == 0)
		result = token_check(keys, p, w->token, NOW, &who, e);
	token_keys_free(keys);
	return result;
}

static void test_memory(void)
{
	struct work w;

	token_keys_free(keys_of());
	jwks_of(&w.jwks);
	(void)snprintf(w.token, sizeof(w.token), "%s",
		       token_of(JWT_ALG_HS256, SECRET, NULL, "{\"sub\":\"a\"" LIVE));
	fault_loop(make_and_check, &w);
	buf_release(&w.jwks);
	EVP_PKEY_free(rsa);
	EVP_PKEY_free(rsa_small);
	EVP_PKEY_free(ec);
	EVP_PKEY_free(ec_other);
	rsa = NULL;
}

static const struct test tests[] = {
    {"token", "three algorithms", test_three_algorithms},
    {"token", "signatures", test_signatures},
    {"token", "malformed", test_malformed},
    {"token", "times", test_times},
    {"token", "claims", test_claims},
    {"token", "key sets", test_key_sets},
    {"token", "secret files", test_secret_files},
    {"token", "memory", test_memory},
};

TEST_MAIN(tests)
