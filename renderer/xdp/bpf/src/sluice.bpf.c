/* The classifier: one core, and the places where the kernel calls it. */
#include "kernel.h"
#include "lately.h"
#include "memory.h"
#include "packet.h"
#include "report.h"
#include "shares.h"
#include "state.h"

/* ends holds the line of the record of every endpoint, at the low bits of its number;
 * others with the same bits are in far. A record says which endpoint it is of. */
IN_PLACE(__u64, ends);

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u64);
} far SEC(".maps");

/* names has the endpoints by address, as it is in packets, for places where no interface
 * tells them. IPv4 is in the last word, behind ::ffff:0:0. */
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u32);
} names SEC(".maps");

/* line_of returns the line of the record of an endpoint, 0 for none. */
inline_always __u32 line_of(__u32 id, struct packet *p)
{
	id += nothing(p->generation);
	__u32 place = id & (ENDS - 1);
	__u64 *line = AT(ends, place);
	if (!*line)
		return 0;
	struct line *record = line_at(*line);
	if (likely(record && record->w[RECORD_ID] == id))
		return *line;
	line = map_lookup(&far, &id);
	return line ? *line : 0;
}

/* owns says whether an address is one of the endpoint's. */
on_its_own int owns(__u32 line, __u32 v6, struct address *a)
{
	if (!a)
		return 0;
	__u32 *addr = a->w;
	struct line *record = line_at(line);
	if (!record)
		return 0;
	if (!v6) {
		struct line *own = line_at(line + RECORD_ADDR4);
		if (!own)
			return 0;
		for (__u32 i = 0; i < MAX_ADDRESSES; i++) {
			if (i >= record->w[RECORD_COUNT4])
				return 0;
			if (own->w[i] == addr[0])
				return 1;
		}
		return 0;
	}
	for (__u32 i = 0; i < MAX_ADDRESSES; i++) {
		if (i >= record->w[RECORD_COUNT6])
			return 0;
		struct line *own = line_at(line + RECORD_ADDR6 + i / 4);
		if (!own)
			return 0;
		__u32 at = i % 4 * 4;
		if (!((own->w[at] ^ addr[0]) | (own->w[at + 1] ^ addr[1]) | (own->w[at + 2] ^ addr[2]) | (own->w[at + 3] ^ addr[3])))
			return 1;
	}
	return 0;
}

/* by_list returns the verdict of one direction's list, which permits when there is none. */
inline_always __u32 by_list(struct line *record, struct packet *p, __u32 class, int to_pod)
{
	if (!(record->w[RECORD_FLAGS] & (to_pod ? FLAG_TO_POD : FLAG_FROM_POD)))
		return ALLOW;
	__u32 port = to_pod ? p->local_port : p->remote_port, source = to_pod ? p->remote_port : p->local_port;
	return verdict(record, to_pod, class, p->place, source, p->place == PLACE_OTHER ? p->protocol : port);
}

/* of returns the verdict of one direction's list. What was not made here is not from the own node, whatever
 * its source says. */
inline_always __u32 of(struct line *record, struct packet *p, __u32 class, int to_pod)
{
	__u32 v = by_list(record, p, class, to_pod);
	return to_pod && unlikely(v & OWN_NODE) && p->elsewhere ? 0 : v;
}

inline_always __u32 class_of(struct line *record, struct packet *p)
{
	return p->v6 ? class6(record->w[RECORD_ROOT6], &p->remote) : class4(record->w[RECORD_ROOT4], p->remote.w[0]);
}

/* without_ports returns the verdict about a packet whose ports are not known: it is denied
 * unless they do not matter. */
on_its_own __u32 without_ports(__u32 line, struct packet *p)
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
	return cell & KIND_MASK || (cell & OWN_NODE && p->elsewhere) ? 0 : cell;
}

/* decide says what becomes of a packet, in the direction that it has. With look, nothing is
 * noted. */
