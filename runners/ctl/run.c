/* run, runs, logs, cancel, artifacts: face 1 from the command line. */
#include "runners/ctl/client.h"

#include "runners/base/buf.h"
#include "runners/base/fdio.h"
#include "runners/base/ident.h"
#include "runners/base/limits.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/proc.h"
#include "runners/base/str.h"

#include <fcntl.h>

#define RUNS               "/api/v1/sandbox/runs"
#define ARTIFACT_MAX_BYTES ((size_t)1 << 30)

struct printer {
	bool json;
	bool failed;
	struct client *client; /* run: whose run is canceled on Ctrl-C; NULL for logs */
	const char *id;
	bool canceled;
};

static volatile sig_atomic_t interrupts;

/* The first Ctrl-C cancels the run, the second leaves it to itself. */
static void on_interrupt(int number)
{
	(void)number;
	if (++interrupts > 1)
		_exit(130);
}

static void check_interrupt(void *arg)
{
	struct printer *p = arg;
	scope_json json_t *answer = NULL;
	struct err e = ERR_INIT;
	char path[128];

	if (interrupts == 0 || p->canceled || p->client == NULL)
		return;
	p->canceled = true;
	(void)fprintf(stderr,
		      "\ncordonctl: canceling run %s (again: leave it running and watch it with "
		      "cordonctl logs -f %s)\n",
		      p->id, p->id);
	(void)snprintf(path, sizeof(path), RUNS "/%s/cancel", p->id);
	if (client_call(p->client, "POST", path, NULL, NULL, &answer, &e) != 0)
		(void)fprintf(stderr, "cordonctl: %s\n", e.text);
}

static void write_output(const json_t *frame, int fd, struct printer *p)
{
	const char *encoding = json_string_value(json_object_get(frame, "encoding"));
	const json_t *data = json_object_get(frame, "data");
	scope_buf struct buf bytes = BUF_NONE;
	struct err e = ERR_INIT;

	buf_init(&bytes, LIMIT_RECORD_BYTES * 2);
	if (encoding != NULL && str_equal(encoding, "base64"))
		(void)str_unbase64(&bytes, json_string_value(data), json_string_length(data));
	else if (json_is_string(data))
		buf_add(&bytes, json_string_value(data), json_string_length(data));
	if (fd_write_full(fd, buf_text(&bytes), bytes.len, &e) != 0)
		p->failed = true;
}

static bool print_frame(const json_t *frame, void *arg)
{
	struct printer *p = arg;
	const char *type = json_string_value(json_object_get(frame, "type"));
	const char *event = json_string_value(json_object_get(frame, "event"));
	bool end =
	    type != NULL && event != NULL && str_equal(type, "event") && str_equal(event, "end");

	if (p->json) {
		ctl_print_json(json_deep_copy(frame));
		(void)fflush(stdout);
	} else if (type != NULL && str_equal(type, "stdout")) {
		write_output(frame, STDOUT_FILENO, p);
	} else if (type != NULL && str_equal(type, "stderr")) {
		write_output(frame, STDERR_FILENO, p);
	} else if (type != NULL && str_equal(type, "truncated")) {
		const char *reason = json_string_value(json_object_get(frame, "reason"));
		bool input = reason != NULL && str_starts(reason, "stdin");

		(void)fprintf(stderr, "cordonctl: %s was cut: %s\n", input ? "input" : "output",
			      reason == NULL ? "" : reason);
	}
	return end || p->failed;
}

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text == NULL ? "" : text;
}

/* The exit code of the command; what is no exit gives 1 and a line. */
static int final_status(const struct ctl *ctl, struct client *client, const char *id)
{
	scope_json json_t *run = NULL;
	struct err e = ERR_INIT;
	char path[128];
	const json_t *code;

	(void)snprintf(path, sizeof(path), RUNS "/%s", id);
	if (client_call(client, "GET", path, NULL, NULL, &run, &e) != 0)
		return client_fail(ctl, client, &e);
	code = json_object_get(run, "exit_code");
	if (ctl->json)
		ctl_print_json(json_incref(run));
	else if (!str_equal(text_of(run, "phase"), "completed"))
		(void)fprintf(stderr, "cordonctl: run %s %s: %s\n", id, text_of(run, "phase"),
			      text_of(run, "message"));
	return json_is_integer(code) ? (int)(json_integer_value(code) & 255) : CTL_EXIT_FAILED;
}

