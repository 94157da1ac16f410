/* The query and the answer of the administrators' lists. */
#include "handlers/runs/admin.h"

#include "handlers/reply.h"
#include "handlers/runs/codec.h"
#include "handlers/runs/common.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#define LIMIT_MAX  1000
#define OFFSET_MAX 1000000
#define EPOCH_MAX  INT64_C(253402300799) /* 9999-12-31T23:59:59 */

bool admin_may(const struct principal *caller, struct http_response *response)
{
	if (caller->role == ROLE_ADMIN || caller->role == ROLE_OPERATOR)
		return true;
	reply_fail(response, &face_runs, 403, "forbidden",
		   "This path needs a key with the role admin or operator.", NULL);
	return false;
}

bool admin_may_operate(const struct principal *caller, struct http_response *response)
{
	if (caller->role == ROLE_OPERATOR)
		return true;
	reply_fail(response, &face_runs, 403, "forbidden",
		   "This changes the host itself and needs a key with the role operator.", NULL);
	return false;
}

void admin_query_init(struct admin_query *q, const struct http_request *request)
{
	memset(q, 0, sizeof(*q));
	q->request = request;
	problems_init(&q->problems);
}

void admin_query_release(struct admin_query *q)
{
	for (size_t i = 0; i < q->count; i++)
		buf_release(&q->texts[i]);
	problems_release(&q->problems);
}

const char *admin_query_text(struct admin_query *q, const char *name, size_t max_bytes)
{
	struct buf *text = &q->texts[q->count];
	char allowed[64];
	int got;

	if (q->count == ADMIN_TEXTS) {
		q->no_memory = true;
		return NULL;
	}
	buf_init(text, max_bytes);
	q->count++;
	got = http_query(q->request, name, text);
	if (got == 0)
		return NULL;
	if (got == 1)
		return buf_text(text);
	(void)snprintf(allowed, sizeof(allowed), "a text of at most %zu bytes", max_bytes);
	if (buf_error(text) == ERR_NOMEM)
		q->no_memory = true;
	else
		problems_add(&q->problems, name, allowed, "%s must be %s", name, allowed);
	return NULL;
}

void admin_query_number(struct admin_query *q, const char *name, uint64_t lo, uint64_t hi,
			uint64_t *out)
{
	const char *text = admin_query_text(q, name, 64);
	char allowed[64];
	struct err e = ERR_INIT;

	if (text == NULL || num_u64(name, text, lo, hi, out, &e) == 0)
		return;
	(void)snprintf(allowed, sizeof(allowed), "a whole number from %llu to %llu",
		       (unsigned long long)lo, (unsigned long long)hi);
	problems_add(&q->problems, name, allowed, "%s must be %s", name, allowed);
}

const char *admin_query_choice(struct admin_query *q, const char *name, const char *const *choices,
			       const char *allowed)
{
	const char *text = admin_query_text(q, name, 64);

	for (size_t i = 0; text != NULL && choices[i] != NULL; i++)
		if (str_equal(text, choices[i]))
			return choices[i];
	if (text != NULL)
		problems_add(&q->problems, name, allowed, "%s must be one of %s", name, allowed);
	return NULL;
}

void admin_query_page(struct admin_query *q, bool ascending, struct admin_page *out)
{
	static const char *const sorts[] = {"asc", "desc", NULL};
	const char *sort;

	memset(out, 0, sizeof(*out));
	out->limit = 50;
	admin_query_number(q, "limit", 1, LIMIT_MAX, &out->limit);
	admin_query_number(q, "offset", 0, OFFSET_MAX, &out->offset);
	sort = admin_query_choice(q, "sort", sorts, "asc, desc");
	out->ascending = sort == NULL ? ascending : str_equal(sort, "asc");
}

const char *admin_query_time(struct admin_query *q, const char *name, bool epoch)
{
	const char *allowed = epoch ? "an ISO 8601 time or seconds since 1970" : "an ISO 8601 time";
	const char *text = admin_query_text(q, name, 64);
	struct buf *kept = &q->texts[q->count == 0 ? 0 : q->count - 1];
	char out[ADMIN_TIME_SIZE];

	if (text == NULL)
		return NULL;
	if (admin_time(text, epoch, out) != 0) {
		problems_add(&q->problems, name, allowed, "%s must be %s", name, allowed);
		return NULL;
	}
	buf_reset(kept);
	buf_add_str(kept, out);
	q->no_memory = q->no_memory || !buf_ok(kept);
	return buf_text(kept);
}

const char *admin_query_tenant(struct admin_query *q, const struct principal *caller)
{
	return caller->role == ROLE_OPERATOR ? admin_query_text(q, "tenant", 64) : caller->tenant;
}

bool admin_query_fits(struct admin_query *q, struct http_response *response)
{
	if (!q->no_memory && !problems_any(&q->problems))
		return true;
	if (q->no_memory)
		reply_no_memory(response, &face_runs);
	else
		runs_fail_fields(response, 422, "validation_error", "The query has wrong values.",
				 &q->problems);
	return false;
}

/* --- times ----------------------------------------------------------------------------------- */

/* `count` digits as a number within bounds; -1. */
static int take(const char **at, int count, int64_t lo, int64_t hi, int64_t *out)
{
	int64_t value = 0;

	for (int i = 0; i < count; i++, (*at)++) {
		if (**at < '0' || **at > '9')
			return -1;
		value = value * 10 + (**at - '0');
	}
	*out = value;
	return value < lo || value > hi ? -1 : 0;
}

