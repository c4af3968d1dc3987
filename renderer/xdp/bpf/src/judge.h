/* The verdict about a packet, by the lists of its endpoint. This is the general path, which takes
 * any packet. */
#ifndef SLUICE_JUDGE_H
#define SLUICE_JUDGE_H

#include "recent.h"
#include "report.h"
#include "endpoints.h"

/* list_verdict returns the verdict of one direction's list. Without a list it permits. */
inline_always __u32 list_verdict(struct line *record, struct packet *p, __u32 class, int to_pod)
{
	if (!(record->w[RECORD_FLAGS] & (to_pod ? FLAG_TO_POD : FLAG_FROM_POD)))
		return ALLOW;
	__u32 port = to_pod ? p->local_port : p->remote_port, source = to_pod ? p->remote_port : p->local_port;
	return verdict(record, to_pod, class, p->place, source, p->place == PLACE_OTHER ? p->protocol : port);
}

/* verdict_of returns the verdict of one direction's list. A rule for the own node permits to a pod
 * only packets that are known to be created here, whatever their source is. */
inline_always __u32 verdict_of(struct line *record, struct packet *p, __u32 class, int to_pod)
{
	__u32 v = list_verdict(record, p, class, to_pod);
	return to_pod && unlikely(v & OWN_NODE) && !p->made_here ? 0 : v;
}

/* answers_pass reports whether the other direction's list, by its verdict, permits all answers to a
 * packet. The node answers pods also with packets that no socket creates. */
inline_always int answers_pass(struct packet *p, __u32 v) { return v & ALLOW && (p->to_pod || !(v & OWN_NODE)); }

inline_always __u32 class_of(struct line *record, struct packet *p)
{
	return p->v6 ? class6(record->w[RECORD_ROOT6], &p->remote) : class4(record->w[RECORD_ROOT4], p->remote.w[0]);
}

/* without_ports returns the verdict about a packet with unknown ports. It denies unless the verdict
 * is the same for all ports. */
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
	return cell & KIND_MASK || (p->to_pod && cell & OWN_NODE && !p->made_here) ? 0 : cell;
}

/* decide returns the verdict about a packet in its direction. With peek, it changes no state. */
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
	/* The other direction's verdict: about the flow that this packet may answer, and about the
	 * answer to this packet. */
	__u32 origin = verdict_of(record, p, class, !to_pod);
	if (allowed) {
		if (keep || (!answers_pass(p, origin) && !is_late_answer(id, p, to_pod))) /* the answer will need a tracked connection */
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

/* related reports whether the packet that an ICMP error quotes belongs to a tracked connection.
 * Where the lists of both directions permit the packet no connection is tracked: then it reports
 * proven, whether something else shows that the error is about a packet of the pod's. */
global_function int related(__u32 line, struct packet *p, int proven)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return 0;
	int to_pod = p->to_pod;
	__u32 class = class_of(record, p), keep = record->w[RECORD_FLAGS] & FLAG_KEEP;
	__u32 forth = verdict_of(record, p, class, to_pod) & ALLOW, back = verdict_of(record, p, class, !to_pod) & ALLOW;
	if (forth && back && proven)
		return 1;
	if (!(forth || back || keep))
		return 0;
	return is_answer(record->w[RECORD_ID], p, forth ? !to_pod : to_pod, keep || (forth && back), 1);
}

/* too_many_errors reports whether an endpoint has exceeded its rate of ICMP errors in a
 * direction. */
global_function int too_many_errors(__u32 line, struct packet *p)
{
	struct line *record = line_at(line);
	return !record || !p || exceeds_rate(&share_of(record->w[RECORD_ID])->errors[p->to_pod & 1], ERRORS_PER_SECOND);
}

/* too_many_links reports whether an endpoint has exceeded its rate of ARP and neighbour
 * discovery. */
global_function int too_many_links(__u32 line)
{
	struct line *record = line_at(line);
	return !record || exceeds_rate(&share_of(record->w[RECORD_ID])->links, LINKS_PER_SECOND);
}

/* The modes of judge. */
#define ENFORCE 0
#define EARLY 1 /* drop early what will be dropped later, and change no state */
#define QUERY 2   /* return the verdict about the first packet of a flow; change no state and count nothing */
#define AT_POD 3 /* at the interface of a sending pod: in_stack judges packets to the node */

/* admit makes the checks before the list is evaluated. It returns the reason, or -1 if the list
 * must decide. */
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
		if (parsed == MALFORMED) /* it may hide a packet for others than the pod's peers */
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

/* judge returns the reason why a packet is dropped, PERMITTED if it passes. */
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
