#include "handlers/runs/codec_session.h"

#include "handlers/admit.h"
#include "handlers/runs/codec.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define AT(member) offsetof(struct session_body, member)

static const struct field session_fields[] = {
    {"spec_version", FIELD_TEXT, AT(spec_version), .hi = LIMIT_ID_BYTES},
    {"runtime", FIELD_CHOICE, AT(runtime), .choices = admit_runtimes},
    {"base_image", FIELD_TEXT, AT(base_image), .hi = LIMIT_ID_BYTES},
    {"cpu_limit", FIELD_NUMBER, AT(cpu_limit), .lo = 0, .hi = 1000000},
    {"memory_mb", FIELD_INT, AT(memory_mb), .lo = 64, .hi = 1 << 30},
    {"timeout_sec", FIELD_INT, AT(timeout_sec), .lo = 1, .hi = 3600},
    {"network_policy", FIELD_CHOICE, AT(network_policy), .choices = codec_network_policies},
    {"env", FIELD_OBJECT, AT(env)},
    {"labels", FIELD_OBJECT, AT(labels)},
    {"trust_level", FIELD_CHOICE, AT(trust_level), .choices = codec_trust_levels},
    {"persona_id", FIELD_TEXT, AT(persona_id), .hi = LIMIT_ID_BYTES},
    {"workspace_id", FIELD_TEXT, AT(workspace_id), .hi = LIMIT_ID_BYTES},
    {"workspace_group_id", FIELD_TEXT, AT(workspace_group_id), .hi = LIMIT_ID_BYTES},
    {"scope_snapshot_id", FIELD_TEXT, AT(scope_snapshot_id), .hi = LIMIT_ID_BYTES},
};

const struct field_table codec_session_table = {session_fields, ARRAY_LEN(session_fields)};

/* Names and texts of env and labels; names of variables have no '='. */
static void check_map(const struct field_value *map, const char *name, bool variables,
		      struct problems *p)
{
	size_t total = 0;
	const char *key;
	json_t *value;

	if (map->state != FIELD_SET)
		return;
	if (json_object_size(map->value) > LIMIT_MAP_ENTRIES)
		problems_add(p, name, NULL, "%s may have at most %d entries", name,
			     LIMIT_MAP_ENTRIES);
	json_object_foreach (map->value, key, value) {
		const char *text = json_text(value);

		if (text == NULL || (variables && (key[0] == '\0' || strchr(key, '=') != NULL))) {
			problems_add(p, name, NULL,
				     "%s takes names%s and string values without NUL", name,
				     variables ? " without '='" : "");
			return;
		}
		total += strlen(key) + strlen(text);
	}
	if (total > LIMIT_MAP_BYTES)
		problems_add(p, name, NULL, "%s may have at most %u bytes in all", name,
			     LIMIT_MAP_BYTES);
}

void codec_decode_session(json_t *object, struct session_body *out, struct problems *p)
{
	memset(out, 0, sizeof(*out));
	fields_decode(object, "", session_fields, ARRAY_LEN(session_fields), out, p);
	check_map(&out->env, "env", true, p);
	check_map(&out->labels, "labels", false, p);
	if (codec_blank(&out->base_image))
		out->base_image.state = FIELD_NULL;
}

int codec_fingerprint_session(const json_t *object, unsigned char out[32], struct err *e)
{
	scope_json json_t *known = json_object();
	scope_json json_t *clean = NULL;
	int bad = 0;

	bad |= json_object_set_new(known, "spec_version", json_string("1.0"));
	bad |= json_object_set_new(known, "timeout_sec", json_integer(300));
	bad |= json_object_set_new(known, "network_policy", json_string("deny_all"));
	bad |= json_object_set_new(known, "trust_level", json_string("standard"));
	bad |= codec_copy_known(known, object, session_fields, ARRAY_LEN(session_fields));
	if (bad != 0)
		return err_set(e, ERR_NOMEM, 0, "fingerprint");
	clean = json_without_nulls(known);
	if (clean == NULL)
		return err_set(e, ERR_NOMEM, 0, "fingerprint");
	return json_fingerprint(clean, out, e);
}

