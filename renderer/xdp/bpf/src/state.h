/* Evidence of flows, and of the ports of fragments. Only what is permitted leaves any. */
#ifndef SLUICE_STATE_H
#define SLUICE_STATE_H
#include "flows.h"

/* Ports of fragments. Each endpoint has so many places for each direction, and a packet replaces another one of
 * the same endpoint only. Nothing is taken before it is used. */
#define FRAGMENT_SHARE 64
struct fragment_key {
	__u32 id, place;
};

struct fragment {
	__u32 ports, last, packet, from_to, remote[4], local[4];
};

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* A unit of time is 2^tick_shift ticks of the kernel, of which a second has so many: about a
 * quarter of a second. */
volatile const __u32 ticks_per_second = 1000, tick_shift = 8;

inline_always __u32 now_units(void) { return jiffies() >> tick_shift; }

#define UNITS(seconds) ((__u32)(seconds) * ticks_per_second >> tick_shift)

/* How long evidence holds, by what was seen. */
inline_always __u32 lifetime(__u32 protocol, __u64 seen)
{
	if (protocol == P_TCP || protocol == P_SCTP) {
		if (seen & SEEN_RST)
			return UNITS(10);
		if ((seen & (SEEN_FIN | SEEN_FIN_REPLY)) == (SEEN_FIN | SEEN_FIN_REPLY))
			return UNITS(30);
		return seen & SEEN_REPLY ? UNITS(6 * 3600) : UNITS(60);
	}
	return seen & SEEN_REPLY ? UNITS(180) : UNITS(30);
}

/* age is how long ago a flow was seen. Another processor may have seen it behind now. */
inline_always __u32 age(__u64 state, __u32 now)
{
	__u32 units = now - (__u32)state;
	return units >> 31 ? 0 : units;
}

inline_always int holds(__u64 state, __u32 now)
{
	return age(state, now) <= lifetime(state >> STATE_PROTOCOL_SHIFT & 0xff, state);
}

/* sees notes that a packet was seen, of a flow whose state was read. Another processor may do so at
 * the same time; what both saw is kept. */
inline_always void sees(struct flow *f, __u64 state, __u32 now, __u64 set, __u64 clear)
{
#define SEES { \
		__u64 to = (state & ~(STATE_LAST | clear)) | set | now; \
		if (likely(to == state)) \
			return; \
		__u64 was = __sync_val_compare_and_swap(&f->state, state, to); \
		if (was == state || (was ^ state) & (STATE_TURNS | STATE_BUSY)) \
			return; \
		state = was; \
	}
	SEES SEES SEES SEES
#undef SEES
}

/* said is what a flow has of a verdict. A slot that is too large to be kept is of a generation before,
 * so that the list is asked. */
inline_always __u64 said(struct packet *p, __u32 v)
{
	__u32 slot = v & SLOT_MASK;
	return (__u64)(slot > SAID_SLOT ? p->generation - 2 : p->generation) << SAID_GENERATION_SHIFT | (slot & SAID_SLOT);
}

/* refreshes brings the evidence of a flow that goes in a direction up to date. It returns 0 if
 * there is none, or if it is none any more. */
inline_always int refreshes(struct found *in, struct packet *p, int to_pod, __u32 now)
{
	__u64 state = in->state;
	if (!in->flow || !(state & STATE_TO_POD) != !to_pod || !holds(state, now))
		return 0;
	__u64 clear = p->kind == FIRST_PACKET && state & (SEEN_FIN | SEEN_RST) ? SEEN_REPLY | SEEN_FIN | SEEN_FIN_REPLY | SEEN_RST : 0; /* the ports are used again */
	sees(in->flow, state, now, (p->tcp & TCP_FIN ? SEEN_FIN : 0) | (p->tcp & TCP_RST ? SEEN_RST : 0), clear);
	return 1;
}

/* replies reports whether there is evidence of a flow in the other direction than to_pod, or, with
 * either, in any. With look, nothing is noted. */
inline_always int replies(struct found *in, struct packet *p, int to_pod, int either, int look, __u32 now)
{
	__u64 state = in->state;
	int same = !(state & STATE_TO_POD) == !to_pod;
	if (!in->flow || !holds(state, now) || (same && !either))
		return 0;
	if (!look)
		sees(in->flow, state, now, (same ? 0 : SEEN_REPLY) | (p->tcp & TCP_FIN ? same ? SEEN_FIN : SEEN_FIN_REPLY : 0) | (p->tcp & TCP_RST ? SEEN_RST : 0), 0);
	return 1;
}

