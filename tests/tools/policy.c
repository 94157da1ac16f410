/*
 * policy: a policy file seen by the build and the private stack.
 *
 *	policy [--policy FILE] --check-config | --dump-config
 *	policy [--policy FILE] box-limits	box.limits for cordon-box
 *	policy doc				docs/policy.md
 */
#include "runners/base/str.h"
#include "runners/core/program.h"

static int print(struct buf *text)
{
	bool good = buf_ok(text) && fputs(buf_text(text), stdout) >= 0 && fflush(stdout) == 0;

	buf_release(text);
	return good ? 0 : 1;
}

int main(int argc, char **argv)
{
	static const struct program_info info = {.name = "policy",
						 .about = "policy files for build and tests",
						 .more = "commands: box-limits, doc\n",
						 .takes_words = true};
	scope_policy struct policy *policy = NULL;
	struct program_options options;
	struct buf text;
	int status;

	if (program_options(&info, argc, argv, &options, &status) != 0)
		return status;
	buf_init(&text, POLICY_FILE_BYTES);
	if (options.first_word < argc && str_equal(argv[options.first_word], "doc")) {
		policy_doc(&text);
		return print(&text);
	}
	if (program_policy(&info, &options, &policy, &status) != 0)
		return status;
	if (options.first_word >= argc || !str_equal(argv[options.first_word], "box-limits")) {
		(void)fprintf(stderr, "policy: no command (--help)\n");
		return PROGRAM_EXIT_USAGE;
	}
	policy_box_limits(policy, &text);
	return print(&text);
}
