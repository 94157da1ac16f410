/*
 * bench_load: repeats one thing and prints how long each repetition took.
 *
 *	bench_load --count N [--threads T] [--gap-ms G] [--expect TEXT] [--bytes B] http METHOD URL
 *		[BODY]
 *	bench_load --count N [--threads T] [--gap-ms G] [--output FILE] spawn PROGRAM ARGS...
 *
 * http: one kept connection per thread (libcurl), the key from CORDON_API_KEY, the certificate from
 * CORDON_CA; a repetition is good when the status is 2xx and the body has TEXT, or B bytes (then it
 * is counted and dropped).
 * spawn: vfork, exec and wait; good when it exits with 0. FILE is its standard output, emptied
 * before each repetition; with several threads each has a file of its own, FILE.0 and so on.
 *
 * Output: a line of tests/lib/samples.h. The gap is slept before each repetition and does not
 * count.
 */
#include "runners/base/buf.h"
#include "runners/base/clock.h"
#include "runners/base/err.h"
#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "tests/lib/samples.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

#define ANSWER_BYTES (1U << 20)
#define TIMEOUT_MS   120000L

struct plan {
	uint64_t count;
	uint64_t threads;
	uint64_t gap_ms;
	const char *expect;
	uint64_t bytes; /* 0: the body is kept */
	const char *output;
	char **words;
	bool http;
};

struct worker {
	const struct plan *plan;
	pthread_t thread;
	int64_t *took_us;
	size_t number;
	size_t count;
	size_t good;
};

struct answer {
	struct buf text;
	uint64_t bytes;
	bool drop;
};

static size_t take(char *data, size_t size, size_t count, void *arg)
{
	struct answer *answer = arg;

	answer->bytes += size * count;
	if (!answer->drop)
		buf_add(&answer->text, data, size * count);
	return size * count;
}

static CURL *open_client(const struct plan *plan, struct answer *answer,
			 struct curl_slist **headers)
{
	CURL *curl = curl_easy_init();
	const char *key = getenv("CORDON_API_KEY");
	const char *ca = getenv("CORDON_CA");
	char line[128];

	(void)snprintf(line, sizeof(line), "X-API-KEY: %s", key == NULL ? "" : key);
	*headers = curl_slist_append(*headers, line);
	*headers = curl_slist_append(*headers, "Content-Type: application/json");
	*headers = curl_slist_append(*headers, "Expect:");
	if (curl == NULL || *headers == NULL)
		return NULL;
	(void)curl_easy_setopt(curl, CURLOPT_URL, plan->words[1]);
	(void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, plan->words[0]);
	(void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
	(void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
	if (ca != NULL)
		(void)curl_easy_setopt(curl, CURLOPT_CAINFO, ca);
	if (plan->words[2] != NULL)
		(void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, plan->words[2]);
	return curl;
}

static bool http_once(const struct plan *plan, CURL *curl, struct answer *answer)
{
	long status = 0;

	buf_reset(&answer->text);
	answer->bytes = 0;
	if (curl_easy_perform(curl) != CURLE_OK)
		return false;
	(void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	return status >= 200 && status < 300 &&
	       (plan->bytes == 0 || answer->bytes == plan->bytes) &&
	       (plan->expect == NULL || strstr(buf_text(&answer->text), plan->expect) != NULL);
}

static bool spawn_once(const struct plan *plan, posix_spawn_file_actions_t *actions)
{
	pid_t pid;
	int status;

	if (posix_spawnp(&pid, plan->words[0], actions, NULL, plan->words, environ) != 0)
		return false;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct curl_slist *headers = NULL;
	struct answer answer = {.drop = w->plan->bytes != 0};
	posix_spawn_file_actions_t actions;
	char output[4096];
	CURL *curl = NULL;

	buf_init(&answer.text, ANSWER_BYTES);
	(void)posix_spawn_file_actions_init(&actions);
	if (w->plan->output != NULL) {
		(void)snprintf(output, sizeof(output), w->plan->threads > 1 ? "%s.%zu" : "%s",
			       w->plan->output, w->number);
		(void)posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output,
						       O_WRONLY | O_CREAT | O_TRUNC, 0600);
	}
	if (w->plan->http)
		curl = open_client(w->plan, &answer, &headers);
	for (size_t i = 0; i < w->count; i++) {
		int64_t start;

		clock_sleep_us((int64_t)w->plan->gap_ms * CLOCK_US_PER_MS);
		start = clock_monotonic_us();
		if (w->plan->http ? curl != NULL && http_once(w->plan, curl, &answer)
				  : spawn_once(w->plan, &actions))
			w->good++;
		w->took_us[i] = clock_monotonic_us() - start;
	}
	if (curl != NULL)
		curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	buf_release(&answer.text);
	(void)posix_spawn_file_actions_destroy(&actions);
	return NULL;
}

static int parse(int argc, char **argv, struct plan *plan)
{
	struct err e = ERR_INIT;
	int at = 1;

	plan->threads = 1;
	for (; at + 1 < argc && str_starts(argv[at], "--"); at += 2) {
		int bad = 0;

		if (str_equal(argv[at], "--count"))
			bad = num_u64("count", argv[at + 1], 1, 10000000, &plan->count, &e);
		else if (str_equal(argv[at], "--threads"))
			bad = num_u64("threads", argv[at + 1], 1, 10000, &plan->threads, &e);
		else if (str_equal(argv[at], "--gap-ms"))
			bad = num_u64("gap-ms", argv[at + 1], 0, 60000, &plan->gap_ms, &e);
		else if (str_equal(argv[at], "--expect"))
			plan->expect = argv[at + 1];
		else if (str_equal(argv[at], "--output"))
			plan->output = argv[at + 1];
		else if (str_equal(argv[at], "--bytes"))
			bad =
			    num_u64("bytes", argv[at + 1], 1, UINT64_C(1) << 40, &plan->bytes, &e);
		else
			bad = -1;
		if (bad != 0)
			return -1;
	}
	if (at + 1 >= argc || plan->count == 0)
		return -1;
	plan->http = str_equal(argv[at], "http");
	plan->words = argv + at + 1;
	return plan->http && argc - at < 3 ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct plan plan = {0};
	struct samples samples;
	scope_free struct worker *workers = NULL;
	int64_t start;
	size_t each;
	int result;

	if (parse(argc, argv, &plan) != 0) {
		(void)fprintf(
		    stderr,
		    "usage: bench_load --count N [--threads T] [--gap-ms G] [--expect TEXT] "
		    "[--bytes B] [--output FILE] http METHOD URL [BODY] | spawn PROGRAM "
		    "ARGS...\n");
		return 64;
	}
	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
	each = plan.count / plan.threads;
	if (each == 0)
		each = 1;
	workers = mem_zalloc(plan.threads, sizeof(*workers));
	if (workers == NULL || samples_room(&samples, each * plan.threads) != 0)
		return 1;
	start = clock_monotonic_us();
	for (size_t i = 0; i < plan.threads; i++) {
		workers[i].plan = &plan;
		workers[i].number = i;
		workers[i].count = each;
		workers[i].took_us = samples.us + i * each;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			return 1;
	}
	for (size_t i = 0; i < plan.threads; i++) {
		(void)pthread_join(workers[i].thread, NULL);
		samples.good += workers[i].good;
	}
	samples.count = each * plan.threads;
	result = samples_print(&samples, clock_monotonic_us() - start, NULL);
	samples_release(&samples);
	return result == 0 ? 0 : 1;
}