/* worth orders the places that a flow may take the place of, the least first: what nobody has,
 * what does not hold any more, what was not answered, and what was seen longest ago. */
inline_always __u64 worth(__u64 state, __u32 now)
{
	__u64 zero = state;
	asm volatile("%0 ^= %0" : "+r"(zero)); /* not known to the kernel, which would check each way for each value */
	if (state & STATE_BUSY)
		return ~zero;
	if (!(state & STATE_USED) || !holds(state, now))
		return zero;
	return 1 + (state & SEEN_REPLY ? 1ULL << 33 : 0) + ~age(state, now);
}

/* begun is the state of a flow of which one packet was seen. */
inline_always __u64 begun(__u32 now, int to_pod) { return (to_pod ? STATE_TO_POD : 0) | now; }

/* What became of a flow that is to be noted. */
enum { IS_NOTED, BEGUN, LOST /* others were faster */, NOWHERE, PERHAPS, CROWDED, REFUSED };

/* note writes the flow of a packet to one of its places, as seen now. Unless it is sure that it is
 * nowhere, a place that may be the flow's ends this: PERHAPS. If others have all places, it is CROWDED. */
on_its_own int note(__u32 id, struct packet *p, int to_pod, __u32 v, int sure)
{
	if (!p)
		return LOST;
	struct flow_key k;
	flow_key(&k, id, p);
	struct bucket *a = bucket_at(k.bucket[0]);
	__u32 now = p->now;
	struct flow *best = &a->flow[0];
	__u64 was = 0, least = ~0ULL;
#define WORTH(x) { \
		struct flow *f = x; \
		__u64 s = state_of(f), w = worth(s, now); \
		if (f->ports == k.ports && f->remote == k.remote && !sure) \
			return PERHAPS; \
		if (w < least) { \
			best = f; \
			was = s; \
			least = w; \
		} \
	}
	WORTH(&a->flow[0]) WORTH(&a->flow[1])
	if (fuller(a, 1)) {
		WORTH(&a->flow[2]) WORTH(&a->flow[3])
	}
	if (spilled(a)) { /* nothing goes there while there is room: find knows that */
		struct bucket *b = bucket_at(k.bucket[1]);
		WORTH(&b->flow[0]) WORTH(&b->flow[1]) WORTH(&b->flow[2]) WORTH(&b->flow[3])
	}
#undef WORTH
	if (least)
		return CROWDED;
	asm volatile("" : "+r"(p)); /* the key is made again, and takes no stack before */
	flow_key(&k, id, p);
	return put(best, was, &k, begun(now, to_pod), said(p, v)) ? BEGUN : LOST;
}

/* claim orders places that are taken by whose they are: first those of who has more than its share, of these first
 * the own ones, then other own ones, then those of OTHERS; and, of the same, as worth does. It is a call, so that the
 * kernel need not check each way through it for each place. */
#define OTHERS 3
#define CLAIM_SHIFT 36
on_its_own __u64 claim(__u64 state, __u32 now, __u32 owner, __u32 id)
{
	__u64 w = worth(state, now), whose = exceeds(owner) ? owner != id : owner == id ? 2 : OTHERS;
	return w ? w | whose << CLAIM_SHIFT : 0;
}

/* displace writes the flow of a packet that is nowhere to a place of another one. An endpoint that has more than
 * its share takes nothing from one that has not. */
on_its_own int displace(__u32 id, struct packet *p, int to_pod, __u32 v)
{
	if (!p)
		return LOST;
	struct flow_key k;
	flow_key(&k, id, p);
	struct flow *best = 0;
	__u64 was = 0, least = ~0ULL;
	for (int i = 0; i < 2 * BUCKET_FLOWS; i++) {
		struct flow *f = &bucket_at(k.bucket[i / BUCKET_FLOWS])->flow[i % BUCKET_FLOWS];
		__u64 state = state_of(f), w = claim(state, p->now, f->ports >> 32, id);
		if (w < least) {
			best = f;
			was = state;
			least = w;
		}
	}
	if (!best || (least >> CLAIM_SHIFT == OTHERS && exceeds(id)))
		return REFUSED;
	return put(best, was, &k, begun(p->now, to_pod), said(p, v)) ? BEGUN : LOST;
}

