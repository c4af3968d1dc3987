/* The connection table. A look-up in a hash map of the kernel is a call, which costs as much as
 * everything else that most packets need. So programs read this table in place.
 *
 * A connection is in one of two buckets of four entries, which its hash selects. An entry has one
 * word of state, which is changed atomically. The state has a version, which changes whenever the
 * entry is given to another connection: a reader that finds the same version before and after it
 * read the key has read one connection. No processor waits for another. */
#ifndef SLUICE_FLOWS_H
#define SLUICE_FLOWS_H
#include "shares.h"

#define BUCKET_FLOWS 4

/* A tracked connection: a permitted flow whose replies the other direction's list denies. */
struct flow {
	__u64 state; /* 0: never used */
	__u64 ports; /* and the endpoint in the upper half */
	__u64 remote, more; /* the remote address; of IPv4 it fits into remote, and more is the cached verdict */
};

struct bucket {
	struct flow flow[BUCKET_FLOWS];
};

/* The cached verdict of a connection: the slot of the rule that permitted it, and the generation. The
 * list need not be evaluated again in the same generation. Some bits of the entry's version make a
 * compare-and-swap fail if the entry was given to another one. In the kernel only IPv4 has it, in place
 * of the words of longer addresses; elsewhere IPv6 has it beside the table (VERDICT6). */
#define CACHED_GENERATION_SHIFT 32
#define CACHED_VERSION_SHIFT 24
#define CACHED_VERSION (0xffULL << CACHED_VERSION_SHIFT)
#define CACHED_SLOT ((1U << CACHED_VERSION_SHIFT) - 1)

IN_PLACE(struct bucket, conns);

CONFIG(__u32, flow_mask) = 0; /* number of buckets, a power of two, minus 1 */
CONFIG(__u64, flow_seed) = 1; /* secret, so that no sender can aim at a bucket */
#ifndef reorders
CONFIG(__u32, reorders) = 1;  /* the processor may reorder loads */
#endif

/* State, by bits. */
#define STATE_LAST 0xffffffffULL /* time of the last packet, in units of time */
#define STATE_PROTOCOL_SHIFT 32
#define STATE_PROTOCOL (0xffULL << STATE_PROTOCOL_SHIFT)
#define STATE_TO_POD (1ULL << 40)
#define SEEN_REPLY (1ULL << 41)
#define SEEN_FIN (1ULL << 42)
#define SEEN_FIN_REPLY (1ULL << 43)
#define SEEN_RST (1ULL << 44)
#define STATE_V6 (1ULL << 45)
#define STATE_USED (1ULL << 46)
#define STATE_BUSY (1ULL << 47) /* the key is being written */
#define STATE_VERSION_SHIFT 48
#define STATE_VERSION (1ULL << STATE_VERSION_SHIFT)
#define STATE_VERSIONS (0xffffULL << 48)
#define STATE_KEY (STATE_PROTOCOL | STATE_V6 | STATE_USED | STATE_BUSY)

struct flow_key {
	__u64 ports, remote, more;
	__u64 state; /* the bits of STATE_KEY */
	__u64 hash;
	__u32 bucket[2];
};

/* flow_key sets the key of the flow of a packet, which is the same for both directions. */
inline_always void flow_key(struct flow_key *k, __u32 id, struct packet *p)
{
	if (COPY_KEY(k, p))
		return;
	k->remote = p->remote.w[0];
	k->more = 0;
	if (p->v6) { /* one load of two words that were stored one by one would stall */
		k->remote |= (__u64)p->remote.w[1] << 32;
		k->more = (__u64)p->remote.w[3] << 32 | p->remote.w[2];
	}
	k->ports = (__u64)id << 32 | (__u32)p->remote_port << 16 | p->local_port;
	k->state = (__u64)p->protocol << STATE_PROTOCOL_SHIFT | (p->v6 ? STATE_V6 : 0) | STATE_USED;
	__u64 h = (k->ports ^ flow_seed) * 0x9e3779b97f4a7c15ULL;
	h = (h ^ h >> 32 ^ k->remote ^ (__u64)p->protocol << 40) * 0xbf58476d1ce4e5b9ULL;
	if (p->v6)
		h = (h ^ h >> 32 ^ k->more ^ flow_seed >> 7) * 0x94d049bb133111ebULL;
	k->hash = h;
	k->bucket[0] = h >> 43 & flow_mask;
	k->bucket[1] = h >> 22 & flow_mask;
}

inline_always struct bucket *bucket_at(__u32 i) { return AT(conns, i & flow_mask); }

/* read_state reads a state in order: before all later loads, and after all earlier ones. */
inline_always __u64 read_state(struct flow *f)
{
	if (reorders)
		return __sync_fetch_and_add(&f->state, 0);
	return *(volatile __u64 *)&f->state;
}

/* found is a consistent copy of an entry, by its version. */
struct found {
	struct flow *flow; /* 0: there is none */
	__u64 state, more;
};

