/*
 * client.h: cordonctl as a client of face 1: requests (libcurl) and streams (libwebsockets), with
 * the server and the key from the environment: CORDON_URL, CORDON_API_KEY, CORDON_CA.
 */
#ifndef CORDON_CTL_CLIENT_H
#define CORDON_CTL_CLIENT_H

#include "runners/ctl/ctl.h"

struct client {
	const char *url;
	const char *key;
	const char *ca; /* NULL: the system's */
};

int client_open(struct client *out, struct err *e);

/* A JSON request; *out is the answer's body for a 2xx status. Other statuses are errors with the
 * server's message. */
int client_call(const struct client *client, const char *method, const char *path,
		const char *prefer, json_t *body, json_t **out, struct err *e);

/* Called per frame; a return of true ends the stream. */
typedef bool client_frame(const json_t *frame, void *arg);
/* Follows the stream of a run until each() wants to stop, `end` has come or the connection is lost
 * for good (it resumes by itself). */
int client_stream(const struct client *client, const char *run_id, client_frame *each, void *arg,
		  struct err *e);

#endif
