/* Reads any packet, header by header. Lengths are checked against those that headers claim: bytes
 * after the end of a packet, in options or in fragments must never be taken for ports. This file is
 * included once for each kind of context: CTX is its type, LOAD copies bytes from it, and NAME
 * makes the names of its functions. */

/* transport reads what follows the IP headers. left is its number of bytes, as these claim. */
global_function int NAME(transport)(CTX *ctx, struct packet *p, __u32 at, __u32 left, int inner)
{
	if (!p)
		return MALFORMED;
	__u8 h[16] = {};
	__u32 protocol = p->protocol;
	p->place = place_of(protocol);
	p->transport = at;
	if (p->fragment == 2)
		return PARSED;
	__u32 icmp = protocol == P_ICMP || protocol == P_ICMP6;
	if (!icmp && p->place == PLACE_OTHER)
		return PARSED;
	if (left < (inner || icmp || protocol == P_UDP ? 8 : protocol == P_TCP ? 14 : 12))
		return MALFORMED;
	if (LOAD(ctx, at, h, 8)) /* an ICMP error need not quote more */
		return MALFORMED;
	if (icmp) {
		if ((protocol == P_ICMP6) != p->v6)
			return PARSED; /* this protocol has no meaning in this family */
		__u8 type = h[0];
		if (p->v6 && type >= 133 && type <= 137 && !inner) {
			p->inner = at;
			return left < 24 && type != 133 ? MALFORMED : ON_LINK;
		}
		if (is_error(p, type) && !inner && conf & CONF_ERRORS) {
			p->error = 1;
			p->inner = at + 8;
			return PARSED;
		}
		__u8 ask = p->v6 ? 128 : 8, answer = p->v6 ? 129 : 0;
		if (type == ask || type == answer) {
			p->remote_port = p->local_port = (__u16)h[4] << 8 | h[5]; /* identifier */
			p->kind = type == ask ? FIRST_PACKET : LATER_PACKET;
		} else {
			p->remote_port = other_icmp(p, type);
		}
		return PARSED;
	}
	ports(p, *(__be16 *)h, *(__be16 *)(h + 2), p->to_pod);
	if (protocol == P_UDP || inner)
		return PARSED;
	if (protocol == P_TCP) {
		if (LOAD(ctx, at + 8, h, 6))
			return MALFORMED;
		tcp_flags(p, h[5]);
		return PARSED;
	}
	p->kind = LATER_PACKET; /* SCTP: a first chunk INIT begins an association */
	if (left > 12) {
		if (LOAD(ctx, at + 12, h, 1))
			return MALFORMED;
		if (h[0] == 1)
			p->kind = FIRST_PACKET;
	}
	return PARSED;
}

/* source_route reports whether IPv4 options have a source route, or cannot be read. */
global_function int NAME(source_route)(CTX *ctx, __u32 at, __u32 left)
{
	__u8 h[2] = {};
	for (int i = 0; i < 40 && left; i++) {
		if (LOAD(ctx, at, h, 1))
			return 1;
		__u32 length = 1;
		if (h[0] == IP4_END)
			return 0;
		if (h[0] == IP4_LOOSE_ROUTE || h[0] == IP4_STRICT_ROUTE)
			return 1;
		if (h[0] != IP4_NOTHING) {
			if (left < 2 || LOAD(ctx, at, h, 2) || h[1] < 2 || h[1] > left)
				return 1;
			length = h[1];
		}
		at += length;
		left -= length;
	}
	return 0;
}

global_function int NAME(network4)(CTX *ctx, struct packet *p, __u32 at, int inner)
{
	struct ip4 ip = {};
	if (!p || LOAD(ctx, at, &ip, sizeof(ip)))
		return MALFORMED;
	__u32 header = (ip.version_words & 15) * 4, length = ntohs(ip.length), fragment = ntohs(ip.fragment);
	if (ip.version_words >> 4 != 4 || header < sizeof(ip))
		return MALFORMED;
	if (!length && p->bytes > 0xffff)
		length = p->bytes - at; /* the field is too small: only packets that are segmented later */
	if (length < header)
		return MALFORMED;
	addresses4(p, &ip, p->to_pod);
	p->protocol = ip.protocol;
	p->id = ip.id;
	p->fragment = fragment & IP4_OFFSET ? 2 : fragment & IP4_MORE ? 1 : 0;
	if (header > sizeof(ip) && !p->to_pod && !inner)
		p->routed = NAME(source_route)(ctx, at + sizeof(ip), header - sizeof(ip));
	if ((fragment & IP4_OFFSET) == 1 && p->protocol == P_TCP)
		return MALFORMED; /* it would overwrite flags: RFC 3128 */
	return NAME(transport)(ctx, p, at + header, length - header, inner);
}

