#include "runners/core/multipart.h"

#include "runners/base/str.h"

#include <string.h>
#include <strings.h>

static int malformed(struct err *e, const char *why)
{
	return err_show(e, ERR_INVALID, "The body is no good multipart/form-data: %s.", why);
}

/* --- parameters of a header ------------------------------------------------------------------ */

static const char *skip_blanks(const char *p)
{
	return p + strspn(p, " \t");
}

/* A quoted string, or what stands up to ';'. Behind it; NULL when it does not end or is too long.
 */
static const char *read_value(const char *p, char *out, size_t size)
{
	bool quoted = *p == '"';
	size_t used = 0;

	p += quoted ? 1 : 0;
	while (*p != '\0' && (quoted ? *p != '"' : *p != ';')) {
		if (quoted && *p == '\\' && (p[1] == '"' || p[1] == '\\'))
			p++;
		if (used + 1 >= size)
			return NULL;
		out[used++] = *p++;
	}
	if (quoted && *p != '"')
		return NULL;
	while (!quoted && used > 0 && (out[used - 1] == ' ' || out[used - 1] == '\t'))
		used--;
	out[used] = '\0';
	return p + (quoted ? 1 : 0);
}

/* The value of a parameter of "word; name=value; ...": 1, 0 absent, -1 malformed. */
static int parameter(const char *header, const char *name, char *out, size_t size)
{
	const char *p = header + strcspn(header, ";");
	char other[MULTIPART_FILE_BYTES];
	size_t length = strlen(name);

	while (*p == ';') {
		bool wanted;

		p = skip_blanks(p + 1);
		if (*p == '\0')
			break; /* a semicolon at the end */
		wanted = strncasecmp(p, name, length) == 0 && *skip_blanks(p + length) == '=';
		p += strcspn(p, "=;");
		if (*p != '=')
			continue;
		p = read_value(skip_blanks(p + 1), wanted ? out : other,
			       wanted ? size : sizeof(other));
		if (p == NULL)
			return -1;
		if (wanted)
			return 1;
		p = skip_blanks(p);
		if (*p != ';' && *p != '\0')
			return -1;
	}
	return 0;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* charset'language'percent-encoded, in place; ISO-8859-1 becomes UTF-8. */
static int decode_extended(char *text, size_t size)
{
	char bytes[MULTIPART_FILE_BYTES];
	const char *p = strchr(text, '\'');
	bool latin;
	size_t used = 0;

	if (p == NULL)
		return -1;
	latin = strncasecmp(text, "ISO-8859-1'", 11) == 0;
	if (!latin && strncasecmp(text, "UTF-8'", 6) != 0)
		return -1;
	p = strchr(p + 1, '\'');
	if (p == NULL)
		return -1;
	for (p++; *p != '\0'; p++) {
		unsigned char byte = (unsigned char)*p;

		if (*p == '%') {
			if (hex(p[1]) < 0 || hex(p[2]) < 0)
				return -1;
			byte = (unsigned char)(hex(p[1]) << 4 | hex(p[2]));
			p += 2;
		}
		if (byte == 0 || byte == '\r' || byte == '\n' || used + 3 > sizeof(bytes))
			return -1;
		if (latin && byte >= 0x80) {
			bytes[used++] = (char)(0xc0 | byte >> 6);
			byte = (unsigned char)(0x80 | (byte & 0x3f));
		}
		bytes[used++] = (char)byte;
	}
	bytes[used] = '\0';
	return str_copy(text, size, bytes);
}

/* --- the header of a part -------------------------------------------------------------------- */

static int read_disposition(struct multipart *m, const char *value, struct err *e)
{
	struct multipart_part *part = &m->part;
	char plain[MULTIPART_FILE_BYTES];
	int extended;
	int got;

	if (strncasecmp(value, "form-data", 9) != 0 || strchr("; \t", value[9]) == NULL)
		return malformed(e, "a part's Content-Disposition is not form-data");
	if (parameter(value, "name", part->name, sizeof(part->name)) != 1)
		return malformed(e, "a part has no name, or one that is too long");
	got = parameter(value, "filename", plain, sizeof(plain));
	extended = parameter(value, "filename*", part->filename, sizeof(part->filename));
	if (got < 0 || extended < 0 ||
	    (extended == 1 && decode_extended(part->filename, sizeof(part->filename)) != 0))
		return malformed(e, "a file name is malformed, or longer than 4095 bytes");
	if (extended == 0 && got == 1)
		memcpy(part->filename, plain, sizeof(plain));
	part->has_filename = got == 1 || extended == 1;
	return 0;
}

/* All lines, NUL at the end of each; Content-Disposition alone counts. */
static int read_header(struct multipart *m, struct err *e)
{
	char *line = m->header;
	bool seen = false;

	memset(&m->part, 0, sizeof(m->part));
	if (strlen(m->header) != m->header_length)
		return malformed(e, "a NUL in the header of a part");
	while (*line != '\0') {
		char *end = strstr(line, "\r\n");
		const char *value;

		if (end == NULL)
			break;
		*end = '\0';
		value = strncasecmp(line, "content-disposition", 19) == 0 ? line + 19 : NULL;
		if (value != NULL && *skip_blanks(value) == ':') {
			if (seen)
				return malformed(e, "a part has two Content-Disposition");
			seen = true;
			if (read_disposition(m, skip_blanks(skip_blanks(value) + 1), e) != 0)
				return -1;
		}
		line = end + 2;
	}
	if (!seen)
		return malformed(e, "a part has no Content-Disposition");
	m->state = MULTIPART_DATA;
	return m->events->begin(m->ctx, &m->part, e);
}

static int header_byte(struct multipart *m, char c, struct err *e)
{
	if (m->header_length >= MULTIPART_HEADER_BYTES)
		return malformed(e, "the header of a part is longer than 16384 bytes");
	m->header[m->header_length++] = c;
	m->header[m->header_length] = '\0';
	if (c != '\n')
		return 0;
	if (m->header_length == 2 && m->header[0] == '\r')
		return malformed(e, "a part has no Content-Disposition");
	if (m->header_length >= 4 && memcmp(m->header + m->header_length - 4, "\r\n\r\n", 4) == 0)
		return read_header(m, e);
	return 0;
}

/* --- the body -------------------------------------------------------------------------------- */

int multipart_init(struct multipart *m, const char *content_type,
		   const struct multipart_events *events, void *ctx, struct err *e)
{
	char boundary[MULTIPART_BOUNDARY_MAX + 1];

	memset(m, 0, sizeof(*m));
	m->events = events;
	m->ctx = ctx;
	if (content_type == NULL || strncasecmp(content_type, "multipart/form-data", 19) != 0 ||
	    strchr("; \t", content_type[19]) == NULL)
		return malformed(e, "Content-Type is not multipart/form-data");
	if (parameter(content_type, "boundary", boundary, sizeof(boundary)) != 1 ||
	    boundary[0] == '\0' || strpbrk(boundary, "\r\n") != NULL)
		return malformed(e, "Content-Type has no boundary of 1 to 200 bytes");
	(void)snprintf(m->delimiter, sizeof(m->delimiter), "\r\n--%s", boundary);
	m->delimiter_length = strlen(m->delimiter);
	/* the first boundary may be the first line */
	m->matched = 2;
	return 0;
}

static int emit(struct multipart *m, const char *data, size_t length, struct err *e)
{
	if (length == 0 || m->state != MULTIPART_DATA)
		return 0;
	return m->events->data(m->ctx, data, length, e);
}

/* The bytes up to the next boundary; *at is behind what was taken. */
static int scan(struct multipart *m, const char *data, size_t length, size_t *at, struct err *e)
{
	while (*at < length) {
		if (m->matched == 0) {
			const char *p = memchr(data + *at, '\r', length - *at);
			size_t plain = p == NULL ? length - *at : (size_t)(p - data) - *at;

			if (emit(m, data + *at, plain, e) != 0)
				return -1;
			*at += plain;
			if (p == NULL)
				return 0;
			m->matched = 1;
			(*at)++;
			continue;
		}
		if (data[*at] != m->delimiter[m->matched]) {
			/* it was none; CR is in no boundary, so only this byte can begin one */
			size_t taken = m->matched;

			m->matched = 0;
			/* before the first line there is no CR LF */
			if (emit(m, m->delimiter, taken, e) != 0)
				return -1;
			continue;
		}
		m->matched++;
		(*at)++;
		if (m->matched < m->delimiter_length)
			continue;
		m->matched = 0;
		if (m->state == MULTIPART_DATA && m->events->end(m->ctx, e) != 0)
			return -1;
		m->state = MULTIPART_AFTER;
		return 0;
	}
	return 0;
}

/* Behind a boundary: "--" is the end; blanks and CR LF begin a part. */
static int after_byte(struct multipart *m, char c, struct err *e)
{
	if (m->state == MULTIPART_AFTER) {
		if (c == ' ' || c == '\t')
			return 0;
		m->after = c;
		m->state = MULTIPART_AFTER_2;
		return c == '-' || c == '\r' ? 0 : malformed(e, "bytes behind a boundary");
	}
	if (m->after == '-' && c == '-') {
		m->state = MULTIPART_EPILOGUE;
		return 0;
	}
	if (m->after != '\r' || c != '\n')
		return malformed(e, "bytes behind a boundary");
	m->header_length = 0;
	m->header[0] = '\0';
	m->state = MULTIPART_HEADER;
	return 0;
}

int multipart_feed(struct multipart *m, const char *data, size_t length, struct err *e)
{
	size_t at = 0;
	int got = 0;

	while (at < length && got == 0) {
		switch (m->state) {
		case MULTIPART_PREAMBLE:
		case MULTIPART_DATA:
			got = scan(m, data, length, &at, e);
			break;
		case MULTIPART_AFTER:
		case MULTIPART_AFTER_2:
			got = after_byte(m, data[at++], e);
			break;
		case MULTIPART_HEADER:
			got = header_byte(m, data[at++], e);
			break;
		case MULTIPART_EPILOGUE:
			return 0;
		}
	}
	return got;
}

int multipart_finish(const struct multipart *m, struct err *e)
{
	return m->state == MULTIPART_EPILOGUE ? 0
					      : malformed(e, "it ends before its last boundary");
}
