/* The packets of a frame, in one pass over it: most are of connections whose verdict is cached. */
#ifndef SLUICE_FRAME_H
#define SLUICE_FRAME_H

#include "classifier.h"

/* What the packets of a frame need of the variables of their thread. It is read once for all. */
struct frame {
	struct bucket *conns;
	__u64 *verdicts6, *counters;
	__u32 slots, generation, now;
	__u16 tunnel_ports[TUNNEL_PORTS];
	/* The endpoint of the packet before: most packets of a frame have the same one. */
	__u32 id;
	int tracks; /* connections are looked for, and nothing but their key, source and direction decides */
	struct line *record;
	struct address own; /* its first one */
};

/* begin begins with a frame. The generation is read before any record, as in classify: all packets of
 * the frame were there before. */
inline_always void begin(struct frame *f)
{
	f->generation = generation();
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	f->now = now_units();
	f->conns = conns;
	f->verdicts6 = verdicts6;
	f->counters = AT(counters, (__u64)this_cpu() * counter_slots);
	f->slots = counter_slots;
	for (int i = 0; i < TUNNEL_PORTS; i++)
		f->tunnel_ports[i] = conf & CONF_TUNNELS ? 0 : tunnel_ports[i];
	f->id = ~0U;
	f->tracks = 0;
	f->record = 0;
}

/* meet sets what a frame knows of an endpoint. The conditions are those of quick. */
inline_always void meet(struct frame *f, __u32 id, __u32 v6, const int to_pod)
{
	__u32 line = *AT(endpts, id & (PLACES - 1));
	struct line *record = line_at(line), *own = line_at(line + (v6 ? RECORD_ADDR6 : RECORD_ADDR4));
	f->id = id;
	f->tracks = 0;
	f->record = 0;
	if (!line || !record || record->w[RECORD_ID] != id)
		return;
	f->record = record;
	if (record->w[RECORD_FLAGS] & FLAG_KEEP || !(record->w[RECORD_FLAGS] & (to_pod ? FLAG_FROM_POD : FLAG_TO_POD)))
		return;
	if (!to_pod) {
		if (!own || !record->w[v6 ? RECORD_COUNT6 : RECORD_COUNT4])
			return;
		memcpy(&f->own, own->w, sizeof(f->own));
	}
	f->tracks = 1;
}

/* A packet of a frame that is looked at before it is judged. */
struct prepared {
	struct flow_key key;
	struct line *record; /* of its endpoint, 0 for none */
	__u8 parsed;         /* by fast_bytes: then there is a key */
	__u8 tracked;        /* its connection may have a cached verdict */
	__u8 known;          /* it seems to have one: nothing else is fetched */
	__u8 tcp;            /* flags that end a connection */
	__u32 next;          /* where fetch6 is */
};

inline_always int comes_from(struct frame *f, struct packet *p)
{
	__u32 *own = f->own.w, *l = p->local.w, *r = p->remote.w;
	if (!p->v6)
		return own[0] == l[0] && own[0] != r[0];
	return !((own[0] ^ l[0]) | (own[1] ^ l[1]) | (own[2] ^ l[2]) | (own[3] ^ l[3])) && ((own[0] ^ r[0]) | (own[1] ^ r[1]) | (own[2] ^ r[2]) | (own[3] ^ r[3]));
}

/* is_for_tunnel is is_tunnel for what fast_bytes parses. */
inline_always int is_for_tunnel(struct frame *f, struct packet *p)
{
	int is = 0;
	for (int i = 0; i < TUNNEL_PORTS; i++)
		is |= f->tunnel_ports[i] == p->remote_port; /* also port 0: then classify decides */
	return is && p->protocol == P_UDP;
}

/* prepare reads a packet, and fetches its bucket of the connection table. */
inline_always void prepare(struct frame *f, struct prepared *q, struct bytes *b, __u32 id, int hairpin, const int to_pod)
{
	struct packet p = {};
	q->tracked = 0;
	q->record = 0;
	q->parsed = fast_bytes(b, &p, to_pod);
	if (unlikely(!q->parsed))
		return;
	if (unlikely(id != f->id))
		meet(f, id, p.v6, to_pod);
	flow_key(&q->key, id, &p);
	q->record = f->record;
	q->tcp = p.tcp & (TCP_FIN | TCP_RST);
	if (unlikely(!f->tracks))
		return;
	__builtin_prefetch(&f->conns[q->key.bucket[0]]);
	if (p.v6)
		__builtin_prefetch(&f->verdicts6[q->key.bucket[0] * BUCKET_FLOWS]);
	q->tracked = p.kind != FIRST_PACKET && !hairpin && (to_pod || (comes_from(f, &p) && !is_for_tunnel(f, &p)));
}

