/* egress: allow lists: what they stand for, and rules of nftables for one source address. */
#include "runners/ctl/ctl.h"

#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"
#include "runners/core/egress.h"

#define RULES_BYTES ((size_t)4 << 20)

struct request {
	struct ctl *ctl;
	struct egress_list list;
	struct egress_range *targets; /* mem */
	size_t target_count;
};

static void release(struct request *r)
{
	mem_free(r->targets);
	egress_list_release(&r->list);
}

/* As ctl_fail, with the text that is meant for people. */
static int fail(const struct ctl *ctl, struct err *e)
{
	if (e->shown[0] != '\0')
		(void)snprintf(e->text, sizeof(e->text), "%s", e->shown);
	return ctl_fail(ctl, e);
}

static json_t *address_json(uint32_t address)
{
	struct egress_range range = {address, 32};
	char text[EGRESS_CIDR_SIZE];

	egress_range_text(&range, text);
	*strchr(text, '/') = '\0';
	return json_string(text);
}

static json_t *targets_json(const struct request *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->target_count; i++) {
		char text[EGRESS_CIDR_SIZE];

		egress_range_text(&r->targets[i], text);
		(void)json_array_append_new(list, json_string(text));
	}
	return list;
}

/* An entry of the list that stands for nothing now: none of its names has an address. */
static bool is_unresolved(const struct request *r, const struct egress_token *token)
{
	for (size_t i = 0; i < token->name_count; i++)
		if (r->list.names[token->first_name + i].resolved)
			return false;
	return token->name_count > 0;
}

static json_t *unresolved_json(const struct request *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->list.token_count; i++)
		if (is_unresolved(r, &r->list.tokens[i]))
			(void)json_array_append_new(list, json_string(r->list.tokens[i].host));
	return list;
}

/* Names with answers that do not count. */
static json_t *left_out_json(const struct request *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->list.name_count; i++)
		if (r->list.names[i].left_out > 0)
			(void)json_array_append_new(list, json_string(r->list.names[i].name));
	return list;
}

/* 0, or CTL_EXIT_FOUND when an entry gave nothing or less: said on stderr, the rest stands. */
static int tell_names(const struct request *r)
{
	int status = 0;

	for (size_t i = 0; i < r->list.token_count; i++) {
		if (!is_unresolved(r, &r->list.tokens[i]))
			continue;
		status = CTL_EXIT_FOUND;
		if (!r->ctl->json)
			(void)fprintf(stderr, "cordonctl: %s: has no address\n",
				      r->list.tokens[i].host);
	}
	for (size_t i = 0; i < r->list.name_count; i++) {
		if (r->list.names[i].left_out == 0)
			continue;
		status = CTL_EXIT_FOUND;
		if (!r->ctl->json)
			(void)fprintf(stderr,
				      "cordonctl: %s: answers with an inner address that the list "
				      "does not have\n",
				      r->list.names[i].name);
	}
	return status;
}

static int expand(struct request *r)
{
	char text[EGRESS_CIDR_SIZE];

	if (r->ctl->json) {
		ctl_print_json(json_pack("{s:o, s:o, s:o}", "targets", targets_json(r),
					 "unresolved", unresolved_json(r), "left_out",
					 left_out_json(r)));
		return tell_names(r);
	}
	for (size_t i = 0; i < r->target_count; i++) {
		egress_range_text(&r->targets[i], text);
		(void)puts(text);
	}
	return tell_names(r);
}

/* host -> addresses; a range has none, an address is its own. */
static json_t *pins_json(const struct request *r)
{
	json_t *pins = json_object();

	for (size_t i = 0; i < r->list.token_count; i++) {
		const struct egress_token *token = &r->list.tokens[i];
		json_t *list = json_array();

		if (token->is_address)
			(void)json_array_append_new(list, json_string(token->host));
		for (size_t k = 0; k < token->name_count; k++) {
			const struct egress_name *name = &r->list.names[token->first_name + k];

			for (size_t a = 0; a < name->count; a++) {
				json_t *address = address_json(name->addresses[a]);
				size_t at = 0;

				while (at < json_array_size(list) &&
				       json_equal(json_array_get(list, at), address) == 0)
					at++;
				if (at == json_array_size(list))
					(void)json_array_append(list, address);
				json_decref(address);
			}
		}
		(void)json_object_set_new(pins, token->host, list);
	}
	return pins;
}

static int pin(struct request *r)
{
	json_t *pins = pins_json(r);
	const char *host;
	json_t *list;

	if (r->ctl->json) {
		ctl_print_json(json_pack("{s:o, s:o, s:o}", "pins", pins, "unresolved",
					 unresolved_json(r), "left_out", left_out_json(r)));
		return tell_names(r);
	}
	json_object_foreach (pins, host, list) {
		(void)printf("%s", host);
		for (size_t i = 0; i < json_array_size(list); i++)
			(void)printf(" %s", json_string_value(json_array_get(list, i)));
		(void)puts("");
	}
	json_decref(pins);
	return tell_names(r);
}

