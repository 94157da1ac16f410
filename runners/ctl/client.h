/*
 * client.h: cordonctl as a client of face 1: requests (libcurl) and streams (libwebsockets), with
 * the server and the key from the environment: CORDON_URL, CORDON_API_KEY, CORDON_CA.
 */
#ifndef CORDON_CTL_CLIENT_H
#define CORDON_CTL_CLIENT_H

#include "runners/base/buf.h"
#include "runners/ctl/ctl.h"

#define CLIENT_PATIENCE_S 15

struct client {
	const char *url;
	const char *key;
	const char *ca; /* NULL: the system's */
	json_t *error;  /* the server's error object of the last call that was refused, or NULL */
};

int client_open(struct client *out, struct err *e);
void client_close(struct client *client);
/* As ctl_fail for a call that was refused; with --json the server's own error object is in it.
 * Closes the client and returns the exit code. */
int client_fail(const struct ctl *ctl, struct client *client, const struct err *e);

/*
 * A JSON request; *out is the answer's body for a 2xx status. Other statuses are errors with the
 * server's message. Every call can be repeated without harm (a POST with a body gets an
 * Idempotency-Key of its own), so 502, 503 and a lost connection are tried again for
 * CLIENT_PATIENCE_S.
 */
int client_call(struct client *client, const char *method, const char *path, const char *prefer,
		json_t *body, json_t **out, struct err *e);

/* A GET whose answer's bytes come into out, bounded by its maximum. */
int client_fetch(struct client *client, const char *path, struct buf *out, struct err *e);

/* Called per frame; a return of true ends the stream. */
typedef bool client_frame(const json_t *frame, void *arg);
/* Called whenever a signal or a frame woke the stream; may be NULL. */
typedef void client_idle(void *arg);
struct client_reader {
	client_frame *each;
	client_idle *idle;
	void *arg;
	int input_fd; /* read from here to its end and typed into an interactive run, see
			 docs/faces/runs-reference.md; -1: nothing. Stays the caller's. */
};
/* Follows the stream of a run until each() wants to stop, `end` has come or the connection is lost
 * for good (it resumes by itself; input that was on its way then may be lost). */
int client_stream(struct client *client, const char *run_id, const struct client_reader *reader,
		  struct err *e);

#endif
