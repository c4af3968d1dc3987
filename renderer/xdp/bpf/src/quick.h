/* The fast path for most packets: the verdict of judge with fewer loads and calls. */
#ifndef SLUICE_QUICK_H
#define SLUICE_QUICK_H

#include "judge.h"

/* SLOW_PATH means that judge must decide. */
#define SLOW_PATH (~0U)

/* What is known of the flow of a packet before its list is evaluated. */
enum {
	FLOW_UNKNOWN,
	FLOW_RECENT, /* in the recent-flow cache: if the list permits the packet, no state changes */
	FLOW_CACHED  /* its verdict is cached: the list need not be evaluated */
};

/* refresh_flow refreshes the tracked connection, counts the active flow, and with use_recent adds
 * it to the recent-flow cache. */
inline_always int refresh_flow(struct flow_key *k, struct found *in, struct packet *p, const int to_pod, __u32 now, int use_recent)
{
	if (!refresh(in, p, to_pod, now))
		return 0;
	if ((__u32)in->state != now)
		count_active(k, now);
	if (use_recent)
		add_recent(k, p, to_pod, now);
	return 1;
}

/* look_up looks for the flow of a packet that is not its first. If there is a tracked connection
 * with a verdict of the packet's generation, it refreshes the connection and sets cached to the
 * verdict. IPv6 connections have no cached verdict. */
inline_always int look_up(__u32 id, struct packet *p, const int to_pod, __u64 *cached)
{
	struct flow_key k;
	__u32 now = p->now;
	flow_key(&k, id, p);
	int use_recent = p->v6 || many_active_flows(now);
	if (use_recent && is_recent(&k, p, to_pod, now))
		return FLOW_RECENT;
	if (p->v6)
		return FLOW_UNKNOWN;
	struct found in = find(&k);
	if (!in.flow || in.more >> CACHED_GENERATION_SHIFT != p->generation) /* the connection may be left from lists that needed it */
		return !use_recent && is_recent(&k, p, to_pod, now) ? FLOW_RECENT : FLOW_UNKNOWN;
	*cached = in.more;
	if (!(in.state & STATE_TO_POD) == !to_pod)
		return refresh_flow(&k, &in, p, to_pod, now, use_recent) ? FLOW_CACHED : FLOW_UNKNOWN;
	return is_reply(&in, p, to_pod, 0, 0, now) ? FLOW_CACHED : FLOW_UNKNOWN;
}

/* track_later_packet does what decide does with tracked connections, for packets of the fast path
 * that are not the first of their flow. v is the verdict of their direction's list. */
global_function __u32 track_later_packet(__u32 line, struct packet *p, __u32 class, __u32 v)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return SLOW_PATH;
	struct flow_key k;
	int to_pod = p->to_pod;
	__u32 id = record->w[RECORD_ID], now = p->now, origin = verdict_of(record, p, class, !to_pod);
	flow_key(&k, id, p);
	if (v & ALLOW && answers_pass(p, origin)) { /* answers need no tracked connection; the cache saves the next look-up */
		count_active(&k, now);
		add_recent(&k, p, to_pod, now);
		return v;
	}
	struct found in = find(&k);
	if (!(v & ALLOW)) {
		if (!(origin & ALLOW) || !is_reply(&in, p, to_pod, 0, 0, now))
			return SLOW_PATH;
		cache_verdict(&in, cached_verdict(p, origin));
		return origin;
	}
	if (refresh_flow(&k, &in, p, to_pod, now, 1)) {
		cache_verdict(&in, cached_verdict(p, v));
	} else if (!is_late_answer(id, p, to_pod) && track(id, p, to_pod, v, 0)) {
		count_active(&k, now);
		if (reporting(1))
			report(id, p, v, PERMITTED);
	}
	return v;
}

/* has_first_address reports whether the source of a packet is the first address of its pod, and the
 * destination another address. */
inline_always int has_first_address(struct line *record, __u32 line, struct packet *p)
{
	struct line *own = line_at(line + (p->v6 ? RECORD_ADDR6 : RECORD_ADDR4));
	if (!own || !record->w[p->v6 ? RECORD_COUNT6 : RECORD_COUNT4] || own->w[0] != p->local.w[0])
		return 0;
	if (!p->v6)
		return own->w[0] != p->remote.w[0];
	__u32 *w = own->w, *l = p->local.w, *r = p->remote.w;
	__u32 differs = (w[1] ^ l[1]) | (w[2] ^ l[2]) | (w[3] ^ l[3]);
	return !differs && ((w[0] ^ r[0]) | (w[1] ^ r[1]) | (w[2] ^ r[2]) | (w[3] ^ r[3]));
}

/* quick does the work of judge for most packets, without a call if possible. It returns -1 for all
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
	if (!to_pod && (!has_first_address(record, line, p) || is_tunnel(p)))
		return -1;
	int known = FLOW_UNKNOWN;
	if (flags & there && p->kind != FIRST_PACKET) {
		__u64 cached = 0;
		known = look_up(record->w[RECORD_ID], p, to_pod, &cached);
		if (known == FLOW_CACHED) {
			count_rule(cached & CACHED_SLOT);
			return PERMITTED;
		}
	}
	__u32 class = class_of(record, p);
	__u32 v = verdict_of(record, p, class, to_pod);
	if (p->kind == FIRST_PACKET) {
		if (unlikely(reporting(v & ALLOW)))
			return -1;
		if (!to_pod && !(v & ALLOW) && record->w[p->v6 ? RECORD_COUNT6 : RECORD_COUNT4] > 1)
			return -1; /* it may go to another address of the pod itself */
		if (v & ALLOW && flags & there && !answers_pass(p, verdict_of(record, p, class, !to_pod))) /* answers need a tracked connection */
			track(record->w[RECORD_ID], p, to_pod, v, 0);
	} else if (!(v & ALLOW) || (flags & there && known != FLOW_RECENT)) {
		v = flags & there ? track_later_packet(line, p, class, v) : SLOW_PATH;
		if (v == SLOW_PATH)
			return -1;
	}
	count_rule(v & SLOT_MASK);
	return v & ALLOW ? PERMITTED : BY_POLICY;
}

/* settle counts a dropped packet, and reports drops that no rule decided. It returns 1 if the
 * packet passes. */
inline_always int settle(__u32 id, struct packet *p, int reason, const int how)
{
	if (likely(reason == PERMITTED))
		return 1;
	if (how == QUERY)
		return 0;
	count_drop(reason);
	if (reason != BY_POLICY && reporting(0))
		report(id, p, 0, reason);
	return 0;
}

#endif
