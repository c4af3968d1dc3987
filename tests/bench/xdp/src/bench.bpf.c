/* What packets cost: the classifier of the product, and the hot paths of other designs, made
 * again from their descriptions. Every program first writes another flow into the packet,
 * so that caches see as many flows as there are; an empty one is the price of that. */
#include "../../../../renderer/xdp/bpf/src/sluice.bpf.c"

/* FLOWS is an array of flows whose addresses have a type. */
#define FLOWS(name, row, address) \
	struct row { \
		address from, to; \
		__be16 from_port, to_port; \
		__u32 flags; \
	}; \
	struct { \
		__uint(type, MAP_ARRAY); \
		__uint(max_entries, 65536); \
		__type(key, __u32); \
		__type(value, struct row); \
	} name SEC(".maps");
typedef __be32 address6[4];
FLOWS(bench_flows, bench_flow, __be32)
FLOWS(bench_flows6, bench_flow6, address6)

volatile __u32 bench_at = 0, bench_mask = 65535, bench_rules = 0;
volatile __u64 bench_passed = 0, bench_dropped = 0;

#define MAP_LPM 11

/* REWRITE_BY writes the next flow into the packet, whose header of IP is of a type; addresses are written
 * by the last argument. */
#define REWRITE_BY(type, flows, addresses) \
	__u32 at = bench_at; \
	bench_at = at + 1; \
	at &= bench_mask; \
	typeof(*(flows).value) *flow = map_lookup(&flows, &at); \
	struct ethernet *eth = (void *)(long)ctx->data; \
	type *ip = (void *)(eth + 1); \
	__be16 *l4 = (void *)(ip + 1); \
	if (!flow || (void *)l4 + 20 > (void *)(long)ctx->data_end) \
		return REFUSED; \
	addresses \
	l4[0] = flow->from_port; \
	l4[1] = flow->to_port; \
	((__u8 *)l4)[13] = flow->flags;
#define REWRITE REWRITE_BY(struct ip4, bench_flows, ip->from = flow->from; ip->to = flow->to;)
#define REWRITE6 REWRITE_BY(struct ip6, bench_flows6, for (int i = 0; i < 4; i++) { ip->from[i] = flow->from[i]; ip->to[i] = flow->to[i]; })
#define REFUSED TC_SHOT

#define DONE(ok) \
	if (ok) bench_passed++; else bench_dropped++; \
	return (ok) ? TC_NEXT : TC_SHOT;

SEC("tc") int bench_empty(struct __sk_buff *ctx)
{
	REWRITE
	DONE(ip->from)
}

SEC("tc") int bench_empty6(struct __sk_buff *ctx)
{
	REWRITE6
	DONE(ip->from[0])
}

/* The product, for an endpoint of which one direction is isolated, and for one of which both are. */
#define SLUICE(name, rewrite, id) \
	SEC("tc") int name(struct __sk_buff *ctx) \
	{ \
		rewrite \
		int r = tc(ctx, id, 1, ENFORCE); \
		DONE(r != TC_SHOT) \
	}
SLUICE(bench_sluice, REWRITE, 7)
SLUICE(bench_both, REWRITE, 8)
SLUICE(bench_sluice6, REWRITE6, 7)
SLUICE(bench_both6, REWRITE6, 8)

/* A table of connections as the designs below have: filled by what is new. */
struct tuple {
	__be32 from, to;
	__be16 from_port, to_port;
	__u32 protocol;
};

struct connection {
	__u64 last;
	__u32 seen, verdict;
};

struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct tuple);
	__type(value, struct connection);
} bench_connections SEC(".maps");

#define TUPLE \
	struct tuple t = { .from = ip->from, .to = ip->to, .from_port = l4[0], .to_port = l4[1], .protocol = ip->protocol }; \
	struct tuple back = { .from = ip->to, .to = ip->from, .from_port = l4[1], .to_port = l4[0], .protocol = ip->protocol };

inline_always void connect(struct tuple *t)
{
	struct connection c = { .last = jiffies() };
	map_update(&bench_connections, t, &c, 0);
}