static json_t *text_or_null(const char *text)
{
	return text[0] == '\0' ? json_null() : json_string(text);
}

json_t *codec_session(const struct session_row *row)
{
	json_t *s = json_object();
	int bad = 0;

#define SET(name, value) (bad |= json_object_set_new(s, name, value))
	SET("id", json_string(row->id));
	SET("name", text_or_null(row->name));
	SET("spec_version", json_string(row->spec_version));
	SET("runtime", json_string(row->runtime));
	SET("base_image", text_or_null(row->base_image));
	SET("cpu_limit", json_real((double)row->cpu_milli / 1000.0));
	SET("memory_mb", json_integer(row->memory_mb));
	SET("timeout_sec", json_integer(row->timeout_sec));
	SET("network_policy", json_string(row->network_policy));
	SET("env", json_incref(row->env));
	SET("labels", json_incref(row->labels));
	SET("trust_level", json_string(row->trust_level));
	SET("created_at", text_or_null(row->created_at));
	SET("expires_at", text_or_null(row->expires_at));
	SET("policy_hash", json_string(row->policy_hash));
	SET("persona_id", text_or_null(row->persona_id));
	SET("workspace_id", text_or_null(row->workspace_id));
	SET("workspace_group_id", text_or_null(row->workspace_group_id));
	SET("scope_snapshot_id", text_or_null(row->scope_snapshot_id));
#undef SET
	if (bad == 0)
		return s;
	json_decref(s);
	return NULL;
}

/* --- what a run inherits --------------------------------------------------------------------- */

/* Where it is absent; null is a value of the client's. */
static int inherit(json_t *into, const char *name, json_t *value)
{
	if (json_object_get(into, name) != NULL) {
		json_decref(value);
		return 0;
	}
	return json_object_set_new(into, name, value);
}

/* Each of cpu and memory for itself. */
static int inherit_resources(json_t *into, const struct session_row *session)
{
	const json_t *own = json_object_get(into, "resources");
	json_t *all = json_is_object(own) ? json_copy((json_t *)(uintptr_t)own) : json_object();
	int bad = 0;

	if (own != NULL && !json_is_object(own)) {
		json_decref(all);
		return 0; /* null, or wrong: judged by the decoder */
	}
	bad |= inherit(all, "cpu", json_real((double)session->cpu_milli / 1000.0));
	bad |= inherit(all, "memory_mb", json_integer(session->memory_mb));
	return bad | json_object_set_new(into, "resources", all);
}

json_t *codec_inherit(const json_t *object, const struct session_row *session)
{
	json_t *all = json_copy((json_t *)(uintptr_t)object);
	int bad = all == NULL;

	(void)json_object_del(all, "session_id");
	(void)json_object_del(all, "base_image"); /* null or blank: it was judged */
	bad |= inherit(all, "base_image", text_or_null(session->base_image));
	bad |= inherit(all, "runtime", json_string(session->runtime));
	bad |= inherit(all, "env", json_incref(session->env));
	bad |= inherit(all, "timeout_sec", json_integer(session->timeout_sec));
	bad |= inherit(all, "network_policy", json_string(session->network_policy));
	bad |= inherit(all, "trust_level", json_string(session->trust_level));
	bad |= inherit(all, "persona_id", text_or_null(session->persona_id));
	bad |= inherit(all, "workspace_id", text_or_null(session->workspace_id));
	bad |= inherit(all, "workspace_group_id", text_or_null(session->workspace_group_id));
	bad |= inherit(all, "scope_snapshot_id", text_or_null(session->scope_snapshot_id));
	bad |= inherit_resources(all, session);
	if (bad == 0)
		return all;
	json_decref(all);
	return NULL;
}
