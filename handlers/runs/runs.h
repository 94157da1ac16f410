/* runs.h: the handlers of face 1; routes.c names them. */
#ifndef CORDON_HANDLERS_RUNS_RUNS_H
#define CORDON_HANDLERS_RUNS_RUNS_H

#include "handlers/handler.h"

handler_fn runs_create;
handler_fn runs_get;
handler_fn runs_list;
handler_fn runs_cancel;
handler_fn runs_render;
handler_fn runs_stream;
handler_fn runs_trace;
handler_fn runs_artifact_list;
handler_fn runs_openapi;
handler_fn runs_runtimes;
handler_fn runs_admin_list;
handler_fn runs_admin_get;
handler_fn runs_admin_idempotency;
handler_fn runs_admin_usage;
handler_fn runs_admin_runtimes;
handler_fn runs_admin_macos;
handler_fn runs_admin_operator;
handler_fn runs_workspace;
handler_fn runs_admin_plan;
handler_fn runs_admin_cleanup;
handler_fn runs_admin_repair;
handler_fn runs_render_store;
handler_fn runs_artifact_get;
handler_fn runs_artifact_archive;
handler_fn sessions_create;
handler_fn sessions_get;
handler_fn sessions_list;
handler_fn sessions_delete;
handler_fn sessions_render;
handler_fn uploads_admit;
handler_fn uploads_refuse;
handler_fn uploads_staged;
handler_fn snapshots_create;
handler_fn snapshots_list;
handler_fn snapshots_restore;
handler_fn snapshots_clone;
handler_fn snapshots_delete;

#endif