/* extension reads an extension header of IPv6. It returns the next header and sets inner to the
 * length of this one, or returns a negative number. */
global_function int NAME(extension)(CTX *ctx, struct packet *p, __u32 at, __u32 type)
{
	__u8 h[8] = {};
	if (!p || LOAD(ctx, at, h, 8))
		return -1;
	p->inner = type == P_AH ? (h[1] + 2) * 4 : (h[1] + 1) * 8;
	if (type == P_FRAGMENT) {
		__u32 field = (__u32)h[2] << 8 | h[3];
		p->inner = 8;
		p->id = *(__u32 *)(h + 4);
		p->fragment = field >> 3 ? 2 : field & 1 ? 1 : 0;
	}
	return h[0];
}

inline_always int NAME(is_extension)(__u32 next)
{
	return next == P_HOPOPTS || next == P_ROUTING || next == P_FRAGMENT || next == P_DSTOPTS || next == P_AH || next == P_MOBILITY || next == P_HIP || next == P_SHIM6;
}

global_function int NAME(network6)(CTX *ctx, struct packet *p, __u32 at, int inner)
{
	struct ip6 ip = {};
	if (!p || LOAD(ctx, at, &ip, sizeof(ip)))
		return MALFORMED;
	if ((ntohl(ip.version_class_flow) >> 28) != 6)
		return MALFORMED;
	__u32 length = ntohs(ip.length);
	if (!length && p->bytes > 0xffff)
		length = p->bytes - at - sizeof(ip);
	addresses6(p, &ip, p->to_pod);
	__u32 next = ip.next;
	at += sizeof(ip);
	p->hops = next == P_ICMP6 ? ip.hops : 0;
#define EXTENSION \
	if (NAME(is_extension)(next) && p->fragment != 2) { \
		int then = NAME(extension)(ctx, p, at, next); \
		if (then < 0 || p->inner > length) \
			return MALFORMED; \
		p->routed |= next == P_ROUTING; \
		next = then; \
		at += p->inner; \
		length -= p->inner; \
	}
	EXTENSION EXTENSION EXTENSION EXTENSION EXTENSION EXTENSION EXTENSION EXTENSION
	p->inner = 0;
	if (p->fragment != 2 && NAME(is_extension)(next))
		return MALFORMED; /* more headers would hide the rest of the packet */
	p->protocol = next;
	return NAME(transport)(ctx, p, at, length, inner);
}

/* parse reads a packet from its Ethernet header. */
global_function int NAME(parse)(CTX *ctx, struct packet *p)
{
	if (!p)
		return MALFORMED;
	struct ethernet eth = {};
	if (LOAD(ctx, 0, &eth, sizeof(eth)))
		return MALFORMED;
	__u32 at = sizeof(eth), type = ntohs(eth.type);
	for (int i = 0; i < 2 && (type == ETH_VLAN || type == ETH_QINQ); i++) {
		__be16 tag[2] = {};
		if (LOAD(ctx, at, tag, sizeof(tag)))
			return MALFORMED;
		type = ntohs(tag[1]);
		at += sizeof(tag);
		p->tagged = 1;
	}
	p->v6 = type == ETH_IP6;
	if (type == ETH_IP4)
		return NAME(network4)(ctx, p, at, 0);
	if (type == ETH_IP6)
		return NAME(network6)(ctx, p, at, 0);
	p->inner = at;
	if (type == ETH_ARP)
		return ON_LINK;
	return type == ETH_VLAN || type == ETH_QINQ ? MALFORMED : NOT_IP; /* a third tag hides the rest of the frame */
}