/* is_flow reports whether an entry holds a flow, and sets in to its content. */
inline_always int is_flow(struct flow *f, struct flow_key *k, struct found *in)
{
	volatile struct flow *now = f;
	if (now->ports != k->ports)
		return 0;
	__u64 before = read_state(f);
	if ((before & STATE_KEY) != k->state || now->ports != k->ports || now->remote != k->remote)
		return 0;
	in->more = now->more;
	if (k->state & STATE_V6 && in->more != k->more)
		return 0;
	in->state = read_state(f);
	in->flow = f;
	return !((in->state ^ before) & (STATE_VERSIONS | STATE_BUSY));
}

/* was_used reports whether an entry of a bucket was ever used. Entries are used in order, so after
 * an unused entry there are no flows. */
inline_always int was_used(struct bucket *b, const int place) { return read_state(&b->flow[place]) != 0; }

/* in_bucket looks for a flow in a bucket. The second half of the bucket is in another cache
 * line. */
inline_always int in_bucket(struct bucket *b, struct flow_key *k, struct found *in)
{
	if (is_flow(&b->flow[0], k, in) || is_flow(&b->flow[1], k, in))
		return 1;
	return was_used(b, 1) && (is_flow(&b->flow[2], k, in) || is_flow(&b->flow[3], k, in));
}

/* spilled reports whether flows of a bucket may be in their second bucket. That is used only after
 * all entries of the first one were used. */
inline_always int spilled(struct bucket *b) { return was_used(b, 1) && was_used(b, BUCKET_FLOWS - 1); }

/* find_second returns the index of a flow in its second bucket, -1 for none. It gets the key by
 * value, so that the key can stay in registers. */
global_function int find_second(__u64 ports, __u64 remote, __u64 more, __u64 state, __u32 bucket)
{
	struct flow_key k = { .ports = ports, .remote = remote, .more = more, .state = state };
	struct found in;
	struct bucket *b = bucket_at(bucket);
	return is_flow(&b->flow[0], &k, &in) ? 0 : is_flow(&b->flow[1], &k, &in) ? 1 : is_flow(&b->flow[2], &k, &in) ? 2 : is_flow(&b->flow[3], &k, &in) ? 3 : -1;
}

/* find looks for a flow. Most flows are in their first bucket. */
inline_always struct found find(struct flow_key *k)
{
	struct found in = {};
	struct bucket *b = bucket_at(k->bucket[0]);
	if (in_bucket(b, k, &in))
		return in;
	if (!spilled(b))
		return (struct found){};
	int i = find_second(k->ports, k->remote, k->more, k->state, k->bucket[1]);
	b = bucket_at(k->bucket[1]);
	if (i >= 0 && is_flow(&b->flow[i & 3], k, &in))
		return in;
	return (struct found){};
}

/* swap_state changes the state of an entry if it is still the one that was read, and reports
 * whether it did. */
inline_always int swap_state(struct flow *f, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(&f->state, from, to) == from;
}

/* write_flow writes a flow to an entry whose state was read. It returns 0 if another processor
 * changed the entry first. */
inline_always int write_flow(struct flow *f, __u64 was, struct flow_key *k, __u64 state, __u64 cached)
{
	__u64 version = (was + STATE_VERSION) & STATE_VERSIONS;
	if (was & STATE_BUSY || !swap_state(f, was, version | STATE_BUSY))
		return 0;
	volatile struct flow *to = f;
	count_entry(k->ports >> 32, was & STATE_USED ? to->ports >> 32 : 0);
	to->ports = k->ports;
	to->remote = k->remote;
	cached |= version >> STATE_VERSION_SHIFT << CACHED_VERSION_SHIFT & CACHED_VERSION;
	to->more = k->state & STATE_V6 ? k->more : cached;
	if (VERDICT6(f) && k->state & STATE_V6)
		*(volatile __u64 *)VERDICT6(f) = cached;
	if (reorders)
		__sync_lock_test_and_set(&f->state, version | k->state | state);
	else
		*(volatile __u64 *)&f->state = version | k->state | state;
	return 1;
}

/* is_of_version reports whether the cached verdict of an IPv6 connection is that of the entry's state,
 * and not that of the connection which had the entry before, or has it after. */
inline_always int is_of_version(__u64 cached, __u64 state)
{
	return !((cached >> CACHED_VERSION_SHIFT ^ state >> STATE_VERSION_SHIFT) & (CACHED_VERSION >> CACHED_VERSION_SHIFT));
}

/* cache_verdict stores the verdict of a list in the entry of a flow. */
inline_always void cache_verdict(struct found *in, __u64 cached)
{
	if (VERDICT6(in->flow) && in->state & STATE_V6) {
		__u64 *at = VERDICT6(in->flow), was = *(volatile __u64 *)at, to = cached | (was & CACHED_VERSION);
		if (is_of_version(was, in->state) && to != was)
			__sync_val_compare_and_swap(at, was, to);
		return;
	}
	cached |= in->more & CACHED_VERSION;
	if (!(in->state & STATE_V6) && cached != in->more)
		__sync_val_compare_and_swap(&in->flow->more, in->more, cached);
}

#endif
