/*
 * trace.h: where the time of one run went: the moments that it passed, from accept to answer.
 *
 * A program marks points (a read of the clock, no more) and writes its part as a short text, which
 * goes into a row that is written anyway (run.trace) or to the gate in a notice (run_trace.points):
 *
 *	struct trace t;
 *	trace_init(&t);
 *	trace_mark(&t, TRACE_ACCEPTED);
 *	trace_encode(&t, TRACE_ACCEPTED, TRACE_LOCKED, part);
 *
 * A part is "<clock>@<base>" and per point a letter and its microseconds after base, then ";":
 * `1a2b3c4d@5123456789a0b41c155;`. Times are CLOCK_MONOTONIC; <clock> is 8 hex digits of the boot
 * id, so parts of one host can be compared and those of another host (or of another boot) cannot.
 * Parts stand one behind the other in any order; a point that is there twice counts once.
 *
 * A trace helps people and decides nothing: what is lost, cut or broken is left out, never an
 * error. trace_decode takes any bytes.
 */
#ifndef CORDON_CORE_TRACE_H
#define CORDON_CORE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_PART_BYTES   240 /* with the NUL: a part is never longer */
#define TRACE_CLOCK_SIZE   9
#define TRACE_COLUMN_BYTES 768 /* of run.trace and of run_trace.points */

/* In the order in which a run passes them. */
enum trace_point {
	/* the worker that accepts */
	TRACE_ACCEPTED,
	TRACE_READ,
	TRACE_AUTHENTICATED,
	TRACE_ADMITTED,
	TRACE_BEGUN,
	TRACE_LOCKED,
	TRACE_COMMITTED,
	TRACE_HELD,
	TRACE_ANSWERED,
	/* the runner */
	TRACE_NOTICED,
	TRACE_CLAIM_BEGUN,
	TRACE_CLAIMED,
	TRACE_BOX_ASKED,
	TRACE_BOX_WARM,
	TRACE_BOX_COLD,
	TRACE_EXEC_SENT,
	TRACE_STARTED,
	TRACE_EXITED,
	TRACE_DRAINED,
	TRACE_COLLECTED,
	TRACE_COUNTED,
	TRACE_RESULT_SAVED,
	TRACE_END_BEGUN,
	TRACE_END_COMMITTED,
	TRACE_BOX_DESTROYED,
	/* the gate */
	TRACE_PARKED,
	TRACE_END_NOTICED,
	TRACE_RELEASED,
	/* the worker that answers after a hold */
	TRACE_RENDER_BEGUN,
	TRACE_ROW_READ,
	TRACE_RENDERED,
	TRACE__MAX
};

struct trace {
	int64_t at_us[TRACE__MAX]; /* 0: not passed */
};

void trace_init(struct trace *t);
/* Now, unless it was marked before. t may be NULL. */
void trace_mark(struct trace *t, enum trace_point point);
/* The same with a moment that was read before; 0 is none. */
void trace_mark_at(struct trace *t, enum trace_point point, int64_t at_us);
/* The points that are marked, from first to last; false and "" when there are none. */
bool trace_encode(const struct trace *t, enum trace_point first, enum trace_point last,
		  char out[TRACE_PART_BYTES]);
/* True when the text may be kept as a part: its characters and its length, no more. */
bool trace_part_ok(const char *text);

struct trace_step {
	enum trace_point point;
	bool placed;   /* at_us counts from the accept; else on another clock */
	int64_t at_us; /* placed: since the first point; else since the first one of its clock */
	bool has_step;
	int64_t step_us; /* since the step before on the same clock */
};

struct trace_list {
	struct trace_step steps[TRACE__MAX];
	size_t count;
};

/*
 * The points of a text in the order of their times; those of other clocks behind them, each clock
 * by itself. The clock of TRACE_ACCEPTED is the first, or, without that point, the first one in the
 * text.
 */
void trace_decode(const char *text, size_t length, struct trace_list *out);
const struct trace_step *trace_find(const struct trace_list *list, enum trace_point point);
const char *trace_name(enum trace_point point);
const char *trace_program(enum trace_point point);

#endif
