/* test_slot_file.c: which records of boxes cordon-box believes. */
#include "tests/lib/test.h"

#include "runners/base/fdio.h"
#include "runners/base/str.h"
#include "runners/exec/slot_file.h"

#include <CUnit/CUnit.h>
#include <fcntl.h>

static void fill(struct slot_record *r)
{
	memset(r, 0, sizeof(*r));
	r->slot = 7;
	r->uid_base = 0x10070000;
	r->pid = 4711;
	r->mode = BOX_MODE_HYBRID;
	r->start_ticks = 12345;
	r->created_us = 1000000;
	(void)snprintf(r->instance, sizeof(r->instance), "abc");
	(void)snprintf(r->run_id, sizeof(r->run_id), "run-1");
	(void)snprintf(r->agent_path, sizeof(r->agent_path), "/run/x/agents/7-abc.sock");
	slot_record_seal(r);
}

static void expect(const struct slot_record *r, int wish)
{
	struct slot_record out;
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(slot_record_check(r, sizeof(*r), &out, &e), wish);
}

static void test_whole(void)
{
	struct slot_record r;
	struct slot_record out;
	struct err e = ERR_INIT;

	fill(&r);
	CU_ASSERT_EQUAL(slot_record_check(&r, sizeof(r), &out, &e), 0);
	CU_ASSERT_EQUAL(memcmp(&r, &out, sizeof(r)), 0);
	for (size_t i = 0; i < sizeof(r); i++)
		CU_ASSERT_EQUAL(slot_record_check(&r, i, &out, &e), -1);
}

static void test_every_changed_byte_is_seen(void)
{
	struct slot_record r;
	struct slot_record out;
	struct err e = ERR_INIT;
	int wrong = 0;

	for (size_t i = 0; i < sizeof(r); i++) {
		fill(&r);
		((unsigned char *)&r)[i] ^= 0x40;
		err_clear(&e);
		wrong += slot_record_check(&r, sizeof(r), &out, &e) == 0 ? 1 : 0;
	}
	CU_ASSERT_EQUAL(wrong, 0);
}

static void test_sealed_but_wrong(void)
{
	struct slot_record r;

	fill(&r);
	r.slot = BOX_MAX_SLOTS;
	slot_record_seal(&r);
	expect(&r, -1);
	fill(&r);
	r.pid = 1;
	slot_record_seal(&r);
	expect(&r, -1);
	fill(&r);
	r.mode = BOX_MODE__MAX;
	slot_record_seal(&r);
	expect(&r, -1);
	fill(&r);
	memset(r.run_id, 'x', sizeof(r.run_id));
	slot_record_seal(&r);
	expect(&r, -1);
	fill(&r);
	(void)snprintf(r.run_id, sizeof(r.run_id), "a/b");
	slot_record_seal(&r);
	expect(&r, -1);
	fill(&r);
	memset(r.agent_path, 'x', sizeof(r.agent_path));
	slot_record_seal(&r);
	expect(&r, -1);
	fill(&r);
	r.instance[0] = '\0';
	slot_record_seal(&r);
	expect(&r, -1);
}

static void test_slot_file(void)
{
	char path[] = "/tmp/slotfile-XXXXXX";
	struct slot_record r;
	struct slot_record out;
	struct err e = ERR_INIT;
	scope_close int dir = -1;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fill(&r);
	CU_ASSERT_EQUAL(slot_file_read(dir, 7, &out, &e), -1);
	CU_ASSERT_EQUAL(e.sys, ENOENT);
	CU_ASSERT_EQUAL(slot_file_write(dir, &r, &e), 0);
	err_clear(&e);
	/* only root's files are believed */
	CU_ASSERT_EQUAL(slot_file_read(dir, 7, &out, &e), geteuid() == 0 ? 0 : -1);
	CU_ASSERT_EQUAL(renameat(dir, "s7", dir, "s8"), 0);
	CU_ASSERT_EQUAL(slot_file_read(dir, 8, &out, &e), -1);
	slot_file_remove(dir, 8);
	CU_ASSERT_EQUAL(rmdir(path), 0);
}

static void test_start_time(void)
{
	uint64_t ticks = 0;
	uint64_t again = 1;
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(
	    proc_start_ticks_parse(
		"12 (a) b) c) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 777 9", &ticks, &e),
	    0);
	CU_ASSERT_EQUAL(ticks, 777);
	CU_ASSERT_EQUAL(proc_start_ticks_parse("12 (a) S 3 4", &ticks, &e), -1);
	CU_ASSERT_EQUAL(proc_start_ticks_parse("", &ticks, &e), -1);
	err_clear(&e);
	CU_ASSERT_EQUAL(proc_start_ticks(getpid(), &ticks, &e), 0);
	CU_ASSERT_EQUAL(proc_start_ticks(getpid(), &again, &e), 0);
	CU_ASSERT_EQUAL(ticks, again);
	CU_ASSERT_EQUAL(proc_start_ticks(0x3fffffff, &again, &e), -1);
}

static const struct test tests[] = {
    {"slot_file", "a whole record", test_whole},
    {"slot_file", "every changed byte is seen", test_every_changed_byte_is_seen},
    {"slot_file", "sealed but wrong", test_sealed_but_wrong},
    {"slot_file", "file", test_slot_file},
    {"slot_file", "start time", test_start_time},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
