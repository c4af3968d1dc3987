/* Packets of a pod to its node may be translated there: to a pod behind a service, or back to the
 * client of an answer. So they are judged at netfilter hooks of the node, after the translation of
 * destinations and before that of sources. At the interface of the pod only the source is checked,
 * by which the packet is attributed to the pod here. */
#ifndef SLUICE_STACK_H
#define SLUICE_STACK_H

#include "read.h"
#include "quick.h"

CONFIG(__u32, tags) = 0;   /* from_pod tags the packets that it checked */

/* is_for_node reports whether a frame of an endpoint must be judged at netfilter hooks. Other
 * frames do not get there, because a bridge switches them. */
inline_always int is_for_node(__u32 id, void *data, void *end)
{
	__u16 *to = data;
	if (!judge_in_stack || conf & CONF_SPOOF || data + sizeof(struct ethernet) > end)
		return 0;
	__u64 address = (__u64)to[0] | (__u64)to[1] << 16 | (__u64)to[2] << 32;
	return AT(gateways, id & (PLACES - 1))->gateway == (address | (__u64)(id / PLACES) << 48) && address;
}

/* A tag marks a packet of a pod (in tc_index) with the low bits of its interface's index. A packet
 * may have lost its tag, because other filters can set that field. */
#define TAG_LATER (1U << 15)
#define TAG_JUDGED (1U << 14)

inline_always __u16 tag_of(__u32 id, int later) { return (later ? TAG_LATER : TAG_JUDGED) | (id & (PLACES - 1)); }
inline_always int is_of(__u32 tag, __u32 id) { return tag & (TAG_LATER | TAG_JUDGED) && !((tag ^ id) & (PLACES - 1)); }

/* own_tag returns a tag if a program of this node wrote it, so that the packet arrived by the
 * interface of the tag; else 0. Tags can cross network namespaces, for example from one node to
 * another if nodes are containers. */
inline_always __u32 own_tag(__u32 tag, __u32 by)
{
	return tag & (TAG_LATER | TAG_JUDGED) && by && AT(gateways, tag & (PLACES - 1))->arrives_by == by ? tag : 0;
}

/* left_stack reports whether a frame that was left to the stack comes from a bridge instead. If it
 * has a connection, the bridge passed it through the netfilter hooks. Else the bridge changed its
 * hardware address, so that it switched the frame, and nothing judged it. */
inline_always int left_stack(__u32 tag, __u32 by)
{
	return tag & TAG_LATER && by && !((tag ^ by) & (PLACES - 1)) && AT(gateways, tag & (PLACES - 1))->arrives_by != by;
}

/* arrives_elsewhere reports whether a packet with an address of an endpoint came by another
 * interface than its packets do, so that another host sent it. */
inline_always int arrives_elsewhere(__u32 id, __u32 by)
{
	struct reach *r = AT(gateways, id & (PLACES - 1));
	return r->gateway >> 48 == id / PLACES && r->arrives_by && r->arrives_by != by && by != id;
}

/* is_changed_later reports whether who completes the checksum of a packet would change what its
 * verdict is about. skb is the kernel's; network is the offset of the IP header. */
inline_always int is_changed_later(const void *skb, struct packet *p, const __u32 network)
{
	if (!skb_summed || (*(__u8 *)(skb + skb_summed) >> skb_summed_shift & 3) != CHECKSUM_PARTIAL)
		return 0;
	__u32 where = *(__u32 *)(skb + skb_checksum), headroom = *(__u64 *)(skb + skb_data) - *(__u64 *)(skb + skb_head);
	return !may_complete(p, (where & 0xffff) - headroom, where >> 16, network);
}

/* is_source_valid returns PERMITTED for most packets with a source of their pod, else -1.
 * check_source checks all other packets that are judged later. */
inline_always int is_source_valid(__u32 line, struct packet *p)
{
	struct line *record = line_at(line);
	return record && has_first_address(record, line, p) ? PERMITTED : -1;
}

