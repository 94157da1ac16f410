/*
 * codec_session.h: face 1's JSON of sessions (contract of face 1, sections 1.4, 1.7 and 1.8): the
 * body of POST /sessions into a struct, a row into the object, and what a run inherits.
 */
#ifndef CORDON_HANDLERS_RUNS_CODEC_SESSION_H
#define CORDON_HANDLERS_RUNS_CODEC_SESSION_H

#include "handlers/fields.h"
#include "handlers/ops/op_session.h"

struct session_body {
	struct field_text spec_version;
	struct field_text runtime;
	struct field_text base_image;
	struct field_number cpu_limit;
	struct field_int memory_mb;
	struct field_int timeout_sec;
	struct field_text network_policy;
	struct field_value env;
	struct field_value labels;
	struct field_text trust_level;
	struct field_text persona_id;
	struct field_text workspace_id;
	struct field_text workspace_group_id;
	struct field_text scope_snapshot_id;
};

extern const struct field_table codec_session_table;

void codec_decode_session(json_t *object, struct session_body *out, struct problems *p);
/* SHA-256 of the canonical JSON of the known members with defaults, nulls removed. */
int codec_fingerprint_session(const json_t *object, unsigned char out[32], struct err *e);
json_t *codec_session(const struct session_row *row);

/* The body of a run in a session: what is absent from the object has the session's value; a
 * base_image that is null is absent. NULL when memory is short. */
json_t *codec_inherit(const json_t *object, const struct session_row *session);

#endif
