/*
 * mem.h: all memory goes through this door, and the cleanup attributes live here.
 *
 * mem_alloc and friends return NULL when memory is short; the caller sets ERR_NOMEM and goes on.
 * The functions are not inline, so that tests can make the n-th call fail (mem_fail_at) and the
 * analyzers see one allocator.
 *
 * `scope_free char *p = NULL;` frees p at the end of its block; `*out = scope_steal(&p);` hands it
 * over.
 */
#ifndef CORDON_BASE_MEM_H
#define CORDON_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

void mem_free(void *p);

/* gcc's analyzer wants the matching free; clang does not know that form. */
#ifdef __clang__
#define MEM_OWNED __attribute__((__malloc__, warn_unused_result))
#else
#define MEM_OWNED __attribute__((__malloc__, __malloc__(mem_free, 1), warn_unused_result))
#endif

/* size bytes, not cleared. */
void *mem_alloc(size_t size) MEM_OWNED;

/* count * size bytes, cleared; NULL on overflow. */
void *mem_zalloc(size_t count, size_t size) MEM_OWNED;

/* Grows or shrinks; p stays valid when it returns NULL. */
void *mem_resize(void *p, size_t count, size_t size) __attribute__((warn_unused_result));

/* A copy of a string (NULL gives NULL), or of bytes with a NUL behind them. */
char *mem_dup(const char *text) MEM_OWNED;
char *mem_dup_bytes(const void *data, size_t length) MEM_OWNED;

/* Tests only: the n-th next allocation of this thread's process fails (0 switches it off). */
void mem_fail_at(unsigned long n);
/* Tests only: true if a failure set by mem_fail_at has happened. */
bool mem_has_failed(void);

static inline void mem_scope_free(void *where)
{
	mem_free(*(void **)where);
}

static inline void *mem_scope_steal(void *where)
{
	void *p = *(void **)where;

	*(void **)where = NULL;
	return p;
}

#define scope_free     __attribute__((cleanup(mem_scope_free)))
#define scope_steal(p) ((__typeof__(*(p)))mem_scope_steal(p))

#define ARRAY_LEN(a)   (sizeof(a) / sizeof((a)[0]))

#endif
