#include "runners/ctl/ctl.h"

#include "runners/core/store_migrate.h"

#include <unistd.h>

#define INSTALLED_SQL_DIR "/usr/share/cordon/sql"

struct progress {
	const struct ctl *ctl;
	unsigned int count;
};

static void show(unsigned int version, const char *name, void *arg)
{
	struct progress *p = arg;

	(void)version;
	p->count++;
	if (!p->ctl->json)
		(void)printf("applied %s\n", name);
}

int ctl_migrate(struct ctl *ctl)
{
	const char *dir = ctl_option(ctl, "--dir");
	struct store_options options = {.socket = ctl->policy->database.socket,
					.database = ctl->policy->database.name};
	struct progress progress = {.ctl = ctl};
	struct err e = ERR_INIT;
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (dir == NULL)
		dir = access("sql/migrations", R_OK) == 0 ? "sql" : INSTALLED_SQL_DIR;
	if (store_migrate(&options, dir, show, &progress, &e) != 0)
		return ctl_fail(ctl, &e);
	if (ctl->json)
		ctl_print_json(json_pack("{s:i}", "applied", (int)progress.count));
	else if (progress.count == 0)
		(void)puts("the schema is up to date; grants renewed");
	return 0;
}