struct refresh {
	const char *label;
	const char *source;
	bool remove;
	bool print; /* the rules only */
};

static int apply(struct request *r, const struct refresh *wish)
{
	scope_buf struct buf rules = BUF_NONE;
	uint32_t source = 0;
	struct err e = ERR_INIT;

	buf_init(&rules, RULES_BYTES);
	if (wish->remove)
		egress_rules_remove(&rules, wish->label);
	else if (egress_address(wish->source, &source, &e) != 0)
		return fail(r->ctl, &e);
	else
		egress_rules(&rules, wish->label, source, r->targets, r->target_count);
	if (!buf_ok(&rules))
		(void)err_set(&e, ERR_NOMEM, 0, "rules");
	else if (wish->print)
		(void)fputs(buf_text(&rules), stdout);
	else
		(void)egress_apply(&rules, &e);
	if (e.code != ERR_NONE)
		return fail(r->ctl, &e);
	if (wish->print)
		return tell_names(r);
	if (r->ctl->json)
		ctl_print_json(
		    json_pack("{s:s, s:o, s:b, s:o, s:o, s:o}", "label", wish->label, "source",
			      wish->remove ? json_null() : json_string(wish->source), "removed",
			      wish->remove, "targets", targets_json(r), "unresolved",
			      unresolved_json(r), "left_out", left_out_json(r)));
	else if (wish->remove)
		(void)printf("removed the rules of %s\n", wish->label);
	else
		(void)printf("%s: %s may reach %zu targets, and nothing else\n", wish->label,
			     wish->source, r->target_count);
	return tell_names(r);
}

static int check_refresh(const struct refresh *wish)
{
	if (wish->label == NULL || !egress_label_ok(wish->label))
		return ctl_usage("egress refresh needs --label, 1 to 64 of a-z A-Z 0-9 - _ .");
	if (wish->remove == (wish->source != NULL))
		return ctl_usage("egress refresh needs --source ADDRESS, or --remove");
	return 0;
}

/* The words of the list, looked up. 0, or an exit code. */
static int read_list(struct request *r, const char *subdomains, struct egress_dns_options *dns)
{
	const char *word;
	struct err e = ERR_INIT;

	while ((word = ctl_word(r->ctl)) != NULL)
		if (egress_add(&r->list, word, subdomains, &e) != 0)
			return fail(r->ctl, &e);
	if (ctl_finish(r->ctl) != 0)
		return PROGRAM_EXIT_USAGE;
	if (egress_resolve(&r->list, egress_dns, dns, &e) != 0 ||
	    egress_expand(&r->list, &r->targets, &r->target_count, &e) != 0)
		return fail(r->ctl, &e);
	return 0;
}

int ctl_egress(struct ctl *ctl)
{
	struct request r = {.ctl = ctl};
	const char *verb = ctl_word(ctl);
	struct egress_dns_options dns = {.servers = ctl_option(ctl, "--dns")};
	const char *timeout = ctl_option(ctl, "--timeout");
	const char *subdomains = ctl_option(ctl, "--subdomains");
	struct refresh wish = {.label = ctl_option(ctl, "--label"),
			       .source = ctl_option(ctl, "--source")};
	struct err e = ERR_INIT;
	int64_t seconds = 10;
	int status = 0;
	bool refreshes = verb != NULL && str_equal(verb, "refresh");

	wish.remove = ctl_flag(ctl, "--remove");
	wish.print = ctl_flag(ctl, "--print");
	if (verb == NULL || (!str_equal(verb, "expand") && !str_equal(verb, "pin") && !refreshes))
		return ctl_usage("egress needs expand, pin or refresh");
	if (timeout != NULL && num_i64("--timeout", timeout, 1, 300, &seconds, &e) != 0)
		return ctl_usage(e.shown);
	dns.timeout_ms = seconds * 1000;
	if (refreshes)
		status = check_refresh(&wish);
	else if (wish.label != NULL || wish.source != NULL || wish.remove || wish.print)
		status = ctl_usage("--label, --source, --remove and --print are for refresh");
	egress_list_init(&r.list);
	if (status == 0)
		status = read_list(&r, subdomains == NULL ? EGRESS_SUBDOMAINS : subdomains, &dns);
	if (status == 0)
		status = refreshes                ? apply(&r, &wish)
			 : str_equal(verb, "pin") ? pin(&r)
						  : expand(&r);
	release(&r);
	return status;
}
