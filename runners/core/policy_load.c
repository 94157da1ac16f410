/*
 * policy_load.c: from YAML events to a struct policy.
 *
 * The file may use what a person needs: mappings, sequences, scalars, comments. Anchors, aliases,
 * tags, directives, several documents and null values are refused. Nesting is bounded by the key
 * table: a mapping where no section is, is refused before anything below it is read.
 */
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/policy.h"
#include "runners/core/policy_keys.h"

#include <fcntl.h>
#include <stdarg.h>
#include <yaml.h>

#define PATH_BYTES    128
#define REASON_BYTES  256
#define SHOWN_BYTES   64
#define SECTION_DEPTH 3

struct loader {
	yaml_parser_t parser;
	struct policy_source source;
	struct policy *policy;
	const char *text;
	size_t length;
	char prefix[PATH_BYTES]; /* "tiers.trusted." while inside, "" at the top */
	size_t depth;
	bool section_seen[SECTION_DEPTH][POLICY_KEYS_MAX];
};

static void event_release(yaml_event_t *event)
{
	yaml_event_delete(event);
}

#define scope_event __attribute__((cleanup(event_release)))

static struct policy_mark mark_from(yaml_mark_t mark)
{
	return (struct policy_mark){mark.line + 1, mark.column + 1};
}

int policy_refuse(const struct policy_source *source, struct policy_mark mark, const char *key,
		  struct err *e, const char *format, ...)
{
	char reason[REASON_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return err_set(e, ERR_INVALID, 0, "%s:%zu:%zu: %s: %s", source->name, mark.line,
		       mark.column, key, reason);
}

/* Client text for a message: printable ASCII, cut. */
static void show(char out[SHOWN_BYTES + 1], const char *text, size_t length)
{
	size_t n = length < SHOWN_BYTES ? length : SHOWN_BYTES;

	for (size_t i = 0; i < n; i++)
		out[i] = '?';
	for (size_t i = 0; i < n; i++)
		if (text[i] >= 0x20 && text[i] < 0x7f)
			out[i] = text[i];
	out[n] = '\0';
}

/* --- events ------------------------------------------------------------------------------------
 */

/* A reader error has an offset only. */
static struct policy_mark mark_of_offset(const struct loader *l, size_t offset)
{
	struct policy_mark mark = {1, 1};

	for (size_t i = 0; i < offset && i < l->length; i++) {
		mark.column++;
		if (l->text[i] == '\n') {
			mark.line++;
			mark.column = 1;
		}
	}
	return mark;
}

static int syntax_error(const struct loader *l, struct err *e)
{
	const char *problem = l->parser.problem == NULL ? "broken" : l->parser.problem;

	if (l->parser.error == YAML_MEMORY_ERROR)
		return err_set(e, ERR_NOMEM, 0, "policy: no memory");
	if (l->parser.error == YAML_READER_ERROR)
		return policy_refuse(&l->source, mark_of_offset(l, l->parser.problem_offset),
				     "yaml", e, "%s", problem);
	return policy_refuse(&l->source, mark_from(l->parser.problem_mark), "yaml", e, "%s%s%s",
			     problem, l->parser.context == NULL ? "" : " ",
			     l->parser.context == NULL ? "" : l->parser.context);
}

static bool event_has_anchor(const yaml_event_t *event)
{
	return (event->type == YAML_SCALAR_EVENT && event->data.scalar.anchor != NULL) ||
	       (event->type == YAML_MAPPING_START_EVENT &&
		event->data.mapping_start.anchor != NULL) ||
	       (event->type == YAML_SEQUENCE_START_EVENT &&
		event->data.sequence_start.anchor != NULL);
}

static bool event_has_tag(const yaml_event_t *event)
{
	return (event->type == YAML_SCALAR_EVENT && event->data.scalar.tag != NULL) ||
	       (event->type == YAML_MAPPING_START_EVENT && event->data.mapping_start.tag != NULL) ||
	       (event->type == YAML_SEQUENCE_START_EVENT && event->data.sequence_start.tag != NULL);
}

/* The next event without anchors, aliases and tags. `key` is for messages. */
static int next_event(struct loader *l, const char *key, yaml_event_t *out, struct err *e)
{
	struct policy_mark mark;

	if (yaml_parser_parse(&l->parser, out) == 0)
		return syntax_error(l, e);
	mark = mark_from(out->start_mark);
	if (out->type == YAML_ALIAS_EVENT || event_has_anchor(out))
		return policy_refuse(&l->source, mark, key, e,
				     "anchors and aliases are not allowed");
	if (event_has_tag(out))
		return policy_refuse(&l->source, mark, key, e, "tags are not allowed");
	return 0;
}

static const char *kind_name(enum policy_kind kind)
{
	if (kind == POLICY_LIST)
		return "a list";
	if (kind == POLICY_MAP)
		return "a mapping";
	return "one value";
}

static int wrong_kind(const struct loader *l, const yaml_event_t *event, const char *key,
		      const char *wanted, struct err *e)
{
	const char *found = "nothing";

	if (event->type == YAML_SCALAR_EVENT && event->data.scalar.length > 0)
		found = "one value";
	else if (event->type == YAML_MAPPING_START_EVENT)
		found = "a mapping";
	else if (event->type == YAML_SEQUENCE_START_EVENT)
		found = "a list";
	return policy_refuse(&l->source, mark_from(event->start_mark), key, e,
			     "must be %s, found %s", wanted, found);
}

/* --- scalars -----------------------------------------------------------------------------------
 */

/* A plain scalar that YAML readers take for something other than text. */
static bool looks_untexty(const char *text)
{
	static const char *const words[] = {"",   "~",   "null", "true", "false", "yes", "no",
					    "on", "off", "y",    "n",    ".inf",  ".nan"};
	const char *digits = text + (text[0] == '-' || text[0] == '+' ? 1 : 0);

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_equal_nocase(text, words[i]))
			return true;
	return digits[0] != '\0' &&
	       digits[strspn(digits, "0123456789._eExXobabcdfABCDF+-:")] == '\0' &&
	       ((digits[0] >= '0' && digits[0] <= '9') || digits[0] == '.');
}

