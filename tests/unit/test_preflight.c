/* test_preflight: what a host is found to have, in folders and behind sockets of the test's own. */
#include "runners/base/fdio.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/supervisor/preflight.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

static void program(const char *name, const char *text)
{
	char path[300];
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
	CU_ASSERT_EQUAL_FATAL(fd_replace_file(AT_FDCWD, path, text, strlen(text), 0755, &e), 0);
}

static void no_program(const char *name)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
	(void)unlink(path);
}

/* The reasons of a runtime: "" for none, NULL for no fact. */
static const char *reasons_of(const json_t *facts, const char *name)
{
	static char text[400];
	const json_t *fact = json_object_get(facts, name);
	const json_t *list = json_object_get(fact, "reasons");

	text[0] = '\0';
	for (size_t i = 0; i < json_array_size(list); i++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
			       i == 0 ? "" : " ", json_text(json_array_get(list, i)));
	CU_ASSERT_EQUAL(json_is_true(json_object_get(fact, "available")), text[0] == '\0');
	return fact == NULL ? NULL : text;
}

static void test_bare_host(void)
{
	struct preflight p = {.docker_socket = "/nonexistent/docker.sock", .path = "/nonexistent"};
	struct preflight_box box = {.known = false};
	scope_json json_t *facts = preflight_look(&p, &box);

	ASSERT_TEXT(reasons_of(facts, "docker"), "docker_unavailable");
	ASSERT_TEXT(reasons_of(facts, "firecracker"), "firecracker_unavailable");
	ASSERT_TEXT(reasons_of(facts, "lima"), "limactl_missing");
	ASSERT_TEXT(reasons_of(facts, "vz_linux"), "macos_required apple_silicon_required");
	ASSERT_TEXT(reasons_of(facts, "vz_macos"),
		    "macos_required apple_silicon_required macos_helper_missing "
		    "macos_template_missing real_execution_not_implemented");
	ASSERT_TEXT(reasons_of(facts, "seatbelt"),
		    "macos_required apple_silicon_required sandbox_exec_missing");
	ASSERT_TEXT(reasons_of(facts, "worktree"),
		    "git_too_old_or_missing unshare_required_on_linux");
	/* too early to say: the old row stays */
	CU_ASSERT_PTR_NULL(json_object_get(facts, "namespace"));
}

static void test_programs(void)
{
	struct preflight p = {.docker_socket = "/nonexistent/docker.sock"};
	struct preflight_box box = {.known = true, .good = true, .mode = BOX_MODE_V2, .slots = 7};
	json_t *facts;
	const json_t *host;

	p.path = test_dir();
	program("limactl", "#!/bin/sh\n");
	program("unshare", "#!/bin/sh\n");
	program("git", "#!/bin/sh\necho git version 2.15.0\n");
	facts = preflight_look(&p, &box);
	ASSERT_TEXT(reasons_of(facts, "lima"), "");
	ASSERT_TEXT(reasons_of(facts, "worktree"), "");
	ASSERT_TEXT(reasons_of(facts, "namespace"), "");
	host = json_object_get(json_object_get(facts, "namespace"), "host");
	ASSERT_TEXT(json_text(json_object_get(host, "cgroup_mode")), "v2");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(host, "slots")), 7);
	host = json_object_get(json_object_get(facts, "lima"), "host");
	ASSERT_TEXT(json_text(json_object_get(host, "os")), "linux");
	CU_ASSERT_PTR_NOT_NULL(json_text(json_object_get(host, "arch")));
	json_decref(facts);
	/* another file is asked again */
	program("git", "#!/bin/sh\necho git version 2.14.9; sleep 0\n");
	box.good = false;
	facts = preflight_look(&p, &box);
	ASSERT_TEXT(reasons_of(facts, "worktree"), "git_too_old_or_missing");
	ASSERT_TEXT(reasons_of(facts, "namespace"), "namespace_unavailable");
	json_decref(facts);
	/* one that cannot be started, and one that says nothing */
	program("git", "#!/nonexistent/sh\n");
	facts = preflight_look(&p, &box);
	ASSERT_TEXT(reasons_of(facts, "worktree"), "git_too_old_or_missing");
	json_decref(facts);
	program("git", "#!/bin/sh\nexit 0 # silent\n");
	no_program("unshare");
	facts = preflight_look(&p, &box);
	ASSERT_TEXT(reasons_of(facts, "worktree"),
		    "git_too_old_or_missing unshare_required_on_linux");
	json_decref(facts);
}

struct engine {
	int fd;
	const char *answer;
};

/* Answers one request. */
static void *serve(void *arg)
{
	struct engine *engine = arg;
	char request[1000];
	int client = accept(engine->fd, NULL, NULL);

	CU_ASSERT(read(client, request, sizeof(request)) > 0);
	CU_ASSERT(write(client, engine->answer, strlen(engine->answer)) > 0);
	(void)close(client);
	return NULL;
}

static void docker_is(const char *answer, const char *want)
{
	struct preflight_box box = {.known = false};
	struct preflight p = {.path = "/nonexistent"};
	scope_json json_t *facts = NULL;
	struct engine engine = {.answer = answer};
	char path[200];
	struct err e = ERR_INIT;
	pthread_t thread;

	(void)snprintf(path, sizeof(path), "%s/docker.sock", test_dir());
	engine.fd = fd_unix_listen(path, SOCK_STREAM, 0600, 5, &e);
	CU_ASSERT_FATAL(engine.fd >= 0);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, serve, &engine), 0);
	p.docker_socket = path;
	facts = preflight_look(&p, &box);
	(void)pthread_join(thread, NULL);
	(void)close(engine.fd);
	ASSERT_TEXT(reasons_of(facts, "docker"), want);
	(void)unlink(path);
}

static void test_docker(void)
{
	docker_is("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK", "");
	docker_is("HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n", "docker_unavailable");
	docker_is("no HTTP at all\r\n\r\n", "docker_unavailable");
}

static void test_git_versions(void)
{
	static const char *const good[] = {
	    "git version 2.15", "git version 2.15.0\n",         "git version 2.39.5\n",
	    "git version 3.0",  "git version 2.41.0.windows.1", "git version 10.1"};
	static const char *const bad[] = {"",
					  "git",
					  "git version",
					  "git version 2",
					  "git version 2.",
					  "git version 2.14.99",
					  "git version 1.99",
					  "git version x.y",
					  "git version 2-15",
					  "version 2.39",
					  "git version 99999999999999999999.1"};

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		CU_ASSERT(preflight_git_fits(good[i]));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CU_ASSERT(!preflight_git_fits(bad[i]));
}

static const struct test tests[] = {
    {"preflight", "a bare host", test_bare_host},
    {"preflight", "programs", test_programs},
    {"preflight", "docker", test_docker},
    {"preflight", "versions of git", test_git_versions},
};

TEST_MAIN(tests)