/* renote writes the flow of a packet to the place that it has, if it has one. */
on_its_own int renote(__u32 id, struct packet *p, int to_pod, __u32 v, int keep)
{
	if (!p)
		return LOST;
	struct flow_key k;
	flow_key(&k, id, p);
	struct found in = find(&k);
	__u32 now = p->now;
	if (refreshes(&in, p, to_pod, now)) {
		renew(&in, said(p, v));
		return IS_NOTED;
	}
	if ((keep && p->kind != FIRST_PACKET && replies(&in, p, to_pod, 0, 0, now)) || p->tcp & TCP_RST)
		return IS_NOTED;
	if (!in.flow)
		return NOWHERE;
	return put(in.flow, in.state, &k, begun(now, to_pod), said(p, v)) ? BEGUN : LOST;
}

/* noted_at notes the flow of a packet, if it must in the place of another one. */
inline_always int noted_at(__u32 id, struct packet *p, int to_pod, __u32 v, int sure)
{
	int now = note(id, p, to_pod, v, sure);
	return unlikely(now == CROWDED) ? displace(id, p, to_pod, v) : now;
}

/* sought notes the flow of a packet where it is, or, if it is nowhere, elsewhere. */
inline_always int sought(__u32 id, struct packet *p, int to_pod, __u32 v, int keep)
{
	int now = renote(id, p, to_pod, v, keep);
	return now == NOWHERE ? noted_at(id, p, to_pod, v, 1) : now;
}

/* begins notes the flow of a packet that goes in a direction and whose list says v, unless it is
 * noted already: then it returns 0. With keep, also the flow of which this is an answer may be noted.
 * If others are faster it is tried again, and then left to the next packet of the flow. */
inline_always int begins(__u32 id, struct packet *p, int to_pod, __u32 v, int keep)
{
	int now = keep || p->tcp & TCP_RST ? PERHAPS : noted_at(id, p, to_pod, v, 0);
	if (unlikely(now == PERHAPS || now == LOST))
		now = sought(id, p, to_pod, v, keep);
	if (unlikely(now == LOST))
		now = sought(id, p, to_pod, v, keep);
	return now == BEGUN;
}

/* answers reports whether there is evidence of what a packet answers. */
on_its_own int answers(__u32 id, struct packet *p, int to_pod, int either, int look)
{
	if (!p)
		return 0;
	struct flow_key k;
	flow_key(&k, id, p);
	struct found in = find(&k);
	return replies(&in, p, to_pod, either, look, p->now);
}

/* fragment_of is of which packet a fragment is, and where that is noted. */
inline_always void fragment_of(struct fragment_key *k, struct fragment *f, __u32 id, struct packet *p)
{
	*f = (struct fragment){ .last = p->now, .packet = p->id, .from_to = (__u32)p->protocol << 8 | p->v6 << 1 | p->to_pod };
	__u32 of = ntohl(p->id << (p->v6 ? 0 : 16)) ^ f->from_to;
	for (int i = 0; i < 4; i++) {
		f->remote[i] = p->remote.w[i];
		f->local[i] = p->local.w[i];
		of ^= p->remote.w[i];
	}
	*k = (struct fragment_key){ .id = id, .place = (p->to_pod ? FRAGMENT_SHARE : 0) + of % FRAGMENT_SHARE };
}

/* first_fragment notes the ports of a packet whose first fragment was permitted. */
on_its_own int first_fragment(__u32 id, struct packet *p)
{
	if (!p)
		return 0;
	struct fragment_key k;
	struct fragment f;
	fragment_of(&k, &f, id, p);
	f.ports = (__u32)p->remote_port << 16 | p->local_port;
	return !map_update(&fragments, &k, &f, 0);
}

/* later_fragment finds the ports of a fragment, and reports whether they are known. */
on_its_own int later_fragment(__u32 id, struct packet *p)
{
	if (!p)
		return 0;
	struct fragment_key k;
	struct fragment want;
	fragment_of(&k, &want, id, p);
	struct fragment *f = map_lookup(&fragments, &k);
	if (!f || age(f->last, p->now) > UNITS(30))
		return 0;
	__u32 differs = (f->packet ^ want.packet) | (f->from_to ^ want.from_to);
	for (int i = 0; i < 4; i++)
		differs |= (f->remote[i] ^ want.remote[i]) | (f->local[i] ^ want.local[i]);
	if (differs)
		return 0;
	p->remote_port = f->ports >> 16;
	p->local_port = f->ports;
	p->kind = LATER_PACKET;
	return 1;
}

#endif
