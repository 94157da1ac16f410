/*
 * fleet.h: the handlers of face 3, /v1/sandboxes, as far as they are there (docs/faces/fleet.md):
 * sandboxes that live until they are stopped, and commands in them.
 */
#ifndef CORDON_HANDLERS_FLEET_FLEET_H
#define CORDON_HANDLERS_FLEET_FLEET_H

#include "handlers/fields.h"
#include "handlers/handler.h"
#include "handlers/ops/op_sandbox.h"

#define FLEET "fleet"

handler_fn fleet_create;
handler_fn fleet_list;
handler_fn fleet_get;
handler_fn fleet_delete;
handler_fn fleet_stop;
handler_fn fleet_resume;
handler_fn fleet_command;
handler_fn fleet_render_operation;
handler_fn fleet_render_exec;

/* codec.c */
struct fleet_body {
	struct field_text name;
	struct field_value resources;
	struct field_number cpu_cores;
	struct field_int memory_mb;
	struct field_int disk_gb;
	struct field_value env;
	struct field_value metadata;
	struct field_int lifetime_sec;
	struct field_bool ephemeral;
};
struct fleet_command_body {
	struct field_text command;
	struct field_text cwd;
	struct field_value env;
	struct field_int timeout_ms;
};
void fleet_decode_create(json_t *object, struct fleet_body *out, struct problems *p);
void fleet_decode_command(json_t *object, struct fleet_command_body *out, struct problems *p);
/* The first field that this installation cannot serve; NULL. */
const char *fleet_unsupported(const json_t *object);
/* An object of strings as NAME=value; problems are collected, -1 for lack of memory. */
int fleet_environment(json_t *env, struct run_spec *spec, struct problems *p, struct err *e);
json_t *fleet_sandbox(const struct policy *policy, const struct sandbox_row *row);

/* The body as an object, or NULL and the refusal. */
json_t *fleet_object(const struct http_request *request, struct http_response *response,
		     bool optional);
void fleet_fail_fields(struct http_response *response, struct problems *p);
/* 404 for what cannot be seen, the class's answer for all else. */
void fleet_fail(struct http_response *response, const struct http_request *request,
		const struct err *e);
void fleet_fail_state(struct http_response *response, const char *code, const char *message,
		      enum sandbox_state state, const char *required);

#endif
