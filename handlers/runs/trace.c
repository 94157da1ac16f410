/* Face 1, an addition of ours: where the time of one run went. */
#include "handlers/runs/runs.h"

#include "handlers/ops/op_run.h"
#include "handlers/reply.h"

static json_t *number_or_null(bool known, int64_t value)
{
	return known ? json_integer((json_int_t)value) : json_null();
}

static json_t *encode_steps(const struct trace_list *list)
{
	json_t *points = json_array();

	for (size_t i = 0; i < list->count; i++) {
		const struct trace_step *s = &list->steps[i];

		if (json_array_append_new(
			points, json_pack("{s:s, s:o, s:o, s:s}", "name", trace_name(s->point),
					  "at_us", number_or_null(s->placed, s->at_us), "step_us",
					  number_or_null(s->has_step, s->step_us), "program",
					  trace_program(s->point))) != 0) {
			json_decref(points);
			return NULL;
		}
	}
	return points;
}

/* True, false or null: nobody knows yet. */
static json_t *either(const struct trace_list *list, enum trace_point yes, enum trace_point no)
{
	if (trace_find(list, yes) != NULL)
		return json_true();
	return trace_find(list, no) != NULL ? json_false() : json_null();
}

static json_t *encode(const struct run_row *row, const struct trace_list *list)
{
	const struct trace_step *answer = trace_find(list, TRACE_RENDERED);
	bool begins = list->count > 0 && list->steps[0].point == TRACE_ACCEPTED;
	const struct trace_step *last = NULL;

	if (answer == NULL)
		answer = trace_find(list, TRACE_ANSWERED);
	for (size_t i = 0; begins && i < list->count && list->steps[i].placed; i++)
		last = &list->steps[i];
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "run_id", row->id,
			 "request_id", row->request_id, "phase", run_phase_name(row->phase), "held",
			 either(list, TRACE_HELD, TRACE_ANSWERED), "warm",
			 either(list, TRACE_BOX_WARM, TRACE_BOX_COLD), "answer_us",
			 number_or_null(begins && answer != NULL && answer->placed,
					answer == NULL ? 0 : answer->at_us),
			 "total_us", number_or_null(last != NULL, last == NULL ? 0 : last->at_us),
			 "points", encode_steps(list));
}

void runs_trace(struct handler_context *context, const struct http_request *request,
		const struct route_match *match, const struct principal *caller,
		struct http_response *response)
{
	struct trace_list list;
	struct run_row row;
	struct err e = ERR_INIT;

	if (op_run_trace(context, caller, match->params[0], &row, &list, &e) == 0)
		reply_json(response, 200, encode(&row, &list));
	else if (e.code == ERR_NOT_FOUND)
		reply_fail(response, &face_runs, 404, "run_not_found", "There is no such run.",
			   NULL);
	else
		reply_err(response, &face_runs, request, &e);
}
