#include "handlers/token.h"

#include "handlers/token_keys.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <jwt.h>
#include <math.h>

#define CLAIM_MAX_BYTES 64
#define TIME_MAX        253402300799.0 /* the year 9999 */

static int refuse(struct err *e, const char *why)
{
	return err_show(e, ERR_UNAUTHORIZED, "The token is not valid: %s.", why);
}

bool token_fits(const char *credential)
{
	int dots = 0;

	for (; *credential != '\0'; credential++)
		dots += *credential == '.' ? 1 : 0;
	return dots == 2;
}

/* base64url without padding (RFC 7515), strictly. */
static int decode_part(struct buf *out, const char *text, size_t length, struct err *e)
{
	scope_buf struct buf plain = BUF_NONE;
	bool good = token_base64(&plain, text, length, TOKEN_MAX_BYTES) == 0;

	buf_init(out, TOKEN_MAX_BYTES);
	good = good && str_unbase64(out, buf_text(&plain), plain.len) == 0 && buf_ok(out);
	if (!good && (buf_error(&plain) == ERR_NOMEM || buf_error(out) == ERR_NOMEM))
		return err_set(e, ERR_NOMEM, 0, "token");
	return good ? 0 : refuse(e, "it is malformed");
}

static int parse_part(const char *text, size_t length, json_t **out, struct err *e)
{
	scope_buf struct buf bytes = BUF_NONE;
	struct err why = ERR_INIT;

	if (decode_part(&bytes, text, length, e) != 0)
		return -1;
	if (json_parse(buf_text(&bytes), bytes.len, out, &why) == 0)
		return 0;
	return why.code == ERR_NOMEM ? err_set(e, ERR_NOMEM, 0, "token")
				     : refuse(e, "it is malformed");
}

/* --- signature -------------------------------------------------------------------------------- */

static int check_signature(const struct token_keys *keys, const json_t *header, const char *token,
			   struct err *e)
{
	const char *alg = json_text(json_object_get(header, "alg"));
	const json_t *kid = json_object_get(header, "kid");
	const char *kid_text = json_text(kid);
	const struct token_key *key;
	jwt_t *jwt = NULL;
	jwt_alg_t wanted;
	bool good;

	if (alg == NULL || (kid != NULL && kid_text == NULL))
		return refuse(e, "it is malformed");
	/* an extension that must be understood, and is not */
	if (json_object_get(header, "crit") != NULL)
		return refuse(e, "its header has crit");
	if (str_equal(alg, "HS256"))
		wanted = JWT_ALG_HS256;
	else if (str_equal(alg, "RS256"))
		wanted = JWT_ALG_RS256;
	else if (str_equal(alg, "ES256"))
		wanted = JWT_ALG_ES256;
	else
		return refuse(e, "alg must be HS256, RS256 or ES256");
	key = token_key_find(keys, wanted, kid_text);
	if (key == NULL)
		return refuse(e, "no key of this server fits its alg and kid");
	good = jwt_decode(&jwt, token, (const unsigned char *)key->bytes, (int)key->length) == 0 &&
	       jwt != NULL && jwt_get_alg(jwt) == wanted;
	jwt_free(jwt);
	return good ? 0 : refuse(e, "its signature is wrong");
}

/* --- claims ----------------------------------------------------------------------------------- */

/* 1 there, 0 not, -1 no time. */
static int time_claim(const json_t *claims, const char *name, double *out)
{
	const json_t *value = json_object_get(claims, name);

	if (value == NULL)
		return 0;
	if (!json_is_number(value))
		return -1;
	*out = json_number_value(value);
	return *out >= 0 && *out <= TIME_MAX ? 1 : -1;
}

static int check_times(const json_t *claims, const struct policy *policy, int64_t now_sec,
		       struct principal *out, struct err *e)
{
	double leeway = (double)policy->auth.jwt.leeway_sec;
	double now = (double)now_sec;
	double expires = 0;
	double from = 0;
	int got;

	if (time_claim(claims, "exp", &expires) != 1)
		return refuse(e, "it has no exp");
	if (expires + leeway <= now)
		return refuse(e, "it has expired");
	got = time_claim(claims, "nbf", &from);
	if (got < 0)
		return refuse(e, "nbf is no time");
	if (got == 1 && from - leeway > now)
		return refuse(e, "it is not valid yet");
	out->expires_ms = (int64_t)((expires + leeway) * 1000);
	return 0;
}

