/*
 * spec.h: what a run is to do, with every limit already resolved by admission: the text in
 * job.spec.
 *
 * Admission fills a struct run_spec and calls spec_encode; the runner calls spec_decode and needs
 * no policy to carry it out. Inline files are not in the text: their bytes lie one behind the other
 * in one staging blob named by the run id
 * (<data>/staging/<last 2 hex>/<run>), whose size and SHA-256 the spec holds.
 *
 * The job that starts a sandbox has the same text without a command.
 *
 * Ownership: all strings belong to the struct; spec_release frees them. Units are in the names.
 */
#ifndef CORDON_CORE_SPEC_H
#define CORDON_CORE_SPEC_H

#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spec_file {
	char *path;
	uint64_t size_bytes;
};

struct run_spec {
	char **command; /* NULL at the end */
	size_t command_count;
	char **environment; /* "NAME=value", NULL at the end */
	size_t environment_count;
	char **patterns; /* capture patterns */
	size_t pattern_count;
	struct spec_file *files;
	size_t file_count;
	uint64_t blob_bytes;
	unsigned char blob_sha256[32];
	char *runtime;
	char *image;
	char *network;
	char *cwd;
	char *sandbox;   /* the live box to run in, or to start; empty: a box of its own */
	char *session;   /* whose workspace it has; empty or NULL: one of its own */
	bool persistent; /* of a sandbox: its workspace stays, named as the sandbox */
	bool fresh_network;
	bool interactive;
	int64_t stdin_max_bytes; /* the four stdin limits: -1 = not set */
	int64_t stdin_max_frame_bytes;
	int64_t stdin_bytes_per_second;
	int64_t stdin_idle_timeout_sec;
	int64_t startup_timeout_ms;
	int64_t timeout_ms;
	int64_t cancel_grace_ms;
	int64_t cpu_milli;
	int64_t memory_bytes;
	int64_t workspace_bytes;
	int64_t workspace_inodes;
	int64_t tmp_bytes;
	int64_t result_bytes; /* output of each stream that the result holds */
	int64_t pids;
	int64_t nofile;
	int64_t log_bytes;
	int64_t artifact_file_bytes;
	int64_t artifact_run_bytes;
	int64_t artifact_user_bytes;
};

void spec_init(struct run_spec *spec);
void spec_release(struct run_spec *spec);
int spec_encode(const struct run_spec *spec, struct buf *out, struct err *e);
/* Any missing or wrong member is ERR_PROTOCOL. */
int spec_decode(const char *text, size_t length, struct run_spec *out, struct err *e);

#endif
