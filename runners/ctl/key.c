/* API keys. The secret is printed once, at creation; the database keeps only its SHA-256. */
#include "runners/ctl/ctl.h"

#include "runners/base/clock.h"
#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <openssl/sha.h>

/* As handlers/authn.h says: ck_<id>_<secret>. */
#define ID_DIGITS     12
#define SECRET_DIGITS 32

static bool name_is_good(const char *name)
{
	size_t length = strlen(name);

	if (length == 0 || length > 64)
		return false;
	for (size_t i = 0; i < length; i++)
		if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
		      (name[i] >= '0' && name[i] <= '9') || strchr("-_.@", name[i]) != NULL))
			return false;
	return true;
}

struct new_key {
	char id[ID_DIGITS + 1];
	unsigned char hash[SHA256_DIGEST_LENGTH];
	const char *tenant;
	const char *user;
	const char *role;
	const char *scopes;
};

static int insert_body(struct store *db, void *arg, struct err *e)
{
	const struct new_key *key = arg;
	struct store_value tenant[] = {SV_TEXT(key->tenant)};
	struct store_value row[] = {SV_TEXT(key->id),     SV_BYTES(key->hash, sizeof(key->hash)),
				    SV_TEXT(key->tenant), SV_TEXT(key->user),
				    SV_TEXT(key->role),   SV_TEXT(key->scopes)};

	if (store_exec(db, STMT_TENANT_ENSURE, tenant, 1, NULL, e) != 0)
		return -1;
	return store_exec(db, STMT_KEY_INSERT, row, ARRAY_LEN(row), NULL, e);
}

static int create(struct ctl *ctl, struct store *db)
{
	char secret[SECRET_DIGITS + 1];
	char text[ID_DIGITS + SECRET_DIGITS + 8];
	struct new_key key = {.tenant = ctl_option(ctl, "--tenant"),
			      .user = ctl_option(ctl, "--user"),
			      .role = ctl_option(ctl, "--role"),
			      .scopes = ctl_option(ctl, "--scopes")};
	struct err e = ERR_INIT;
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (key.tenant == NULL || key.user == NULL || !name_is_good(key.tenant) ||
	    !name_is_good(key.user))
		return ctl_usage(
		    "key create needs --tenant and --user, each 1 to 64 of a-z A-Z 0-9 - _ . @");
	if (key.role == NULL)
		key.role = "user";
	if (!str_equal(key.role, "user") && !str_equal(key.role, "admin") &&
	    !str_equal(key.role, "operator"))
		return ctl_usage("--role must be user, admin or operator");
	if (key.scopes == NULL)
		key.scopes = "";
	if (ident_token(key.id, ID_DIGITS, &e) != 0 || ident_token(secret, SECRET_DIGITS, &e) != 0)
		return ctl_fail(ctl, &e);
	(void)SHA256((const unsigned char *)secret, SECRET_DIGITS, key.hash);
	if (store_retry(db, insert_body, &key, &e) != 0)
		return ctl_fail(ctl, &e);
	(void)snprintf(text, sizeof(text), "ck_%s_%s", key.id, secret);
	if (ctl->json)
		ctl_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", key.id, "key",
					 text, "tenant", key.tenant, "user", key.user, "role",
					 key.role, "scopes", key.scopes));
	else
		(void)printf("%s\n", text);
	return 0;
}

/* "2026-01-31 12:00:00.000000" of the database as ISO 8601 */
static const char *iso_time(char out[CLOCK_ISO_SIZE], const char *text)
{
	if (snprintf(out, CLOCK_ISO_SIZE, "%sZ", text) >= CLOCK_ISO_SIZE)
		return text;
	if (strlen(out) > 10 && out[10] == ' ')
		out[10] = 'T';
	return out;
}

static int list(struct ctl *ctl, struct store *db)
{
	scope_json json_t *all = json_array();
	struct err e = ERR_INIT;
	int status = ctl_finish(ctl);
	int got;

	if (status != 0)
		return status;
	if (store_query(db, STMT_KEY_LIST, NULL, 0, &e) != 0)
		return ctl_fail(ctl, &e);
	while ((got = store_next(db, &e)) == 1) {
		char made[CLOCK_ISO_SIZE];
		char ended[CLOCK_ISO_SIZE];
		const char *revoked =
		    store_is_null(db, 6) ? NULL : iso_time(ended, store_text(db, 6));

		if (ctl->json)
			(void)json_array_append_new(
			    all,
			    json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s?}", "id",
				      store_text(db, 0), "tenant", store_text(db, 1), "user",
				      store_text(db, 2), "role", store_text(db, 3), "scopes",
				      store_text(db, 4), "created_at",
				      iso_time(made, store_text(db, 5)), "revoked_at", revoked));
		else
			(void)printf(
			    "%-14s %-16s %-16s %-9s %s%s%s\n", store_text(db, 0), store_text(db, 1),
			    store_text(db, 2), store_text(db, 3), iso_time(made, store_text(db, 5)),
			    revoked == NULL ? "" : " revoked ", revoked == NULL ? "" : revoked);
	}
	if (got < 0)
		return ctl_fail(ctl, &e);
	if (ctl->json)
		ctl_print_json(json_incref(all));
	return 0;
}

static int revoke_key(struct ctl *ctl, struct store *db)
{
	const char *id = ctl_word(ctl);
	struct store_value in[] = {SV_TEXT(id)};
	uint64_t affected = 0;
	struct err e = ERR_INIT;
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (id == NULL)
		return ctl_usage("key revoke needs the key's id");
	if (store_exec(db, STMT_KEY_REVOKE, in, 1, &affected, &e) != 0)
		return ctl_fail(ctl, &e);
	if (ctl->json)
		ctl_print_json(json_pack("{s:s, s:b}", "id", id, "revoked", affected == 1));
	else
		(void)puts(affected == 1 ? "revoked" : "no such living key");
	return affected == 1 ? 0 : CTL_EXIT_FOUND;
}

int ctl_key(struct ctl *ctl)
{
	const char *verb = ctl_word(ctl);
	struct store *db = NULL;
	struct err e = ERR_INIT;
	int status;

	if (verb == NULL)
		return ctl_usage("key needs create, list or revoke");
	if (ctl_store(ctl, &db, &e) != 0)
		return ctl_fail(ctl, &e);
	if (str_equal(verb, "create"))
		status = create(ctl, db);
	else if (str_equal(verb, "list"))
		status = list(ctl, db);
	else if (str_equal(verb, "revoke"))
		status = revoke_key(ctl, db);
	else
		status = ctl_usage("key needs create, list or revoke");
	store_close(db);
	return status;
}
