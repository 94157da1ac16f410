/*
 * sql SOCKET SQL_DIR: judges the schema and the statement catalogue against a server that has no
 * database of ours yet (tests/check/check_sql.sh starts one). Prints what is wrong, exits 1 then:
 * migrations and grants run, and run again; every statement can be prepared and has as many
 * parameters as its row says; no table or column has another collation than utf8mb4_nopad_bin or
 * binary; the claim, the sweeps and the list walk their index and sort nothing.
 */
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/store_migrate.h"
#include "runners/core/store_private.h"

#define CELL_BYTES 256

static int faults;

static void fault(const char *what, const char *why)
{
	(void)printf("%s: %s\n", what, why);
	faults++;
}

static MYSQL_STMT *prepare(struct store *db, const char *name, const char *text)
{
	MYSQL_STMT *stmt = mysql_stmt_init(db->mysql);

	if (stmt == NULL || mysql_stmt_prepare(stmt, text, strlen(text)) != 0) {
		fault(name, stmt == NULL ? "no memory" : mysql_stmt_error(stmt));
		(void)(stmt != NULL && mysql_stmt_close(stmt));
		return NULL;
	}
	return stmt;
}

static void prepare_all(struct store *db)
{
	for (unsigned int i = 0; i < STMT__MAX; i++) {
		enum statement which = (enum statement)i;
		MYSQL_STMT *stmt = prepare(db, statement_name(which), statement_text(which));

		if (stmt == NULL)
			continue;
		if (mysql_stmt_param_count(stmt) != statement_parameters(which))
			fault(statement_name(which), "has another number of parameters");
		(void)mysql_stmt_close(stmt);
	}
}

/* Calls each(row) with the cells as text, "" for NULL. */
static void rows(struct store *db, const char *text, MYSQL_BIND *parameters,
		 void (*each)(char (*cells)[CELL_BYTES], unsigned int count))
{
	MYSQL_STMT *stmt = prepare(db, text, text);
	MYSQL_BIND binds[16];
	char cells[16][CELL_BYTES];
	unsigned int count;
	int got;

	if (stmt == NULL)
		return;
	memset(binds, 0, sizeof(binds));
	for (size_t i = 0; i < ARRAY_LEN(binds); i++) {
		binds[i].buffer_type = MYSQL_TYPE_STRING;
		binds[i].buffer = cells[i];
		binds[i].buffer_length = CELL_BYTES - 1;
	}
	if ((parameters != NULL && mysql_stmt_bind_param(stmt, parameters) != 0) ||
	    mysql_stmt_execute(stmt) != 0 || mysql_stmt_bind_result(stmt, binds) != 0 ||
	    mysql_stmt_store_result(stmt) != 0) {
		fault(text, mysql_stmt_error(stmt));
		(void)mysql_stmt_close(stmt);
		return;
	}
	count = mysql_stmt_field_count(stmt);
	for (;;) {
		memset(cells, 0, sizeof(cells));
		got = mysql_stmt_fetch(stmt);
		if (got != 0 && got != MYSQL_DATA_TRUNCATED)
			break;
		each(cells, count);
	}
	if (got != MYSQL_NO_DATA)
		fault(text, "cannot be read");
	(void)mysql_stmt_close(stmt);
}

static void bad_collation(char (*cells)[CELL_BYTES], unsigned int count)
{
	(void)count;
	(void)printf("collation of %s.%s: %s\n", cells[0], cells[1], cells[2]);
	faults++;
}

/* What walks an index in its own order: one that sorts reads, and with FOR UPDATE locks, all that
 * there is. The parameters by kind: s text, n number, 0 NULL. */
struct walk {
	enum statement which;
	const char *kinds;
	const char *table;
	const char *key;
};

static const struct walk walks[] = {
    {STMT_JOB_CLAIM_NEXT, "sn", "job", "job_claim"},
    {STMT_JOB_CLAIM_FIRST, "sn", "job", "job_claim"},
    {STMT_JOB_LOOK, "sn", "job", "job_claim"},
    {STMT_JOB_LOOK_FIRST, "sn", "job", "job_claim"},
    {STMT_JOB_EXPIRED, "s", "job", "job_expiry"},
    {STMT_JOB_OF_OWNER, "s", "job", "job_owner"},
    {STMT_IDEM_EXPIRED, "", "idempotency", "idempotency_expiry"},
    {STMT_RUN_EXPIRED_ROWS, "nn", "run", "run_finished"},
    {STMT_ARTIFACT_EXPIRED, "nn", "run", "run_finished"},
    {STMT_RUN_LIST, "sssn", "run", "run_owner"},
    {STMT_SESSION_LIST, "sssn", "session", "session_owner"},
    {STMT_ADMIN_RUN_LIST_ASC, "000000000000000000nn", "run", "run_started"},
    {STMT_ADMIN_RUN_LIST_DESC, "ss0000000000000000nn", "run", "run_started"},
    {STMT_ADMIN_IDEM_LIST_ASC, "000000000000nn", "idempotency", "idempotency_expiry"},
    {STMT_ADMIN_IDEM_LIST_DESC, "ss0000000000nn", "idempotency", "idempotency_expiry"},
    {STMT_WORKSPACE_RUN_LIST, "sssn", "run", "run_owner"},
};

