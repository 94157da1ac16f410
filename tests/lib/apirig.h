/*
 * apirig.h: what tests against the private stack's MariaDB share: a store as root, a handler
 * context with the stack's policy under a node name of its own (so that the live runner takes
 * nothing), keys, and clearing up.
 *
 *	int main(int argc, char **argv)
 *	{
 *		return api_main(argc, argv, tests, ARRAY_LEN(tests));	skips without a stack
 *	}
 */
#ifndef CORDON_TESTS_LIB_APIRIG_H
#define CORDON_TESTS_LIB_APIRIG_H

#include "handlers/handler.h"
#include "tests/lib/test.h"

#define API_KEY_SIZE 49 /* ck_, 12, _, 32, NUL */

struct api {
	struct policy *policy; /* the test may change it */
	struct store *db;
	struct notifier to_gate;
	struct notifier to_runner;
	struct handler_context context;
};

int api_main(int argc, char **argv, const struct test *tests, size_t count);

/* Ends the program when the stack's policy cannot be read. */
void api_open(struct api *api, const char *node);
void api_close(struct api *api);
/* Another connection as root. */
struct store *api_store(void);

/* Runs one statement; ends the program when it fails. */
void api_sql(struct store *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first column of the first row, as a number; -1 when there is no row. */
int64_t api_number(struct store *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes the tenant and a key. */
void api_key(struct store *db, const char *tenant, const char *user, const char *role,
	     char out[API_KEY_SIZE]);
/* Removes all rows of tenants that begin with this. */
void api_forget(struct store *db, const char *tenant);
/* Kills the connection of victim from another one. */
void api_kill(struct store *db, struct store *victim);

#endif
