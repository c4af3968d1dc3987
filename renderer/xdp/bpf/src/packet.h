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
	__u8 received; /* it goes to the pod, and was not created on this node */
	__u8 sender_known; /* remote is the sender by its connection, not its source address */
	__u32 inner;
	__u32 bytes;
	__u32 generation; /* read before any list */
	__u32 now;        /* in units of time */
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

/* is_error reports whether an ICMP message is an error about another packet. */
inline_always int is_error(struct packet *p, __u8 type)
{
	return p->v6 ? type >= 1 && type <= 4 : type == 3 || type == 11 || type == 12;
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
	if (at + 14 > end || left < 14) /* an empty datagram is for parse.h */
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