on_its_own __u32 decide(__u32 line, struct packet *p, int look)
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
	__u32 v = of(record, p, class, to_pod);
	__u32 allowed = v & ALLOW;
	if (allowed ? look || !(keep || flags & there) : p->kind == FIRST_PACKET)
		return v;
	/* What the other direction says of the flow that this may be the answer to, and of the
	 * answer to this. */
	__u32 origin = of(record, p, class, !to_pod);
	if (allowed) {
		if (keep || !(origin & ALLOW)) /* the answer will need evidence */
			p->begins = begins(id, p, to_pod, v, !!keep);
		return v;
	}
	if (!(origin & ALLOW) && !keep)
		return v;
	if (answers(id, p, to_pod, !!keep, look))
		return origin & ALLOW ? origin : ALLOW;
	if (flags & FLAG_LEARN && origin & ALLOW && p->tcp & TCP_ACK && !(p->tcp & TCP_RST)) {
		if (!look)
			begins(id, p, !to_pod, origin, 0);
		return origin;
	}
	return v;
}

/* related reports whether a packet that an ICMP error is about is of a tracked connection, or needs none, because
 * the lists of both directions permit it. */
on_its_own int related(__u32 line, struct packet *p)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return 0;
	int to_pod = p->to_pod;
	__u32 class = class_of(record, p), keep = record->w[RECORD_FLAGS] & FLAG_KEEP;
	__u32 forth = of(record, p, class, to_pod) & ALLOW, back = of(record, p, class, !to_pod) & ALLOW;
	if ((forth && back) || !(forth || back || keep))
		return forth;
	return answers(record->w[RECORD_ID], p, forth ? !to_pod : to_pod, keep, 1);
}

/* errs_often reports whether an endpoint has had its ICMP errors of a direction. */
on_its_own int errs_often(__u32 line, struct packet *p)
{
	struct line *record = line_at(line);
	return !record || !p || too_often(record->w[RECORD_ID], p->to_pod);
}

/* What judge is to do. */
#define ENFORCE 0
#define EARLY 1 /* drop what will be dropped later, and note nothing */
#define ASK 2   /* what would become of the first packet of a flow; note and count nothing */
#define AT_POD 3 /* at the interface of a pod that sends: what goes to the node is judged by in_stack */

