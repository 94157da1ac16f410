#include "handlers/errors.h"

#include "runners/base/mem.h"
#include "runners/base/str.h"

#define FIX   "Correct the request. Sending the same again gives the same answer."
#define AGAIN "Wait for Retry-After seconds and send the request again."

/* By status, then by code. */
const struct error_row error_rows[] = {
    {400, "image_store_cleanup_confirmation_required", "",
     "A cleanup that removes all that is planned was not confirmed.",
     "Send confirm_all true, or action_types or run_ids."},
    {400, "invalid_json", "",
     "The body is no JSON object: syntax, encoding, depth, a duplicate key, bytes behind it.", FIX},
    {400, "invalid_path", "", "A path has an empty, \".\" or \"..\" segment or a NUL.", FIX},
    {400, "invalid_request", "",
     "The request is not valid HTTP, not HTTPS, or not a WebSocket handshake where one is needed.",
     FIX},
    {400, "invalid_source_label", "allowed",
     "The diagnostics of a workspace know one source_label.", FIX},
    {400, "invalid_spec_version", "supported, provided", "This spec_version is not served.",
     "Use one of details.supported."},
    {401, "unauthorized", "close_code (stream)",
     "The API key or token is missing, unknown, wrong, revoked or expired.",
     "Send a living key as X-API-KEY, or a key or token as Authorization: Bearer."},
    {403, "forbidden", "close_code (stream)",
     "The caller is known and may not do this; of a stream: its signed URL is missing, wrong or "
     "expired.",
     "Use a key with the right; for a stream read the run again and use its log_stream_url."},
    {404, "artifact_not_found", "", "The run has no artifact of this name.",
     "Read the list of artifacts and use its download_url."},
    {404, "not_found", "", "There is no such path.", "Check the path."},
    {404, "run_not_found", "close_code (stream)",
     "There is no such run, or it belongs to somebody else.", "Check the id and the key."},
    {404, "session_not_found", "",
     "There is no such session, it belongs to somebody else, or its time is over.",
     "Check the id and the key."},
    {404, "snapshot_not_found", "", "The session has no such snapshot.",
     "Read the list of snapshots."},
    {405, "method_not_allowed", "", "The path takes other methods; the header Allow names them.",
     "Use a method of Allow."},
    {408, "request_timeout", "", "The request did not arrive in time.", "Send it again."},
    {409, "conflict", "", "The object's state does not allow this.",
     "Read the object and decide anew."},
    {409, "idempotency_conflict", "prior_id, key, prior_created_at",
     "The Idempotency-Key was used with another body.",
     "Use a new key for a new request. details.prior_id is the run that the key made."},
    {409, "session_cancel_drain_timeout", "active_runs, session_id",
     "The session's runs did not end within sessions.delete_drain_ms. It was not deleted.", AGAIN},
    {409, "session_has_active_runs", "active_runs, session_id",
     "Snapshot, restore and clone need a session without a run.",
     "Wait for the runs, or cancel them."},
    {411, "length_required", "", "The request needs a Content-Length.", FIX},
    {412, "precondition_failed", "", "A condition of the request does not hold.",
     "Read the object again."},
    {413, "body_too_large", "", "The body is larger than http.body_bytes.", "Send less."},
    {413, "workspace_cap_exceeded", "part, reason",
     "The session's workspace has no room, or no room for more files.",
     "Remove something, or make a session of a tier with a larger workspace."},
    {414, "uri_too_long", "", "The request line is longer than 32 KiB.", FIX},
    {415, "unsupported_media_type", "allowed", "The body is not declared as JSON.",
     "Send Content-Type: application/json."},
    {421, "misdirected_request", "", "The host does not belong to this TLS connection.",
     "Open a new connection."},
    {422, "invalid_archive", "part, reason",
     "An archive of the upload is damaged, or takes too much memory or time. Nothing of it is in "
     "the workspace.",
     FIX},
    {422, "invalid_inline_file", "",
     "An entry of files has a bad path, a path twice, no strict base64, or all are too large.",
     FIX},
    {422, "policy_unsupported", "runtime, requirement, reasons, allowed",
     "This host cannot enforce the asked network policy or trust level.",
     "Ask for what details.allowed names, or use another host."},
    {422, "session_base_image_required", "", "The session was made without a base_image.",
     "Make a session with one."},
    {422, "unknown_base_image", "base_image, known", "There is no image of this name.",
     "Use one of details.known."},
    {422, "validation_error", "fields: [{field, message, allowed}]",
     "Values are missing, of the wrong type or out of range; details.fields names each.", FIX},
    {426, "upgrade_required", "", "The path is a WebSocket and the request is none.",
     "Connect with wss."},
    {429, "connection_quota", "close_code, reason, limit (stream)",
     "Too many open streams or requests of this client.", "Close some, then try again."},
    {429, "queue_full", "retry_after, reason, quota_scope, limit",
     "Too many runs wait; details.quota_scope says of whom.", AGAIN},
    {429, "session_quota", "quota_scope, limit",
     "The tenant has as many sessions as sessions.max_per_tenant allows.", "Delete some."},
    {431, "header_too_large", "", "A header is longer than 32 KiB, or all are over 256 KiB.", FIX},
    {500, "internal_error", "", "A fault of the server. The log has it under the request id.",
     "Report it. A request with an Idempotency-Key may be sent again."},
    {501, "not_implemented", "", "The method or transfer coding is not known.", FIX},
    {502, "outcome_unknown", "id, where it is known",
     "The connection to the service broke behind the start: the request may have had its effect.",
     "Read the object, or repeat only with the same Idempotency-Key."},
    {503, "image_store_cleanup_unavailable", "reasons",
     "The runner of the host is away or could not look after its stores.",
     "See that the runner is up, then ask again."},
    {503, "macos_virtualization_helper_unavailable", "",
     "There is no helper for Macs on this host. Nothing was changed.", "Retrying does not help."},
    {503, "runtime_unavailable", "runtime, available, suggested, reasons",
     "This host cannot run the asked runtime.",
     "Use one of details.suggested. Retrying does not help."},
    {503, "service_unavailable", "id, where it is known",
     "The service restarts or cannot be reached. The request had no effect.", AGAIN},
    {503, "storage_low", "", "The server is low on disk space (data.min_free_pct).", AGAIN},
    {503, "store_unavailable", "",
     "The database cannot be reached, or memory is short. The request had no effect.", AGAIN},
    {505, "http_version_not_supported", "", "The HTTP version is not served.",
     "Use HTTP/1.1 or HTTP/2."},
};

