/* fuzz_policy: any bytes as a policy; what is taken must survive a dump and a second load. */
#include "runners/base/mem.h"
#include "runners/core/policy.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	scope_policy struct policy *policy = NULL;
	scope_policy struct policy *again = NULL;
	scope_buf struct buf first = BUF_NONE;
	scope_buf struct buf second = BUF_NONE;
	struct err e = ERR_INIT;

	buf_init(&first, POLICY_FILE_BYTES);
	buf_init(&second, POLICY_FILE_BYTES);
	if (policy_parse("fuzz", (const char *)data, size, &policy, &e) != 0)
		return 0;
	policy_dump(policy, &first);
	if (policy_parse("dump", buf_text(&first), first.len, &again, &e) != 0)
		abort();
	policy_dump(again, &second);
	if (strcmp(buf_text(&first), buf_text(&second)) != 0)
		abort();
	return 0;
}
