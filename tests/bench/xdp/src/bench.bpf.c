/* What packets cost: the classifier of the product, and the hot paths of other designs, made
 * again from their descriptions. Every program first writes another flow into the packet,
 * so that caches see as many flows as there are; an empty one is the price of that. */
#include "../../../../renderer/xdp/bpf/src/sluice.bpf.c"

struct bench_flow {
	__be32 from, to;
	__be16 from_port, to_port;
	__u32 flags;
};

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct bench_flow);
} bench_flows SEC(".maps");

volatile __u32 bench_at = 0, bench_mask = 65535, bench_rules = 0;
volatile __u64 bench_passed = 0, bench_dropped = 0;

#define MAP_LPM 11
#define REWRITE \
	__u32 at = bench_at; \
	bench_at = at + 1; \
	at &= bench_mask; \
	struct bench_flow *flow = map_lookup(&bench_flows, &at); \
	struct ethernet *eth = (void *)(long)skb->data; \
	struct ip4 *ip = (void *)(eth + 1); \
	__be16 *l4 = (void *)(ip + 1); \
	if (!flow || (void *)l4 + 20 > (void *)(long)skb->data_end) \
		return TC_SHOT; \
	ip->from = flow->from; \
	ip->to = flow->to; \
	l4[0] = flow->from_port; \
	l4[1] = flow->to_port; \
	((__u8 *)l4)[13] = flow->flags;

#define DONE(ok) \
	if (ok) bench_passed++; else bench_dropped++; \
	return (ok) ? TC_NEXT : TC_SHOT;

SEC("tc") int bench_empty(struct __sk_buff *skb)
{
	REWRITE
	DONE(ip->from)
}

SEC("tc") int bench_sluice(struct __sk_buff *skb)
{
	REWRITE
	int r = tc(skb, 7, 1, ENFORCE);
	DONE(r != TC_SHOT)
}

/* A table of connections as the designs below have: asked first, filled by what is new. */
struct tuple {
	__be32 from, to;
	__be16 from_port, to_port;
	__u32 protocol;
};

struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct tuple);
	__type(value, __u64);
} bench_connections SEC(".maps");

#define TUPLE struct tuple t = { .from = ip->from, .to = ip->to, .from_port = l4[0], .to_port = l4[1], .protocol = ip->protocol };

struct lpm_key {
	__u32 bits;
	__be32 addr;
};

/* One: prefixes, each with up to 24 ports that are read in order. */
struct port_list {
	struct {
		__u32 protocol;
		__u16 first, last;
	} entry[24];
};

struct {
	__uint(type, MAP_LPM);
	__uint(max_entries, 262144);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, struct lpm_key);
	__type(value, struct port_list);
} bench_prefixes SEC(".maps");

SEC("tc") int bench_lpm(struct __sk_buff *skb)
{
	REWRITE
	TUPLE
	__u64 *known = map_lookup(&bench_connections, &t);
	if (known) {
		DONE(1)
	}
	struct lpm_key k = { 32, ip->from };
	struct port_list *p = map_lookup(&bench_prefixes, &k);
	__u32 port = ntohs(l4[1]), ok = 0;
	if (p) {
		for (int i = 0; i < 24; i++) {
			if (p->entry[i].protocol == ip->protocol && port >= p->entry[i].first && port <= p->entry[i].last) {
				ok = 1;
				break;
			}
		}
	}
	if (ok) {
		__u64 now = ktime_coarse_ns();
		map_update(&bench_connections, &t, &now, 0);
	}
	DONE(ok)
}

/* Two: a prefix gives an identity; a second trie has (identity, protocol, port). */
struct {
	__uint(type, MAP_LPM);
	__uint(max_entries, 262144);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, struct lpm_key);
	__type(value, __u32);
} bench_identities SEC(".maps");

struct policy_key {
	__u32 bits;
	__u32 identity;
	__u8 protocol, zero;
	__be16 port;
};

struct {
	__uint(type, MAP_LPM);
	__uint(max_entries, 262144);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, struct policy_key);
	__type(value, __u32);
} bench_policy SEC(".maps");

SEC("tc") int bench_identity(struct __sk_buff *skb)
{
	REWRITE
	TUPLE
	__u64 *known = map_lookup(&bench_connections, &t);
	struct lpm_key k = { 32, ip->from };
	__u32 *identity = map_lookup(&bench_identities, &k);
	if (known) {
		DONE(1)
	}
	struct policy_key q = { 64, identity ? *identity : 0, ip->protocol, 0, l4[1] };
	__u32 *v = map_lookup(&bench_policy, &q);
	q.identity = 0;
	__u32 *any = map_lookup(&bench_policy, &q);
	__u32 ok = 0;
	if (v)
		ok = *v;
	if (any)
		ok |= *any;
	if (ok) {
		__u64 now = ktime_coarse_ns();
		map_update(&bench_connections, &t, &now, 0);
	}
	DONE(ok)
}

/* Three: rules one after the other, no connections. */
struct linear_rule {
	__u32 addr, mask;
	__u32 protocol;
	__u16 first, last;
};

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct linear_rule);
} bench_linear_rules SEC(".maps");

static long (*loop)(__u32 times, void *f, void *ctx, __u64 flags) = (void *)181;

struct linear_packet {
	__u32 from, port, protocol, ok;
};

static long one_rule(__u32 i, struct linear_packet *p)
{
	struct linear_rule *r = map_lookup(&bench_linear_rules, &i);
	if (!r)
		return 1;
	if ((p->from & r->mask) != r->addr || p->protocol != r->protocol || p->port < r->first || p->port > r->last)
		return 0;
	p->ok = 1;
	return 1;
}

SEC("tc") int bench_linear(struct __sk_buff *skb)
{
	REWRITE
	struct linear_packet p = { .from = ntohl(ip->from), .port = ntohs(l4[1]), .protocol = ip->protocol };
	loop(bench_rules, one_rule, &p, 0);
	DONE(p.ok)
}

/* Packets for what is no program: they go on into the network of the device that they are said
 * to have come by. */
SEC("xdp") int bench_inject(struct xdp_md *ctx)
{
	__u32 at = bench_at;
	bench_at = at + 1;
	at &= bench_mask;
	struct bench_flow *flow = map_lookup(&bench_flows, &at);
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ip4 *ip = (void *)(eth + 1);
	__be16 *l4 = (void *)(ip + 1);
	if (!flow || (void *)l4 + 20 > (void *)(long)ctx->data_end)
		return XDP_DROP;
	ip->from = flow->from;
	ip->to = flow->to;
	l4[0] = flow->from_port;
	l4[1] = flow->to_port;
	((__u8 *)l4)[13] = flow->flags;
	return XDP_PASS;
}
