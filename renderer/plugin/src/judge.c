/* The classifier for the nodes of VPP. */
#include <signal.h>
#include <time.h>

#include "image.h"
#include "judge.h"

static struct image current = NO_IMAGE, next = NO_IMAGE;

#define REASON(name, text) NODE_##name,
enum { FOREACH_REASON(REASON) NODE_REASONS };
_Static_assert(NODE_REASONS == REASONS + 1 && NODE_IS_TUNNEL == IS_TUNNEL && NODE_IS_NON_IP == IS_NON_IP, "FOREACH_REASON has the order of enum reason");

static struct sigaction before;

/* on_bus is called on an access to memory of a file that became shorter. */
static void on_bus(int signal, siginfo_t *info, void *context)
{
	if (survive_cut(&current, info->si_addr) || survive_cut(&next, info->si_addr))
		return;
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(signal, info, context);
	else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
		before.sa_handler(signal);
	else
		sigaction(SIGBUS, &before, 0); /* and the access is made again */
}

int judge_survive(void)
{
	struct sigaction survive = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	return sigaction(SIGBUS, &survive, &before);
}

/* has_agent reports whether the agent lives whose memory is mapped: it has locked its directory. */
static int has_agent(const struct image *m)
{
	if (m->directory_file < 0 || !flock(m->directory_file, LOCK_EX | LOCK_NB))
		return m->directory_file >= 0 && flock(m->directory_file, LOCK_UN);
	return errno == EWOULDBLOCK;
}

static int same_directory(const struct image *a, const struct image *b)
{
	return a->directory.st_dev == b->directory.st_dev && a->directory.st_ino == b->directory.st_ino;
}

const char *judge_open(const char *directory, unsigned threads)
{
	const char *problem = open_image(&next, directory, threads);
	if (!problem && !same_directory(&current, &next) && has_agent(&current))
		problem = "another agent enforces in this VPP, with other memory: end one of them";
	if (problem)
		close_image(&next);
	else
		for (unsigned i = 0; i < threads; i++)
			reset_epoch(&next, i);
	return problem;
}

void judge_switch(void)
{
	struct image last = current;
	current = next;
	next = last;
	clear_map(&frags);
}

void judge_close(void) { close_image(&next); }

int judge_begin(unsigned thread)
{
	struct timespec now;
	if (!current.policy || current.cut)
		return 0;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	begin_frame(&current, thread, (__u64)now.tv_sec * 1000000000 + now.tv_nsec);
	return 1;
}

void judge_end(unsigned thread) { end_frame(&current, thread); }

inline_always struct bytes bytes_of(const struct judged *j, const int v6)
{
	return (struct bytes){.data = j->data, .length = j->length, .whole = j->whole, .network = v6 ? ETH_IP6 : ETH_IP4};
}

/* note_link_local stores the lower half of the link-local address of an endpoint. Other threads read
 * the words one by one: while the index is another one's there is no address. */
static void note_link_local(__u32 endpoint, __u64 address)
{
	struct reach *r = AT(gateways, endpoint & (PLACES - 1));
	__u64 index = (__u64)(endpoint / PLACES) << 48;
	if (r->gateway != index) {
		__atomic_store_n(&r->link_local, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&r->gateway, index, __ATOMIC_SEQ_CST);
	}
	if (r->link_local != address)
		__atomic_store_n(&r->link_local, address, __ATOMIC_RELEASE);
}

/* judge_one judges a packet by the lists of its pod. q is what is known of it. */
inline_always int judge_one(struct judged *j, struct prepared *q, const int v6, const int to_pod)
{
	struct bytes b = bytes_of(j, v6);
	struct packet p = {.hairpin = j->hairpin, .made_here = j->made_here, .key = q->parsed ? &q->key : 0};
	decided_by = 0;
	if (!to_pod && v6 && likely(j->length >= sizeof(struct ip6))) {
		/* VPP routes no link-local address, so such a source is that of a pod about its link. The
		 * agent does not know these addresses. */
		const struct ip6 *ip = j->data;
		struct address from = {.w = {ntohl(ip->from[0]), ntohl(ip->from[1]), ntohl(ip->from[2]), ntohl(ip->from[3])}};
		if (unlikely(is_link_local(&from) && j->endpoint != ~0u)) /* that of no bound interface */
			note_link_local(j->endpoint, (__u64)from.w[2] << 32 | from.w[3]);
	}
	j->reason = classify(&b, &p, j->endpoint, to_pod, ENFORCE);
	j->rule = decided_by;
	return j->reason != PERMITTED;
}

