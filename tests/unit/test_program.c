/* test_program: the options that all programs have, and what they do with a policy. */
#include "runners/base/mem.h"
#include "runners/core/program.h"
#include "tests/lib/test.h"

#include <fcntl.h>

static const struct program_info plain = {.name = "p", .about = "a test"};
static const struct program_info wordy = {.name = "p", .about = "a test", .takes_words = true};

/* Output of the functions goes to a file while a test runs. */
static int saved_out;
static int saved_err;
static char captured[8192];

static void capture_begin(void)
{
	char path[256];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/out", test_dir());
	(void)fflush(stdout);
	saved_out = dup(1);
	saved_err = dup(2);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CU_ASSERT_FATAL(fd >= 0 && saved_out >= 0 && saved_err >= 0);
	(void)dup2(fd, 1);
	(void)dup2(fd, 2);
	(void)close(fd);
}

static void capture_end(void)
{
	ssize_t got;

	(void)fflush(stdout);
	(void)lseek(1, 0, SEEK_SET);
	got = read(1, captured, sizeof(captured) - 1);
	captured[got < 0 ? 0 : got] = '\0';
	(void)dup2(saved_out, 1);
	(void)dup2(saved_err, 2);
	(void)close(saved_out);
	(void)close(saved_err);
}

static int parse(const struct program_info *info, struct program_options *out, int *status,
		 const char *first, const char *second, const char *third)
{
	char *argv[] = {mem_dup("p"), mem_dup(first), mem_dup(second), mem_dup(third), NULL};
	int argc = 1;
	int done;

	while (argv[argc] != NULL)
		argc++;
	capture_begin();
	done = program_options(info, argc, argv, out, status);
	capture_end();
	/* options point into argv; what the tests read of them is copied text of their own */
	if (done == 0 && out->policy_path == argv[2])
		out->policy_path = second;
	for (int i = 0; i < 4; i++)
		mem_free(argv[i]);
	return done;
}

static void test_options(void)
{
	struct program_options o;
	int status = -1;

	CU_ASSERT_EQUAL(parse(&plain, &o, &status, NULL, NULL, NULL), 0);
	ASSERT_TEXT(o.policy_path, PROGRAM_POLICY_PATH);
	CU_ASSERT(!o.check_config && !o.dump_config);
	CU_ASSERT_EQUAL(o.first_word, 1);
	CU_ASSERT_EQUAL(parse(&plain, &o, &status, "--policy", "/x.yaml", "--check-config"), 0);
	ASSERT_TEXT(o.policy_path, "/x.yaml");
	CU_ASSERT(o.check_config);
	CU_ASSERT_EQUAL(parse(&wordy, &o, &status, "--dump-config", "key", "--unknown"), 0);
	CU_ASSERT(o.dump_config);
	CU_ASSERT_EQUAL(o.first_word, 2);
}

static void test_mistakes(void)
{
	struct program_options o;
	int status = -1;

	CU_ASSERT_EQUAL(parse(&plain, &o, &status, "--polcy", "x", NULL), 1);
	CU_ASSERT_EQUAL(status, PROGRAM_EXIT_USAGE);
	ASSERT_TEXT(captured, "p: unknown option: --polcy (--help lists the options)\n");
	CU_ASSERT_EQUAL(parse(&plain, &o, &status, "--policy", NULL, NULL), 1);
	ASSERT_TEXT(captured, "p: needs a file: --policy (--help lists the options)\n");
	CU_ASSERT_EQUAL(parse(&plain, &o, &status, "word", NULL, NULL), 1);
	ASSERT_TEXT(captured, "p: takes options only: word (--help lists the options)\n");
}

static void test_answers(void)
{
	struct program_options o;
	int status = -1;

	CU_ASSERT_EQUAL(parse(&plain, &o, &status, "--version", NULL, NULL), 1);
	CU_ASSERT_EQUAL(status, 0);
	ASSERT_TEXT(captured, "p " PROGRAM_VERSION "\n");
	CU_ASSERT_EQUAL(parse(&plain, &o, &status, "--help", NULL, NULL), 1);
	CU_ASSERT_EQUAL(status, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(captured, "usage: p [options]\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(captured, "--dump-config"));
}

static void test_policy(void)
{
	static const char good[] = "public_url: https://a\nnode: n1\n";
	struct program_options o = {.dump_config = true};
	scope_policy struct policy *policy = NULL;
	int status = -1;

	o.policy_path = test_file("good.yaml", good, strlen(good));
	capture_begin();
	CU_ASSERT_EQUAL(program_policy(&plain, &o, &policy, &status), 1);
	capture_end();
	CU_ASSERT_EQUAL(status, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(captured, "public_url: \"https://a\"\nnode: \"n1\"\n"));
	o.dump_config = false;
	o.check_config = true;
	capture_begin();
	CU_ASSERT_EQUAL(program_policy(&plain, &o, &policy, &status), 1);
	capture_end();
	CU_ASSERT_EQUAL(status, 0);
	ASSERT_TEXT(captured, "");
	CU_ASSERT_PTR_NULL(policy);
	o.check_config = false;
	CU_ASSERT_EQUAL(program_policy(&plain, &o, &policy, &status), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(policy);
	ASSERT_TEXT(policy->node, "n1");
}

static void test_policy_refused(void)
{
	static const char bad[] = "public_url: https://a\nnode: 1\n";
	struct program_options o = {.check_config = true};
	struct policy *policy = NULL;
	char wanted[600];
	int status = -1;

	o.policy_path = test_file("bad.yaml", bad, strlen(bad));
	capture_begin();
	CU_ASSERT_EQUAL(program_policy(&plain, &o, &policy, &status), 1);
	capture_end();
	CU_ASSERT_EQUAL(status, PROGRAM_EXIT_CONFIG);
	(void)snprintf(wanted, sizeof(wanted),
		       "p: %s:2:7: node: must be text; put quotes around it\n", o.policy_path);
	ASSERT_TEXT(captured, wanted);
	CU_ASSERT_PTR_NULL(policy);
}

static const struct test tests[] = {
    {"program", "options", test_options},
    {"program", "mistakes", test_mistakes},
    {"program", "help and version", test_answers},
    {"program", "policy", test_policy},
    {"program", "policy refused", test_policy_refused},
};

TEST_MAIN(tests)