static int add_file(json_t *files, const char *path, struct err *e)
{
	scope_buf struct buf bytes = BUF_NONE;
	scope_buf struct buf text = BUF_NONE;
	const char *base = strrchr(path, '/');

	buf_init(&bytes, LIMIT_FILES_BYTES);
	buf_init(&text, LIMIT_FILES_BYTES * 2);
	if (fd_read_file(AT_FDCWD, path, &bytes, e) != 0)
		return -1;
	str_base64(&text, buf_text(&bytes), bytes.len);
	if (json_array_append_new(files,
				  json_pack("{s:s, s:s}", "path", base == NULL ? path : base + 1,
					    "content_b64", buf_text(&text))) != 0)
		return err_set(e, ERR_NOMEM, 0, "files");
	return 0;
}

/* --timeout, --trust, --network and --memory into the body. ERR_INVALID: wrong words. What the
 * service allows is the service's to say. */
static int add_limits(struct ctl *ctl, json_t *body, struct err *e)
{
	const char *timeout = ctl_option(ctl, "--timeout");
	const char *trust = ctl_option(ctl, "--trust");
	const char *memory = ctl_option(ctl, "--memory");
	const char *network = ctl_option(ctl, "--network");
	uint64_t number = 0;
	int bad = 0;

	bad |= json_object_set_new(body, "trust_level",
				   json_string(trust == NULL ? "standard" : trust));
	if (network != NULL)
		bad |= json_object_set_new(body, "network_policy", json_string(network));
	if (timeout != NULL) {
		if (num_u64("--timeout", timeout, 1, 3600, &number, e) != 0)
			return -1;
		bad |= json_object_set_new(body, "timeout_sec", json_integer((json_int_t)number));
	}
	if (memory != NULL) {
		if (num_u64("--memory", memory, 1, 1U << 30, &number, e) != 0)
			return -1;
		bad |= json_object_set_new(body, "resources",
					   json_pack("{s:I}", "memory_mb", (json_int_t)number));
	}
	return bad == 0 ? 0 : err_set(e, ERR_INVALID, 0, "--trust or --network is not UTF-8");
}

/* The body of POST /runs from the words; NULL after a message. */
static json_t *read_words(struct ctl *ctl, bool interactive, int *out_status)
{
	json_t *body = json_pack("{s:s}", "spec_version", "1.1");
	json_t *files = json_array();
	json_t *patterns = json_array();
	json_t *command = json_array();
	const char *image = ctl_option(ctl, "--image");
	const char *value;
	struct err e = ERR_INIT;
	bool bad_words;
	int bad = 0;

	bad |= json_object_set_new(body, "base_image", json_string(image == NULL ? "host" : image));
	bad |= json_object_set_new(body, "interactive", json_boolean(interactive));
	bad_words = add_limits(ctl, body, &e) != 0;
	while (e.code == ERR_NONE && (value = ctl_option(ctl, "--file")) != NULL)
		(void)add_file(files, value, &e);
	while ((value = ctl_option(ctl, "--artifact")) != NULL)
		bad |= json_array_append_new(patterns, json_string(value));
	bad |= json_object_set_new(body, "files", files);
	bad |= json_object_set_new(body, "capture_patterns", patterns);
	if (bad_words) {
		*out_status = ctl_usage(e.text);
	} else if (e.code != ERR_NONE) {
		*out_status = ctl_fail(ctl, &e);
	} else if (ctl->argc > 0 && !str_equal(ctl->argv[0], "--")) {
		*out_status = ctl_finish(ctl);
	} else if (ctl->argc < 2) {
		*out_status = ctl_usage("run needs -- and a command");
	} else {
		for (int i = 1; i < ctl->argc; i++)
			bad |= json_array_append_new(command, json_string(ctl->argv[i]));
		bad |= json_object_set(body, "command", command);
		*out_status = bad != 0 ? ctl_usage("a word of the command is not UTF-8") : 0;
	}
	json_decref(command);
	if (*out_status != 0) {
		json_decref(body);
		return NULL;
	}
	return body;
}