/* admitted says what becomes of a packet that is read before its list is asked: -1 asks. */
inline_always int admitted(__u32 line, __u32 flags, struct packet *p, int parsed, int hairpin)
{
	__u32 isolated = flags & (FLAG_TO_POD | FLAG_FROM_POD);
	if (unlikely(p->tagged || parsed == NOT_IP) && isolated && !(conf & CONF_NON_IP))
		return IS_NON_IP;
	if (parsed == NOT_IP)
		return PERMITTED;
	if (parsed == ON_LINK)
		return ASK_LINK;
	if (!p->to_pod) {
		if (parsed == MALFORMED) /* something may be hidden in it, for others than the pod's peers */
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

/* judge is the core: the packet passes, or is dropped for a reason. */
on_its_own int judge(__u32 line, struct packet *p, int parsed, int how)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return IS_UNKNOWN;
	int reason = admitted(line, record->w[RECORD_FLAGS], p, parsed, p->hairpin);
	if (reason >= 0)
		return reason;
	__u32 here = p->to_pod ? FLAG_TO_POD : FLAG_FROM_POD, id = record->w[RECORD_ID];
	if (unlikely(p->error))
		return record->w[RECORD_FLAGS] & here ? ASK_ABOUT : PERMITTED;
	if (unlikely(p->fragment == 2) && p->place != PLACE_OTHER && !later_fragment(id, p)) {
		p->remote_port = p->local_port = 0;
		return without_ports(line, p) & ALLOW ? PERMITTED : IS_FRAGMENT;
	}
	if (how == ASK)
		p->kind = FIRST_PACKET;
	__u32 v = decide(line, p, how);
	if (how == ENFORCE) {
		hit(v & SLOT_MASK);
		if (v & ALLOW && (p->begins || p->kind == FIRST_PACKET) && listens(1))
			tell(id, p, v, PERMITTED);
	}
	if (v & ALLOW) {
		if (unlikely(p->fragment == 1) && how == ENFORCE)
			first_fragment(id, p);
		return PERMITTED;
	}
	if (how != ASK && unlikely(listens(0)))
		tell(id, p, v, BY_POLICY);
	return BY_POLICY;
}

#include "link.h"

#define CTX struct __sk_buff
#define LOAD skb_load
#define NAME(x) x##_skb
#include "parse.h"
#define CTX struct xdp_md
#define LOAD xdp_load
#define NAME(x) x##_xdp
#include "parse.h"

inline_always long stack_load(struct bpf_nf_ctx *ctx, __u32 at, void *to, __u32 len)
{
	struct bpf_dynptr data;
	if (bpf_dynptr_from_skb((struct __sk_buff *)ctx->skb, 0, &data))
		return -1;
	return dynptr_read(to, len, &data, at, 0);
}

#define CTX struct bpf_nf_ctx
#define LOAD stack_load
#define NAME(x) x##_stack
#include "parse.h"

/* SLOWLY says that judge must decide. */
#define SLOWLY (~0U)

/* What is known of the flow of a packet before its list is asked. */
enum { NOTHING, WENT_ON /* lately: if its list permits it, nothing is to be noted */, STANDS /* its list permitted it, and would again */ };

/* goes_on does what refreshes does, counts the flow, and leaves a trace where traces are asked first. */
inline_always int goes_on(struct flow_key *k, struct found *in, struct packet *p, const int to_pod, __u32 now, int traced)
{
	if (!refreshes(in, p, to_pod, now))
		return 0;
	if ((__u32)in->state != now)
		counted(k, now);
	if (traced)
		leaves(k, p, to_pod, now);
	return 1;
}

/* look looks for the flow of a packet that is not its first, and brings its evidence up to date if it
 * stands: there is evidence, and what its list said was in the generation of the packet. Then said is that.
 * Of flows of IPv6 it is not known what their lists said. */
inline_always int look(__u32 id, struct packet *p, const int to_pod, __u64 *said)
{
	struct flow_key k;
	__u32 now = p->now;
	flow_key(&k, id, p);
	int traced = p->v6 || crowded(now);
	if (traced && went_on(&k, p, to_pod, now))
		return WENT_ON;
	if (p->v6)
		return NOTHING;
	struct found in = find(&k);
	if (!in.flow || in.more >> SAID_GENERATION_SHIFT != p->generation) /* evidence may be left that is not needed any more */
		return !traced && went_on(&k, p, to_pod, now) ? WENT_ON : NOTHING;
	*said = in.more;
	if (!(in.state & STATE_TO_POD) == !to_pod)
		return goes_on(&k, &in, p, to_pod, now, traced) ? STANDS : NOTHING;
	return replies(&in, p, to_pod, 0, 0, now) ? STANDS : NOTHING;
}

/* noted does what decide does about evidence, for packets that quick reads and that are not the first
 * of their flow: v is what the list of their direction says. */
on_its_own __u32 noted(__u32 line, struct packet *p, __u32 class, __u32 v)
{
	struct line *record = line_at(line);
	if (!record || !p)
		return SLOWLY;
	struct flow_key k;
	int to_pod = p->to_pod;
	__u32 id = record->w[RECORD_ID], now = p->now, origin = of(record, p, class, !to_pod);
	flow_key(&k, id, p);
	if (v & origin & ALLOW) { /* the answer passes anyway; it is known from now on, so that it is not looked for in vain */
		counted(&k, now);
		leaves(&k, p, to_pod, now);
		return v;
	}
	struct found in = find(&k);
	if (!(v & ALLOW)) {
		if (!(origin & ALLOW) || !replies(&in, p, to_pod, 0, 0, now))
			return SLOWLY;
		renew(&in, said(p, origin));
		return origin;
	}
	if (goes_on(&k, &in, p, to_pod, now, 1)) {
		renew(&in, said(p, v));
	} else if (begins(id, p, to_pod, v, 0)) {
		counted(&k, now);
		if (listens(1))
			tell(id, p, v, PERMITTED);
	}
	return v;
}

/* honest says that a packet comes from the first address of its pod, and goes to another one. */
inline_always int honest(struct line *record, __u32 line, struct packet *p)
{
	struct line *own = line_at(line + (p->v6 ? RECORD_ADDR6 : RECORD_ADDR4));
	if (!own || !record->w[p->v6 ? RECORD_COUNT6 : RECORD_COUNT4] || own->w[0] != p->local.w[0])
		return 0;
	if (!p->v6)
		return own->w[0] != p->remote.w[0];
	__u32 *w = own->w, *l = p->local.w, *r = p->remote.w;
	__u32 elsewhere = (w[1] ^ l[1]) | (w[2] ^ l[2]) | (w[3] ^ l[3]);
	return !elsewhere && ((w[0] ^ r[0]) | (w[1] ^ r[1]) | (w[2] ^ r[2]) | (w[3] ^ r[3]));
}

/* quick does what judge does for most packets, without a call if it can. It returns -1 for all
 * others. */
inline_always int quick(__u32 line, struct packet *p, const int to_pod, const int how)
{
	const __u32 here = to_pod ? FLAG_TO_POD : FLAG_FROM_POD, there = to_pod ? FLAG_FROM_POD : FLAG_TO_POD;
	struct line *record = line_at(line);
	if (!record || how != ENFORCE || p->hairpin)
		return -1;
	__u32 flags = record->w[RECORD_FLAGS];
	if (flags & FLAG_KEEP || !(flags & (here | there)))
		return -1;
	if (!to_pod && (!honest(record, line, p) || is_tunnel(p)))
		return -1;
	int known = NOTHING;
	if (flags & there && p->kind != FIRST_PACKET) {
		__u64 said = 0;
		known = look(record->w[RECORD_ID], p, to_pod, &said);
		if (known == STANDS) {
			hit(said & SAID_SLOT);
			return PERMITTED;
		}
	}
	__u32 class = class_of(record, p);
	__u32 v = of(record, p, class, to_pod);
	if (p->kind == FIRST_PACKET) {
		if (unlikely(listens(v & ALLOW)))
			return -1;
		if (!to_pod && !(v & ALLOW) && record->w[p->v6 ? RECORD_COUNT6 : RECORD_COUNT4] > 1)
			return -1; /* maybe it goes to the pod itself */
		if (v & ALLOW && flags & there && !(of(record, p, class, !to_pod) & ALLOW)) /* the answer will need evidence */
			begins(record->w[RECORD_ID], p, to_pod, v, 0);
	} else if (!(v & ALLOW) || (flags & there && known != WENT_ON)) {
		v = flags & there ? noted(line, p, class, v) : SLOWLY;
		if (v == SLOWLY)
			return -1;
	}
	hit(v & SLOT_MASK);
	return v & ALLOW ? PERMITTED : BY_POLICY;
}

/* settle counts what became of a packet, and tells of drops that no rule made. */
inline_always int settle(__u32 id, struct packet *p, int reason, const int how)
{
	if (likely(reason == PERMITTED))
		return 1;
	if (how == ASK)
		return 0;
	dropped(reason);
	if (reason != BY_POLICY && listens(0))
		tell(id, p, 0, reason);
	return 0;
}

#include "stack.h"

inline_always int tc(struct __sk_buff *skb, __u32 id, const int to_pod, const int how)
{
	const int does = how == AT_POD ? ENFORCE : how;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct packet p = { .to_pod = to_pod, .bytes = skb->len, .generation = generation(), .now = now_units() };
	__u32 line = line_of(id, &p);
	if (unlikely(!line))
		return settle(id, &p, conf & CONF_CLOSED ? IS_UNKNOWN : PERMITTED, does) ? TC_NEXT : TC_SHOT;
	int parsed = PARSED, reason = -1, later = how == AT_POD && for_node(id, data, end);
	p.hairpin = to_pod && (skb->ingress_ifindex == id || is_of(tag_if_ours(skb->tc_index, skb->ingress_ifindex), id));
	p.elsewhere = to_pod && skb->ingress_ifindex;
	p.tagged = !!skb->vlan_present; /* the kernel takes tags out of frames */
	if (likely(!p.tagged && fast(&p, data, end, to_pod))) {
		if (to_pod && does == ENFORCE)
			from_whom(skb, &p);
		reason = later ? passes(line, &p) : quick(line, &p, to_pod, does);
	} else {
		parsed = parse_skb(skb, &p);
		if (to_pod && does == ENFORCE)
			from_whom(skb, &p);
		later &= parsed != ON_LINK;
	}
	if (reason < 0)
		reason = later ? hands_on(line, &p, parsed) : judge(line, &p, parsed, does);
	if (unlikely(reason >= ASK_ABOUT))
		reason = asks_skb(skb, &p, line, reason, does);
	if (how == AT_POD)
		skb->tc_index = tag_of(id, later);
	return settle(id, &p, reason, does) ? TC_NEXT : TC_SHOT;
}

SEC("tc") int from_pod(struct __sk_buff *skb) { return tc(skb, skb->ifindex, 0, AT_POD); }

/* What a pod sends to itself by way of a service comes back from its own interface. */
SEC("tc") int to_pod(struct __sk_buff *skb) { return tc(skb, skb->ifindex, 1, ENFORCE); }

/* These are told the endpoint in the mark, so that the classifier can be asked about a
 * packet that is nowhere: probes as if it were, asks without leaving anything. */
SEC("tc") int probe_from(struct __sk_buff *skb) { return tc(skb, skb->mark, 0, ENFORCE); }
SEC("tc") int probe_to(struct __sk_buff *skb) { return tc(skb, skb->mark, 1, ENFORCE); }
SEC("tc") int ask_from(struct __sk_buff *skb) { return tc(skb, skb->mark, 0, ASK); }
SEC("tc") int ask_to(struct __sk_buff *skb) { return tc(skb, skb->mark, 1, ASK); }

inline_always int xdp(struct xdp_md *ctx, __u32 id, const int to_pod, const int how)
{
	const int does = how == AT_POD ? ENFORCE : how;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = { .to_pod = to_pod, .bytes = end - data, .generation = generation(), .now = now_units() };
	__u32 line = line_of(id, &p);
	if (unlikely(!line))
		return settle(id, &p, conf & CONF_CLOSED && does == ENFORCE ? IS_UNKNOWN : PERMITTED, does) ? XDP_PASS : XDP_DROP;
	int parsed = PARSED, reason = -1, later = how == AT_POD && for_node(id, data, end);
	p.elsewhere = how == EARLY;
	if (likely(fast(&p, data, end, to_pod)))
		reason = later ? passes(line, &p) : quick(line, &p, to_pod, does);
	else {
		p.bytes = xdp_length(ctx);
		parsed = parse_xdp(ctx, &p);
		later &= parsed != ON_LINK;
	}
	if (reason < 0)
		reason = later ? hands_on(line, &p, parsed) : judge(line, &p, parsed, does);
	if (unlikely(reason >= ASK_ABOUT))
		reason = asks_xdp(ctx, &p, line, reason, does);
	return settle(id, &p, reason, does) ? XDP_PASS : XDP_DROP;
}

SEC("xdp.frags") int xdp_from_pod(struct xdp_md *ctx) { return xdp(ctx, ctx->ingress_ifindex, 0, AT_POD); }

/* named finds the endpoint that a packet goes to, 0 for none. */
inline_always __u32 named(struct xdp_md *ctx)
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
	__u32 *id = map_lookup(&names, &a);
	return id ? *id : 0;
}

/* xdp_uplink is for a device by which packets come to the node: it drops early what the pod's interface
 * would drop, and notes nothing. */
SEC("xdp.frags") int xdp_uplink(struct xdp_md *ctx)
{
	__u32 id = named(ctx);
	return id ? xdp(ctx, id, 1, EARLY) : XDP_PASS;
}

/* What local pods send is judged here if it went to the node, behind the translation of destinations. */
SEC("netfilter") int stack4(struct bpf_nf_ctx *ctx) { return in_stack(ctx, 0); }
SEC("netfilter") int stack6(struct bpf_nf_ctx *ctx) { return in_stack(ctx, 1); }

char _license[] SEC("license") = "Dual MIT/GPL";
