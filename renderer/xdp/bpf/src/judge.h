/* What the lists of an endpoint say about a packet, and what becomes of it: the core, which takes any packet. */
#ifndef SLUICE_JUDGE_H
#define SLUICE_JUDGE_H

#include "recent.h"
#include "report.h"
#include "endpoints.h"

/* by_list returns the verdict of one direction's list, which permits when there is none. */
inline_always __u32 list_verdict(struct line *record, struct packet *p, __u32 class, int to_pod)
{
	if (!(record->w[RECORD_FLAGS] & (to_pod ? FLAG_TO_POD : FLAG_FROM_POD)))
		return ALLOW;
	__u32 port = to_pod ? p->local_port : p->remote_port, source = to_pod ? p->remote_port : p->local_port;
	return verdict(record, to_pod, class, p->place, source, p->place == PLACE_OTHER ? p->protocol : port);
}

/* of returns the verdict of one direction's list. What was not made here is not from the own node, whatever
 * its source says. */
inline_always __u32 verdict_of(struct line *record, struct packet *p, __u32 class, int to_pod)
{
	__u32 v = list_verdict(record, p, class, to_pod);
	return to_pod && unlikely(v & OWN_NODE) && p->received ? 0 : v;
}

inline_always __u32 class_of(struct line *record, struct packet *p)
{
	return p->v6 ? class6(record->w[RECORD_ROOT6], &p->remote) : class4(record->w[RECORD_ROOT4], p->remote.w[0]);
}

/* without_ports returns the verdict about a packet whose ports are not known: it is denied
 * unless they do not matter. */
global_function __u32 without_ports(__u32 line, struct packet *p)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return 0;
	__u32 flags = record->w[RECORD_FLAGS], dir = p->to_pod ? 0 : 1;
	if (!(flags & (FLAG_TO_POD << dir)))
		return ALLOW;
	__u32 class = class_of(record, p);
	if (flags & (FLAG_PORTS_TO << dir) || class >= record->w[RECORD_CLASSES + dir])
		return 0;
	__u32 cell = word_at(row_of(record, dir, class), p->place & 3);
	return cell & KIND_MASK || (cell & OWN_NODE && p->received) ? 0 : cell;
}

/* decide says what becomes of a packet, in the direction that it has. With look, nothing is
 * noted. */
global_function __u32 decide(__u32 line, struct packet *p, int peek)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return 0;
	int to_pod = p->to_pod;
	__u32 flags = record->w[RECORD_FLAGS], keep = flags & FLAG_KEEP;
	__u32 here = to_pod ? FLAG_TO_POD : FLAG_FROM_POD, there = to_pod ? FLAG_FROM_POD : FLAG_TO_POD;
	__u32 id = record->w[RECORD_ID];
	if (!(flags & (here | there)))
		return ALLOW;
	__u32 class = class_of(record, p);
	__u32 v = verdict_of(record, p, class, to_pod);
	__u32 allowed = v & ALLOW;
	if (allowed ? peek || !(keep || flags & there) : p->kind == FIRST_PACKET)
		return v;
	/* What the other direction says of the flow that this may be the answer to, and of the
	 * answer to this. */
	__u32 origin = verdict_of(record, p, class, !to_pod);
	if (allowed) {
		if (keep || !(origin & ALLOW)) /* the answer will need evidence */
			p->tracked = track(id, p, to_pod, v, !!keep);
		return v;
	}
	if (!(origin & ALLOW) && !keep)
		return v;
	if (is_answer(id, p, to_pod, !!keep, peek))
		return origin & ALLOW ? origin : ALLOW;
	if (flags & FLAG_LEARN && origin & ALLOW && p->tcp & TCP_ACK && !(p->tcp & TCP_RST)) {
		if (!peek)
			track(id, p, !to_pod, origin, 0);
		return origin;
	}
	return v;
}

/* related reports whether a packet that an ICMP error is about is of a tracked connection, or needs none, because
 * the lists of both directions permit it. */
