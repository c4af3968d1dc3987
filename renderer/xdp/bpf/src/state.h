/* Tracked connections, and the ports of fragments. Only permitted packets create state. */
#ifndef SLUICE_STATE_H
#define SLUICE_STATE_H
#include "flows.h"

/* Ports of fragmented packets. Each endpoint has so many entries for each direction, so a packet
 * replaces only an entry of the same endpoint. Entries are allocated on use. */
#define FRAGMENT_SHARE 64
struct fragment_key {
	__u32 id, place;
};

struct fragment {
	__u32 ports, last, packet, protocol, remote[4], local[4];
};

HASH_MAP(frags, 65536, struct fragment_key, struct fragment);

/* A unit of time is 2^tick_shift ticks of the kernel: about a quarter of a second. */
CONFIG(__u32, ticks_per_second) = 1000;
CONFIG(__u32, tick_shift) = 8;

inline_always __u32 now_units(void) { return jiffies() >> tick_shift; }

#define UNITS(seconds) ((__u32)(seconds) * ticks_per_second >> tick_shift)

/* lifetime returns how long a connection is tracked after its last packet, by the packets seen so
 * far. */
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

/* age returns the time since the last packet of a flow. Another processor may have set a time after
 * now. */
inline_always __u32 age(__u64 state, __u32 now)
{
	__u32 units = now - (__u32)state;
	return units >> 31 ? 0 : units;
}

inline_always int is_alive(__u64 state, __u32 now)
{
	return age(state, now) <= lifetime(state >> STATE_PROTOCOL_SHIFT & 0xff, state);
}

/* update_state updates the state of a flow for a packet. Concurrent updates of several processors
 * are all kept. */
inline_always void update_state(struct flow *f, __u64 state, __u32 now, __u64 set, __u64 clear)
{
#define UPDATE_STATE { \
		__u64 to = (state & ~(STATE_LAST | clear)) | set | now; \
		if (likely(to == state)) \
			return; \
		__u64 was = __sync_val_compare_and_swap(&f->state, state, to); \
		if (was == state || (was ^ state) & (STATE_VERSIONS | STATE_BUSY)) \
			return; \
		state = was; \
	}
	UPDATE_STATE UPDATE_STATE UPDATE_STATE UPDATE_STATE
#undef UPDATE_STATE
}

/* cached_verdict returns the form in which a verdict is cached. A slot that is too large gets an
 * old generation, so that the list is evaluated again. */
inline_always __u64 cached_verdict(struct packet *p, __u32 v)
{
	__u32 slot = v & SLOT_MASK;
	return (__u64)(slot > CACHED_SLOT || IS_OF_ONE_ORIGIN(v) ? p->generation - 2 : p->generation) << CACHED_GENERATION_SHIFT | (slot & CACHED_SLOT);
}

/* refresh refreshes the tracked connection of a packet in the connection's own direction. It
 * returns 0 if there is none, or if it has expired. */
inline_always int refresh(struct found *in, struct packet *p, int to_pod, __u32 now)
{
	__u64 state = in->state;
	if (!in->flow || !(state & STATE_TO_POD) != !to_pod || !is_alive(state, now))
		return 0;
	__u64 clear = p->kind == FIRST_PACKET && state & (SEEN_FIN | SEEN_RST) ? SEEN_REPLY | SEEN_FIN | SEEN_FIN_REPLY | SEEN_RST : 0; /* the ports are reused */
	update_state(in->flow, state, now, (p->tcp & TCP_FIN ? SEEN_FIN : 0) | (p->tcp & TCP_RST ? SEEN_RST : 0), clear);
	return 1;
}

/* is_reply reports whether there is a tracked connection in the other direction than to_pod, or,
 * with either, in any direction. With peek, it changes no state. */
inline_always int is_reply(struct found *in, struct packet *p, int to_pod, int either, int peek, __u32 now)
{
	__u64 state = in->state;
	int same = !(state & STATE_TO_POD) == !to_pod;
	if (!in->flow || !is_alive(state, now) || (same && !either))
		return 0;
	if (!peek)
		update_state(in->flow, state, now, (same ? 0 : SEEN_REPLY) | (p->tcp & TCP_FIN ? same ? SEEN_FIN : SEEN_FIN_REPLY : 0) | (p->tcp & TCP_RST ? SEEN_RST : 0), 0);
	return 1;
}

/* rank orders the entries that a new flow may replace, the lowest first: unused and expired ones,
 * then unanswered ones, and among these the ones with the oldest packet. */
