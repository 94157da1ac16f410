/* Face 1, /api/v1/sandbox: the table of routes and the error shape. */
#include "handlers/runs/runs.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

#define BASE "/api/v1/sandbox"

static void error_body(struct buf *out, const struct api_error *error)
{
	const char *message = str_utf8_valid(error->message, strlen(error->message))
				  ? error->message
				  : "The request was refused.";
	scope_json json_t *body = json_pack("{s:{s:s, s:s, s:O}}", "error", "code", error->code,
					    "message", message, "details", error->details);
	scope_json json_t *bare = NULL;
	struct err e = ERR_INIT;

	if (body == NULL)
		bare = json_pack("{s:{s:s, s:s, s:{}}}", "error", "code", error->code, "message",
				 message, "details");
	if (json_write(out, body == NULL ? bare : body, &e) != 0)
		buf_reset(out);
}

const struct face face_runs = {"runs", error_body};

const struct route runs_routes[] = {
    {"POST", BASE "/runs", ACCESS_KEY, runs_create, &face_runs, false},
    {"GET", BASE "/runs", ACCESS_KEY, runs_list, &face_runs, false},
    {"GET", BASE "/runs/{id}", ACCESS_KEY, runs_get, &face_runs, true},
    {"POST", BASE "/runs/{id}/cancel", ACCESS_KEY, runs_cancel, &face_runs, true},
    {"GET", BASE "/runs/{id}/trace", ACCESS_KEY, runs_trace, &face_runs, true},
    {"GET", BASE "/runs/{id}/artifacts", ACCESS_KEY, runs_artifact_list, &face_runs, true},
    {"GET", BASE "/runs/{id}/artifacts.tar.gz", ACCESS_KEY, runs_artifact_archive, &face_runs,
     true},
    {"GET", BASE "/runs/{id}/artifacts/{path...}", ACCESS_KEY, runs_artifact_get, &face_runs, true},
    {"GET", BASE "/runs/{id}/stream", ACCESS_SOCKET, runs_stream, &face_runs, true},
    {"POST", BASE "/sessions", ACCESS_KEY, sessions_create, &face_runs, false},
    {"GET", BASE "/sessions", ACCESS_KEY, sessions_list, &face_runs, false},
    {"GET", BASE "/sessions/{id}", ACCESS_KEY, sessions_get, &face_runs, false},
    {"DELETE", BASE "/sessions/{id}", ACCESS_KEY, sessions_delete, &face_runs, false},
    {"POST", BASE "/sessions/{id}/files", ACCESS_KEY, uploads_refuse, &face_runs, false},
    {"GET", "/internal/admit/upload/{id}", ACCESS_SELF, uploads_admit, &face_runs, false},
    {"POST", "/internal/admit/upload/{id}", ACCESS_SELF, uploads_admit, &face_runs, false},
    {"GET", "/internal/render/{node}/upload/{id}", ACCESS_SELF, uploads_staged, &face_runs, false},
    {"POST", "/internal/render/{node}/upload/{id}", ACCESS_SELF, uploads_staged, &face_runs, false},
    {"POST", BASE "/sessions/{id}/snapshot", ACCESS_KEY, snapshots_create, &face_runs, false},
    {"GET", BASE "/sessions/{id}/snapshots", ACCESS_KEY, snapshots_list, &face_runs, false},
    {"DELETE", BASE "/sessions/{id}/snapshots/{snapshot}", ACCESS_KEY, snapshots_delete, &face_runs,
     false},
    {"POST", BASE "/sessions/{id}/restore", ACCESS_KEY, snapshots_restore, &face_runs, false},
    {"POST", BASE "/sessions/{id}/clone", ACCESS_KEY, snapshots_clone, &face_runs, false},
    {"GET", "/internal/render/{node}/session/{id}", ACCESS_SELF, sessions_render, &face_runs,
     false},
    {"POST", "/internal/render/{node}/session/{id}", ACCESS_SELF, sessions_render, &face_runs,
     false},
    {"DELETE", "/internal/render/{node}/session/{id}", ACCESS_SELF, sessions_render, &face_runs,
     false},
    {"GET", BASE "/openapi.json", ACCESS_OPEN, runs_openapi, &face_runs, false},
    {"GET", BASE "/runtimes", ACCESS_KEY, runs_runtimes, &face_runs, false},
    {"GET", BASE "/admin/runs", ACCESS_KEY, runs_admin_list, &face_runs, false},
    {"GET", BASE "/admin/runs/{id}", ACCESS_KEY, runs_admin_get, &face_runs, true},
    {"GET", BASE "/admin/idempotency", ACCESS_KEY, runs_admin_idempotency, &face_runs, false},
    {"GET", BASE "/admin/usage", ACCESS_KEY, runs_admin_usage, &face_runs, false},
    {"GET", BASE "/admin/runtime-diagnostics", ACCESS_KEY, runs_admin_runtimes, &face_runs, false},
    {"GET", BASE "/admin/operator-status", ACCESS_KEY, runs_admin_operator, &face_runs, false},
    {"GET", BASE "/admin/macos-diagnostics", ACCESS_KEY, runs_admin_macos, &face_runs, false},
    {"GET", BASE "/admin/macos-image-store/cleanup-plan", ACCESS_KEY, runs_admin_plan, &face_runs,
     false},
    {"POST", BASE "/admin/macos-image-store/cleanup", ACCESS_KEY, runs_admin_cleanup, &face_runs,
     false},
    {"POST", BASE "/admin/macos-reconciliation/repair", ACCESS_KEY, runs_admin_repair, &face_runs,
     false},
    {"GET", "/internal/render/{node}/store/{id}", ACCESS_SELF, runs_render_store, &face_runs,
     false},
    {"POST", "/internal/render/{node}/store/{id}", ACCESS_SELF, runs_render_store, &face_runs,
     false},
    {"GET", BASE "/workspaces/{id}/diagnostics", ACCESS_KEY, runs_workspace, &face_runs, false},
    {"GET", "/internal/render/{node}/run/{id}", ACCESS_SELF, runs_render, &face_runs, false},
    {"POST", "/internal/render/{node}/run/{id}", ACCESS_SELF, runs_render, &face_runs, false},
};

const size_t runs_route_count = ARRAY_LEN(runs_routes);
