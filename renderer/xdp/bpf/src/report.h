/* What becomes known of packets: counters and events. */
#ifndef SLUICE_REPORT_H
#define SLUICE_REPORT_H
#include "shares.h"

/* Why a packet is dropped; 0 for one that passes. */
enum reason { PERMITTED = 0, BY_POLICY, IS_MALFORMED, IS_SPOOFED, IS_FRAGMENT, IS_UNKNOWN, IS_ERROR, IS_MANY, IS_NEIGHBOUR, IS_ARP, IS_NON_IP, IS_ROUTED, IS_TUNNEL, REASONS, ASK_ABOUT = 99, ASK_LINK };

/* hits counts the packets that every rule decided, by processor and slot. */
IN_PLACE(__u64, hits);
volatile const __u32 hit_slots = 1, hit_places = 1; /* of a processor, and of all */

inline_always void hit(__u32 slot)
{
	__u64 i = (__u64)this_cpu() * hit_slots + slot;
	if (likely(slot < hit_slots && i < hit_places))
		++*AT(hits, i);
}

/* reasons counts packets that are dropped, by processor and by why. */
#define REASON_PLACES 16 /* of a processor: lines of the cache */
IN_PLACE(__u64, reasons);
volatile const __u32 cpus = 1;

inline_always void dropped(enum reason why)
{
	__u32 cpu = this_cpu();
	if (likely(cpu < cpus))
		++*AT(reasons, cpu * REASON_PLACES + (why & (REASON_PLACES - 1)));
}

struct event {
	__u64 time;   /* ns since the machine began */
	__u64 missed; /* packets of this processor that had none since its last one */
	__u32 id, verdict;
	__u32 remote[4], local[4];
	__u16 remote_port, local_port;
	__u8 v6, protocol, to_pod, reason;
	__u32 bytes, zero;
};
const struct event *event_is_kept __attribute__((unused));

struct {
	__uint(type, MAP_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

/* telling says what is told while somebody listens: nothing when per_second is 0. */
struct telling {
	__u32 per_second; /* events of each processor */
	__u32 one_in;     /* of so many packets that could have an event, one has; 0 is 1 */
	__u32 permitted;  /* also packets that begin what is permitted */
	__u32 zero;
};

IN_PLACE(struct telling, listener);

/* tokens limits the events of a processor, and counts the packets that have none. */
struct tokens {
	__u64 last, missed;
	__u32 left, turn;
};

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tokens);
} tokens SEC(".maps");

/* listens reports whether somebody wants to know of what is dropped, or of what begins. */
inline_always __u32 listens(int permitted)
{
	volatile struct telling *s = listener;
	return permitted ? s->permitted : s->per_second;
}

/* may_tell reports whether it is the turn of this packet, and takes a token, of which a second
 * brings so many: they come evenly, so that a flood does not use up those of a second at once. */
inline_always int may_tell(struct telling *s, struct tokens *t, __u32 id)
{
	__u32 rate = s->per_second;
	if (s->one_in > 1) {
		if (++t->turn < s->one_in)
			return 0;
		t->turn = 0;
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
	if (!t->left || !shares_events(id, t->left, rate, now))
		return 0;
	t->left--;
	return 1;
}

on_its_own int tell(__u32 id, struct packet *p, __u32 verdict, __u32 reason)
{
	__u32 zero = 0;
	struct telling *s = listener;
	struct tokens *t = map_lookup(&tokens, &zero);
	if (!p || !t || !s->per_second)
		return 0;
	struct event *e = 0;
	if (may_tell(s, t, id))
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
