/* policy_keys.h: the key table and what the files policy*.c share. Nobody else includes it. */
#ifndef CORDON_CORE_POLICY_KEYS_H
#define CORDON_CORE_POLICY_KEYS_H

#include "runners/core/policy.h"

enum policy_kind {
	POLICY_NUMBER, /* int64_t; min and max bound the value */
	POLICY_BOOL,
	POLICY_TEXT,   /* char *; min and max bound the bytes, here and below */
	POLICY_URL,    /* https origin without a slash at its end */
	POLICY_PATH,   /* absolute, no "." or ".." or empty segment */
	POLICY_NAME,   /* letters, digits, "_", ".", "-"; starts with a letter or digit */
	POLICY_CHOICE, /* one of the words in `choices` */
	POLICY_LIST, /* struct policy_list of texts; min and max bound the items, here and below */
	POLICY_MAP   /* struct policy_map text -> name */
};

struct policy_key {
	const char *path;
	enum policy_kind kind;
	const char *unit;
	int64_t min;
	int64_t max; /* min 0: the text may be empty, which stands for none */
	const char
	    *standard; /* default: words for a list, key=value words for a map, NULL: required */
	const char *doc;
	size_t offset;
	const char *choices;
};

/* At most this many rows; policy_keys.c checks it. */
#define POLICY_KEYS_MAX 192

extern const struct policy_key policy_keys[];
extern const size_t policy_key_count;

/* The place of a key's value in the file; line 0: not in the file. */
struct policy_mark {
	size_t line;
	size_t column;
};

/* Where a message points, and the way to make one. */
struct policy_source {
	const char *name;
	struct policy_mark marks[POLICY_KEYS_MAX];
};

/* "name:line:col: key: reason"; always -1. */
int policy_refuse(const struct policy_source *source, struct policy_mark mark, const char *key,
		  struct err *e, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The field of a key. */
void *policy_field(struct policy *policy, const struct policy_key *key);
const void *policy_field_const(const struct policy *policy, const struct policy_key *key);

/*
 * Sets a number, bool or text from its text, or adds an item to a list, after checking it. *reason
 * (size bytes) says why not; 0, -1 with a reason, -2 when memory is short.
 */
int policy_set(struct policy *policy, const struct policy_key *key, const char *text, char *reason,
	       size_t size);
/* Adds one entry to a map; as policy_set. */
int policy_set_pair(struct policy *policy, const struct policy_key *key, const char *name,
		    const char *value, char *reason, size_t size);

/* Fills every key without a mark from its default; then derives and checks relations. */
int policy_complete(struct policy *policy, const struct policy_source *source, struct err *e);

#endif
