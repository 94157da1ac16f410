/*
 * handler.h: the contract between the router and the handlers.
 *
 * A face is a const table of routes and one function that writes its error bodies. A handler gets
 * the worker's context, the request, what the pattern matched and, unless its route is open, the
 * caller; it fills the response and returns nothing: every refusal is an answer too (reply.h).
 *
 * Patterns are literal segments, {name} for one segment and {name...} for the rest. Segments are
 * split before decoding, and decoded exactly once. Adding a route is one row in a face's routes.c,
 * one function, one test folder.
 */
#ifndef CORDON_HANDLERS_HANDLER_H
#define CORDON_HANDLERS_HANDLER_H

#include "handlers/http.h"
#include "handlers/runtime.h"
#include "runners/base/ident.h"
#include "runners/core/json.h"
#include "runners/core/notify.h"
#include "runners/core/policy.h"
#include "runners/core/store.h"
#include "runners/core/trace.h"

#define ROUTE_MAX_PARAMS 4

struct run_row;
struct secrets;

struct handler_context {
	const struct policy *policy;
	struct store *db;
	struct notifier *to_gate;
	struct notifier *to_runner;
	const char *image_digest;      /* of the image `host` */
	const struct secrets *secrets; /* secrets.h; NULL: the policy names none */
	/* the request that is served now: its moments, and the run that they belong to, "" none;
	 * the worker tells the gate what came after the row's commit */
	/* The run that the request's path names: read together with the key, for the first
	 * op_run_get of the request. */
	const char *wanted_run; /* NULL: none */
	struct run_row *run;    /* mem, one per worker; NULL until it is needed */
	bool has_run;
	/* of this node's runtimes, by op_runtime_facts */
	struct runtime_facts facts;
	int64_t facts_until_us;
	struct trace trace;
	char traced_run[IDENT_UUID_SIZE];
};

enum role { ROLE_USER, ROLE_ADMIN, ROLE_OPERATOR };

struct principal {
	char key_id[33]; /* "": a token */
	char tenant[65];
	char user[65];
	enum role role;
	char scopes[1025];
	int64_t expires_ms; /* real time, of a token; 0: a key, which lives until it is revoked */
};

/* Decoded path parameters, in the pattern's order: any bytes but NUL. */
struct route_match {
	char *params[ROUTE_MAX_PARAMS];
	size_t lengths[ROUTE_MAX_PARAMS];
	size_t count;
	/* a broken escape, a NUL, a name without end, or a {name...} with a segment that is empty,
	 * "." or "..": the router refuses it once the caller is known */
	bool bad_path;
};

/* One error as the client sees it; details may be NULL and is stolen by reply_error. */
struct api_error {
	int status;
	const char *code;
	const char *message;
	json_t *details;
};

struct face {
	const char *name;
	/* Writes the body of an error in the face's shape; nothing when memory ends. */
	void (*error_body)(struct buf *out, const struct api_error *error);
};

enum route_access {
	ACCESS_OPEN,   /* no credential */
	ACCESS_KEY,    /* any caller with a credential */
	ACCESS_SOCKET, /* as ACCESS_KEY, and the credential may stand in the query */
	ACCESS_SELF    /* the handler checks (render) */
};

typedef void handler_fn(struct handler_context *context, const struct http_request *request,
			const struct route_match *match, const struct principal *caller,
			struct http_response *response);

struct route {
	const char *method;
	const char *pattern;
	enum route_access access;
	handler_fn *run;
	const struct face *face;
	bool about_run; /* the first parameter is a run's id */
};

extern const struct face face_runs;
extern const struct route runs_routes[];
extern const size_t runs_route_count;
extern const struct face face_fleet;
extern const struct route fleet_routes[];
extern const size_t fleet_route_count;
extern const struct route system_routes[];
extern const size_t system_route_count;

const char *role_name(enum role role);

#endif
