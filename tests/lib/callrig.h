/*
 * callrig.h: the routes of face 1 called in process, against the private stack's MariaDB. The tests
 * of one program share one database connection and five owners of keys.
 *
 *	{"handlers", "clean", callrig_clean},			first
 *	...
 *	{"handlers", "leave nothing", callrig_leave_nothing},	last
 */
#ifndef CORDON_TESTS_LIB_CALLRIG_H
#define CORDON_TESTS_LIB_CALLRIG_H

#include "runners/base/ident.h"
#include "tests/lib/apirig.h"

#define TENANT "t-api"
#define NODE   "test-api"
#define BASE   "/api/v1/sandbox"
#define RUN    "{\"base_image\":\"host\",\"command\":[\"true\"]}"

extern struct api api;
extern char alice[API_KEY_SIZE];
extern char bob[API_KEY_SIZE];       /* same tenant, another user */
extern char mallory[API_KEY_SIZE];   /* another tenant */
extern char admin[API_KEY_SIZE];     /* of the tenant */
extern char operator_[API_KEY_SIZE]; /* of another tenant, sees all */

void callrig_clean(void);
void callrig_leave_nothing(void);

struct call {
	const char *method;
	const char *path;
	const char *query;
	const char *key;
	const char *body;
	struct http_header more[3];
};

struct answer {
	struct http_response response;
	json_t *body;     /* NULL without one */
	const char *code; /* of an error, else "" */
};

/* Calls a route and checks what holds for every answer: the shape of an error, each header once,
 * nothing of how we work. The caller releases the answer. */
void call(const struct call *c, struct answer *a);
void answer_release(struct answer *a);
/* No answer shows how we work, and none the key. */
void check_no_leak(const struct answer *a, const char *key);
/* A member of the answer; details: of its error. Both live as long as the answer. */
const char *member(const struct answer *a, const char *name);
json_t *details(const struct answer *a);

/* A POST of a run with respond-async; idem may be NULL. */
void post(const char *key, const char *idem, const char *body, struct answer *a);
void get(const char *key, const char *path, struct answer *a);
/* A new queued run of this key's owner. */
void make_run(const char *key, char id[IDENT_UUID_SIZE]);
/* The row of an artifact; its file is the caller's. */
void add_artifact(const char *id, size_t ordinal, const char *path, size_t length, int64_t size);

/* The whole test of a refusal: status and code, "" for none. body_is: of a POST. */
void status_is(const char *key, const char *method, const char *path, const char *query, int status,
	       const char *code);
void body_is(const char *body, int status, const char *code);

#endif
