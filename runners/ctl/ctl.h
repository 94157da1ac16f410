/*
 * ctl.h: what cordonctl's commands share. A command is one row in main.c's table and one file.
 *
 * Exit codes: 0 done; 1 it failed; 2 something was found (doctor) or not found; 64 wrong words; 78
 * the policy is refused; `run` gives the exit code of the command that ran.
 */
#ifndef CORDON_CTL_CTL_H
#define CORDON_CTL_CTL_H

#include "runners/base/err.h"
#include "runners/core/json.h"
#include "runners/core/program.h"
#include "runners/core/store.h"

#define CTL_EXIT_FAILED 1
#define CTL_EXIT_FOUND  2

struct ctl {
	const char *policy_path;
	struct policy *policy; /* NULL for commands that speak HTTPS */
	bool json;
	int argc; /* words behind the command's name, options taken out as they are read */
	char **argv;
};

typedef int ctl_command(struct ctl *ctl);

ctl_command ctl_migrate;
ctl_command ctl_key;
ctl_command ctl_policy;
ctl_command ctl_sweep;
ctl_command ctl_image;
ctl_command ctl_run;
ctl_command ctl_runs;
ctl_command ctl_logs;
ctl_command ctl_cancel;
ctl_command ctl_artifacts;
ctl_command ctl_trace;
ctl_command ctl_doctor;
ctl_command ctl_egress;

/* Takes "--name VALUE" or "--name=VALUE" out of the words; NULL if absent. Exits the reading at
 * "--". */
const char *ctl_option(struct ctl *ctl, const char *name);
/* Takes "--name" out of the words. */
bool ctl_flag(struct ctl *ctl, const char *name);
/* The next word that is no option, or NULL. An unknown option is named on stderr: check ctl_finish.
 */
const char *ctl_word(struct ctl *ctl);
/* 0 when all words were used, else a message and PROGRAM_EXIT_USAGE. */
int ctl_finish(struct ctl *ctl);

int ctl_usage(const char *message);
/* Prints "cordonctl: text" (with --json an object on stderr) and returns CTL_EXIT_FAILED. */
int ctl_fail(const struct ctl *ctl, const struct err *e);
/* Prints a JSON value as one line and releases it. */
void ctl_print_json(json_t *value);
int ctl_store(struct ctl *ctl, struct store **out, struct err *e);

#endif
