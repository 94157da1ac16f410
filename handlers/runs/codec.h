/*
 * codec.h: face 1's JSON: the body of POST /runs into a struct, a run row into the status object,
 * the error body. Facts: contract of face 1, sections 1.8, 1.9, 2.6.
 */
#ifndef CORDON_HANDLERS_RUNS_CODEC_H
#define CORDON_HANDLERS_RUNS_CODEC_H

#include "handlers/fields.h"
#include "handlers/handler.h"
#include "handlers/ops/op_run.h"

struct run_body {
	struct field_text spec_version;
	struct field_text session_id;
	struct field_text base_image;
	struct field_text runtime;
	struct field_value command;
	struct field_value env;
	struct field_int startup_timeout_sec;
	struct field_int timeout_sec;
	struct field_value resources;
	struct field_number cpu;
	struct field_int memory_mb;
	struct field_text network_policy;
	struct field_value files;
	struct field_value capture_patterns;
	struct field_bool interactive;
	struct field_int stdin_max_bytes;
	struct field_int stdin_max_frame_bytes;
	struct field_int stdin_bps;
	struct field_int stdin_idle_timeout_sec;
	struct field_int resume_from_seq;
	struct field_text trust_level;
	struct field_text persona_id;
	struct field_text workspace_id;
	struct field_text workspace_group_id;
	struct field_text scope_snapshot_id;
};

/* Decodes and checks types and ranges; problems are collected. Texts point into object. */
void codec_decode_run(json_t *object, struct run_body *out, struct problems *p);

/* command, environment and patterns into spec, with their limits; problems are collected. -1 only
 * for lack of memory. */
int codec_fill_spec(const struct run_body *body, struct run_spec *spec, struct problems *p,
		    struct err *e);

/* Inline files: decoded bytes one behind the other into blob, paths and sizes into spec. -1 with
 * e->shown for invalid_inline_file. */
int codec_decode_files(const struct run_body *body, const struct policy *policy,
		       struct run_spec *spec, struct buf *blob, struct err *e);

extern const struct field_table codec_run_table;
extern const struct field_table codec_resources_table;
extern const char *const codec_trust_levels[];
extern const char *const codec_network_policies[];
/* Not given, null, or nothing but blanks. */
bool codec_blank(const struct field_text *text);
/* The members of object that the table knows into known: 60.0 of an integer becomes 60, 1 of a
 * number 1.0. Not 0 for lack of memory. */
int codec_copy_known(json_t *known, const json_t *object, const struct field *fields, size_t count);

/* SHA-256 of the canonical JSON of the known members with defaults, nulls removed. */
int codec_fingerprint_run(const json_t *object, unsigned char out[32], struct err *e);

/* The status object of POST, GET and the list. stream_url: NULL gives null. */
json_t *codec_run(const struct policy *policy, const struct run_row *row);

#endif
