/* test_policy: what is taken, what is refused and at which place, and that memory may end anywhere.
 */
#include "runners/base/mem.h"
#include "runners/core/policy.h"
#include "tests/lib/test.h"

#define URL "public_url: https://localhost:8443\n"

static void refuse(const char *text, const char *message)
{
	scope_policy struct policy *policy = NULL;
	struct err e = ERR_INIT;

	CU_ASSERT_EQUAL(policy_parse("p.yaml", text, strlen(text), &policy, &e), -1);
	ASSERT_TEXT(e.text, message);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
	CU_ASSERT_PTR_NULL(policy);
}

/* The caller frees. */
static struct policy *take(const char *text)
{
	struct policy *policy = NULL;
	struct err e = ERR_INIT;

	if (policy_parse("p.yaml", text, strlen(text), &policy, &e) != 0) {
		ASSERT_TEXT(e.text, "");
		CU_FAIL_FATAL("refused");
	}
	return policy;
}

static void test_defaults(void)
{
	scope_policy struct policy *p = take(URL);

	ASSERT_TEXT(p->public_url, "https://localhost:8443");
	ASSERT_TEXT(p->stream_url, "wss://localhost:8443");
	ASSERT_TEXT(p->node, "node1");
	ASSERT_TEXT(p->database.name, "cordon");
	ASSERT_TEXT(p->log.level, "info");
	ASSERT_TEXT(p->runtimes.default_, "namespace");
	CU_ASSERT_EQUAL(p->http.body_bytes, 8388608);
	CU_ASSERT_EQUAL(p->pool.workers, 4);
	CU_ASSERT_EQUAL(p->gate.release_per_ms, 5);
	CU_ASSERT(p->runner.concurrency >= 4 && p->runner.concurrency <= 64);
	CU_ASSERT_EQUAL(p->runs.sync_wait_ms, 0);
	CU_ASSERT_EQUAL(p->runs.artifact_user_bytes, 4294967296);
	CU_ASSERT_EQUAL(p->runs.spec_versions.count, 2);
	ASSERT_TEXT(p->runs.spec_versions.items[1], "1.1");
	CU_ASSERT_EQUAL(p->images.count, 1);
	ASSERT_TEXT(policy_image_find(p, "host"), "host");
	CU_ASSERT_PTR_NULL(policy_image_find(p, "nothing"));
	CU_ASSERT_EQUAL(policy_tier_find(p, "trusted")->max_cpu_milli, 8000);
	ASSERT_TEXT(policy_tier_find(p, "trusted")->network_default, "allowlist");
	CU_ASSERT_EQUAL(policy_tier_find(p, "standard")->nofile, 1024);
	CU_ASSERT_EQUAL(policy_tier_find(p, "untrusted")->pids, 64);
	CU_ASSERT_FALSE(policy_tier_find(p, "untrusted")->require_vm_grade);
	CU_ASSERT_PTR_NULL(policy_tier_find(p, "root"));
	CU_ASSERT_EQUAL(p->data.min_free_pct, 5);
}

static void test_values(void)
{
	scope_policy struct policy *p =
	    take("# a comment\n" URL "node: 'host-7'\npool: {workers: 2}\nimages:\n"
		 "  python:3.11-slim: host\n  \"ubuntu:24.04\": host\n"
		 "tiers:\n  untrusted:\n    require_vm_grade: true\n    pids: 10\n"
		 "runs:\n  spec_versions: [\"1.1\"]\n  sync_wait_ms: 250\n"
		 "box:\n  uid_base: 268435456\n");

	ASSERT_TEXT(p->node, "host-7");
	CU_ASSERT_EQUAL(p->pool.workers, 2);
	CU_ASSERT_EQUAL(p->images.count, 2);
	ASSERT_TEXT(policy_image_find(p, "python:3.11-slim"), "host");
	CU_ASSERT_PTR_NULL(policy_image_find(p, "host"));
	CU_ASSERT(p->tiers.untrusted.require_vm_grade);
	CU_ASSERT_EQUAL(p->tiers.untrusted.pids, 10);
	CU_ASSERT_EQUAL(p->tiers.untrusted.nofile, 256);
	CU_ASSERT_EQUAL(p->runs.spec_versions.count, 1);
	CU_ASSERT_EQUAL(p->runs.sync_wait_ms, 250);
	CU_ASSERT_EQUAL(p->box.uid_base, 0x10000000);
}

