/* What ordinary programs have in place of the kernel's interface. What packets need is in memory
 * that a program maps, and that each thread sets these variables to before it judges packets. */
#ifndef SLUICE_PROGRAM_H
#define SLUICE_PROGRAM_H

#include <string.h>

#define may_be_unused __attribute__((unused))
#define global_function static may_be_unused
#define CONFIG(type, name) static __thread may_be_unused type name
#define IN_PLACE(type, name) static __thread may_be_unused type *name
#define AT(name, i) (&(name)[i])

/* A packet may bring the key of its flow, which is calculated once for a packet then. */
#define KNOWN_KEY const struct flow_key *key;
#define COPY_KEY(k, p) ((p)->key && (*(k) = *(p)->key, 1))

/* The shortest header that the fast path reads. */
#define SHORTEST(p) ((p)->protocol == P_UDP ? 8 : 14)

/* The cached verdicts of IPv6 connections, one for each entry of the connection table. */
static __thread may_be_unused __u64 *verdicts6;
#define VERDICT6(f) (verdicts6 + ((f) - (struct flow *)conns))

/* A verdict that depends on where a packet comes from is not cached: the connection's next packet may
 * come from elsewhere. */
#define IS_OF_ONE_ORIGIN(v) ((v) & OWN_NODE)

#ifdef __x86_64__
#define reorders 0 /* stores, and loads, are seen in order */
#endif

/* The time of a thread: it stands still while the thread judges a frame of packets. */
static __thread __u64 thread_ns, thread_ticks;
static __thread __u32 thread_index;

inline_always __u64 ktime_ns(void) { return thread_ns; }
inline_always __u64 jiffies(void) { return thread_ticks; }
inline_always __u32 this_cpu(void) { return thread_index; }

/* set_time sets the time of a thread. A tick is a millisecond. */
inline_always void set_time(__u64 ns)
{
	thread_ns = ns;
	thread_ticks = ns / 1000000;
}

inline_always int sees_connections(void) { return 0; }

/* zero_of returns 0. Loads after it come after the load of x. */
inline_always __u64 zero_of(__u64 x)
{
	asm volatile("" : : "r"(x));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return 0;
}

inline_always __u64 minus_one(__u64 x) { return x - 1; }

/* A hash map of the process, for what few packets need. Nobody waits: who meets an entry that another
 * thread is writing finds nothing, or writes nothing. The first word of an entry has the generation of
 * the map that it belongs to, and in the lower half a number that is odd while it is written. Entries
 * are not removed one by one, so that a search ends at the first one of an older generation. */
struct hash_map {
	__u8 *entries;
	__u32 most, entry_size, key_size, value_size, value_at, generation;
};

#ifdef MAPS_ELSEWHERE
#define HASH_MAP(name, count, key_type, value_type) extern struct hash_map name
#else
#define HASH_MAP(name, count, key_type, value_type) \
	static struct { \
		__u64 state; \
		key_type key; \
		value_type value; \
	} name##_entries[count]; \
	struct hash_map name = { \
		.entries = (__u8 *)name##_entries, .most = count, .entry_size = sizeof(name##_entries[0]), .key_size = sizeof(key_type), \
		.value_size = sizeof(value_type), .value_at = __builtin_offsetof(typeof(name##_entries[0]), value), .generation = 1}; \
	_Static_assert(sizeof(value_type) <= sizeof(found_value), "found_value is too small")
#endif

#define MOST_PROBES 64

/* The copy of a value that map_lookup returns. */
static __thread may_be_unused __u64 found_value[8];

/* entry_of returns the entry of a key, or the unused one that it may take, and sets state to that of
 * the entry. It returns 0 if there is neither, or if the entry is being written. */
inline_always __u8 *entry_of(struct hash_map *m, const void *key, __u32 generation, __u64 *state)
{
	__u64 h = 14695981039346656037ULL;
	for (__u32 i = 0; i < m->key_size; i++)
		h = (h ^ ((const __u8 *)key)[i]) * 1099511628211ULL;
	for (__u32 i = 0; i < MOST_PROBES; i++) {
		__u8 *e = m->entries + (__u64)((__u32)(h >> 20) + i) % m->most * m->entry_size;
		*state = __atomic_load_n((__u64 *)e, __ATOMIC_ACQUIRE);
		if (*state & 1)
			return 0;
		if (*state >> 32 != generation || !memcmp(e + sizeof(__u64), key, m->key_size))
			return e;
	}
	return 0;
}

static may_be_unused void *map_lookup(struct hash_map *m, const void *key)
{
	__u64 state;
	__u32 generation = __atomic_load_n(&m->generation, __ATOMIC_ACQUIRE);
	__u8 *e = entry_of(m, key, generation, &state);
	if (!e || state >> 32 != generation)
		return 0;
	memcpy(found_value, e + m->value_at, m->value_size);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n((__u64 *)e, __ATOMIC_RELAXED) == state ? found_value : 0;
}

static may_be_unused long map_update(struct hash_map *m, const void *key, const void *value, __u64 flags)
{
	__u64 state;
	__u32 generation = __atomic_load_n(&m->generation, __ATOMIC_ACQUIRE);
	__u8 *e = entry_of(m, key, generation, &state);
	if (!e || !__atomic_compare_exchange_n((__u64 *)e, &state, (__u64)generation << 32 | (__u32)(state + 1), 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return -1;
	__atomic_thread_fence(__ATOMIC_RELEASE); /* the odd number is seen before what follows */
	memcpy(e + sizeof(__u64), key, m->key_size);
	memcpy(e + m->value_at, value, m->value_size);
	__atomic_store_n((__u64 *)e, (__u64)generation << 32 | (__u32)(state + 2), __ATOMIC_RELEASE);
	return 0;
}

/* clear_map removes all entries. */
static may_be_unused void clear_map(struct hash_map *m) { __atomic_fetch_add(&m->generation, 1, __ATOMIC_RELEASE); }

/* A value of each thread, which own_value returns. */
#define OWN_VALUE(value_type, name) static __thread may_be_unused value_type name
#define own_value(name) (&(name))

/* A ring of records that a thread writes and one reader takes. Both numbers only grow. */
struct ring {
	__u64 written, unused[7];
	__u64 taken, zero[7];
	__u8 records[];
};
#define RING_RECORDS 2048

/* The ring of a thread, in memory that the program maps; 0: there is none, and no room. */
#define RING(name, size) static __thread may_be_unused struct ring *name
#define RB_NO_WAKEUP 1

static __thread may_be_unused struct ring *reserved_ring;

inline_always void *ringbuf_reserve(struct ring **ring, __u64 size, __u64 flags)
{
	struct ring *r = *ring;
	if (!r || r->written - __atomic_load_n(&r->taken, __ATOMIC_ACQUIRE) >= RING_RECORDS)
		return 0;
	reserved_ring = r;
	return r->records + r->written % RING_RECORDS * size;
}

inline_always void ringbuf_submit(void *data, __u64 flags) { __atomic_store_n(&reserved_ring->written, reserved_ring->written + 1, __ATOMIC_RELEASE); }

#endif
