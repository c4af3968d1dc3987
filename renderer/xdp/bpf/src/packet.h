/* What a packet is, as far as policy asks. Everything is checked against the end of the
 * data, and lengths against those that headers claim: bytes behind the end of a packet, in
 * options or in fragments must never be taken for ports. */
#ifndef SLUICE_PACKET_H
#define SLUICE_PACKET_H
#include "kernel.h"
#include "memory.h"

enum parsed {
	PARSED = 0,
	NOT_IP,    /* passes: ARP and what no policy is about */
	NEIGHBOUR, /* passes: neighbour discovery */
	MALFORMED,
	TOO_SHORT /* or headers are not in the linear part */
};

/* What the first packet of a flow can look like, and what it cannot. */
enum { ANY_PACKET = 0, FIRST_PACKET = 1, LATER_PACKET = 2 };

struct packet {
	__u32 remote[4], local[4]; /* in the order of the host; IPv4 in the first word */
	__u32 id;                  /* of fragments */
	__u16 remote_port, local_port;
	__u8 v6, protocol, place, kind;
	__u8 tcp;      /* flags */
	__u8 fragment; /* 0 none, 1 the first, 2 a later one */
	__u8 error;    /* an ICMP error; the packet that it is about is at inner */
	__u8 to_pod;
	__u32 inner;
	__u32 bytes;
};

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16

#define CONF_NEIGHBOURS 1 /* neighbour discovery passes */
#define CONF_ERRORS 2     /* ICMP errors pass with the packet that they are about */
#define CONF_SPOOF 4      /* pods may send from any address */
#define CONF_CLOSED 8     /* an endpoint that is not known drops */
#define CONF_FLOWS 16     /* events of permitted flows, too */
volatile const __u32 conf = 0;

inline_always __u32 place_of(__u32 protocol)
{
	return protocol == P_TCP ? PLACE_TCP : protocol == P_UDP ? PLACE_UDP : protocol == P_SCTP ? PLACE_SCTP : PLACE_OTHER;
}

inline_always void ports(struct packet *p, __be16 from, __be16 to)
{
	__u16 f = ntohs(from), t = ntohs(to);
	p->remote_port = p->to_pod ? f : t;
	p->local_port = p->to_pod ? t : f;
}

/* is_error says whether an ICMP message is about another packet. */
inline_always int is_error(struct packet *p, __u8 type)
{
	return p->v6 ? type >= 1 && type <= 4 : type == 3 || type == 11 || type == 12;
}

/* transport reads what follows the headers of IP: left bytes, as these claim. */
inline_always enum parsed transport(struct packet *p, void *data, void *end, __u32 at, __u32 left, int inner)
{
	__u8 *h = data + at;
	p->place = place_of(p->protocol);
	if (p->fragment == 2)
		return PARSED;
	__u32 need = p->protocol == P_TCP ? 14 : p->protocol == P_UDP || p->protocol == P_ICMP || p->protocol == P_ICMP6 ? 8 : p->protocol == P_SCTP ? 12 : 0;
	if (inner && need > 8)
		need = 8; /* all that an error must quote */
	if (!need)
		return PARSED;
	if (left < need)
		return MALFORMED;
	if ((void *)h + 8 > end)
		return TOO_SHORT;
	__be16 *w = (__be16 *)h;
	if (p->protocol == P_ICMP || p->protocol == P_ICMP6) {
		if ((p->protocol == P_ICMP6) != p->v6)
			return PARSED; /* a number without meaning in this family */
		__u8 type = h[0];
		if (p->v6 && type >= 133 && type <= 137 && conf & CONF_NEIGHBOURS)
			return inner ? PARSED : NEIGHBOUR;
		if (is_error(p, type) && !inner && conf & CONF_ERRORS) {
			p->error = 1;
			p->inner = at + 8;
			return PARSED;
		}
		__u8 ask = p->v6 ? 128 : 8, answer = p->v6 ? 129 : 0;
		if (type == ask || type == answer) {
			p->remote_port = p->local_port = ntohs(w[2]); /* identifier */
			p->kind = type == ask ? FIRST_PACKET : LATER_PACKET;
		}
		return PARSED;
	}
	ports(p, w[0], w[1]);
	if (p->protocol == P_UDP || inner)
		return PARSED;
	if (p->protocol == P_TCP) {
		if ((void *)h + 14 > end)
			return TOO_SHORT;
		p->tcp = h[13];
		p->kind = (p->tcp & (TCP_SYN | TCP_ACK)) == TCP_SYN ? FIRST_PACKET : LATER_PACKET;
		return PARSED;
	}
	if ((void *)h + 13 > end) { /* SCTP: a first chunk INIT begins an association */
		p->kind = LATER_PACKET;
		return left > 12 ? TOO_SHORT : PARSED;
	}
	p->kind = left > 12 && h[12] == 1 ? FIRST_PACKET : LATER_PACKET;
	return PARSED;
}