static void test_keys_refused(void)
{
	refuse("", "p.yaml:1:1: policy: the file is empty");
	refuse("# only this\n", "p.yaml:2:1: policy: the file is empty");
	refuse("pool: {workers: 2}\n", "p.yaml:1:1: public_url: is required");
	refuse(
	    URL "colour: red\n",
	    "p.yaml:2:1: colour: unknown key; known here: public_url, node, http, database, "
	    "paths, log, pool, gate, streams, auth, runner, queue, active, runs, idempotency, tiers, images, runtimes, "
	    "box, sandbox, sessions, data");
	refuse(URL "pool:\n  worker: 3\n",
	       "p.yaml:3:3: pool.worker: unknown key; known here: workers, max_requests, "
	       "request_timeout_ms");
	refuse(URL "tiers:\n  trusted:\n    require_vm_grade: true\n",
	       "p.yaml:4:5: tiers.trusted.require_vm_grade: unknown key; known here: "
	       "max_cpu_milli, max_mem_mb, timeout_sec, network_default, workspace_cap_mb, pids, "
	       "fresh_network, nofile");
	refuse(
	    URL "pool.workers: 3\n",
	    "p.yaml:2:1: pool.workers: unknown key; known here: public_url, node, http, "
	    "database, paths, log, pool, gate, streams, auth, runner, queue, active, runs, idempotency, tiers, images, "
	    "runtimes, box, sandbox, sessions, data");
	refuse(URL "pool:\n  workers: 3\n  workers: 4\n",
	       "p.yaml:4:3: pool.workers: is there twice, first in line 3");
	refuse(URL "pool: {workers: 3}\nlog: {level: info}\npool: {max_requests: 4}\n",
	       "p.yaml:4:1: pool: is there twice");
	refuse(URL URL, "p.yaml:2:1: public_url: is there twice, first in line 1");
	refuse(URL "queue: {\"ttl\\n_sec\": 3}\n",
	       "p.yaml:2:9: queue.ttl?_sec: unknown key; known here: max_length, ttl_sec, "
	       "max_per_user, max_per_persona, max_per_workspace, max_per_workspace_group, "
	       "estimated_wait_per_run_ms");
	refuse(URL "queue: {\"ttl_sec\\0x\": 3}\n",
	       "p.yaml:2:9: queue.ttl_sec?x: unknown key; known here: max_length, ttl_sec, "
	       "max_per_user, max_per_persona, max_per_workspace, max_per_workspace_group, "
	       "estimated_wait_per_run_ms");
	refuse(URL "? [a, b]\n: c\n",
	       "p.yaml:2:3: policy: must be a mapping with single values as keys, found a list");
}

