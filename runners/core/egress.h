/*
 * egress.h: allow lists of addresses and names: what they stand for now, and rules of nftables for
 * one source address. For operators: the list is the operator's, and so are the names that are
 * looked up. Nothing that a box says comes here.
 *
 *	struct egress_list list;
 *	egress_list_init(&list);
 *	egress_add(&list, "10.0.0.0/8,*.example.com", EGRESS_SUBDOMAINS, &e);
 *	egress_resolve(&list, egress_dns, &options, &e);
 *	egress_expand(&list, &targets, &e);
 *
 * A token is a range (10.0.0.0/8), an address, a name, or *.name and .name, which stand for the
 * name itself and a few names below it. A scheme, a path and a port are dropped, letters are
 * lowered, a final dot goes. IPv4 only. What is none of that is refused with its own words.
 *
 * What a name gives counts as /32. An answer that is private, loopback, link-local, shared, of
 * multicast or reserved counts only where an address or a range of the list has it too: the owner
 * of a name must not open the operator's own networks.
 */
#ifndef CORDON_CORE_EGRESS_H
#define CORDON_CORE_EGRESS_H

#include "runners/base/buf.h"
#include "runners/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EGRESS_TOKENS_MAX    1024
#define EGRESS_NAMES_MAX     4096
#define EGRESS_ADDRESSES_MAX 64 /* of one name */
#define EGRESS_TARGETS_MAX   8192
#define EGRESS_NAME_SIZE     254
#define EGRESS_LABEL_MAX     64
#define EGRESS_CIDR_SIZE     20
#define EGRESS_SUBDOMAINS    ",www,api" /* "" is the name itself */

/* Addresses are in the host's byte order. */
struct egress_name {
	char name[EGRESS_NAME_SIZE];
	bool resolved; /* it has an address */
	uint32_t addresses[EGRESS_ADDRESSES_MAX];
	size_t count;
	size_t left_out; /* answers that do not count */
};

struct egress_range {
	uint32_t base;
	unsigned int bits;
};

/* One token, as it was understood. */
struct egress_token {
	char host[EGRESS_NAME_SIZE]; /* the name without *. or ., or the text of the address or
					range */
	bool is_range;
	bool is_address;
	struct egress_range range; /* of both */
	size_t first_name;         /* its names in the list */
	size_t name_count;
};

struct egress_list {
	struct egress_token *tokens; /* mem */
	size_t token_count;
	struct egress_name *names; /* mem */
	size_t name_count;
};

/* Fills addresses and count of each name; a name without one stays empty. -1: nothing can be
 * looked up at all. */
typedef int egress_resolver(void *context, struct egress_name *names, size_t count, struct err *e);

struct egress_dns_options {
	const char *servers; /* "address[:port],...", NULL: the host's */
	int64_t timeout_ms;  /* for all names together */
};

void egress_list_init(struct egress_list *list);
void egress_list_release(struct egress_list *list);
/* Tokens with commas or blanks between. subdomains: with commas between. ERR_INVALID names the
 * token. */
int egress_add(struct egress_list *list, const char *tokens, const char *subdomains, struct err *e);
int egress_resolve(struct egress_list *list, egress_resolver *resolver, void *context,
		   struct err *e);
/* context: struct egress_dns_options. */
egress_resolver egress_dns;

/* "a.b.c.d/n", sorted by address, each once; *out is mem. */
int egress_expand(const struct egress_list *list, struct egress_range **out, size_t *out_count,
		  struct err *e);
void egress_range_text(const struct egress_range *range, char out[EGRESS_CIDR_SIZE]);
/* One dotted address, strictly. */
int egress_address(const char *text, uint32_t *out, struct err *e);

/* 1 to 64 of a-z A-Z 0-9 - _ . */
bool egress_label_ok(const char *label);
/* The text for `nft -f -` that replaces the rules of the label: what comes from source may go to
 * the targets, and nowhere else. Each label has a chain of its own, so the change is one
 * transaction and touches nobody else's rules. */
void egress_rules(struct buf *out, const char *label, uint32_t source,
		  const struct egress_range *targets, size_t count);
/* The text that takes them away; it does no harm when there are none. */
void egress_rules_remove(struct buf *out, const char *label);
/* Gives the text to nft. ERR_UNAVAILABLE: there is no nft; ERR_IO with its own words. */
int egress_apply(const struct buf *rules, struct err *e);

#endif
