#include "tests/lib/boxrig.h"

#include "runners/base/clock.h"
#include "runners/base/fdio.h"
#include "runners/base/num.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CAPTURE_BYTES ((size_t)64 << 20)
#define USER_ID       1000

static char env_path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
static char env_home[] = "HOME=/workspace";
static char env_lang[] = "LANG=C.UTF-8";
static char *const standard_env[] = {env_path, env_home, env_lang, NULL};

static int binary(const char *name, char *out, size_t size)
{
	char self[4096];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *where;

	if (length < 0)
		return -1;
	self[length] = '\0';
	/* build/tests/<kind>/<program> */
	where = memrchr(self, '/', (size_t)length);
	for (int i = 0; i < 2 && where != NULL; i++)
		where = memrchr(self, '/', (size_t)(where - self));
	if (where == NULL)
		return -1;
	return snprintf(out, size, "%.*s/bin/%s", (int)(where - self), self, name) < (int)size ? 0
											       : -1;
}

bool rig_possible(char *why, size_t size)
{
	char path[4096];

	if (geteuid() != 0) {
		(void)snprintf(why, size, "needs root");
		return false;
	}
	if (binary("cordon-box", path, sizeof(path)) != 0 || access(path, X_OK) != 0) {
		(void)snprintf(why, size, "cordon-box is not built");
		return false;
	}
	return true;
}

int rig_slow(void)
{
	const char *text = getenv("CORDON_TEST_SLOW");
	struct err ignored = ERR_INIT;
	uint64_t factor;

	return text != NULL && num_u64("CORDON_TEST_SLOW", text, 1, 100, &factor, &ignored) == 0
		   ? (int)factor
		   : 1;
}

/* --- events --------------------------------------------------------------------------------- */

static void on_reply(void *ctx, const struct box_reply *reply)
{
	struct rig *r = ctx;

	if (r->reply_count < RIG_MAX_BOXES * 2)
		r->replies[r->reply_count++] = *reply;
}

static void on_list_entry(void *ctx, const struct box_reply *reply)
{
	struct rig *r = ctx;

	r->entries++;
	r->entry = *reply;
}

static void on_died(void *ctx, const struct box_reply *reply)
{
	struct rig *r = ctx;

	r->died = *reply;
	r->died_count++;
}

static const struct boxclient_events box_events = {
    .reply = on_reply, .entry = on_list_entry, .died = on_died};

static void on_welcome(void *ctx, const struct agent_welcome *welcome)
{
	struct rig_box *b = ctx;

	b->welcome = *welcome;
	b->welcomed = true;
}

static void on_started(void *ctx, uint32_t channel, uint32_t pid)
{
	struct rig_box *b = ctx;

	(void)channel;
	b->started = true;
	b->pid = pid;
}

static void on_output(void *ctx, uint32_t channel, enum agent_stream stream, uint64_t offset,
		      const void *data, size_t length)
{
	struct rig_box *b = ctx;
	int which = stream == AGENT_STREAM_ERR ? 1 : 0;
	struct err e = ERR_INIT;

	buf_add(&b->out[which], data, length);
	b->out_bytes[which] = offset + length;
	if (!b->hold)
		(void)agent_ack(&b->agent, channel, stream, offset + length, &e);
}

static void on_exited(void *ctx, uint32_t channel, const struct agent_exit *status)
{
	struct rig_box *b = ctx;
	struct err e = ERR_INIT;

	b->status = *status;
	b->exited = true;
	b->exited_us = clock_monotonic_us();
	if (!b->hold)
		(void)agent_ack_exit(&b->agent, channel, &e);
}

static void on_input(void *ctx, uint32_t channel, uint64_t offset, bool closed)
{
	struct rig_box *b = ctx;

	(void)channel;
	b->in_taken = offset;
	b->in_closed |= closed;
}

static void on_entry(void *ctx, uint32_t tag, const struct agent_entry *entry)
{
	struct rig_box *b = ctx;

	(void)tag;
	if (b->entry_count < RIG_MAX_ENTRIES) {
		memcpy(b->entries[b->entry_count].path, entry->path, entry->path_length);
		b->entries[b->entry_count].path[entry->path_length] = '\0';
		b->entries[b->entry_count].kind = entry->kind;
		b->entries[b->entry_count].size = entry->size;
	}
	b->entry_count++;
}

