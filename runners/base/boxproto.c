#include "runners/base/boxproto.h"

#include <stdbool.h>

_Static_assert(sizeof(struct box_limits) == 40, "box_limits has holes");
_Static_assert(sizeof(struct box_request) == 24 + 64 + 64 + 40 + 64 + 8 + 16 + 64,
	       "box_request has holes");
_Static_assert(sizeof(struct box_stats) == 56, "box_stats has holes");
_Static_assert(sizeof(struct box_reply) == 48 + 64 + 108 + 4 + 56 + 40 + 24 + 16 + 200,
	       "box_reply changed its size: raise BOX_VERSION");

static bool terminated(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

int box_run_id_check(const char *run_id, struct err *e)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._-";
	size_t length = strnlen(run_id, BOX_RUN_ID_SIZE);

	if (length == 0 || length >= BOX_RUN_ID_SIZE || strspn(run_id, allowed) != length)
		return err_set(e, ERR_INVALID, 0, "run_id must be 1 to %d of A-Za-z0-9._-",
			       BOX_RUN_ID_SIZE - 1);
	return 0;
}

static bool makes_box(uint32_t verb)
{
	return verb == BOX_CREATE || verb == BOX_MAINTAIN;
}

static int check_of_verb(const struct box_request *r, struct err *e)
{
	bool of_workspace = r->verb >= BOX_WORKSPACE_MAKE && r->verb <= BOX_WORKSPACE_COPY;

	if ((r->flags & ~(BOX_FRESH_NET | BOX_SHARED_PROC | BOX_WITH_COPIES)) != 0)
		return err_set(e, ERR_INVALID, 0, "flags that nobody knows");
	if (r->lifetime_ms > BOX_LIFETIME_MAX_MS ||
	    (r->verb == BOX_MAINTAIN && r->lifetime_ms == 0))
		return err_set(e, ERR_INVALID, 0,
			       "lifetime_ms must be <= %u, and given to maintain",
			       BOX_LIFETIME_MAX_MS);
	/* a name that begins with a point is ours */
	if ((of_workspace || r->verb == BOX_MAINTAIN || r->workspace[0] != '\0') &&
	    (r->workspace[0] == '.' || box_run_id_check(r->workspace, e) != 0))
		return err_set(e, ERR_INVALID, 0,
			       "workspace must be 1 to %d of A-Za-z0-9._-, not with a point first",
			       BOX_RUN_ID_SIZE - 1);
	if (r->verb == BOX_WORKSPACE_COPY &&
	    (r->source[0] == '.' || box_run_id_check(r->source, e) != 0 ||
	     strcmp(r->source, r->workspace) == 0))
		return err_set(e, ERR_INVALID, 0, "source must be the name of another workspace");
	if (of_workspace)
		return 0;
	if (!makes_box(r->verb) && r->slot >= BOX_MAX_SLOTS)
		return err_set(e, ERR_INVALID, 0, "no slot %u", r->slot);
	return box_run_id_check(r->run_id, e);
}

int box_request_check(const void *data, size_t length, struct box_request *out, uint64_t *out_tag,
		      uint32_t *out_verb, struct err *e)
{
	*out_tag = 0;
	*out_verb = 0;
	if (length != sizeof(*out))
		return err_set(e, ERR_PROTOCOL, 0, "a request has %zu bytes, not %zu", length,
			       sizeof(*out));
	memcpy(out, data, sizeof(*out));
	*out_tag = out->tag;
	*out_verb = out->verb;
	if (out->version != BOX_VERSION)
		return err_set(e, ERR_PROTOCOL, 0, "version %u is not %u", out->version,
			       BOX_VERSION);
	if (out->verb == 0 || out->verb >= BOX_VERB__MAX)
		return err_set(e, ERR_INVALID, 0, "no verb %u", out->verb);
	if (out->tag == 0)
		return err_set(e, ERR_INVALID, 0, "tag 0 is for events");
	if (out->deadline_ms > BOX_DEADLINE_MAX_MS)
		return err_set(e, ERR_INVALID, 0, "deadline_ms must be <= %u", BOX_DEADLINE_MAX_MS);
	if (!terminated(out->run_id, sizeof(out->run_id)) ||
	    !terminated(out->image, sizeof(out->image)) ||
	    !terminated(out->workspace, sizeof(out->workspace)) ||
	    !terminated(out->source, sizeof(out->source)))
		return err_set(e, ERR_PROTOCOL, 0, "a text without its end");
	if (out->verb == BOX_PROBE || out->verb == BOX_LIST)
		return 0;
	return check_of_verb(out, e);
}

int box_reply_check(const void *data, size_t length, struct box_reply *out, struct err *e)
{
	if (length != sizeof(*out))
		return err_set(e, ERR_PROTOCOL, 0, "a reply has %zu bytes, not %zu", length,
			       sizeof(*out));
	memcpy(out, data, sizeof(*out));
	if (out->version != BOX_VERSION)
		return err_set(e, ERR_PROTOCOL, 0, "version %u is not %u", out->version,
			       BOX_VERSION);
	if (out->record == 0 || out->record >= BOX_RECORD__MAX || out->verb >= BOX_VERB__MAX ||
	    out->code >= BOX_CODE__MAX || out->state >= BOX_STATE__MAX ||
	    out->mode >= BOX_MODE__MAX || !terminated(out->run_id, sizeof(out->run_id)) ||
	    !terminated(out->agent_path, sizeof(out->agent_path)) ||
	    !terminated(out->text, sizeof(out->text)))
		return err_set(e, ERR_PROTOCOL, 0, "a reply with values out of range");
	return 0;
}

const char *box_code_name(enum box_code code)
{
	static const char *const names[BOX_CODE__MAX] = {
	    "ok", "invalid", "unsupported", "not_found", "busy", "timeout", "failed"};

	return code < BOX_CODE__MAX ? names[code] : "?";
}

const char *box_mode_name(enum box_mode mode)
{
	static const char *const names[BOX_MODE__MAX] = {"none", "hybrid", "v2", "v1"};

	return mode < BOX_MODE__MAX ? names[mode] : "?";
}

const char *box_verb_name(uint32_t verb)
{
	static const char *const names[BOX_VERB__MAX] = {
	    "none",      "probe",          "create",           "kill",           "destroy",
	    "stats",     "list",           "freeze",           "thaw",           "maintain",
	    "listeners", "workspace_make", "workspace_delete", "workspace_info", "workspace_copy"};

	return verb < BOX_VERB__MAX ? names[verb] : "?";
}
