/* Prepared statements: preparing, binding, executing, reading rows. */
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/core/store_private.h"

#include <mysqld_error.h>

#define MAX_PARAMETERS 40

struct statement_row {
	const char *name;
	const char *text;
	unsigned int parameters;
};

static const struct statement_row statements[STMT__MAX] = {STATEMENT_TABLE};

const char *statement_name(enum statement which)
{
	return statements[which].name;
}

const char *statement_text(enum statement which)
{
	return statements[which].text;
}

unsigned int statement_parameters(enum statement which)
{
	return statements[which].parameters;
}

struct store_value store_value_null(void)
{
	return (struct store_value){.kind = STORE_NULL};
}

struct store_value store_value_i64(int64_t number)
{
	return (struct store_value){.kind = STORE_I64, .number = number};
}

struct store_value store_value_text(const char *text)
{
	if (text == NULL)
		return store_value_null();
	return store_value_bytes(text, strlen(text));
}

struct store_value store_value_bytes(const void *data, size_t length)
{
	return (struct store_value){.kind = STORE_BYTES, .data = data, .length = length};
}

void store_prepared_free(struct store_prepared *p)
{
	if (p->stmt != NULL)
		(void)mysql_stmt_close(p->stmt);
	for (unsigned int i = 0; i < p->column_count; i++)
		mem_free(p->columns[i].large);
	mem_free(p->columns);
	mem_free(p->binds);
	memset(p, 0, sizeof(*p));
}

static bool numeric(enum enum_field_types type)
{
	return type == MYSQL_TYPE_LONGLONG || type == MYSQL_TYPE_LONG || type == MYSQL_TYPE_SHORT ||
	       type == MYSQL_TYPE_TINY || type == MYSQL_TYPE_INT24 || type == MYSQL_TYPE_NEWDECIMAL;
}

static int bind_columns(struct store_prepared *p, struct err *e)
{
	MYSQL_RES *shape = mysql_stmt_result_metadata(p->stmt);
	MYSQL_FIELD *fields;
	unsigned int count;

	if (shape == NULL)
		return 0;
	count = mysql_num_fields(shape);
	fields = mysql_fetch_fields(shape);
	p->columns = mem_zalloc(count, sizeof(*p->columns));
	p->binds = mem_zalloc(count, sizeof(*p->binds));
	if (p->columns == NULL || p->binds == NULL || count > STORE_MAX_COLUMNS) {
		mysql_free_result(shape);
		return err_set(e, ERR_NOMEM, 0, "columns");
	}
	p->column_count = count;
	for (unsigned int i = 0; i < count; i++) {
		struct store_column *c = &p->columns[i];
		MYSQL_BIND *b = &p->binds[i];

		c->is_number = numeric(fields[i].type);
		b->buffer_type = c->is_number ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_STRING;
		b->buffer = c->is_number ? (void *)&c->number : (void *)c->room;
		b->buffer_length = c->is_number ? sizeof(c->number) : sizeof(c->room) - 1;
		b->length = &c->length;
		b->is_null = &c->is_null;
		b->error = &c->cut;
	}
	mysql_free_result(shape);
	if (mysql_stmt_bind_result(p->stmt, p->binds) != 0)
		return err_set(e, ERR_INTERNAL, 0, "mysql_stmt_bind_result");
	return 0;
}

static int prepare(struct store *db, enum statement which, struct err *e)
{
	struct store_prepared *p = &db->prepared[which];
	const struct statement_row *row = &statements[which];

	if (p->stmt != NULL)
		return 0;
	p->stmt = mysql_stmt_init(db->mysql);
	if (p->stmt == NULL)
		return err_set(e, ERR_NOMEM, 0, "mysql_stmt_init");
	if (mysql_stmt_prepare(p->stmt, row->text, strlen(row->text)) != 0) {
		unsigned int code = mysql_stmt_errno(p->stmt);
		char text[256];

		(void)snprintf(text, sizeof(text), "%s", mysql_stmt_error(p->stmt));
		store_prepared_free(p);
		return store_fail(db, code, text, row->name, e);
	}
	if (mysql_stmt_param_count(p->stmt) != row->parameters) {
		store_prepared_free(p);
		return err_set(e, ERR_INTERNAL, 0, "%s: parameter count differs", row->name);
	}
	if (bind_columns(p, e) != 0) {
		store_prepared_free(p);
		return -1;
	}
	return 0;
}

