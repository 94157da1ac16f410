#include "runners/base/ident.h"

#include "runners/base/clock.h"
#include "runners/base/str.h"

#include <errno.h>
#include <sys/random.h>

int ident_random(void *out, size_t length, struct err *e)
{
	unsigned char *p = out;

	while (length > 0) {
		ssize_t got = getrandom(p, length, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return err_set(e, ERR_IO, errno, "getrandom");
		p += got;
		length -= (size_t)got;
	}
	return 0;
}

int ident_uuid(char out[IDENT_UUID_SIZE], struct err *e)
{
	unsigned char raw[16];
	char hex[33];
	int64_t now_ms = clock_real_us() / CLOCK_US_PER_MS;

	if (ident_random(raw, sizeof(raw), e) != 0)
		return -1;
	for (int i = 0; i < 6; i++)
		raw[i] = (unsigned char)(now_ms >> (40 - 8 * i));
	raw[6] = (unsigned char)((raw[6] & 0x0F) | 0x70);
	raw[8] = (unsigned char)((raw[8] & 0x3F) | 0x80);
	str_hex(hex, raw, sizeof(raw));
	(void)snprintf(out, IDENT_UUID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
		       hex + 16, hex + 20);
	return 0;
}

bool ident_is_uuid(const char *text)
{
	for (int i = 0; i < 36; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		char c = text[i];

		if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return text[36] == '\0';
}

int ident_token(char *out, size_t digits, struct err *e)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

	if (ident_random(out, digits, e) != 0)
		return -1;
	for (size_t i = 0; i < digits; i++)
		out[i] = alphabet[(unsigned char)out[i] & 31];
	out[digits] = '\0';
	return 0;
}
