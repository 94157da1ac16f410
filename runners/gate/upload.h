/*
 * upload.h: the body of POST /sessions/{id}/files, passed on by nginx after a worker admitted it.
 * The form is read as it comes, with constant memory; the bytes of its parts `files` go to
 * <data>/uploads/<2 hex>/<upload>/, for the runner (runners/core/upload.h). The answer is a
 *redirect to the render location, where a worker makes the operation, or says what `e` means:
 *
 *	form		it is no good form (the text is in the arguments as t)
 *	no_files	it has no part `files`
 *	too_large	more than sessions.upload_mb, or too many parts
 *	busy		too many uploads at once
 *	storage		the disk is full
 *	internal	another fault
 *
 * A body that is not whole leaves nothing behind.
 */
#ifndef CORDON_GATE_UPLOAD_H
#define CORDON_GATE_UPLOAD_H

#include "runners/gate/gate.h"

struct upload;

/* True when the path of the request is one of an upload. */
bool upload_is_path(const char *path);
/* A request whose header is there; NULL: no memory, or not as nginx sends it. args: the arguments
 * for the render location, as the worker made them. */
struct upload *upload_open(struct gate *gate, struct lws *wsi, const char *path, const char *args);
void upload_body(struct upload *u, const char *data, size_t length);
/* The body is whole: writes the URL of the render location; -1: it does not fit. */
int upload_finish(struct upload *u, char *url, size_t size);
/* The files of an upload that was finished and that no operation will take. */
void upload_drop(struct gate *gate, const char *id);
/* NULL is allowed; what was not finished is removed. */
void upload_close(struct upload *u);

#endif
