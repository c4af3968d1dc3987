/* The policy map, and how verdicts are found in it. Package compile writes it; its layout.go has
 * the same numbers, and a test compares them. */
#ifndef SLUICE_POLICYMAP_H
#define SLUICE_POLICYMAP_H
#include "platform.h"

#define LINE_WORDS 16
#define KIND_SMALL (1U << 30)
#define KIND_BIG (2U << 30)
#define KIND_NODE (3U << 30)
#define KIND_MASK (3U << 30)
#define PAYLOAD_MASK ((1U << 30) - 1)
#define SMALL_START 4
#define SMALL_VALUE 8
#define NEXT_NODE (1U << 29)
#define ALLOW (1U << 29)
#define OWN_NODE (1U << 28) /* a rule for the own node: it permits only packets that were created there */
#define SLOT_MASK ((1U << 28) - 1)
#define NODE_MISS 0
#define NODE_CELL 1
#define NODE_DIGIT 2
#define NODE_VALUE 4
#define NODE_MASK 8
#define RECORD_ID 0
#define RECORD_FLAGS 1
#define RECORD_ROOT4 2
#define RECORD_ROOT6 3
#define RECORD_TABLE 4
#define RECORD_CLASSES 6
#define RECORD_COUNT4 8
#define RECORD_COUNT6 9
#define RECORD_SLOT 10
#define RECORD_PAGE 12
#define RECORD_ADDR4 1
#define RECORD_ADDR6 2
#define MAX_ADDRESSES 16
#define FLAG_TO_POD 1
#define FLAG_FROM_POD 2
#define FLAG_LEARN 4
#define FLAG_KEEP 8
#define FLAG_PORTS_TO 16
#define FLAG_PORTS_FROM 32
#define PLACE_TCP 0
#define PLACE_UDP 1
#define PLACE_SCTP 2
#define PLACE_OTHER 3
#define PAGE_CLASSES 64
#define NODE_LINES 16
#define ROOT_LINES 4096

struct line {
	__u32 w[LINE_WORDS];
};

struct address {
	__u32 w[4];
};

/* policy has all lines of the policy map; the loader sets its size. Line 0 is zero: it denies. */
IN_PLACE(struct line, policy);
CONFIG(__u32, policy_lines) = 1;

/* changes has the generation: the number of changes of any list, over all policy maps. The agent
 * increments it after a change. It also has the seed of the connection table, and the parity of the
 * policy map in force, which programs do not read: see policy_parity. */
struct history {
	__u64 seed;
	__u32 generation, parity;
};

IN_PLACE(struct history, changes);

/* Successive policy maps have parity 0 and 1 in turn. During a switch, programs of both run, and a
 * slot is valid in its own policy map only. */
CONFIG(__u32, policy_parity) = 0;

/* generation must be read before the record of an endpoint, so that a packet with the number of a
 * change sees the change. */
inline_always __u32 generation(void)
{
	return *(volatile __u32 *)&changes->generation << 1 | policy_parity;
}

/* zero_after returns 0. A load whose address depends on it comes after the load of x. */
inline_always __u32 zero_after(__u64 x) { return zero_of(x); }

inline_always struct line *line_at(__u32 i) { return i < policy_lines ? AT(policy, i) : 0; }

/* word_at reads the i-th word from the start of a line. */
inline_always __u32 word_at(__u32 line, __u32 i)
{
	struct line *l = line_at(line + (i >> 4));
	return l ? l->w[i & 15] : 0;
}

/* word_of reads the i-th word of an object of so many lines that begins at a line. */
inline_always __u32 word_of(__u32 line, const __u32 lines, __u32 i)
{
	return line < policy_lines - (lines - 1) ? AT(policy, line)->w[i] : 0;
}

/* AHEAD is negative if the i-th of the sorted 16-bit starts is at most the key; REACHED is 1 then.
 * The sum of these is the index of the last such start. It needs no branches, and the comparisons
 * are independent. */
#define AHEAD(i) (start[i] - 1 - (int)key)
#define REACHED(i) ((__u32)AHEAD(i) >> 31)
#define REACHED3(i, by) (REACHED(i + by) + REACHED(i + 2 * by) + REACHED(i + 3 * by))

/* small returns the value of a function of 16 bits with few runs. Each value is stored as its XOR
 * with the value before, so that all can be combined at once. */
