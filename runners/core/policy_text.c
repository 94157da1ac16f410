/* policy_text.c: a policy as text: dump, documentation, ceilings for cordon-box. */
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/policy.h"
#include "runners/core/policy_keys.h"

#include <inttypes.h>

/* A double-quoted YAML scalar. Texts of a policy have no control characters. */
static void add_quoted(struct buf *out, const char *text)
{
	buf_add_char(out, '"');
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\')
			buf_add_char(out, '\\');
		buf_add_char(out, *text);
	}
	buf_add_char(out, '"');
}

static void add_value(struct buf *out, const struct policy *policy, const struct policy_key *key)
{
	const void *field = policy_field_const(policy, key);
	const struct policy_list *list = field;
	const struct policy_map *map = field;

	switch (key->kind) {
	case POLICY_NUMBER:
		buf_addf(out, "%" PRId64, *(const int64_t *)field);
		break;
	case POLICY_BOOL:
		buf_add_str(out, *(const bool *)field ? "true" : "false");
		break;
	case POLICY_TEXT:
	case POLICY_URL:
	case POLICY_PATH:
	case POLICY_NAME:
	case POLICY_CHOICE:
		add_quoted(out, *(char *const *)field);
		break;
	case POLICY_LIST:
		for (size_t i = 0; i < list->count; i++) {
			buf_add_str(out, i == 0 ? "[" : ", ");
			add_quoted(out, list->items[i]);
		}
		buf_add_char(out, ']');
		break;
	case POLICY_MAP:
		for (size_t i = 0; i < map->count; i++) {
			buf_add_str(out, i == 0 ? "{" : ", ");
			add_quoted(out, map->items[i].key);
			buf_add_str(out, ": ");
			add_quoted(out, map->items[i].value);
		}
		buf_add_char(out, '}');
		break;
	}
}

/* Writes the sections of `path` that the key before did not have; returns the rest of the path. */
static const char *open_sections(struct buf *out, const char *before, const char *path, int *depth)
{
	bool same = true;

	*depth = 0;
	for (;;) {
		const char *dot = strchr(path, '.');
		size_t length;

		if (dot == NULL)
			return path;
		length = (size_t)(dot - path) + 1;
		same = same && strncmp(before, path, length) == 0;
		if (same)
			before += length;
		else
			buf_addf(out, "%*s%.*s:\n", *depth * 2, "", (int)length - 1, path);
		path += length;
		(*depth)++;
	}
}

void policy_dump(const struct policy *policy, struct buf *out)
{
	const char *before = "";

	for (size_t i = 0; i < policy_key_count; i++) {
		int depth;
		const char *name = open_sections(out, before, policy_keys[i].path, &depth);

		buf_addf(out, "%*s%s: ", depth * 2, "", name);
		add_value(out, policy, &policy_keys[i]);
		buf_add_char(out, '\n');
		before = policy_keys[i].path;
	}
}

static void add_range(struct buf *out, const struct policy_key *key)
{
	switch (key->kind) {
	case POLICY_NUMBER:
		buf_addf(out, "%" PRId64 " to %" PRId64 "%s%s", key->min, key->max,
			 key->unit[0] == '\0' ? "" : " ", key->unit);
		break;
	case POLICY_BOOL:
		buf_add_str(out, "true, false");
		break;
	case POLICY_CHOICE:
		for (const char *p = key->choices; *p != '\0'; p++)
			buf_add_str(out, *p == ' ' ? ", " : (char[]){*p, '\0'});
		break;
	case POLICY_TEXT:
	case POLICY_URL:
	case POLICY_PATH:
	case POLICY_NAME:
		buf_addf(out, "%" PRId64 " to %" PRId64 " bytes", key->min, key->max);
		break;
	case POLICY_LIST:
	case POLICY_MAP:
		buf_addf(out, "%" PRId64 " to %" PRId64 " entries", key->min, key->max);
		break;
	}
}

