/* Face 3, /v1/sandboxes: the table of routes and the error shape. */
#include "handlers/fleet/fleet.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

#define BASE       "/v1/sandboxes"
#define CODE_BYTES 64

/* Codes of this face are upper case; those that are common to all faces come in lower case. */
static void upper(char out[CODE_BYTES], const char *code)
{
	size_t i = 0;

	for (; code[i] != '\0' && i < CODE_BYTES - 1; i++)
		out[i] = code[i] >= 'a' && code[i] <= 'z' ? (char)(code[i] - 'a' + 'A') : code[i];
	out[i] = '\0';
}

/* {"success":false,"error":{code,message,...details}}, and the details at the top too: clients read
 * either place. */
static void error_body(struct buf *out, const struct api_error *error)
{
	char code[CODE_BYTES];
	const char *message = str_utf8_valid(error->message, strlen(error->message))
				  ? error->message
				  : "The request was refused.";
	scope_json json_t *body = NULL;
	json_t *inner;
	struct err e = ERR_INIT;

	upper(code, error->code);
	body = json_pack("{s:b, s:{s:s, s:s}}", "success", false, "error", "code", code, "message",
			 message);
	inner = json_object_get(body, "error");
	if (error->details != NULL && inner != NULL &&
	    (json_object_update_missing(inner, error->details) != 0 ||
	     json_object_update_missing(body, error->details) != 0))
		return;
	if (body == NULL || json_write(out, body, &e) != 0)
		buf_reset(out);
}

const struct face face_fleet = {FLEET, error_body};

const struct route fleet_routes[] = {
    {"POST", BASE, ACCESS_KEY, fleet_create, &face_fleet, false},
    {"GET", BASE, ACCESS_KEY, fleet_list, &face_fleet, false},
    {"GET", BASE "/{id}", ACCESS_KEY, fleet_get, &face_fleet, false},
    {"DELETE", BASE "/{id}", ACCESS_KEY, fleet_delete, &face_fleet, false},
    {"POST", BASE "/{id}/stop", ACCESS_KEY, fleet_stop, &face_fleet, false},
    {"POST", BASE "/{id}/resume", ACCESS_KEY, fleet_resume, &face_fleet, false},
    {"POST", BASE "/{id}/runtime/terminals/commands", ACCESS_KEY, fleet_command, &face_fleet,
     false},
    {"GET", "/internal/render/{node}/operation/{id}", ACCESS_SELF, fleet_render_operation,
     &face_fleet, false},
    {"POST", "/internal/render/{node}/operation/{id}", ACCESS_SELF, fleet_render_operation,
     &face_fleet, false},
    {"DELETE", "/internal/render/{node}/operation/{id}", ACCESS_SELF, fleet_render_operation,
     &face_fleet, false},
    {"GET", "/internal/render/{node}/exec/{id}", ACCESS_SELF, fleet_render_exec, &face_fleet,
     false},
    {"POST", "/internal/render/{node}/exec/{id}", ACCESS_SELF, fleet_render_exec, &face_fleet,
     false},
};

const size_t fleet_route_count = ARRAY_LEN(fleet_routes);