inline_always __u64 rank(__u64 state, __u32 now)
{
	__u64 zero = zero_of(state); /* hidden from the verifier, which would otherwise follow every path for every value */
	if (state & STATE_BUSY)
		return ~zero;
	if (!(state & STATE_USED) || !is_alive(state, now))
		return zero;
	return 1 + (state & SEEN_REPLY ? 1ULL << 33 : 0) + ~age(state, now);
}

/* new_state returns the state of a flow after its first packet. */
inline_always __u64 new_state(__u32 now, int to_pod) { return (to_pod ? STATE_TO_POD : 0) | now; }

/* The results of tracking a flow. */
enum {
	IS_TRACKED,
	CREATED,
	LOST_RACE, /* another processor changed the entry first */
	NOT_FOUND,
	MAYBE_FOUND,
	FULL,
	REFUSED
};

/* insert writes the flow of a packet to a free entry. Unless sure that the flow is not in the
 * table, it returns MAYBE_FOUND at an entry that may be the flow's. It returns FULL if all entries
 * are in use. */
global_function int insert(__u32 id, struct packet *p, int to_pod, __u32 v, int sure)
{
	if (!p)
		return LOST_RACE;
	struct flow_key k;
	flow_key(&k, id, p);
	struct bucket *a = bucket_at(k.bucket[0]);
	__u32 now = p->now;
	struct flow *best = &a->flow[0];
	__u64 was = 0, least = ~0ULL;
#define RANK(x) { \
		struct flow *f = x; \
		__u64 s = read_state(f), w = rank(s, now); \
		if (f->ports == k.ports && f->remote == k.remote && !sure) \
			return MAYBE_FOUND; \
		if (w < least) { \
			best = f; \
			was = s; \
			least = w; \
		} \
	}
	RANK(&a->flow[0]) RANK(&a->flow[1])
	if (was_used(a, 1)) {
		RANK(&a->flow[2]) RANK(&a->flow[3])
	}
	if (spilled(a)) { /* the second bucket is used only then, which find relies on */
		struct bucket *b = bucket_at(k.bucket[1]);
		RANK(&b->flow[0]) RANK(&b->flow[1]) RANK(&b->flow[2]) RANK(&b->flow[3])
	}
#undef RANK
	if (least)
		return FULL;
	asm volatile("" : "+r"(p)); /* the key is made again, so that it takes no stack until here */
	flow_key(&k, id, p);
	return write_flow(best, was, &k, new_state(now, to_pod), cached_verdict(p, v)) ? CREATED : LOST_RACE;
}

/* claim orders used entries by their owner: first those of endpoints above their share, of these
 * the own ones first, then other own entries, then those of OTHERS. Entries of the same kind are
 * ordered by rank. It is a call, so that the verifier need not follow every path for every
 * entry. */
#define OTHERS 3
#define CLAIM_SHIFT 36
global_function __u64 claim(__u64 state, __u32 now, __u32 owner, __u32 id)
{
	__u64 w = rank(state, now), whose = exceeds_share(owner) ? owner != id : owner == id ? 2 : OTHERS;
	return w ? w | whose << CLAIM_SHIFT : 0;
}

/* displace writes the flow of a packet that is not in the table to the entry of another flow. An
 * endpoint above its share cannot displace flows of one that is not. */
global_function int displace(__u32 id, struct packet *p, int to_pod, __u32 v)
{
	if (!p)
		return LOST_RACE;
	struct flow_key k;
	flow_key(&k, id, p);
	struct flow *best = 0;
	__u64 was = 0, least = ~0ULL;
	for (int i = 0; i < 2 * BUCKET_FLOWS; i++) {
		struct flow *f = &bucket_at(k.bucket[i / BUCKET_FLOWS])->flow[i % BUCKET_FLOWS];
		__u64 state = read_state(f), w = claim(state, p->now, f->ports >> 32, id);
		if (w < least) {
			best = f;
			was = state;
			least = w;
		}
	}
	if (!best || (least >> CLAIM_SHIFT == OTHERS && exceeds_share(id)))
		return REFUSED;
	return write_flow(best, was, &k, new_state(p->now, to_pod), cached_verdict(p, v)) ? CREATED : LOST_RACE;
}

/* refresh_or_replace refreshes the entry of the flow of a packet, or starts it anew if it has
 * expired. */