int ctl_run(struct ctl *ctl)
{
	scope_json json_t *body = NULL;
	scope_json json_t *run = NULL;
	bool interactive = ctl_flag(ctl, "-i") || ctl_flag(ctl, "--interactive");
	struct printer printer = {.json = ctl->json};
	struct client_reader reader = {print_frame, check_interrupt, &printer,
				       interactive ? STDIN_FILENO : -1};
	struct client client;
	struct err e = ERR_INIT;
	int status = 0;

	body = read_words(ctl, interactive, &status);
	if (body == NULL)
		return status;
	if (client_open(&client, &e) != 0)
		return ctl_fail(ctl, &e);
	if (client_call(&client, "POST", RUNS, "respond-async", body, &run, &e) != 0)
		return client_fail(ctl, &client, &e);
	printer.client = &client;
	printer.id = text_of(run, "id");
	if (proc_on_signal(SIGINT, on_interrupt, &e) != 0)
		return ctl_fail(ctl, &e);
	if (!ctl->json)
		(void)fprintf(stderr, "cordonctl: run %s\n", printer.id);
	if (client_stream(&client, printer.id, &reader, &e) != 0)
		return ctl_fail(ctl, &e);
	status = final_status(ctl, &client, printer.id);
	if (!ctl->json && json_array_size(json_object_get(body, "capture_patterns")) > 0)
		(void)fprintf(stderr, "cordonctl: cordonctl artifacts %s lists what it made\n",
			      printer.id);
	client_close(&client);
	return status;
}

static void print_run(const json_t *run)
{
	const json_t *code = json_object_get(run, "exit_code");
	char exit_text[16] = "-";

	if (json_is_integer(code))
		(void)snprintf(exit_text, sizeof(exit_text), "%d", (int)json_integer_value(code));
	(void)printf("%s  %-9s  %4s  %-18s  %s  %s\n", text_of(run, "id"), text_of(run, "phase"),
		     exit_text, text_of(run, "status_reason_code"), text_of(run, "created_at"),
		     text_of(run, "base_image"));
}

int ctl_runs(struct ctl *ctl)
{
	scope_json json_t *answer = NULL;
	const char *limit = ctl_option(ctl, "--limit");
	const char *phase = ctl_option(ctl, "--phase");
	struct client client;
	struct err e = ERR_INIT;
	char path[256];
	uint64_t count = 20;
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (limit != NULL && num_u64("--limit", limit, 1, 100, &count, &e) != 0)
		return ctl_usage(e.text);
	if (phase != NULL && strspn(phase, "abcdefghijklmnopqrstuvwxyz_") != strlen(phase))
		return ctl_usage("--phase is a word like completed");
	(void)snprintf(path, sizeof(path), RUNS "?limit=%llu%s%s", (unsigned long long)count,
		       phase == NULL ? "" : "&phase=", phase == NULL ? "" : phase);
	if (client_open(&client, &e) != 0)
		return ctl_fail(ctl, &e);
	if (client_call(&client, "GET", path, NULL, NULL, &answer, &e) != 0)
		return client_fail(ctl, &client, &e);
	if (ctl->json) {
		ctl_print_json(json_incref(answer));
		return 0;
	}
	(void)printf("%-36s  %-9s  %4s  %-18s  %-27s  %s\n", "RUN", "PHASE", "EXIT", "REASON",
		     "CREATED", "IMAGE");
	for (size_t i = 0; i < json_array_size(json_object_get(answer, "items")); i++)
		print_run(json_array_get(json_object_get(answer, "items"), i));
	return 0;
}

int ctl_logs(struct ctl *ctl)
{
	scope_json json_t *run = NULL;
	bool interactive = ctl_flag(ctl, "-i") || ctl_flag(ctl, "--interactive");
	bool follow = ctl_flag(ctl, "-f") || ctl_flag(ctl, "--follow") || interactive;
	const char *id = ctl_word(ctl);
	struct printer printer = {.json = ctl->json};
	struct client_reader reader = {print_frame, NULL, &printer,
				       interactive ? STDIN_FILENO : -1};
	struct client client;
	struct err e = ERR_INIT;
	char path[128];
	int status = ctl_finish(ctl);

	if (status != 0)
		return status;
	if (id == NULL || !ident_is_uuid(id))
		return ctl_usage("logs needs the id of a run");
	(void)snprintf(path, sizeof(path), RUNS "/%s", id);
	if (client_open(&client, &e) != 0)
		return ctl_fail(ctl, &e);
	if (client_call(&client, "GET", path, NULL, NULL, &run, &e) != 0)
		return client_fail(ctl, &client, &e);
	if (!follow && str_equal(text_of(run, "finished_at"), "")) {
		(void)fprintf(stderr, "cordonctl: run %s is %s: use -f to follow it\n", id,
			      text_of(run, "phase"));
		return CTL_EXIT_FOUND;
	}
	if (client_stream(&client, id, &reader, &e) != 0)
		return client_fail(ctl, &client, &e);
	/* how it ended is told; only `run` gives it as an exit code */
	if (!ctl->json)
		(void)final_status(ctl, &client, id);
	client_close(&client);
	return 0;
}