/* .1 to .123456 as microseconds; digits behind the sixth are cut. */
static int take_fraction(const char **at, int64_t *out_us)
{
	int64_t unit = 100000;
	size_t digits = 0;

	*out_us = 0;
	if (**at != '.')
		return 0;
	for ((*at)++; **at >= '0' && **at <= '9'; (*at)++, digits++, unit /= 10)
		*out_us += (**at - '0') * unit;
	return digits == 0 || digits > 12 ? -1 : 0;
}

static int days_of_month(int64_t year, int64_t month)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	return days[month - 1] + (month == 2 && leap ? 1 : 0);
}

/* Days since 1970-01-01 in the calendar of today; years from 1. */
static int64_t days_since(int64_t year, int64_t month, int64_t day)
{
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t m = month <= 2 ? month + 9 : month - 3;

	return y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719468;
}

/* Z, nothing, or an offset; a '+' of a query that was not encoded has become a blank. */
static int take_zone(const char **at, int64_t *out_sec)
{
	int64_t hours;
	int64_t minutes = 0;
	bool has_minutes = true;
	char sign = **at;

	*out_sec = 0;
	if (sign == 'Z' || sign == 'z')
		(*at)++;
	if (sign != '+' && sign != ' ' && sign != '-')
		return 0;
	(*at)++;
	if (take(at, 2, 0, 23, &hours) != 0)
		return -1;
	if (**at == ':')
		(*at)++;
	else if (**at == '\0')
		has_minutes = false;
	if (has_minutes && take(at, 2, 0, 59, &minutes) != 0)
		return -1;
	*out_sec = (hours * 60 + minutes) * (sign == '-' ? -60 : 60);
	return 0;
}

static int parse_iso(const char *at, int64_t *out_us)
{
	int64_t year;
	int64_t month;
	int64_t day;
	int64_t hour = 0;
	int64_t minute = 0;
	int64_t second = 0;
	int64_t fraction = 0;
	int64_t zone = 0;

	if (take(&at, 4, 1, 9999, &year) != 0 || *at++ != '-' || take(&at, 2, 1, 12, &month) != 0 ||
	    *at++ != '-' || take(&at, 2, 1, days_of_month(year, month), &day) != 0)
		return -1;
	if (*at != '\0') {
		if ((*at != 'T' && *at != 't' && *at != ' ') || *++at == '\0' ||
		    take(&at, 2, 0, 23, &hour) != 0 || *at++ != ':' ||
		    take(&at, 2, 0, 59, &minute) != 0)
			return -1;
		if (*at == ':' && (at++, take(&at, 2, 0, 59, &second) != 0))
			return -1;
		if (take_fraction(&at, &fraction) != 0 || take_zone(&at, &zone) != 0)
			return -1;
	}
	if (*at != '\0')
		return -1;
	*out_us =
	    ((days_since(year, month, day) * 86400) + hour * 3600 + minute * 60 + second - zone) *
		CLOCK_US_PER_S +
	    fraction;
	return 0;
}

static int parse_epoch(const char *at, int64_t *out_us)
{
	size_t digits = strspn(at, "0123456789");
	int64_t seconds;
	int64_t fraction;

	if (digits == 0 || digits > 12)
		return -1;
	if (take(&at, (int)digits, 0, EPOCH_MAX, &seconds) != 0 ||
	    take_fraction(&at, &fraction) != 0 || *at != '\0')
		return -1;
	*out_us = seconds * CLOCK_US_PER_S + fraction;
	return 0;
}

int admin_time(const char *text, bool epoch, char out[ADMIN_TIME_SIZE])
{
	char iso[CLOCK_ISO_SIZE];
	int64_t us;

	if (parse_iso(text, &us) != 0 && (!epoch || parse_epoch(text, &us) != 0))
		return -1;
	/* nothing of ours is older, and nothing of ours is later */
	if (us < 0)
		us = 0;
	if (us > EPOCH_MAX * CLOCK_US_PER_S)
		us = EPOCH_MAX * CLOCK_US_PER_S;
	clock_iso(iso, us);
	(void)snprintf(out, ADMIN_TIME_SIZE, "%.10s %.15s", iso, iso + 11);
	return 0;
}

/* --- answers --------------------------------------------------------------------------------- */

json_t *admin_list(const struct admin_page *page, json_t *items)
{
	json_t *next =
	    page->has_more ? json_integer((json_int_t)(page->offset + page->limit)) : json_null();
	scope_json json_t *held = next;

	return json_pack("{s:I, s:I, s:I, s:b, s:O, s:{s:s, s:I, s:I, s:I, s:b, s:O}, s:o}",
			 "total", (json_int_t)page->total, "limit", (json_int_t)page->limit,
			 "offset", (json_int_t)page->offset, "has_more", page->has_more,
			 "next_offset", held, "pagination", "mode", "offset", "limit",
			 (json_int_t)page->limit, "offset", (json_int_t)page->offset, "total",
			 (json_int_t)page->total, "has_more", page->has_more, "next_offset", held,
			 "items", items);
}

json_t *admin_run(const struct policy *policy, const struct run_row *row, bool with_user,
		  bool with_usage)
{
	json_t *run = codec_run(policy, row);

	if (run == NULL)
		return NULL;
	(void)json_object_del(run, "log_stream_url");
	(void)json_object_del(run, "estimated_start_time");
	if (!with_usage)
		(void)json_object_del(run, "resource_usage");
	if (with_user && json_object_set_new(run, "user_id", json_string(row->user)) != 0) {
		json_decref(run);
		return NULL;
	}
	return run;
}