static void on_info(void *ctx, uint32_t tag, const struct agent_info *info)
{
	struct rig_box *b = ctx;

	(void)tag;
	b->info = *info;
	memcpy(b->info_name, info->name, info->name_length);
	b->info_name[info->name_length] = '\0';
	b->info.name = b->info_name;
	buf_add(&b->info_names, b->info_name, info->name_length + 1);
	b->info_count++;
}

static void on_data(void *ctx, uint32_t tag, uint64_t offset, const void *data, size_t length)
{
	struct rig_box *b = ctx;

	(void)tag;
	(void)offset;
	buf_add(&b->data, data, length);
}

static void on_result(void *ctx, uint32_t tag, const uint64_t values[AGENT_RESULT_VALUES])
{
	struct rig_box *b = ctx;

	if (tag >= RIG_PING_TAG) {
		if (tag < RIG_DEAF_TAG)
			b->ping_tag = tag;
		return;
	}
	b->result_tag = tag;
	memcpy(b->values, values, sizeof(b->values));
}

static void on_error(void *ctx, uint32_t tag, const struct agent_error *error)
{
	struct rig_box *b = ctx;

	b->error_tag = tag;
	b->error = *error;
}

static const struct agent_events agent_events = {
    .welcome = on_welcome,
    .started = on_started,
    .output = on_output,
    .exited = on_exited,
    .input = on_input,
    .entry = on_entry,
    .info = on_info,
    .data = on_data,
    .result = on_result,
    .error = on_error,
};

/* --- cordon-box ----------------------------------------------------------------------------- */

/* A block of 2^22 ids by pid, far from where a stack takes its own. */
static unsigned int first_block(void)
{
	return (0x200U + (unsigned int)getpid() % 0x100U) << 22;
}

static int write_limits(const struct rig *r, unsigned int slots, char *path, size_t size)
{
	struct err e = ERR_INIT;
	char text[512];
	const char *more = getenv("CORDON_BOX_LIMITS");

	(void)snprintf(path, size, "%s/box.limits", r->dir);
	(void)snprintf(text, sizeof(text), "uid_base=%u\nslots=%u\nhost_reserve_mb=1024\n%.200s\n",
		       first_block(), slots, more == NULL ? "" : more);
	for (char *p = text; *p != '\0'; p++)
		if (*p == ' ')
			*p = '\n';
	return fd_replace_file(AT_FDCWD, path, text, strlen(text), 0600, &e);
}

/* Starts cordon-box; mode: NULL or an option with which it does one thing and leaves. */
static int spawn_box(const struct rig *r, const char *run_name, const char *instance,
		     const char *limits, const char *mode, pid_t *out_pid)
{
	char program[4096];
	char run[96];
	char data[96];
	char name[] = "cordon-box";
	char options_text[][12] = {"--run-dir", "--data-dir", "--instance", "--limits", "--uid"};
	char user[] = "root";
	char *argv[] = {name,
			options_text[0],
			run,
			options_text[1],
			data,
			options_text[2],
			(char *)(uintptr_t)instance,
			options_text[3],
			(char *)(uintptr_t)limits,
			options_text[4],
			user,
			NULL,
			NULL,
			NULL,
			NULL};
	size_t argc = 11;
	char slice_option[] = "--slice";
	char *slice = getenv("CORDON_BOX_SLICE");
	struct proc_options options = PROC_OPTIONS_INIT;
	struct err e = ERR_INIT;

	if (binary("cordon-box", program, sizeof(program)) != 0)
		return -1;
	(void)snprintf(run, sizeof(run), "%s/%s", r->dir, run_name);
	(void)snprintf(data, sizeof(data), "%s/data", r->dir);
	if (mkdir(data, 0700) != 0 && errno != EEXIST)
		return -1;
	if (slice != NULL) {
		argv[argc++] = slice_option;
		argv[argc++] = slice;
	}
	argv[argc] = (char *)(uintptr_t)mode;
	options.program = program;
	options.argv = argv;
	options.die_with_parent = true;
	return proc_spawn(&options, out_pid, &e);
}

static int start_process(struct rig *r, const char *limits)
{
	return spawn_box(r, "run", r->instance, limits, NULL, &r->pid);
}