/* How many packets before it is judged a packet is read, and what else it needs is fetched. */
#define PREPARED 8
#define FETCHED 4
#define FETCHED_NEXT 2

/* judge_frame is compiled for each family and direction. */
#define JUDGE_FRAME(name, v6, to_pod) \
	static __attribute__((noinline)) int name##_one(struct judged *j, struct prepared *q) { return judge_one(j, q, v6, to_pod); } \
	static unsigned name(struct judged *all, unsigned count) \
	{ \
		struct frame f; \
		struct prepared ahead[2 * PREPARED]; \
		unsigned dropped = 0; \
		begin(&f); \
		for (unsigned i = 0; i < count + PREPARED; i++) { \
			if (likely(i < count)) { \
				struct bytes b = bytes_of(&all[i], v6); \
				prepare(&f, &ahead[i % (2 * PREPARED)], &b, all[i].endpoint, all[i].hairpin, to_pod); \
			} \
			if (i < PREPARED - FETCHED) \
				continue; \
			if (likely(i - (PREPARED - FETCHED) < count)) \
				fetch(&f, &ahead[(i - (PREPARED - FETCHED)) % (2 * PREPARED)], v6, 0); \
			if (i < PREPARED) \
				continue; \
			if (!v6 && likely(i - (PREPARED - FETCHED_NEXT) < count)) \
				fetch(&f, &ahead[(i - (PREPARED - FETCHED_NEXT)) % (2 * PREPARED)], v6, 1); \
			struct judged *j = &all[i - PREPARED]; \
			struct prepared *q = &ahead[(i - PREPARED) % (2 * PREPARED)]; \
			j->reason = PERMITTED; \
			j->rule = known(&f, q, to_pod); \
			if (unlikely(j->rule == UNKNOWN)) \
				dropped += name##_one(j, q); \
		} \
		return dropped; \
	}

JUDGE_FRAME(from_pod4, 0, 0)
JUDGE_FRAME(from_pod6, 1, 0)
JUDGE_FRAME(to_pod4, 0, 1)
JUDGE_FRAME(to_pod6, 1, 1)

unsigned judge_packets(struct judged *all, unsigned count, int v6, int to_pod)
{
	if (to_pod)
		return v6 ? to_pod6(all, count) : to_pod4(all, count);
	return v6 ? from_pod6(all, count) : from_pod4(all, count);
}

unsigned judge_rules(void)
{
	if (!current.policy)
		return 0;
	unsigned rules = *(volatile __u32 *)&current.policy->rules[current.policy->in_force & 1];
	return rules < current.is.slots ? rules : current.is.slots;
}

/* in_force returns one of two offsets: that of the policy map in force. */
static __u64 in_force(const __u64 *at) { return at[current.policy->in_force & 1]; }

_Static_assert(RULE_NAME == NAME_BYTES, "length of names");
void judge_rule_name(unsigned rule, char to[RULE_NAME])
{
	to[0] = 0;
	if (rule < judge_rules())
		memcpy(to, (char *)current.policy + in_force(current.is.at_names) + (__u64)rule * NAME_BYTES, NAME_BYTES);
	to[NAME_BYTES - 1] = 0;
}

unsigned long long judge_decided(unsigned rule, unsigned thread)
{
	if (rule >= judge_rules() || thread >= MOST_THREADS)
		return 0;
	__u64 *all = (__u64 *)((__u8 *)current.state + in_force(current.is.at_counters));
	return *(volatile __u64 *)&all[(__u64)thread * current.is.slots + rule];
}

unsigned long long judge_inode(void) { return current.policy && !current.cut ? current.inode : 0; }

unsigned judge_version(void) { return IMAGE_VERSION; }

unsigned long long judge_dropped(unsigned reason)
{
	unsigned long long n = 0;
	if (!current.policy)
		return 0;
	__u64 *all = (__u64 *)((__u8 *)current.state + current.is.at_drops);
	for (unsigned i = 0; i < MOST_THREADS; i++)
		n += all[i * DROP_PLACES + (reason & (DROP_PLACES - 1))];
	return n;
}

unsigned judge_connections(unsigned endpoint)
{
	if (!current.policy)
		return 0;
	struct share *all = (struct share *)((__u8 *)current.state + current.is.at_shares);
	return *(volatile __u32 *)&all[endpoint & (PLACES - 1)].flows;
}
