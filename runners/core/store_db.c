/* The connection and transactions: connecting, error classes, retry. Statements are in
 * store_stmt.c. */
#include "runners/core/store.h"

#include "runners/base/clock.h"
#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/store_private.h"

#include <errmsg.h>
#include <mysqld_error.h>
#include <pwd.h>

#define RETRY_LIMIT          3
#define CONNECT_TIMEOUT_S    5
#define READ_WRITE_TIMEOUT_S 30

bool store_code_lost(unsigned int code)
{
	switch (code) {
	case CR_CONNECTION_ERROR:     /* 2002 */
	case CR_SERVER_GONE_ERROR:    /* 2006 */
	case CR_SERVER_LOST:          /* 2013 */
	case CR_SERVER_LOST_EXTENDED: /* 2055 */
	case ER_SERVER_SHUTDOWN:      /* 1053 */
	case ER_CONNECTION_KILLED:    /* 1927 */
		return true;
	default:
		return false;
	}
}

int store_fail(struct store *db, unsigned int code, const char *text, const char *what,
	       struct err *e)
{
	enum err_code kind = ERR_INTERNAL;

	db->last_code = code;
	if (store_code_lost(code)) {
		kind = ERR_UNAVAILABLE;
	} else if (code == ER_CON_COUNT_ERROR || code == ER_LOCK_DEADLOCK ||
		   code == ER_LOCK_WAIT_TIMEOUT || code == ER_OPTION_PREVENTS_STATEMENT) {
		kind = ERR_UNAVAILABLE;
	} else if (code == ER_DUP_ENTRY || code == ER_SIGNAL_EXCEPTION) {
		/* the second: a procedure found that it cannot be done */
		kind = ERR_CONFLICT;
	} else if (code == ER_DISK_FULL || code == ER_RECORD_FILE_FULL) {
		kind = ERR_STORAGE;
	}
	(void)err_set(e, kind, 0, "%s: %s (%u)", what, text, code);
	/* last: text may belong to the connection */
	if (store_code_lost(code))
		store_disconnect(db);
	return -1;
}

int store_open(const struct store_options *options, struct store **out, struct err *e)
{
	struct store *db = mem_zalloc(1, sizeof(*db));
	char name[256];
	struct passwd entry;
	struct passwd *found = NULL;

	if (db == NULL)
		return err_set(e, ERR_NOMEM, 0, "store");
	if (options->user == NULL &&
	    getpwuid_r(geteuid(), &entry, name, sizeof(name), &found) == 0 && found != NULL)
		db->user = mem_dup(entry.pw_name);
	else
		db->user = mem_dup(options->user == NULL ? "root" : options->user);
	db->socket = mem_dup(options->socket);
	db->database = mem_dup(options->database);
	if (db->user == NULL || db->socket == NULL ||
	    (db->database == NULL && options->database != NULL)) {
		store_close(db);
		return err_set(e, ERR_NOMEM, 0, "store");
	}
	*out = db;
	return 0;
}

void store_disconnect(struct store *db)
{
	store_done(db);
	for (unsigned int i = 0; i < STMT__MAX; i++)
		store_prepared_free(&db->prepared[i]);
	if (db->mysql != NULL)
		mysql_close(db->mysql);
	db->mysql = NULL;
	if (db->in_transaction)
		db->transaction_lost = true;
}

void store_close(struct store *db)
{
	if (db == NULL)
		return;
	store_disconnect(db);
	mem_free(db->user);
	mem_free(db->socket);
	mem_free(db->database);
	mem_free(db);
}

