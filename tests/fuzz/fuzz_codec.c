/* fuzz_codec: any bytes as the body of POST /runs, up to the spec that the runner would get. */
#include "handlers/runs/codec.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void must(bool right)
{
	if (!right)
		abort();
}

/* What was taken keeps the limits and can be read back by the runner. */
static void judge(struct run_spec *spec, const struct buf *blob)
{
	static char runtime[] = "namespace";
	static char image[] = "host";
	static char network[] = "deny_all";
	scope_buf struct buf text;
	struct run_spec back;
	struct err e = ERR_INIT;

	buf_init(&text, LIMIT_SPEC_BYTES * 2);
	must(spec->command_count >= 1 && spec->command_count <= LIMIT_COMMAND_ITEMS);
	must(spec->pattern_count <= LIMIT_PATTERNS && spec->file_count <= LIMIT_FILES);
	for (size_t i = 0; i < spec->environment_count; i++)
		must(strchr(spec->environment[i], '=') > spec->environment[i]);
	for (size_t i = 0; i < spec->file_count; i++)
		must(spec->files[i].path[0] != '/' &&
		     strstr(spec->files[i].path, "../") != spec->files[i].path);
	spec->blob_bytes = blob->len;
	spec->runtime = runtime;
	spec->image = image;
	spec->network = network;
	must(spec_encode(spec, &text, &e) == 0);
	spec->runtime = NULL;
	spec->image = NULL;
	spec->network = NULL;
	must(spec_decode(buf_text(&text), text.len, &back, &e) == 0);
	must(back.command_count == spec->command_count && back.file_count == spec->file_count);
	for (size_t i = 0; i < back.command_count; i++)
		must(str_equal(back.command[i], spec->command[i]));
	spec_release(&back);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static struct policy *policy;
	static const char text[] = "public_url: https://localhost:8443\n";
	scope_json json_t *object = NULL;
	struct run_body body;
	struct run_spec spec;
	struct problems p;
	struct buf blob;
	unsigned char hash[32];
	struct err e = ERR_INIT;

	if (policy == NULL)
		must(policy_parse("p", text, sizeof(text) - 1, &policy, &e) == 0);
	if (json_parse((const char *)data, size, &object, &e) != 0)
		return 0;
	spec_init(&spec);
	buf_init(&blob, 0);
	problems_init(&p);
	codec_decode_run(object, &body, &p);
	must(codec_fill_spec(&body, &spec, &p, &e) == 0);
	if (!problems_any(&p)) {
		must(codec_fingerprint_run(object, hash, &e) == 0);
		if (codec_decode_files(&body, policy, &spec, &blob, &e) == 0)
			judge(&spec, &blob);
		else
			must(e.code == ERR_INVALID && e.shown[0] != '\0');
	}
	problems_release(&p);
	buf_release(&blob);
	spec_release(&spec);
	return 0;
}