static void test_kinds_refused(void)
{
	refuse("just text\n", "p.yaml:1:1: policy: must be a mapping, found one value");
	refuse("- a\n", "p.yaml:1:1: policy: must be a mapping, found a list");
	refuse(URL "pool:\nnode: a\n", "p.yaml:2:6: pool: must be a mapping, found nothing");
	refuse(URL "pool: 3\n", "p.yaml:2:7: pool: must be a mapping, found one value");
	refuse(URL "pool: {workers: [3]}\n",
	       "p.yaml:2:17: pool.workers: must be one value, found a list");
	refuse(URL "node: {a: b}\n", "p.yaml:2:7: node: must be one value, found a mapping");
	refuse(URL "images: host\n", "p.yaml:2:9: images: must be a mapping, found one value");
	refuse(URL "images: {a: [b]}\n",
	       "p.yaml:2:13: images: must be a mapping of single values, found a list");
	refuse(URL "runs: {spec_versions: '1.0'}\n",
	       "p.yaml:2:23: runs.spec_versions: must be a list, found one value");
	refuse(URL "runs: {spec_versions: [[a]]}\n",
	       "p.yaml:2:24: runs.spec_versions: must be a list of single values, found a list");
	refuse(URL "pool: {workers: '3'}\n",
	       "p.yaml:2:17: pool.workers: must be a number, not text in quotes");
	refuse(URL "box: {usr_local: 'true'}\n",
	       "p.yaml:2:18: box.usr_local: must be true or false, not text in quotes");
	refuse(URL "box: {usr_local: yes}\n", "p.yaml:2:18: box.usr_local: must be true or false");
	refuse(URL "runs: {spec_versions: [1.0]}\n",
	       "p.yaml:2:24: runs.spec_versions: must be text; put quotes around it");
	refuse(URL "node: 12\n", "p.yaml:2:7: node: must be text; put quotes around it");
	refuse(URL "node: null\n", "p.yaml:2:7: node: must be text; put quotes around it");
	refuse(URL "node: ~\n", "p.yaml:2:7: node: must be text; put quotes around it");
	refuse(URL "node:\n", "p.yaml:2:6: node: must not be empty");
	refuse(URL "node: \"a\\0b\"\n", "p.yaml:2:7: node: must not have a NUL byte");
}

static void test_values_refused(void)
{
	static const char *const numbers[] = {"0",    "257", "-1",    "+3",
					      "0x3",  "03",  "3.0",   "1e2",
					      "3s",   "1_0", "\" \"", "18446744073709551617",
					      "true", "null"};

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		char text[128];

		(void)snprintf(text, sizeof(text), URL "pool:\n  workers: %s\n", numbers[i]);
		refuse(text, numbers[i][0] == '"'
				 ? "p.yaml:3:12: pool.workers: must be a number, not text in quotes"
				 : "p.yaml:3:12: pool.workers: must be a whole number from 1 to "
				   "256");
	}
	refuse(URL "pool:\n  workers:\n",
	       "p.yaml:3:11: pool.workers: must be a whole number from 1 to 256");
	refuse(URL "runs: {cancel_grace_ms: 600001}\n",
	       "p.yaml:2:25: runs.cancel_grace_ms: must be a whole number from 0 to 600000 (ms)");
	refuse(URL "log: {level: loud}\n",
	       "p.yaml:2:14: log.level: must be one of: error warning info debug");
	refuse(URL "tiers: {trusted: {network_default: allow}}\n",
	       "p.yaml:2:36: tiers.trusted.network_default: must be one of: deny_all allowlist");
	refuse(URL "node: a/b\n",
	       "p.yaml:2:7: node: must have only letters, digits, \".\", \"_\" and \"-\", and "
	       "start with a letter or digit");
	refuse(URL "node: \"\"\n", "p.yaml:2:7: node: must have 1 to 63 bytes");
	refuse(URL "node: \"a\\tb\"\n", "p.yaml:2:7: node: must not have control characters");
	refuse(URL "images: {host: ../host}\n",
	       "p.yaml:2:10: images: the value must be a name of 1 to 63 letters, digits, \".\", "
	       "\"_\" and \"-\" that starts with a letter or digit");
	refuse(URL "images: {}\n", "p.yaml:2:9: images: must have at least 1 entries");
	refuse(URL "images: {a: b, a: c}\n", "p.yaml:2:16: images: the key \"a\" is there twice");
	refuse(URL "runs: {spec_versions: []}\n",
	       "p.yaml:2:23: runs.spec_versions: must have at least 1 values");
	refuse(URL "runs: {spec_versions: ['1', '1']}\n",
	       "p.yaml:2:29: runs.spec_versions: the value \"1\" is there twice");
}