int rig_probe(const struct rig *r, const char *run_name, const char *instance, const char *limits)
{
	char path[96];
	struct err e = ERR_INIT;
	pid_t pid;
	int status;

	(void)snprintf(path, sizeof(path), "%s/%s", r->dir,
		       limits == NULL ? "box.limits" : "other.limits");
	if (limits != NULL &&
	    fd_replace_file(AT_FDCWD, path, limits, strlen(limits), 0600, &e) != 0)
		return -1;
	if (spawn_box(r, run_name == NULL ? "run" : run_name,
		      instance == NULL ? r->instance : instance, path, "--probe", &pid) != 0 ||
	    proc_wait(pid, &status, &e) != 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int rig_end_all(const struct rig *r)
{
	char path[96];
	struct err e = ERR_INIT;
	pid_t pid;
	int status;

	(void)snprintf(path, sizeof(path), "%s/box.limits", r->dir);
	if (spawn_box(r, "run", r->instance, path, "--end-all", &pid) != 0 ||
	    proc_wait(pid, &status, &e) != 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int connect_box(struct rig *r)
{
	char path[128];
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;

	(void)snprintf(path, sizeof(path), "%s/run/box/box.sock", r->dir);
	while (clock_monotonic_us() < until) {
		struct err e = ERR_INIT;

		if (boxclient_connect(&r->client, path, &e) == 0)
			return 0;
		if (waitpid(r->pid, NULL, WNOHANG) != 0)
			return -1;
		clock_sleep_us(2000);
	}
	return -1;
}

/* CORDON_TEST_DATA: a folder on another file system, for the data of this cordon-box. */
static int place_data(const struct rig *r)
{
	const char *top = getenv("CORDON_TEST_DATA");
	char made[200];
	char data[96];

	if (top == NULL)
		return 0;
	(void)snprintf(made, sizeof(made), "%s/data-XXXXXX", top);
	(void)snprintf(data, sizeof(data), "%s/data", r->dir);
	return mkdtemp(made) != NULL && symlink(made, data) == 0 ? 0 : -1;
}

int rig_start(struct rig *r, unsigned int slots)
{
	char limits[96];

	memset(r, 0, sizeof(*r));
	boxclient_init(&r->client, &box_events, r);
	(void)snprintf(r->dir, sizeof(r->dir), "/run/cbox-XXXXXX");
	(void)snprintf(r->instance, sizeof(r->instance), "t%ld", (long)getpid());
	if (mkdtemp(r->dir) == NULL || chmod(r->dir, 0755) != 0 || place_data(r) != 0 ||
	    write_limits(r, slots, limits, sizeof(limits)) != 0 || start_process(r, limits) != 0)
		return -1;
	return connect_box(r);
}

void rig_end_daemon(struct rig *r, int signal)
{
	(void)kill(r->pid, signal);
	(void)waitpid(r->pid, NULL, 0);
}

int rig_restart(struct rig *r)
{
	char limits[96];

	(void)snprintf(limits, sizeof(limits), "%s/box.limits", r->dir);
	if (start_process(r, limits) != 0)
		return -1;
	r->lost = false;
	return connect_box(r);
}

/* The first id of the user namespace of the process; 0 in the host's, as the zygote is. */
static int first_id(pid_t pid, uint64_t *out)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	char path[64];
	unsigned long inside;
	unsigned long outside;

	buf_init(&text, 4096);
	(void)snprintf(path, sizeof(path), "/proc/%ld/uid_map", (long)pid);
	if (fd_read_file(AT_FDCWD, path, &text, &e) != 0 ||
	    sscanf(buf_text(&text), "%lu %lu", &inside, &outside) != 2)
		return -1;
	*out = outside;
	return 0;
}

static pid_t find_child(const struct rig *r, uint64_t id)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	char path[64];
	char *rest;

	buf_init(&text, 65536);
	(void)snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)r->pid,
		       (long)r->pid);
	if (fd_read_file(AT_FDCWD, path, &text, &e) != 0)
		return 0;
	rest = text.data;
	while (rest != NULL && *rest != '\0') {
		uint64_t pid;
		uint64_t first;

		err_clear(&e);
		if (num_u64("pid", strsep(&rest, " "), 2, INT32_MAX, &pid, &e) == 0 &&
		    first_id((pid_t)pid, &first) == 0 && first == id)
			return (pid_t)pid;
	}
	return 0;
}

pid_t rig_zygote_pid(const struct rig *r)
{
	return find_child(r, 0);
}