/* own_arp reports whether a pod sends ARP for itself. */
inline_always int NAME(own_arp)(CTX *ctx, struct packet *p, __u32 line)
{
	struct arp arp = {};
	struct ethernet eth = {};
	if (LOAD(ctx, p->inner, &arp, sizeof(arp)) || LOAD(ctx, 0, &eth, sizeof(eth)))
		return 0;
	__u32 operation = ntohs(arp.operation), differs = 0;
	for (int i = 0; i < 6; i++)
		differs |= arp.from_hardware[i] ^ eth.from[i];
	if (p->bytes - p->inner > MOST_ARP || arp.hardware != ntohs(1) || arp.network != ntohs(ETH_IP4) || arp.hardware_length != 6 || arp.network_length != 4 || differs || operation < 1 || operation > 2)
		return 0;
	p->local.w[0] = (__u32)ntohs(arp.from[0]) << 16 | ntohs(arp.from[1]);
	p->remote.w[0] = (__u32)ntohs(arp.to[0]) << 16 | ntohs(arp.to[1]);
	if (!p->local.w[0] && operation == 1) /* a probe whether another host has the address already */
		return conf & CONF_SPOOF || owns(line, 0, &p->remote);
	return conf & CONF_SPOOF || owns(line, 0, &p->local);
}

/* judge_link judges ARP and neighbour discovery. Hosts believe both, so pods may send them about
 * themselves only, and few and short ones, because they pass between isolated pods. */
global_function int NAME(judge_link)(CTX *ctx, struct packet *p, __u32 line, int how)
{
	if (!p)
		return IS_NEIGHBOUR;
	if (!p->v6)
		return p->to_pod || NAME(own_arp)(ctx, p, line) ? PERMITTED : IS_ARP;
	struct discovery d = {};
	if (LOAD(ctx, p->inner, &d, 8) || p->hops != 255 || d.code || (!p->to_pod && p->bytes - p->inner > MOST_DISCOVERY))
		return IS_NEIGHBOUR;
	if (d.type != ROUTER_SOLICITATION && LOAD(ctx, p->inner + 8, d.target, sizeof(d.target)))
		return IS_NEIGHBOUR;
	return judge_discovery(line, p, &d, how);
}

/* judge_error judges an ICMP error by the packet that it quotes. That went in the other direction,
 * so its remote end is its destination. A pod sends errors to the source of that packet only. To a
 * pod, also routers on the way send them: connection tracking knows which of these are true. */
global_function int NAME(judge_error)(CTX *ctx, struct packet *p, __u32 line, int how)
{
	if (!p)
		return IS_ERROR;
	struct packet inner = { .v6 = p->v6, .to_pod = !p->to_pod, .made_here = p->made_here | !p->to_pod, .generation = p->generation, .now = p->now };
	int parsed = p->v6 ? NAME(network6)(ctx, &inner, p->inner, 1) : NAME(network4)(ctx, &inner, p->inner, 1);
	if (parsed != PARSED || inner.fragment == 2 || !owns(line, p->v6, &inner.local) || quotes_too_much(p))
		return IS_ERROR;
	inner.kind = ANY_PACKET;
	int by_peer = is_same(&inner.remote, &p->remote);
	if (!p->to_pod && !by_peer)
		return IS_ERROR;
	if (p->sender_known) { /* the quoted packet has the address of a service; the connection has the sender of this error */
		inner.remote = p->remote;
		if (inner.place != PLACE_OTHER)
			inner.remote_port = p->remote_port;
	}
	if (!related(line, &inner, by_peer || p->sender_known || !sees_connections() || how == EARLY))
		return IS_ERROR;
	return how == ENFORCE && too_many_errors(line, p) ? IS_MANY : PERMITTED;
}

/* finish handles the reasons of admit and judge for which the packet must be read further. */
inline_always int NAME(finish)(CTX *ctx, struct packet *p, __u32 line, int reason, int how)
{
	if (reason == NEEDS_ERROR)
		return NAME(judge_error)(ctx, p, line, how);
	reason = NAME(judge_link)(ctx, p, line, how);
	if (reason == PERMITTED && !p->to_pod && how == ENFORCE && too_many_links(line))
		return p->v6 ? IS_NEIGHBOUR : IS_ARP;
	return reason == PERMITTED && p->v6 && !(conf & CONF_NEIGHBOURS) ? judge(line, p, PARSED, how) : reason;
}

#undef EXTENSION
#undef CTX
#undef LOAD
#undef NAME