/* The scalar's text if it can be a value of the kind that the key has. */
static int scalar_text(const struct loader *l, const yaml_event_t *event,
		       const struct policy_key *key, const char *name, const char **out,
		       struct err *e)
{
	const char *text = (const char *)event->data.scalar.value;
	struct policy_mark mark = mark_from(event->start_mark);
	bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	bool textual = key->kind != POLICY_NUMBER && key->kind != POLICY_BOOL;

	if (strlen(text) != event->data.scalar.length)
		return policy_refuse(&l->source, mark, name, e, "must not have a NUL byte");
	if (!textual && !plain)
		return policy_refuse(&l->source, mark, name, e, "must be %s, not text in quotes",
				     key->kind == POLICY_BOOL ? "true or false" : "a number");
	if (textual && plain && event->data.scalar.length == 0)
		return policy_refuse(&l->source, mark, name, e, "must not be empty");
	if (textual && plain && looks_untexty(text))
		return policy_refuse(&l->source, mark, name, e,
				     "must be text; put quotes around it");
	*out = text;
	return 0;
}

static int value_result(const struct loader *l, struct policy_mark mark, const char *name, int done,
			const char *reason, struct err *e)
{
	if (done == 0)
		return 0;
	if (done == -2)
		return err_set(e, ERR_NOMEM, 0, "policy: no memory");
	return policy_refuse(&l->source, mark, name, e, "%s", reason);
}

static int take_scalar(struct loader *l, const yaml_event_t *event, const struct policy_key *key,
		       struct err *e)
{
	char reason[REASON_BYTES] = "";
	const char *text;
	int done;

	if (scalar_text(l, event, key, key->path, &text, e) != 0)
		return -1;
	done = policy_set(l->policy, key, text, reason, sizeof(reason));
	return value_result(l, mark_from(event->start_mark), key->path, done, reason, e);
}

/* --- lists and maps ----------------------------------------------------------------------------
 */

static int take_list(struct loader *l, const yaml_event_t *start, const struct policy_key *key,
		     struct err *e)
{
	const struct policy_list *list = policy_field_const(l->policy, key);

	for (;;) {
		scope_event yaml_event_t event = {0};

		if (next_event(l, key->path, &event, e) != 0)
			return -1;
		if (event.type == YAML_SEQUENCE_END_EVENT)
			break;
		if (event.type != YAML_SCALAR_EVENT)
			return wrong_kind(l, &event, key->path, "a list of single values", e);
		if (take_scalar(l, &event, key, e) != 0)
			return -1;
	}
	if ((int64_t)list->count < key->min)
		return policy_refuse(&l->source, mark_from(start->start_mark), key->path, e,
				     "must have at least %lld values", (long long)key->min);
	return 0;
}

static int take_pair(struct loader *l, const yaml_event_t *name_event, const struct policy_key *key,
		     struct err *e)
{
	scope_event yaml_event_t event = {0};
	char reason[REASON_BYTES] = "";
	const char *name;
	const char *value;
	int done;

	if (name_event->type != YAML_SCALAR_EVENT)
		return wrong_kind(l, name_event, key->path, "a mapping with single values as keys",
				  e);
	if (scalar_text(l, name_event, key, key->path, &name, e) != 0 ||
	    next_event(l, key->path, &event, e) != 0)
		return -1;
	if (event.type != YAML_SCALAR_EVENT)
		return wrong_kind(l, &event, key->path, "a mapping of single values", e);
	if (scalar_text(l, &event, key, key->path, &value, e) != 0)
		return -1;
	done = policy_set_pair(l->policy, key, name, value, reason, sizeof(reason));
	return value_result(l, mark_from(name_event->start_mark), key->path, done, reason, e);
}

