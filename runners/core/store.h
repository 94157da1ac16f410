/*
 * store.h: the door to MariaDB: one connection, the statement catalogue, transactions.
 *
 *	struct store *db = NULL;
 *	store_open(&options, &db);			  no traffic yet; connects at first use
 *	struct store_value in[] = {SV_TEXT(id)};
 *	if (store_query(db, STMT_RUN_GET, in, 1, e) != 0) ...
 *	while ((got = store_next(db, e)) == 1)
 *		id = store_text(db, 0);			  valid until the next store_next or
 *store_query store_done(db);
 *
 * A statement is prepared at its first use on a connection and again after a reconnect or a schema
 *change. Outside a transaction a broken connection is mended once and the statement repeated only
 *if it cannot have run. Inside one the transaction is lost: ERR_UNAVAILABLE. A COMMIT that breaks
 *is ERR_UNKNOWN_OUTCOME: read the row back by its id.
 *
 * store_retry runs a whole transaction and repeats it after a deadlock or a lock wait (1213, 1205):
 *at most 3 times, 5 to 50 ms apart. Only the outermost caller uses it. Errors: ERR_UNAVAILABLE
 *(server away), ERR_CONFLICT (duplicate key), ERR_INTERNAL. Not thread safe: one store per thread.
 */
#ifndef CORDON_CORE_STORE_H
#define CORDON_CORE_STORE_H

#include "runners/base/err.h"

#include "statements.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

struct store_options {
	const char *socket;   /* path of the server's unix socket */
	const char *database; /* name; NULL: none, for making it */
	const char *user;     /* NULL: the system user of this process */
};

enum store_kind { STORE_NULL, STORE_I64, STORE_BYTES };

struct store_value {
	enum store_kind kind;
	int64_t number;
	const void *data;
	size_t length;
};

struct store_value store_value_null(void);
struct store_value store_value_i64(int64_t number);
/* NULL text is SQL NULL. */
struct store_value store_value_text(const char *text);
struct store_value store_value_bytes(const void *data, size_t length);

#define SV_NULL           store_value_null()
#define SV_I64(n)         store_value_i64(n)
#define SV_TEXT(s)        store_value_text(s)
#define SV_BYTES(p, size) store_value_bytes(p, size)

int store_open(const struct store_options *options, struct store **out, struct err *e);
void store_close(struct store *db);

/* A statement without rows. out_affected may be NULL. */
int store_exec(struct store *db, enum statement which, const struct store_value *values,
	       size_t count, uint64_t *out_affected, struct err *e)
    __attribute__((warn_unused_result));
/* The AUTO_INCREMENT value of the last store_exec. */
uint64_t store_insert_id(const struct store *db);

int store_query(struct store *db, enum statement which, const struct store_value *values,
		size_t count, struct err *e) __attribute__((warn_unused_result));
/* 1: a row, 0: no more (the result is closed), -1: error. */
int store_next(struct store *db, struct err *e);
void store_done(struct store *db);
/* store_query and the first row: 1, 0 or -1. The result stays open after 1. */
int store_query_row(struct store *db, enum statement which, const struct store_value *values,
		    size_t count, struct err *e) __attribute__((warn_unused_result));

bool store_is_null(const struct store *db, unsigned int column);
/* "" for NULL; NUL terminated; out_length may be NULL. */
const char *store_bytes(const struct store *db, unsigned int column, size_t *out_length);
const char *store_text(const struct store *db, unsigned int column);
int64_t store_i64(const struct store *db, unsigned int column);

int store_begin(struct store *db, struct err *e) __attribute__((warn_unused_result));
int store_commit(struct store *db, struct err *e) __attribute__((warn_unused_result));
void store_rollback(struct store *db);

/* Runs one statement of a migration file. Only store_migrate.c uses it: program code has the
 * catalogue. */
int store_run_text(struct store *db, const char *text, size_t length, struct err *e)
    __attribute__((warn_unused_result));

/* A transaction body: 0 commits, -1 rolls back. */
typedef int store_body(struct store *db, void *arg, struct err *e);
int store_retry(struct store *db, store_body *body, void *arg, struct err *e)
    __attribute__((warn_unused_result));

/* Transactions repeated after a deadlock or lock wait since the start, for metrics and tests. */
uint64_t store_retries(const struct store *db);
/* Closes the connection, so that the next call makes a new one (also for tests). */
void store_disconnect(struct store *db);

const char *statement_name(enum statement which);
const char *statement_text(enum statement which);
unsigned int statement_parameters(enum statement which);

#endif
