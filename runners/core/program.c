#include "runners/core/program.h"

#include "runners/base/log.h"
#include "runners/base/str.h"

static void print_help(const struct program_info *info)
{
	printf("%s: %s\n\n"
	       "usage: %s [options]%s\n"
	       "  --policy FILE   the policy (default %s)\n"
	       "  --check-config  check the policy and end: 0 good, %d refused\n"
	       "  --dump-config   print the effective values and end\n"
	       "  --help          this text\n"
	       "  --version       the version\n",
	       info->name, info->about, info->name, info->takes_words ? " COMMAND ..." : "",
	       PROGRAM_POLICY_PATH, PROGRAM_EXIT_CONFIG);
	if (info->more != NULL)
		printf("\n%s", info->more);
}

static int wrong_usage(const struct program_info *info, const char *what, const char *word,
		       int *out_status)
{
	(void)fprintf(stderr, "%s: %s: %s (--help lists the options)\n", info->name, what, word);
	*out_status = PROGRAM_EXIT_USAGE;
	return 1;
}

/* Answers that were printed must have been written: 0 or an exit status. */
static int flush_status(void)
{
	return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : 1;
}

int program_options(const struct program_info *info, int argc, char **argv,
		    struct program_options *out, int *out_status)
{
	struct program_options options = {.policy_path = PROGRAM_POLICY_PATH, .first_word = argc};

	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];

		if (str_equal(word, "--policy")) {
			if (i + 1 >= argc)
				return wrong_usage(info, "needs a file", word, out_status);
			options.policy_path = argv[++i];
		} else if (str_starts(word, "--policy=")) {
			options.policy_path = str_after(word, "--policy=");
		} else if (str_equal(word, "--check-config")) {
			options.check_config = true;
		} else if (str_equal(word, "--dump-config")) {
			options.dump_config = true;
		} else if (str_equal(word, "--help") || str_equal(word, "-h")) {
			print_help(info);
			*out_status = flush_status();
			return 1;
		} else if (str_equal(word, "--version")) {
			printf("%s %s\n", info->name, PROGRAM_VERSION);
			*out_status = flush_status();
			return 1;
		} else if (word[0] == '-' && word[1] != '\0') {
			return wrong_usage(info, "unknown option", word, out_status);
		} else if (!info->takes_words) {
			return wrong_usage(info, "takes options only", word, out_status);
		} else {
			options.first_word = i;
			break;
		}
	}
	*out = options;
	return 0;
}

int program_policy(const struct program_info *info, const struct program_options *options,
		   struct policy **out, int *out_status)
{
	struct err e = ERR_INIT;
	struct policy *policy = NULL;
	struct buf text;

	if (policy_load(options->policy_path, &policy, &e) != 0) {
		(void)fprintf(stderr, "%s: %s\n", info->name, e.text);
		*out_status = PROGRAM_EXIT_CONFIG;
		return 1;
	}
	if (!options->check_config && !options->dump_config) {
		*out = policy;
		return 0;
	}
	*out_status = 0;
	if (options->dump_config) {
		buf_init(&text, POLICY_FILE_BYTES);
		policy_dump(policy, &text);
		*out_status =
		    buf_ok(&text) && fputs(buf_text(&text), stdout) >= 0 ? flush_status() : 1;
		buf_release(&text);
	}
	policy_free(policy);
	return 1;
}

int program_start(const struct program_info *info, int argc, char **argv,
		  struct program_options *out_options, struct policy **out, int *out_status)
{
	enum log_level level;

	if (program_options(info, argc, argv, out_options, out_status) != 0 ||
	    program_policy(info, out_options, out, out_status) != 0)
		return 1;
	if (log_level_parse((*out)->log.level, &level) != 0)
		level = LOG_INFO;
	log_open(info->name, "", level);
	return 0;
}
