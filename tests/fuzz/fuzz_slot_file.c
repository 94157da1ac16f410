/* fuzz_slot_file.c: slot files as they are and with a right sum, and the text of /proc/PID/stat. */
#include "runners/exec/slot_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* NOLINTNEXTLINE(readability-identifier-naming): the name that libFuzzer calls */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slot_record record;
	struct slot_record out;
	char text[512];
	struct err e = ERR_INIT;
	uint64_t ticks;
	size_t length = size < sizeof(text) ? size : sizeof(text) - 1;

	(void)slot_record_check(data, size, &out, &e);
	memset(&record, 0, sizeof(record));
	memcpy(&record, data, size < sizeof(record) ? size : sizeof(record));
	slot_record_seal(&record);
	err_clear(&e);
	if (slot_record_check(&record, sizeof(record), &out, &e) == 0)
		(void)strlen(out.agent_path);
	memcpy(text, data, length);
	text[length] = '\0';
	err_clear(&e);
	(void)proc_start_ticks_parse(text, &ticks, &e);
	return 0;
}
