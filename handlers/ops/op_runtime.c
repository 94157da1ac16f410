#include "handlers/ops/op_runtime.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define CACHED_US (5 * CLOCK_US_PER_S)

/* A fact without reasons where it should have some shows as one that is not known. */
static void read_fact(const struct store *db, struct runtime_fact *fact)
{
	scope_json json_t *list = NULL;
	size_t length;
	const char *text = store_bytes(db, 2, &length);
	json_error_t error;

	memset(fact, 0, sizeof(*fact));
	list = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
	if (!json_is_array(list) || store_i64(db, 4) == 0)
		return;
	for (size_t i = 0; i < json_array_size(list) && fact->count < RUNTIME_REASONS; i++) {
		const char *reason = json_text(json_array_get(list, i));

		if (reason == NULL ||
		    str_copy(fact->reasons[fact->count], RUNTIME_REASON_BYTES, reason) != 0)
			return;
		fact->count++;
	}
	if (str_copy(fact->host, sizeof(fact->host), store_text(db, 3)) != 0)
		return;
	fact->found = store_i64(db, 1) != 0;
	fact->known = true;
}

const struct runtime_facts *op_runtime_facts(struct handler_context *context, bool cached,
					     struct err *e)
{
	struct store_value in[] = {SV_TEXT(context->policy->node)};
	int64_t now = clock_monotonic_us();
	int got;

	if (cached && now < context->facts_until_us)
		return &context->facts;
	context->facts_until_us = 0;
	memset(&context->facts, 0, sizeof(context->facts));
	if (store_query(context->db, STMT_FACT_LIST, in, 1, e) != 0)
		return NULL;
	while ((got = store_next(context->db, e)) == 1) {
		enum runtime_id id = runtime_find(store_text(context->db, 0));

		if (id != RUNTIME__MAX)
			read_fact(context->db, &context->facts.of[id]);
	}
	store_done(context->db);
	if (got < 0)
		return NULL;
	context->facts_until_us = now + CACHED_US;
	return &context->facts;
}

int op_store_mode(struct handler_context *context, char out[OP_STORE_MODE_SIZE], struct err *e)
{
	int got = store_query_row(context->db, STMT_STORE_MODE, NULL, 0, e);

	if (got < 0)
		return -1;
	(void)snprintf(out, OP_STORE_MODE_SIZE, "%s",
		       got == 1 && str_equal(store_text(context->db, 0), "ON") ? "galera"
									       : "mariadb");
	store_done(context->db);
	return 0;
}

int op_store_seen(struct handler_context *context, json_t **out, struct err *e)
{
	struct store_value in[] = {SV_TEXT(context->policy->node)};
	int got = store_query_row(context->db, STMT_FACT_STORE, in, 1, e);
	const char *text;
	size_t length;

	*out = NULL;
	if (got <= 0)
		return got;
	text = store_bytes(context->db, 0, &length);
	got = json_parse(text, length, out, e) == 0 ? 1 : -1;
	store_done(context->db);
	return got;
}
