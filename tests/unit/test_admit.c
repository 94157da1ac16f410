/* test_admit: tiers, clamping, refusals of admission. */
#include "handlers/admit.h"
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "tests/lib/test.h"

#define URL "public_url: https://localhost:8443\n"

static struct policy *policy_of(const char *more)
{
	struct policy *policy = NULL;
	struct err e = ERR_INIT;
	char text[2000];

	(void)snprintf(text, sizeof(text), "%s%s", URL, more);
	if (policy_parse("p", text, strlen(text), &policy, &e) != 0) {
		ASSERT_TEXT(e.text, "");
		CU_FAIL_FATAL("policy");
	}
	return policy;
}

static struct admit_request ask(void)
{
	struct admit_request r = {.base_image = "host", .network_policy = "deny_all"};

	return r;
}

/* Admits or not; the limits in *spec, which the caller releases. */
static int admit(const char *policy_text, const struct admit_request *request,
		 struct run_spec *spec, struct admitted *out, struct api_error *refusal)
{
	scope_policy struct policy *policy = policy_of(policy_text);
	struct err e = ERR_INIT;
	int result;

	spec_init(spec);
	result = admit_run(policy, request, spec, out, refusal, &e);
	CU_ASSERT_EQUAL(result == 0, e.code == ERR_NONE);
	/* the image's name is the policy's, which goes away here */
	if (result == 0)
		out->image = spec->image;
	return result;
}

static void limits_are(const char *trust, int64_t cpu, int64_t mem_mb, int64_t timeout,
		       int64_t workspace_mb, int64_t pids, int64_t nofile)
{
	struct admit_request r = ask();
	struct run_spec spec;
	struct admitted out;
	struct api_error refusal;

	r.trust_level = trust;
	CU_ASSERT_EQUAL_FATAL(admit("", &r, &spec, &out, &refusal), 0);
	CU_ASSERT_EQUAL(spec.cpu_milli, cpu);
	CU_ASSERT_EQUAL(spec.memory_bytes, mem_mb << 20);
	CU_ASSERT_EQUAL(spec.timeout_ms, timeout * 1000);
	CU_ASSERT_EQUAL(spec.workspace_bytes, workspace_mb << 20);
	CU_ASSERT_EQUAL(spec.pids, pids);
	CU_ASSERT_EQUAL(spec.nofile, nofile);
	CU_ASSERT_EQUAL(spec.startup_timeout_ms, 20000);
	CU_ASSERT_EQUAL(spec.cancel_grace_ms, 5000);
	CU_ASSERT_EQUAL(spec.log_bytes, 10485760);
	CU_ASSERT_EQUAL(spec.artifact_file_bytes, 64 << 20);
	CU_ASSERT_EQUAL(spec.artifact_run_bytes, 256 << 20);
	CU_ASSERT_EQUAL(spec.artifact_user_bytes, INT64_C(4) << 30);
	ASSERT_TEXT(spec.image, "host");
	ASSERT_TEXT(spec.runtime, "namespace");
	ASSERT_TEXT(spec.network, "deny_all");
	ASSERT_TEXT(out.trust_level, trust == NULL ? "standard" : trust);
	CU_ASSERT_EQUAL(strlen(out.policy_hash), 16);
	CU_ASSERT_EQUAL(strspn(out.policy_hash, "0123456789abcdef"), 16);
	spec_release(&spec);
}

static void test_tiers(void)
{
	/* the installation's own maxima are 4 cores and 8192 MB, so trusted gets no more */
	limits_are(NULL, 4000, 8192, 300, 256, 256, 1024);
	limits_are("standard", 4000, 8192, 300, 256, 256, 1024);
	limits_are("trusted", 4000, 8192, 300, 512, 512, 4096);
	limits_are("untrusted", 1000, 1024, 60, 64, 64, 256);
}

static void clamped(const char *policy, const char *trust, double cpu, int64_t memory_mb,
		    int64_t timeout, int64_t want_cpu, int64_t want_mb, int64_t want_timeout)
{
	struct admit_request r = ask();
	struct run_spec spec;
	struct admitted out;
	struct api_error refusal;

	r.trust_level = trust;
	r.has_cpu = true;
	r.cpu = cpu;
	r.memory_mb = memory_mb;
	r.timeout_sec = timeout;
	CU_ASSERT_EQUAL_FATAL(admit(policy, &r, &spec, &out, &refusal), 0);
	CU_ASSERT_EQUAL(spec.cpu_milli, want_cpu);
	CU_ASSERT_EQUAL(spec.memory_bytes, want_mb << 20);
	CU_ASSERT_EQUAL(spec.timeout_ms, want_timeout * 1000);
	spec_release(&spec);
}

