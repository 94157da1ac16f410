/* test_egress: allow lists: tokens, names by a resolver of the test, targets and rules. */
#include "runners/base/mem.h"
#include "runners/base/str.h"
#include "runners/core/egress.h"
#include "tests/lib/test.h"

struct answer {
	const char *name;
	uint32_t addresses[4];
	size_t count;
};

static const struct answer zone[] = {
    {"example.com", {0x5DB8D822, 0x5DB8D822, 0x01020304}, 3},
    {"www.example.com", {0x01020304}, 1},
    {"inner.example.com", {0x0A000005, 0xA9FEA9FE, 0x08080808}, 3},
    {"only.inner", {0x7F000001}, 1},
};

static size_t asked;

static int resolve(void *context, struct egress_name *names, size_t count, struct err *e)
{
	if (context != NULL)
		return err_set(e, ERR_UNAVAILABLE, 0, "no resolver");
	asked += count;
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < ARRAY_LEN(zone); k++)
			if (str_equal(zone[k].name, names[i].name)) {
				memcpy(names[i].addresses, zone[k].addresses,
				       sizeof(zone[k].addresses));
				names[i].count = zone[k].count;
			}
	return 0;
}

static void expands(const char *tokens, const char *subdomains, const char *wanted)
{
	scope_buf struct buf text = BUF_NONE;
	struct egress_list list;
	struct egress_range *targets = NULL;
	size_t count = 0;
	struct err e = ERR_INIT;

	buf_init(&text, 65536);
	egress_list_init(&list);
	if (egress_add(&list, tokens, subdomains, &e) != 0 ||
	    egress_resolve(&list, resolve, NULL, &e) != 0 ||
	    egress_expand(&list, &targets, &count, &e) != 0) {
		(void)printf("\n    %s: %s\n", tokens, e.text);
		CU_FAIL("refused");
	}
	for (size_t i = 0; i < count; i++) {
		char one[EGRESS_CIDR_SIZE];

		egress_range_text(&targets[i], one);
		buf_addf(&text, "%s%s", i == 0 ? "" : " ", one);
	}
	ASSERT_TEXT(buf_text(&text), wanted);
	mem_free(targets);
	egress_list_release(&list);
}

static void test_expand(void)
{
	expands("", EGRESS_SUBDOMAINS, "");
	expands("10.0.0.0/8,8.8.8.8", EGRESS_SUBDOMAINS, "8.8.8.8/32 10.0.0.0/8");
	expands("10.1.2.3/8 10.0.0.0/8", EGRESS_SUBDOMAINS, "10.0.0.0/8");
	expands("0.0.0.0/0,255.255.255.255,255.255.255.0/24", EGRESS_SUBDOMAINS,
		"0.0.0.0/0 255.255.255.0/24 255.255.255.255/32");
	expands("example.com", EGRESS_SUBDOMAINS, "1.2.3.4/32 93.184.216.34/32");
	expands("HTTPS://Example.COM.:443/a/b, example.com", EGRESS_SUBDOMAINS,
		"1.2.3.4/32 93.184.216.34/32");
	expands("1.2.3.4:80/x,http://9.9.9.9/24", EGRESS_SUBDOMAINS, "1.2.3.4/32 9.9.9.9/32");
	expands("unknown.example", EGRESS_SUBDOMAINS, "");
	/* the name itself, www and api, nothing else */
	asked = 0;
	expands("*.example.com", EGRESS_SUBDOMAINS, "1.2.3.4/32 93.184.216.34/32");
	CU_ASSERT_EQUAL(asked, 3);
	expands(".example.com", "www", "1.2.3.4/32");
	asked = 0;
	expands("10.0.0.0/8", EGRESS_SUBDOMAINS, "10.0.0.0/8");
	CU_ASSERT_EQUAL(asked, 0);
}

static void test_inner_answers(void)
{
	expands("inner.example.com", EGRESS_SUBDOMAINS, "8.8.8.8/32");
	expands("only.inner", EGRESS_SUBDOMAINS, "");
	/* what the list itself has may be an answer */
	expands("inner.example.com,10.0.0.0/24", EGRESS_SUBDOMAINS,
		"8.8.8.8/32 10.0.0.0/24 10.0.0.5/32");
	expands("127.0.0.1 169.254.169.254", EGRESS_SUBDOMAINS, "127.0.0.1/32 169.254.169.254/32");
}