global_function int check_source(__u32 line, struct packet *p, int parsed)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return IS_UNKNOWN;
	int reason = admit(line, record->w[RECORD_FLAGS], p, parsed, 0);
	return reason < 0 ? PERMITTED : reason;
}

/* Offsets, in bytes, in structs of the kernel: in struct sk_buff the tag, the length, and the
 * ingress interface; in struct nf_conn (include/net/netfilter) the source of the
 * original direction, and from there to the source of the reply direction. A source is an address
 * and a port; the destination follows it. 0: unknown. */
CONFIG(__u32, skb_tag) = 0;
CONFIG(__u32, skb_length) = 0;
CONFIG(__u32, skb_interface) = 0;
CONFIG(__u32, connection_source) = 0;
CONFIG(__u32, connection_step) = 0;

struct conn_end {
	struct address address;
	__be16 port;
	__u8 protocol, zero; /* of destinations only */
};

/* Before and after all translations, a packet in a direction of a connection goes from the source
 * of that direction to the source of the other direction. */
inline_always int read_end(__u64 connection, int other, int destination, struct conn_end *e)
{
	int answer = (connection & 7) >= 3;
	__u64 at = (connection & ~7ULL) + connection_source + (answer != other ? connection_step : 0) + (destination ? sizeof(*e) : 0);
	return !probe_read_kernel(e, sizeof(*e), (void *)at);
}

/* sender_of_connection sets the remote end of a packet to a pod to its original sender, because
 * policy applies to sources before their translation. */
global_function int sender_of_connection(__u64 connection, struct packet *p)
{
	struct conn_end e = {};
	if (!p || !read_end(connection, 0, 0, &e))
		return 0;
	p->sender_known = 1;
	for (int i = 0; i < 4; i++)
		p->remote.w[i] = ntohl(e.address.w[i]);
	if (p->error || p->place != PLACE_OTHER)
		p->remote_port = ntohs(e.port);
	else if (p->kind == FIRST_PACKET) /* an echo, whose identifier may be translated, too */
		p->remote_port = p->local_port = ntohs(e.port);
	return 0;
}

inline_always void set_sender(struct __sk_buff *skb, struct packet *p)
{
	if (!sees_connections())
		return;
	__u64 connection = *(__u64 *)(bpf_cast_to_kern_ctx(skb) + skb_connection);
	if (connection & ~7ULL) {
		sender_of_connection(connection, p);
		p->late = is_old_answer(connection);
	}
}

/* translated reports whether the destination of a packet was translated. */
global_function int translated(__u64 connection)
{
	struct conn_end to = {}, goes = {};
	if (!(connection & ~7ULL))
		return 0;
	if (!read_end(connection, 0, 1, &to) || !read_end(connection, 1, 0, &goes))
		return 1;
	__u32 *a = to.address.w, *b = goes.address.w;
	if ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]))
		return 1;
	return to.port != goes.port && to.protocol != P_ICMP && to.protocol != P_ICMP6; /* these have no ports */
}

/* source_of_connection sets the local end of a packet of a pod to its source before all
 * translations. The node's answers to clients of its own have the address of the service again when
 * they are judged. */
global_function int source_of_connection(__u64 connection, struct packet *p)
{
	struct conn_end e = {};
	if (!p || !(connection & ~7ULL) || !read_end(connection, 0, 0, &e))
		return 0;
	for (int i = 0; i < 4; i++)
		p->local.w[i] = ntohl(e.address.w[i]);
	if (p->place != PLACE_OTHER)
		p->local_port = ntohs(e.port);
	return 1;
}