static const char *kind_text(enum policy_kind kind)
{
	static const char *const names[] = {
	    [POLICY_NUMBER] = "number", [POLICY_BOOL] = "bool", [POLICY_TEXT] = "text",
	    [POLICY_URL] = "https URL", [POLICY_PATH] = "path", [POLICY_NAME] = "name",
	    [POLICY_CHOICE] = "choice", [POLICY_LIST] = "list", [POLICY_MAP] = "mapping",
	};

	return names[kind];
}

void policy_doc(struct buf *out)
{
	buf_add_str(
	    out,
	    "# Policy\n\n"
	    "Made by `make docs` from the key table in runners/core/policy_keys.c; do not edit.\n\n"
	    "One strict YAML file. An unknown or duplicate key, a wrong kind and a value out of\n"
	    "range are refused with `file:line:col: key: reason`, and so are anchors, tags, several\n"
	    "documents and files over 1 MiB. Each program takes `--policy FILE`, and with\n"
	    "`--check-config` or `--dump-config` it only checks the file or prints the effective\n"
	    "values. On SIGHUP cordon-fcgi and cordon-gate read the file again; a file that is\n"
	    "refused changes nothing. cordon-runner reads it when it starts, and cordon-box reads\n"
	    "box.limits, which `cordonctl policy install` makes from it, when it starts. Dots in\n"
	    "the names below are nesting in the file.\n\n"
	    "| key | kind | allowed | default | meaning |\n"
	    "|---|---|---|---|---|\n");
	for (size_t i = 0; i < policy_key_count; i++) {
		const struct policy_key *key = &policy_keys[i];

		buf_addf(out, "| `%s` | %s | ", key->path, kind_text(key->kind));
		add_range(out, key);
		if (key->standard == NULL)
			buf_add_str(out, " | required");
		else
			buf_addf(out, " | `%s`", key->standard);
		buf_addf(out, " | %s |\n", key->doc);
	}
}

static int64_t lower(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t higher(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

void policy_box_limits(const struct policy *policy, struct buf *out)
{
	const struct policy_tier *const tiers[] = {&policy->tiers.trusted, &policy->tiers.standard,
						   &policy->tiers.untrusted};
	int64_t memory = 0;
	int64_t cpu = 0;
	int64_t pids = 0;
	int64_t workspace = 0;

	for (size_t i = 0; i < ARRAY_LEN(tiers); i++) {
		memory = higher(memory, lower(tiers[i]->max_mem_mb, policy->runs.max_mem_mb));
		cpu = higher(cpu, lower(tiers[i]->max_cpu_milli, policy->runs.max_cpu_milli));
		pids = higher(pids, tiers[i]->pids);
		workspace = higher(workspace, tiers[i]->workspace_cap_mb);
	}
	/* the box that takes an upload: a zip lies in its /tmp while it is read */
	memory = higher(memory, POLICY_UPLOAD_MEMORY_MB + policy->sessions.upload_mb);
	buf_addf(out,
		 "memory_max_mb=%" PRId64 "\npids_max=%" PRId64 "\ncpu_max_millis=%" PRId64
		 "\nworkspace_max_mb=%" PRId64 "\nworkspace_inodes_max=%" PRId64
		 "\ntmp_max_mb=%" PRId64 "\n",
		 memory, pids, cpu, workspace,
		 higher(policy->runs.workspace_inodes, policy->sandbox.disk_inodes),
		 higher(policy->runs.tmp_mb, policy->sessions.upload_mb + 1));
	buf_addf(out,
		 "pool=%" PRId64 "\npool_fresh=%" PRId64 "\nnetns_ring=%d\ndisk_max_mb=%" PRId64
		 "\nio_weight=%" PRId64 "\n",
		 policy->box.pool, policy->box.pool_fresh, policy->box.netns_ring ? 1 : 0,
		 policy->box.disk_max_mb, policy->box.io_weight);
	buf_addf(out, "slots=%" PRId64 "\nhost_reserve_mb=%" PRId64 "\nusr_local=%d\n",
		 policy->box.slots_max, policy->box.host_reserve_mb, policy->box.usr_local ? 1 : 0);
	/* 0: cordon-box's own default */
	buf_addf(out, "uid_base=%" PRId64 "\n", policy->box.uid_base);
}