static int take_map(struct loader *l, const yaml_event_t *start, const struct policy_key *key,
		    struct err *e)
{
	const struct policy_map *map = policy_field_const(l->policy, key);

	for (;;) {
		scope_event yaml_event_t event = {0};

		if (next_event(l, key->path, &event, e) != 0)
			return -1;
		if (event.type == YAML_MAPPING_END_EVENT)
			break;
		if (take_pair(l, &event, key, e) != 0)
			return -1;
	}
	if ((int64_t)map->count < key->min)
		return policy_refuse(&l->source, mark_from(start->start_mark), key->path, e,
				     "must have at least %lld entries", (long long)key->min);
	return 0;
}

/* --- sections ----------------------------------------------------------------------------------
 */

/* "known here: a, b, c": the next words below the current prefix. */
static void list_known(const struct loader *l, char *out, size_t size)
{
	size_t prefix = strlen(l->prefix);
	const char *last = "";
	size_t last_length = 0;
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; i < policy_key_count; i++) {
		const char *path = policy_keys[i].path;
		size_t length;
		int done;

		if (strncmp(path, l->prefix, prefix) != 0)
			continue;
		path += prefix;
		length = strcspn(path, ".");
		if (length == last_length && memcmp(path, last, length) == 0)
			continue;
		last = path;
		last_length = length;
		done = snprintf(out + used, size - used, "%s%.*s", used == 0 ? "" : ", ",
				(int)length, path);
		if (done < 0 || (size_t)done >= size - used)
			return;
		used += (size_t)done;
	}
}

static int unknown_key(const struct loader *l, const yaml_event_t *event, const char *path,
		       struct err *e)
{
	char known[REASON_BYTES - SHOWN_BYTES];

	list_known(l, known, sizeof(known));
	return policy_refuse(&l->source, mark_from(event->start_mark), path, e,
			     "unknown key; known here: %s", known);
}

static int enter_section(struct loader *l, const yaml_event_t *key_event, const char *path,
			 size_t first, struct err *e)
{
	scope_event yaml_event_t event = {0};

	if (l->depth >= SECTION_DEPTH)
		return err_set(e, ERR_INTERNAL, 0, "policy: the key table is too deep");
	if (l->section_seen[l->depth][first])
		return policy_refuse(&l->source, mark_from(key_event->start_mark), path, e,
				     "is there twice");
	l->section_seen[l->depth][first] = true;
	if (next_event(l, path, &event, e) != 0)
		return -1;
	if (event.type != YAML_MAPPING_START_EVENT)
		return wrong_kind(l, &event, path, "a mapping", e);
	if ((size_t)snprintf(l->prefix, sizeof(l->prefix), "%s.", path) >= sizeof(l->prefix))
		return err_set(e, ERR_INTERNAL, 0, "policy: the key table has a long path");
	l->depth++;
	return 0;
}

static int take_value(struct loader *l, const yaml_event_t *key_event, size_t index, struct err *e)
{
	const struct policy_key *key = &policy_keys[index];
	scope_event yaml_event_t event = {0};

	if (l->source.marks[index].line != 0)
		return policy_refuse(&l->source, mark_from(key_event->start_mark), key->path, e,
				     "is there twice, first in line %zu",
				     l->source.marks[index].line);
	if (next_event(l, key->path, &event, e) != 0)
		return -1;
	l->source.marks[index] = mark_from(event.start_mark);
	if (key->kind == POLICY_LIST && event.type == YAML_SEQUENCE_START_EVENT)
		return take_list(l, &event, key, e);
	if (key->kind == POLICY_MAP && event.type == YAML_MAPPING_START_EVENT)
		return take_map(l, &event, key, e);
	if (key->kind == POLICY_LIST || key->kind == POLICY_MAP || event.type != YAML_SCALAR_EVENT)
		return wrong_kind(l, &event, key->path, kind_name(key->kind), e);
	return take_scalar(l, &event, key, e);
}