static void bind_value(MYSQL_BIND *b, const struct store_value *v)
{
	memset(b, 0, sizeof(*b));
	switch (v->kind) {
	case STORE_NULL:
		b->buffer_type = MYSQL_TYPE_NULL;
		return;
	case STORE_I64:
		b->buffer_type = MYSQL_TYPE_LONGLONG;
		b->buffer =
		    (void *)(uintptr_t)&v->number; // NOLINT(performance-no-int-to-ptr): input only
		return;
	case STORE_BYTES:
		b->buffer_type = MYSQL_TYPE_STRING;
		b->buffer =
		    (void *)(uintptr_t)v->data; // NOLINT(performance-no-int-to-ptr): input only
		b->buffer_length = v->length;
		return;
	}
}

/* Prepares, binds and executes once. 1 = try again on a fresh statement or connection. */
static int run_once(struct store *db, enum statement which, const struct store_value *values,
		    size_t count, bool may_repeat, struct err *e)
{
	MYSQL_BIND binds[MAX_PARAMETERS];
	struct store_prepared *p = &db->prepared[which];
	struct err inner = ERR_INIT;
	unsigned int code;

	if (store_connect(db, e) != 0)
		return -1;
	if (prepare(db, which, &inner) != 0) {
		/* nothing ran, so a broken idle connection may be replaced */
		if (may_repeat && inner.code == ERR_UNAVAILABLE && db->mysql == NULL)
			return 1;
		*e = inner;
		return -1;
	}
	for (size_t i = 0; i < count; i++)
		bind_value(&binds[i], &values[i]);
	if (count > 0 && mysql_stmt_bind_param(p->stmt, binds) != 0)
		return err_set(e, ERR_INTERNAL, 0, "%s: bind", statements[which].name);
	if (mysql_stmt_execute(p->stmt) == 0) {
		if (p->column_count == 0 || mysql_stmt_store_result(p->stmt) == 0)
			return 0;
	}
	code = mysql_stmt_errno(p->stmt);
	if (code == ER_UNKNOWN_STMT_HANDLER || code == ER_NEED_REPREPARE) {
		store_prepared_free(p);
		if (may_repeat)
			return 1;
	}
	/* A read outside a transaction, or its first statement, can be repeated without harm. */
	if (store_code_lost(code) && may_repeat &&
	    (p->column_count > 0 || which == STMT_BEGIN || which == STMT_PING)) {
		store_disconnect(db);
		return 1;
	}
	return store_fail(db, code, p->stmt == NULL ? "prepare again" : mysql_stmt_error(p->stmt),
			  statements[which].name, e);
}

static int run(struct store *db, enum statement which, const struct store_value *values,
	       size_t count, struct err *e)
{
	int result;

	store_done(db);
	if (count != statements[which].parameters)
		return err_set(e, ERR_INTERNAL, 0, "%s: %zu values", statements[which].name, count);
	if (db->in_transaction && (db->transaction_lost || db->mysql == NULL))
		return err_set(e, ERR_UNAVAILABLE, 0, "the transaction is lost");
	result = run_once(db, which, values, count, !db->in_transaction, e);
	if (result == 1)
		result = run_once(db, which, values, count, false, e);
	return result;
}

int store_exec(struct store *db, enum statement which, const struct store_value *values,
	       size_t count, uint64_t *out_affected, struct err *e)
{
	struct store_prepared *p = &db->prepared[which];

	if (run(db, which, values, count, e) != 0)
		return -1;
	if (p->column_count > 0)
		(void)mysql_stmt_free_result(p->stmt);
	db->insert_id = mysql_stmt_insert_id(p->stmt);
	if (out_affected != NULL)
		*out_affected = mysql_stmt_affected_rows(p->stmt);
	return 0;
}

uint64_t store_insert_id(const struct store *db)
{
	return db->insert_id;
}

int store_query(struct store *db, enum statement which, const struct store_value *values,
		size_t count, struct err *e)
{
	if (run(db, which, values, count, e) != 0)
		return -1;
	db->open = &db->prepared[which];
	return 0;
}