global_function int related(__u32 line, struct packet *p)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return 0;
	int to_pod = p->to_pod;
	__u32 class = class_of(record, p), keep = record->w[RECORD_FLAGS] & FLAG_KEEP;
	__u32 forth = verdict_of(record, p, class, to_pod) & ALLOW, back = verdict_of(record, p, class, !to_pod) & ALLOW;
	if ((forth && back) || !(forth || back || keep))
		return forth;
	return is_answer(record->w[RECORD_ID], p, forth ? !to_pod : to_pod, keep, 1);
}

/* errs_often reports whether an endpoint has had its ICMP errors of a direction. */
global_function int too_many_errors(__u32 line, struct packet *p)
{
	struct line *record = line_at(line);
	return !record || !p || exceeds_error_rate(record->w[RECORD_ID], p->to_pod);
}

/* What judge is to do. */
#define ENFORCE 0
#define EARLY 1 /* drop what will be dropped later, and note nothing */
#define QUERY 2   /* what would become of the first packet of a flow; note and count nothing */
#define AT_POD 3 /* at the interface of a pod that sends: what goes to the node is judged by in_stack */

/* admitted says what becomes of a packet that is read before its list is asked: -1 asks. */
inline_always int admit(__u32 line, __u32 flags, struct packet *p, int parsed, int hairpin)
{
	__u32 isolated = flags & (FLAG_TO_POD | FLAG_FROM_POD);
	if (unlikely(p->tagged || parsed == NOT_IP) && isolated && !(conf & CONF_NON_IP))
		return IS_NON_IP;
	if (parsed == NOT_IP)
		return PERMITTED;
	if (parsed == ON_LINK)
		return NEEDS_LINK;
	if (!p->to_pod) {
		if (parsed == MALFORMED) /* something may be hidden in it, for others than the pod's peers */
			return IS_MALFORMED;
		if (!(conf & CONF_SPOOF) && !owns(line, p->v6, &p->local))
			return IS_SPOOFED;
		if (p->routed)
			return IS_ROUTED;
		if (is_tunnel(p))
			return IS_TUNNEL;
	}
	if (!isolated)
		return PERMITTED;
	if (parsed == MALFORMED)
		return IS_MALFORMED;
	if (unlikely(hairpin || !p->to_pod) && owns(line, p->v6, &p->remote))
		return PERMITTED; /* from the pod to itself */
	return -1;
}

/* judge is the core: the packet passes, or is dropped for a reason. */
global_function int judge(__u32 line, struct packet *p, int parsed, int how)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return IS_UNKNOWN;
	int reason = admit(line, record->w[RECORD_FLAGS], p, parsed, p->hairpin);
	if (reason >= 0)
		return reason;
	__u32 here = p->to_pod ? FLAG_TO_POD : FLAG_FROM_POD, id = record->w[RECORD_ID];
	if (unlikely(p->error))
		return record->w[RECORD_FLAGS] & here ? NEEDS_ERROR : PERMITTED;
	if (unlikely(p->fragment == 2) && p->place != PLACE_OTHER && !find_fragment(id, p)) {
		p->remote_port = p->local_port = 0;
		return without_ports(line, p) & ALLOW ? PERMITTED : IS_FRAGMENT;
	}
	if (how == QUERY)
		p->kind = FIRST_PACKET;
	__u32 v = decide(line, p, how);
	if (how == ENFORCE) {
		count_rule(v & SLOT_MASK);
		if (v & ALLOW && (p->tracked || p->kind == FIRST_PACKET) && reporting(1))
			report(id, p, v, PERMITTED);
	}
	if (v & ALLOW) {
		if (unlikely(p->fragment == 1) && how == ENFORCE)
			note_fragment(id, p);
		return PERMITTED;
	}
	if (how != QUERY && unlikely(reporting(0)))
		report(id, p, v, BY_POLICY);
	return BY_POLICY;
}

#endif
