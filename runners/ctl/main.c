/*
 * cordonctl: the operator's and user's command.
 *
 * Theory of operation. One process, one command, no state. `migrate`, `key`, `policy`, `sweep`,
 * `image`, `doctor` work on the host and read the policy file; they connect to the database as the
 * user who calls them. `egress` works on the host and reads its words only. `run`, `runs`, `logs`,
 * `trace` and the like are a client like any other: they speak HTTPS with a key from the
 * environment (CORDON_URL, CORDON_API_KEY, CORDON_CA) and never see the policy. Keys are never
 * taken from the command line, where every user of the host could read them.
 */
#include "runners/ctl/ctl.h"

#include "runners/base/log.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"

#include <unistd.h>

struct command {
	const char *name;
	ctl_command *run;
	bool needs_policy;
	const char *usage;
};

static const struct command commands[] = {
    {"migrate", ctl_migrate, true,
     "migrate [--dir SQL_DIR]: bring the database's schema and grants up to date"},
    {"key", ctl_key, true,
     "key create --tenant T --user U [--role user|admin|operator] [--scopes S] | key list | key revoke ID"},
    {"policy", ctl_policy, true,
     "policy check | policy install [--to FILE]: judge the policy, write box.limits"},
    {"sweep", ctl_sweep, true,
     "sweep: end what is overdue now (queue, dead runners, idempotency); takes runner.dead_after_ms + 2 s"},
    {"image", ctl_image, true, "image list: the images of this host and their digests"},
    {"doctor", ctl_doctor, true,
     "doctor [--leaks]: each prerequisite in a line; with --leaks what no live run explains"},
    {"egress", ctl_egress, false,
     "egress expand|pin TOKEN... | egress refresh --label L (--source ADDRESS TOKEN... | --remove) [--print];"
     " all with [--subdomains LIST] [--dns SERVERS] [--timeout S]: an allow list of ranges, addresses and names"},
    {"run", ctl_run, false,
     "run [-i] [--image I] [--timeout S] [--trust LEVEL] [--network POLICY] [--memory MIB] [--file P]... [--artifact GLOB]... -- CMD...:"
     " run a command, live output, its exit code; -i types stdin into it, which never ends for the command"},
    {"runs", ctl_runs, false, "runs [--limit N] [--phase P]: your runs, newest first"},
    {"logs", ctl_logs, false,
     "logs [-f] [-i] RUN: the output of a run that has ended; -f follows one that has not, -i also types stdin into it"},
    {"cancel", ctl_cancel, false, "cancel RUN: end it; waits until it has ended"},
    {"artifacts", ctl_artifacts, false,
     "artifacts RUN [NAME [--to FILE]]: what a run made; with a name download it (--to -: to stdout)"},
    {"trace", ctl_trace, false,
     "trace RUN: where the time of a run went, step by step in microseconds"},
};

static void print_commands(FILE *out)
{
	(void)fputs("Commands (all take --json):\n", out);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		(void)fprintf(out, "  %s\n", commands[i].usage);
}

static const struct command *current; /* the one that runs */

int ctl_usage(const char *message)
{
	(void)fprintf(stderr, "cordonctl: %s\n", message);
	if (current != NULL)
		(void)fprintf(stderr, "usage: cordonctl %s\n", current->usage);
	else
		print_commands(stderr);
	return PROGRAM_EXIT_USAGE;
}

int ctl_fail(const struct ctl *ctl, const struct err *e)
{
	if (ctl->json) {
		scope_json json_t *body =
		    json_pack("{s:s, s:s}", "error", err_code_name(e->code), "message", e->text);

		(void)json_dumpf(body, stderr, JSON_COMPACT);
		(void)fputc('\n', stderr);
	} else {
		(void)fprintf(stderr, "cordonctl: %s\n", e->text);
	}
	return CTL_EXIT_FAILED;
}

void ctl_print_json(json_t *value)
{
	(void)json_dumpf(value, stdout, JSON_COMPACT);
	(void)fputc('\n', stdout);
	json_decref(value);
}

static void drop(struct ctl *ctl, int at, int count)
{
	for (int i = at; i + count < ctl->argc; i++)
		ctl->argv[i] = ctl->argv[i + count];
	ctl->argc -= count;
}

