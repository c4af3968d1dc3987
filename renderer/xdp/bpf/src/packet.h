/* The fields of a packet that policy needs. Most packets are TCP or UDP without options and
 * fragments; they are read in place. parse.h reads all others. */
#ifndef SLUICE_PACKET_H
#define SLUICE_PACKET_H
#include "platform.h"
#include "policymap.h"

enum parsed {
	PARSED = 0,
	NOT_IP,  /* not subject to policy */
	ON_LINK, /* ARP and neighbour discovery, at inner */
	MALFORMED
};

/* Whether a packet can be, is, or cannot be the first one of a flow. */
enum { ANY_PACKET = 0, FIRST_PACKET = 1, LATER_PACKET = 2 };

struct packet {
	struct address remote, local; /* in host byte order; IPv4 in the first word */
	__u32 id;                  /* of fragments */
	__u16 remote_port, local_port;
	__u8 v6, protocol, place, kind;
	__u8 tcp;      /* flags */
	__u8 fragment; /* 0 none, 1 the first, 2 a later one */
	__u8 error;    /* an ICMP error; the quoted packet is at inner */
	__u8 tagged;   /* the frame has a VLAN tag */
	__u8 routed;   /* source-routed */
	__u8 hops;     /* hop limit of ICMPv6 without extension headers; else 0 */
	__u8 to_pod;
	__u8 tracked;   /* the packet created a tracked connection */
	__u8 hairpin;  /* it came from the pod's own interface */
	__u8 made_here; /* a socket of this node created it, or it comes from the pod */
	__u8 sender_known; /* remote is the sender by its connection, not its source address */
	__u8 late; /* an answer in a connection that both ends have used for some time */
	__u32 inner;
	__u32 transport; /* the offset of the transport header; 0: that of a packet without options */
	__u32 bytes;
	__u32 generation; /* read before any list */
	__u32 now;        /* in units of time */
	KNOWN_KEY
};

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16

#define CONF_NEIGHBOURS 1 /* neighbour discovery passes */
#define CONF_ERRORS 2     /* ICMP errors pass if their quoted packet does */
#define CONF_SPOOF 4      /* pods may send from any address */
#define CONF_CLOSED 8     /* packets of unknown endpoints are dropped */
#define CONF_NON_IP 16    /* isolated pods may exchange frames that are not IP */
#define CONF_TUNNELS 32   /* pods may send tunnel packets */
CONFIG(__u32, conf) = 0;

/* The UDP ports at which nodes may decapsulate packets; 0: none. */
#define TUNNEL_PORTS 8
CONFIG(__u32, tunnel_ports)[TUNNEL_PORTS] = {};

inline_always int is_tunnel_port(__u16 port)
{
#define IS_TUNNEL_PORT(i) (tunnel_ports[i] && port == tunnel_ports[i])
	return IS_TUNNEL_PORT(0) || IS_TUNNEL_PORT(1) || IS_TUNNEL_PORT(2) || IS_TUNNEL_PORT(3) || IS_TUNNEL_PORT(4) || IS_TUNNEL_PORT(5) || IS_TUNNEL_PORT(6) || IS_TUNNEL_PORT(7);
}

/* is_tunnel reports whether a packet of a pod may carry another one that a node would decapsulate,
 * and that would then pass as the node's. */
inline_always int is_tunnel(struct packet *p)
{
	if (conf & CONF_TUNNELS)
		return 0;
	if (p->protocol == P_UDP)
		return is_tunnel_port(p->remote_port);
	return p->protocol == P_IP4 || p->protocol == P_IP6 || p->protocol == P_GRE;
}

inline_always __u32 place_of(__u32 protocol)
{
	return protocol == P_TCP ? PLACE_TCP : protocol == P_UDP ? PLACE_UDP : protocol == P_SCTP ? PLACE_SCTP : PLACE_OTHER;
}

/* Who completes the checksum of a packet later writes two bytes at an offset that the packet's sender
 * chose. may_complete reports whether that is the checksum of the header that was read, or in what
 * UDP or a protocol without ports carries. Elsewhere it would change the packet after its verdict. */
inline_always int may_complete(struct packet *p, __u32 start, __u32 offset, __u32 network)
{
	__u32 at = p->transport ? p->transport : network + (p->v6 ? sizeof(struct ip6) : sizeof(struct ip4));
	if (p->fragment)
		return 0;
	switch (p->protocol) {
	case P_TCP:
		return start == at && offset == 16;
	case P_UDP:
		return start == at ? offset == 6 : start >= at + 8;
	case P_SCTP:
		return start == at && offset == 8;
	case P_ICMP:
	case P_ICMP6:
		return start == at && offset == 2;
	}
	return start >= at;
}

