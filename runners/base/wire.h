/*
 * wire.h: bytes of our binary protocols: little-endian integers, length-prefixed bytes, frame
 * headers.
 *
 * A writer appends to a struct buf. A reader walks over bytes it does not own and fails sticky:
 * after the first read past the end every read gives 0 and wire_done() is false, so a parser checks
 * once at its end. The agent's frames are made of these in agentproto.h.
 */
#ifndef CORDON_BASE_WIRE_H
#define CORDON_BASE_WIRE_H

#include "runners/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_reader {
	const unsigned char *data;
	size_t left;
	bool failed;
};

void wire_put_u8(struct buf *b, uint8_t v);
void wire_put_u16(struct buf *b, uint16_t v);
void wire_put_u32(struct buf *b, uint32_t v);
void wire_put_u64(struct buf *b, uint64_t v);
/* u32 length, then the bytes */
void wire_put_bytes(struct buf *b, const void *data, size_t length);
void wire_put_text(struct buf *b, const char *text);

void wire_reader_init(struct wire_reader *r, const void *data, size_t length);
uint8_t wire_get_u8(struct wire_reader *r);
uint16_t wire_get_u16(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
/* Points into the reader's data; "" and 0 after a failure. */
const char *wire_get_bytes(struct wire_reader *r, size_t *out_length);
/* All read, nothing left over, no failure. */
bool wire_done(const struct wire_reader *r);

uint32_t wire_load_u32(const unsigned char *p);
uint64_t wire_load_u64(const unsigned char *p);
void wire_store_u32(unsigned char *p, uint32_t v);
void wire_store_u64(unsigned char *p, uint64_t v);

/* CRC-32C (Castagnoli, RFC 3720 B.4). */
uint32_t wire_crc32c(uint32_t crc, const void *data, size_t length);

#endif
