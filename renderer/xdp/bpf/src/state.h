/* Evidence of flows, and of the ports of fragments. Only what is permitted leaves any. */
#ifndef SLUICE_STATE_H
#define SLUICE_STATE_H
#include "packet.h"

struct key4 {
	__u32 id, remote, ports, protocol;
};

struct key6 {
	__u32 id, remote[4], ports, protocol;
};

/* A flow that was permitted in its own direction, and whose replies would not be. */
struct flow {
	__u32 last; /* when it was seen, in units of time */
	__u8 to_pod, seen, zero[2];
};

#define SEEN_REPLY 1
#define SEEN_FIN 2
#define SEEN_FIN_REPLY 4
#define SEEN_RST 8

struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct key4);
	__type(value, struct flow);
} flows4 SEC(".maps");

struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct key6);
	__type(value, struct flow);
} flows6 SEC(".maps");

struct fragment_key {
	__u32 id, packet, from_to, remote[4], local[4];
};

struct fragment {
	__u32 ports, last;
};

struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* A unit of time is 2^tick_shift ticks of the kernel, of which a second has so many: about a
 * quarter of a second. */
volatile const __u32 ticks_per_second = 1000, tick_shift = 8;

inline_always __u32 now_units(void) { return jiffies() >> tick_shift; }

#define UNITS(seconds) ((__u32)(seconds) * ticks_per_second >> tick_shift)

/* How long evidence holds, by what was seen. */
inline_always __u32 lifetime(__u32 protocol, __u8 seen)
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

inline_always void *flow_of(__u32 id, struct packet *p, struct key4 *k4, struct key6 *k6)
{
	__u32 ports = (__u32)p->remote_port << 16 | p->local_port;
	if (!p->v6) {
		*k4 = (struct key4){ .id = id, .remote = p->remote.w[0], .ports = ports, .protocol = p->protocol };
		return map_lookup(&flows4, k4);
	}
	*k6 = (struct key6){ .id = id, .ports = ports, .protocol = p->protocol };
	for (int i = 0; i < 4; i++)
		k6->remote[i] = p->remote.w[i];
	return map_lookup(&flows6, k6);
}

/* refreshes brings evidence f of a flow that goes in a direction up to date. It returns 0 if
 * there is none, or if it is none any more. */
inline_always int refreshes(struct flow *f, struct packet *p, int to_pod, __u32 now)
{
	if (!f || f->to_pod != to_pod || now - f->last > lifetime(p->protocol, f->seen))
		return 0;
	__u8 seen = f->seen;
	if (p->kind == FIRST_PACKET && seen & (SEEN_FIN | SEEN_RST))
		seen = 0; /* the ports are used again */
	if (p->tcp & TCP_FIN)
		seen |= SEEN_FIN;
	if (p->tcp & TCP_RST)
		seen |= SEEN_RST;
	if (f->last != now || f->seen != seen) {
		f->last = now;
		f->seen = seen;
	}
	return 1;
}

/* begin notes a flow that goes in a direction, unless it is noted already. */
on_its_own int begin(__u32 id, struct packet *p, int to_pod)
{
	if (!p)
		return 0;
	struct key4 k4;
	struct key6 k6;
	struct flow *f = flow_of(id, p, &k4, &k6);
	__u32 now = now_units();
	if (refreshes(f, p, to_pod, now) || p->tcp & TCP_RST)
		return 0;
	struct flow fresh = { .last = now, .to_pod = to_pod };
	if (p->v6)
		map_update(&flows6, &k6, &fresh, 0);
	else
		map_update(&flows4, &k4, &fresh, 0);
	return 1;
}

/* replies says whether f is evidence of a flow in the other direction than to_pod, or, with
 * either, in any. */
inline_always int replies(struct flow *f, struct packet *p, int to_pod, int either, __u32 now)
{
	if (!f || now - f->last > lifetime(p->protocol, f->seen))
		return 0;
	if (f->to_pod == to_pod)
		return either;
	__u8 seen = f->seen | SEEN_REPLY;
	if (p->tcp & TCP_FIN)
		seen |= SEEN_FIN_REPLY;
	if (p->tcp & TCP_RST)
		seen |= SEEN_RST;
	if (f->last != now || f->seen != seen) {
		f->last = now;
		f->seen = seen;
	}
	return 1;
}

/* answers says whether there is evidence of what a packet answers. */
on_its_own int answers(__u32 id, struct packet *p, int to_pod, int either)
{
	if (!p)
		return 0;
	struct key4 k4;
	struct key6 k6;
	return replies(flow_of(id, p, &k4, &k6), p, to_pod, either, now_units());
}

inline_always void fragment_key(struct fragment_key *k, __u32 id, struct packet *p)
{
	*k = (struct fragment_key){ .id = id, .packet = p->id, .from_to = (__u32)p->protocol << 8 | p->v6 << 1 | p->to_pod };
	for (int i = 0; i < 4; i++) {
		k->remote[i] = p->remote.w[i];
		k->local[i] = p->local.w[i];
	}
}

/* first_fragment notes the ports of a packet whose first fragment was permitted. */
on_its_own int first_fragment(__u32 id, struct packet *p)
{
	if (!p)
		return 0;
	struct fragment_key k;
	fragment_key(&k, id, p);
	struct fragment f = { .ports = (__u32)p->remote_port << 16 | p->local_port, .last = now_units() };
	return !map_update(&fragments, &k, &f, 0);
}

/* later_fragment finds the ports of a fragment, and says whether they are known. */
on_its_own int later_fragment(__u32 id, struct packet *p)
{
	if (!p)
		return 0;
	struct fragment_key k;
	fragment_key(&k, id, p);
	struct fragment *f = map_lookup(&fragments, &k);
	if (!f || now_units() - f->last > UNITS(30))
		return 0;
	p->remote_port = f->ports >> 16;
	p->local_port = f->ports;
	p->kind = LATER_PACKET;
	return 1;
}

#endif
