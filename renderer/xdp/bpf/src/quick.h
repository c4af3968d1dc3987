/* The short way for most packets: what judge says of them, with fewer loads and calls. */
#ifndef SLUICE_QUICK_H
#define SLUICE_QUICK_H

#include "judge.h"

/* SLOWLY says that judge must decide. */
#define SLOWLY (~0U)

/* What is known of the flow of a packet before its list is asked. */
enum { NOTHING, WENT_ON /* lately: if its list permits it, nothing is to be noted */, STANDS /* its list permitted it, and would again */ };

/* goes_on does what refreshes does, counts the flow, and leaves a trace where traces are asked first. */
inline_always int goes_on(struct flow_key *k, struct found *in, struct packet *p, const int to_pod, __u32 now, int traced)
{
	if (!refreshes(in, p, to_pod, now))
		return 0;
	if ((__u32)in->state != now)
		counted(k, now);
	if (traced)
		leaves(k, p, to_pod, now);
	return 1;
}

/* look looks for the flow of a packet that is not its first, and brings its evidence up to date if it
 * stands: there is evidence, and what its list said was in the generation of the packet. Then said is that.
 * Of flows of IPv6 it is not known what their lists said. */
inline_always int look(__u32 id, struct packet *p, const int to_pod, __u64 *said)
{
	struct flow_key k;
	__u32 now = p->now;
	flow_key(&k, id, p);
	int traced = p->v6 || crowded(now);
	if (traced && went_on(&k, p, to_pod, now))
		return WENT_ON;
	if (p->v6)
		return NOTHING;
	struct found in = find(&k);
	if (!in.flow || in.more >> SAID_GENERATION_SHIFT != p->generation) /* evidence may be left that is not needed any more */
		return !traced && went_on(&k, p, to_pod, now) ? WENT_ON : NOTHING;
	*said = in.more;
	if (!(in.state & STATE_TO_POD) == !to_pod)
		return goes_on(&k, &in, p, to_pod, now, traced) ? STANDS : NOTHING;
	return replies(&in, p, to_pod, 0, 0, now) ? STANDS : NOTHING;
}

/* noted does what decide does about evidence, for packets that quick reads and that are not the first
 * of their flow: v is what the list of their direction says. */
on_its_own __u32 noted(__u32 line, struct packet *p, __u32 class, __u32 v)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return SLOWLY;
	struct flow_key k;
	int to_pod = p->to_pod;
	__u32 id = record->w[RECORD_ID], now = p->now, origin = of(record, p, class, !to_pod);
	flow_key(&k, id, p);
	if (v & origin & ALLOW) { /* the answer passes anyway; it is known from now on, so that it is not looked for in vain */
		counted(&k, now);
		leaves(&k, p, to_pod, now);
		return v;
	}
	struct found in = find(&k);
	if (!(v & ALLOW)) {
		if (!(origin & ALLOW) || !replies(&in, p, to_pod, 0, 0, now))
			return SLOWLY;
		renew(&in, said(p, origin));
		return origin;
	}
	if (goes_on(&k, &in, p, to_pod, now, 1)) {
		renew(&in, said(p, v));
	} else if (begins(id, p, to_pod, v, 0)) {
		counted(&k, now);
		if (listens(1))
			tell(id, p, v, PERMITTED);
	}
	return v;
}

/* honest says that a packet comes from the first address of its pod, and goes to another one. */
inline_always int honest(struct line *record, __u32 line, struct packet *p)
{
	struct line *own = line_at(line + (p->v6 ? RECORD_ADDR6 : RECORD_ADDR4));
	if (!own || !record->w[p->v6 ? RECORD_COUNT6 : RECORD_COUNT4] || own->w[0] != p->local.w[0])
		return 0;
	if (!p->v6)
		return own->w[0] != p->remote.w[0];
	__u32 *w = own->w, *l = p->local.w, *r = p->remote.w;
	__u32 elsewhere = (w[1] ^ l[1]) | (w[2] ^ l[2]) | (w[3] ^ l[3]);
	return !elsewhere && ((w[0] ^ r[0]) | (w[1] ^ r[1]) | (w[2] ^ r[2]) | (w[3] ^ r[3]));
}

/* quick does what judge does for most packets, without a call if it can. It returns -1 for all
 * others. */
inline_always int quick(__u32 line, struct packet *p, const int to_pod, const int how)
{
	const __u32 here = to_pod ? FLAG_TO_POD : FLAG_FROM_POD, there = to_pod ? FLAG_FROM_POD : FLAG_TO_POD;
	struct line *record = line_at(line);
	if (!record || how != ENFORCE || p->hairpin)
		return -1;
	__u32 flags = record->w[RECORD_FLAGS];
	if (flags & FLAG_KEEP || !(flags & (here | there)))
		return -1;
	if (!to_pod && (!honest(record, line, p) || is_tunnel(p)))
		return -1;
	int known = NOTHING;
	if (flags & there && p->kind != FIRST_PACKET) {
		__u64 said = 0;
		known = look(record->w[RECORD_ID], p, to_pod, &said);
		if (known == STANDS) {
			hit(said & SAID_SLOT);
			return PERMITTED;
		}
	}
	__u32 class = class_of(record, p);
	__u32 v = of(record, p, class, to_pod);
	if (p->kind == FIRST_PACKET) {
		if (unlikely(listens(v & ALLOW)))
			return -1;
		if (!to_pod && !(v & ALLOW) && record->w[p->v6 ? RECORD_COUNT6 : RECORD_COUNT4] > 1)
			return -1; /* maybe it goes to the pod itself */
		if (v & ALLOW && flags & there && !(of(record, p, class, !to_pod) & ALLOW)) /* the answer will need evidence */
			begins(record->w[RECORD_ID], p, to_pod, v, 0);
	} else if (!(v & ALLOW) || (flags & there && known != WENT_ON)) {
		v = flags & there ? noted(line, p, class, v) : SLOWLY;
		if (v == SLOWLY)
			return -1;
	}
	hit(v & SLOT_MASK);
	return v & ALLOW ? PERMITTED : BY_POLICY;
}

/* settle counts what became of a packet, and tells of drops that no rule made. */
inline_always int settle(__u32 id, struct packet *p, int reason, const int how)
{
	if (likely(reason == PERMITTED))
		return 1;
	if (how == ASK)
		return 0;
	dropped(reason);
	if (reason != BY_POLICY && listens(0))
		tell(id, p, 0, reason);
	return 0;
}

#endif