inline_always void fetch_line(__u32 i)
{
	if (i < policy_lines)
		__builtin_prefetch(AT(policy, i));
}

/* fetch4 fetches the next memory that leads to the class of an address of IPv4. */
inline_always void fetch4(struct prepared *q, const int step)
{
	__u32 root = q->record->w[RECORD_ROOT4], address = q->key.remote;
	if (root >= policy_lines - (ROOT_LINES - 1))
		return;
	__u32 *word = AT(policy, root)->w + (address >> 16);
	for (int i = 0; i < step; i++) {
		__u32 node = *word & PAYLOAD_MASK;
		if ((*word & KIND_MASK) != KIND_NODE || node >= policy_lines - (NODE_LINES - 1))
			return;
		word = AT(policy, node)->w + (i ? address & 255 : address >> 8 & 255);
	}
	__builtin_prefetch(word);
}

/* fetch6 does that for IPv6. In step 0 it goes from the root to the next node, and in each other step
 * from there to the next one. */
inline_always void fetch6(struct prepared *q, const int step)
{
	struct address remote = {.w = {q->key.remote, q->key.remote >> 32, q->key.more, q->key.more >> 32}};
	if (!step) {
		__u32 root = q->record->w[RECORD_ROOT6];
		q->next = next6(word_at(root >> 4, root & 15), &remote);
	} else if (q->next & NEXT_NODE) {
		struct line *l = line_at(q->next & ~NEXT_NODE);
		__u32 kind = l ? l->w[NODE_CELL] & KIND_MASK : 0;
		if (kind && kind != KIND_NODE) {
			fetch_line(l->w[NODE_CELL] & PAYLOAD_MASK);
			q->next = 0;
			return;
		}
		q->next = next6(q->next & ~NEXT_NODE, &remote);
	}
	if (q->next & NEXT_NODE)
		fetch_line(q->next & ~NEXT_NODE);
}

/* seems_known reports whether there may be a connection with a verdict of this generation. */
inline_always int seems_known(struct frame *f, struct prepared *q, const int v6)
{
	__u32 bucket = q->key.bucket[0];
	struct flow *first = f->conns[bucket].flow;
	int i = first[0].ports == q->key.ports ? 0 : 1;
	if (first[i].ports != q->key.ports)
		return 0;
	return (v6 ? f->verdicts6[bucket * BUCKET_FLOWS + i] : first[i].more) >> CACHED_GENERATION_SHIFT == f->generation;
}

/* fetch fetches what classify will need for a packet whose connection is not known. It decides
 * nothing. */
inline_always void fetch(struct frame *f, struct prepared *q, const int v6, const int step)
{
	if (!step)
		q->known = !q->record || (q->tracked && seems_known(f, q, v6));
	if (likely(q->known))
		return;
	if (!step)
		__builtin_prefetch(recent_at(&q->key));
	if (v6)
		fetch6(q, step);
	else
		fetch4(q, step);
}

#define UNKNOWN (~0U)

/* known returns the counter of the rule by which a packet passes because its connection has a verdict of
 * this generation, or UNKNOWN: then classify decides. It does what look_up does. */
inline_always __u32 known(struct frame *f, struct prepared *q, const int to_pod)
{
	struct found in;
	if (!q->tracked || unlikely(!in_bucket(&f->conns[q->key.bucket[0]], &q->key, &in)))
		return UNKNOWN;
	__u64 state = in.state, cached = in.more, set = 0;
	__u32 now = f->now;
	if (q->key.state & STATE_V6) {
		cached = *(volatile __u64 *)&f->verdicts6[in.flow - (struct flow *)f->conns];
		if (unlikely(!is_of_version(cached, state)))
			return UNKNOWN;
	}
	if (unlikely(cached >> CACHED_GENERATION_SHIFT != f->generation))
		return UNKNOWN;
	int same = !(state & STATE_TO_POD) == !to_pod;
	if (!same)
		set = SEEN_REPLY;
	if (unlikely(q->tcp))
		set |= (q->tcp & TCP_FIN ? same ? SEEN_FIN : SEEN_FIN_REPLY : 0) | (q->tcp & TCP_RST ? SEEN_RST : 0);
	if (unlikely((__u32)state != now || set & ~state)) {
		if (!is_alive(state, now))
			return UNKNOWN;
		update_state(in.flow, state, now, set, 0);
		if (same && (__u32)state != now)
			count_active(&q->key, now);
	}
	__u32 slot = cached & CACHED_SLOT;
	if (likely(slot < f->slots))
		++f->counters[slot];
	return slot;
}

#endif