static const struct walk *walk;
static unsigned int explained;

/* id, select_type, table, type, possible_keys, key, key_len, ref, rows, Extra */
static void judge_walk(char (*cells)[CELL_BYTES], unsigned int count)
{
	/* what a column looks up by a whole key is no walk */
	if (count > 1 && str_equal(cells[1], "DEPENDENT SUBQUERY"))
		return;
	explained++;
	if (count < 10 || !str_equal(cells[2], walk->table) || !str_equal(cells[5], walk->key))
		fault(statement_name(walk->which), "does not use its index");
	if (count >= 10 &&
	    (strstr(cells[9], "filesort") != NULL || strstr(cells[9], "temporary") != NULL))
		fault(statement_name(walk->which), cells[9]);
}

/* Enough rows that the optimizer has something to choose. */
static int fill(struct store *db, struct err *e)
{
	static const char *const texts[] = {
	    "INSERT INTO job (kind, object_kind, object_id, tenant, user_id, node, state, spec, "
	    "request_id, created_at, expires_at) SELECT 'run', 'run', seq, 't', 'u', "
	    "CONCAT('n', seq % 3), 'queued', 's', 'r', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL "
	    "seq SECOND FROM seq_1_to_3000",
	    "INSERT INTO run (id, face, tenant, user_id, key_id, node, job_id, request_id, "
	    "spec_version, runtime, policy_hash, trust_level, network_policy, phase, created_at, "
	    "finished_at) SELECT seq, 'runs', CONCAT('n', seq % 30), 'n1', 'k', 'n', seq, 'r', '1.0', "
	    "'x', 'h', 'standard', 'deny_all', 'failed', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL "
	    "seq SECOND FROM seq_1_to_3000",
	    "INSERT INTO idempotency SELECT 'runs', 't', 'u', seq, REPEAT('f', 32), 'o', "
	    "UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL seq SECOND FROM seq_1_to_3000",
	    "ANALYZE TABLE job, run, idempotency"};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (store_run_text(db, texts[i], strlen(texts[i]), e) != 0)
			return -1;
	return 0;
}

static void explain(struct store *db)
{
	char text[4000];
	char node[] = "n1";
	long long number = 16;
	MYSQL_BIND in[32];

	memset(in, 0, sizeof(in));
	for (size_t i = 0; walk->kinds[i] != '\0'; i++) {
		bool is_text = walk->kinds[i] == 's';

		in[i].buffer_type = is_text                 ? MYSQL_TYPE_STRING
				    : walk->kinds[i] == '0' ? MYSQL_TYPE_NULL
							    : MYSQL_TYPE_LONGLONG;
		in[i].buffer = is_text ? (void *)node : (void *)&number;
		in[i].buffer_length = is_text ? 2 : sizeof(number);
	}
	explained = 0;
	(void)snprintf(text, sizeof(text), "EXPLAIN %s", statement_text(walk->which));
	rows(db, text, walk->kinds[0] == '\0' ? NULL : in, judge_walk);
	if (explained != 1)
		fault(statement_name(walk->which), "EXPLAIN has not one row");
}

static int judge(const char *socket, const char *sql_dir, struct err *e)
{
	struct store_options options = {.socket = socket, .database = "cordon", .user = "root"};
	struct store *db = NULL;

	if (store_migrate(&options, sql_dir, NULL, NULL, e) != 0 ||
	    store_migrate(&options, sql_dir, NULL, NULL, e) != 0 ||
	    store_open(&options, &db, e) != 0)
		return -1;
	if (fill(db, e) != 0) {
		store_close(db);
		return -1;
	}
	prepare_all(db);
	rows(
	    db,
	    "SELECT table_name, column_name, collation_name FROM information_schema.columns WHERE "
	    "table_schema = DATABASE() AND collation_name IS NOT NULL AND collation_name NOT IN "
	    "('utf8mb4_nopad_bin', 'binary') UNION ALL SELECT table_name, '', table_collation FROM "
	    "information_schema.tables WHERE table_schema = DATABASE() AND table_collation NOT IN "
	    "('utf8mb4_nopad_bin', 'binary')",
	    NULL, bad_collation);
	for (size_t i = 0; i < ARRAY_LEN(walks); i++) {
		walk = &walks[i];
		explain(db);
	}
	store_close(db);
	return 0;
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;

	if (argc != 3) {
		(void)fprintf(stderr, "usage: sql SOCKET SQL_DIR\n");
		return 64;
	}
	if (judge(argv[1], argv[2], &e) != 0)
		fault("sql", e.text);
	return faults == 0 ? 0 : 1;
}
