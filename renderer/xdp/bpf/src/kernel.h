/* The parts of the kernel's interface that the programs use. All of it is UAPI: numbers and layouts
 * never change. It is declared here so that the objects do not depend on installed headers.
 * Sources: include/uapi/linux/{bpf,if_ether,in,ip,ipv6}.h. */
#ifndef SLUICE_KERNEL_H
#define SLUICE_KERNEL_H

#define SEC(name) __attribute__((section(name), used))
#define never_inline static __attribute__((noinline))
/* Global functions. The verifier checks each once, independently of its callers, so pointer
 * arguments may be null. */
#define global_function __attribute__((noinline))

/* Map definitions as libbpf reads them from BTF. Entries of hash maps are allocated on use. */
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define HASH_MAP(name, most, key_type, value_type) \
	struct { \
		__uint(type, MAP_HASH); \
		__uint(max_entries, most); \
		__uint(map_flags, F_NO_PREALLOC); \
		__type(key, key_type); \
		__type(value, value_type); \
	} name SEC(".maps")
#define RING(name, size) \
	struct { \
		__uint(type, MAP_RINGBUF); \
		__uint(max_entries, size); \
	} name SEC(".maps")
/* A value of each processor, which own_value returns. */
#define OWN_VALUE(value_type, name) \
	struct { \
		__uint(type, MAP_PERCPU_ARRAY); \
		__uint(max_entries, 1); \
		__type(key, __u32); \
		__type(value, value_type); \
	} name SEC(".maps")
#define own_value(name) ({ __u32 zero = 0; map_lookup(&name, &zero); })
/* A constant that the loader sets. */
#define CONFIG(type, name) volatile const type name

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

/* What a program that judges whole frames of packets has besides; see program.h. */
#define KNOWN_KEY
#define SHORTEST(p) 14
#define COPY_KEY(k, p) 0
#define VERDICT6(f) ((__u64 *)0)
#define IS_OF_ONE_ORIGIN(v) 0

/* zero_of returns 0 by a computation that depends on x. Every processor performs a load whose
 * address depends on the result after the load of x, and the verifier does not know the result. */
inline_always __u64 zero_of(__u64 x)
{
	asm volatile("%0 ^= %0" : "+r"(x));
	return x;
}

/* minus_one returns x - 1, by an instruction that the compiler does not turn into a branch. */
inline_always __u64 minus_one(__u64 x)
{
	asm volatile("%0 += -1" : "+r"(x));
	return x;
}

/* bpf_cast_to_kern_ctx returns the kernel's struct sk_buff, since 6.2. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __attribute__((section(".ksyms"), weak));

CONFIG(__u32, judge_in_stack) = 0; /* packets to the node are judged at its netfilter hooks */
CONFIG(__u32, skb_connection) = 0; /* the offset of the connection in struct sk_buff; 0: unknown */

/* sees_connections reports whether programs see to which connection of the node's connection
 * tracking a packet belongs, or is related. */
inline_always int sees_connections(void) { return judge_in_stack && skb_connection && bpf_cast_to_kern_ctx; }

CONFIG(__u32, connection_status) = 0; /* the offset of the status in struct nf_conn; 0: unknown */
#define STATUS_ASSURED 4

/* is_old_answer reports whether a packet is an answer in a connection of the node's connection
 * tracking that both ends have used for some time: two seconds for UDP. */
inline_always int is_old_answer(__u64 connection)
{
	__u64 status = 0;
	if ((connection & 7) < 3 || !(connection & ~7ULL) || !connection_status)
		return 0;
	return !probe_read_kernel(&status, sizeof(status), (void *)((connection & ~7ULL) + connection_status)) && status & STATUS_ASSURED;
}

/* Offsets in struct sk_buff, of what says where the checksum is that a device or the node still has
 * to complete. */
CONFIG(__u32, skb_summed) = 0; /* 0: unknown */
CONFIG(__u32, skb_summed_shift) = 0;
CONFIG(__u32, skb_checksum) = 0;
CONFIG(__u32, skb_head) = 0;
CONFIG(__u32, skb_data) = 0;
#define CHECKSUM_PARTIAL 3

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

/* The fields of struct __sk_buff up to the socket. */
struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
	__u32 napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
	__u64 flow_keys, tstamp;
	__u32 wire_len, gso_segs;
	void *sk; /* the socket that created the packet; 0 for a packet that arrived */
};
#define TC_NEXT (-1)
#define TC_SHOT 2

struct xdp_md {
	__u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
#define XDP_DROP 1
#define XDP_PASS 2

#endif
