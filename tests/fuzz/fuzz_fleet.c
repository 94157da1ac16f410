/* fuzz_fleet: any bytes as the body of POST /v1/sandboxes and of a command, up to the spec. */
#include "handlers/fleet/fleet.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void must(bool right)
{
	if (!right)
		abort();
}

static void judge_environment(json_t *env)
{
	struct run_spec spec;
	struct problems p;
	struct err e = ERR_INIT;
	size_t total = 0;

	spec_init(&spec);
	problems_init(&p);
	must(fleet_environment(env, &spec, &p, &e) == 0);
	for (size_t i = 0; i < spec.environment_count; i++) {
		const char *equals = strchr(spec.environment[i], '=');

		must(equals != NULL && equals > spec.environment[i]);
		must(spec.environment[i][0] < '0' || spec.environment[i][0] > '9');
		total += strlen(spec.environment[i]);
	}
	must(spec.environment_count <= LIMIT_MAP_ENTRIES && total <= LIMIT_MAP_BYTES);
	problems_release(&p);
	spec_release(&spec);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	scope_json json_t *object = NULL;
	struct fleet_body body;
	struct fleet_command_body command;
	struct problems p;
	struct err e = ERR_INIT;

	if (json_parse((const char *)data, size, &object, &e) != 0)
		return 0;
	problems_init(&p);
	fleet_decode_create(object, &body, &p);
	if (!problems_any(&p)) {
		must(body.cpu_cores.state != FIELD_SET || body.cpu_cores.value > 0);
		must(body.memory_mb.state != FIELD_SET || body.memory_mb.value > 0);
		must(body.lifetime_sec.state != FIELD_SET || body.lifetime_sec.value > 0);
	}
	problems_release(&p);
	problems_init(&p);
	fleet_decode_command(object, &command, &p);
	if (!problems_any(&p))
		must(command.command.state == FIELD_SET && command.command.value[0] != '\0');
	problems_release(&p);
	(void)fleet_unsupported(object);
	if (json_is_object(json_object_get(object, "env")))
		judge_environment(json_object_get(object, "env"));
	return 0;
}