int ctl_cancel(struct ctl *ctl)
{
	scope_json json_t *answer = NULL;
	const char *id = ctl_word(ctl);
	struct client client;
	struct err e = ERR_INIT;
	char path[128];
	int status = ctl_finish(ctl);
	bool canceled;

	if (status != 0)
		return status;
	if (id == NULL || !ident_is_uuid(id))
		return ctl_usage("cancel needs the id of a run");
	(void)snprintf(path, sizeof(path), RUNS "/%s/cancel", id);
	if (client_open(&client, &e) != 0)
		return ctl_fail(ctl, &e);
	if (client_call(&client, "POST", path, NULL, NULL, &answer, &e) != 0)
		return client_fail(ctl, &client, &e);
	canceled = json_is_true(json_object_get(answer, "cancelled"));
	if (ctl->json)
		ctl_print_json(json_incref(answer));
	else
		(void)puts(canceled ? "canceled" : "it had ended before");
	return canceled ? 0 : CTL_EXIT_FOUND;
}

static int save_artifact(struct ctl *ctl, struct client *client, const char *id, const char *name,
			 const char *to)
{
	scope_buf struct buf path = BUF_NONE;
	scope_buf struct buf bytes = BUF_NONE;
	struct err e = ERR_INIT;
	const char *base = strrchr(name, '/');

	buf_init(&path, 8000);
	buf_init(&bytes, ARTIFACT_MAX_BYTES);
	buf_addf(&path, RUNS "/%s/artifacts/", id);
	str_percent_encode(&path, name, strlen(name), "/");
	if (to == NULL)
		to = base == NULL ? name : base + 1;
	if (client_fetch(client, buf_text(&path), &bytes, &e) != 0)
		return client_fail(ctl, client, &e);
	if (str_equal(to, "-")
		? fd_write_full(STDOUT_FILENO, buf_text(&bytes), bytes.len, &e) != 0
		: fd_replace_file(AT_FDCWD, to, buf_text(&bytes), bytes.len, 0644, &e) != 0)
		return ctl_fail(ctl, &e);
	if (ctl->json)
		ctl_print_json(json_pack("{s:s, s:I}", "saved", to, "size", (json_int_t)bytes.len));
	else if (!str_equal(to, "-"))
		(void)printf("%s: %zu bytes\n", to, bytes.len);
	return 0;
}

int ctl_artifacts(struct ctl *ctl)
{
	scope_json json_t *answer = NULL;
	const char *to = ctl_option(ctl, "--to");
	const char *id = ctl_word(ctl);
	const char *name = ctl_word(ctl);
	struct client client;
	struct err e = ERR_INIT;
	char path[128];
	int status = ctl_finish(ctl);
	json_t *items;

	if (status != 0)
		return status;
	if (id == NULL || !ident_is_uuid(id) || (to != NULL && name == NULL))
		return ctl_usage("artifacts needs the id of a run, and a name when --to is given");
	if (client_open(&client, &e) != 0)
		return ctl_fail(ctl, &e);
	if (name != NULL)
		return save_artifact(ctl, &client, id, name, to);
	(void)snprintf(path, sizeof(path), RUNS "/%s/artifacts", id);
	if (client_call(&client, "GET", path, NULL, NULL, &answer, &e) != 0)
		return client_fail(ctl, &client, &e);
	items = json_object_get(answer, "items");
	if (ctl->json)
		ctl_print_json(json_incref(answer));
	for (size_t i = 0; !ctl->json && i < json_array_size(items); i++) {
		const json_t *item = json_array_get(items, i);

		(void)printf("%12lld  %s\n",
			     (long long)json_integer_value(json_object_get(item, "size")),
			     text_of(item, "path"));
	}
	return 0;
}
