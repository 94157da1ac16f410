#include "runners/supervisor/typing.h"

#include "runners/base/clock.h"

#define RATE_TOP (INT64_C(1) << 40) /* more a second is no limit, and keeps the sums in range */

static void start_idle(struct typing *t, int64_t now_us)
{
	int64_t most = INT64_MAX / 2 / CLOCK_US_PER_S;

	t->idle_at_us = INT64_MAX;
	if (t->limits.idle_sec > 0 && t->limits.idle_sec < most)
		t->idle_at_us = now_us + t->limits.idle_sec * CLOCK_US_PER_S;
}

void typing_begin(struct typing *t, const struct typing_limits *limits, uint64_t taken,
		  int64_t now_us)
{
	t->limits = *limits;
	if (t->limits.bytes_per_second > RATE_TOP)
		t->limits.bytes_per_second = RATE_TOP;
	t->taken = taken < INT64_MAX / 2 ? taken : INT64_MAX / 2;
	t->tokens = t->limits.bytes_per_second;
	t->tokens_us = now_us;
	start_idle(t, now_us);
}

static void fill(struct typing *t, int64_t now_us)
{
	int64_t rate = t->limits.bytes_per_second;
	int64_t passed = now_us - t->tokens_us;
	int64_t more;

	if (rate <= 0 || passed <= 0)
		return;
	more = passed >= CLOCK_US_PER_S ? rate
					: passed * (rate / CLOCK_US_PER_S) +
					      passed * (rate % CLOCK_US_PER_S) / CLOCK_US_PER_S;
	if (more == 0)
		return; /* the time goes on counting until it is worth a byte */
	if (more >= rate - t->tokens) {
		t->tokens = rate;
		t->tokens_us = now_us;
		return;
	}
	t->tokens += more;
	/* less than a byte of time may be lost here */
	t->tokens_us += rate <= CLOCK_US_PER_S ? more * CLOCK_US_PER_S / rate : passed;
}

static void lower(size_t *length, int64_t room, const char *why, const char **reason)
{
	if (room < 0)
		room = 0;
	if (*length <= (uint64_t)room)
		return;
	*length = (size_t)room;
	if (*reason == NULL)
		*reason = why;
}

size_t typing_judge(struct typing *t, struct typing_frame *frame, size_t length, int64_t now_us,
		    const char **out_reason)
{
	const struct typing_limits *l = &t->limits;
	const char *reason = NULL;

	*out_reason = NULL;
	if (frame->cut)
		return 0;
	fill(t, now_us);
	if (l->max_frame_bytes >= 0)
		lower(&length, l->max_frame_bytes - (int64_t)frame->taken, "stdin_frame_cap",
		      &reason);
	if (l->bytes_per_second >= 0)
		lower(&length, t->tokens, "stdin_rate", &reason);
	if (l->max_bytes >= 0)
		lower(&length, l->max_bytes - (int64_t)t->taken, "stdin_cap", &reason);
	if (l->bytes_per_second >= 0)
		t->tokens -= (int64_t)length;
	t->taken += length;
	frame->taken += length;
	frame->cut = reason != NULL;
	if (length > 0)
		start_idle(t, now_us);
	*out_reason = reason;
	return length;
}

bool typing_is_idle(struct typing *t, int64_t now_us)
{
	if (now_us < t->idle_at_us)
		return false;
	t->idle_at_us = INT64_MAX;
	return true;
}
