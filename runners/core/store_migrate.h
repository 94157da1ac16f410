/*
 * store_migrate.h: forward-only schema changes from files named NNNN_name.sql, the same that a DBA
 * can run by hand.
 *
 * store_migrate makes the database if it is missing (database.sql), takes a lock in the server,
 * runs each file whose number is above schema_migration's highest, notes it there, and runs
 * grants.sql. Schema statements are not transactional: a file that fails half way is reported with
 * its number and statement; mend the cause and finish it by hand.
 */
#ifndef CORDON_CORE_STORE_MIGRATE_H
#define CORDON_CORE_STORE_MIGRATE_H

#include "runners/core/store.h"

/* Called once per file that was run. */
typedef void migrate_progress(unsigned int version, const char *name, void *arg);

int store_migrate(const struct store_options *options, const char *sql_dir,
		  migrate_progress *progress, void *arg, struct err *e);

/*
 * The next statement of a file: from *at, up to a semicolon outside quotes and comments. Comments
 * are skipped. Returns false at the end. Exported for its tests.
 */
bool migrate_split(const char **at, const char **out_start, size_t *out_length);

#endif
