#include "runners/supervisor/preflight.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"
#include "runners/core/uhttp.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define DOCKER_SOCKET "/run/docker.sock"
#define SEARCHED      "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DOCKER_MS     2000
#define PROGRAM_MS    5000

/* The path of a program; false when there is none that this user may start. */
static bool find_program(const struct preflight *p, const char *name, char *out, size_t size)
{
	const char *at = p->path == NULL ? SEARCHED : p->path;

	while (*at != '\0') {
		size_t length = strcspn(at, ":");

		if ((size_t)snprintf(out, size, "%.*s/%s", (int)length, at, name) < size &&
		    access(out, X_OK) == 0)
			return true;
		at += length + (at[length] == ':' ? 1 : 0);
	}
	return false;
}

static bool has_program(const struct preflight *p, const char *name)
{
	char path[256];

	return find_program(p, name, path, sizeof(path));
}

static bool docker_answers(const struct preflight *p)
{
	struct uhttp_request request = {.method = "GET",
					.url = "http://docker/_ping",
					.socket = p->docker_socket == NULL ? DOCKER_SOCKET
									   : p->docker_socket,
					.timeout_ms = DOCKER_MS,
					.max_answer = 4096};
	struct uhttp_answer answer;
	struct err e = ERR_INIT;
	bool good;

	if (access(request.socket, F_OK) != 0 || uhttp_do(&request, &answer, &e) != 0)
		return false;
	good = answer.status == 200;
	uhttp_answer_release(&answer);
	return good;
}

bool preflight_git_fits(const char *text)
{
	const char *version = str_after(text, "git version ");
	char part[16];
	uint64_t number[2];
	struct err ignored = ERR_INIT;

	for (int i = 0; version != NULL && i < 2; i++) {
		size_t length = strspn(version, "0123456789");

		(void)snprintf(part, sizeof(part), "%.*s", (int)(length < 15 ? length : 15),
			       version);
		if (num_u64("version", part, 0, 1000000, &number[i], &ignored) != 0)
			return false;
		if (i == 0 && version[length] != '.')
			return false;
		version += length + 1;
	}
	return version != NULL && (number[0] > 2 || (number[0] == 2 && number[1] >= 15));
}

/* What a program prints, as far as it fits; the program is killed when it takes too long. */
static bool first_output(const char *program, char *const *argv, char *out, size_t size)
{
	scope_close int read_end = -1;
	scope_close int write_end = -1;
	struct proc_options options = PROC_OPTIONS_INIT;
	int64_t until = clock_monotonic_us() + PROGRAM_MS * CLOCK_US_PER_MS;
	struct err e = ERR_INIT;
	size_t used = 0;
	int pair[2];
	pid_t pid;
	int status;

	if (pipe2(pair, O_CLOEXEC) != 0)
		return false;
	read_end = pair[0];
	write_end = pair[1];
	options.program = program;
	options.argv = argv;
	options.stdout_fd = write_end;
	options.die_with_parent = true;
	if (proc_spawn(&options, &pid, &e) != 0)
		return false;
	fd_close_at(&write_end);
	for (;;) {
		struct pollfd wait = {.fd = read_end, .events = POLLIN};
		int64_t left_ms = (until - clock_monotonic_us()) / CLOCK_US_PER_MS;
		ssize_t got;

		if (left_ms <= 0 || used + 1 >= size || poll(&wait, 1, (int)left_ms) <= 0)
			break;
		got = read(read_end, out + used, size - used - 1);
		if (got <= 0)
			break;
		used += (size_t)got;
	}
	out[used] = '\0';
	(void)kill(pid, SIGKILL);
	return proc_wait(pid, &status, &e) == 0 && used > 0;
}

/* Asked again only when it is another file. */
static bool git_fits(struct preflight *p)
{
	char *argv[] = {(char[]){"git"}, (char[]){"--version"}, NULL};
	char path[256];
	char text[128];
	struct stat info;

	if (!find_program(p, "git", path, sizeof(path)) || stat(path, &info) != 0)
		return false;
	if (info.st_dev == p->git_device && info.st_ino == p->git_inode &&
	    info.st_mtime == p->git_mtime)
		return p->git_good;
	p->git_good = first_output(path, argv, text, sizeof(text)) && preflight_git_fits(text);
	p->git_device = info.st_dev;
	p->git_inode = info.st_ino;
	p->git_mtime = info.st_mtime;
	return p->git_good;
}

/* Steals host. A fact without reasons is one that the host could run. */
static int put(json_t *facts, const char *name, const char *const *reasons, size_t count,
	       json_t *host)
{
	json_t *list = json_array();
	int bad = 0;

	for (size_t i = 0; i < count; i++)
		bad |= json_array_append_new(list, json_string(reasons[i]));
	/* half of the reasons would be a wrong fact: bad counts, whatever was set */
	return bad | json_object_set_new(facts, name,
					 json_pack("{s:b, s:o, s:o}", "available", count == 0,
						   "reasons", list, "host", host));
}

