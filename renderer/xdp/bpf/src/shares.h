/* The part of each endpoint in shared resources. An endpoint cannot take the share of another
 * one. */
#ifndef SLUICE_SHARES_H
#define SLUICE_SHARES_H
#include "packet.h"

#define PLACES 16384

/* The usage of an endpoint. The map is indexed by the low bits of its ID. */
struct share {
	__u32 flows;     /* entries in the connection table */
	__u32 reported;      /* events in this second; the upper half is the second */
	/* rate limits of ICMP errors from and to the pod: the time, in ns, until which errors have
	 * used the rate */
	__u64 errors[2];
	__u64 links; /* the same of its ARP and neighbour discovery */
};

IN_PLACE(struct share, shares);

inline_always struct share *share_of(__u32 id) { return AT(shares, id & (PLACES - 1)); }

/* The agent updates limits when endpoints come and go. */
struct quota {
	__u32 flows; /* an endpoint's share of the connection table, in entries */
	__u32 zero;
};

IN_PLACE(struct quota, limits);

/* exceeds_share reports whether an endpoint has more connections than its share. */
inline_always int exceeds_share(__u32 id) { return share_of(id)->flows > *(volatile __u32 *)&limits->flows; }

/* count_entry counts an entry of the connection table that goes from one endpoint, or none (0), to
 * another. */
inline_always void count_entry(__u32 id, __u32 from)
{
	if (id == from)
		return;
	__sync_fetch_and_add(&share_of(id)->flows, 1);
	if (from)
		__sync_fetch_and_add(&share_of(from)->flows, -1);
}

#define ERRORS_PER_SECOND 100
#define LINKS_PER_SECOND 100

/* exceeds_rate reports whether more packets than a rate came by now, which paid has. A burst of one
 * second's packets is permitted. */
inline_always int exceeds_rate(__u64 *paid, __u32 per_second)
{
	__u64 now = ktime_ns(), until = *paid;
	if ((long long)(until - now) > 1000000000LL)
		return 1;
	if ((long long)(until - now) < 0)
		until = now;
	*paid = until + 1000000000ULL / per_second;
	return 0;
}

/* may_have_event reports whether an endpoint may have another event while its processor has so many
 * tokens left. Half a second's tokens are reserved for endpoints with few events in this second. */
inline_always int may_have_event(__u32 id, __u32 left, __u32 per_second, __u64 now)
{
	struct share *s = share_of(id);
	__u32 second = now >> 30, reported = s->reported;
	if (reported >> 16 != (second & 0xffff))
		reported = second << 16;
	if ((reported & 0xffff) > per_second >> 6 && left <= per_second / 2)
		return 0;
	if ((reported & 0xffff) != 0xffff)
		s->reported = reported + 1;
	return 1;
}

#endif
