#include "tests/lib/test.h"

#include "runners/base/fdio.h"
#include "runners/base/mem.h"

#include <CUnit/Basic.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>

#define FAULTS_MAX 100000UL

static char directory[64];

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

static void remove_directory(void)
{
	if (directory[0] != '\0')
		(void)nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_directory(void)
{
	(void)snprintf(directory, sizeof(directory), "/tmp/cordon-test-XXXXXX");
	if (mkdtemp(directory) == NULL) {
		perror("mkdtemp");
		exit(2);
	}
	(void)atexit(remove_directory);
}

const char *test_dir(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	/* some tests ask from several threads at once */
	(void)pthread_once(&once, make_directory);
	return directory;
}

const char *test_file(const char *name, const void *data, size_t length)
{
	static char path[512];
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
	if (fd_replace_file(AT_FDCWD, path, data, length, 0600, &e) != 0) {
		(void)fprintf(stderr, "test_file: %s\n", e.text);
		exit(2);
	}
	return path;
}

int fd_count(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	if (folder == NULL)
		return -1;
	while (readdir(folder) != NULL)
		count++;
	(void)closedir(folder);
	/* ".", ".." and the folder itself */
	return count - 3;
}

void test_text_equal(const char *file, unsigned int line, const char *got, const char *wanted)
{
	static char message[2048];
	bool same = got != NULL && wanted != NULL && strcmp(got, wanted) == 0;

	if (!same)
		(void)snprintf(message, sizeof(message), "got    \"%s\"\n        wanted \"%s\"",
			       got == NULL ? "(null)" : got, wanted == NULL ? "(null)" : wanted);
	(void)CU_assertImplementation(same ? CU_TRUE : CU_FALSE, line,
				      same ? "texts equal" : message, file, "", CU_FALSE);
}

void fault_loop(fault_fn *run, void *context)
{
	int before = fd_count();

	for (unsigned long n = 1; n < FAULTS_MAX; n++) {
		struct err e = ERR_INIT;
		bool failed;
		int done;

		mem_fail_at(n);
		done = run(context, &e);
		failed = mem_has_failed();
		mem_fail_at(0);
		if (!failed) {
			CU_ASSERT_EQUAL(done, 0);
			CU_ASSERT_EQUAL(e.code, ERR_NONE);
			CU_ASSERT_EQUAL(fd_count(), before);
			CU_ASSERT(n > 1);
			return;
		}
		if (done != 0 && e.code == ERR_NONE) {
			CU_FAIL("a failed allocation gave -1 without an error");
			return;
		}
		if (done == 0 && e.code != ERR_NONE) {
			CU_FAIL("an error was set, but the function reported success");
			return;
		}
	}
	CU_FAIL("the fault loop does not end");
}

static bool is_wanted(const struct test *t, int argc, char **argv)
{
	char whole[256];

	if (argc < 2)
		return true;
	(void)snprintf(whole, sizeof(whole), "%s/%s", t->suite, t->name);
	for (int i = 1; i < argc; i++)
		if (strstr(whole, argv[i]) != NULL)
			return true;
	return false;
}

int test_main(int argc, char **argv, const struct test *tests, size_t count)
{
	CU_pSuite suite = NULL;
	const char *open_suite = "";
	unsigned int failures;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (CU_initialize_registry() != CUE_SUCCESS)
		return 2;
	for (size_t i = 0; i < count; i++) {
		if (!is_wanted(&tests[i], argc, argv))
			continue;
		if (suite == NULL || strcmp(open_suite, tests[i].suite) != 0)
			suite = CU_add_suite(tests[i].suite, NULL, NULL);
		open_suite = tests[i].suite;
		if (suite == NULL || CU_add_test(suite, tests[i].name, tests[i].run) == NULL) {
			(void)fprintf(stderr, "cannot add %s/%s: %s\n", tests[i].suite,
				      tests[i].name, CU_get_error_msg());
			return 2;
		}
	}
	CU_basic_set_mode(CU_BRM_VERBOSE);
	if (CU_basic_run_tests() != CUE_SUCCESS)
		return 2;
	failures = CU_get_number_of_failures() + CU_get_number_of_tests_failed();
	CU_cleanup_registry();
	return failures == 0 ? 0 : 1;
}