pid_t rig_init_pid(const struct rig *r, unsigned int slot)
{
	return find_child(r, first_block() + slot * 65536U);
}

static void remove_tree(const char *dir)
{
	char rm[] = "/bin/rm";
	char flags[] = "-rf";
	char path[128];
	char *argv[] = {rm, flags, path, NULL};
	struct proc_options options = PROC_OPTIONS_INIT;
	struct err e = ERR_INIT;
	pid_t pid;
	int status;

	(void)snprintf(path, sizeof(path), "%s", dir);
	options.program = rm;
	options.argv = argv;
	if (proc_spawn(&options, &pid, &e) == 0)
		(void)proc_wait(pid, &status, &e);
}

bool rig_stop(struct rig *r)
{
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;
	int status = -1;
	bool ended = false;

	boxclient_release(&r->client);
	(void)kill(r->pid, SIGINT);
	while (!ended && clock_monotonic_us() < until) {
		ended = waitpid(r->pid, &status, WNOHANG) == r->pid;
		if (!ended)
			clock_sleep_us(2000);
	}
	if (!ended) {
		(void)kill(r->pid, SIGKILL);
		(void)waitpid(r->pid, &status, 0);
	}
	remove_tree(r->dir);
	return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* --- the loop ------------------------------------------------------------------------------- */

void rig_step(struct rig *r, int timeout_ms)
{
	struct pollfd fds[RIG_MAX_BOXES + 1];
	struct rig_box *who[RIG_MAX_BOXES + 1];
	nfds_t n = 0;

	fds[n] = (struct pollfd){.fd = boxclient_fd(&r->client), .events = POLLIN};
	if (boxclient_wants_write(&r->client))
		fds[n].events |= POLLOUT;
	who[n++] = NULL;
	for (int i = 0; i < RIG_MAX_BOXES; i++) {
		struct rig_box *b = r->boxes[i];

		if (b == NULL || agent_fd(&b->agent) < 0)
			continue;
		fds[n] = (struct pollfd){.fd = agent_fd(&b->agent), .events = POLLIN};
		if (agent_wants_write(&b->agent))
			fds[n].events |= POLLOUT;
		who[n++] = b;
	}
	if (poll(fds, n, timeout_ms) <= 0)
		return;
	for (nfds_t i = 0; i < n; i++) {
		struct err e = ERR_INIT;

		if (fds[i].revents == 0)
			continue;
		if (who[i] == NULL)
			r->lost |= boxclient_ready(&r->client, &e) != 0;
		else if (agent_ready(&who[i]->agent, &e) != 0)
			who[i]->connected = false;
	}
}

int rig_reply(struct rig *r, uint64_t tag, struct box_reply *out)
{
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;

	while (clock_monotonic_us() < until && !r->lost) {
		for (size_t i = 0; i < r->reply_count; i++) {
			if (r->replies[i].tag != tag)
				continue;
			*out = r->replies[i];
			r->replies[i] = r->replies[--r->reply_count];
			return 0;
		}
		rig_step(r, 100);
	}
	return -1;
}

/* --- boxes ---------------------------------------------------------------------------------- */

void rig_limits(struct box_limits *out)
{
	*out = (struct box_limits){.memory_bytes = UINT64_C(512) << 20,
				   .workspace_bytes = UINT64_C(64) << 20,
				   .workspace_inodes = 4096,
				   .tmp_bytes = UINT64_C(16) << 20,
				   .pids = 64,
				   .cpu_millis = 0};
}

static void prepare(struct rig *r, struct rig_box *b)
{
	memset(b, 0, sizeof(*b));
	b->rig = r;
	agent_init(&b->agent, &agent_events, b, 1);
	buf_init(&b->out[0], CAPTURE_BYTES);
	buf_init(&b->out[1], CAPTURE_BYTES);
	buf_init(&b->data, CAPTURE_BYTES);
	buf_init(&b->info_names, CAPTURE_BYTES);
	for (int i = 0; i < RIG_MAX_BOXES; i++)
		if (r->boxes[i] == NULL) {
			r->boxes[i] = b;
			break;
		}
}

uint64_t rig_make_send(struct rig *r, struct rig_box *b, struct box_wish *wish)
{
	struct box_limits standard;
	struct err e = ERR_INIT;
	uint64_t tag = ++r->next_tag;

	prepare(r, b);
	rig_limits(&standard);
	(void)snprintf(b->run_id, sizeof(b->run_id), "run-%llu", (unsigned long long)tag);
	wish->run_id = b->run_id;
	wish->image = "host";
	if (wish->limits == NULL)
		wish->limits = &standard;
	return boxclient_make(&r->client, tag, wish, &e) == 0 ? tag : 0;
}

int rig_make(struct rig *r, struct rig_box *b, struct box_wish *wish)
{
	return rig_created(r, b, rig_make_send(r, b, wish));
}

uint64_t rig_create_send(struct rig *r, struct rig_box *b, const struct box_limits *limits)
{
	struct box_wish wish = {.limits = limits};

	return rig_make_send(r, b, &wish);
}

int rig_connect(struct rig_box *b)
{
	struct err e = ERR_INIT;

	if (agent_connect(&b->agent, b->path, &e) != 0)
		return -1;
	b->connected = true;
	return 0;
}

int rig_created(struct rig *r, struct rig_box *b, uint64_t tag)
{
	struct box_reply reply;

	if (tag == 0 || rig_reply(r, tag, &reply) != 0)
		return -1;
	if (reply.code != BOX_OK) {
		(void)fprintf(stderr, "create: %s: %s\n", box_code_name((enum box_code)reply.code),
			      reply.text);
		return -1;
	}
	b->slot = reply.slot;
	if (str_copy(b->path, sizeof(b->path), reply.agent_path) != 0)
		return -1;
	return rig_connect(b);
}

int rig_create(struct rig *r, struct rig_box *b, const struct box_limits *limits)
{
	return rig_created(r, b, rig_create_send(r, b, limits));
}

int rig_destroy(struct rig *r, struct rig_box *b, struct box_reply *out)
{
	struct box_reply reply;
	struct err e = ERR_INIT;
	uint64_t tag = ++r->next_tag;
	int result = -1;

	if (boxclient_destroy(&r->client, tag, b->slot, b->run_id, 0, &e) == 0 &&
	    rig_reply(r, tag, &reply) == 0 && reply.code == BOX_OK)
		result = 0;
	if (result == 0 && out != NULL)
		*out = reply;
	agent_release(&b->agent);
	buf_release(&b->out[0]);
	buf_release(&b->out[1]);
	buf_release(&b->data);
	buf_release(&b->info_names);
	for (int i = 0; i < RIG_MAX_BOXES; i++)
		if (r->boxes[i] == b)
			r->boxes[i] = NULL;
	return result;
}

/* --- commands ------------------------------------------------------------------------------- */

static int exec_spec(struct rig_box *b, char *const *argv, bool with_stdin, bool pty)
{
	struct agent_exec spec = {.argv = argv,
				  .env = standard_env,
				  .cwd = "/workspace",
				  .uid = USER_ID,
				  .gid = USER_ID,
				  .nofile = 1024,
				  .grace_ms = AGENT_GRACE_MS,
				  .pty = pty ? 1 : 0,
				  .rows = pty ? RIG_ROWS : 0,
				  .cols = pty ? RIG_COLS : 0,
				  .stdin_mode = with_stdin ? AGENT_STDIN_STREAM : AGENT_STDIN_NONE};
	struct err e = ERR_INIT;

	b->started = false;
	b->exited = false;
	b->error_tag = 0;
	b->in_closed = false;
	b->in_taken = 0;
	buf_reset(&b->out[0]);
	buf_reset(&b->out[1]);
	return agent_exec(&b->agent, ++b->channel, &spec, &e);
}

int rig_exec(struct rig_box *b, char *const *argv, bool with_stdin)
{
	return exec_spec(b, argv, with_stdin, false);
}

int rig_exec_pty(struct rig_box *b, const char *script, bool with_stdin)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char *argv[] = {shell, option, (char *)(uintptr_t)script, NULL};

	return exec_spec(b, argv, with_stdin, true);
}

