/* The parts of the kernel's interface that the programs use. All of it is UAPI: numbers and layouts
 * never change. It is declared here so that the objects do not depend on installed headers.
 * Sources: include/uapi/linux/{bpf,if_ether,in,ip,ipv6}.h. */
#ifndef SLUICE_KERNEL_H
#define SLUICE_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;

#define SEC(name) __attribute__((section(name), used))
#define inline_always static inline __attribute__((always_inline))
#define never_inline static __attribute__((noinline))
/* Global functions. The verifier checks each once, independently of its callers, so pointer
 * arguments may be null. */
#define global_function __attribute__((noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Map definitions as libbpf reads them from BTF. */
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

/* A map that programs read in place. It has one value, which is page-aligned, and whose size the
 * loader sets. This saves the look-up in an array, which needs its index in memory. */
#define IN_PLACE(type, name) __attribute__((visibility("hidden"))) type name[1] SEC(".data." #name)
/* AT returns the address of the i-th element of such a map. The caller must check i. */
#define AT(name, i) ({ typeof(*name) *all = name; asm("" : "+r"(all)); if (!all) __builtin_unreachable(); all + (i); })

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6, MAP_LRU_HASH = 9, MAP_RINGBUF = 27 };
#define F_NO_PREALLOC (1U << 0)

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static __u32 (*this_cpu)(void) = (void *)8; /* inlined as two loads since kernel 6.10 */
static long (*skb_load)(const void *skb, __u32 at, void *to, __u32 len) = (void *)26;
static __u64 (*xdp_length)(void *xdp) = (void *)188; /* of all fragments of the buffer */
static long (*xdp_load)(void *xdp, __u32 at, void *to, __u32 len) = (void *)189;
static void *(*ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags) = (void *)131;
static void (*ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static __u64 (*ktime_ns)(void) = (void *)5;
static long (*probe_read_kernel)(void *to, __u32 len, const void *from) = (void *)113;
static __u64 (*jiffies)(void) = (void *)118; /* inlined as a load */
#define RB_NO_WAKEUP 1
/* bpf_cast_to_kern_ctx returns the kernel's struct sk_buff, since 6.2. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __attribute__((section(".ksyms"), weak));

/* The context of a netfilter program, since 6.4. The verifier knows the types of both pointers, so
 * that members can be read at the offsets of the kernel's type information. */
struct bpf_nf_ctx {
	const void *state, *skb;
};
#define NF_DROP 0
#define NF_ACCEPT 1

struct __sk_buff;
struct bpf_dynptr {
	__u64 opaque[2];
};
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *to) __attribute__((section(".ksyms"), weak));
extern void *bpf_dynptr_slice(const struct bpf_dynptr *from, __u32 at, void *copy, __u32 copy__szk) __attribute__((section(".ksyms"), weak));
static long (*dynptr_read)(void *to, __u32 len, const struct bpf_dynptr *from, __u32 at, __u64 flags) = (void *)201;

/* The first fields of struct __sk_buff. */
struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};
#define TC_NEXT (-1)
#define TC_SHOT 2

struct xdp_md {
	__u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
#define XDP_DROP 1
#define XDP_PASS 2

struct ethernet {
	__u8 to[6], from[6];
	__be16 type;
};
enum { ETH_IP4 = 0x0800, ETH_ARP = 0x0806, ETH_IP6 = 0x86dd, ETH_VLAN = 0x8100, ETH_QINQ = 0x88a8 };

struct arp {
	__be16 hardware, network;
	__u8 hardware_length, network_length;
	__be16 operation;
	__u8 from_hardware[6];
	__be16 from[2];
	__u8 to_hardware[6];
	__be16 to[2];
};

struct ip4 {
	__u8 version_words, tos;
	__be16 length, id, fragment;
	__u8 ttl, protocol;
	__be16 check;
	__be32 from, to;
};
#define IP4_MORE 0x2000
#define IP4_OFFSET 0x1fff
enum { IP4_END = 0, IP4_NOTHING = 1, IP4_LOOSE_ROUTE = 131, IP4_STRICT_ROUTE = 137 }; /* options */

struct ip6 {
	__be32 version_class_flow;
	__be16 length;
	__u8 next, hops;
	__be32 from[4], to[4];
};

enum {
	P_HOPOPTS = 0, P_ICMP = 1, P_IP4 = 4, P_TCP = 6, P_UDP = 17, P_IP6 = 41, P_ROUTING = 43, P_FRAGMENT = 44, P_GRE = 47, P_AH = 51, P_ICMP6 = 58,
	P_DSTOPTS = 60, P_SCTP = 132, P_MOBILITY = 135, P_HIP = 139, P_SHIM6 = 140
};

#define ntohs(x) __builtin_bswap16(x)
#define ntohl(x) __builtin_bswap32(x)

#endif
