/*
 * test.h: the frame of every CUnit program.
 *
 *	static void test_one(void) { CU_ASSERT_EQUAL(1 + 1, 2); }
 *	static const struct test tests[] = {{"policy", "one", test_one}};
 *	TEST_MAIN(tests)
 *
 * Tests of one suite stand together. The program runs all of them verbosely, prints CUnit's
 * summary and exits 1 after a failure. `PROGRAM NAME...` runs only the tests whose "suite/name"
 * contains one of the words.
 *
 * fault_loop() makes the 1st, 2nd, ... n-th allocation fail until the function gets by without a
 * failure. The function returns 0 when it did its whole work and -1 when it met an error; it must
 * set an error and leak nothing either way (LeakSanitizer and fd_count watch).
 */
#ifndef CORDON_TESTS_LIB_TEST_H
#define CORDON_TESTS_LIB_TEST_H

#include "runners/base/err.h"

#include <CUnit/CUnit.h>
#include <stddef.h>

struct test {
	const char *suite;
	const char *name;
	void (*run)(void);
};

#define TEST_MAIN(tests)                                                                   \
	int main(int argc, char **argv)                                                    \
	{                                                                                  \
		return test_main(argc, argv, (tests), sizeof(tests) / sizeof((tests)[0])); \
	}

int test_main(int argc, char **argv, const struct test *tests, size_t count);

typedef int fault_fn(void *context, struct err *e);

/* Asserts that every failed allocation gives -1 with an error code, and that the end is a success.
 */
void fault_loop(fault_fn *run, void *context);

/* Open descriptors of this process. */
int fd_count(void);

/* A fresh folder; its path stays valid until the program ends, which removes it with all it has. */
const char *test_dir(void);
/* Writes a file below test_dir(); returns its path, valid until the next call. */
const char *test_file(const char *name, const void *data, size_t length);

/* Fails with both texts in the message when they differ. */
void test_text_equal(const char *file, unsigned int line, const char *got, const char *wanted);
#define ASSERT_TEXT(got, wanted) test_text_equal(__FILE__, __LINE__, (got), (wanted))

#endif
