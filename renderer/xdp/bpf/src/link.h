/* Neighbour discovery by RFC 4861: hosts send it about themselves, to hosts of the same link. */
#ifndef SLUICE_LINK_H
#define SLUICE_LINK_H

#include "judge.h"

enum { ROUTER_SOLICITATION = 133, ROUTER_ADVERTISEMENT = 134, NEIGHBOUR_SOLICITATION = 135, NEIGHBOUR_ADVERTISEMENT = 136, REDIRECT = 137 };

struct discovery {
	__u8 type, code, check[2], flags[4];
	__be32 target[4];
};

/* The link of an interface. The map is indexed by the low bits of the interface's index. */
struct reach {
	__u64 gateway;    /* the hardware address of its bridge, or its own; in the upper 16 bits the rest of the index */
	__u64 link_local; /* the lower half of the pod's link-local address; 0: unknown */
	/* the interface by which packets of the pod enter the node's network stack: its own, its
	 * bridge, or their VRF */
	__u32 arrives_by;
	__u32 zero;
};

IN_PLACE(struct reach, gateways);

inline_always int is_any(struct address *a) { return !(a->w[0] | a->w[1] | a->w[2] | a->w[3]); }
inline_always int is_link_local(struct address *a) { return a->w[0] >> 22 == 0xfe80 >> 6; }
inline_always int is_multicast(struct address *a) { return a->w[0] >> 24 == 0xff; }

/* on_this_link reports whether an address is of link-local scope. */
inline_always int on_this_link(struct address *a) { return is_link_local(a) || (a->w[0] & 0xff0f0000) == 0xff020000; }

/* is_own reports whether an endpoint has an IPv6 address, or has it as link-local address. */
global_function int is_own(__u32 line, struct address *a)
{
	struct line *record = line_at(line);
	if (!a || !record)
		return 0;
	if (!is_link_local(a))
		return owns(line, 1, a);
	__u32 id = record->w[RECORD_ID];
	struct reach *r = AT(gateways, id & (PLACES - 1));
	return r->gateway >> 48 == id / PLACES && r->link_local && !(a->w[0] & 0x3fffff) && !a->w[1] && r->link_local == ((__u64)a->w[2] << 32 | a->w[3]);
}

/* A pod may send unsolicited unicast answers only to hosts that sent it neighbour discovery, which
 * no router forwards, so that they are on the link. Otherwise such answers would leak data from the
 * pod. as_solicitation turns a packet into the key by which that is tracked. */
inline_always void as_solicitation(struct packet *p)
{
	p->remote_port = NEIGHBOUR_SOLICITATION; /* no echo has two ports */
	p->local_port = 0;
	p->kind = ANY_PACKET;
}

/* may_discover reports whether a pod may send a message of neighbour discovery. */
inline_always int may_discover(__u32 line, struct packet *p, __u8 type, struct address *target)
{
	int unspecified = is_any(&p->local), any = conf & CONF_SPOOF;
	if (!unspecified && !any && !is_own(line, &p->local))
		return 0;
	if (type == ROUTER_SOLICITATION)
		return on_this_link(&p->remote);
	if (is_multicast(target) || (is_multicast(&p->remote) && !on_this_link(&p->remote)))
		return 0;
	if (type == NEIGHBOUR_SOLICITATION)
		return !unspecified || (is_multicast(&p->remote) && (any || is_own(line, target)));
	return type == NEIGHBOUR_ADVERTISEMENT && !unspecified && (any || is_own(line, target));
}

/* judge_discovery judges a message of neighbour discovery that no router forwarded. */
global_function int judge_discovery(__u32 line, struct packet *p, struct discovery *d, int how)
{
	struct line *record = line_at(line);
	if (!record || !p || !d)
		return IS_NEIGHBOUR;
	struct address target;
	for (int i = 0; i < 4; i++)
		target.w[i] = ntohl(d->target[i]);
	if (p->to_pod ? !on_this_link(&p->local) && !owns(line, 1, &p->local) : !may_discover(line, p, d->type, &target))
		return IS_NEIGHBOUR;
	if (!(conf & CONF_NEIGHBOURS))
		return PERMITTED; /* the message is valid; policy decides */
	if (on_this_link(&p->remote) || !(record->w[RECORD_FLAGS] & FLAG_FROM_POD))
		return PERMITTED;
	if (!p->to_pod && list_verdict(record, p, class_of(record, p), 0) & ALLOW)
		return PERMITTED;
	as_solicitation(p);
	if (p->to_pod && how == ENFORCE)
		track(record->w[RECORD_ID], p, 1, 0, 0);
	return p->to_pod || is_answer(record->w[RECORD_ID], p, 0, 0, how) ? PERMITTED : IS_NEIGHBOUR;
}

#endif
