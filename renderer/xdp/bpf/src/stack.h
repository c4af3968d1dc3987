/* What a pod sends to its node may be translated there: to a pod behind a service, or back to whom it answers.
 * So it is judged in the stack of the node (netfilter), between both translations. At the interface of the pod
 * only its source is checked, which tells here whose it is. */
#ifndef SLUICE_STACK_H
#define SLUICE_STACK_H

#include "read.h"
#include "quick.h"

volatile const __u32 behind = 0; /* what goes to the node is judged in its stack */
volatile const __u32 tags = 0;   /* from_pod notes in packets that it checked them */

/* for_node reports whether a frame of an endpoint is to be judged in the stack. Others do not come there: a
 * bridge switches them. */
inline_always int for_node(__u32 id, void *data, void *end)
{
	__u16 *to = data;
	if (!behind || conf & CONF_SPOOF || data + sizeof(struct ethernet) > end)
		return 0;
	__u64 address = (__u64)to[0] | (__u64)to[1] << 16 | (__u64)to[2] << 32;
	return AT(gateways, id & (ENDS - 1))->gateway == (address | (__u64)(id / ENDS) << 48) && address;
}

/* A tag is in a packet (tc_index) that comes from a pod, and says from which interface, by the low bits of its
 * number. A packet that has none may have lost it: other filters set that field. */
#define TAG_LATER (1U << 15)
#define TAG_JUDGED (1U << 14)

inline_always __u16 tag_of(__u32 id, int later) { return (later ? TAG_LATER : TAG_JUDGED) | (id & (ENDS - 1)); }
inline_always int is_of(__u32 tag, __u32 id) { return tag & (TAG_LATER | TAG_JUDGED) && !((tag ^ id) & (ENDS - 1)); }

/* tag_if_ours returns a tag that a program of this node wrote: the packet came by the interface that goes with it.
 * Tags cross from one network namespace to another, as from a node that is a container to the next one. */
inline_always __u32 tag_if_ours(__u32 tag, __u32 by)
{
	return tag & (TAG_LATER | TAG_JUDGED) && by && AT(gateways, tag & (ENDS - 1))->arrives_by == by ? tag : 0;
}

/* passes says for most packets that they are from their pod, and hands_on what becomes of others that are not
 * judged yet. */
inline_always int passes(__u32 line, struct packet *p)
{
	struct line *record = line_at(line);
	return record && honest(record, line, p) ? PERMITTED : -1;
}

on_its_own int hands_on(__u32 line, struct packet *p, int parsed)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return IS_UNKNOWN;
	int reason = admitted(line, record->w[RECORD_FLAGS], p, parsed, 0);
	return reason < 0 ? PERMITTED : reason;
}

/* Where the kernel has what it knows, in bytes: of a packet its connection, its tag, its length, and the interface
 * that it came by; of a connection (struct nf_conn, include/net/netfilter) the source of its first direction, and
 * how far behind it that of the other is. A source is an address and a port; a destination is right behind. 0: not
 * known. */
volatile const __u32 skb_connection = 0, skb_tag = 0, skb_length = 0, skb_interface = 0;
volatile const __u32 connection_source = 0, connection_step = 0;

struct far_end {
	struct address address;
	__be16 port;
	__u8 protocol, zero; /* of destinations only */
};

/* In any direction d of a connection a packet goes from the source of d to the source of the other one,
 * whatever is translated. */
inline_always int end_of(__u64 connection, int other, int destination, struct far_end *e)
{
	int answer = (connection & 7) >= 3;
	__u64 at = (connection & ~7ULL) + connection_source + (answer != other ? connection_step : 0) + (destination ? sizeof(*e) : 0);
	return !probe_read_kernel(e, sizeof(*e), (void *)at);
}

/* sent_by has a packet to a pod be from its sender: sources are translated behind the point that policy is about. */
on_its_own int sent_by(__u64 connection, struct packet *p)
{
	struct far_end e = {};
	if (!p || !end_of(connection, 0, 0, &e))
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

inline_always void from_whom(struct __sk_buff *skb, struct packet *p)
{
	if (!behind || !skb_connection || !bpf_cast_to_kern_ctx)
		return;
	__u64 connection = *(__u64 *)(bpf_cast_to_kern_ctx(skb) + skb_connection);
	if (connection & ~7ULL)
		sent_by(connection, p);
}

/* translated reports whether a packet does not go where it was sent to. */
on_its_own int translated(__u64 connection)
{
	struct far_end to = {}, goes = {};
	if (!(connection & ~7ULL))
		return 0;
	if (!end_of(connection, 0, 1, &to) || !end_of(connection, 1, 0, &goes))
		return 1;
	__u32 *a = to.address.w, *b = goes.address.w;
	if ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]))
		return 1;
	return to.port != goes.port && to.protocol != P_ICMP && to.protocol != P_ICMP6; /* these have no ports */
}

/* sender finds the line of the endpoint of a local pod that a packet comes from, 0 for none. */
on_its_own __u32 sender(struct packet *p, __u32 tag)
{
	if (!p)
		return 0;
	if (tag & (TAG_LATER | TAG_JUDGED)) {
		__u64 line = *AT(ends, (tag + nothing(p->generation)) & (ENDS - 1));
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
	__u32 *id = map_lookup(&names, &a);
	return id ? line_of(*id, p) : 0;
}

/* stack_fast4 and stack_fast6 do what fast does. */
#define STACK_FAST(name, header, read) \
on_its_own int name(struct bpf_nf_ctx *ctx, struct packet *p) \
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

/* quick_in_stack is a call, so that what it keeps takes no stack from those that read packets. */
on_its_own int quick_in_stack(__u32 line, struct packet *p) { return p ? quick(line, p, 0, ENFORCE) : -1; }

inline_always int in_stack(struct bpf_nf_ctx *ctx, const int v6)
{
	const void *skb = ctx->skb;
	__u32 tag = *(__u16 *)(skb + skb_tag), by = *(__u32 *)(skb + skb_interface);
	if (!by)
		return NF_ACCEPT; /* made here */
	tag = tag_if_ours(tag, by);
	__u64 connection = skb_connection ? *(__u64 *)(skb + skb_connection) : 0;
	if (tag & TAG_JUDGED && !translated(connection))
		return NF_ACCEPT;
	struct packet p = { .v6 = v6, .bytes = *(__u32 *)(skb + skb_length), .generation = generation(), .now = now_units() };
	int parsed = PARSED, reason = -1, plain = v6 ? stack_fast6(ctx, &p) : stack_fast4(ctx, &p);
	if (!plain)
		parsed = v6 ? network6_stack(ctx, &p, 0, 0) : network4_stack(ctx, &p, 0, 0);
	__u32 line = sender(&p, tag);
	struct line *record = line_at(line);
	if (!line || !record) /* of nobody here, or of somebody who is not here any more */
		return tag & (TAG_LATER | TAG_JUDGED) && !settle(0, &p, IS_SPOOFED, ENFORCE) ? NF_DROP : NF_ACCEPT;
	__u32 id = record->w[RECORD_ID];
	int proven = !tags || by == id || is_of(tag, id);
	if (plain && proven)
		reason = quick_in_stack(line, &p);
	if (reason < 0)
		reason = judge(line, &p, parsed, proven ? ENFORCE : EARLY);
	if (unlikely(reason >= ASK_ABOUT))
		reason = asks_stack(ctx, &p, line, reason, ENFORCE);
	return settle(id, &p, reason, ENFORCE) ? NF_ACCEPT : NF_DROP;
}

#endif
