/* The files that an agent shares with a program that judges packets: policy, which the agent writes
 * and the program only reads, and state, which the program writes. They hold what the maps of the
 * kernel hold, with the same layout. Package plugin of the agent has the same structs; a test
 * compares. */
#ifndef SLUICE_IMAGE_H
#define SLUICE_IMAGE_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "classifier.h"

#define IMAGE_MAGIC 0x31656369756c73ULL
#define IMAGE_VERSION 2
#define MOST_THREADS 63

/* The first page of the policy file. Numbers of the form at_ are offsets in a file. The agent writes
 * the first lines before it gives the file its name, and the rest at any time. */
struct policy_header {
	__u64 magic;
	__u32 version, header_size;
	__u64 at_lines[2], at_endpoints[2]; /* of both policy maps */
	__u64 at_flows, at_recent, at_activity, at_shares, at_drops, at_counters[2], at_events; /* in the state file */
	__u64 at_names[2]; /* of rules, by counter, in the policy file */
	__u64 policy_size, state_size;
	__u32 lines, slots, buckets, zero;

	__u32 settings; /* incremented after a change of the next lines */
	__u32 in_force; /* which policy map */
	__u32 conf, recent_threshold;
	__u32 tunnel_ports[TUNNEL_PORTS];
	__u64 unused[6];

	struct history changes; /* in a cache line that begins here */
	struct quota limits;
	struct event_filter evfilter;
};

/* A thread increments its epoch when it begins with a frame of packets, and again when it has judged
 * them. So an even epoch says that it holds nothing of the policy map. */
struct epoch {
	__u64 frames;
	__u64 zero[7];
};

/* The first page of the state file. A program holds a shared lock of that file while it uses it. */
struct state_header {
	__u64 magic;
	__u32 version, threads;
	__u64 zero[6];
	struct epoch epochs[MOST_THREADS];
};

/* Package plugin has the same offsets; a test compares. */
#define HAS_OFFSET(type, member, at) _Static_assert(__builtin_offsetof(struct type, member) == at, #member)
HAS_OFFSET(policy_header, at_lines, 16);
HAS_OFFSET(policy_header, at_endpoints, 32);
HAS_OFFSET(policy_header, at_flows, 48);
HAS_OFFSET(policy_header, at_counters, 88);
HAS_OFFSET(policy_header, at_events, 104);
HAS_OFFSET(policy_header, at_names, 112);
HAS_OFFSET(policy_header, policy_size, 128);
HAS_OFFSET(policy_header, buckets, 152);
HAS_OFFSET(policy_header, settings, 160);
HAS_OFFSET(policy_header, tunnel_ports, 176);
HAS_OFFSET(policy_header, changes, 256);
HAS_OFFSET(policy_header, limits, 272);
HAS_OFFSET(policy_header, evfilter, 280);
HAS_OFFSET(state_header, threads, 12);
HAS_OFFSET(state_header, epochs, 64);
_Static_assert(sizeof(struct policy_header) == 296 && sizeof(struct state_header) == 4096, "size of a header");

/* What a rule is called: the first bytes, which end with 0. */
#define NAME_BYTES 128

/* The ring of events of a thread. */
#define RING_BYTES (sizeof(struct ring) + RING_RECORDS * sizeof(struct event))
_Static_assert(sizeof(struct ring) == 128 && sizeof(struct event) == 72 && RING_RECORDS == 2048, "size of a ring");

struct image {
	volatile struct policy_header *policy;
	struct state_header *state;
	__u64 policy_size, state_size, inode;
	int policy_file, state_file;
	__u32 serial; /* no two images of a process have the same one */
};

/* close_image ends the use of an image. */
static may_be_unused void close_image(struct image *m)
{
	if (m->policy)
		munmap((void *)m->policy, m->policy_size);
	if (m->state)
		munmap(m->state, m->state_size);
	if (m->policy_file >= 0)
		close(m->policy_file);
	if (m->state_file >= 0)
		close(m->state_file); /* with its lock */
	*m = (struct image){.policy_file = -1, .state_file = -1};
}

/* open_image maps the files of a directory. After an error close_image must be called. It returns 0, or
 * why that is not possible. Only the user of the process may be able to write to the files. */
