#include "runners/core/policy.h"

#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/policy_keys.h"

#include <inttypes.h>
#include <stdarg.h>

#define REASON_BYTES    256
#define CORES_DEFAULT   4
#define CONCURRENCY_TOP 64
#define UID_STEP        65536
#define UNIX_PATH_BYTES 107
/* the longest name below paths.run, with its slash */
#define SOCKET_NAME "/notify-run/runner.sock"

/* --- values ------------------------------------------------------------------------------------
 */

static bool name_is_good(const char *text)
{
	for (const char *p = text; *p != '\0'; p++) {
		bool word = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
			    (*p >= '0' && *p <= '9');

		if (!word && (p == text || (*p != '.' && *p != '_' && *p != '-')))
			return false;
	}
	return true;
}

static bool path_is_good(const char *text)
{
	if (text[0] != '/')
		return false;
	while (*text == '/') {
		const char *segment = text + 1;
		size_t length = strcspn(segment, "/");

		if (length == 0 || (length <= 2 && strspn(segment, ".") >= length))
			return false;
		text = segment + length;
	}
	return true;
}

/* https://host[:port]: a DNS name, an IPv4 address or an IPv6 address in brackets. */
static bool url_is_good(const char *text)
{
	static const char host_bytes[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
	const char *host = str_after(text, "https://");
	const char *port;
	struct err unused = ERR_INIT;
	uint64_t value;

	if (host == NULL)
		return false;
	if (host[0] == '[') {
		size_t length = strspn(host + 1, "0123456789abcdefABCDEF:.");

		if (length < 2 || host[1 + length] != ']')
			return false;
		port = host + length + 2;
	} else {
		size_t length = strspn(host, host_bytes);

		if (length == 0 || host[0] == '.' || host[0] == '-')
			return false;
		port = host + length;
	}
	if (*port == '\0')
		return true;
	return *port == ':' && port[1] != '0' &&
	       num_u64("port", port + 1, 1, 65535, &value, &unused) == 0;
}

static bool choice_is_good(const char *choices, const char *text)
{
	size_t length = strlen(text);

	while (*choices != '\0') {
		size_t word = strcspn(choices, " ");

		if (word == length && memcmp(choices, text, word) == 0)
			return true;
		choices += word;
		choices += strspn(choices, " ");
	}
	return false;
}

static bool text_is_good(const char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return false;
	return true;
}

static int refuse(char *reason, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(char *reason, size_t size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(reason, size, format, args);
	va_end(args);
	return -1;
}

static int check_number(const struct policy_key *key, const char *text, int64_t *out, char *reason,
			size_t size)
{
	struct err unused = ERR_INIT;

	/* 010 is 8 for some readers of YAML and 10 for others */
	if ((text[0] == '0' && text[1] != '\0') ||
	    num_i64(key->path, text, key->min, key->max, out, &unused) != 0 || text[0] == '-')
		return refuse(reason, size,
			      "must be a whole number from %" PRId64 " to %" PRId64 "%s%s%s",
			      key->min, key->max, key->unit[0] == '\0' ? "" : " (", key->unit,
			      key->unit[0] == '\0' ? "" : ")");
	return 0;
}

static int check_text(const struct policy_key *key, const char *text, char *reason, size_t size)
{
	int64_t length = (int64_t)strlen(text);
	bool sized = key->kind == POLICY_LIST || key->kind == POLICY_MAP;
	int64_t most = sized ? 255 : key->max;
	int64_t least = sized ? 1 : key->min;

	if (key->kind == POLICY_CHOICE)
		return choice_is_good(key->choices, text)
			   ? 0
			   : refuse(reason, size, "must be one of: %s", key->choices);
	if (length == 0 && least == 0)
		return 0;
	if (!text_is_good(text))
		return refuse(reason, size, "must not have control characters");
	if (!str_utf8_valid(text, (size_t)length))
		return refuse(reason, size, "must be UTF-8");
	if (length < least || length > most)
		return refuse(reason, size, "must have %" PRId64 " to %" PRId64 " bytes", least,
			      most);
	if (key->kind == POLICY_URL && !url_is_good(text))
		return refuse(reason, size,
			      "must be https://host or https://host:port, without a slash behind");
	if (key->kind == POLICY_PATH && !path_is_good(text))
		return refuse(reason, size,
			      "must be an absolute path without empty, \".\" and \"..\" parts");
	if (key->kind == POLICY_NAME && !name_is_good(text))
		return refuse(reason, size,
			      "must have only letters, digits, \".\", \"_\" and \"-\", and start "
			      "with a letter or digit");
	return 0;
}

static int add_item(struct policy_list *list, const struct policy_key *key, const char *text,
		    char *reason, size_t size)
{
	scope_free char *copy = NULL;
	char **grown;

	for (size_t i = 0; i < list->count; i++)
		if (str_equal(list->items[i], text))
			return refuse(reason, size, "the value \"%.64s\" is there twice", text);
	if ((int64_t)list->count >= key->max)
		return refuse(reason, size, "must have at most %" PRId64 " values", key->max);
	copy = mem_dup(text);
	grown = mem_resize(list->items, list->count + 1, sizeof(*grown));
	if (grown != NULL)
		list->items = grown;
	if (copy == NULL || grown == NULL)
		return -2;
	list->items[list->count++] = scope_steal(&copy);
	return 0;
}

int policy_set(struct policy *policy, const struct policy_key *key, const char *text, char *reason,
	       size_t size)
{
	void *field = policy_field(policy, key);
	char *copy;

	if (key->kind == POLICY_NUMBER)
		return check_number(key, text, field, reason, size);
	if (key->kind == POLICY_BOOL) {
		bool on = str_equal(text, "true");

		if (!on && !str_equal(text, "false"))
			return refuse(reason, size, "must be true or false");
		*(bool *)field = on;
		return 0;
	}
	if (check_text(key, text, reason, size) != 0)
		return -1;
	if (key->kind == POLICY_LIST)
		return add_item(field, key, text, reason, size);
	copy = mem_dup(text);
	if (copy == NULL)
		return -2;
	mem_free(*(char **)field);
	*(char **)field = copy;
	return 0;
}

int policy_set_pair(struct policy *policy, const struct policy_key *key, const char *name,
		    const char *value, char *reason, size_t size)
{
	struct policy_map *map = policy_field(policy, key);
	scope_free char *name_copy = NULL;
	scope_free char *value_copy = NULL;
	struct policy_pair *grown;

	if (check_text(key, name, reason, size) != 0)
		return -1;
	if (strlen(value) > 63 || value[0] == '\0' || !name_is_good(value))
		return refuse(reason, size,
			      "the value must be a name of 1 to 63 letters, digits, \".\", \"_\" "
			      "and \"-\" that starts with a letter or digit");
	for (size_t i = 0; i < map->count; i++)
		if (str_equal(map->items[i].key, name))
			return refuse(reason, size, "the key \"%.64s\" is there twice", name);
	if ((int64_t)map->count >= key->max)
		return refuse(reason, size, "must have at most %" PRId64 " entries", key->max);
	name_copy = mem_dup(name);
	value_copy = mem_dup(value);
	grown = mem_resize(map->items, map->count + 1, sizeof(*grown));
	if (grown != NULL)
		map->items = grown;
	if (name_copy == NULL || value_copy == NULL || grown == NULL)
		return -2;
	map->items[map->count].key = scope_steal(&name_copy);
	map->items[map->count].value = scope_steal(&value_copy);
	map->count++;
	return 0;
}

/* --- defaults ----------------------------------------------------------------------------------
 */

/* The words of key->standard, one after the other, into a list or map. */
static int set_words(struct policy *policy, const struct policy_key *key, char *reason, size_t size)
{
	const char *p = key->standard;

	while (*p != '\0') {
		size_t length = strcspn(p, " ");
		scope_free char *word = mem_dup_bytes(p, length);
		char *value = word == NULL ? NULL : strchr(word, '=');
		int done;

		if (word == NULL)
			return -2;
		if (key->kind == POLICY_LIST) {
			done = policy_set(policy, key, word, reason, size);
		} else {
			if (value == NULL)
				return refuse(reason, size, "the default is broken");
			*value = '\0';
			done = policy_set_pair(policy, key, word, value + 1, reason, size);
		}
		if (done != 0)
			return done;
		p += length;
		p += strspn(p, " ");
	}
	return 0;
}

static int set_defaults(struct policy *policy, const struct policy_source *source, struct err *e)
{
	static const struct policy_mark top = {1, 1};

	for (size_t i = 0; i < policy_key_count; i++) {
		const struct policy_key *key = &policy_keys[i];
		char reason[REASON_BYTES] = "";
		int done;

		if (source->marks[i].line != 0)
			continue;
		if (key->standard == NULL)
			return policy_refuse(source, top, key->path, e, "is required");
		if (key->kind == POLICY_LIST || key->kind == POLICY_MAP)
			done = set_words(policy, key, reason, sizeof(reason));
		else
			done = policy_set(policy, key, key->standard, reason, sizeof(reason));
		if (done == -2)
			return err_set(e, ERR_NOMEM, 0, "policy: no memory");
		if (done != 0)
			return policy_refuse(source, top, key->path, e, "default: %s", reason);
	}
	return 0;
}

/* --- relations ---------------------------------------------------------------------------------
 */

static size_t key_index(const char *path)
{
	size_t i = 0;

	while (i + 1 < policy_key_count && !str_equal(policy_keys[i].path, path))
		i++;
	return i;
}

/* The place of a key, of the other one when it is not in the file, else the top. */
static struct policy_mark mark_of(const struct policy_source *source, const char *path,
				  const char *other)
{
	struct policy_mark mark = source->marks[key_index(path)];

	if (mark.line == 0)
		mark = source->marks[key_index(other)];
	if (mark.line == 0)
		mark = (struct policy_mark){1, 1};
	return mark;
}

struct relation {
	const char *low;
	int64_t factor; /* low * factor <= high */
	const char *high;
};

static const struct relation relations[] = {
    {"gate.ws_max_per_user", 1, "gate.ws_max_total"},
    {"gate.ws_max_per_run", 1, "gate.ws_max_total"},
    {"runner.beat_ms", 3, "runner.dead_after_ms"},
    {"runner.concurrency", 1, "box.slots_max"},
    {"runs.default_timeout_sec", 1, "runs.max_timeout_sec"},
    {"runs.null_timeout_sec", 1, "runs.max_timeout_sec"},
    {"tiers.trusted.timeout_sec", 1, "runs.max_timeout_sec"},
    {"tiers.standard.timeout_sec", 1, "runs.max_timeout_sec"},
    {"tiers.untrusted.timeout_sec", 1, "runs.max_timeout_sec"},
    {"runs.inline_files_bytes", 1, "http.body_bytes"},
    {"runs.artifact_file_bytes", 1, "runs.artifact_run_bytes"},
    {"runs.artifact_run_bytes", 1, "runs.artifact_user_bytes"},
    {"runs.tmp_mb", 1, "runs.max_mem_mb"},
};

static int check_order(const struct policy *policy, const struct policy_source *source,
		       const struct relation *r, struct err *e)
{
	int64_t low = *(const int64_t *)policy_field_const(policy, &policy_keys[key_index(r->low)]);
	int64_t high =
	    *(const int64_t *)policy_field_const(policy, &policy_keys[key_index(r->high)]);

	if (low <= high / r->factor)
		return 0;
	if (r->factor == 1)
		return policy_refuse(source, mark_of(source, r->low, r->high), r->low, e,
				     "%" PRId64 " must be at most %s (%" PRId64 ")", low, r->high,
				     high);
	return policy_refuse(source, mark_of(source, r->low, r->high), r->low, e,
			     "%" PRId64 " times %" PRId64 " must be at most %s (%" PRId64 ")", low,
			     r->factor, r->high, high);
}

static bool path_is_below(const char *path, const char *folder)
{
	const char *rest = str_after(path, folder);

	return rest != NULL && (*rest == '\0' || *rest == '/');
}

static int check_relations(const struct policy *policy, const struct policy_source *source,
			   struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(relations); i++)
		if (check_order(policy, source, &relations[i], e) != 0)
			return -1;
	if (policy->runs.artifact_ttl_hours > policy->runs.row_ttl_days * 24)
		return policy_refuse(
		    source, mark_of(source, "runs.artifact_ttl_hours", "runs.row_ttl_days"),
		    "runs.artifact_ttl_hours", e,
		    "%" PRId64 " hours must be at most runs.row_ttl_days (%" PRId64 " days)",
		    policy->runs.artifact_ttl_hours, policy->runs.row_ttl_days);
	if (policy->streams.signed_urls && policy->streams.secret_file[0] == '\0')
		return policy_refuse(source,
				     mark_of(source, "streams.signed_urls", "streams.secret_file"),
				     "streams.signed_urls", e, "needs streams.secret_file");
	if (path_is_below(policy->paths.data, policy->paths.run) ||
	    path_is_below(policy->paths.run, policy->paths.data))
		return policy_refuse(source, mark_of(source, "paths.data", "paths.run"),
				     "paths.data", e, "must not lie in paths.run, nor around it");
	if (strlen(policy->paths.run) + strlen(SOCKET_NAME) > UNIX_PATH_BYTES)
		return policy_refuse(source, mark_of(source, "paths.run", "paths.run"), "paths.run",
				     e, "is too long for the names of sockets below it");
	if (policy->box.uid_base % UID_STEP != 0)
		return policy_refuse(source, mark_of(source, "box.uid_base", "box.uid_base"),
				     "box.uid_base", e, "must be a multiple of %d", UID_STEP);
	return 0;
}

/* Sandboxes leave room for the runs and for the boxes that wait. */
static void fit_sandboxes(struct policy *policy)
{
	int64_t room = policy->box.slots_max - policy->runner.concurrency - policy->box.pool -
		       policy->box.pool_fresh;

	if (room < 0)
		room = 0;
	if (policy->sandbox.max > room)
		policy->sandbox.max = room;
}

int policy_complete(struct policy *policy, const struct policy_source *source, struct err *e)
{
	struct buf url;

	if (set_defaults(policy, source, e) != 0)
		return -1;
	if (policy->runner.concurrency == 0) {
		long cores = sysconf(_SC_NPROCESSORS_ONLN);
		int64_t most = policy->box.slots_max < CONCURRENCY_TOP ? policy->box.slots_max
								       : CONCURRENCY_TOP;

		policy->runner.concurrency = (cores < 1 ? 1 : cores) * CORES_DEFAULT;
		if (policy->runner.concurrency > most)
			policy->runner.concurrency = most;
	}
	if (check_relations(policy, source, e) != 0)
		return -1;
	fit_sandboxes(policy);
	buf_init(&url, POLICY_FILE_BYTES);
	buf_addf(&url, "wss://%s", policy->public_url + strlen("https://"));
	policy->stream_url = buf_steal(&url, NULL);
	if (policy->stream_url == NULL)
		return err_set(e, ERR_NOMEM, 0, "policy: no memory");
	return 0;
}

/* --- life --------------------------------------------------------------------------------------
 */

void policy_free(struct policy *policy)
{
	if (policy == NULL)
		return;
	for (size_t i = 0; i < policy_key_count; i++) {
		void *field = policy_field(policy, &policy_keys[i]);
		struct policy_list *list = field;
		struct policy_map *map = field;

		switch (policy_keys[i].kind) {
		case POLICY_NUMBER:
		case POLICY_BOOL:
			break;
		case POLICY_TEXT:
		case POLICY_URL:
		case POLICY_PATH:
		case POLICY_NAME:
		case POLICY_CHOICE:
			mem_free(*(char **)field);
			break;
		case POLICY_LIST:
			for (size_t k = 0; k < list->count; k++)
				mem_free(list->items[k]);
			mem_free(list->items);
			break;
		case POLICY_MAP:
			for (size_t k = 0; k < map->count; k++) {
				mem_free(map->items[k].key);
				mem_free(map->items[k].value);
			}
			mem_free(map->items);
			break;
		}
	}
	mem_free(policy->stream_url);
	mem_free(policy);
}

const struct policy_tier *policy_tier_find(const struct policy *policy, const char *name)
{
	if (str_equal(name, "trusted"))
		return &policy->tiers.trusted;
	if (str_equal(name, "standard"))
		return &policy->tiers.standard;
	if (str_equal(name, "untrusted"))
		return &policy->tiers.untrusted;
	return NULL;
}

const char *policy_image_find(const struct policy *policy, const char *requested)
{
	for (size_t i = 0; i < policy->images.count; i++)
		if (str_equal(policy->images.items[i].key, requested))
			return policy->images.items[i].value;
	return NULL;
}
