/* Counters and events. */
#ifndef SLUICE_REPORT_H
#define SLUICE_REPORT_H
#include "shares.h"

/* Why a packet is dropped; 0 if it passes. The last two mean that the packet must be read
 * further. */
enum reason {
	PERMITTED = 0, BY_POLICY, IS_MALFORMED, IS_SPOOFED, IS_FRAGMENT, IS_UNKNOWN, IS_ERROR, IS_MANY,
	IS_NEIGHBOUR, IS_ARP, IS_NON_IP, IS_ROUTED, IS_TUNNEL, IS_UNJUDGED, REASONS, NEEDS_ERROR = 99, NEEDS_LINK
};

/* counters has the number of packets that each rule decided, by processor and slot. */
IN_PLACE(__u64, counters);
CONFIG(__u32, counter_slots) = 1;  /* for each processor */
CONFIG(__u32, counter_places) = 1; /* for all together */

inline_always void count_rule(__u32 slot)
{
	__u64 i = (__u64)this_cpu() * counter_slots + slot;
	if (likely(slot < counter_slots && i < counter_places))
		++*AT(counters, i);
}

/* drops has the number of dropped packets, by processor and reason. */
#define DROP_PLACES 16 /* for each processor: whole cache lines */
IN_PLACE(__u64, drops);
CONFIG(__u32, cpus) = 1;

inline_always void count_drop(enum reason why)
{
	__u32 cpu = this_cpu();
	if (likely(cpu < cpus))
		++*AT(drops, cpu * DROP_PLACES + (why & (DROP_PLACES - 1)));
}

struct event {
	__u64 time;   /* ns since boot */
	__u64 missed; /* packets of this processor without an event since its last event */
	__u32 id, verdict;
	__u32 remote[4], local[4];
	__u16 remote_port, local_port;
	__u8 v6, protocol, to_pod, reason;
	__u32 bytes, zero;
};
#ifdef __bpf__
const struct event *event_is_kept __attribute__((unused));
#endif

RING(events, 1 << 18);

/* The event filter selects the packets that are reported. It disables events if per_second is 0. */
struct event_filter {
	__u32 per_second; /* events of each processor */
	__u32 one_in;     /* sample one in N packets; 0 is 1 */
	__u32 permitted;  /* report also the first packets of permitted flows */
	__u32 zero;
};

IN_PLACE(struct event_filter, evfilter);

/* tokens limits the events of a processor, and counts the packets without one. */
struct tokens {
	__u64 last, missed;
	__u32 left, skipped;
};

OWN_VALUE(struct tokens, tokens);

/* reporting reports whether events are enabled: for dropped packets, or for permitted ones. */
inline_always __u32 reporting(int permitted)
{
	volatile struct event_filter *s = evfilter;
	return permitted ? s->permitted : s->per_second;
}

/* may_report reports whether a packet may have an event, and takes a token for it. It samples one
 * in one_in packets. Tokens are added evenly over a second, so that a flood does not use up those
 * of a second at once. */
inline_always int may_report(struct event_filter *s, struct tokens *t, __u32 id)
{
	__u32 rate = s->per_second;
	if (s->one_in > 1) {
		if (++t->skipped < s->one_in)
			return 0;
		t->skipped = 0;
	}
	__u64 now = ktime_ns(), since = now - t->last;
	__u32 most = rate + rate / 2;
	if (since >= 1000000000ULL) {
		t->left = most;
		t->last = now;
	} else {
		__u64 more = since * rate / 1000000000ULL;
		if (more) {
			t->left = t->left + more > most ? most : t->left + more;
			t->last = now;
		}
	}
	if (!t->left || !may_have_event(id, t->left, rate, now))
		return 0;
	t->left--;
	return 1;
}

global_function int report(__u32 id, struct packet *p, __u32 verdict, __u32 reason)
{
	struct event_filter *s = evfilter;
	struct tokens *t = own_value(tokens);
	if (!p || !t || !s->per_second)
		return 0;
	struct event *e = 0;
	if (may_report(s, t, id))
		e = ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		t->missed++;
		return 0;
	}
	e->time = ktime_ns();
	e->missed = t->missed;
	t->missed = 0;
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
	e->zero = 0;
	ringbuf_submit(e, RB_NO_WAKEUP);
	return 1;
}

#endif
