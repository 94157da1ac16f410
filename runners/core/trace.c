#include "runners/core/trace.h"

#include "runners/base/clock.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/spool.h"

#define DIGITS_MAX 18
#define CLOCKS_MAX 8

struct point_row {
	char letter;
	const char *name;
	const char *program;
};

/* Letters stand in rows: none may change its meaning. */
static const struct point_row points[TRACE__MAX] = {
    [TRACE_ACCEPTED] = {'a', "accepted", "cordon-fcgi"},
    [TRACE_READ] = {'b', "read", "cordon-fcgi"},
    [TRACE_AUTHENTICATED] = {'c', "authenticated", "cordon-fcgi"},
    [TRACE_ADMITTED] = {'d', "admitted", "cordon-fcgi"},
    [TRACE_BEGUN] = {'e', "begun", "cordon-fcgi"},
    [TRACE_LOCKED] = {'f', "locked", "cordon-fcgi"},
    [TRACE_COMMITTED] = {'g', "committed", "cordon-fcgi"},
    [TRACE_HELD] = {'h', "held", "cordon-fcgi"},
    [TRACE_ANSWERED] = {'i', "answered", "cordon-fcgi"},
    [TRACE_NOTICED] = {'j', "noticed", "cordon-runner"},
    [TRACE_CLAIM_BEGUN] = {'k', "claim_begun", "cordon-runner"},
    [TRACE_CLAIMED] = {'l', "claimed", "cordon-runner"},
    [TRACE_BOX_ASKED] = {'m', "box_asked", "cordon-runner"},
    [TRACE_BOX_WARM] = {'n', "box_ready", "cordon-runner"},
    [TRACE_BOX_COLD] = {'o', "box_ready", "cordon-runner"},
    [TRACE_EXEC_SENT] = {'p', "exec_sent", "cordon-runner"},
    [TRACE_STARTED] = {'q', "started", "cordon-runner"},
    [TRACE_EXITED] = {'r', "exited", "cordon-runner"},
    [TRACE_DRAINED] = {'s', "drained", "cordon-runner"},
    [TRACE_COLLECTED] = {'t', "collected", "cordon-runner"},
    [TRACE_COUNTED] = {'u', "counted", "cordon-runner"},
    [TRACE_RESULT_SAVED] = {'v', "result_saved", "cordon-runner"},
    [TRACE_END_BEGUN] = {'w', "end_begun", "cordon-runner"},
    [TRACE_END_COMMITTED] = {'x', "end_committed", "cordon-runner"},
    [TRACE_BOX_DESTROYED] = {'y', "box_destroyed", "cordon-runner"},
    [TRACE_PARKED] = {'A', "parked", "cordon-gate"},
    [TRACE_END_NOTICED] = {'B', "end_noticed", "cordon-gate"},
    [TRACE_RELEASED] = {'C', "released", "cordon-gate"},
    [TRACE_RENDER_BEGUN] = {'D', "render_begun", "cordon-fcgi"},
    [TRACE_ROW_READ] = {'E', "row_read", "cordon-fcgi"},
    [TRACE_RENDERED] = {'F', "answered", "cordon-fcgi"},
};

const char *trace_name(enum trace_point point)
{
	return points[point].name;
}

const char *trace_program(enum trace_point point)
{
	return points[point].program;
}

void trace_init(struct trace *t)
{
	memset(t, 0, sizeof(*t));
}

void trace_mark_at(struct trace *t, enum trace_point point, int64_t at_us)
{
	if (t != NULL && t->at_us[point] == 0)
		t->at_us[point] = at_us;
}

void trace_mark(struct trace *t, enum trace_point point)
{
	if (t != NULL)
		trace_mark_at(t, point, clock_monotonic_us());
}

/* Of this boot; read once a process. Two threads that come at the same time write the same. */
static void clock_tag(char out[TRACE_CLOCK_SIZE])
{
	static _Atomic uint32_t known;
	uint32_t tag = known;

	if (tag == 0) {
		unsigned char boot[16];

		spool_boot_id(boot);
		memcpy(&tag, boot, sizeof(tag));
		known = tag;
	}
	(void)snprintf(out, TRACE_CLOCK_SIZE, "%08x", tag);
}

bool trace_encode(const struct trace *t, enum trace_point first, enum trace_point last,
		  char out[TRACE_PART_BYTES])
{
	char tag[TRACE_CLOCK_SIZE];
	int64_t base = INT64_MAX;
	size_t used;

	out[0] = '\0';
	for (enum trace_point i = first; i <= last; i++)
		if (t->at_us[i] > 0 && t->at_us[i] < base)
			base = t->at_us[i];
	if (base == INT64_MAX)
		return false;
	clock_tag(tag);
	used = (size_t)snprintf(out, TRACE_PART_BYTES, "%s@%lld", tag, (long long)base);
	for (enum trace_point i = first; i <= last; i++) {
		char one[24];
		size_t length;

		if (t->at_us[i] <= 0)
			continue;
		length = (size_t)snprintf(one, sizeof(one), "%c%lld", points[i].letter,
					  (long long)(t->at_us[i] - base));
		/* room for the semicolon and the NUL: a run of many days loses a point, not more */
		if (used + length + 2 > TRACE_PART_BYTES)
			break;
		memcpy(out + used, one, length);
		used += length;
	}
	out[used++] = ';';
	out[used] = '\0';
	return true;
}

