/* The classifier for the nodes of VPP. It is compiled for each kind of processor that these are compiled
 * for, and the variables of threads are its own each time. */
#include <time.h>

#define MAPS_ELSEWHERE /* in judge.c */
#include "image.h"
#include "judge.h"

extern struct image current;

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

/* So many packets before it is judged a packet is read, and what else it needs is fetched in steps. */
#define PREPARED 12
#define FETCHED 8
#define FETCHED_NEXT 5
#define FETCHED_LAST 2
#define READ_AHEAD 16 /* places for packets that were read */

/* STEP is a step of fetch for the packet that is judged so many packets later than the i-th one, which
 * is read now. */
#define STEP(distance, v6, step) \
	if (likely(i >= PREPARED - (distance) && i - (PREPARED - (distance)) < count)) \
		fetch(&f, &ahead[(i - (PREPARED - (distance))) % READ_AHEAD], v6, step);

/* judge_frame is compiled for each family and direction. */
#define JUDGE_FRAME(name, v6, to_pod) \
	static __attribute__((noinline)) int name##_one(struct judged *j, struct prepared *q) { return judge_one(j, q, v6, to_pod); } \
	static unsigned name(struct judged *all, unsigned count) \
	{ \
		struct frame f; \
		struct prepared ahead[READ_AHEAD]; \
		unsigned dropped = 0; \
		begin(&f); \
		for (unsigned i = 0; i < count + PREPARED; i++) { \
			if (likely(i < count)) { \
				struct bytes b = bytes_of(&all[i], v6); \
				prepare(&f, &ahead[i % READ_AHEAD], &b, all[i].endpoint, all[i].hairpin, to_pod); \
			} \
			STEP(FETCHED, v6, 0) \
			STEP(FETCHED_NEXT, v6, 1) \
			STEP(FETCHED_LAST, v6, 2) \
			if (i < PREPARED) \
				continue; \
			struct judged *j = &all[i - PREPARED]; \
			struct prepared *q = &ahead[(i - PREPARED) % READ_AHEAD]; \
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

int JUDGE(judge_packets)(unsigned thread, struct judged *all, unsigned count, int v6, int to_pod)
{
	struct timespec now;
	int dropped;
	if (!current.policy || current.cut)
		return -1;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	begin_frame(&current, thread, (__u64)now.tv_sec * 1000000000 + now.tv_nsec);
	if (to_pod)
		dropped = v6 ? to_pod6(all, count) : to_pod4(all, count);
	else
		dropped = v6 ? from_pod6(all, count) : from_pod4(all, count);
	end_frame(&current, thread);
	return dropped;
}
