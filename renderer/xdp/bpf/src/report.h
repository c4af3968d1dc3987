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

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct telling);
} listener SEC(".maps");

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

inline_always struct telling *tells(void)
{
	__u32 zero = 0;
	return map_lookup(&listener, &zero);
}

/* listens says whether somebody wants to know of what is dropped, or of what begins. */
inline_always __u32 listens(int permitted)
{
	struct telling *s = tells();
	return s ? permitted ? s->permitted : s->per_second : 0;
}

inline_always void count(void *map, __u32 slot, __u32 bytes)
{
	struct counter *c = map_lookup(map, &slot);
	if (c) {
		c->packets++;
		c->bytes += bytes;
	}
}

/* may_tell says whether it is the turn of this packet, and takes a token, of which a second
 * brings so many: they come evenly, so that a flood does not use up those of a second at once. */
inline_always int may_tell(struct telling *s, struct tokens *t)
{
	__u32 rate = s->per_second;
	if (s->one_in > 1) {
		if (++t->turn < s->one_in)
			return 0;
		t->turn = 0;
	}
	__u64 now = ktime_coarse_ns(), since = now - t->last;
	if (since >= 1000000000ULL) {
		t->left = rate;
		t->last = now;
	} else {
		__u64 more = since * rate / 1000000000ULL;
		if (more) {
			t->left = t->left + more > rate ? rate : t->left + more;
			t->last = now;
		}
	}
	if (!t->left)
		return 0;
	t->left--;
	return 1;
}

on_its_own int tell(__u32 id, struct packet *p, __u32 verdict, __u32 reason)
{
	__u32 zero = 0;
	struct telling *s = tells();
	struct tokens *t = map_lookup(&tokens, &zero);
	if (!p || !s || !t || !s->per_second)
		return 0;
	struct event *e = 0;
	if (may_tell(s, t))
		e = ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		t->missed++;
		return 0;
	}
	e->time = ktime_coarse_ns();
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
