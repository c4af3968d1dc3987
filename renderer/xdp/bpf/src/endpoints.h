/* The endpoint of a packet, and the addresses of an endpoint. */
#ifndef SLUICE_ENDPOINTS_H
#define SLUICE_ENDPOINTS_H

#include "policymap.h"
#include "shares.h"

/* endpts is the endpoint table: the line of the record of every endpoint, indexed by the low bits
 * of its ID. Other endpoints with the same bits are in epover, the endpoint overflow table. A
 * record holds the ID of its endpoint. (The kernel shows names of maps as sluice_ and 8 characters
 * at most.) */
IN_PLACE(__u64, endpts);

HASH_MAP(epover, 4096, __u32, __u64);

/* addrs maps addresses of pods, in network byte order, to endpoints. It is for places where the
 * interface does not identify the endpoint. IPv4 addresses are mapped ones, ::ffff:0:0/96. */
HASH_MAP(addrs, 16384, struct address, __u32);

/* line_of returns the line of the record of an endpoint, 0 for none. */
inline_always __u32 line_of(__u32 id, struct packet *p)
{
	id += zero_after(p->generation);
	__u32 place = id & (PLACES - 1);
	__u64 *line = AT(endpts, place);
	if (!*line)
		return 0;
	struct line *record = line_at(*line);
	if (likely(record && record->w[RECORD_ID] == id))
		return *line;
	line = map_lookup(&epover, &id);
	return line ? *line : 0;
}

/* owns reports whether an endpoint has an address. */
global_function int owns(__u32 line, __u32 v6, struct address *a)
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