static void test_urls_and_paths(void)
{
	static const char *const urls[] = {"http://a",        "https://",      "https://a/",
					   "https://a/b",     "https://a:",    "https://a:0",
					   "https://a:65536", "https://a:1x",  "https://a b",
					   "https://u@a",     "https://-a",    "https://.a",
					   "https://[::1",    "https://[]",    "https://[::1]x",
					   "https://a?b=1",   "ftp://abcdefg", "HTTPS://abcdef"};
	static const char *const good[] = {"https://a", "https://a.b-c.example:8443",
					   "https://127.0.0.1:1", "https://[::1]",
					   "https://[2001:db8::1]:443"};
	static const char *const paths[] = {"run",    "/",  "/a/", "//a",  "/a/../b",
					    "/a/./b", "/.", "/..", "/a//b"};
	char text[256];

	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		(void)snprintf(text, sizeof(text), "public_url: '%s'\n", urls[i]);
		refuse(text, i == 1 ? "p.yaml:1:13: public_url: must have 9 to 255 bytes"
				    : (strlen(urls[i]) < 9
					   ? "p.yaml:1:13: public_url: must have 9 to 255 bytes"
					   : "p.yaml:1:13: public_url: must be https://host or "
					     "https://host:port, without a slash behind"));
	}
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		scope_policy struct policy *p = NULL;

		(void)snprintf(text, sizeof(text), "public_url: '%s'\n", good[i]);
		p = take(text);
		ASSERT_TEXT(p->public_url, good[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		(void)snprintf(text, sizeof(text), URL "paths: {data: '%s'}\n", paths[i]);
		refuse(text,
		       strlen(paths[i]) < 2
			   ? "p.yaml:2:15: paths.data: must have 2 to 512 bytes"
			   : "p.yaml:2:15: paths.data: must be an absolute path without empty, "
			     "\".\" and \"..\" parts");
	}
	policy_free(take(URL "paths: {data: /a/..b/.c}\n"));
}

static void test_yaml_refused(void)
{
	refuse(URL "node: &a b\n", "p.yaml:2:7: node: anchors and aliases are not allowed");
	refuse(URL "pool: &a {workers: 1}\n",
	       "p.yaml:2:7: pool: anchors and aliases are not allowed");
	refuse(URL "node: *a\n", "p.yaml:2:7: node: anchors and aliases are not allowed");
	refuse(URL "node: !!str b\n", "p.yaml:2:7: node: tags are not allowed");
	refuse(URL "node: ! b\n", "p.yaml:2:7: node: tags are not allowed");
	refuse("--- !x\n" URL, "p.yaml:1:5: policy: tags are not allowed");
	refuse("%YAML 1.1\n---\n" URL, "p.yaml:1:1: policy: directives are not allowed");
	refuse("%TAG !e! tag:e,2000:\n---\n" URL, "p.yaml:1:1: policy: directives are not allowed");
	refuse(URL "---\n" URL, "p.yaml:2:1: policy: only one document is allowed");
	refuse(URL "runs: {spec_versions: [a\n",
	       "p.yaml:3:1: yaml: did not find expected ',' or ']' while parsing a flow sequence");
	refuse(URL "pool:\n\tworkers: 1\n",
	       "p.yaml:3:1: yaml: found character that cannot start any token while scanning for "
	       "the next token");
	refuse(URL "node: \"\xff\"\n", "p.yaml:2:8: yaml: invalid leading UTF-8 octet");
	refuse(URL "node: \"a\x01\"\n", "p.yaml:2:9: yaml: control characters are not allowed");
}

static void test_depth(void)
{
	enum { DEPTH = 20000 };
	static char text[DEPTH + 64];
	int used = snprintf(text, sizeof(text), URL "pool: ");

	memset(text + used, '[', DEPTH);
	text[used + DEPTH] = '\0';
	refuse(text, "p.yaml:2:7: pool: must be a mapping, found a list");
	memset(text + used, '{', DEPTH);
	refuse(text, "p.yaml:2:8: pool: must be a mapping with single values as keys, found a "
		     "mapping");
}

