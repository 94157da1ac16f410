/* doctor: each prerequisite in one line: found, missing, how to get it. --leaks is leaks.c. */
#include "runners/ctl/report.h"

#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/ident.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

void report_line(struct report *r, const char *name, bool found, const char *detail,
		 const char *remedy)
{
	if (!found)
		r->missing++;
	if (r->ctl->json)
		(void)json_array_append_new(
		    r->items, json_pack("{s:s, s:b, s:s, s:s?}", "name", name, "found", found,
					"detail", detail, "remedy", found ? NULL : remedy));
	else
		(void)printf("%-8s %-22s %s%s%s\n",
			     found      ? "found"
			     : r->leaks ? "LEFT"
					: "MISSING",
			     name, detail, found || remedy == NULL ? "" : "  -> ",
			     found || remedy == NULL ? "" : remedy);
}

static void check_file(struct report *r, const char *name, const char *path, const char *remedy)
{
	report_line(r, name, access(path, F_OK) == 0, path, remedy);
}

static void check_number(struct report *r, const char *name, const char *path, uint64_t least,
			 const char *remedy)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	char detail[128];
	uint64_t value = 0;
	bool good;

	buf_init(&text, 256);
	good = fd_read_file(AT_FDCWD, path, &text, &e) == 0;
	if (good && text.len > 0)
		text.data[strcspn(text.data, "\n")] = '\0';
	good = good && num_u64(name, buf_text(&text), 0, UINT64_MAX, &value, &e) == 0 &&
	       value >= least;
	(void)snprintf(detail, sizeof(detail), "%llu (at least %llu)", (unsigned long long)value,
		       (unsigned long long)least);
	report_line(r, name, good, detail, remedy);
}

static void check_socket(struct report *r, const char *name, const char *file, int type,
			 const char *remedy)
{
	char path[256];
	struct err e = ERR_INIT;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", r->ctl->policy->paths.run, file);
	fd = fd_unix_connect(path, type, &e);
	report_line(r, name, fd >= 0, path,
		    e.sys == EACCES ? "this user may not connect: run doctor as root" : remedy);
	fd_close_at(&fd);
}

static void check_store(struct report *r)
{
	struct store *db = NULL;
	struct err e = ERR_INIT;
	char detail[128] = "no answer";
	bool good = ctl_store(r->ctl, &db, &e) == 0 &&
		    store_query_row(db, STMT_SCHEMA_VERSION, NULL, 0, &e) == 1;

	if (good)
		(void)snprintf(detail, sizeof(detail), "schema version %lld",
			       (long long)store_i64(db, 0));
	store_close(db);
	report_line(r, "database", good, good ? detail : e.text,
		    "start MariaDB, then cordonctl migrate");
}

static void check_space(struct report *r)
{
	struct statvfs info;
	char detail[128] = "no such folder";
	bool good = statvfs(r->ctl->policy->paths.data, &info) == 0 && info.f_blocks > 0;

	if (good) {
		uint64_t pct = info.f_bavail * 100 / info.f_blocks;

		(void)snprintf(detail, sizeof(detail), "%llu%% free in %s", (unsigned long long)pct,
			       r->ctl->policy->paths.data);
		good = pct >= (uint64_t)r->ctl->policy->data.min_free_pct;
	}
	report_line(r, "data space", good, detail, "free space or lower data.min_free_pct");
}

static void check_cgroups(struct report *r)
{
	scope_buf struct buf mounts = BUF_NONE;
	struct err e = ERR_INIT;
	const char *text;
	bool v2;
	bool v1;

	buf_init(&mounts, 1U << 20);
	(void)fd_read_file(AT_FDCWD, "/proc/self/mounts", &mounts, &e);
	text = buf_text(&mounts);
	v2 = strstr(text, " cgroup2 ") != NULL;
	v1 = strstr(text, " cgroup rw") != NULL && strstr(text, "memory") != NULL;
	report_line(r, "cgroups", v1 || v2,
		    v1 && v2 ? "hybrid"
		    : v2     ? "v2"
		    : v1     ? "v1"
			     : "none",
		    "mount the cgroup2 file system");
}

static void check_all(struct report *r)
{
	check_store(r);
	check_space(r);
	check_cgroups(r);
	check_number(r, "user namespaces", "/proc/sys/user/max_user_namespaces", 1024,
		     "sysctl user.max_user_namespaces=28633");
	check_number(r, "socket backlog", "/proc/sys/net/core/somaxconn", 4096,
		     "sysctl net.core.somaxconn=4096");
	check_file(r, "seccomp", "/proc/sys/kernel/seccomp/actions_avail",
		   "use a kernel with seccomp");
	check_file(r, "nginx", "/usr/sbin/nginx", "apt-get install nginx-light");
	check_socket(r, "cordon-fcgi", "web/fcgi.sock", SOCK_STREAM, "start cordon-fcgi");
	check_socket(r, "cordon-gate", "gate/control.sock", SOCK_STREAM, "start cordon-gate");
	check_socket(r, "cordon-runner", "notify-run/runner.sock", SOCK_SEQPACKET,
		     "start cordon-runner");
	check_socket(r, "input of runs", "input-run/input.sock", SOCK_SEQPACKET,
		     "start cordon-runner");
	check_socket(r, "cordon-box", "box/box.sock", SOCK_SEQPACKET, "start cordon-box (as root)");
}

int ctl_doctor(struct ctl *ctl)
{
	struct report r = {.ctl = ctl, .leaks = ctl_flag(ctl, "--leaks")};
	struct err e = ERR_INIT;
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	r.items = json_array();
	if (r.leaks) {
		if (leaks_check(&r, &e) != 0) {
			json_decref(r.items);
			return ctl_fail(ctl, &e);
		}
		if (!ctl->json && r.missing == 0)
			(void)puts("nothing is left behind");
	} else {
		check_all(&r);
	}
	if (ctl->json)
		ctl_print_json(json_incref(r.items));
	json_decref(r.items);
	return r.missing == 0 ? 0 : CTL_EXIT_FOUND;
}
