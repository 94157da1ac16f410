#include "runners/core/egress.h"

#include "runners/base/mem.h"
#include "runners/base/num.h"
#include "runners/base/str.h"

#include <stdlib.h>

#define SHOWN_BYTES 80
#define LABEL_BYTES 63 /* of one label of a name */

void egress_list_init(struct egress_list *list)
{
	memset(list, 0, sizeof(*list));
}

void egress_list_release(struct egress_list *list)
{
	mem_free(list->tokens);
	mem_free(list->names);
	memset(list, 0, sizeof(*list));
}

/* --- addresses -------------------------------------------------------------------------------- */

static int parse_address(const char *text, uint32_t *out)
{
	uint32_t value = 0;

	for (int i = 0; i < 4; i++) {
		uint32_t part = 0;
		size_t digits = strspn(text, "0123456789");

		/* no leading zero: some readers take it for octal */
		if (digits == 0 || digits > 3 || (digits > 1 && text[0] == '0'))
			return -1;
		for (size_t k = 0; k < digits; k++)
			part = part * 10 + (uint32_t)(text[k] - '0');
		if (part > 255)
			return -1;
		value = value << 8 | part;
		text += digits;
		if (*text != (i < 3 ? '.' : '\0'))
			return -1;
		text++;
	}
	*out = value;
	return 0;
}

int egress_address(const char *text, uint32_t *out, struct err *e)
{
	if (parse_address(text, out) != 0)
		return err_show(e, ERR_INVALID, "\"%.80s\" is no IPv4 address", text);
	return 0;
}

static uint32_t mask_of(unsigned int bits)
{
	return bits == 0 ? 0 : UINT32_MAX << (32 - bits);
}

static bool covers(const struct egress_range *range, uint32_t address)
{
	return (address & mask_of(range->bits)) == range->base;
}

void egress_range_text(const struct egress_range *range, char out[EGRESS_CIDR_SIZE])
{
	uint32_t a = range->base;

	(void)snprintf(out, EGRESS_CIDR_SIZE, "%u.%u.%u.%u/%u", a >> 24, a >> 16 & 255,
		       a >> 8 & 255, a & 255, range->bits);
}

/* Networks that no name may open by itself. */
static bool is_inner(uint32_t address)
{
	static const struct egress_range inner[] = {
	    {0x00000000, 8},  {0x0A000000, 8},  {0x64400000, 10}, {0x7F000000, 8},
	    {0xA9FE0000, 16}, {0xAC100000, 12}, {0xC0A80000, 16}, {0xE0000000, 3}};

	for (size_t i = 0; i < ARRAY_LEN(inner); i++)
		if (covers(&inner[i], address))
			return true;
	return false;
}

/* --- tokens ----------------------------------------------------------------------------------- */

static bool name_is_good(const char *name)
{
	const char *last = name;
	size_t length = strlen(name);

	if (length == 0 || length >= EGRESS_NAME_SIZE)
		return false;
	for (const char *p = name;;) {
		size_t label = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789-_");

		if (label == 0 || label > LABEL_BYTES || p[0] == '-' || p[label - 1] == '-')
			return false;
		last = p;
		p += label;
		if (*p == '\0')
			break;
		if (*p++ != '.')
			return false;
	}
	/* what ends in a number is an address for many readers: 2852039166, 0xa9.254.169.254 */
	if (last[strspn(last, "0123456789")] == '\0')
		return false;
	return !(last[0] == '0' && last[1] == 'x' &&
		 last[2 + strspn(last + 2, "0123456789abcdef")] == '\0');
}

static int refuse(struct err *e, const char *token, const char *why)
{
	return err_show(e, ERR_INVALID, "\"%.*s\" %s", SHOWN_BYTES, token, why);
}