/* Reads a value that did not fit into the inline room. */
static int fetch_large(struct store_prepared *p, unsigned int i, struct err *e)
{
	struct store_column *c = &p->columns[i];
	MYSQL_BIND bind;
	char *room;

	if (c->length > LIMIT_SQL_RESULT_BYTES)
		return err_set(e, ERR_LIMIT, 0, "column %u has %lu bytes", i, c->length);
	if (c->large_size < c->length + 1) {
		room = mem_resize(c->large, c->length + 1, 1);
		if (room == NULL)
			return err_set(e, ERR_NOMEM, 0, "column");
		c->large = room;
		c->large_size = c->length + 1;
	}
	memset(&bind, 0, sizeof(bind));
	bind.buffer_type = MYSQL_TYPE_STRING;
	bind.buffer = c->large;
	bind.buffer_length = c->length;
	bind.length = &c->length;
	if (mysql_stmt_fetch_column(p->stmt, &bind, i, 0) != 0)
		return err_set(e, ERR_INTERNAL, 0, "mysql_stmt_fetch_column: %s",
			       mysql_stmt_error(p->stmt));
	c->large[c->length] = '\0';
	return 0;
}

int store_next(struct store *db, struct err *e)
{
	struct store_prepared *p = db->open;
	int got;

	if (p == NULL)
		return 0;
	got = mysql_stmt_fetch(p->stmt);
	if (got == MYSQL_NO_DATA) {
		store_done(db);
		return 0;
	}
	if (got != 0 && got != MYSQL_DATA_TRUNCATED) {
		(void)err_set(e, ERR_INTERNAL, 0, "mysql_stmt_fetch: %s",
			      mysql_stmt_error(p->stmt));
		store_done(db);
		return -1;
	}
	for (unsigned int i = 0; i < p->column_count; i++) {
		struct store_column *c = &p->columns[i];

		if (c->is_null || c->is_number)
			continue;
		if (c->length < sizeof(c->room)) {
			c->room[c->length] = '\0';
		} else if (fetch_large(p, i, e) != 0) {
			store_done(db);
			return -1;
		}
	}
	return 1;
}

void store_done(struct store *db)
{
	if (db->open != NULL)
		(void)mysql_stmt_free_result(db->open->stmt);
	db->open = NULL;
}

int store_query_row(struct store *db, enum statement which, const struct store_value *values,
		    size_t count, struct err *e)
{
	if (store_query(db, which, values, count, e) != 0)
		return -1;
	return store_next(db, e);
}

bool store_is_null(const struct store *db, unsigned int column)
{
	return db->open == NULL || column >= db->open->column_count ||
	       db->open->columns[column].is_null != 0;
}

const char *store_bytes(const struct store *db, unsigned int column, size_t *out_length)
{
	const struct store_column *c;

	if (out_length != NULL)
		*out_length = 0;
	if (store_is_null(db, column) || db->open->columns[column].is_number)
		return "";
	c = &db->open->columns[column];
	if (out_length != NULL)
		*out_length = c->length;
	return c->length < sizeof(c->room) ? c->room : c->large;
}

const char *store_text(const struct store *db, unsigned int column)
{
	return store_bytes(db, column, NULL);
}

int64_t store_i64(const struct store *db, unsigned int column)
{
	if (store_is_null(db, column) || !db->open->columns[column].is_number)
		return 0;
	return (int64_t)db->open->columns[column].number;
}

int store_run_text(struct store *db, const char *text, size_t length, struct err *e)
{
	MYSQL_STMT *stmt;
	int result = 0;

	if (store_connect(db, e) != 0)
		return -1;
	stmt = mysql_stmt_init(db->mysql);
	if (stmt == NULL)
		return err_set(e, ERR_NOMEM, 0, "mysql_stmt_init");
	if (mysql_stmt_prepare(stmt, text, length) != 0 || mysql_stmt_execute(stmt) != 0) {
		char reason[256];
		unsigned int code = mysql_stmt_errno(stmt);

		(void)snprintf(reason, sizeof(reason), "%s", mysql_stmt_error(stmt));
		result = store_fail(db, code, reason, "migration", e);
	}
	(void)mysql_stmt_close(stmt);
	return result;
}
