/* Which endpoint a packet is of, and which addresses are its own. */
#ifndef SLUICE_ENDPOINTS_H
#define SLUICE_ENDPOINTS_H

#include "memory.h"
#include "shares.h"

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

/* owns reports whether an address is one of the endpoint's. */
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

#endif
