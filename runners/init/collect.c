#include "runners/init/server.h"

#include "runners/base/fdio.h"
#include "runners/base/glob.h"
#include "runners/base/ksys.h"
#include "runners/base/mem.h"
#include "runners/base/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/*
 * COLLECT walks the workspace in the order of names and reports what matches. It never follows a
 * symlink and never recurses: the stack is a list of levels, and a directory is opened by its whole
 * path beneath the workspace. The names of a directory go into a heap, one at a time, so that even
 * sorting a huge directory is done in short steps while output of commands goes on.
 */

#define NAMES_BYTES ((size_t)16 << 20) /* all names that wait, over all levels */
#define MAX_LEVELS  (LIMIT_PATH_BYTES / 2 + 2)
/* of all patterns on all names of one COLLECT: about half a second */
#define MATCH_STEPS  UINT64_C(200000000)
#define DIRENT_BYTES 32768
#define INSIDE       (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

struct level {
	int fd; /* -1 when the directory is read */
	size_t path_length;
	struct buf names; /* NUL-terminated, one behind the other */
	uint32_t *heap;   /* offsets into names, the least name first */
	size_t count;
	size_t capacity;
};

struct collect {
	struct task task;
	struct buf request; /* what the patterns point into */
	size_t pattern_count;
	const char *patterns[LIMIT_PATTERNS];
	size_t pattern_lengths[LIMIT_PATTERNS];
	char path[LIMIT_PATH_BYTES + 256 + 2];
	size_t depth; /* levels in use */
	struct level levels[MAX_LEVELS];
	size_t names_bytes;
	uint64_t sent;
	uint64_t walked;
	uint64_t dropped;
	uint64_t match_budget;
	uint64_t unreadable;
	uint64_t matched_bytes;
};

/* --- the heap of names ---------------------------------------------------------------------- */

static bool before(const struct level *l, uint32_t a, uint32_t b)
{
	return strcmp(l->names.data + a, l->names.data + b) < 0;
}

static int heap_push(struct level *l, const char *name)
{
	uint32_t offset = (uint32_t)l->names.len;
	size_t i;

	if (l->count == l->capacity) {
		size_t capacity = l->capacity == 0 ? 64 : l->capacity * 2;
		uint32_t *heap = mem_resize(l->heap, capacity, sizeof(*heap));

		if (heap == NULL)
			return -1;
		l->heap = heap;
		l->capacity = capacity;
	}
	buf_add(&l->names, name, strlen(name) + 1);
	if (!buf_ok(&l->names)) {
		l->names.failed = false;
		return -1;
	}
	for (i = l->count++; i > 0 && before(l, offset, l->heap[(i - 1) / 2]); i = (i - 1) / 2)
		l->heap[i] = l->heap[(i - 1) / 2];
	l->heap[i] = offset;
	return 0;
}

static const char *heap_pop(struct level *l)
{
	uint32_t least = l->heap[0];
	uint32_t last = l->heap[--l->count];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= l->count)
			break;
		if (child + 1 < l->count && before(l, l->heap[child + 1], l->heap[child]))
			child++;
		if (!before(l, l->heap[child], last))
			break;
		l->heap[i] = l->heap[child];
		i = child;
	}
	if (l->count > 0)
		l->heap[i] = last;
	return l->names.data + least;
}

/* --- levels --------------------------------------------------------------------------------- */

static void push_level(struct collect *w, int fd, size_t path_length)
{
	struct level *l = &w->levels[w->depth++];

	memset(l, 0, sizeof(*l));
	l->fd = fd;
	l->path_length = path_length;
	buf_init(&l->names, NAMES_BYTES);
}

static void pop_level(struct collect *w)
{
	struct level *l = &w->levels[--w->depth];

	fd_close_at(&l->fd);
	w->names_bytes -= l->names.len;
	buf_release(&l->names);
	mem_free(l->heap);
}

/* Reads a piece of the directory into the heap. */
static void read_names(struct collect *w, struct level *l)
{
	_Alignas(8) char raw[DIRENT_BYTES];
	long got = syscall(SYS_getdents64, l->fd, raw, sizeof(raw));

	if (got <= 0) {
		if (got < 0)
			w->unreadable++;
		fd_close_at(&l->fd);
		return;
	}
	for (long at = 0; at < got;) {
		const struct raw_entry *entry = (const void *)(raw + at);
		size_t length = strlen(entry->name);

		at += entry->length;
		if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
			continue;
		w->walked++;
		if (l->path_length + 1 + length > LIMIT_PATH_BYTES ||
		    w->names_bytes + length + 1 > NAMES_BYTES || heap_push(l, entry->name) != 0)
			w->dropped++;
		else
			w->names_bytes += length + 1;
	}
}

/* --- one name ------------------------------------------------------------------------------- */

static bool matches(struct collect *w, size_t length)
{
	for (size_t i = 0; i < w->pattern_count; i++)
		if (glob_match(w->patterns[i], w->pattern_lengths[i], w->path, length,
			       &w->match_budget))
			return true;
	/* nobody knows whether this one would have matched */
	if (w->match_budget == 0)
		w->dropped++;
	return false;
}

