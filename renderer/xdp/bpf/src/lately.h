/* Flows that went on lately, in this unit of time, while lists said what they say now: their evidence is
 * up to date, or they need none. Another packet of theirs that its list permits would change nothing, so
 * that it need not look: of many flows at once the table is larger than a cache, and this is not. Of few
 * flows all that is known is in a cache, and what their lists said is found sooner than it is asked.
 *
 * It is a hint. A flow that is in here by mistake (48 bits of a hash are compared) passes as its
 * list says, and its evidence is a unit of time older; one that is not is looked for. */
#ifndef SLUICE_LATELY_H
#define SLUICE_LATELY_H
#include "state.h"

/* Four traces, the latest in the low half of the first word. */
struct traces {
	__u64 w[2];
};

#define TRACES_SHIFT 48 /* places are the upper bits of the hash, traces the next 32 */
#define TRACE_SHIFT 16

IN_PLACE(struct traces, lately);

/* How many flows go on: of every 64th, each is counted once in a unit, in the lower half of a word whose
 * upper half is the unit. Who counts at the same time may lose some. */
struct crowd {
	__u64 latest, before;
};

IN_PLACE(struct crowd, crowds); /* in a page of its own: it is read by every packet that looks for its flow, and rarely written */

#define COUNTED 63 /* bits of the hash that are 0 in flows that are counted */

volatile const __u32 crowd_size = 1 << 13; /* as many flows are a crowd */

inline_always int is_crowd(__u64 count, __u32 now) { return now - (__u32)(count >> 32) <= 1 && (__u32)count * (COUNTED + 1) >= crowd_size; }

/* crowded reports whether many flows went on in this unit or in the one before. */
inline_always int crowded(__u32 now)
{
	struct crowd *c = crowds;
	return !crowd_size || is_crowd(c->latest, now) || is_crowd(c->before, now);
}

/* counted counts a flow that is met the first time in a unit. */
inline_always void counted(struct flow_key *k, __u32 now)
{
	struct crowd *c = crowds;
	if (k->hash & COUNTED)
		return;
	__u64 was = c->latest;
	if (was >> 32 == now) {
		c->latest = was + 1;
		return;
	}
	c->before = was;
	c->latest = (__u64)now << 32 | 1;
}

inline_always struct traces *traces_at(struct flow_key *k)
{
	return AT(lately, k->hash >> TRACES_SHIFT);
}

/* trace is what a flow leaves that goes on in a direction. */
inline_always __u32 trace(struct flow_key *k, struct packet *p, const int to_pod, __u32 now)
{
	return (__u32)(k->hash >> TRACE_SHIFT) ^ now * 0x85ebca6bU ^ p->generation * 0xc2b2ae35U ^ (to_pod ? 0x27d4eb2fU : 0);
}

/* none has its highest bit set if a number of 32 bits is 0. No branch is made of it: which of four
 * traces it is, is foreseen no better than a coin. */
inline_always __u64 none(__u64 x)
{
	asm volatile("%0 += -1" : "+r"(x));
	return x;
}

/* went_on reports whether a packet tells of its flow only that it goes on, and that is known. */
inline_always int went_on(struct flow_key *k, struct packet *p, const int to_pod, __u32 now)
{
	struct traces *at = traces_at(k);
	if (p->tcp & (TCP_FIN | TCP_RST))
		return 0;
	__u32 t = trace(k, p, to_pod, now);
	__u64 a = at->w[0], b = at->w[1];
	return (none((__u32)a ^ t) | none(a >> 32 ^ t) | none((__u32)b ^ t) | none(b >> 32 ^ t)) >> 63;
}

/* leaves puts a trace in the place of the oldest one. If others do so at the same time, some are lost.
 * The first packet of a flow leaves none: it is never taken for one that goes on. */
inline_always void leaves(struct flow_key *k, struct packet *p, const int to_pod, __u32 now)
{
	struct traces *at = traces_at(k);
	if (p->kind == FIRST_PACKET)
		return;
	__u64 a = at->w[0];
	at->w[1] = at->w[1] << 32 | a >> 32;
	at->w[0] = a << 32 | trace(k, p, to_pod, now);
}

#endif
