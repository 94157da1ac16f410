/* test_signed: signed stream URLs: the token, what a run shows, and what a handshake must bring. */
#include "handlers/ops/op_run.h"
#include "handlers/runs/signed.h"
#include "handlers/secrets.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

#define RUN    "11111111-2222-3333-4444-555555555555"
#define SECRET "test-secret"
#define EXP    1893456000
#define TOKEN  "ba5a48da51eff5b5795256a9e49e49a29bffe6aa03bf6e2e75dc4e347521df07"

static char secret_text[] = SECRET;
static struct secrets secrets = {
    .stream = {.data = secret_text, .len = sizeof(secret_text) - 1, .cap = sizeof(secret_text)}};

static struct policy *policy_of(bool on)
{
	static const char *const texts[] = {
	    "public_url: https://h:1\n",
	    "public_url: https://h:1\nstreams:\n  signed_urls: true\n  secret_file: /s\n"};
	struct policy *policy = NULL;
	struct err e = ERR_INIT;

	json_setup();
	if (policy_parse("p", texts[on], strlen(texts[on]), &policy, &e) != 0)
		CU_FAIL_FATAL("policy");
	return policy;
}

static void test_vector(void)
{
	char token[SIGNED_TOKEN_SIZE];
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(signed_token(SECRET, strlen(SECRET), RUN, EXP, token, &e), 0);
	ASSERT_TEXT(token, TOKEN);
}

static void check(const struct handler_context *context, const char *query, int64_t now, int want)
{
	struct http_request request = {.query = query};
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(signed_check(context, &request, RUN, now, &e), want);
	CU_ASSERT_EQUAL(e.code, want == 0 ? ERR_NONE : ERR_DENIED);
}

static void test_handshake(void)
{
	scope_policy struct policy *policy = policy_of(true);
	struct handler_context context = {.policy = policy, .secrets = &secrets};
	struct secrets none = {.token = NULL};
	static const char *const bad[] = {
	    "",
	    "token=" TOKEN,
	    "exp=1893456000",
	    "token=&exp=1893456000",
	    "token=" TOKEN "&exp=1893456001",
	    "token=" TOKEN "&exp=-1",
	    "token=" TOKEN "&exp=1893456000.0",
	    "token=" TOKEN "&exp=9223372036854775808",
	    "token=" TOKEN "0&exp=1893456000",
	    "token=BA5A48DA51EFF5B5795256A9E49E49A29BFFE6AA03BF6E2E75DC4E347521DF07&exp=1893456000",
	    "token=aa5a48da51eff5b5795256a9e49e49a29bffe6aa03bf6e2e75dc4e347521df07&exp=1893456000"};

	check(&context, "token=" TOKEN "&exp=1893456000", EXP - 1, 0);
	check(&context, "from_seq=3&exp=1893456000&token=" TOKEN, 0, 0);
	/* exp itself is too late */
	check(&context, "token=" TOKEN "&exp=1893456000", EXP, -1);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		check(&context, bad[i], 0, -1);
	/* on without a secret: everything is refused */
	context.secrets = &none;
	check(&context, "token=" TOKEN "&exp=1893456000", 0, -1);
	context.secrets = NULL;
	check(&context, "token=" TOKEN "&exp=1893456000", 0, -1);
}

static void shown(const struct handler_context *context, const char *url, bool is_signed)
{
	struct run_row *row = mem_zalloc(1, sizeof(*row));
	json_t *run = signed_run(context, row, json_pack("{s:s}", "log_stream_url", url));
	const char *got = json_text(json_object_get(run, "log_stream_url"));

	CU_ASSERT_FATAL(row != NULL && got != NULL && str_starts(got, url));
	CU_ASSERT_EQUAL(got[strlen(url)] != '\0', is_signed);
	if (is_signed)
		CU_ASSERT_EQUAL(got[strlen(url)], strchr(url, '?') == NULL ? '?' : '&');
	json_decref(run);
	mem_free(row);
}

static void test_shown(void)
{
	scope_policy struct policy *on = policy_of(true);
	scope_policy struct policy *off = policy_of(false);
	struct handler_context context = {.policy = on, .secrets = &secrets};
	struct run_row *row = mem_zalloc(1, sizeof(*row));
	struct http_request request = {.path = ""};
	struct err e = ERR_INIT;
	json_t *run;

	shown(&context, "wss://h/s", true);
	shown(&context, "wss://h/s?from_seq=4", true);
	context.policy = off;
	shown(&context, "wss://h/s", false);
	context.policy = on;
	CU_ASSERT_PTR_NULL(signed_run(&context, row, NULL));
	/* what is shown is what is taken */
	memcpy(row->id, RUN, sizeof(RUN));
	run = signed_run(&context, row, json_pack("{s:s}", "log_stream_url", "wss://h/s"));
	request.query = strchr(json_text(json_object_get(run, "log_stream_url")), '?') + 1;
	CU_ASSERT_EQUAL(
	    signed_check(&context, &request, RUN, clock_real_us() / CLOCK_US_PER_S + 58, &e), 0);
	CU_ASSERT_EQUAL(
	    signed_check(&context, &request, RUN, clock_real_us() / CLOCK_US_PER_S + 61, &e), -1);
	json_decref(run);
	mem_free(row);
}

static const struct test tests[] = {
    {"signed", "vector", test_vector},
    {"signed", "handshake", test_handshake},
    {"signed", "what is shown", test_shown},
};

TEST_MAIN(tests)