static void report(struct collect *w, struct conn *c, size_t length, enum agent_kind kind,
		   const struct stat *st)
{
	struct agent_entry entry = {.path = w->path, .path_length = length, .kind = kind};

	if (w->sent >= LIMIT_ARTIFACTS) {
		w->dropped++;
		return;
	}
	if (kind == AGENT_KIND_REGULAR || kind == AGENT_KIND_UNREADABLE) {
		entry.size = (uint64_t)st->st_size;
		w->matched_bytes += entry.size;
	}
	entry.mtime_us = st->st_mtim.tv_sec * INT64_C(1000000) + st->st_mtim.tv_nsec / 1000;
	agent_put_entry(&c->out, &w->task.head, &entry);
	w->sent++;
}

static void enter(struct server *s, struct collect *w, size_t length)
{
	int fd = -1;

	if (w->depth < MAX_LEVELS)
		fd = ksys_openat2(s->workspace, w->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
				  INSIDE);
	if (fd < 0)
		w->unreadable++;
	else
		push_level(w, fd, length);
}

static enum agent_kind kind_of(struct server *s, const struct collect *w, const struct stat *st)
{
	scope_close int fd = -1;

	if (S_ISLNK(st->st_mode))
		return AGENT_KIND_SYMLINK;
	if (!S_ISREG(st->st_mode))
		return AGENT_KIND_OTHER;
	fd = ksys_openat2(s->workspace, w->path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, INSIDE);
	return fd < 0 ? AGENT_KIND_UNREADABLE : AGENT_KIND_REGULAR;
}

static void visit(struct server *s, struct collect *w, struct conn *c, const char *name,
		  size_t base)
{
	size_t at = base;
	size_t length = strlen(name);
	scope_close int fd = -1;
	struct stat st;

	if (at > 0)
		w->path[at++] = '/';
	memcpy(w->path + at, name, length + 1);
	length += at;
	fd = ksys_openat2(s->workspace, w->path, O_PATH | O_NOFOLLOW, 0, INSIDE);
	if (fd < 0 || fstat(fd, &st) != 0) {
		/* else gone meanwhile, or its directory became a link */
		if (errno == EACCES)
			w->unreadable++;
		return;
	}
	if (S_ISDIR(st.st_mode))
		enter(s, w, length);
	else if (matches(w, length))
		report(w, c, length, kind_of(s, w, &st), &st);
}

/* --- turns ---------------------------------------------------------------------------------- */

static int read_request(struct collect *w, const struct agent_frame *f, struct err *e)
{
	struct wire_reader r;
	uint32_t count;

	buf_init(&w->request, LIMIT_FRAME_BYTES);
	buf_add(&w->request, f->payload, f->head.length);
	if (!buf_ok(&w->request))
		return err_set(e, ERR_NOMEM, 0, "no memory for the patterns");
	wire_reader_init(&r, w->request.data, w->request.len);
	w->task.uid = wire_get_u32(&r);
	w->task.gid = wire_get_u32(&r);
	count = wire_get_u32(&r);
	if (count > LIMIT_PATTERNS)
		return err_set(e, ERR_LIMIT, 0, "more than %d patterns", LIMIT_PATTERNS);
	for (uint32_t i = 0; i < count; i++) {
		w->patterns[i] = wire_get_bytes(&r, &w->pattern_lengths[i]);
		if (w->pattern_lengths[i] > LIMIT_PATTERN_BYTES)
			return err_set(e, ERR_LIMIT, 0, "a pattern is too long");
	}
	if (!wire_done(&r))
		return err_set(e, ERR_PROTOCOL, 0, "a malformed COLLECT frame");
	w->pattern_count = count;
	w->match_budget = MATCH_STEPS;
	return 0;
}

static void collect_release(struct task *t)
{
	struct collect *w = (struct collect *)t;

	while (w->depth > 0)
		pop_level(w);
	buf_release(&w->request);
	mem_free(w);
}

static bool collect_step(struct server *s, struct conn *c, struct task *t)
{
	struct collect *w = (struct collect *)t;
	struct level *l = &w->levels[w->depth - 1];
	uint64_t values[AGENT_RESULT_VALUES] = {0};

	if (l->fd >= 0)
		read_names(w, l);
	else if (l->count == 0)
		pop_level(w);
	else
		visit(s, w, c, heap_pop(l), l->path_length);
	if (w->depth > 0)
		return true;
	values[0] = w->sent;
	values[1] = w->walked;
	values[2] = w->dropped;
	values[3] = w->unreadable;
	values[4] = w->matched_bytes;
	agent_put_result(&c->out, &t->head, values);
	return false;
}

int collect_start(struct server *s, struct conn *c, const struct agent_frame *f, struct err *e)
{
	struct collect *w = mem_zalloc(1, sizeof(*w));
	int fd = -1;
	int reason;

	if (w == NULL)
		return err_set(e, ERR_NOMEM, 0, "no memory for a walk");
	w->task.head = f->head;
	w->task.head.flags = 0;
	w->task.step = collect_step;
	w->task.release = collect_release;
	if (read_request(w, f, e) != 0 || file_act_as(w->task.uid, w->task.gid, e) != 0) {
		collect_release(&w->task);
		return -1;
	}
	/* as the user: the command may have closed its workspace to others */
	fd = file_open_beneath(s, "", O_RDONLY | O_DIRECTORY);
	reason = errno;
	file_act_as_self();
	if (fd < 0) {
		collect_release(&w->task);
		return err_set(e, ERR_IO, reason, "open the workspace");
	}
	push_level(w, fd, 0);
	return task_start(c, &w->task, true, e);
}