/* None: no policy, and a table of connections of which one look-up is made. It is what every
 * design costs at least that asks such a table for every packet. */
SEC("tc") int bench_connected(struct __sk_buff *ctx)
{
	REWRITE
	struct tuple t = { .from = ip->from, .to = ip->to, .from_port = l4[0], .to_port = l4[1], .protocol = ip->protocol };
	struct connection *known = map_lookup(&bench_connections, &t);
	if (!known)
		connect(&t);
	DONE(1)
}

/* The state of a pod, for each of two kinds of policy: whether it is isolated, or whether its
 * policy is not known yet. */
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} bench_pods SEC(".maps");

struct lpm_key {
	__u32 bits;
	__be32 addr;
};

/* One: prefixes, each with up to 24 ports that are read in order, for each of two kinds of
 * policy; a connection is looked up in its own direction and then in the other. */
struct port_list {
	struct {
		__u32 protocol;
		__u16 first, last;
	} entry[24];
};

#define PREFIXES(name, most) \
	struct { \
		__uint(type, MAP_LPM); \
		__uint(max_entries, most); \
		__uint(map_flags, F_NO_PREALLOC); \
		__type(key, struct lpm_key); \
		__type(value, struct port_list); \
	} name SEC(".maps");
PREFIXES(bench_prefixes, 262144)
PREFIXES(bench_wide, 1024)

inline_always __u32 listed(struct port_list *p, __u32 protocol, __u32 port)
{
	if (!p)
		return 0;
	for (int i = 0; i < 24; i++) {
		if (p->entry[i].protocol == protocol && port >= p->entry[i].first && port <= p->entry[i].last)
			return 1;
	}
	return 0;
}

SEC("tc") int bench_lpm(struct __sk_buff *ctx)
{
	REWRITE
	TUPLE
	__u32 pod = 7, wide = 8;
	__u32 *own = map_lookup(&bench_pods, &pod), *cluster = map_lookup(&bench_pods, &wide);
	if (!own || !cluster) {
		DONE(0)
	}
	struct connection *known = map_lookup(&bench_connections, &t);
	if (known && known->verdict == *own) {
		DONE(1)
	}
	known = map_lookup(&bench_connections, &back);
	if (known) {
		DONE(1)
	}
	struct lpm_key k = { 32, ip->from };
	__u32 port = ntohs(l4[1]), ok = listed(map_lookup(&bench_wide, &k), ip->protocol, port);
	if (!ok)
		ok = listed(map_lookup(&bench_prefixes, &k), ip->protocol, port);
	if (ok)
		connect(&t);
	DONE(ok)
}

/* Two: a prefix gives an identity; a second trie has (identity, protocol, port). An answer is
 * known by its connection; policy is asked about every packet that is none. */
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

SEC("tc") int bench_identity(struct __sk_buff *ctx)
{
	REWRITE
	TUPLE
	struct connection *known = map_lookup(&bench_connections, &back);
	if (known) {
		DONE(1)
	}
	known = map_lookup(&bench_connections, &t);
	struct lpm_key k = { 32, ip->from };
	__u32 *identity = map_lookup(&bench_identities, &k);
	struct policy_key q = { 64, identity ? *identity : 0, ip->protocol, 0, l4[1] };
	__u32 *v = map_lookup(&bench_policy, &q);
	q.identity = 0;
	__u32 *any = map_lookup(&bench_policy, &q);
	__u32 ok = 0;
	if (v)
		ok = *v;
	if (any)
		ok |= *any;
	if (ok && known)
		known->last = jiffies();
	else if (ok)
		connect(&t);
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

SEC("tc") int bench_linear(struct __sk_buff *ctx)
{
	REWRITE
	struct linear_packet p = { .from = ntohl(ip->from), .port = ntohs(l4[1]), .protocol = ip->protocol };
	loop(bench_rules, one_rule, &p, 0);
	DONE(p.ok)
}

/* Packets for what is no program: they go on into the network of the device that they are said
 * to have come by. */
#undef REFUSED
#define REFUSED XDP_DROP
SEC("xdp") int bench_inject(struct xdp_md *ctx)
{
	REWRITE
	return XDP_PASS;
}
