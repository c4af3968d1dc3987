/* The recent-flow cache. It has the fingerprints of flows that had a packet in this unit of time
 * and in this generation. Their tracked connections are up to date, or they need none. Another
 * permitted packet of such a flow would change nothing, so it need not look into the connection
 * table. With many active flows that table does not fit into the processor's cache, but this one
 * does. With few active flows both fit, and the cached verdict of the connection table is faster
 * than the list.
 *
 * The cache is a hint. Packets of a flow that is found by mistake (48 bits of a hash are compared)
 * still need the permission of their list; the flow's tracked connection is refreshed a unit of
 * time later. A flow that is not found is looked up in the connection table. */
#ifndef SLUICE_RECENT_H
#define SLUICE_RECENT_H
#include "state.h"

/* Four fingerprints, the latest in the low half of the first word. */
struct recent_bucket {
	__u64 w[2];
};

#define RECENT_SHIFT 48 /* the upper bits of the hash are the index, the next 32 the fingerprint */
#define FINGERPRINT_SHIFT 16

IN_PLACE(struct recent_bucket, recent);

/* The number of active flows. One in 64 flows is sampled, and counted once in a unit of time. The
 * upper half of a word is the unit, the lower half the count. Concurrent updates may lose
 * counts. */
struct active_flows {
	__u64 latest, before;
};

/* In a page of its own: every packet that looks for its flow reads it, and few write it. */
IN_PLACE(struct active_flows, activity);

#define SAMPLE_MASK 63 /* these bits of the hash are 0 in sampled flows */

CONFIG(__u32, recent_threshold) = 1 << 13; /* the flow-cache threshold, in active flows */

inline_always int is_above_threshold(__u64 count, __u32 now) { return now - (__u32)(count >> 32) <= 1 && (__u32)count * (SAMPLE_MASK + 1) >= recent_threshold; }

/* many_active_flows reports whether the number of active flows reached the threshold in this unit
 * of time or in the one before. */
inline_always int many_active_flows(__u32 now)
{
	struct active_flows *c = activity;
	return !recent_threshold || is_above_threshold(c->latest, now) || is_above_threshold(c->before, now);
}

/* count_active counts a flow at its first packet in a unit of time, if it is sampled. */
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

/* fingerprint returns the fingerprint of a flow in a direction. */
inline_always __u32 fingerprint(struct flow_key *k, struct packet *p, const int to_pod, __u32 now)
{
	return (__u32)(k->hash >> FINGERPRINT_SHIFT) ^ now * 0x85ebca6bU ^ p->generation * 0xc2b2ae35U ^ (to_pod ? 0x27d4eb2fU : 0);
}

/* is_zero sets the highest bit of its result if a number of 32 bits is 0. It avoids a branch, which
 * the processor could not predict. */
inline_always __u64 is_zero(__u64 x) { return minus_one(x); }

/* is_recent reports whether the flow of a packet is in the cache, and the packet does not end
 * it. */
inline_always int is_recent(struct flow_key *k, struct packet *p, const int to_pod, __u32 now)
{
	struct recent_bucket *at = recent_at(k);
	if (p->tcp & (TCP_FIN | TCP_RST))
		return 0;
	__u32 t = fingerprint(k, p, to_pod, now);
	__u64 a = at->w[0], b = at->w[1];
	return (is_zero((__u32)a ^ t) | is_zero(a >> 32 ^ t) | is_zero((__u32)b ^ t) | is_zero(b >> 32 ^ t)) >> 63;
}

/* add_recent replaces the oldest fingerprint by that of a flow. Concurrent updates may be lost. It
 * ignores first packets, which must always look into the connection table. */
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
