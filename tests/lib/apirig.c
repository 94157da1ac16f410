#include "tests/lib/apirig.h"

#include "handlers/authn.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/store_private.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdarg.h>
#include <sys/stat.h>

static __attribute__((noreturn)) void give_up(const char *what, const char *why)
{
	(void)fprintf(stderr, "%s: %s\n", what, why);
	exit(2);
}

static const char *policy_path(void)
{
	return getenv("CORDON_POLICY");
}

int api_main(int argc, char **argv, const struct test *tests, size_t count)
{
	if (policy_path() == NULL) {
		(void)printf("skipped: CORDON_POLICY is not set (tests/run.sh build api)\n");
		return 77;
	}
	if (geteuid() != 0) {
		(void)printf("skipped: needs root\n");
		return 77;
	}
	json_setup();
	return test_main(argc, argv, tests, count);
}

struct store *api_store(void)
{
	scope_policy struct policy *policy = NULL;
	struct store_options options;
	struct store *db = NULL;
	struct err e = ERR_INIT;

	if (policy_load(policy_path(), &policy, &e) != 0)
		give_up("policy", e.text);
	options.socket = policy->database.socket;
	options.database = policy->database.name;
	options.user = "root";
	if (store_open(&options, &db, &e) != 0)
		give_up("store", e.text);
	return db;
}

void api_open(struct api *api, const char *node)
{
	char path[300];
	struct err e = ERR_INIT;

	memset(api, 0, sizeof(*api));
	if (policy_load(policy_path(), &api->policy, &e) != 0)
		give_up("policy", e.text);
	mem_free(api->policy->node);
	api->policy->node = mem_dup(node);
	/* what these tests stage as root must not lie between the folders of the live programs */
	mem_free(api->policy->paths.data);
	api->policy->paths.data = mem_dup(test_dir());
	(void)snprintf(path, sizeof(path), "%s/staging", test_dir());
	if (api->policy->paths.data == NULL || (mkdir(path, 0770) != 0 && errno != EEXIST))
		give_up("rig", "no folder for data");
	api->db = api_store();
	/* nobody listens there: notices of these tests go nowhere */
	(void)snprintf(path, sizeof(path), "%s/no.sock", test_dir());
	if (api->policy->node == NULL || notifier_init(&api->to_gate, path, &e) != 0 ||
	    notifier_init(&api->to_runner, path, &e) != 0)
		give_up("rig", e.text);
	api->context.policy = api->policy;
	api->context.db = api->db;
	api->context.to_gate = &api->to_gate;
	api->context.to_runner = &api->to_runner;
	api->context.image_digest = "sha256:test";
}

void api_close(struct api *api)
{
	mem_free(api->context.run);
	notifier_release(&api->to_gate);
	notifier_release(&api->to_runner);
	store_close(api->db);
	policy_free(api->policy);
	memset(api, 0, sizeof(*api));
}

void api_sql(struct store *db, const char *format, ...)
{
	char text[4096];
	va_list args;
	struct err e = ERR_INIT;
	int length;

	va_start(args, format);
	length = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (length < 0 || (size_t)length >= sizeof(text))
		give_up("statement too long", text);
	if (store_run_text(db, text, (size_t)length, &e) != 0)
		give_up(text, e.text);
}

int64_t api_number(struct store *db, const char *format, ...)
{
	char text[4096];
	va_list args;
	struct err e = ERR_INIT;
	MYSQL_STMT *stmt;
	MYSQL_BIND bind;
	long long number = 0;
	my_bool is_null = 0;
	int got;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (store_connect(db, &e) != 0)
		give_up(text, e.text);
	stmt = mysql_stmt_init(db->mysql);
	memset(&bind, 0, sizeof(bind));
	bind.buffer_type = MYSQL_TYPE_LONGLONG;
	bind.buffer = &number;
	bind.is_null = &is_null;
	if (stmt == NULL || mysql_stmt_prepare(stmt, text, strlen(text)) != 0 ||
	    mysql_stmt_execute(stmt) != 0 || mysql_stmt_bind_result(stmt, &bind) != 0 ||
	    mysql_stmt_store_result(stmt) != 0)
		give_up(text, stmt == NULL ? "memory" : mysql_stmt_error(stmt));
	got = mysql_stmt_fetch(stmt);
	(void)mysql_stmt_close(stmt);
	return got == 0 && !is_null ? number : -1;
}

void api_key(struct store *db, const char *tenant, const char *user, const char *role,
	     char out[API_KEY_SIZE])
{
	char id[AUTHN_KEY_ID_DIGITS + 1];
	char secret[AUTHN_KEY_SECRET_DIGITS + 1];
	unsigned char hash[SHA256_DIGEST_LENGTH];
	struct err e = ERR_INIT;
	struct store_value ensure[] = {SV_TEXT(tenant)};
	struct store_value insert[] = {SV_TEXT(id),     SV_BYTES(hash, sizeof(hash)),
				       SV_TEXT(tenant), SV_TEXT(user),
				       SV_TEXT(role),   SV_TEXT("")};

	if (ident_token(id, AUTHN_KEY_ID_DIGITS, &e) != 0 ||
	    ident_token(secret, AUTHN_KEY_SECRET_DIGITS, &e) != 0)
		give_up("key", e.text);
	insert[0] = SV_TEXT(id);
	(void)SHA256((const unsigned char *)secret, AUTHN_KEY_SECRET_DIGITS, hash);
	if (store_exec(db, STMT_TENANT_ENSURE, ensure, 1, NULL, &e) != 0 ||
	    store_exec(db, STMT_KEY_INSERT, insert, ARRAY_LEN(insert), NULL, &e) != 0)
		give_up("key", e.text);
	(void)snprintf(out, API_KEY_SIZE, "ck_%s_%s", id, secret);
}

void api_forget(struct store *db, const char *tenant)
{
	static const char *const tables[] = {"job",     "run",     "idempotency", "artifact_usage",
					     "api_key", "session", "operation"};

	api_sql(
	    db,
	    "DELETE FROM artifact WHERE run_id IN (SELECT id FROM run WHERE tenant LIKE '%s%%')",
	    tenant);
	api_sql(
	    db,
	    "DELETE FROM run_trace WHERE run_id IN (SELECT id FROM run WHERE tenant LIKE '%s%%')",
	    tenant);
	api_sql(
	    db,
	    "DELETE FROM snapshot WHERE session_id IN (SELECT id FROM session WHERE tenant LIKE "
	    "'%s%%')",
	    tenant);
	api_sql(db,
		"DELETE FROM session_run WHERE session_id IN (SELECT id FROM session WHERE tenant "
		"LIKE '%s%%')",
		tenant);
	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		api_sql(db, "DELETE FROM %s WHERE tenant LIKE '%s%%'", tables[i], tenant);
	api_sql(db, "DELETE FROM tenant WHERE id LIKE '%s%%'", tenant);
}

void api_kill(struct store *db, struct store *victim)
{
	struct err e = ERR_INIT;

	if (store_connect(victim, &e) != 0)
		give_up("kill", e.text);
	api_sql(db, "KILL CONNECTION %lu", mysql_thread_id(victim->mysql));
}
