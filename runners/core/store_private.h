/* store_private.h: what store_db.c and store_stmt.c share; nobody else includes it. */
#ifndef CORDON_CORE_STORE_PRIVATE_H
#define CORDON_CORE_STORE_PRIVATE_H

#include "runners/core/store.h"

#include <mysql.h>

#define STORE_MAX_COLUMNS  40
#define STORE_INLINE_BYTES 256

struct store_column {
	my_bool is_null;
	my_bool cut;
	unsigned long length;
	bool is_number;
	long long number;
	char room[STORE_INLINE_BYTES];
	char *large;       /* mem: a value that did not fit into room */
	size_t large_size; /* bytes allocated */
};

struct store_prepared {
	MYSQL_STMT *stmt;
	unsigned int column_count;
	struct store_column *columns; /* mem */
	MYSQL_BIND *binds;            /* mem */
};

struct store {
	MYSQL *mysql;
	char *user;
	char *socket;
	char *database;
	struct store_prepared prepared[STMT__MAX];
	struct store_prepared *open; /* the statement whose result is open */
	bool in_transaction;
	bool transaction_lost;
	unsigned int last_code;
	uint64_t insert_id;
	uint64_t retries;
};

int store_connect(struct store *db, struct err *e);
bool store_code_lost(unsigned int code);
/* Turns a MariaDB error code into ours; drops the connection when it is lost. Returns -1. */
int store_fail(struct store *db, unsigned int code, const char *text, const char *what,
	       struct err *e);
void store_prepared_free(struct store_prepared *p);

#endif
