/* Face 1, /api/v1/sandbox: the table of routes and the error shape. */
#include "handlers/runs/runs.h"

#include "runners/base/mem.h"

#define BASE "/api/v1/sandbox"

static void error_body(struct buf *out, const struct api_error *error)
{
	scope_json json_t *body = json_pack("{s:{s:s, s:s, s:O}}", "error", "code", error->code,
					    "message", error->message, "details", error->details);
	scope_json json_t *bare = NULL;
	struct err e = ERR_INIT;

	if (body == NULL) {
		bare = json_pack("{s:{s:s, s:s, s:{}}}", "error", "code", error->code, "message",
				 error->message, "details");
		(void)json_write(out, bare, &e);
		return;
	}
	(void)json_write(out, body, &e);
}

const struct face face_runs = {"runs", error_body};

const struct route runs_routes[] = {
    {"POST", BASE "/runs", ACCESS_KEY, runs_create, &face_runs},
    {"GET", BASE "/runs", ACCESS_KEY, runs_list, &face_runs},
    {"GET", BASE "/runs/{id}", ACCESS_KEY, runs_get, &face_runs},
    {"POST", BASE "/runs/{id}/cancel", ACCESS_KEY, runs_cancel, &face_runs},
    {"GET", BASE "/runs/{id}/artifacts", ACCESS_KEY, runs_artifact_list, &face_runs},
    {"GET", BASE "/runs/{id}/artifacts/{path...}", ACCESS_KEY, runs_artifact_get, &face_runs},
    {"GET", BASE "/runs/{id}/stream", ACCESS_SOCKET, runs_stream, &face_runs},
    {"GET", "/internal/render/{node}/run/{id}", ACCESS_SELF, runs_render, &face_runs},
    {"POST", "/internal/render/{node}/run/{id}", ACCESS_SELF, runs_render, &face_runs},
};

const size_t runs_route_count = ARRAY_LEN(runs_routes);
