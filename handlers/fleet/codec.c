/* Face 3's JSON: bodies into structs, a sandbox row into its object. */
#include "handlers/fleet/fleet.h"

#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#define NAME_BYTES      255
#define COMMAND_BYTES   (LIMIT_COMMAND_ITEM_BYTES - 1) /* with its NUL what execve takes */
#define TIMEOUT_MAX_MS  86400000
#define METADATA_BYTES  65536
#define MEMORY_LEAST_MB 64
#define MEMORY_MAX_MB   (1 << 20)
#define DISK_MAX_GB     16384

static const struct field create_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct fleet_body, name), .hi = NAME_BYTES},
    {"resources", FIELD_OBJECT, offsetof(struct fleet_body, resources)},
    {"env", FIELD_OBJECT, offsetof(struct fleet_body, env)},
    {"metadata", FIELD_OBJECT, offsetof(struct fleet_body, metadata)},
    {"maxLifetimeSeconds", FIELD_INT, offsetof(struct fleet_body, lifetime_sec), .lo = 1,
     .hi = 31536000},
    {"ephemeral", FIELD_BOOL, offsetof(struct fleet_body, ephemeral)},
};

static const struct field resource_fields[] = {
    {"cpuCores", FIELD_NUMBER, offsetof(struct fleet_body, cpu_cores), .lo = 0, .hi = 1024},
    {"memoryMB", FIELD_INT, offsetof(struct fleet_body, memory_mb), .lo = MEMORY_LEAST_MB,
     .hi = MEMORY_MAX_MB},
    {"diskGB", FIELD_INT, offsetof(struct fleet_body, disk_gb), .lo = 1, .hi = DISK_MAX_GB},
};

static const struct field command_fields[] = {
    {"command", FIELD_TEXT, offsetof(struct fleet_command_body, command), .hi = COMMAND_BYTES,
     .required = true},
    {"cwd", FIELD_TEXT, offsetof(struct fleet_command_body, cwd), .hi = LIMIT_PATH_BYTES},
    {"env", FIELD_OBJECT, offsetof(struct fleet_command_body, env)},
    {"timeout", FIELD_INT, offsetof(struct fleet_command_body, timeout_ms), .lo = 1,
     .hi = TIMEOUT_MAX_MS},
};

/* Fields of the face that ask for something that is not there: never a quiet fallback. */
static const char *const unsupported[] = {
    "git",          "confidential",     "envRecovery",  "gpuLease",
    "backend",      "sshPublicKeys",    "sshKeyIds",    "proxySecrets",
    "secrets",      "storage",          "fromSnapshot", "fromSandboxId",
    "egressPolicy", "startupScriptIds", "capabilities", "compliance",
    "templateId",   "publicTemplateId", "retain"};

const char *fleet_unsupported(const json_t *object)
{
	for (size_t i = 0; i < ARRAY_LEN(unsupported); i++) {
		const json_t *value = json_object_get(object, unsupported[i]);

		if (value != NULL && !json_is_null(value))
			return unsupported[i];
	}
	return NULL;
}

void fleet_decode_create(json_t *object, struct fleet_body *out, struct problems *p)
{
	memset(out, 0, sizeof(*out));
	fields_decode(object, "", create_fields, ARRAY_LEN(create_fields), out, p);
	if (out->resources.state == FIELD_SET)
		fields_decode(out->resources.value, "resources.", resource_fields,
			      ARRAY_LEN(resource_fields), out, p);
	if (out->cpu_cores.state == FIELD_SET && out->cpu_cores.value <= 0)
		problems_add(p, "resources.cpuCores", "a number above 0",
			     "resources.cpuCores must be above 0");
	/* a list shows that of 100 sandboxes */
	if (out->metadata.state == FIELD_SET &&
	    json_dumpb(out->metadata.value, NULL, 0, JSON_COMPACT) > METADATA_BYTES)
		problems_add(p, "metadata", NULL, "metadata may have at most %d bytes as JSON",
			     METADATA_BYTES);
}

void fleet_decode_command(json_t *object, struct fleet_command_body *out, struct problems *p)
{
	memset(out, 0, sizeof(*out));
	fields_decode(object, "", command_fields, ARRAY_LEN(command_fields), out, p);
	if (out->command.state != FIELD_SET || out->command.value[0] == '\0')
		problems_add(p, "command", "a shell command", "command must not be empty");
	if (out->cwd.state == FIELD_SET && out->cwd.value[0] == '\0')
		problems_add(p, "cwd", "a folder in the sandbox", "cwd must not be empty");
}

