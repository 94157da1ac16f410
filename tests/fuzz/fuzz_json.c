/* fuzz_json: any bytes as a body; what is taken comes out canonical, valid and the same again. */
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/json.h"
#include "runners/core/spec.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void must(bool right)
{
	if (!right)
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	scope_json json_t *value = NULL;
	scope_json json_t *again = NULL;
	scope_json json_t *clean = NULL;
	scope_buf struct buf first;
	scope_buf struct buf second;
	struct run_spec spec;
	struct err e = ERR_INIT;

	buf_init(&first, LIMIT_REPLY_BYTES * 4);
	buf_init(&second, LIMIT_REPLY_BYTES * 4);
	if (spec_decode((const char *)data, size, &spec, &e) == 0)
		spec_release(&spec);
	err_clear(&e);
	if (json_parse((const char *)data, size, &value, &e) != 0) {
		/* the refusal goes into an answer */
		must(e.shown[0] != '\0' && str_utf8_valid(e.shown, strlen(e.shown)));
		return 0;
	}
	must(json_is_object(value));
	must(json_canonical(&first, value, &e) == 0);
	must(json_parse(buf_text(&first), first.len, &again, &e) == 0);
	must(json_canonical(&second, again, &e) == 0);
	must(strcmp(buf_text(&first), buf_text(&second)) == 0);
	clean = json_without_nulls(value);
	must(clean != NULL);
	buf_reset(&first);
	must(json_write(&first, clean, &e) == 0);
	return 0;
}