int store_connect(struct store *db, struct err *e)
{
	unsigned int connect_timeout = CONNECT_TIMEOUT_S;
	unsigned int io_timeout = READ_WRITE_TIMEOUT_S;
	my_bool reconnect = 0;

	if (db->mysql != NULL)
		return 0;
	db->mysql = mysql_init(NULL);
	if (db->mysql == NULL)
		return err_set(e, ERR_NOMEM, 0, "mysql_init");
	if (mysql_options(db->mysql, MYSQL_OPT_CONNECT_TIMEOUT, &connect_timeout) != 0 ||
	    mysql_options(db->mysql, MYSQL_OPT_READ_TIMEOUT, &io_timeout) != 0 ||
	    mysql_options(db->mysql, MYSQL_OPT_WRITE_TIMEOUT, &io_timeout) != 0 ||
	    mysql_options(db->mysql, MYSQL_OPT_RECONNECT, &reconnect) != 0 ||
	    mysql_options(db->mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4") != 0 ||
	    mysql_options(db->mysql, MYSQL_INIT_COMMAND, statement_text(STMT_SESSION_SETUP)) != 0)
		return err_set(e, ERR_INTERNAL, 0, "mysql_options");
	if (mysql_real_connect(db->mysql, NULL, db->user, NULL, db->database, 0, db->socket, 0) ==
	    NULL) {
		char text[256];
		unsigned int code = mysql_errno(db->mysql);

		(void)snprintf(text, sizeof(text), "%s", mysql_error(db->mysql));
		store_disconnect(db);
		return err_set(e, ERR_UNAVAILABLE, 0, "connect to the database as %s: %s (%u)",
			       db->user, text, code);
	}
	return 0;
}

int store_begin(struct store *db, struct err *e)
{
	if (db->in_transaction)
		return err_set(e, ERR_INTERNAL, 0, "a transaction is open");
	if (store_exec(db, STMT_BEGIN, NULL, 0, NULL, e) != 0)
		return -1;
	db->in_transaction = true;
	db->transaction_lost = false;
	return 0;
}

int store_commit(struct store *db, struct err *e)
{
	bool lost = db->transaction_lost;

	store_done(db);
	db->in_transaction = false;
	db->transaction_lost = false;
	if (lost || db->mysql == NULL)
		return err_set(e, ERR_UNAVAILABLE, 0, "the transaction is lost");
	if (mysql_commit(db->mysql) != 0) {
		unsigned int code = mysql_errno(db->mysql);

		db->last_code = code;
		if (store_code_lost(code)) {
			store_disconnect(db);
			return err_set(e, ERR_UNKNOWN_OUTCOME, 0, "commit broke (%u)", code);
		}
		return store_fail(db, code, mysql_error(db->mysql), "commit", e);
	}
	return 0;
}

void store_rollback(struct store *db)
{
	store_done(db);
	db->in_transaction = false;
	db->transaction_lost = false;
	if (db->mysql != NULL && mysql_rollback(db->mysql) != 0)
		store_disconnect(db);
}

static bool repeatable(const struct store *db, const struct err *e)
{
	return e->code == ERR_UNAVAILABLE &&
	       (db->last_code == ER_LOCK_DEADLOCK || db->last_code == ER_LOCK_WAIT_TIMEOUT);
}

int store_retry(struct store *db, store_body *body, void *arg, struct err *e)
{
	bool reconnected = false;

	for (int attempt = 0;; attempt++) {
		struct err inner = ERR_INIT;
		bool fresh = db->mysql == NULL;
		int result;

		db->last_code = 0;
		result = store_begin(db, &inner);
		if (result == 0) {
			result = body(db, arg, &inner);
			if (result == 0)
				result = store_commit(db, &inner);
			else
				store_rollback(db);
		}
		if (result == 0)
			return 0;
		if (attempt < RETRY_LIMIT && repeatable(db, &inner)) {
			unsigned char jitter = 0;
			struct err ignored = ERR_INIT;

			db->retries++;
			if (ident_random(&jitter, sizeof(jitter), &ignored) != 0)
				jitter = 0;
			clock_sleep_us((5 + jitter % 46) * CLOCK_US_PER_MS);
			continue;
		}
		/* An old connection that broke before COMMIT has changed nothing: one try on a new
		 * one. */
		if (inner.code == ERR_UNAVAILABLE && !fresh && !reconnected && db->mysql == NULL) {
			reconnected = true;
			continue;
		}
		*e = e->code == ERR_NONE ? inner : *e;
		return -1;
	}
}

uint64_t store_retries(const struct store *db)
{
	return db->retries;
}