static bool is_name(const char *name)
{
	if (name[0] == '\0' || (name[0] >= '0' && name[0] <= '9'))
		return false;
	for (; *name != '\0'; name++)
		if (!((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
		      (*name >= '0' && *name <= '9') || *name == '_'))
			return false;
	return true;
}

int fleet_environment(json_t *env, struct run_spec *spec, struct problems *p, struct err *e)
{
	const char *name;
	json_t *value;
	size_t total = 0;

	if (json_object_size(env) > LIMIT_MAP_ENTRIES) {
		problems_add(p, "env", NULL, "env may have at most %d members", LIMIT_MAP_ENTRIES);
		return 0;
	}
	spec->environment = mem_zalloc(json_object_size(env) + 1, sizeof(*spec->environment));
	if (spec->environment == NULL)
		return err_set(e, ERR_NOMEM, 0, "env");
	json_object_foreach (env, name, value) {
		const char *text = json_text(value);
		struct buf line;

		if (text == NULL || !is_name(name)) {
			problems_add(p, "env", "names [A-Za-z_][A-Za-z0-9_]*, values without NUL",
				     "env takes names of letters, digits and _, and string values");
			return 0;
		}
		total += strlen(name) + strlen(text) + 2;
		if (total > LIMIT_MAP_BYTES) {
			problems_add(p, "env", NULL, "env may have at most %u bytes in all",
				     LIMIT_MAP_BYTES);
			return 0;
		}
		buf_init(&line, LIMIT_MAP_BYTES + 16);
		buf_addf(&line, "%s=%s", name, text);
		spec->environment[spec->environment_count] = buf_steal(&line, NULL);
		if (spec->environment[spec->environment_count] == NULL)
			return err_set(e, ERR_NOMEM, 0, "env");
		spec->environment_count++;
	}
	return 0;
}

/* The face's words for the states. */
static const char *status_of(enum sandbox_state state)
{
	switch (state) {
	case SANDBOX_PENDING:
		return "pending";
	case SANDBOX_PROVISIONING:
		return "provisioning";
	case SANDBOX_RUNNING:
	case SANDBOX_STOPPING:
		return "running";
	case SANDBOX_STOPPED:
	case SANDBOX_DELETING:
		return "stopped";
	case SANDBOX_FAILED:
		return "failed";
	case SANDBOX_DELETED:
	case SANDBOX__MAX:
		break;
	}
	return "deleted";
}

static int put_text(json_t *object, const char *name, const char *text)
{
	return text[0] == '\0' ? 0 : json_object_set_new(object, name, json_string(text));
}

json_t *fleet_sandbox(const struct policy *policy, const struct sandbox_row *row)
{
	json_t *object = json_pack("{s:s, s:s, s:s, s:b, s:{s:f, s:I, s:f}}", "id", row->id,
				   "status", status_of(row->state), "createdAt", row->created_at,
				   "ephemeral", !row->persistent, "resources", "cpuCores",
				   (double)row->spec.cpu_milli / 1000.0, "memoryMB",
				   (json_int_t)(row->spec.memory_bytes >> 20), "diskGB",
				   (double)(row->spec.workspace_bytes >> 20) / 1024.0);
	json_t *name = json_object_get(row->request, "name");
	json_t *metadata = json_object_get(row->request, "metadata");
	char url[512];
	int bad = 0;

	if (object == NULL)
		return NULL;
	(void)snprintf(url, sizeof(url), "%s/v1/sandboxes/%s/runtime", policy->public_url, row->id);
	if (name != NULL)
		bad |= json_object_set(object, "name", name);
	if (metadata != NULL)
		bad |= json_object_set(object, "metadata", metadata);
	bad |= put_text(object, "startedAt", row->started_at);
	bad |= put_text(object, "stoppedAt", row->stopped_at);
	bad |= put_text(object, "expiresAt", row->expires_at);
	bad |= put_text(object, "error", row->error);
	if (row->state == SANDBOX_RUNNING)
		bad |= json_object_set_new(
		    object, "connection",
		    json_pack("{s:s, s:s}", "runtimeUrl", url, "edgeStatus", "ready"));
	if (bad == 0)
		return object;
	json_decref(object);
	return NULL;
}
