/* egress_dns.c: names to addresses by c-ares: some names at a time, one deadline for all. */
#include "runners/core/egress.h"

#include "runners/base/clock.h"
#include "runners/base/str.h"

#include <ares.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#define AT_ONCE    64
#define TRY_MS     1000
#define TRIES      2
#define TURN_MS    100
#define TIMEOUT_MS 10000

struct lookup {
	struct egress_name *names;
	size_t count;
	size_t next;
	size_t pending;
	ares_channel channel;
};

struct question {
	struct lookup *lookup;
	struct egress_name *name;
};

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *result)
{
	struct question *question = arg;
	struct egress_name *name = question->name;

	(void)timeouts;
	question->lookup->pending--;
	question->name = NULL;
	if (status == ARES_SUCCESS && result != NULL) {
		for (const struct ares_addrinfo_node *node = result->nodes;
		     node != NULL && name->count < EGRESS_ADDRESSES_MAX; node = node->ai_next) {
			struct sockaddr_in address;

			if (node->ai_family != AF_INET || node->ai_addrlen < sizeof(address))
				continue;
			memcpy(&address, node->ai_addr, sizeof(address));
			name->addresses[name->count++] = ntohl(address.sin_addr.s_addr);
		}
	}
	if (result != NULL)
		ares_freeaddrinfo(result);
}

static void ask_more(struct lookup *lookup, struct question questions[AT_ONCE])
{
	static const struct ares_addrinfo_hints hints = {.ai_family = AF_INET,
							 .ai_flags = ARES_AI_NOSORT};

	for (size_t i = 0; i < AT_ONCE && lookup->next < lookup->count; i++) {
		if (questions[i].name != NULL)
			continue;
		questions[i].lookup = lookup;
		questions[i].name = &lookup->names[lookup->next++];
		questions[i].name->count = 0;
		lookup->pending++;
		/* the answer may come before this returns */
		ares_getaddrinfo(lookup->channel, questions[i].name->name, NULL, &hints, on_answer,
				 &questions[i]);
	}
}

static void turn(struct lookup *lookup, int64_t left_ms)
{
	ares_socket_t sockets[ARES_GETSOCK_MAXNUM];
	struct pollfd polls[ARES_GETSOCK_MAXNUM];
	int mask = ares_getsock(lookup->channel, sockets, ARES_GETSOCK_MAXNUM);
	nfds_t count = 0;

	for (unsigned int i = 0; i < ARES_GETSOCK_MAXNUM; i++) {
		/* as the macros of c-ares, which shift into the sign */
		bool reads = ((unsigned int)mask >> i & 1U) != 0;
		bool writes = ((unsigned int)mask >> (i + ARES_GETSOCK_MAXNUM) & 1U) != 0;

		if (reads || writes)
			polls[count++] = (struct pollfd){
			    .fd = sockets[i],
			    .events = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0))};
	}
	(void)poll(polls, count, (int)(left_ms < TURN_MS ? left_ms : TURN_MS));
	for (nfds_t i = 0; i < count; i++)
		ares_process_fd(lookup->channel,
				(polls[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0
				    ? polls[i].fd
				    : ARES_SOCKET_BAD,
				(polls[i].revents & POLLOUT) != 0 ? polls[i].fd : ARES_SOCKET_BAD);
	/* time-outs of the tries */
	ares_process_fd(lookup->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

int egress_dns(void *context, struct egress_name *names, size_t count, struct err *e)
{
	const struct egress_dns_options *wish = context;
	struct ares_options options = {
	    .flags = ARES_FLAG_NOSEARCH, .timeout = TRY_MS, .tries = TRIES};
	struct question questions[AT_ONCE] = {{NULL, NULL}};
	struct lookup lookup = {.names = names, .count = count};
	int64_t until = clock_monotonic_us() +
			(wish != NULL && wish->timeout_ms > 0 ? wish->timeout_ms : TIMEOUT_MS) *
			    CLOCK_US_PER_MS;
	int status = ares_library_init(ARES_LIB_INIT_ALL);

	if (status != ARES_SUCCESS)
		return err_set(e, ERR_INTERNAL, 0, "c-ares: %s", ares_strerror(status));
	status = ares_init_options(&lookup.channel, &options,
				   ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);
	if (status != ARES_SUCCESS) {
		ares_library_cleanup();
		return err_set(e, ERR_UNAVAILABLE, 0, "c-ares: %s", ares_strerror(status));
	}
	if (wish != NULL && wish->servers != NULL)
		status = ares_set_servers_ports_csv(lookup.channel, wish->servers);
	while (status == ARES_SUCCESS && (lookup.pending > 0 || lookup.next < lookup.count)) {
		int64_t left = (until - clock_monotonic_us()) / CLOCK_US_PER_MS;

		if (left <= 0)
			break;
		ask_more(&lookup, questions);
		turn(&lookup, left);
	}
	/* calls on_answer for what is still open */
	ares_destroy(lookup.channel);
	ares_library_cleanup();
	if (status != ARES_SUCCESS)
		return err_show(e, ERR_INVALID, "the DNS servers cannot be used: %s",
				ares_strerror(status));
	return 0;
}
