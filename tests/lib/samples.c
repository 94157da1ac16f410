#include "tests/lib/samples.h"

#include "runners/base/mem.h"
#include "runners/core/json.h"

#include <stdio.h>
#include <stdlib.h>

int samples_room(struct samples *s, size_t most)
{
	*s = (struct samples){.us = mem_zalloc(most == 0 ? 1 : most, sizeof(*s->us))};
	return s->us == NULL ? -1 : 0;
}

void samples_release(struct samples *s)
{
	mem_free(s->us);
	*s = (struct samples){0};
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a;
	int64_t y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

void samples_sort(struct samples *s)
{
	qsort(s->us, s->count, sizeof(*s->us), by_value);
}

int64_t samples_part(const struct samples *s, size_t thousandth)
{
	size_t at = s->count * thousandth / 1000;

	if (s->count == 0)
		return 0;
	return s->us[at >= s->count ? s->count - 1 : at];
}

int samples_print(struct samples *s, int64_t elapsed_us, json_t *more)
{
	scope_json json_t *out = NULL;
	scope_json json_t *took = json_array();
	double seconds = (double)(elapsed_us > 0 ? elapsed_us : 1) / 1e6;

	samples_sort(s);
	for (size_t i = 0; i < s->count; i++)
		if (json_array_append_new(took, json_integer(s->us[i])) != 0) {
			json_decref(more);
			return -1;
		}
	out = json_pack("{s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:O}", "count",
			(json_int_t)s->count, "good", (json_int_t)s->good, "seconds", seconds,
			"per_second", (double)s->good / seconds, "p50",
			(json_int_t)samples_part(s, 500), "p95", (json_int_t)samples_part(s, 950),
			"p99", (json_int_t)samples_part(s, 990), "max",
			(json_int_t)samples_part(s, 1000), "took", took);
	if (more != NULL && json_object_update(out, more) != 0) {
		json_decref(more);
		return -1;
	}
	json_decref(more);
	if (json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6)) != 0 || puts("") < 0)
		return -1;
	return fflush(stdout) == 0 ? 0 : -1;
}