const char *ctl_option(struct ctl *ctl, const char *name)
{
	for (int i = 0; i < ctl->argc && !str_equal(ctl->argv[i], "--"); i++) {
		const char *rest = str_after(ctl->argv[i], name);

		if (rest == NULL)
			continue;
		if (*rest == '=') {
			drop(ctl, i, 1);
			return rest + 1;
		}
		if (*rest == '\0' && i + 1 < ctl->argc) {
			const char *value = ctl->argv[i + 1];

			drop(ctl, i, 2);
			return value;
		}
	}
	return NULL;
}

bool ctl_flag(struct ctl *ctl, const char *name)
{
	for (int i = 0; i < ctl->argc && !str_equal(ctl->argv[i], "--"); i++) {
		if (str_equal(ctl->argv[i], name)) {
			drop(ctl, i, 1);
			return true;
		}
	}
	return false;
}

const char *ctl_word(struct ctl *ctl)
{
	const char *word = ctl->argc > 0 && ctl->argv[0][0] != '-' ? ctl->argv[0] : NULL;

	if (word != NULL)
		drop(ctl, 0, 1);
	return word;
}

int ctl_finish(struct ctl *ctl)
{
	char message[256];

	if (ctl->argc == 0)
		return 0;
	(void)snprintf(message, sizeof(message), "%s: %.200s",
		       ctl->argc == 1 && ctl->argv[0][0] == '-' ? "unknown, or without its value"
								: "unknown word",
		       ctl->argv[0]);
	return ctl_usage(message);
}

int ctl_store(struct ctl *ctl, struct store **out, struct err *e)
{
	struct store_options options = {.socket = ctl->policy->database.socket,
					.database = ctl->policy->database.name};

	return store_open(&options, out, e);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (str_equal(commands[i].name, name))
			return &commands[i];
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct program_info info = {
	    .name = "cordonctl",
	    .about = "operates Cordon and runs commands in it",
	    .more =
		"Words: COMMAND [OPTIONS], see `cordonctl help`.\nrun, runs and logs take the server and "
		"the key from CORDON_URL, CORDON_API_KEY and CORDON_CA.\n"
		"Exit codes: 0 done; 1 failed; 2 something was found (doctor) or not found; 64 wrong "
		"words; 78 the policy is refused;\nrun gives the exit code of the command that ran, "
		"and 1 for a run without one.\n",
	    .takes_words = true};
	struct program_options options;
	const struct command *command;
	struct ctl ctl = {0};
	const char *late;
	int status;

	/* --json may stand on either side of the command */
	if (argc > 1 && str_equal(argv[1], "--json")) {
		ctl.json = true;
		argv[1] = argv[0];
		argv++;
		argc--;
	}
	if (program_options(&info, argc, argv, &options, &status) != 0) {
		if (status == 0 && argc > 1 && str_equal(argv[1], "--help"))
			print_commands(stdout);
		return status;
	}
	log_open("cordonctl", "", LOG_WARNING);
	json_setup();
	if (options.check_config || options.dump_config)
		return program_policy(&info, &options, &ctl.policy, &status) != 0 ? status : 0;
	if (options.first_word >= argc || str_equal(argv[options.first_word], "help")) {
		print_commands(options.first_word >= argc ? stderr : stdout);
		return options.first_word >= argc ? PROGRAM_EXIT_USAGE : 0;
	}
	command = find_command(argv[options.first_word]);
	if (command == NULL)
		return ctl_usage("unknown command");
	ctl.policy_path = options.policy_path;
	ctl.argc = argc - options.first_word - 1;
	ctl.argv = argv + options.first_word + 1;
	current = command;
	ctl.json = ctl_flag(&ctl, "--json") || ctl.json;
	if (ctl_flag(&ctl, "--help") || ctl_flag(&ctl, "-h")) {
		(void)printf("usage: cordonctl %s\n", command->usage);
		return 0;
	}
	late = ctl_option(&ctl, "--policy");
	if (late != NULL) {
		options.policy_path = late;
		ctl.policy_path = late;
	}
	if (command->needs_policy && program_policy(&info, &options, &ctl.policy, &status) != 0) {
		if (str_equal(options.policy_path, PROGRAM_POLICY_PATH))
			(void)fprintf(stderr,
				      "cordonctl: name the policy with --policy FILE (private "
				      "stack: var/etc/policy.yaml)\n");
		if (ctl.json)
			(void)puts("{\"good\":false}");
		return status;
	}
	status = command->run(&ctl);
	policy_free(ctl.policy);
	return status;
}