static const char *open_image(struct image *m, const char *directory, __u32 threads)
{
	char path[4096];
	struct stat policy_stat, state_stat;
	struct policy_header h;
	static __u32 serial;
	*m = (struct image){.policy_file = -1, .state_file = -1, .serial = ++serial};
	if (threads > MOST_THREADS)
		return "there are too many threads";
	if (snprintf(path, sizeof(path), "%s/policy", directory) >= (int)sizeof(path))
		return "the name of the directory is too long";
	m->policy_file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	snprintf(path, sizeof(path), "%s/state", directory);
	m->state_file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (m->policy_file < 0 || m->state_file < 0 || fstat(m->policy_file, &policy_stat) || fstat(m->state_file, &state_stat))
		return "the files cannot be opened";
	if (policy_stat.st_uid != geteuid() || state_stat.st_uid != geteuid() || (policy_stat.st_mode | state_stat.st_mode) & 022 || !S_ISREG(policy_stat.st_mode) || !S_ISREG(state_stat.st_mode))
		return "others may write to the files";
	if (pread(m->policy_file, &h, sizeof(h), 0) != sizeof(h) || h.magic != IMAGE_MAGIC)
		return "the policy file is none of Sluice";
	if (h.version != IMAGE_VERSION || h.header_size != sizeof(h))
		return "the policy file is of another version";
	if ((__u64)policy_stat.st_size != h.policy_size || (__u64)state_stat.st_size != h.state_size)
		return "the files do not have the size that they claim";
	for (int i = 0; flock(m->state_file, LOCK_SH | LOCK_NB); i++) { /* an agent holds a lock for moments */
		if (i == 1000)
			return "the state file is locked";
		usleep(1000);
	}
	__u64 counters = (__u64)threads * h.slots * sizeof(__u64);
	if (posix_fallocate(m->state_file, 0, h.at_counters[0]) || posix_fallocate(m->state_file, h.at_counters[0], counters) || posix_fallocate(m->state_file, h.at_counters[1], counters) || posix_fallocate(m->state_file, h.at_events, threads * RING_BYTES))
		return "there is no memory for the state file";
	void *mapped = mmap(0, h.policy_size, PROT_READ, MAP_SHARED, m->policy_file, 0);
	if (mapped == MAP_FAILED)
		return "the policy file cannot be mapped";
	m->policy = mapped;
	m->policy_size = h.policy_size;
	mapped = mmap(0, h.state_size, PROT_READ | PROT_WRITE, MAP_SHARED, m->state_file, 0);
	if (mapped == MAP_FAILED)
		return "the state file cannot be mapped";
	m->state = mapped;
	m->state_size = h.state_size;
	m->inode = policy_stat.st_ino;
	if (m->state->threads < threads)
		m->state->threads = threads;
	return 0;
}

/* reset_epoch must be called for every thread of a new image: a program may have ended in a frame. */
static void reset_epoch(struct image *m, __u32 thread)
{
	m->state->epochs[thread].frames += m->state->epochs[thread].frames & 1;
}

/* The policy that a thread has set its variables to. */
static __thread __u32 seen_serial, seen_settings;

static void see_image(struct image *m, __u32 settings)
{
	struct policy_header *h = (struct policy_header *)m->policy;
	__u8 *p = (__u8 *)h, *s = (__u8 *)m->state;
	__u32 map = *(volatile __u32 *)&h->in_force & 1;
	static struct reach links[PLACES]; /* shared by all threads */

	policy = (struct line *)(p + h->at_lines[map]);
	policy_lines = h->lines;
	policy_parity = map;
	endpts = (__u64 *)(p + h->at_endpoints[map]);
	changes = &h->changes;
	limits = &h->limits;
	evfilter = &h->evfilter;
	conf = h->conf;
	recent_threshold = h->recent_threshold;
	memcpy(tunnel_ports, h->tunnel_ports, sizeof(tunnel_ports));
	conns = (struct bucket *)(s + h->at_flows);
	flow_mask = h->buckets - 1;
	flow_seed = h->changes.seed;
#ifdef __x86_64__
	reorders = 0;
#endif
	recent = (struct recent_bucket *)(s + h->at_recent);
	activity = (struct active_flows *)(s + h->at_activity);
	shares = (struct share *)(s + h->at_shares);
	drops = (__u64 *)(s + h->at_drops);
	cpus = MOST_THREADS;
	counters = (__u64 *)(s + h->at_counters[map]);
	counter_slots = h->slots;
	counter_places = counter_slots * (MOST_THREADS);
	events = (struct ring *)(s + h->at_events + thread_index * RING_BYTES);
	gateways = links;
	seen_serial = m->serial;
	seen_settings = settings;
}

/* begin_frame must be called before a thread judges packets, and end_frame after it. The agent
 * writes no memory again that a packet may have reached in between. */
inline_always void begin_frame(struct image *m, __u32 thread, __u64 ns)
{
	__u64 *epoch = &m->state->epochs[thread].frames;
	__atomic_exchange_n(epoch, *epoch + 1, __ATOMIC_SEQ_CST); /* in order with the loads of the packets */
	thread_index = thread;
	set_time(ns);
	__u32 settings = __atomic_load_n(&m->policy->settings, __ATOMIC_ACQUIRE);
	if (unlikely(settings != seen_settings || m->serial != seen_serial))
		see_image(m, settings);
}

inline_always void end_frame(struct image *m, __u32 thread)
{
	__u64 *epoch = &m->state->epochs[thread].frames;
	__atomic_store_n(epoch, *epoch + 1, __ATOMIC_RELEASE);
}

#endif