static void test_b11_clamping(void)
{
	static const char *const big = "runs: {max_cpu_milli: 64000, max_mem_mb: 65536}\n";

	clamped("", "standard", 0.5, 64, 1, 500, 64, 1);
	clamped("", "standard", 1000000, 1 << 30, 3600, 4000, 8192, 300);
	clamped("", "untrusted", 2, 2048, 300, 1000, 1024, 60);
	clamped("", "trusted", 8, 16384, 3600, 4000, 8192, 600);
	clamped(big, "trusted", 9, 99999, 601, 8000, 16384, 600);
	clamped(big, "untrusted", 9, 99999, 61, 1000, 1024, 60);
	/* null is 60, absent 300, both under the tier */
	clamped("", "standard", 1, 64, -1, 1000, 64, 60);
	clamped("", "standard", 1, 64, 0, 1000, 64, 300);
	clamped("", "untrusted", 1, 64, 0, 1000, 64, 60);
	/* 0 is not "for ever" and not nothing */
	clamped("", "standard", 0, 64, 1, 10, 64, 1);
	clamped("", "standard", 0.29, 64, 1, 290, 64, 1);
	clamped("", "standard", 1.001, 64, 1, 1001, 64, 1);
}

/* The refusal as one text: status code requirement|reason|suggested. */
static void refused(const char *policy, const struct admit_request *request, const char *want)
{
	struct run_spec spec;
	struct admitted out;
	struct api_error refusal;
	char got[500];
	const json_t *d;
	const char *requirement;
	const char *reason;
	const char *suggested;

	CU_ASSERT_EQUAL_FATAL(admit(policy, request, &spec, &out, &refusal), -1);
	d = refusal.details;
	requirement = json_text(json_object_get(d, "requirement"));
	reason = json_text(json_array_get(json_object_get(d, "reasons"), 0));
	suggested = json_text(json_array_get(json_object_get(d, "suggested"), 0));
	(void)snprintf(got, sizeof(got), "%d %s %s %s %s", refusal.status, refusal.code,
		       requirement == NULL ? "-" : requirement, reason == NULL ? "-" : reason,
		       suggested == NULL ? "-" : suggested);
	ASSERT_TEXT(got, want);
	CU_ASSERT(refusal.message[0] != '\0');
	json_decref(refusal.details);
	spec_release(&spec);
}

static void test_runtimes(void)
{
	struct admit_request r = ask();

	r.runtime = "docker";
	refused("", &r, "503 runtime_unavailable - docker_unavailable namespace");
	r.runtime = "firecracker";
	refused("", &r, "503 runtime_unavailable - firecracker_unavailable -");
	r.runtime = "lima";
	refused("", &r, "503 runtime_unavailable - limactl_missing -");
	r.runtime = "vz_linux";
	refused("", &r, "503 runtime_unavailable - macos_required -");
	r.runtime = "vz_macos";
	refused("", &r, "503 runtime_unavailable - macos_required -");
	r.runtime = "seatbelt";
	refused("", &r, "503 runtime_unavailable - macos_required namespace");
	r.runtime = "worktree";
	refused("", &r, "503 runtime_unavailable - worktree_unavailable namespace");
	r.trust_level = "untrusted";
	refused("", &r,
		"422 policy_unsupported untrusted_requires_vm_runtime "
		"trust_level_requires_vm_runtime -");
	r.runtime = "seatbelt";
	refused("", &r,
		"422 policy_unsupported untrusted_requires_vm_runtime "
		"trust_level_requires_vm_runtime -");
	/* every name that the schema takes is known here */
	for (size_t i = 0; admit_runtimes[i] != NULL; i++) {
		struct run_spec spec;
		struct admitted out;
		struct api_error refusal;

		r = ask();
		r.runtime = admit_runtimes[i];
		if (admit("", &r, &spec, &out, &refusal) != 0)
			CU_ASSERT_EQUAL(refusal.status, 503);
		json_decref(refusal.details);
		spec_release(&spec);
	}
}

