#include "handlers/authn.h"

#include "handlers/ops/op_run.h"
#include "handlers/secrets.h"

#include "runners/base/clock.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <openssl/sha.h>

#define KEY_COLUMNS 6 /* of KEY_FIND_RUN: those of the run follow */

const char *role_name(enum role role)
{
	static const char *const names[] = {"user", "admin", "operator"};

	return names[role];
}

static bool token_digits(const char *text, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '2' && text[i] <= '7')))
			return false;
	return true;
}

static bool key_fits(const char *credential)
{
	return str_starts(credential, "ck_") &&
	       strlen(credential) == 3 + AUTHN_KEY_ID_DIGITS + 1 + AUTHN_KEY_SECRET_DIGITS &&
	       token_digits(credential + 3, AUTHN_KEY_ID_DIGITS) &&
	       credential[3 + AUTHN_KEY_ID_DIGITS] == '_' &&
	       token_digits(credential + 4 + AUTHN_KEY_ID_DIGITS, AUTHN_KEY_SECRET_DIGITS);
}

static int refuse(struct err *e)
{
	return err_show(e, ERR_UNAUTHORIZED, "The API key is not valid.");
}

static int key_check(struct handler_context *context, const char *credential, int64_t accepted_ms,
		     struct principal *out, struct err *e)
{
	struct principal found;
	bool with_run = context->wanted_run != NULL && ident_is_uuid(context->wanted_run);
	struct store_value in[1];
	struct store_value both[2];
	unsigned char hash[SHA256_DIGEST_LENGTH];
	size_t stored_length;
	const char *stored;
	bool equal;
	const char *role;
	int got;

	(void)accepted_ms;
	memset(&found, 0, sizeof(found));
	memcpy(found.key_id, credential + 3, AUTHN_KEY_ID_DIGITS);
	(void)SHA256((const unsigned char *)credential + 4 + AUTHN_KEY_ID_DIGITS,
		     AUTHN_KEY_SECRET_DIGITS, hash);
	in[0] = SV_TEXT(found.key_id);
	both[0] = SV_TEXT(context->wanted_run);
	both[1] = in[0];
	context->has_run = false;
	if (with_run)
		got = store_query_row(context->db, STMT_KEY_FIND_RUN, both, ARRAY_LEN(both), e);
	else
		got = store_query_row(context->db, STMT_KEY_FIND, in, 1, e);
	if (got < 0)
		return -1;
	if (got == 0)
		return refuse(e);
	stored = store_bytes(context->db, 0, &stored_length);
	equal =
	    stored_length == sizeof(hash) && str_equal_constant_time(stored, hash, sizeof(hash));
	if (!equal || store_i64(context->db, 5) != 0 ||
	    str_copy(found.tenant, sizeof(found.tenant), store_text(context->db, 1)) != 0 ||
	    str_copy(found.user, sizeof(found.user), store_text(context->db, 2)) != 0 ||
	    str_copy(found.scopes, sizeof(found.scopes), store_text(context->db, 4)) != 0) {
		store_done(context->db);
		return refuse(e);
	}
	role = store_text(context->db, 3);
	found.role = str_equal(role, "operator") ? ROLE_OPERATOR
		     : str_equal(role, "admin")  ? ROLE_ADMIN
						 : ROLE_USER;
	if (with_run)
		op_run_keep(context, KEY_COLUMNS);
	store_done(context->db);
	*out = found;
	return 0;
}

static int token_judge(struct handler_context *context, const char *credential, int64_t accepted_ms,
		       struct principal *out, struct err *e)
{
	const struct secrets *secrets = context->secrets;
	int64_t now_ms = accepted_ms != 0 ? accepted_ms : clock_real_us() / CLOCK_US_PER_MS;
	struct principal found;
	struct store_value tenant[1];
	int got;

	context->has_run = false;
	if (token_check(secrets == NULL ? NULL : secrets->token, context->policy, credential,
			now_ms / 1000, &found, e) != 0)
		return -1;
	/* a tenant begins with its first key: a claim makes none */
	tenant[0] = SV_TEXT(found.tenant);
	got = store_query_row(context->db, STMT_TENANT_FIND, tenant, 1, e);
	if (got < 0)
		return -1;
	if (got == 0)
		return err_show(e, ERR_UNAUTHORIZED,
				"The token is not valid: its tenant is not known here.");
	store_done(context->db);
	*out = found;
	return 0;
}

static const struct authn_scheme schemes[] = {
    {"token", token_fits, token_judge},
    {"api_key", key_fits, key_check},
};

static int judge(struct handler_context *context, const char *credential, int64_t accepted_ms,
		 struct principal *out, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
		if (schemes[i].fits(credential))
			return schemes[i].check(context, credential, accepted_ms, out, e);
	return refuse(e);
}

int authn_check(struct handler_context *context, const struct http_request *request,
		bool query_allowed, int64_t accepted_ms, struct principal *out, struct err *e)
{
	scope_buf struct buf value = BUF_NONE;
	const char *credential = http_header(request, "X-API-KEY");
	const char *authorization = http_header(request, "Authorization");
	static const char *const names[] = {"auth_token", "token"};
	size_t name_count = context->policy->streams.signed_urls ? 1 : ARRAY_LEN(names);

	buf_init(&value, LIMIT_URL_BYTES);
	if (credential != NULL && credential[0] != '\0')
		return key_fits(credential) ? key_check(context, credential, accepted_ms, out, e)
					    : refuse(e);
	if (authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0)
		return judge(context, authorization + 7 + strspn(authorization + 7, " "),
			     accepted_ms, out, e);
	for (size_t i = 0; query_allowed && i < name_count; i++) {
		if (http_query(request, names[i], &value) == 1)
			return judge(context, buf_text(&value), accepted_ms, out, e);
		if (buf_error(&value) == ERR_NOMEM)
			return err_set(e, ERR_NOMEM, 0, "credential");
	}
	return err_show(e, ERR_UNAUTHORIZED,
			"An API key or a token is required: send X-API-KEY or Authorization: "
			"Bearer.");
}
