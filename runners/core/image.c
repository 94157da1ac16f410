#include "runners/core/image.h"

#include "runners/base/fdio.h"
#include "runners/base/str.h"

#include <fcntl.h>
#include <openssl/sha.h>

#define SOURCE_MAX_BYTES (64U << 20)

int image_digest(const char *name, char out[IMAGE_DIGEST_SIZE], struct err *e)
{
	static const char *const sources[] = {"/etc/os-release", "/var/lib/dpkg/status"};
	scope_buf struct buf text = BUF_NONE;
	unsigned char hash[SHA256_DIGEST_LENGTH];
	char hex[65];

	buf_init(&text, SOURCE_MAX_BYTES);
	if (!str_equal(name, "host"))
		return err_set(e, ERR_NOT_FOUND, 0, "no image %s", name);
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		struct err missing = ERR_INIT;

		if (fd_read_file(AT_FDCWD, sources[i], &text, &missing) != 0 &&
		    missing.code != ERR_NOT_FOUND)
			return err_set(e, missing.code, 0, "%s", missing.text);
		buf_add_char(&text, '\0');
	}
	if (!buf_ok(&text))
		return err_set(e, buf_error(&text), 0, "image digest");
	(void)SHA256((const unsigned char *)buf_text(&text), text.len, hash);
	str_hex(hex, hash, sizeof(hash));
	(void)snprintf(out, IMAGE_DIGEST_SIZE, "sha256:%s", hex);
	return 0;
}
