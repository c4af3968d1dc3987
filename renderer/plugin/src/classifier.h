/* The classifier of package bpf for packets in the memory of a program. */
#ifndef SLUICE_CLASSIFIER_H
#define SLUICE_CLASSIFIER_H

#include "report.h"

/* The counter of the rule that decided about the last packet of this thread. */
static __thread may_be_unused __u32 decided_by;
#define count_rule(slot) (decided_by = (slot), (count_rule)(slot))

#include "quick.h"
#include "link.h"

/* A packet in memory. What it has behind length, a program cannot read. */
struct bytes {
	const __u8 *data;
	__u32 length;
	__u32 whole;   /* length of the whole packet */
	__u16 network; /* 0: data is an Ethernet frame; else ETH_IP4 or ETH_IP6, and data a packet of that */
};

inline_always long load_bytes(struct bytes *b, __u32 at, void *to, __u32 length)
{
	if (at > b->length || length > b->length - at)
		return -1;
	memcpy(to, b->data + at, length);
	return 0;
}

#define CTX struct bytes
#define LOAD load_bytes
#define NAME(x) x##_bytes
#include "parse.h"

/* fast_bytes reads most packets. If it returns 0, what it wrote must be ignored. */
inline_always int fast_bytes(struct bytes *b, struct packet *p, const int to_pod)
{
	void *data = (void *)b->data, *end = data + b->length;
	switch (b->network) {
	case ETH_IP4:
		return fast4(p, data, end, to_pod);
	case ETH_IP6:
		return fast6(p, data, end, to_pod);
	}
	return fast(p, data, end, to_pod);
}

static int parse_network(struct bytes *b, struct packet *p)
{
	p->v6 = b->network == ETH_IP6;
	switch (b->network) {
	case ETH_IP4:
		return network4_bytes(b, p, 0, 0);
	case ETH_IP6:
		return network6_bytes(b, p, 0, 0);
	}
	return parse_bytes(b, p);
}

/* classify judges a packet of an endpoint. Of p, hairpin and made_here must be set. It returns the reason why the
 * packet is dropped, PERMITTED if it passes. */
inline_always int classify(struct bytes *b, struct packet *p, __u32 id, const int to_pod, const int how)
{
	int parsed = PARSED, reason = -1;
	p->to_pod = to_pod;
	p->bytes = b->whole;
	p->generation = generation();
	p->now = now_units();
	__u32 line = line_of(id, p);
	if (unlikely(!line)) {
		reason = conf & CONF_CLOSED ? IS_UNKNOWN : PERMITTED;
		settle(id, p, reason, how);
		return reason;
	}
	if (likely(fast_bytes(b, p, to_pod)))
		reason = quick(line, p, to_pod, how);
	else
		parsed = parse_network(b, p);
	if (reason < 0)
		reason = judge(line, p, parsed, how);
	if (unlikely(reason >= NEEDS_ERROR))
		reason = finish_bytes(b, p, line, reason, how);
	settle(id, p, reason, how);
	return reason;
}

#endif