static bool list_has(const json_t *value, const char *word)
{
	size_t i;
	const json_t *item;

	if (!json_is_array(value))
		return false;
	json_array_foreach (value, i, item) {
		const char *text = json_text(item);

		if (text != NULL && str_equal(text, word))
			return true;
	}
	return false;
}

/* Words of one text, with blanks between. */
static bool words_have(const char *text, const char *word)
{
	size_t length = strlen(word);

	while (text != NULL && *text != '\0') {
		size_t here = strcspn(text, " ");

		if (here == length && memcmp(text, word, length) == 0)
			return true;
		text += here;
		text += strspn(text, " ");
	}
	return false;
}

static int check_origin(const json_t *claims, const struct policy *policy, struct err *e)
{
	const char *issuer = json_text(json_object_get(claims, "iss"));
	const json_t *audience = json_object_get(claims, "aud");
	const char *one = json_text(audience);

	if (policy->auth.jwt.issuer[0] != '\0' &&
	    (issuer == NULL || !str_equal(issuer, policy->auth.jwt.issuer)))
		return refuse(e, "its issuer is not the one of this server");
	if (policy->auth.jwt.audience[0] != '\0' &&
	    !(one != NULL && str_equal(one, policy->auth.jwt.audience)) &&
	    !list_has(audience, policy->auth.jwt.audience))
		return refuse(e, "it is for somebody else");
	return 0;
}

/* What a user may be called: no control characters, and not too long for a column. */
static bool user_is_good(const char *text)
{
	size_t length = strlen(text);

	if (length == 0 || length > CLAIM_MAX_BYTES || !str_utf8_valid(text, length))
		return false;
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7F)
			return false;
	return true;
}

/* As key create takes it. */
static bool tenant_is_good(const char *text)
{
	static const char allowed[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@";
	size_t length = strlen(text);

	return length > 0 && length <= CLAIM_MAX_BYTES && strspn(text, allowed) == length;
}

static int read_caller(const json_t *claims, const struct policy *policy, struct principal *out,
		       struct err *e)
{
	const char *user = json_text(json_object_get(claims, policy->auth.jwt.user_claim));
	const char *tenant = policy->auth.jwt.tenant;

	if (user == NULL || !user_is_good(user) ||
	    str_copy(out->user, sizeof(out->user), user) != 0)
		return refuse(e, "it has no user of 1 to 64 bytes");
	if (policy->auth.jwt.tenant_claim[0] != '\0')
		tenant = json_text(json_object_get(claims, policy->auth.jwt.tenant_claim));
	if (tenant == NULL || !tenant_is_good(tenant) ||
	    str_copy(out->tenant, sizeof(out->tenant), tenant) != 0)
		return refuse(e, "it has no tenant");
	out->role = ROLE_USER;
	if (policy->auth.jwt.roles_claim[0] != '\0') {
		const json_t *roles = json_object_get(claims, policy->auth.jwt.roles_claim);

		if (list_has(roles, policy->auth.jwt.admin_role) ||
		    words_have(json_text(roles), policy->auth.jwt.admin_role))
			out->role = ROLE_ADMIN;
	}
	return 0;
}

int token_check(const struct token_keys *keys, const struct policy *policy, const char *token,
		int64_t now_sec, struct principal *out, struct err *e)
{
	scope_json json_t *header = NULL;
	scope_json json_t *claims = NULL;
	struct principal found;
	const char *first = strchr(token, '.');
	const char *second = first == NULL ? NULL : strchr(first + 1, '.');

	memset(&found, 0, sizeof(found));
	if (second == NULL || strchr(second + 1, '.') != NULL)
		return refuse(e, "it is malformed");
	if (strlen(token) > TOKEN_MAX_BYTES)
		return refuse(e, "it is longer than 8192 bytes");
	if (keys == NULL)
		return refuse(e, "this server takes none");
	if (parse_part(token, (size_t)(first - token), &header, e) != 0 ||
	    check_signature(keys, header, token, e) != 0 ||
	    parse_part(first + 1, (size_t)(second - first - 1), &claims, e) != 0 ||
	    check_times(claims, policy, now_sec, &found, e) != 0 ||
	    check_origin(claims, policy, e) != 0 || read_caller(claims, policy, &found, e) != 0)
		return -1;
	*out = found;
	return 0;
}