int rig_wait_exit(struct rig *r, struct rig_box *b, int timeout_ms)
{
	int64_t until = clock_monotonic_us() + timeout_ms * CLOCK_US_PER_MS;

	while (!b->exited && b->error_tag == 0 && b->connected && clock_monotonic_us() < until)
		rig_step(r, 50);
	return b->exited ? 0 : -1;
}

int rig_run(struct rig *r, struct rig_box *b, char *const *argv)
{
	if (rig_exec(b, argv, false) != 0)
		return -1;
	return rig_wait_exit(r, b, RIG_WAIT_MS);
}

int rig_sh(struct rig *r, struct rig_box *b, const char *script)
{
	char shell[] = "/bin/sh";
	char option[] = "-c";
	char *argv[] = {shell, option, (char *)(uintptr_t)script, NULL};

	return rig_run(r, b, argv);
}

int rig_result(struct rig *r, struct rig_box *b, uint32_t tag)
{
	int64_t until = clock_monotonic_us() + RIG_WAIT_MS * CLOCK_US_PER_MS;

	while (b->result_tag != tag && b->error_tag != tag && b->connected &&
	       clock_monotonic_us() < until)
		rig_step(r, 50);
	return b->result_tag == tag ? 0 : -1;
}

int rig_put_file(struct rig *r, struct rig_box *b, const char *path, uint32_t mode,
		 const void *data, size_t length)
{
	uint32_t tag = 0x10000 + (uint32_t)++r->next_tag;
	struct err e = ERR_INIT;

	if (agent_put_file(&b->agent, tag, path, mode, USER_ID, USER_ID, data, length, &e) != 0)
		return -1;
	return rig_result(r, b, tag);
}

