/* The entry points of the classifier. The headers have its parts: packets are read (packet.h,
 * parse.h, read.h), judged (judge.h, and quick.h for most), or judged at netfilter hooks of the
 * node (stack.h). */
#include "read.h"
#include "quick.h"
#include "stack.h"

inline_always int tc(struct __sk_buff *skb, __u32 id, const int to_pod, const int how)
{
	const int as = how == AT_POD ? ENFORCE : how;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct packet p = { .to_pod = to_pod, .bytes = skb->len, .generation = generation(), .now = now_units() };
	__u32 line = line_of(id, &p);
	if (unlikely(!line))
		return settle(id, &p, conf & CONF_CLOSED ? IS_UNKNOWN : PERMITTED, as) ? TC_NEXT : TC_SHOT;
	int parsed = PARSED, reason = -1, later = how == AT_POD && is_for_node(id, data, end);
	p.hairpin = to_pod && (skb->ingress_ifindex == id || is_of(own_tag(skb->tc_index, skb->ingress_ifindex), id));
	p.made_here = !to_pod || (!skb->ingress_ifindex && skb->sk);
	p.tagged = !!skb->vlan_present; /* the kernel moves VLAN tags out of the frame */
	int plain = !p.tagged && fast(&p, data, end, to_pod);
	if (unlikely(!plain)) {
		parsed = parse_skb(skb, &p);
		later &= parsed != ON_LINK;
	}
	if (to_pod && as == ENFORCE)
		set_sender(skb, &p);
	if (as == ENFORCE && parsed == PARSED && bpf_cast_to_kern_ctx && is_changed_later(bpf_cast_to_kern_ctx(skb), &p, sizeof(struct ethernet)))
		reason = IS_MALFORMED;
	else if (to_pod && as == ENFORCE && unlikely(left_stack(skb->tc_index, skb->ingress_ifindex)) && !p.sender_known)
		reason = IS_UNJUDGED;
	else if (likely(plain))
		reason = later ? is_source_valid(line, &p) : quick(line, &p, to_pod, as);
	if (reason < 0)
		reason = later ? check_source(line, &p, parsed) : judge(line, &p, parsed, as);
	if (unlikely(reason >= NEEDS_ERROR))
		reason = finish_skb(skb, &p, line, reason, as);
	if (how == AT_POD)
		skb->tc_index = tag_of(id, later);
	return settle(id, &p, reason, as) ? TC_NEXT : TC_SHOT;
}

SEC("tc") int from_pod(struct __sk_buff *skb) { return tc(skb, skb->ifindex, 0, AT_POD); }

/* Packets that a pod sends to itself through a service come back from its own interface. */
SEC("tc") int to_pod(struct __sk_buff *skb) { return tc(skb, skb->ifindex, 1, ENFORCE); }

/* These get the endpoint in the mark, and judge test packets: probe_ programs like real packets,
 * ask_ programs without changing state. */
SEC("tc") int probe_from(struct __sk_buff *skb) { return tc(skb, skb->mark, 0, ENFORCE); }
SEC("tc") int probe_to(struct __sk_buff *skb) { return tc(skb, skb->mark, 1, ENFORCE); }
SEC("tc") int ask_from(struct __sk_buff *skb) { return tc(skb, skb->mark, 0, QUERY); }
SEC("tc") int ask_to(struct __sk_buff *skb) { return tc(skb, skb->mark, 1, QUERY); }

inline_always int xdp(struct xdp_md *ctx, __u32 id, const int to_pod, const int how)
{
	const int as = how == AT_POD ? ENFORCE : how;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = { .to_pod = to_pod, .bytes = end - data, .generation = generation(), .now = now_units() };
	__u32 line = line_of(id, &p);
	p.made_here = !to_pod;
	if (unlikely(!line))
		return settle(id, &p, conf & CONF_CLOSED && as == ENFORCE ? IS_UNKNOWN : PERMITTED, as) ? XDP_PASS : XDP_DROP;
	int parsed = PARSED, reason = -1, later = how == AT_POD && is_for_node(id, data, end);
	if (likely(fast(&p, data, end, to_pod)))
		reason = later ? is_source_valid(line, &p) : quick(line, &p, to_pod, as);
	else {
		p.bytes = xdp_length(ctx);
		parsed = parse_xdp(ctx, &p);
		later &= parsed != ON_LINK;
	}
	if (reason < 0)
		reason = later ? check_source(line, &p, parsed) : judge(line, &p, parsed, as);
	if (unlikely(reason >= NEEDS_ERROR))
		reason = finish_xdp(ctx, &p, line, reason, as);
	return settle(id, &p, reason, as) ? XDP_PASS : XDP_DROP;
}

SEC("xdp.frags") int xdp_from_pod(struct xdp_md *ctx) { return xdp(ctx, ctx->ingress_ifindex, 0, AT_POD); }

/* endpoint_of_destination returns the endpoint that a packet goes to, 0 for none. */
inline_always __u32 endpoint_of_destination(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct address a = {};
	struct ethernet *eth = data;
	if ((void *)(eth + 1) > end)
		return 0;
	if (ntohs(eth->type) == ETH_IP4) {
		struct ip4 *ip = data + sizeof(*eth);
		if ((void *)(ip + 1) > end)
			return 0;
		a.w[2] = ntohl(0xffff);
		a.w[3] = ip->to;
	} else if (ntohs(eth->type) == ETH_IP6) {
		struct ip6 *ip = data + sizeof(*eth);
		if ((void *)(ip + 1) > end)
			return 0;
		for (int i = 0; i < 4; i++)
			a.w[i] = ip->to[i];
	} else {
		return 0;
	}
	__u32 *id = map_lookup(&addrs, &a);
	return id ? *id : 0;
}

/* xdp_uplink is for devices by which packets come to the node. It drops early what the pod's
 * interface would drop, and changes no state. */
SEC("xdp.frags") int xdp_uplink(struct xdp_md *ctx)
{
	__u32 id = endpoint_of_destination(ctx);
	return id ? xdp(ctx, id, 1, EARLY) : XDP_PASS;
}

/* Packets of local pods to the node are judged here, after the translation of destinations. */
SEC("netfilter") int stack4(struct bpf_nf_ctx *ctx) { return in_stack(ctx, 0); }
SEC("netfilter") int stack6(struct bpf_nf_ctx *ctx) { return in_stack(ctx, 1); }

char _license[] SEC("license") = "Dual MIT/GPL";
