/*
 * program.h: the options that all our programs have, and their policy.
 *
 *	static const struct program_info info = {
 *	    .name = "cordon-gate", .about = "holds, streams and bytes"};
 *	scope_policy struct policy *policy = NULL;
 *	struct program_options options;
 *	int status;
 *
 *	if (program_start(&info, argc, argv, &options, &policy, &status) != 0)
 *		return status;
 *
 * --policy FILE (default PROGRAM_POLICY_PATH), --check-config, --dump-config, --help, --version.
 * cordonctl parses its sub-commands behind these options: it sets takes_words and calls
 * program_options, then program_policy where a sub-command needs the policy.
 */
#ifndef CORDON_CORE_PROGRAM_H
#define CORDON_CORE_PROGRAM_H

#include "runners/core/policy.h"

#include <stdbool.h>

#define PROGRAM_VERSION     "0.1"
#define PROGRAM_POLICY_PATH "/etc/cordon/policy.yaml"
/* Exit status for wrong options, as of sysexits.h's EX_USAGE. */
#define PROGRAM_EXIT_USAGE 64
/* Exit status for a policy that is refused, as of EX_CONFIG. */
#define PROGRAM_EXIT_CONFIG 78

struct program_info {
	const char *name;
	const char *about; /* one line for --help */
	const char *more;  /* further lines for --help, may be NULL */
	bool takes_words;  /* words after the options are allowed */
};

struct program_options {
	const char *policy_path;
	bool check_config;
	bool dump_config;
	int first_word; /* index of the first word in argv, argc when there is none */
};

/*
 * Parses argv. 0: go on. 1: the program ends now with *out_status; --help and --version have been
 * answered, or the mistake has been named on stderr.
 */
int program_options(const struct program_info *info, int argc, char **argv,
		    struct program_options *out, int *out_status)
    __attribute__((warn_unused_result));

/*
 * Loads the policy of the options. 0: go on. 1: the program ends with *out_status; the config
 * options have been answered, or the reason is on stderr.
 */
int program_policy(const struct program_info *info, const struct program_options *options,
		   struct policy **out, int *out_status) __attribute__((warn_unused_result));

/* Both, and log_open with the policy's level. */
int program_start(const struct program_info *info, int argc, char **argv,
		  struct program_options *out_options, struct policy **out, int *out_status)
    __attribute__((warn_unused_result));

#endif
