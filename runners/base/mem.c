#include "runners/base/mem.h"

#include <stdint.h>

static unsigned long fail_countdown;
static bool failure_happened;

static bool must_fail(void)
{
	if (__builtin_expect(fail_countdown == 0, 1))
		return false;
	if (--fail_countdown == 0) {
		failure_happened = true;
		return true;
	}
	return false;
}

void mem_fail_at(unsigned long n)
{
	fail_countdown = n;
	failure_happened = false;
}

bool mem_has_failed(void)
{
	return failure_happened;
}

void mem_free(void *p)
{
	free(p);
}

void *mem_alloc(size_t size)
{
	if (must_fail())
		return NULL;
	return malloc(size == 0 ? 1 : size);
}

void *mem_zalloc(size_t count, size_t size)
{
	size_t total;

	if (must_fail() || __builtin_mul_overflow(count, size, &total))
		return NULL;
	return calloc(count == 0 ? 1 : count, size == 0 ? 1 : size);
}

void *mem_resize(void *p, size_t count, size_t size)
{
	size_t total;

	if (must_fail() || __builtin_mul_overflow(count, size, &total))
		return NULL;
	return realloc(p, total == 0 ? 1 : total);
}

char *mem_dup(const char *text)
{
	return text == NULL ? NULL : mem_dup_bytes(text, strlen(text));
}

char *mem_dup_bytes(const void *data, size_t length)
{
	char *copy;

	if (length == SIZE_MAX)
		return NULL;
	copy = mem_alloc(length + 1);
	if (copy == NULL)
		return NULL;
	if (length > 0)
		memcpy(copy, data, length);
	copy[length] = '\0';
	return copy;
}