/* is_error reports whether an ICMP message is an error about another packet. */
inline_always int is_error(struct packet *p, __u8 type)
{
	return p->v6 ? type >= 1 && type <= 4 : type == 3 || type == 11 || type == 12;
}

/* The most bytes of ARP, with its padding to the shortest frame, and of neighbour discovery of a
 * pod. */
#define MOST_ARP 46
#define MOST_DISCOVERY 128

/* RFC 1812 and RFC 4443 limit the length of ICMP errors. What an error quotes must not carry data. */
#define MOST_ERROR4 576
#define MOST_ERROR6 1280

inline_always int quotes_too_much(struct packet *p)
{
	return p->bytes - p->inner > (p->v6 ? MOST_ERROR6 - sizeof(struct ip6) : MOST_ERROR4 - sizeof(struct ip4)) - 8;
}

inline_always int is_same(struct address *a, struct address *b)
{
	return !((a->w[0] ^ b->w[0]) | (a->w[1] ^ b->w[1]) | (a->w[2] ^ b->w[2]) | (a->w[3] ^ b->w[3]));
}

/* other_icmp returns the key of the connection of an ICMP message that is no error and no echo, so
 * that it is no answer to another type. Echoes have equal ports. The answers to timestamp,
 * information and mask requests (13, 15, 17) and to node information queries (139) are the next
 * type. */
inline_always __u16 other_icmp(struct packet *p, __u8 type)
{
	int answer = p->v6 ? type == 140 : type == 14 || type == 16 || type == 18;
	return 0x100 | (type - answer);
}

inline_always void ports(struct packet *p, __be16 from, __be16 to, int to_pod)
{
	__u16 f = ntohs(from), t = ntohs(to);
	p->remote_port = to_pod ? f : t;
	p->local_port = to_pod ? t : f;
}

inline_always void tcp_flags(struct packet *p, __u8 flags)
{
	p->tcp = flags;
	p->kind = (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN ? FIRST_PACKET : LATER_PACKET;
}

inline_always void addresses4(struct packet *p, struct ip4 *ip, int to_pod)
{
	__u32 from = ntohl(ip->from), to = ntohl(ip->to);
	p->remote.w[0] = to_pod ? from : to;
	p->local.w[0] = to_pod ? to : from;
}

inline_always void addresses6(struct packet *p, struct ip6 *ip, int to_pod)
{
#define ADDRESS6(i) { __u32 from = ntohl(ip->from[i]), to = ntohl(ip->to[i]); \
	p->remote.w[i] = to_pod ? from : to; p->local.w[i] = to_pod ? to : from; }
	ADDRESS6(0) ADDRESS6(1) ADDRESS6(2) ADDRESS6(3)
}

/* plain reads a TCP or UDP header. left is the number of bytes by the IP header, which may be
 * wrong. */
inline_always int plain(struct packet *p, void *at, void *end, int left, const int to_pod)
{
	__be16 *w = at;
	if (p->protocol != P_TCP && p->protocol != P_UDP)
		return 0;
	if (at + SHORTEST(p) > end || left < SHORTEST(p)) /* in the kernel an empty datagram is for parse.h */
		return 0;
	ports(p, w[0], w[1], to_pod);
	p->place = p->protocol == P_TCP ? PLACE_TCP : PLACE_UDP;
	if (p->protocol == P_TCP)
		tcp_flags(p, ((__u8 *)at)[13]);
	return 1;
}

inline_always int fast4(struct packet *p, struct ip4 *ip, void *end, const int to_pod)
{
	if ((void *)(ip + 1) > end || ip->version_words != 0x45 || ip->fragment & ntohs(IP4_MORE | IP4_OFFSET))
		return 0;
	addresses4(p, ip, to_pod);
	p->protocol = ip->protocol;
	return plain(p, ip + 1, end, ntohs(ip->length) - (int)sizeof(*ip), to_pod);
}

inline_always int fast6(struct packet *p, struct ip6 *ip, void *end, const int to_pod)
{
	if ((void *)(ip + 1) > end || (ntohl(ip->version_class_flow) >> 28) != 6)
		return 0;
	p->v6 = 1;
	addresses6(p, ip, to_pod);
	p->protocol = ip->next;
	return plain(p, ip + 1, end, ntohs(ip->length), to_pod);
}

/* fast reads most packets. If it returns 0, what it wrote must be ignored. */
inline_always int fast(struct packet *p, void *data, void *end, const int to_pod)
{
	struct ethernet *eth = data;
	if ((void *)(eth + 1) > end)
		return 0;
	if (likely(eth->type == ntohs(ETH_IP4)))
		return fast4(p, (void *)(eth + 1), end, to_pod);
	return eth->type == ntohs(ETH_IP6) ? fast6(p, (void *)(eth + 1), end, to_pod) : 0;
}

#endif