/* sender_line returns the line of the record of the local pod that sent a packet, 0 for none. */
global_function __u32 sender_line(struct packet *p, __u32 tag)
{
	if (!p)
		return 0;
	if (tag & (TAG_LATER | TAG_JUDGED)) {
		__u64 line = *AT(endpts, (tag + zero_after(p->generation)) & (PLACES - 1));
		if (line && owns(line, p->v6, &p->local))
			return line;
	}
	struct address a = {};
	if (p->v6) {
		for (int i = 0; i < 4; i++)
			a.w[i] = ntohl(p->local.w[i]);
	} else {
		a.w[2] = ntohl(0xffff);
		a.w[3] = ntohl(p->local.w[0]);
	}
	__u32 *id = map_lookup(&addrs, &a);
	return id ? line_of(*id, p) : 0;
}

/* stack_fast4 and stack_fast6 do the work of fast at netfilter hooks. */
#define STACK_FAST(name, header, read) \
global_function int name(struct bpf_nf_ctx *ctx, struct packet *p) \
{ \
	struct bpf_dynptr data; \
	char copy[sizeof(header) + 14]; \
	if (!p || bpf_dynptr_from_skb((struct __sk_buff *)ctx->skb, 0, &data)) \
		return 0; \
	void *ip = bpf_dynptr_slice(&data, 0, copy, sizeof(copy)); \
	return ip ? read(p, ip, ip + sizeof(copy), 0) : 0; \
}
STACK_FAST(stack_fast4, struct ip4, fast4)
STACK_FAST(stack_fast6, struct ip6, fast6)

/* quick_in_stack is a call, so that its variables take no stack from the readers of packets. */
global_function int quick_in_stack(__u32 line, struct packet *p) { return p ? quick(line, p, 0, ENFORCE) : -1; }

inline_always int in_stack(struct bpf_nf_ctx *ctx, const int v6)
{
	const void *skb = ctx->skb;
	__u32 tag = *(__u16 *)(skb + skb_tag), by = *(__u32 *)(skb + skb_interface);
	if (!by)
		return NF_ACCEPT; /* created on this node */
	tag = own_tag(tag, by);
	__u64 connection = skb_connection ? *(__u64 *)(skb + skb_connection) : 0;
	if (tag & TAG_JUDGED && !translated(connection))
		return NF_ACCEPT;
	struct packet p = { .v6 = v6, .made_here = 1, .late = is_old_answer(connection), .bytes = *(__u32 *)(skb + skb_length), .generation = generation(), .now = now_units() };
	int parsed = PARSED, reason = -1, plain = v6 ? stack_fast6(ctx, &p) : stack_fast4(ctx, &p);
	if (!plain)
		parsed = v6 ? network6_stack(ctx, &p, 0, 0) : network4_stack(ctx, &p, 0, 0);
	if (!tags && parsed == PARSED && is_changed_later(skb, &p, 0)) /* else from_pod checked it */
		return settle(0, &p, IS_MALFORMED, ENFORCE) ? NF_ACCEPT : NF_DROP;
	__u32 line = sender_line(&p, tag);
	if (!line && (tag || !tags) && source_of_connection(connection, &p))
		line = sender_line(&p, tag);
	struct line *record = line_at(line);
	if (!line || !record) /* of no local pod, or of one that was removed */
		return tag & (TAG_LATER | TAG_JUDGED) && !settle(0, &p, IS_SPOOFED, ENFORCE) ? NF_DROP : NF_ACCEPT;
	__u32 id = record->w[RECORD_ID];
	int proven = !tags || by == id || is_of(tag, id);
	if (!(conf & CONF_SPOOF) && arrives_elsewhere(id, by))
		return settle(id, &p, IS_SPOOFED, ENFORCE) ? NF_ACCEPT : NF_DROP;
	if (plain && proven)
		reason = quick_in_stack(line, &p);
	if (reason < 0)
		reason = judge(line, &p, parsed, proven ? ENFORCE : EARLY);
	if (unlikely(reason >= NEEDS_ERROR))
		reason = finish_stack(ctx, &p, line, reason, ENFORCE);
	return settle(id, &p, reason, ENFORCE) ? NF_ACCEPT : NF_DROP;
}

#endif