inline_always enum parsed parse4(struct packet *p, void *data, void *end, __u32 at, __u32 wire, int inner)
{
	struct ip4 *ip = data + at;
	if ((void *)(ip + 1) > end)
		return TOO_SHORT;
	__u32 header = (ip->version_words & 15) * 4, length = ntohs(ip->length), fragment = ntohs(ip->fragment);
	if (ip->version_words >> 4 != 4 || header < sizeof(*ip))
		return MALFORMED;
	if (!length)
		length = wire > 0xffff ? wire - at : 0; /* more than fits into the field: only segments to be */
	if (length < header)
		return MALFORMED;
	__u32 from = ntohl(ip->from), to = ntohl(ip->to);
	p->remote[0] = p->to_pod ? from : to;
	p->local[0] = p->to_pod ? to : from;
	p->protocol = ip->protocol;
	p->id = ip->id;
	p->fragment = fragment & IP4_OFFSET ? 2 : fragment & IP4_MORE ? 1 : 0;
	if ((fragment & IP4_OFFSET) == 1 && p->protocol == P_TCP)
		return MALFORMED; /* would write over flags: RFC 3128 */
	return transport(p, data, end, at + header, length - header, inner);
}

inline_always enum parsed parse6(struct packet *p, void *data, void *end, __u32 at, __u32 wire, int inner)
{
	struct ip6 *ip = data + at;
	if ((void *)(ip + 1) > end)
		return TOO_SHORT;
	if ((ntohl(ip->version_class_flow) >> 28) != 6)
		return MALFORMED;
	__u32 length = ntohs(ip->length);
	if (!length)
		length = wire > 0xffff ? wire - at - sizeof(*ip) : 0;
	for (int i = 0; i < 4; i++) {
		__u32 from = ntohl(ip->from[i]), to = ntohl(ip->to[i]);
		p->remote[i] = p->to_pod ? from : to;
		p->local[i] = p->to_pod ? to : from;
	}
	__u32 next = ip->next;
	at += sizeof(*ip);
	for (int i = 0; i < 9; i++) {
		__u32 size;
		if (next != P_HOPOPTS && next != P_ROUTING && next != P_FRAGMENT && next != P_DSTOPTS && next != P_AH && next != P_MOBILITY && next != P_HIP && next != P_SHIM6) {
			p->protocol = next;
			return transport(p, data, end, at, length, inner);
		}
		__u8 *h = data + (at & 0xfff);
		if (at > 0xf00 || i == 8)
			return MALFORMED;
		if (length < 8)
			return MALFORMED;
		if ((void *)h + 8 > end)
			return TOO_SHORT;
		size = next == P_FRAGMENT ? 8 : next == P_AH ? (h[1] + 2) * 4 : (h[1] + 1) * 8;
		if (size > length)
			return MALFORMED;
		if (next == P_FRAGMENT) {
			__u32 field = (__u32)h[2] << 8 | h[3];
			p->id = *(__u32 *)(h + 4);
			p->fragment = field >> 3 ? 2 : field & 1 ? 1 : 0;
			if (p->fragment == 2) {
				p->protocol = h[0];
				return transport(p, data, end, at, length, inner);
			}
		}
		next = h[0];
		at += size;
		length -= size;
	}
	return MALFORMED;
}

/* network reads the header of a network protocol of a family. */
never_inline enum parsed inner_packet(struct packet *p, void *data, void *end, __u32 at, __u32 wire)
{
	at &= 0xfff;
	return p->v6 ? parse6(p, data, end, at, wire, 1) : parse4(p, data, end, at, wire, 1);
}

never_inline enum parsed outer6(struct packet *p, void *data, void *end, __u32 at, __u32 wire)
{
	return parse6(p, data, end, at & 31, wire, 0);
}

inline_always enum parsed parse(struct packet *p, void *data, void *end, __u32 wire)
{
	struct ethernet *eth = data;
	if ((void *)(eth + 1) > end)
		return TOO_SHORT;
	__u32 at = sizeof(*eth);
	__u16 type = ntohs(eth->type);
	for (int i = 0; i < 2 && unlikely(type == ETH_VLAN || type == ETH_QINQ); i++) {
		__be16 *tag = data + at;
		if ((void *)(tag + 2) > end)
			return TOO_SHORT;
		type = ntohs(tag[1]);
		at += 4;
	}
	p->bytes = wire;
	if (likely(type == ETH_IP4))
		return parse4(p, data, end, at, wire, 0);
	if (type == ETH_VLAN || type == ETH_QINQ)
		return MALFORMED; /* a third tag would hide what is below */
	if (type != ETH_IP6)
		return NOT_IP;
	p->v6 = 1;
	return outer6(p, data, end, at, wire);
}

#endif
