/* The files that an agent shares with a program that judges packets: policy, which the agent writes
 * and the program only reads, and state, which the program writes. They hold what the maps of the
 * kernel hold, with the same layout. Package plugin of the agent has the same structs; a test
 * compares. */
#ifndef SLUICE_IMAGE_H
#define SLUICE_IMAGE_H

#include <errno.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frame.h"

#define IMAGE_MAGIC 0x31656369756c73ULL
#define IMAGE_VERSION 4
#define MOST_THREADS 63

/* The first page of the policy file. Numbers of the form at_ are offsets in a file. The agent writes
 * the first lines before it gives the file its name, and the rest at any time. */
struct policy_header {
	__u64 magic;
	__u32 version, header_size;
	__u64 at_lines[2], at_endpoints[2]; /* of both policy maps */
	__u64 at_flows, at_recent, at_activity, at_shares, at_drops, at_counters[2], at_events; /* in the state file */
	__u64 at_names[2]; /* of rules, by counter, in the policy file */
	__u64 at_verdicts; /* of IPv6 connections, in the state file */
	__u64 policy_size, state_size;
	__u32 lines, slots, buckets, zero;

	__u32 settings; /* incremented after a change of the next lines */
	__u32 in_force; /* which policy map */
	__u32 conf, recent_threshold;
	__u32 tunnel_ports[TUNNEL_PORTS];
	__u32 rules[2]; /* of both policy maps: how many counters are in use */
	__u64 unused[4];

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
HAS_OFFSET(policy_header, at_verdicts, 128);
HAS_OFFSET(policy_header, policy_size, 136);
HAS_OFFSET(policy_header, buckets, 160);
HAS_OFFSET(policy_header, settings, 168);
HAS_OFFSET(policy_header, tunnel_ports, 184);
HAS_OFFSET(policy_header, rules, 216);
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

/* The agent may change the first page at any time, and so may others who are root. So what leads
 * to memory is read once, checked, and kept here. */
struct image {
	volatile struct policy_header *policy;
	struct state_header *state;
	struct policy_header is; /* sizes and offsets, as they were checked */
	struct stat directory;
	__u64 inode;
	int directory_file, policy_file, state_file;
	struct reach *links; /* of interfaces: what only this process knows */
	__u32 serial; /* no two images of a process have the same one */
	volatile int cut; /* a file was truncated: its memory is gone */
};

#define NO_IMAGE {.directory_file = -1, .policy_file = -1, .state_file = -1}

/* close_image ends the use of an image. */
static may_be_unused void close_image(struct image *m)
{
	int files[] = {m->directory_file, m->policy_file, m->state_file}; /* the last one with its lock */
	if (m->policy)
		munmap((void *)m->policy, m->is.policy_size);
	if (m->state)
		munmap(m->state, m->is.state_size);
	for (int i = 0; i < 3; i++)
		if (files[i] >= 0)
			close(files[i]);
	*m = (struct image)NO_IMAGE;
}

#define MOST_LINES (1U << 26)
#define MOST_SLOTS (1U << 22)
#define MOST_BUCKETS (1U << 22)

/* part returns where a part of a file begins: each begins with a page. */
static __u64 part(__u64 *at, __u64 bytes)
{
	__u64 begin = *at;
	*at += (bytes + 4095) / 4096 * 4096;
	return begin;
}

/* lay_out sets the offsets and sizes that follow from the numbers of lines, slots and buckets. The
 * agent does the same (layout.go), so that no others need to be trusted. */
static void lay_out(struct policy_header *h)
{
	__u64 at = 4096;
	for (int i = 0; i < 2; i++) {
		h->at_endpoints[i] = part(&at, PLACES * sizeof(__u64));
		h->at_lines[i] = part(&at, (__u64)h->lines * sizeof(struct line));
		h->at_names[i] = part(&at, (__u64)h->slots * NAME_BYTES);
	}
	h->policy_size = at;
	at = 4096;
	h->at_flows = part(&at, (__u64)h->buckets * sizeof(struct bucket));
	h->at_verdicts = part(&at, (__u64)h->buckets * BUCKET_FLOWS * sizeof(__u64));
	h->at_recent = part(&at, (1UL << (64 - RECENT_SHIFT)) * sizeof(struct recent_bucket));
	h->at_activity = part(&at, 4096);
	h->at_shares = part(&at, PLACES * sizeof(struct share));
	h->at_drops = part(&at, MOST_THREADS * DROP_PLACES * sizeof(__u64));
	for (int i = 0; i < 2; i++)
		h->at_counters[i] = part(&at, (__u64)MOST_THREADS * h->slots * sizeof(__u64));
	h->at_events = part(&at, MOST_THREADS * RING_BYTES);
	h->state_size = at;
}

/* check_file returns why a file is not one that only the user of the process can have written, 0 if
 * it is. */
static const char *check_file(const struct stat *s)
{
	if (!S_ISREG(s->st_mode))
		return "a file is no regular file";
	if (s->st_uid != geteuid())
		return "a file belongs to another user";
	if (s->st_mode & 022)
		return "others may write to the files";
	if (s->st_nlink != 1)
		return "a file has another name, too, by which others may reach it";
	return 0;
}

/* check_header returns why the header of a policy file cannot be used with the sizes of both, 0 if it
 * can. */
static const char *check_header(const struct policy_header *h, __u64 policy_size, __u64 state_size)
{
	struct policy_header want = *h;
	if (h->magic != IMAGE_MAGIC)
		return "the policy file is none of Sluice";
	if (h->version != IMAGE_VERSION || h->header_size != sizeof(*h))
		return "the policy file is of another version";
	if (!h->lines || h->lines > MOST_LINES || !h->slots || h->slots > MOST_SLOTS || !h->buckets || h->buckets > MOST_BUCKETS || h->buckets & (h->buckets - 1))
		return "the policy file has impossible numbers of lines, rules or connections";
	lay_out(&want);
	if (memcmp(&want, h, offsetof(struct policy_header, settings)))
		return "the policy file does not have its parts where they belong";
	if (policy_size != h->policy_size || state_size != h->state_size)
		return "the files do not have the size that they claim";
	return 0;
}

/* open_file opens a file of the directory of an image. */
static const char *open_file(struct image *m, const char *name, int flags, int *file, struct stat *s)
{
	*file = openat(m->directory_file, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (*file < 0)
		return errno == ENOENT ? "there are no files: no agent has made them" : errno == ELOOP ? "a file is a link" : "the files cannot be opened";
	return fstat(*file, s) ? "the files cannot be opened" : check_file(s);
}

/* open_image maps the files of a directory. After an error close_image must be called. It returns 0, or
 * why that is not possible. Only the user of the process may be able to write to the files. */
static may_be_unused const char *open_image(struct image *m, const char *directory, __u32 threads)
{
	struct stat policy, state;
	struct state_header head;
	static __u32 serial;
	static struct reach links[PLACES];
	const char *problem;
	*m = (struct image)NO_IMAGE;
	m->serial = ++serial;
	m->links = links;
	if (threads > MOST_THREADS)
		return "there are too many threads";
	m->directory_file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (m->directory_file < 0 || fstat(m->directory_file, &m->directory))
		return errno == ENOENT ? "there are no files: no agent has made them" : "the directory cannot be opened, or is none";
	if (m->directory.st_uid != geteuid() || m->directory.st_mode & 022)
		return "the directory belongs to another user, or others may write to it";
	problem = open_file(m, "policy", O_RDONLY, &m->policy_file, &policy);
	if (!problem)
		problem = open_file(m, "state", O_RDWR, &m->state_file, &state);
	if (problem)
		return problem;
	if (pread(m->policy_file, &m->is, sizeof(m->is), 0) != sizeof(m->is))
		return "the policy file is none of Sluice";
	problem = check_header(&m->is, policy.st_size, state.st_size);
	if (problem)
		return problem;
	if (pread(m->state_file, &head, sizeof(head), 0) != sizeof(head) || head.magic != IMAGE_MAGIC || head.version != IMAGE_VERSION)
		return "the state file is none of Sluice, or of another version";
	for (int i = 0; flock(m->state_file, LOCK_SH | LOCK_NB); i++) { /* an agent holds a lock for moments */
		if (i == 10)
			return "the state file is locked";
		usleep(1000);
	}
	__u64 counters = (__u64)threads * m->is.slots * sizeof(__u64);
	if (posix_fallocate(m->state_file, 0, m->is.at_counters[0]) || posix_fallocate(m->state_file, m->is.at_counters[0], counters) || posix_fallocate(m->state_file, m->is.at_counters[1], counters) || posix_fallocate(m->state_file, m->is.at_events, threads * RING_BYTES))
		return "there is no memory for the state file";
	void *mapped = mmap(0, m->is.policy_size, PROT_READ, MAP_SHARED, m->policy_file, 0);
	if (mapped == MAP_FAILED)
		return "the policy file cannot be mapped";
	m->policy = mapped;
	mapped = mmap(0, m->is.state_size, PROT_READ | PROT_WRITE, MAP_SHARED, m->state_file, 0);
	if (mapped == MAP_FAILED)
		return "the state file cannot be mapped";
	m->state = mapped;
	m->inode = policy.st_ino;
	if (m->state->threads < threads)
		m->state->threads = threads;
	return 0;
}

static int is_in(volatile void *mapping, __u64 size, const void *address)
{
	const __u8 *begin = (const __u8 *)mapping, *at = address;
	return begin && at >= begin && at < begin + size;
}

/* survive_cut must be called when an access to an address ended with the signal SIGBUS. Where the file
 * that was mapped there has become shorter, memory of zeros takes its place, by which packets are
 * dropped, and it returns 1. A program can neither keep its user from truncating a file nor notice
 * it before it reads. */
static may_be_unused int survive_cut(struct image *m, const void *address)
{
	int policy = is_in(m->policy, m->is.policy_size, address);
	if (!policy && !is_in(m->state, m->is.state_size, address))
		return 0;
	m->cut = 1;
	return mmap(policy ? (void *)m->policy : m->state, policy ? m->is.policy_size : m->is.state_size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/* reset_epoch must be called for every thread of a new image: a program may have ended in a frame. */
static may_be_unused void reset_epoch(struct image *m, __u32 thread)
{
	m->state->epochs[thread].frames += m->state->epochs[thread].frames & 1;
}

/* The policy that a thread has set its variables to. */
static __thread __u32 seen_serial, seen_settings;

static void see_image(struct image *m, __u32 settings)
{
	struct policy_header *h = (struct policy_header *)m->policy, *is = &m->is;
	__u8 *p = (__u8 *)h, *s = (__u8 *)m->state;
	__u32 map = *(volatile __u32 *)&h->in_force & 1;
	policy = (struct line *)(p + is->at_lines[map]);
	policy_lines = is->lines;
	policy_parity = map;
	endpts = (__u64 *)(p + is->at_endpoints[map]);
	changes = &h->changes;
	limits = &h->limits;
	evfilter = &h->evfilter;
	conf = h->conf | CONF_CLOSED; /* also if it was truncated, and reads as zeros */
	recent_threshold = h->recent_threshold;
	memcpy(tunnel_ports, h->tunnel_ports, sizeof(tunnel_ports));
	conns = (struct bucket *)(s + is->at_flows);
	verdicts6 = (__u64 *)(s + is->at_verdicts);
	flow_mask = is->buckets - 1;
	flow_seed = h->changes.seed;
	recent = (struct recent_bucket *)(s + is->at_recent);
	activity = (struct active_flows *)(s + is->at_activity);
	shares = (struct share *)(s + is->at_shares);
	drops = (__u64 *)(s + is->at_drops);
	cpus = MOST_THREADS;
	counters = (__u64 *)(s + is->at_counters[map]);
	counter_slots = is->slots;
	counter_places = counter_slots * (MOST_THREADS);
	events = (struct ring *)(s + is->at_events + thread_index * RING_BYTES);
	gateways = m->links;
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