bool rig_out_is(const struct rig_box *b, int which, const char *text)
{
	const struct buf *out = &b->out[which];

	return out->len == strlen(text) && memcmp(buf_text(out), text, out->len) == 0;
}

bool rig_out_has(const struct rig_box *b, int which, const char *text)
{
	return strstr(buf_text(&b->out[which]), text) != NULL;
}

/* --- what is left --------------------------------------------------------------------------- */

/* Names below a directory that contain a word. */
static int count_names(const char *dir, const char *word)
{
	DIR *list = opendir(dir);
	const struct dirent *entry;
	int count = 0;

	while (list != NULL && (entry = readdir(list)) != NULL)
		count += strstr(entry->d_name, word) != NULL ? 1 : 0;
	if (list != NULL)
		(void)closedir(list);
	return count;
}

/* Where hierarchies are mounted: v1 ones, the v2 one beside them, and v2 alone. */
static const char *const trees[] = {"memory",  "pids",  "cpu",     "cpuacct", "cpuset",
				    "freezer", "blkio", "unified", ""};

int rig_groups_left(const char *instance)
{
	char name[64];
	int count = 0;

	(void)snprintf(name, sizeof(name), "cordon-%s", instance);
	for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
		char path[128];

		(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", trees[i]);
		count += count_names(path, name);
	}
	return count;
}

int rig_remove_slice(const char *name, int *out_full)
{
	char path[160];
	int count = 0;

	*out_full = 0;
	for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
		(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s", trees[i], name);
		if (rmdir(path) == 0)
			count++;
		else if (errno != ENOENT)
			*out_full += 1;
	}
	return count;
}

int rig_remove_groups(const char *instance, unsigned int slots)
{
	char path[160];
	int count = 0;

	for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++)
		for (unsigned int slot = 0; slot < slots; slot++) {
			(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/cordon-%s/s%u",
				       trees[i], instance, slot);
			count += rmdir(path) == 0 ? 1 : 0;
		}
	return count;
}

static bool command_has(const char *pid, const char *word)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	char path[300];

	buf_init(&text, 65536);
	(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
	return fd_read_file(AT_FDCWD, path, &text, &e) == 0 && text.len > 0 &&
	       memmem(text.data, text.len, word, strlen(word)) != NULL;
}

/* Processes whose command line has the word. */
int rig_processes_left(const char *word)
{
	DIR *list = opendir("/proc");
	const struct dirent *entry;
	int count = 0;

	while (list != NULL && (entry = readdir(list)) != NULL)
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
		    command_has(entry->d_name, word))
			count++;
	if (list != NULL)
		(void)closedir(list);
	return count;
}

int rig_count_mounts(void)
{
	scope_buf struct buf text = BUF_NONE;
	struct err e = ERR_INIT;
	int count = 0;

	buf_init(&text, (size_t)1 << 20);
	if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &text, &e) != 0)
		return -1;
	for (size_t i = 0; i < text.len; i++)
		count += text.data[i] == '\n' ? 1 : 0;
	return count;
}
