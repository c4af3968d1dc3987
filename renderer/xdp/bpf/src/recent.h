/* Flows that went on lately, in this unit of time, while lists said what they say now: their evidence is
 * up to date, or they need none. Another packet of theirs that its list permits would change nothing, so
 * that it need not look: of many flows at once the table is larger than a cache, and this is not. Of few
 * flows all that is known is in a cache, and what their lists said is found sooner than it is asked.
 *
 * It is a hint. A flow that is in here by mistake (48 bits of a hash are compared) passes as its
 * list says, and its evidence is a unit of time older; one that is not is looked for. */
#ifndef SLUICE_RECENT_H
#define SLUICE_RECENT_H
#include "state.h"

/* Four traces, the latest in the low half of the first word. */
struct recent_bucket {
	__u64 w[2];
};

#define RECENT_SHIFT 48 /* places are the upper bits of the hash, traces the next 32 */
#define FINGERPRINT_SHIFT 16

IN_PLACE(struct recent_bucket, recent);

/* How many flows go on: of every 64th, each is counted once in a unit, in the lower half of a word whose
 * upper half is the unit. Who counts at the same time may lose some. */
struct active_flows {
	__u64 latest, before;
};

IN_PLACE(struct active_flows, activity); /* in a page of its own: it is read by every packet that looks for its flow, and rarely written */

#define SAMPLE_MASK 63 /* bits of the hash that are 0 in flows that are counted */

volatile const __u32 recent_threshold = 1 << 13; /* as many flows are a crowd */

inline_always int is_above_threshold(__u64 count, __u32 now) { return now - (__u32)(count >> 32) <= 1 && (__u32)count * (SAMPLE_MASK + 1) >= recent_threshold; }

/* crowded reports whether many flows went on in this unit or in the one before. */
inline_always int many_active_flows(__u32 now)
{
	struct active_flows *c = activity;
	return !recent_threshold || is_above_threshold(c->latest, now) || is_above_threshold(c->before, now);
}

/* counted counts a flow that is met the first time in a unit. */
inline_always void count_active(struct flow_key *k, __u32 now)
{
	struct active_flows *c = activity;
	if (k->hash & SAMPLE_MASK)
		return;
	__u64 was = c->latest;
	if (was >> 32 == now) {
		c->latest = was + 1;
		return;
	}
	c->before = was;
	c->latest = (__u64)now << 32 | 1;
}

inline_always struct recent_bucket *recent_at(struct flow_key *k)
{
	return AT(recent, k->hash >> RECENT_SHIFT);
}

/* trace is what a flow leaves that goes on in a direction. */
inline_always __u32 fingerprint(struct flow_key *k, struct packet *p, const int to_pod, __u32 now)
{
	return (__u32)(k->hash >> FINGERPRINT_SHIFT) ^ now * 0x85ebca6bU ^ p->generation * 0xc2b2ae35U ^ (to_pod ? 0x27d4eb2fU : 0);
}

/* none has its highest bit set if a number of 32 bits is 0. No branch is made of it: which of four
 * traces it is, is foreseen no better than a coin. */
inline_always __u64 is_zero(__u64 x)
{
	asm volatile("%0 += -1" : "+r"(x));
	return x;
}

/* went_on reports whether a packet tells of its flow only that it goes on, and that is known. */
inline_always int is_recent(struct flow_key *k, struct packet *p, const int to_pod, __u32 now)
{
	struct recent_bucket *at = recent_at(k);
	if (p->tcp & (TCP_FIN | TCP_RST))
		return 0;
	__u32 t = fingerprint(k, p, to_pod, now);
	__u64 a = at->w[0], b = at->w[1];
	return (is_zero((__u32)a ^ t) | is_zero(a >> 32 ^ t) | is_zero((__u32)b ^ t) | is_zero(b >> 32 ^ t)) >> 63;
}

/* leaves puts a trace in the place of the oldest one. If others do so at the same time, some are lost.
 * The first packet of a flow leaves none: it is never taken for one that goes on. */
inline_always void add_recent(struct flow_key *k, struct packet *p, const int to_pod, __u32 now)
{
	struct recent_bucket *at = recent_at(k);
	if (p->kind == FIRST_PACKET)
		return;
	__u64 a = at->w[0];
	at->w[1] = at->w[1] << 32 | a >> 32;
	at->w[0] = a << 32 | fingerprint(k, p, to_pod, now);
}

#endif