global_function int refresh_or_replace(__u32 id, struct packet *p, int to_pod, __u32 v, int keep)
{
	if (!p)
		return LOST_RACE;
	struct flow_key k;
	flow_key(&k, id, p);
	struct found in = find(&k);
	__u32 now = p->now;
	if (refresh(&in, p, to_pod, now)) {
		cache_verdict(&in, cached_verdict(p, v));
		return IS_TRACKED;
	}
	if ((keep && p->kind != FIRST_PACKET && is_reply(&in, p, to_pod, 0, 0, now)) || p->tcp & TCP_RST)
		return IS_TRACKED;
	if (!in.flow)
		return NOT_FOUND;
	return write_flow(in.flow, in.state, &k, new_state(now, to_pod), cached_verdict(p, v)) ? CREATED : LOST_RACE;
}

/* insert_or_displace inserts the flow of a packet, and displaces another flow if all entries are in
 * use. */
inline_always int insert_or_displace(__u32 id, struct packet *p, int to_pod, __u32 v, int sure)
{
	int now = insert(id, p, to_pod, v, sure);
	return unlikely(now == FULL) ? displace(id, p, to_pod, v) : now;
}

/* find_or_insert refreshes the entry of the flow of a packet, or inserts it. */
inline_always int find_or_insert(__u32 id, struct packet *p, int to_pod, __u32 v, int keep)
{
	int now = refresh_or_replace(id, p, to_pod, v, keep);
	return now == NOT_FOUND ? insert_or_displace(id, p, to_pod, v, 1) : now;
}

/* track creates a tracked connection for a packet in a direction, with the verdict v of its list.
 * It returns 0 if there is one already. With keep, the packet may also be an answer in an existing
 * connection. If another processor is faster, track tries once more, and then leaves the connection
 * to the next packet. */
inline_always int track(__u32 id, struct packet *p, int to_pod, __u32 v, int keep)
{
	int now = keep || p->tcp & TCP_RST ? MAYBE_FOUND : insert_or_displace(id, p, to_pod, v, 0);
	if (unlikely(now == MAYBE_FOUND || now == LOST_RACE))
		now = find_or_insert(id, p, to_pod, v, keep);
	if (unlikely(now == LOST_RACE))
		now = find_or_insert(id, p, to_pod, v, keep);
	return now == CREATED;
}

/* is_late_answer reports whether a packet is an answer of an older connection. Such a packet
 * refreshes a tracked connection, and creates none: else an answer that was on its way when a policy
 * came would open that connection again. */
global_function int is_late_answer(__u32 id, struct packet *p, int to_pod)
{
	if (!p || p->kind == FIRST_PACKET || !p->late)
		return 0;
	struct flow_key k;
	flow_key(&k, id, p);
	struct found in = find(&k);
	refresh(&in, p, to_pod, p->now);
	return 1;
}

/* is_answer reports whether a packet is an answer in a tracked connection. */
global_function int is_answer(__u32 id, struct packet *p, int to_pod, int either, int peek)
{
	if (!p)
		return 0;
	struct flow_key k;
	flow_key(&k, id, p);
	struct found in = find(&k);
	return is_reply(&in, p, to_pod, either, peek, p->now);
}

/* fragment_key_of sets the identity of the packet of a fragment, and the key of its entry. */
inline_always void fragment_key_of(struct fragment_key *k, struct fragment *f, __u32 id, struct packet *p)
{
	*f = (struct fragment){ .last = p->now, .packet = p->id, .protocol = (__u32)p->protocol << 8 | p->v6 };
	__u32 of = ntohl(p->id << (p->v6 ? 0 : 16)) ^ f->protocol;
	for (int i = 0; i < 4; i++) {
		f->remote[i] = p->remote.w[i];
		f->local[i] = p->local.w[i];
		of ^= p->remote.w[i];
	}
	*k = (struct fragment_key){ .id = id, .place = (p->to_pod ? FRAGMENT_SHARE : 0) + of % FRAGMENT_SHARE };
}

/* note_fragment stores the ports of a packet whose first fragment was permitted. */
global_function int note_fragment(__u32 id, struct packet *p)
{
	if (!p)
		return 0;
	struct fragment_key k;
	struct fragment f;
	fragment_key_of(&k, &f, id, p);
	f.ports = (__u32)p->remote_port << 16 | p->local_port;
	return !map_update(&frags, &k, &f, 0);
}

/* find_fragment sets the ports of a later fragment, and reports whether they are known. */
global_function int find_fragment(__u32 id, struct packet *p)
{
	if (!p)
		return 0;
	struct fragment_key k;
	struct fragment want;
	fragment_key_of(&k, &want, id, p);
	struct fragment *f = map_lookup(&frags, &k);
	if (!f || age(f->last, p->now) > UNITS(30))
		return 0;
	__u32 differs = (f->packet ^ want.packet) | (f->protocol ^ want.protocol);
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