/* Cuts scheme, path, port and the final dot, and lowers letters. */
static int strip(char *text, const char *token, struct err *e)
{
	char *scheme = strstr(text, "://");
	char *port;
	size_t length;
	uint64_t number;
	struct err ignored = ERR_INIT;

	/* behind a scheme a slash begins a path, never a range */
	if (scheme != NULL) {
		memmove(text, scheme + 3, strlen(scheme + 3) + 1);
		text[strcspn(text, "/")] = '\0';
	}
	for (char *p = text; *p != '\0'; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p - 'A' + 'a');
	if (text[0] == '[' ||
	    (strchr(text, ':') != NULL && strchr(text, ':') != strrchr(text, ':')))
		return refuse(e, token, "is an IPv6 address: these lists are IPv4 only");
	port = strchr(text, ':');
	if (port != NULL) {
		char *slash = strchr(port, '/');

		if (slash != NULL)
			*slash = '\0';
		*port++ = '\0';
		if (num_u64("port", port, 1, 65535, &number, &ignored) != 0)
			return refuse(e, token, "has no port from 1 to 65535");
	}
	length = strlen(text);
	if (length > 1 && text[length - 1] == '.')
		text[length - 1] = '\0';
	return 0;
}

static int add_name(struct egress_list *list, struct egress_token *token, const char *name,
		    const char *shown, struct err *e)
{
	if (!name_is_good(name))
		return refuse(e, shown, "is no address, no range and no name");
	if (list->name_count >= EGRESS_NAMES_MAX)
		return err_show(e, ERR_LIMIT, "more than %d names", EGRESS_NAMES_MAX);
	(void)snprintf(list->names[list->name_count].name, EGRESS_NAME_SIZE, "%s", name);
	list->name_count++;
	token->name_count++;
	return 0;
}

/* The name, and those below it that the list of subdomains says. */
static int add_below(struct egress_list *list, struct egress_token *token, const char *subdomains,
		     const char *shown, struct err *e)
{
	while (true) {
		char name[EGRESS_NAME_SIZE * 2];
		size_t length = strcspn(subdomains, ",");

		(void)snprintf(name, sizeof(name), "%.*s%s%s",
			       (int)(length < EGRESS_NAME_SIZE ? length : EGRESS_NAME_SIZE),
			       subdomains, length == 0 ? "" : ".", token->host);
		if (add_name(list, token, name, length == 0 ? shown : name, e) != 0)
			return -1;
		subdomains += length;
		if (*subdomains == '\0')
			return 0;
		subdomains++;
	}
}

/* 1: it is a range or an address, 0: neither, -1 a bad range. */
static int take_numbers(struct egress_token *token, char *text, const char *shown, struct err *e)
{
	char *slash = strchr(text, '/');
	uint64_t bits = 32;
	struct err ignored = ERR_INIT;

	if (slash != NULL)
		*slash = '\0';
	if (parse_address(text, &token->range.base) != 0)
		return 0; /* of a name the slash begins a path */
	/* a path behind an address is dropped as well; digits make a range */
	token->is_range = slash != NULL && slash[1] >= '0' && slash[1] <= '9';
	if (token->is_range && num_u64("bits", slash + 1, 0, 32, &bits, &ignored) != 0)
		return refuse(e, shown, "is no range: /0 to /32");
	token->is_address = !token->is_range;
	token->range.bits = (unsigned int)bits;
	token->range.base &= mask_of(token->range.bits);
	if (token->is_range)
		egress_range_text(&token->range, token->host);
	else
		(void)snprintf(token->host, sizeof(token->host), "%s", text);
	return 1;
}

static int add_token(struct egress_list *list, const char *shown, const char *subdomains,
		     struct err *e)
{
	struct egress_token *token = &list->tokens[list->token_count];
	char text[EGRESS_NAME_SIZE + 64];
	const char *name = text;
	bool below;
	int got;

	if (str_copy(text, sizeof(text), shown) != 0)
		return refuse(e, shown, "is too long");
	memset(token, 0, sizeof(*token));
	token->first_name = list->name_count;
	if (strip(text, shown, e) != 0)
		return -1;
	got = take_numbers(token, text, shown, e);
	if (got < 0)
		return -1;
	if (got == 0) {
		below = text[0] == '.' || str_starts(text, "*.");
		if (below)
			name += text[0] == '.' ? 1 : 2;
		if (str_copy(token->host, sizeof(token->host), name) != 0)
			return refuse(e, shown, "is too long");
		if (add_below(list, token, below ? subdomains : "", shown, e) != 0)
			return -1;
	}
	list->token_count++;
	return 0;
}