/* One key of the current mapping, with its value or the start of its section. */
static int take_key(struct loader *l, const yaml_event_t *event, struct err *e)
{
	char path[PATH_BYTES];
	char shown[SHOWN_BYTES + 1];
	const char *text = (const char *)event->data.scalar.value;
	size_t length;

	if (event->type != YAML_SCALAR_EVENT) {
		/* the prefix ends with a dot */
		(void)snprintf(path, sizeof(path), "%.*s",
			       l->depth == 0 ? 6 : (int)strlen(l->prefix) - 1,
			       l->depth == 0 ? "policy" : l->prefix);
		return wrong_kind(l, event, path, "a mapping with single values as keys", e);
	}
	show(shown, text, event->data.scalar.length);
	(void)snprintf(path, sizeof(path), "%s%s", l->prefix, shown);
	length = strlen(path);
	if (strlen(text) != event->data.scalar.length || !str_equal(text, shown) ||
	    strchr(text, '.') != NULL)
		return unknown_key(l, event, path, e);
	for (size_t i = 0; i < policy_key_count; i++) {
		if (str_equal(policy_keys[i].path, path))
			return take_value(l, event, i, e);
		if (strncmp(policy_keys[i].path, path, length) == 0 &&
		    policy_keys[i].path[length] == '.')
			return enter_section(l, event, path, i, e);
	}
	return unknown_key(l, event, path, e);
}

static void leave_section(struct loader *l)
{
	size_t length = strlen(l->prefix);

	/* "a.b." becomes "a.", "a." becomes "" */
	if (length > 0)
		length--;
	while (length > 0 && l->prefix[length - 1] != '.')
		length--;
	l->prefix[length] = '\0';
	l->depth--;
}

static int load_root(struct loader *l, struct err *e)
{
	for (;;) {
		scope_event yaml_event_t event = {0};

		if (next_event(l, "policy", &event, e) != 0)
			return -1;
		if (event.type == YAML_MAPPING_END_EVENT) {
			if (l->depth == 0)
				return 0;
			leave_section(l);
		} else if (take_key(l, &event, e) != 0) {
			return -1;
		}
	}
}

static int start_document(struct loader *l, struct err *e)
{
	scope_event yaml_event_t stream = {0};
	scope_event yaml_event_t document = {0};
	scope_event yaml_event_t root = {0};

	if (next_event(l, "policy", &stream, e) != 0 || next_event(l, "policy", &document, e) != 0)
		return -1;
	if (document.type != YAML_DOCUMENT_START_EVENT)
		return policy_refuse(&l->source, mark_from(document.start_mark), "policy", e,
				     "the file is empty");
	if (document.data.document_start.version_directive != NULL ||
	    document.data.document_start.tag_directives.start !=
		document.data.document_start.tag_directives.end)
		return policy_refuse(&l->source, mark_from(document.start_mark), "policy", e,
				     "directives are not allowed");
	if (next_event(l, "policy", &root, e) != 0)
		return -1;
	if (root.type != YAML_MAPPING_START_EVENT)
		return wrong_kind(l, &root, "policy", "a mapping", e);
	return 0;
}

static int end_document(struct loader *l, struct err *e)
{
	scope_event yaml_event_t document = {0};
	scope_event yaml_event_t stream = {0};

	if (next_event(l, "policy", &document, e) != 0 || next_event(l, "policy", &stream, e) != 0)
		return -1;
	if (stream.type != YAML_STREAM_END_EVENT)
		return policy_refuse(&l->source, mark_from(stream.start_mark), "policy", e,
				     "only one document is allowed");
	return 0;
}

/* --- entry -------------------------------------------------------------------------------------
 */

int policy_parse(const char *name, const char *text, size_t length, struct policy **out,
		 struct err *e)
{
	scope_policy struct policy *policy = NULL;
	scope_free struct loader *l = mem_zalloc(1, sizeof(*l));
	int done;

	policy = mem_zalloc(1, sizeof(*policy));
	if (l == NULL || policy == NULL)
		return err_set(e, ERR_NOMEM, 0, "policy: no memory");
	if (length > POLICY_FILE_BYTES)
		return err_set(e, ERR_LIMIT, 0, "%s:1:1: policy: is larger than %zu bytes", name,
			       POLICY_FILE_BYTES);
	l->source.name = name;
	l->policy = policy;
	l->text = text;
	l->length = length;
	if (yaml_parser_initialize(&l->parser) == 0)
		return err_set(e, ERR_NOMEM, 0, "policy: no memory");
	yaml_parser_set_input_string(&l->parser, (const unsigned char *)text, length);
	yaml_parser_set_encoding(&l->parser, YAML_UTF8_ENCODING);
	done = start_document(l, e) != 0 || load_root(l, e) != 0 || end_document(l, e) != 0;
	yaml_parser_delete(&l->parser);
	if (done != 0 || policy_complete(policy, &l->source, e) != 0)
		return -1;
	*out = scope_steal(&policy);
	return 0;
}

int policy_load(const char *path, struct policy **out, struct err *e)
{
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, POLICY_FILE_BYTES + 1);
	if (fd_read_file(AT_FDCWD, path, &text, e) != 0)
		return -1;
	return policy_parse(path, buf_text(&text), text.len, out, e);
}
