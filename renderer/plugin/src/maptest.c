/* A test of the hash map of program.h: nobody waits for who writes an entry, and nobody sees half of
 * one. It ends with 0 if that holds. */
#include <pthread.h>
#include <stdio.h>

#include "classifier.h"

struct wide {
	__u64 w[8];
};
HASH_MAP(few, 8, struct fragment_key, struct wide);

#define ROUNDS 50000
#define KEYS 4
static volatile int torn, found, writers = 2;

static void *use(void *writes)
{
	for (__u64 i = 1; writes ? i <= ROUNDS : writers; i++) {
		struct fragment_key k = {.id = i % KEYS, .place = 7};
		if (writes) {
			struct wide v;
			for (int j = 0; j < 8; j++)
				v.w[j] = i << 8 | k.id;
			map_update(&few, &k, &v, 0);
			continue;
		}
		struct wide *v = map_lookup(&few, &k);
		if (!v)
			continue;
		found = 1;
		for (int j = 0; j < 8; j++)
			if (v->w[j] != v->w[0] || (v->w[j] & 0xff) != k.id)
				torn = 1;
	}
	if (writes)
		__atomic_fetch_sub(&writers, 1, __ATOMIC_SEQ_CST);
	return 0;
}

int main(void)
{
	struct fragment_key k = {.id = 1, .place = 2};
	struct wide one = {{1}}, *v;
	pthread_t threads[4];
	__u64 state;
	if (map_update(&few, &k, &one, 0) || !(v = map_lookup(&few, &k)) || v->w[0] != 1)
		return puts("what was written is not found"), 1;
	__u8 *e = entry_of(&few, &k, few.generation, &state);
	*(__u64 *)e = state + 1; /* a thread that writes is interrupted there */
	if (map_lookup(&few, &k) || !map_update(&few, &k, &one, 0))
		return puts("an entry is used while it is written"), 1;
	*(__u64 *)e = state;
	if (!map_lookup(&few, &k))
		return puts("the entry is gone"), 1;
	clear_map(&few);
	if (map_lookup(&few, &k))
		return puts("an entry is found after clear_map"), 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], 0, use, i % 2 ? threads : 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	if (torn || !found)
		return puts(torn ? "half of an entry was seen" : "nothing was found"), 1;
	return 0;
}