static void test_relations_refused(void)
{
	refuse(URL "gate:\n  ws_max_per_user: 2000\n",
	       "p.yaml:3:20: gate.ws_max_per_user: 2000 must be at most gate.ws_max_total (1024)");
	refuse(URL "gate:\n  ws_max_total: 10\n",
	       "p.yaml:3:17: gate.ws_max_per_user: 64 must be at most gate.ws_max_total (10)");
	refuse(URL "runner: {beat_ms: 6000}\n",
	       "p.yaml:2:19: runner.beat_ms: 6000 times 3 must be at most runner.dead_after_ms "
	       "(15000)");
	refuse(URL "runs: {max_timeout_sec: 100}\n",
	       "p.yaml:2:25: runs.default_timeout_sec: 300 must be at most runs.max_timeout_sec "
	       "(100)");
	refuse(URL "runs: {artifact_file_bytes: 300000000}\n",
	       "p.yaml:2:29: runs.artifact_file_bytes: 300000000 must be at most "
	       "runs.artifact_run_bytes (268435456)");
	refuse(URL "runs: {artifact_ttl_hours: 721}\n",
	       "p.yaml:2:28: runs.artifact_ttl_hours: 721 hours must be at most "
	       "runs.row_ttl_days (30 days)");
	refuse(URL "runner: {concurrency: 257}\n",
	       "p.yaml:2:23: runner.concurrency: 257 must be at most box.slots_max (256)");
	refuse(URL "http: {body_bytes: 4194303}\n",
	       "p.yaml:2:20: runs.inline_files_bytes: 4194304 must be at most http.body_bytes "
	       "(4194303)");
	refuse(URL "paths: {run: /a, data: /a/b}\n",
	       "p.yaml:2:24: paths.data: must not lie in paths.run, nor around it");
	refuse(URL "paths: {run: /var/lib/cordon/run}\n",
	       "p.yaml:2:14: paths.data: must not lie in paths.run, nor around it");
	refuse(URL "box: {uid_base: 65537}\n",
	       "p.yaml:2:17: box.uid_base: must be a multiple of 65536");
	refuse(URL "streams: {signed_urls: true}\n",
	       "p.yaml:2:24: streams.signed_urls: needs streams.secret_file");
	refuse(URL "streams: {secret_file: \"\", signed_urls: true}\n",
	       "p.yaml:2:41: streams.signed_urls: needs streams.secret_file");
	refuse(URL "streams: {secret_file: s}\n",
	       "p.yaml:2:24: streams.secret_file: must be an absolute path without empty, \".\" "
	       "and \"..\" parts");
	refuse(URL "auth: {jwt: {user_claim: \"\"}}\n",
	       "p.yaml:2:26: auth.jwt.user_claim: must have 1 to 64 bytes");
	policy_free(take(URL "streams: {signed_urls: true, secret_file: /s}\n"));
	policy_free(take(URL "auth: {jwt: {issuer: \"\", tenant_claim: org}}\n"));
	policy_free(take(URL "paths: {run: /a, data: /ab}\n"));
	policy_free(take(URL "box: {slots_max: 2}\n"));
}

