#include "runners/gate/frames.h"

#include "runners/base/clock.h"
#include "runners/base/str.h"
#include "runners/core/json.h"

static json_t *output_frame(const char *type, const struct spool_record *record)
{
	struct buf text;
	json_t *frame;

	if (str_utf8_valid(record->bytes, record->length))
		return json_pack("{s:s, s:s, s:s%, s:I}", "type", type, "encoding", "utf8", "data",
				 (const char *)record->bytes, record->length, "seq",
				 (json_int_t)record->seq);
	buf_init(&text, LIMIT_RECORD_BYTES * 2);
	str_base64(&text, record->bytes, record->length);
	frame = json_pack("{s:s, s:s, s:s, s:I}", "type", type, "encoding", "base64", "data",
			  buf_text(&text), "seq", (json_int_t)record->seq);
	buf_release(&text);
	return frame;
}

int frame_record(struct buf *out, const struct spool_record *record, struct err *e)
{
	scope_json json_t *frame = NULL;
	char now[CLOCK_ISO_SIZE];

	switch (record->kind) {
	case SPOOL_START:
		clock_iso(now, record->time_us);
		frame = json_pack("{s:s, s:s, s:{s:s}, s:I}", "type", "event", "event", "start",
				  "data", "ts", now, "seq", (json_int_t)record->seq);
		break;
	case SPOOL_STDOUT:
		frame = output_frame("stdout", record);
		break;
	case SPOOL_STDERR:
		frame = output_frame("stderr", record);
		break;
	case SPOOL_HEARTBEAT:
		frame =
		    json_pack("{s:s, s:I}", "type", "heartbeat", "seq", (json_int_t)record->seq);
		break;
	case SPOOL_TRUNCATED:
		frame = json_pack("{s:s, s:s%, s:I}", "type", "truncated", "reason",
				  (const char *)record->bytes, record->length, "seq",
				  (json_int_t)record->seq);
		break;
	}
	if (frame == NULL)
		return err_set(e, ERR_NOMEM, 0, "frame");
	return json_write(out, frame, e);
}

int frame_end(struct buf *out, const struct run_end *end, uint64_t seq, struct err *e)
{
	scope_json json_t *frame = NULL;
	json_t *data = json_object();
	int bad = 0;

	bad |= json_object_set_new(data, "exit_code",
				   end->has_exit ? json_integer(end->exit_code) : json_null());
	if (end->phase == RUN_KILLED && str_equal(end->message, "canceled_by_user"))
		bad |= json_object_set_new(data, "canceled", json_true());
	else if (!end->has_exit || end->phase == RUN_KILLED)
		bad |= json_object_set_new(data, "reason", json_string(end->message));
	frame = json_pack("{s:s, s:s, s:o, s:I}", "type", "event", "event", "end", "data", data,
			  "seq", (json_int_t)seq);
	if (bad != 0 || frame == NULL)
		return err_set(e, ERR_NOMEM, 0, "frame");
	return json_write(out, frame, e);
}