static int put_one(json_t *facts, const char *name, bool good, const char *reason, json_t *host)
{
	return put(facts, name, &reason, good ? 0 : 1, host);
}

static json_t *machine(const struct utsname *u)
{
	return json_pack("{s:s, s:s}", "os", "linux", "arch", u->machine);
}

static json_t *no_mac(const struct utsname *u)
{
	return json_pack("{s:s, s:s, s:b}", "os", "linux", "arch", u->machine, "apple_silicon", 0);
}

static int put_macs(json_t *facts, const struct utsname *u)
{
	static const char *const reasons[] = {"macos_required", "apple_silicon_required"};
	static const char *const scaffold[] = {"macos_required", "apple_silicon_required",
					       "macos_helper_missing", "macos_template_missing",
					       "real_execution_not_implemented"};
	static const char *const seatbelt[] = {"macos_required", "apple_silicon_required",
					       "sandbox_exec_missing"};

	return put(facts, "vz_linux", reasons, ARRAY_LEN(reasons), no_mac(u)) |
	       put(facts, "vz_macos", scaffold, ARRAY_LEN(scaffold), no_mac(u)) |
	       put(facts, "seatbelt", seatbelt, ARRAY_LEN(seatbelt), no_mac(u));
}

static int put_lima(json_t *facts, const struct preflight *p, const struct utsname *u)
{
	bool wsl = strstr(u->release, "icrosoft") != NULL;
	const char *reasons[2];
	size_t count = 0;

	if (!has_program(p, "limactl"))
		reasons[count++] = "limactl_missing";
	if (wsl)
		reasons[count++] = "unsupported_platform";
	return put(facts, "lima", reasons, count,
		   json_pack("{s:s, s:s, s:s}", "os", "linux", "arch", u->machine, "variant",
			     wsl ? "wsl" : "native"));
}

static int put_worktree(json_t *facts, struct preflight *p)
{
	const char *reasons[2];
	size_t count = 0;

	if (!git_fits(p))
		reasons[count++] = "git_too_old_or_missing";
	if (!has_program(p, "unshare"))
		reasons[count++] = "unshare_required_on_linux";
	return put(facts, "worktree", reasons, count, json_pack("{s:s}", "platform", "linux"));
}

static int put_namespace(json_t *facts, const struct preflight_box *box, const struct utsname *u)
{
	json_t *host = machine(u);
	int bad;

	if (!box->known) {
		json_decref(host);
		return 0;
	}
	bad = json_object_set_new(host, "cgroup_mode", json_string(box_mode_name(box->mode))) |
	      json_object_set_new(host, "slots", json_integer((json_int_t)box->slots));
	return bad | put_one(facts, "namespace", box->good, "namespace_unavailable", host);
}

json_t *preflight_look(struct preflight *p, const struct preflight_box *box)
{
	json_t *facts = json_object();
	struct utsname u;
	int bad = 0;

	if (uname(&u) != 0)
		memset(&u, 0, sizeof(u));
	bad |= put_one(facts, "docker", docker_answers(p), "docker_unavailable", json_object()) |
	       put_one(facts, "firecracker",
		       access("/dev/kvm", R_OK | W_OK) == 0 && has_program(p, "firecracker"),
		       "firecracker_unavailable", json_object()) |
	       put_lima(facts, p, &u) | put_macs(facts, &u) | put_worktree(facts, p) |
	       put_namespace(facts, box, &u);
	if (bad == 0)
		return facts;
	json_decref(facts);
	return NULL;
}

struct write_work {
	const char *node;
	json_t *facts;
};

static int write_body(struct store *db, void *arg, struct err *e)
{
	struct write_work *w = arg;
	const char *name;
	json_t *fact;

	json_object_foreach (w->facts, name, fact) {
		scope_buf struct buf reasons = BUF_NONE;
		scope_buf struct buf host = BUF_NONE;
		struct store_value in[] = {
		    SV_TEXT(w->node), SV_TEXT(name),
		    SV_I64(json_is_true(json_object_get(fact, "available")) ? 1 : 0), SV_NULL,
		    SV_NULL};

		buf_init(&reasons, 4096);
		buf_init(&host, 1U << 20);
		if (json_write(&reasons, json_object_get(fact, "reasons"), e) != 0 ||
		    json_write(&host, json_object_get(fact, "host"), e) != 0)
			return -1;
		in[3] = SV_BYTES(buf_text(&reasons), reasons.len);
		in[4] = SV_BYTES(buf_text(&host), host.len);
		if (store_exec(db, STMT_FACT_PUT, in, ARRAY_LEN(in), NULL, e) != 0)
			return -1;
	}
	return 0;
}

int preflight_write(struct store *db, const char *node, json_t *facts, struct err *e)
{
	struct write_work w = {.node = node, .facts = facts};

	return store_retry(db, write_body, &w, e);
}
