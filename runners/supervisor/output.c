#include "runners/supervisor/output.h"

#include "runners/base/str.h"

int output_open(struct output *out, const char *data_dir, const char *run_id, uint64_t cap_bytes,
		int64_t heartbeat_gap_us, struct err *e)
{
	memset(out, 0, sizeof(*out));
	out->cap_bytes = cap_bytes;
	out->heartbeat_gap_us = heartbeat_gap_us;
	if (spool_create(&out->spool, data_dir, run_id, e) != 0)
		return -1;
	out->kept_bytes = out->spool.stream_bytes[0] + out->spool.stream_bytes[1];
	out->seen_bytes = out->kept_bytes;
	out->truncated = out->spool.cut;
	return 0;
}

size_t output_waiting(const struct output *out, int stream)
{
	return out->tails[stream].length;
}

void output_close(struct output *out)
{
	spool_writer_close(&out->spool);
}

int output_start(struct output *out, int64_t now_us, struct err *e)
{
	out->heartbeat_us = now_us + out->heartbeat_gap_us;
	return out->spool.has_start ? 0 : spool_append_start(&out->spool, e);
}

static enum spool_kind kind_of(int stream)
{
	return stream == 0 ? SPOOL_STDOUT : SPOOL_STDERR;
}

int output_truncated(struct output *out, const char *reason, struct err *e)
{
	return spool_append(&out->spool, SPOOL_TRUNCATED, reason, strlen(reason), e);
}

/* Bytes for the spool, within the cap. */
static int keep(struct output *out, int stream, const unsigned char *data, size_t length,
		struct err *e)
{
	while (length > 0) {
		uint64_t room = out->cap_bytes - out->kept_bytes;
		size_t part = length < LIMIT_RECORD_BYTES ? length : LIMIT_RECORD_BYTES;
		bool bad;

		if (room == 0) {
			if (out->truncated)
				return 0;
			out->truncated = true;
			return output_truncated(out, "log_cap", e);
		}
		if (part > room)
			part = (size_t)room;
		/* a cut inside a run of text falls between two characters */
		if (part < length) {
			size_t whole = str_utf8_prefix(data, part, &bad);

			if (!bad && whole > 0)
				part = whole;
		}
		if (spool_append(&out->spool, kind_of(stream), data, part, e) != 0)
			return -1;
		out->kept_bytes += part;
		data += part;
		length -= part;
	}
	return 0;
}

static int flush_tail(struct output *out, int stream, struct err *e)
{
	struct output_tail *tail = &out->tails[stream];
	size_t length = tail->length;

	tail->length = 0;
	return length == 0 ? 0 : keep(out, stream, tail->bytes, length, e);
}

/* The bytes that end in the middle of a character: 0 to 3. */
static size_t incomplete(const unsigned char *data, size_t length)
{
	size_t start = length > 4 ? length - 4 : 0;

	/* find the last byte that can begin a character and see whether its character is whole */
	for (size_t i = length; i > start; i--) {
		unsigned char c = data[i - 1];
		bool bad;

		if ((c & 0xC0) == 0x80)
			continue;
		if (c < 0xC0)
			return 0;
		return str_utf8_prefix(data + i - 1, length - i + 1, &bad) == 0 && !bad
			   ? length - i + 1
			   : 0;
	}
	return 0;
}

int output_bytes(struct output *out, int stream, const void *data, size_t length, int64_t now_us,
		 bool *out_changed, struct err *e)
{
	struct output_tail *tail = &out->tails[stream];
	const unsigned char *p = data;
	unsigned char joined[8];
	size_t rest;

	out->seen_bytes += length;
	if (out->truncated)
		return 0;
	/* complete the character that waits */
	while (tail->length > 0 && length > 0) {
		bool bad;

		memcpy(joined, tail->bytes, tail->length);
		joined[tail->length] = *p;
		tail->bytes[tail->length++] = *p++;
		length--;
		if (str_utf8_prefix(joined, tail->length, &bad) == 0 && !bad && tail->length < 4)
			continue;
		*out_changed = true;
		if (flush_tail(out, stream, e) != 0)
			return -1;
	}
	rest = incomplete(p, length);
	if (length > rest) {
		*out_changed = true;
		if (keep(out, stream, p, length - rest, e) != 0)
			return -1;
	}
	if (rest > 0) {
		memcpy(tail->bytes, p + length - rest, rest);
		tail->length = rest;
		tail->since_us = now_us;
	}
	return 0;
}

int output_tick(struct output *out, int64_t now_us, bool everything, bool *out_changed,
		struct err *e)
{
	for (int i = 0; i < 2; i++) {
		if (out->tails[i].length == 0 ||
		    (!everything && now_us < out->tails[i].since_us + OUTPUT_HOLD_US))
			continue;
		*out_changed = true;
		if (flush_tail(out, i, e) != 0)
			return -1;
	}
	if (out->heartbeat_us != 0 && now_us >= out->heartbeat_us && !everything) {
		out->heartbeat_us = now_us + out->heartbeat_gap_us;
		*out_changed = true;
		return spool_append(&out->spool, SPOOL_HEARTBEAT, NULL, 0, e);
	}
	return 0;
}

int64_t output_due_us(const struct output *out)
{
	int64_t due = out->heartbeat_us == 0 ? INT64_MAX : out->heartbeat_us;

	for (int i = 0; i < 2; i++)
		if (out->tails[i].length > 0 && out->tails[i].since_us + OUTPUT_HOLD_US < due)
			due = out->tails[i].since_us + OUTPUT_HOLD_US;
	return due;
}