inline_always __u32 small(struct line *l, __u32 key)
{
	__u16 *start = (__u16 *)&l->w[SMALL_START];
#define DIFFERENCE(i) (l->w[SMALL_VALUE + i] & AHEAD(i) >> 31)
/* in pairs, which shortens the dependency chain */
#define BOTH(a, b) ({ __u32 both = (a) ^ (b); asm("" : "+r"(both)); both; })
	return BOTH(BOTH(BOTH(l->w[SMALL_VALUE], DIFFERENCE(1)), BOTH(DIFFERENCE(2), DIFFERENCE(3))),
		BOTH(BOTH(DIFFERENCE(4), DIFFERENCE(5)), BOTH(DIFFERENCE(6), DIFFERENCE(7))));
}

/* resolve returns the value of a function of 16 bits. */
inline_always __u32 resolve(__u32 cell, __u32 key)
{
	if ((cell & KIND_MASK) == KIND_NODE) {
		cell = word_of(cell & PAYLOAD_MASK, NODE_LINES, (key >> 8) & 255);
		key &= 255;
		if ((cell & KIND_MASK) == KIND_NODE)
			cell = word_of(cell & PAYLOAD_MASK, NODE_LINES, key);
	}
	if (!(cell & KIND_MASK))
		return cell;
	struct line *l = line_at(cell & PAYLOAD_MASK);
	if (!l)
		return 0;
	if ((cell & KIND_MASK) == KIND_SMALL)
		return small(l, key);
	__u16 *start = (__u16 *)l;
	__u32 pos = 8 * REACHED3(0, 8);
	start += pos & 24;
	pos += REACHED3(0, 1) + REACHED(4) + REACHED3(4, 1);
	return word_at((cell & PAYLOAD_MASK) + 1, pos & 31);
}

/* class4 and class6 return the class of an address, which is in host byte order. class6 takes a
 * step for each node of IPv6, of which there are at most 8. */
inline_always __u32 class4(__u32 root4, __u32 addr)
{
	return resolve(word_of(root4, ROOT_LINES, addr >> 16), addr & 0xffff);
}

inline_always __u32 next6(__u32 node, struct address *a)
{
	__u32 *addr = a->w;
	struct line *l = line_at(node);
	if (!l)
		return 0;
#define DIFFERS(j) ((addr[j] ^ l->w[NODE_VALUE + j]) & l->w[NODE_MASK + j])
	if (DIFFERS(0) | DIFFERS(1) | DIFFERS(2) | DIFFERS(3))
		return l->w[NODE_MISS];
	__u32 digit = l->w[NODE_DIGIT] & 7;
	return resolve(l->w[NODE_CELL], (addr[digit >> 1] >> (digit & 1 ? 0 : 16)) & 0xffff);
}

global_function __u32 step6(__u32 node, struct address *addr) { return addr ? next6(node, addr) : 0; }

/* class6 makes a call for each node after the second. Two nodes lead to the class of most pods. */
global_function __u32 class6(__u32 root6, struct address *addr)
{
	if (!addr)
		return 0;
	__u32 value = next6(word_at(root6 >> 4, root6 & 15), addr);
	if (value & NEXT_NODE)
		value = next6(value & ~NEXT_NODE, addr);
#define STEP6 if (value & NEXT_NODE) value = step6(value & ~NEXT_NODE, addr);
	STEP6 STEP6 STEP6 STEP6 STEP6 STEP6
	return value & NEXT_NODE ? 0 : value;
}

/* row_of returns the line of the row of a class, which must be within the capacity of the table of
 * a direction. */
inline_always __u32 row_of(struct line *record, __u32 dir, __u32 class)
{
	__u32 page = likely(class < PAGE_CLASSES) ? record->w[RECORD_PAGE + dir] : word_at(record->w[RECORD_TABLE + dir], class / PAGE_CLASSES);
	return word_of(page, PAGE_CLASSES / LINE_WORDS, class % PAGE_CLASSES);
}

/* verdict returns the verdict of an endpoint's list for a direction about a class. For protocols
 * without ports the port is the protocol number. */
inline_always __u32 verdict(struct line *record, int to_pod, __u32 class, __u32 place, __u32 source, __u32 port)
{
	__u32 dir = to_pod ? 0 : 1;
	if (class >= record->w[RECORD_CLASSES + dir])
		return 0;
	__u32 row = row_of(record, dir, class);
	struct line *l = line_at(row);
	if (!l || !row)
		return 0;
	__u32 cell = l->w[place & 3];
	/* The processor predicts this branch, so it does not wait for the cell. Rows by source port
	 * have no cells in their own line. */
	if (likely(cell == (KIND_SMALL | row)))
		return small(l, port);
	if (unlikely(record->w[RECORD_FLAGS] & (FLAG_PORTS_TO << dir))) {
		__u32 word = resolve(cell, source);
		cell = word_at(word >> 4, word & 15);
	}
	return resolve(cell, port);
}

#endif
