#include "runners/base/wire.h"

void wire_store_u32(unsigned char *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> (8 * i));
}

void wire_store_u64(unsigned char *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (unsigned char)(v >> (8 * i));
}

uint32_t wire_load_u32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t wire_load_u64(const unsigned char *p)
{
	return (uint64_t)wire_load_u32(p) | (uint64_t)wire_load_u32(p + 4) << 32;
}

void wire_put_u8(struct buf *b, uint8_t v)
{
	buf_add(b, &v, 1);
}

void wire_put_u16(struct buf *b, uint16_t v)
{
	unsigned char raw[2] = {(unsigned char)v, (unsigned char)(v >> 8)};

	buf_add(b, raw, sizeof(raw));
}

void wire_put_u32(struct buf *b, uint32_t v)
{
	unsigned char raw[4];

	wire_store_u32(raw, v);
	buf_add(b, raw, sizeof(raw));
}

void wire_put_u64(struct buf *b, uint64_t v)
{
	unsigned char raw[8];

	wire_store_u64(raw, v);
	buf_add(b, raw, sizeof(raw));
}

void wire_put_bytes(struct buf *b, const void *data, size_t length)
{
	if (length > UINT32_MAX) {
		b->failed = true;
		return;
	}
	wire_put_u32(b, (uint32_t)length);
	buf_add(b, data, length);
}

void wire_put_text(struct buf *b, const char *text)
{
	wire_put_bytes(b, text, strlen(text));
}

void wire_reader_init(struct wire_reader *r, const void *data, size_t length)
{
	r->data = data;
	r->left = length;
	r->failed = false;
}

/* The next n bytes, or NULL once the reader has failed. */
static const unsigned char *take(struct wire_reader *r, size_t n)
{
	const unsigned char *p = r->data;

	if (r->failed || n > r->left) {
		r->failed = true;
		return NULL;
	}
	r->data += n;
	r->left -= n;
	return p;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
	const unsigned char *p = take(r, 1);

	return p == NULL ? 0 : p[0];
}

uint16_t wire_get_u16(struct wire_reader *r)
{
	const unsigned char *p = take(r, 2);

	if (p == NULL)
		return 0;
	return (uint16_t)((unsigned int)p[0] | (unsigned int)p[1] << 8);
}

uint32_t wire_get_u32(struct wire_reader *r)
{
	const unsigned char *p = take(r, 4);

	return p == NULL ? 0 : wire_load_u32(p);
}

uint64_t wire_get_u64(struct wire_reader *r)
{
	const unsigned char *p = take(r, 8);

	return p == NULL ? 0 : wire_load_u64(p);
}

const char *wire_get_bytes(struct wire_reader *r, size_t *out_length)
{
	uint32_t length = wire_get_u32(r);
	const unsigned char *p = take(r, length);

	*out_length = p == NULL ? 0 : length;
	return p == NULL ? "" : (const char *)p;
}

bool wire_done(const struct wire_reader *r)
{
	return !r->failed && r->left == 0;
}

static uint32_t crc_table[256];

/* Before main, so that threads find it made. */
static __attribute__((constructor)) void make_crc_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t v = i;

		for (int k = 0; k < 8; k++)
			v = (v & 1) != 0 ? v >> 1 ^ UINT32_C(0x82F63B78) : v >> 1;
		crc_table[i] = v;
	}
}

uint32_t wire_crc32c(uint32_t crc, const void *data, size_t length)
{
	const unsigned char *p = data;

	crc = ~crc;
	for (size_t i = 0; i < length; i++)
		crc = crc >> 8 ^ crc_table[(crc ^ p[i]) & 0xFF];
	return ~crc;
}
