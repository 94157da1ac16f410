/* fuzz_admin_time: whatever is taken as a time is one that the database can read, and reads the
 * same again. */
#include "handlers/runs/admin.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	scope_free char *text = mem_dup_bytes(data, size);
	char out[ADMIN_TIME_SIZE];
	char again[ADMIN_TIME_SIZE];

	if (text == NULL || admin_time(text, true, out) != 0)
		return 0;
	if (strlen(out) != ADMIN_TIME_SIZE - 1 || out[10] != ' ' || out[19] != '.' ||
	    admin_time(out, false, again) != 0 || !str_equal(out, again))
		abort();
	return 0;
}