const size_t error_row_count = ARRAY_LEN(error_rows);

const struct error_row *error_find(const char *code)
{
	for (size_t i = 0; i < error_row_count; i++)
		if (str_equal(error_rows[i].code, code))
			return &error_rows[i];
	return NULL;
}

void errors_list(struct buf *out)
{
	for (size_t i = 0; i < error_row_count; i++)
		buf_addf(out, "%d %s\n", error_rows[i].status, error_rows[i].code);
}

void errors_doc(struct buf *out)
{
	buf_add_str(
	    out,
	    "# Error codes\n\n"
	    "Made by `make docs` from the table in handlers/errors.c; do not edit.\n\n"
	    "Every error of face 1 has the body\n"
	    "`{\"error\":{\"code\":\"...\",\"message\":\"...\",\"details\":{...}}}`, whether a "
	    "worker,\n"
	    "the gate or nginx wrote it. Programs decide by `code`; `message` is for people and\n"
	    "may change. The one refusal without a body is 416 of an artifact, which has\n"
	    "`Content-Range: bytes */SIZE`. A refused WebSocket handshake is such an answer too;\n"
	    "its `details.close_code` is the close code that face 1 knows for it.\n\n"
	    "A code always comes with the same status.\n\n"
	    "| status | code | details | meaning | what the client should do |\n"
	    "|---|---|---|---|---|\n");
	for (size_t i = 0; i < error_row_count; i++)
		buf_addf(out, "| %d | `%s` | %s | %s | %s |\n", error_rows[i].status,
			 error_rows[i].code, error_rows[i].details, error_rows[i].meaning,
			 error_rows[i].action);
}