static void refuses(const char *tokens, const char *named)
{
	struct egress_list list;
	struct err e = ERR_INIT;

	egress_list_init(&list);
	CU_ASSERT_EQUAL(egress_add(&list, tokens, EGRESS_SUBDOMAINS, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_INVALID);
	if (strstr(e.shown, named) == NULL) {
		(void)printf("\n    %s: %s\n", tokens, e.shown);
		CU_FAIL("another entry is named");
	}
	egress_list_release(&list);
}

static void test_refused(void)
{
	static const char *const bad[] = {"2852039166",
					  "0xa9.254.169.254",
					  "1.2.3",
					  "1.2.3.256",
					  "01.2.3.4",
					  "1.2.3.4/33",
					  "1.2.3.4/3x",
					  "[::1]",
					  "[::ffff:169.254.169.254]:443",
					  "fd00::1",
					  "x:0",
					  "x:65536",
					  "x:",
					  "x:http",
					  "*",
					  "*.",
					  ".",
					  "a..b",
					  "a.*.b",
					  "-a.b",
					  "a-.b",
					  "http://",
					  "a;drop",
					  "a\"b",
					  "b\xC3\xBC"
					  "cher.example"};
	char large[400];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		refuses(bad[i], bad[i]);
	refuses("good.example,bad_;", "bad_;");
	memset(large, 'a', sizeof(large) - 1);
	large[sizeof(large) - 1] = '\0';
	refuses(large, "aaaa");
	large[64] = '\0';
	refuses(large, "aaaa");
}

static void test_resolver_that_fails(void)
{
	struct egress_list list;
	struct err e = ERR_INIT;

	egress_list_init(&list);
	CU_ASSERT_EQUAL(egress_add(&list, "example.com", EGRESS_SUBDOMAINS, &e), 0);
	CU_ASSERT_EQUAL(egress_resolve(&list, resolve, &list, &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_UNAVAILABLE);
	egress_list_release(&list);
}

static void test_limits(void)
{
	struct egress_list list;
	struct err e = ERR_INIT;
	int result = 0;

	egress_list_init(&list);
	for (size_t i = 0; i < EGRESS_TOKENS_MAX && result == 0; i++)
		result = egress_add(&list, "1.2.3.4", "", &e);
	CU_ASSERT_EQUAL(result, 0);
	CU_ASSERT_EQUAL(egress_add(&list, "1.2.3.4", "", &e), -1);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	egress_list_release(&list);
	err_clear(&e);
	for (size_t i = 0; i <= EGRESS_NAMES_MAX / 12; i++)
		result = egress_add(&list, "*.a", ",a,b,c,d,e,f,g,h,i,j,k", &e);
	CU_ASSERT_EQUAL(result, -1);
	CU_ASSERT_EQUAL(e.code, ERR_LIMIT);
	egress_list_release(&list);
}

static void test_rules(void)
{
	static const struct egress_range targets[] = {{0x08080808, 32}, {0x0A000000, 8}};
	scope_buf struct buf text = BUF_NONE;

	buf_init(&text, 65536);
	egress_rules(&text, "run-1", 0xAC120002, targets, 2);
	ASSERT_TEXT(
	    buf_text(&text),
	    "add table ip cordon_egress\n"
	    "add chain ip cordon_egress r_run-1 { type filter hook forward priority -10; policy "
	    "accept; }\n"
	    "flush chain ip cordon_egress r_run-1\n"
	    "add rule ip cordon_egress r_run-1 ip saddr 172.18.0.2/32 ip daddr 8.8.8.8/32 counter "
	    "accept comment \"run-1\"\n"
	    "add rule ip cordon_egress r_run-1 ip saddr 172.18.0.2/32 ip daddr 10.0.0.0/8 counter "
	    "accept comment \"run-1\"\n"
	    "add rule ip cordon_egress r_run-1 ip saddr 172.18.0.2/32 counter drop comment "
	    "\"run-1\"\n");
	buf_reset(&text);
	/* an empty list: nothing may be reached */
	egress_rules(&text, "run-1", 0xAC120002, NULL, 0);
	CU_ASSERT_PTR_NULL(strstr(buf_text(&text), "counter accept"));
	CU_ASSERT_PTR_NOT_NULL(strstr(buf_text(&text), "counter drop"));
	CU_ASSERT_TRUE(egress_label_ok("drop"));
	CU_ASSERT_TRUE(egress_label_ok("Run_1.x-y"));
	CU_ASSERT_FALSE(egress_label_ok(""));
	CU_ASSERT_FALSE(egress_label_ok("a b"));
	CU_ASSERT_FALSE(egress_label_ok("a;flush ruleset"));
	CU_ASSERT_FALSE(egress_label_ok("a\"b"));
	CU_ASSERT_FALSE(
	    egress_label_ok("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static int whole(void *context, struct err *e)
{
	struct egress_list list;
	struct egress_range *targets = NULL;
	size_t count;
	int result = 0;

	(void)context;
	egress_list_init(&list);
	if (egress_add(&list, "10.0.0.0/8,*.example.com", EGRESS_SUBDOMAINS, e) != 0 ||
	    egress_resolve(&list, resolve, NULL, e) != 0 ||
	    egress_expand(&list, &targets, &count, e) != 0)
		result = -1;
	mem_free(targets);
	egress_list_release(&list);
	return result;
}

static void test_memory(void)
{
	fault_loop(whole, NULL);
}

static const struct test tests[] = {
    {"egress", "expand", test_expand},
    {"egress", "inner answers", test_inner_answers},
    {"egress", "refused", test_refused},
    {"egress", "a resolver that fails", test_resolver_that_fails},
    {"egress", "limits", test_limits},
    {"egress", "rules", test_rules},
    {"egress", "memory", test_memory},
};

TEST_MAIN(tests)