int egress_add(struct egress_list *list, const char *tokens, const char *subdomains, struct err *e)
{
	if (list->tokens == NULL)
		list->tokens = mem_zalloc(EGRESS_TOKENS_MAX, sizeof(*list->tokens));
	if (list->names == NULL)
		list->names = mem_zalloc(EGRESS_NAMES_MAX, sizeof(*list->names));
	if (list->tokens == NULL || list->names == NULL)
		return err_set(e, ERR_NOMEM, 0, "egress list");
	tokens += strspn(tokens, ", \t\n");
	while (*tokens != '\0') {
		size_t length = strcspn(tokens, ", \t\n");
		scope_free char *token = mem_dup_bytes(tokens, length);

		if (token == NULL)
			return err_set(e, ERR_NOMEM, 0, "egress list");
		if (list->token_count >= EGRESS_TOKENS_MAX)
			return err_show(e, ERR_LIMIT, "more than %d entries", EGRESS_TOKENS_MAX);
		if (add_token(list, token, subdomains, e) != 0)
			return -1;
		tokens += length;
		tokens += strspn(tokens, ", \t\n");
	}
	return 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

static bool is_listed(const struct egress_list *list, uint32_t address)
{
	for (size_t i = 0; i < list->token_count; i++)
		if ((list->tokens[i].is_range || list->tokens[i].is_address) &&
		    covers(&list->tokens[i].range, address))
			return true;
	return false;
}

static int by_address(const void *a, const void *b)
{
	const uint32_t *x = a;
	const uint32_t *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void judge_answers(const struct egress_list *list, struct egress_name *name)
{
	size_t kept = 0;

	if (name->count > EGRESS_ADDRESSES_MAX)
		name->count = EGRESS_ADDRESSES_MAX;
	name->resolved = name->count > 0;
	qsort(name->addresses, name->count, sizeof(name->addresses[0]), by_address);
	for (size_t i = 0; i < name->count; i++) {
		uint32_t address = name->addresses[i];

		if (kept > 0 && name->addresses[kept - 1] == address)
			continue;
		if (is_inner(address) && !is_listed(list, address))
			name->left_out++;
		else
			name->addresses[kept++] = address;
	}
	name->count = kept;
}

int egress_resolve(struct egress_list *list, egress_resolver *resolver, void *context,
		   struct err *e)
{
	if (list->name_count > 0 && resolver(context, list->names, list->name_count, e) != 0)
		return -1;
	for (size_t i = 0; i < list->name_count; i++)
		judge_answers(list, &list->names[i]);
	return 0;
}

static int by_range(const void *a, const void *b)
{
	const struct egress_range *x = a;
	const struct egress_range *y = b;

	if (x->base != y->base)
		return x->base < y->base ? -1 : 1;
	return x->bits < y->bits ? -1 : x->bits > y->bits;
}

int egress_expand(const struct egress_list *list, struct egress_range **out, size_t *out_count,
		  struct err *e)
{
	struct egress_range *all;
	size_t room = list->token_count;
	size_t count = 0;
	size_t kept = 0;

	for (size_t i = 0; i < list->name_count; i++)
		room += list->names[i].count;
	all = mem_zalloc(room + 1, sizeof(*all));
	if (all == NULL)
		return err_set(e, ERR_NOMEM, 0, "egress targets");
	for (size_t i = 0; i < list->token_count; i++)
		if (list->tokens[i].is_range || list->tokens[i].is_address)
			all[count++] = list->tokens[i].range;
	for (size_t i = 0; i < list->name_count; i++)
		for (size_t k = 0; k < list->names[i].count; k++)
			all[count++] = (struct egress_range){list->names[i].addresses[k], 32};
	qsort(all, count, sizeof(*all), by_range);
	for (size_t i = 0; i < count; i++)
		if (kept == 0 || by_range(&all[kept - 1], &all[i]) != 0)
			all[kept++] = all[i];
	if (kept > EGRESS_TARGETS_MAX) {
		mem_free(all);
		return err_show(e, ERR_LIMIT, "more than %d targets", EGRESS_TARGETS_MAX);
	}
	*out = all;
	*out_count = kept;
	return 0;
}
