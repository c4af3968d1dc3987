/* What the classifier needs of the place where it runs. It is compiled for the kernel (kernel.h) and
 * for ordinary programs (program.h): VPP, and the one that tests run. Everything else is the same
 * source. */
#ifndef SLUICE_PLATFORM_H
#define SLUICE_PLATFORM_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;

#define inline_always static inline __attribute__((always_inline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#ifdef __bpf__
#include "kernel.h"
#else
#include "program.h"
#endif

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
