/* What becomes known of packets: counters and events. */
#ifndef SLUICE_REPORT_H
#define SLUICE_REPORT_H
#include "packet.h"

/* Why a packet is dropped; 0 for one that passes. */
enum reason { PERMITTED = 0, BY_POLICY, IS_MALFORMED, IS_SPOOFED, IS_FRAGMENT, IS_UNKNOWN, IS_ERROR, REASONS, ASK_ABOUT = 99 };

struct counter {
	__u64 packets, bytes;
};

/* hits counts what every rule decided, by slot. */
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct counter);
} hits SEC(".maps");

/* reasons counts packets by what became of them. */
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, struct counter);
} reasons SEC(".maps");

struct event {
	__u64 time; /* ns since the machine began */
	__u32 id, verdict;
	__u32 remote[4], local[4];
	__u16 remote_port, local_port;
	__u8 v6, protocol, to_pod, reason;
	__u32 bytes;
};
const struct event *event_is_kept __attribute__((unused));

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

/* tokens limits the events of each processor. */
struct tokens {
	__u64 last;
	__u32 left, zero;
};

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tokens);
} tokens SEC(".maps");

volatile const __u32 events_per_second = 0; /* of each processor; 0 for none */

inline_always void count(void *map, __u32 slot, __u32 bytes)
{
	struct counter *c = map_lookup(map, &slot);
	if (c) {
		c->packets++;
		c->bytes += bytes;
	}
}

/* may_tell takes a token, of which there are as many as a second brings. */
inline_always int may_tell(void)
{
	__u32 zero = 0;
	struct tokens *t = map_lookup(&tokens, &zero);
	if (!t)
		return 0;
	__u64 now = ktime_coarse_ns();
	if (now - t->last > 1000000000ULL) {
		t->last = now;
		t->left = events_per_second;
	}
	if (!t->left)
		return 0;
	t->left--;
	return 1;
}

on_its_own int tell(__u32 id, struct packet *p, __u32 verdict, __u32 reason)
{
	if (!p || !events_per_second || !may_tell())
		return 0;
	struct event *e = ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return 0;
	e->time = ktime_coarse_ns();
	e->id = id;
	e->verdict = verdict;
	for (int i = 0; i < 4; i++) {
		e->remote[i] = p->remote.w[i];
		e->local[i] = p->local.w[i];
	}
	e->remote_port = p->remote_port;
	e->local_port = p->local_port;
	e->v6 = p->v6;
	e->protocol = p->protocol;
	e->to_pod = p->to_pod;
	e->reason = reason;
	e->bytes = p->bytes;
	ringbuf_submit(e, RB_NO_WAKEUP);
	return 1;
}

#endif
