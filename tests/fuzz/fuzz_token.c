/* fuzz_token: any bytes as a token beside living keys, and any bytes as a key set. */
#include "handlers/token.h"
#include "runners/base/mem.h"

#define SECRET "0123456789abcdef0123456789abcdef"
#define P256                                                          \
	"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"k\"," \
	"\"x\":\"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY\","      \
	"\"y\":\"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU\"}]}"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static struct token_keys *keys;
static struct policy *policy;

static void prepare(void)
{
	static const char text[] = "public_url: https://h\nauth: {jwt: {tenant_claim: t}}\n";
	struct err e = ERR_INIT;

	if (keys != NULL)
		return;
	json_setup();
	if (token_keys_make(SECRET, strlen(SECRET), P256, strlen(P256), &keys, &e) != 0 ||
	    policy_parse("p", text, strlen(text), &policy, &e) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	struct principal who;
	struct token_keys *made = NULL;
	struct err e = ERR_INIT;
	scope_free char *text = NULL;

	prepare();
	if (size == 0)
		return 0;
	text = mem_dup_bytes(data + 1, size - 1);
	if (text == NULL)
		abort();
	if ((data[0] & 1) != 0) {
		if (token_keys_make(NULL, 0, text, size - 1, &made, &e) == 0)
			token_keys_free(made);
		else if (e.code == ERR_NONE)
			abort();
		return 0;
	}
	(void)token_fits(text);
	/* whoever signs with the seed's secret may be anybody but an operator */
	if (token_check(keys, policy, text, 1800000000, &who, &e) == 0) {
		if (who.user[0] == '\0' || who.tenant[0] == '\0' || who.role == ROLE_OPERATOR ||
		    who.key_id[0] != '\0' || who.expires_ms <= 1800000000000)
			abort();
	} else if (e.code == ERR_NONE) {
		abort();
	}
	return 0;
}
