/* trace: where the time of one run went, as a table. */
#include "runners/ctl/client.h"

#include "runners/base/ident.h"
#include "runners/base/str.h"

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text == NULL ? "" : text;
}

/* A number of microseconds, or "-" for null. */
static const char *number_of(const json_t *object, const char *name, char room[24])
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_integer(value))
		return "-";
	(void)snprintf(room, 24, "%lld", (long long)json_integer_value(value));
	return room;
}

static const char *word_of(const json_t *object, const char *name, const char *yes, const char *no)
{
	const json_t *value = json_object_get(object, name);

	return json_is_true(value) ? yes : json_is_false(value) ? no : "not known yet";
}

static void print_trace(const json_t *trace)
{
	const json_t *points = json_object_get(trace, "points");
	char at[24];
	char step[24];

	(void)printf("run %s  %s\nrequest %s\nanswer: %s, box: %s\n\n", text_of(trace, "run_id"),
		     text_of(trace, "phase"), text_of(trace, "request_id"),
		     word_of(trace, "held", "held until the end", "at once, nobody waited"),
		     word_of(trace, "warm", "waited built", "built for it"));
	(void)printf("%10s  %10s  %-13s  %s\n", "AT us", "STEP us", "PROGRAM", "POINT");
	for (size_t i = 0; i < json_array_size(points); i++) {
		const json_t *point = json_array_get(points, i);

		(void)printf("%10s  %10s  %-13s  %s\n", number_of(point, "at_us", at),
			     number_of(point, "step_us", step), text_of(point, "program"),
			     text_of(point, "name"));
	}
	(void)printf("\nanswered after %s us", number_of(trace, "answer_us", at));
	(void)printf(", all known after %s us\n", number_of(trace, "total_us", at));
}

int ctl_trace(struct ctl *ctl)
{
	scope_json json_t *trace = NULL;
	const char *id = ctl_word(ctl);
	struct client client;
	struct err e = ERR_INIT;
	char path[128];
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (id == NULL || !ident_is_uuid(id))
		return ctl_usage("trace needs the id of a run");
	(void)snprintf(path, sizeof(path), "/api/v1/sandbox/runs/%s/trace", id);
	if (client_open(&client, &e) != 0)
		return ctl_fail(ctl, &e);
	if (client_call(&client, "GET", path, NULL, NULL, &trace, &e) != 0)
		return client_fail(ctl, &client, &e);
	if (ctl->json)
		ctl_print_json(json_incref(trace));
	else
		print_trace(trace);
	client_close(&client);
	return 0;
}
