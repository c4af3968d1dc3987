/* The table of flows. A look-up in a table of the kernel's is a call, and costs as much as
 * everything else that most packets need; this one is read in place.
 *
 * A flow is in one of two buckets of four, which its hash names. Every place has one word of
 * state that changes at once, and whose turn is another one after each change of the place's
 * owner: who reads the same turn before and behind the key has read one flow. Nobody waits. */
#ifndef SLUICE_FLOWS_H
#define SLUICE_FLOWS_H
#include "shares.h"

#define BUCKET_FLOWS 4

/* A flow that was permitted in its own direction, and whose replies would not be. */
struct flow {
	__u64 state; /* 0: never used */
	__u64 ports; /* and the endpoint */
	__u64 remote, more; /* of IPv6; of IPv4 more is what the list said */
};

struct bucket {
	struct flow flow[BUCKET_FLOWS];
};

/* What a list said about a flow of IPv4, by the slot of its rule, and in which generation of all
 * lists: until the next one it need not be asked again. It has some bits of the turn, too, so that
 * it is changed for the flow only that it was read with. */
#define SAID_GENERATION_SHIFT 32
#define SAID_TURN_SHIFT 24
#define SAID_TURN (0xffULL << SAID_TURN_SHIFT)
#define SAID_SLOT ((1U << SAID_TURN_SHIFT) - 1)

IN_PLACE(struct bucket, flows);

volatile const __u32 flow_mask = 0; /* buckets - 1, of which there are a power of two */
volatile const __u64 flow_seed = 1; /* not known outside, so that nobody can aim at a bucket */
volatile const __u32 reorders = 1;  /* the processor may read later words first */

/* State, by bits. */
#define STATE_LAST 0xffffffffULL /* when it was seen, in units of time */
#define STATE_PROTOCOL_SHIFT 32
#define STATE_PROTOCOL (0xffULL << STATE_PROTOCOL_SHIFT)
#define STATE_TO_POD (1ULL << 40)
#define SEEN_REPLY (1ULL << 41)
#define SEEN_FIN (1ULL << 42)
#define SEEN_FIN_REPLY (1ULL << 43)
#define SEEN_RST (1ULL << 44)
#define STATE_V6 (1ULL << 45)
#define STATE_USED (1ULL << 46)
#define STATE_BUSY (1ULL << 47) /* somebody writes the key */
#define STATE_TURN_SHIFT 48
#define STATE_TURN (1ULL << STATE_TURN_SHIFT)
#define STATE_TURNS (0xffffULL << 48)
#define STATE_KEY (STATE_PROTOCOL | STATE_V6 | STATE_USED | STATE_BUSY)

struct flow_key {
	__u64 ports, remote, more;
	__u64 state; /* what STATE_KEY has of it */
	__u64 hash;
	__u32 bucket[2];
};

/* flow_key says where the flow of a packet is. It is of both directions. */
inline_always void flow_key(struct flow_key *k, __u32 id, struct packet *p)
{
	k->remote = p->remote.w[0];
	k->more = 0;
	if (p->v6) { /* of IPv4 the words are not written together, and reading them so would wait */
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

inline_always struct bucket *bucket_at(__u32 i) { return AT(flows, i & flow_mask); }

/* state_of reads a state: what is read later is not older, what was read before not newer. */
inline_always __u64 state_of(struct flow *f)
{
	if (reorders)
		return __sync_fetch_and_add(&f->state, 0);
	return *(volatile __u64 *)&f->state;
}

/* found is a place of which everything was read at once, as far as turns tell. */
struct found {
	struct flow *flow; /* 0: there is none */
	__u64 state, more;
};

/* is reports whether a place has a flow, and what is in it. */
inline_always int is(struct flow *f, struct flow_key *k, struct found *in)
{
	volatile struct flow *now = f;
	if (now->ports != k->ports)
		return 0;
	__u64 before = state_of(f);
	if ((before & STATE_KEY) != k->state || now->ports != k->ports || now->remote != k->remote)
		return 0;
	in->more = now->more;
	if (k->state & STATE_V6 && in->more != k->more)
		return 0;
	in->state = state_of(f);
	in->flow = f;
	return !((in->state ^ before) & (STATE_TURNS | STATE_BUSY));
}

/* fuller reports whether the places behind one of a bucket may have a flow: they are taken in their
 * order, and a place that was taken once is never as if it were new. */
inline_always int fuller(struct bucket *b, const int place) { return state_of(&b->flow[place]) != 0; }

/* in_bucket looks for a flow in a bucket, whose second half is another line of the cache. */
inline_always int in_bucket(struct bucket *b, struct flow_key *k, struct found *in)
{
	if (is(&b->flow[0], k, in) || is(&b->flow[1], k, in))
		return 1;
	return fuller(b, 1) && (is(&b->flow[2], k, in) || is(&b->flow[3], k, in));
}

/* spilled reports whether flows of a bucket may be in their second one: nothing goes elsewhere while
 * there is room. */
inline_always int spilled(struct bucket *b) { return fuller(b, 1) && fuller(b, BUCKET_FLOWS - 1); }

/* elsewhere says which place of its second bucket a flow has; -1 if it has none. It is told by
 * value, so that keys need not be in memory. */
on_its_own int elsewhere(__u64 ports, __u64 remote, __u64 more, __u64 state, __u32 bucket)
{
	struct flow_key k = { .ports = ports, .remote = remote, .more = more, .state = state };
	struct found in;
	struct bucket *b = bucket_at(bucket);
	return is(&b->flow[0], &k, &in) ? 0 : is(&b->flow[1], &k, &in) ? 1 : is(&b->flow[2], &k, &in) ? 2 : is(&b->flow[3], &k, &in) ? 3 : -1;
}

/* find looks for a flow: most are in their first bucket. */
inline_always struct found find(struct flow_key *k)
{
	struct found in = {};
	struct bucket *b = bucket_at(k->bucket[0]);
	if (in_bucket(b, k, &in))
		return in;
	if (!spilled(b))
		return (struct found){};
	int i = elsewhere(k->ports, k->remote, k->more, k->state, k->bucket[1]);
	b = bucket_at(k->bucket[1]);
	if (i >= 0 && is(&b->flow[i & 3], k, &in))
		return in;
	return (struct found){};
}

/* turns changes the state of a place from what was read, and reports whether it did. */
inline_always int turns(struct flow *f, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(&f->state, from, to) == from;
}

/* put writes a flow to a place whose state was read, unless somebody else was faster. */
inline_always int put(struct flow *f, __u64 was, struct flow_key *k, __u64 state, __u64 said)
{
	__u64 turn = (was + STATE_TURN) & STATE_TURNS;
	if (was & STATE_BUSY || !turns(f, was, turn | STATE_BUSY))
		return 0;
	volatile struct flow *to = f;
	gains(k->ports >> 32, was & STATE_USED ? to->ports >> 32 : 0);
	to->ports = k->ports;
	to->remote = k->remote;
	to->more = k->state & STATE_V6 ? k->more : said | (turn >> STATE_TURN_SHIFT << SAID_TURN_SHIFT & SAID_TURN);
	if (reorders)
		__sync_lock_test_and_set(&f->state, turn | k->state | state);
	else
		*(volatile __u64 *)&f->state = turn | k->state | state;
	return 1;
}

/* renew notes what a list says now about a flow that was found. */
inline_always void renew(struct found *in, __u64 said)
{
	said |= in->more & SAID_TURN;
	if (!(in->state & STATE_V6) && said != in->more)
		__sync_val_compare_and_swap(&in->flow->more, in->more, said);
}

#endif
