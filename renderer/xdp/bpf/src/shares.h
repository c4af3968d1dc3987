/* What each endpoint has of what all share: none takes from others what these have. */
#ifndef SLUICE_SHARES_H
#define SLUICE_SHARES_H
#include "packet.h"

#define PLACES 16384

/* By the low bits of an endpoint's number. */
struct share {
	__u32 flows;     /* places in the table of flows */
	__u32 reported;      /* events in a second: the second in the upper half */
	__u64 errors[2]; /* ICMP errors from the pod and to it: until when those that passed are paid for, in ns */
	__u64 zero;
};

IN_PLACE(struct share, shares);

inline_always struct share *share_of(__u32 id) { return AT(shares, id & (PLACES - 1)); }

/* limits are written by the agent, when endpoints come and go. */
struct quota {
	__u32 flows; /* places in the table of flows that are an endpoint's share */
	__u32 zero;
};

IN_PLACE(struct quota, limits);

/* exceeds reports whether an endpoint has more places than its share. */
inline_always int exceeds_share(__u32 id) { return share_of(id)->flows > *(volatile __u32 *)&limits->flows; }

/* gains has an endpoint have a place that another one had; 0 is none. */
inline_always void count_entry(__u32 id, __u32 from)
{
	if (id == from)
		return;
	__sync_fetch_and_add(&share_of(id)->flows, 1);
	if (from)
		__sync_fetch_and_add(&share_of(from)->flows, -1);
}

#define ERRORS_PER_SECOND 100

/* too_often reports whether an endpoint has had its ICMP errors of a direction, of which a second brings so
 * many; it may use those of a second at once. */
inline_always int exceeds_error_rate(__u32 id, int to_pod)
{
	__u64 *paid = &share_of(id)->errors[to_pod & 1], now = ktime_ns(), until = *paid;
	if ((long long)(until - now) > 1000000000LL)
		return 1;
	if ((long long)(until - now) < 0)
		until = now;
	*paid = until + 1000000000ULL / ERRORS_PER_SECOND;
	return 0;
}

/* shares_events reports whether an endpoint may have another event while a processor has so many left: as many as
 * half a second brings are for endpoints that had few in this second. */
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