static void test_dump(void)
{
	scope_policy struct policy *first =
	    take(URL "node: n1\nimages: {'a \"b\\c': host, x: z}\nruns: {spec_versions: ['a b', "
		     "'1.0']}\nbox: {usr_local: true, uid_base: 65536}\n");
	scope_policy struct policy *second = NULL;
	scope_buf struct buf a = BUF_NONE;
	scope_buf struct buf b = BUF_NONE;

	buf_init(&a, POLICY_FILE_BYTES);
	buf_init(&b, POLICY_FILE_BYTES);
	policy_dump(first, &a);
	second = take(buf_text(&a));
	policy_dump(second, &b);
	ASSERT_TEXT(buf_text(&b), buf_text(&a));
	ASSERT_TEXT(second->images.items[0].key, "a \"b\\c");
	CU_ASSERT(second->box.usr_local);
	CU_ASSERT_PTR_NOT_NULL(
	    strstr(buf_text(&a), "tiers:\n  trusted:\n    max_cpu_milli: 8000\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(buf_text(&a), "  untrusted:\n    max_cpu_milli: 1000\n"));
}

static void test_texts(void)
{
	scope_policy struct policy *p = take(URL "box: {uid_base: 268435456}\n");
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, POLICY_FILE_BYTES);
	policy_box_limits(p, &text);
	ASSERT_TEXT(buf_text(&text),
		    "memory_max_mb=8192\npids_max=512\ncpu_max_millis=4000\n"
		    "workspace_max_mb=512\nworkspace_inodes_max=100000\ntmp_max_mb=65\npool=4\n"
		    "pool_fresh=1\nnetns_ring=1\ndisk_max_mb=65536\nio_weight=100\nslots=256\n"
		    "host_reserve_mb=2048\nusr_local=0\nuid_base=268435456\n");
	buf_reset(&text);
	policy_doc(&text);
	CU_ASSERT(buf_ok(&text));
	CU_ASSERT_PTR_NOT_NULL(strstr(buf_text(&text), "| `public_url` | https URL | 9 to 255 "
						       "bytes | required |"));
	CU_ASSERT_PTR_NOT_NULL(strstr(buf_text(&text), "| `log.level` | choice | error, warning, "
						       "info, debug | `info` |"));
}

static void test_files(void)
{
	scope_policy struct policy *policy = NULL;
	scope_free char *big = mem_alloc(POLICY_FILE_BYTES + 1);
	struct err e = ERR_INIT;
	char wanted[600];
	const char *path;

	CU_ASSERT_PTR_NOT_NULL_FATAL(big);
	memset(big, '#', POLICY_FILE_BYTES + 1);
	memcpy(big, URL, strlen(URL));
	path = test_file("big.yaml", big, POLICY_FILE_BYTES + 1);
	CU_ASSERT_EQUAL(policy_load(path, &policy, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	(void)snprintf(wanted, sizeof(wanted), "%s:1:1: policy: is larger than 1048576 bytes",
		       path);
	ASSERT_TEXT(e.text, wanted);
	err_clear(&e);
	path = test_file("big.yaml", big, POLICY_FILE_BYTES);
	CU_ASSERT_EQUAL(policy_load(path, &policy, &e), 0);
	err_clear(&e);
	CU_ASSERT_EQUAL(policy_parse("m", big, POLICY_FILE_BYTES + 1, &policy, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	err_clear(&e);
	CU_ASSERT_EQUAL(policy_load("/nonexistent/p.yaml", &policy, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_NOT_FOUND);
	err_clear(&e);
	CU_ASSERT_EQUAL(policy_load("/", &policy, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_IO);
}

static int load_and_dump(void *context, struct err *e)
{
	const char *path = context;
	scope_policy struct policy *policy = NULL;
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, POLICY_FILE_BYTES);
	if (policy_load(path, &policy, e) != 0)
		return -1;
	policy_dump(policy, &text);
	policy_box_limits(policy, &text);
	if (!buf_ok(&text))
		return err_set(e, ERR_NOMEM, 0, "dump");
	return 0;
}

static void test_faults(void)
{
	static const char text[] =
	    URL "node: n1\nimages: {a: b, c: d}\nruns: {spec_versions: ['1.0', "
		"'2.0']}\npaths: {run: /r, data: /d}\n";
	char path[512];

	(void)snprintf(path, sizeof(path), "%s", test_file("fault.yaml", text, strlen(text)));
	fault_loop(load_and_dump, path);
}

static const struct test tests[] = {
    {"policy", "defaults", test_defaults},
    {"policy", "values", test_values},
    {"policy", "keys refused", test_keys_refused},
    {"policy", "kinds refused", test_kinds_refused},
    {"policy", "values refused", test_values_refused},
    {"policy", "urls and paths", test_urls_and_paths},
    {"policy", "yaml refused", test_yaml_refused},
    {"policy", "depth", test_depth},
    {"policy", "relations refused", test_relations_refused},
    {"policy", "dump round trip", test_dump},
    {"policy", "box limits and doc", test_texts},
    {"policy", "files and the size cap", test_files},
    {"policy", "fault loop", test_faults},
};

TEST_MAIN(tests)