static void test_policies(void)
{
	struct admit_request r = ask();

	r.network_policy = "allowlist";
	refused("", &r, "422 policy_unsupported allowlist strict_allowlist_not_supported -");
	/* the default of trusted */
	r = ask();
	r.network_policy = NULL;
	r.trust_level = "trusted";
	refused("", &r, "422 policy_unsupported allowlist strict_allowlist_not_supported -");
	r = ask();
	r.trust_level = "untrusted";
	refused("tiers: {untrusted: {require_vm_grade: true}}\n", &r,
		"422 policy_unsupported untrusted_requires_vm_runtime "
		"trust_level_requires_vm_runtime -");
}

static void test_images(void)
{
	struct admit_request r = ask();
	struct run_spec spec;
	struct admitted out;
	struct api_error refusal;

	r.base_image = "nothing:1";
	CU_ASSERT_EQUAL(admit("images: {a: host, \"b:1\": host}\n", &r, &spec, &out, &refusal), -1);
	CU_ASSERT_EQUAL(refusal.status, 422);
	ASSERT_TEXT(refusal.code, "unknown_base_image");
	ASSERT_TEXT(json_text(json_object_get(refusal.details, "base_image")), "nothing:1");
	CU_ASSERT_EQUAL(json_array_size(json_object_get(refusal.details, "known")), 2);
	json_decref(refusal.details);
	spec_release(&spec);
	r.base_image = "b:1";
	CU_ASSERT_EQUAL(admit("images: {a: host, \"b:1\": host}\n", &r, &spec, &out, &refusal), 0);
	ASSERT_TEXT(spec.image, "host");
	spec_release(&spec);
}

static void hash_of(const char *policy, const struct admit_request *request, char *out_hash)
{
	struct run_spec spec;
	struct admitted out;
	struct api_error refusal;

	CU_ASSERT_EQUAL_FATAL(admit(policy, request, &spec, &out, &refusal), 0);
	(void)snprintf(out_hash, 17, "%s", out.policy_hash);
	spec_release(&spec);
}

static void test_policy_hash(void)
{
	struct admit_request r = ask();
	char a[17];
	char b[17];

	hash_of("", &r, a);
	hash_of("", &r, b);
	ASSERT_TEXT(a, b);
	/* what does not apply to the request does not change it, what applies does */
	hash_of("gate: {sweep_ms: 1234}\ntiers: {untrusted: {pids: 5}}\n", &r, b);
	ASSERT_TEXT(a, b);
	hash_of("tiers: {standard: {pids: 5}}\n", &r, b);
	CU_ASSERT_STRING_NOT_EQUAL(a, b);
	r.timeout_sec = 7;
	hash_of("", &r, b);
	CU_ASSERT_STRING_NOT_EQUAL(a, b);
}

struct fault_context {
	struct policy *policy;
	struct admit_request request;
};

static int admit_once(void *context, struct err *e)
{
	struct fault_context *c = context;
	struct run_spec spec;
	struct admitted out;
	struct api_error refusal;
	int result;

	spec_init(&spec);
	result = admit_run(c->policy, &c->request, &spec, &out, &refusal, e);
	/* a refusal that memory made is not the client's fault */
	if (result != 0)
		CU_ASSERT(e->code == ERR_NOMEM && refusal.status == 0);
	json_decref(refusal.details);
	spec_release(&spec);
	return result;
}

static int refuse_once(void *context, struct err *e)
{
	struct fault_context *c = context;
	struct run_spec spec;
	struct admitted out;
	struct api_error refusal;

	spec_init(&spec);
	CU_ASSERT_EQUAL(admit_run(c->policy, &c->request, &spec, &out, &refusal, e), -1);
	/* details may be missing, the refusal not */
	CU_ASSERT(refusal.status == 422 || refusal.status == 503);
	json_decref(refusal.details);
	spec_release(&spec);
	if (mem_has_failed())
		return -1;
	err_clear(e);
	return 0;
}

static void test_faults(void)
{
	struct fault_context c = {.policy = policy_of(""), .request = ask()};

	json_setup();
	fault_loop(admit_once, &c);
	c.request.base_image = "nothing";
	fault_loop(refuse_once, &c);
	c.request.runtime = "docker";
	fault_loop(refuse_once, &c);
	policy_free(c.policy);
}

static const struct test tests[] = {
    {"admit", "tiers", test_tiers},       {"admit", "B11 clamping", test_b11_clamping},
    {"admit", "runtimes", test_runtimes}, {"admit", "policies", test_policies},
    {"admit", "images", test_images},     {"admit", "policy hash", test_policy_hash},
    {"admit", "faults", test_faults},
};

TEST_MAIN(tests)
