/* Reads any packet, byte by byte of its headers. Lengths are checked against those that
 * headers claim: bytes behind the end of a packet, in options or in fragments must never be
 * taken for ports. It is included once for each kind of context: CTX is its type, LOAD
 * copies bytes from it, and NAME makes names of functions for it. */

/* transport reads what follows the headers of IP: left bytes, as these claim. */
on_its_own int NAME(transport)(CTX *ctx, struct packet *p, __u32 at, __u32 left, int inner)
{
	if (!p)
		return MALFORMED;
	__u8 h[16] = {};
	__u32 protocol = p->protocol;
	p->place = place_of(protocol);
	if (p->fragment == 2)
		return PARSED;
	__u32 icmp = protocol == P_ICMP || protocol == P_ICMP6;
	if (!icmp && p->place == PLACE_OTHER)
		return PARSED;
	if (left < (inner || icmp || protocol == P_UDP ? 8 : protocol == P_TCP ? 14 : 12))
		return MALFORMED;
	if (LOAD(ctx, at, h, 8)) /* all that an error must quote */
		return MALFORMED;
	if (icmp) {
		if ((protocol == P_ICMP6) != p->v6)
			return PARSED; /* a number without meaning in this family */
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

/* source_route reports whether options of IPv4 say by which hosts a packet goes. What cannot be read may. */
on_its_own int NAME(source_route)(CTX *ctx, __u32 at, __u32 left)
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

on_its_own int NAME(network4)(CTX *ctx, struct packet *p, __u32 at, int inner)
{
	struct ip4 ip = {};
	if (!p || LOAD(ctx, at, &ip, sizeof(ip)))
		return MALFORMED;
	__u32 header = (ip.version_words & 15) * 4, length = ntohs(ip.length), fragment = ntohs(ip.fragment);
	if (ip.version_words >> 4 != 4 || header < sizeof(ip))
		return MALFORMED;
	if (!length && p->bytes > 0xffff)
		length = p->bytes - at; /* more than fits into the field: only segments to be */
	if (length < header)
		return MALFORMED;
	addresses4(p, &ip, p->to_pod);
	p->protocol = ip.protocol;
	p->id = ip.id;
	p->fragment = fragment & IP4_OFFSET ? 2 : fragment & IP4_MORE ? 1 : 0;
	if (header > sizeof(ip) && !p->to_pod && !inner)
		p->routed = NAME(source_route)(ctx, at + sizeof(ip), header - sizeof(ip));
	if ((fragment & IP4_OFFSET) == 1 && p->protocol == P_TCP)
		return MALFORMED; /* would write over flags: RFC 3128 */
	return NAME(transport)(ctx, p, at + header, length - header, inner);
}

/* extension reads an extension header of IPv6. It returns the next header, and notes in
 * inner how long this one was; or it returns a negative number. */
on_its_own int NAME(extension)(CTX *ctx, struct packet *p, __u32 at, __u32 type)
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

on_its_own int NAME(network6)(CTX *ctx, struct packet *p, __u32 at, int inner)
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
		return MALFORMED; /* more would hide what is below */
	p->protocol = next;
	return NAME(transport)(ctx, p, at, length, inner);
}

/* parse begins at the header of Ethernet. */
on_its_own int NAME(parse)(CTX *ctx, struct packet *p)
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
	return type == ETH_VLAN || type == ETH_QINQ ? MALFORMED : NOT_IP; /* a third tag hides what is below */
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
	if (arp.hardware != ntohs(1) || arp.network != ntohs(ETH_IP4) || arp.hardware_length != 6 || arp.network_length != 4 || differs || operation < 1 || operation > 2)
		return 0;
	p->local.w[0] = (__u32)ntohs(arp.from[0]) << 16 | ntohs(arp.from[1]);
	p->remote.w[0] = (__u32)ntohs(arp.to[0]) << 16 | ntohs(arp.to[1]);
	if (!p->local.w[0] && operation == 1) /* asks whether somebody has its address already */
		return conf & CONF_SPOOF || owns(line, 0, &p->remote);
	return conf & CONF_SPOOF || owns(line, 0, &p->local);
}

/* on_link says what becomes of ARP and of neighbour discovery. Both make hosts believe where others are, so that
 * pods send them about themselves only. */
on_its_own int NAME(on_link)(CTX *ctx, struct packet *p, __u32 line, int how)
{
	if (!p)
		return IS_NEIGHBOUR;
	if (!p->v6)
		return p->to_pod || NAME(own_arp)(ctx, p, line) ? PERMITTED : IS_ARP;
	struct discovery d = {};
	if (LOAD(ctx, p->inner, &d, 8) || p->hops != 255 || d.code)
		return IS_NEIGHBOUR;
	if (d.type != ROUTER_SOLICITATION && LOAD(ctx, p->inner + 8, d.target, sizeof(d.target)))
		return IS_NEIGHBOUR;
	return discovers(line, p, &d, how);
}

/* about reports whether the packet that an ICMP error is about may have been sent: it went
 * in the other direction, so that its remote end is its destination. */
on_its_own int NAME(about)(CTX *ctx, struct packet *p, __u32 line)
{
	if (!p)
		return IS_ERROR;
	struct packet inner = { .v6 = p->v6, .to_pod = !p->to_pod, .generation = p->generation, .now = p->now };
	int parsed = p->v6 ? NAME(network6)(ctx, &inner, p->inner, 1) : NAME(network4)(ctx, &inner, p->inner, 1);
	if (parsed != PARSED || inner.fragment == 2 || !owns(line, p->v6, &inner.local))
		return IS_ERROR;
	inner.kind = ANY_PACKET;
	if (p->sender_known) { /* the quoted packet has the address of a service, its connection has who sent this */
		inner.remote = p->remote;
		if (inner.place != PLACE_OTHER)
			inner.remote_port = p->remote_port;
	}
	return !related(line, &inner) ? IS_ERROR : errs_often(line, p) ? IS_MANY : PERMITTED;
}

/* asks does what admitted and judge leave to those who can read the packet. */
inline_always int NAME(asks)(CTX *ctx, struct packet *p, __u32 line, int reason, int how)
{
	if (reason == ASK_ABOUT)
		return NAME(about)(ctx, p, line);
	reason = NAME(on_link)(ctx, p, line, how);
	return reason == PERMITTED && p->v6 && !(conf & CONF_NEIGHBOURS) ? judge(line, p, PARSED, how) : reason;
}

#undef EXTENSION
#undef CTX
#undef LOAD
#undef NAME