bool trace_part_ok(const char *text)
{
	size_t length = strlen(text);

	return length > 0 && length < TRACE_PART_BYTES && text[length - 1] == ';' &&
	       strspn(text, "0123456789@;"
			    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == length;
}

/* --- decode
 * ---------------------------------------------------------------------------------------------------
 */

struct cursor {
	const char *at;
	const char *end;
};

struct found {
	enum trace_point point;
	size_t clock; /* index into the clocks of the text */
	int64_t at_us;
};

struct decoder {
	char clocks[CLOCKS_MAX][TRACE_CLOCK_SIZE];
	size_t clock_count;
	struct found found[TRACE__MAX];
	size_t count;
};

/* 1 to 18 digits. */
static bool take_number(struct cursor *c, int64_t *out)
{
	int64_t value = 0;
	int digits = 0;

	while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && digits < DIGITS_MAX) {
		value = value * 10 + (*c->at++ - '0');
		digits++;
	}
	*out = value;
	return digits > 0;
}

static bool take_clock(struct cursor *c, struct decoder *d, size_t *out)
{
	char tag[TRACE_CLOCK_SIZE];

	if (c->end - c->at < TRACE_CLOCK_SIZE || c->at[TRACE_CLOCK_SIZE - 1] != '@')
		return false;
	for (size_t i = 0; i < TRACE_CLOCK_SIZE - 1; i++) {
		tag[i] = c->at[i];
		if (tag[i] == '\0' || strchr("0123456789abcdef", tag[i]) == NULL)
			return false;
	}
	tag[TRACE_CLOCK_SIZE - 1] = '\0';
	c->at += TRACE_CLOCK_SIZE;
	for (*out = 0; *out < d->clock_count; (*out)++)
		if (str_equal(d->clocks[*out], tag))
			return true;
	if (d->clock_count == CLOCKS_MAX)
		return false;
	memcpy(d->clocks[d->clock_count++], tag, sizeof(tag));
	return true;
}

static void add(struct decoder *d, char letter, size_t clock, int64_t at_us)
{
	for (enum trace_point i = 0; i < TRACE__MAX; i++) {
		if (points[i].letter != letter)
			continue;
		for (size_t k = 0; k < d->count; k++)
			if (d->found[k].point == i)
				return;
		d->found[d->count++] = (struct found){i, clock, at_us};
		return;
	}
}

/* One part; what follows something that is not understood is left out. */
static void take_part(struct decoder *d, struct cursor c)
{
	size_t clock;
	int64_t base;
	int64_t offset;

	if (!take_clock(&c, d, &clock) || !take_number(&c, &base))
		return;
	while (c.at < c.end) {
		char letter = *c.at++;

		/* a letter of a later version is skipped; a number that the end cut off is none */
		if (!take_number(&c, &offset) || c.at == c.end)
			return;
		add(d, letter, clock, base + offset);
		if (*c.at == ';')
			return;
	}
}

static int by_time(const void *a, const void *b)
{
	const struct found *x = a;
	const struct found *y = b;

	if (x->clock != y->clock)
		return x->clock < y->clock ? -1 : 1;
	if (x->at_us != y->at_us)
		return x->at_us < y->at_us ? -1 : 1;
	return (int)x->point - (int)y->point;
}

/* The clock of the accept becomes the first one, and nothing on it lies before the accept: a claim
 * may have begun, with others to take, a moment before this run was there. */
static void order(struct decoder *d)
{
	for (size_t i = 0; i < d->count; i++) {
		size_t clock = d->found[i].clock;

		if (d->found[i].point != TRACE_ACCEPTED)
			continue;
		for (size_t k = 0; k < d->count; k++)
			if (d->found[k].clock == clock)
				d->found[k].clock = 0;
			else if (d->found[k].clock < clock)
				d->found[k].clock++;
		for (size_t k = 0; k < d->count; k++)
			if (d->found[k].clock == 0 && d->found[k].at_us < d->found[i].at_us)
				d->found[k].at_us = d->found[i].at_us;
		break;
	}
	qsort(d->found, d->count, sizeof(d->found[0]), by_time);
}

void trace_decode(const char *text, size_t length, struct trace_list *out)
{
	struct decoder d;
	const char *end = text + length;
	int64_t first = 0;

	memset(&d, 0, sizeof(d));
	memset(out, 0, sizeof(*out));
	while (text < end) {
		const char *stop = memchr(text, ';', (size_t)(end - text));
		const char *next = stop == NULL ? end : stop + 1;

		take_part(&d, (struct cursor){text, next});
		text = next;
	}
	order(&d);
	for (size_t i = 0; i < d.count; i++) {
		const struct found *f = &d.found[i];
		struct trace_step *step = &out->steps[out->count++];
		bool begins = i == 0 || f->clock != d.found[i - 1].clock;

		if (begins)
			first = f->at_us;
		step->point = f->point;
		step->placed = f->clock == d.found[0].clock;
		step->at_us = f->at_us - first;
		step->has_step = !begins || i == 0;
		step->step_us = begins ? 0 : f->at_us - d.found[i - 1].at_us;
	}
}

const struct trace_step *trace_find(const struct trace_list *list, enum trace_point point)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->steps[i].point == point)
			return &list->steps[i];
	return NULL;
}
