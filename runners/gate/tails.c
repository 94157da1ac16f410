#include "runners/gate/tails.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

#define TAILS_MAX 8192
#define BATCH     16 /* the rows of RUN_TRACE_ADD */

void tails_add(struct tails *tails, const char *run_id, const char *part)
{
	struct tail *tail;

	if (tails->count == tails->room) {
		size_t room = tails->room == 0 ? 64 : tails->room * 2;
		struct tail *list =
		    room > TAILS_MAX ? NULL : mem_resize(tails->list, room, sizeof(*list));

		if (list == NULL)
			return;
		tails->list = list;
		tails->room = room;
	}
	tail = &tails->list[tails->count];
	if (str_copy(tail->run_id, sizeof(tail->run_id), run_id) == 0 &&
	    str_copy(tail->part, sizeof(tail->part), part) == 0)
		tails->count++;
}

void tails_release(struct tails *tails)
{
	mem_free(tails->list);
	memset(tails, 0, sizeof(*tails));
}

static int by_run(const void *a, const void *b)
{
	const struct tail *x = a;
	const struct tail *y = b;

	return strcmp(x->run_id, y->run_id);
}

/* The next run's parts as one text; the number of entries that it took. */
static size_t join(const struct tail *tail, size_t count, char out[TRACE_COLUMN_BYTES])
{
	size_t used = 0;
	size_t i;

	for (i = 0; i < count && str_equal(tail[i].run_id, tail[0].run_id); i++) {
		size_t length = strlen(tail[i].part);

		if (used + length >= TRACE_COLUMN_BYTES)
			continue;
		memcpy(out + used, tail[i].part, length);
		used += length;
	}
	out[used] = '\0';
	return i;
}

static int write_body(struct store *db, void *arg, struct err *e)
{
	const struct tails *tails = arg;
	size_t done = 0;

	while (done < tails->count) {
		const char *first = tails->list[done].run_id;
		char texts[BATCH][TRACE_COLUMN_BYTES];
		struct store_value in[2 * BATCH];

		for (size_t i = 0; i < BATCH; i++) {
			in[2 * i] = SV_TEXT(done < tails->count ? tails->list[done].run_id : first);
			texts[i][0] = '\0';
			done += join(tails->list + done, tails->count - done, texts[i]);
			in[2 * i + 1] = SV_TEXT(texts[i]);
		}
		if (store_exec(db, STMT_RUN_TRACE_ADD, in, ARRAY_LEN(in), NULL, e) != 0)
			return -1;
	}
	return 0;
}

int tails_write(struct tails *tails, struct store *db, struct err *e)
{
	if (tails->count == 0)
		return 0;
	/* in the order of the key, so that two gates cannot wait for each other */
	qsort(tails->list, tails->count, sizeof(*tails->list), by_run);
	return store_retry(db, write_body, tails, e);
}
