/* The memory that the nodes of VPP judge by, and what they count. */
#include <signal.h>

#include "image.h"
#include "judge.h"

struct image current = NO_IMAGE;
static struct image next = NO_IMAGE;

#define REASON(name, text) NODE_##name,
enum { FOREACH_REASON(REASON) NODE_REASONS };
_Static_assert(NODE_REASONS == REASONS + 1 && NODE_IS_TUNNEL == IS_TUNNEL && NODE_IS_NON_IP == IS_NON_IP, "FOREACH_REASON has the order of enum reason");

static struct sigaction before;

/* on_bus is called on an access to memory of a file that became shorter. */
static void on_bus(int signal, siginfo_t *info, void *context)
{
	if (survive_cut(&current, info->si_addr) || survive_cut(&next, info->si_addr))
		return;
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(signal, info, context);
	else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
		before.sa_handler(signal);
	else
		sigaction(SIGBUS, &before, 0); /* and the access is made again */
}

int judge_survive(void)
{
	struct sigaction survive = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	return sigaction(SIGBUS, &survive, &before);
}

/* has_agent reports whether the agent lives whose memory is mapped: it has locked its directory. */
static int has_agent(const struct image *m)
{
	if (m->directory_file < 0 || !flock(m->directory_file, LOCK_EX | LOCK_NB))
		return m->directory_file >= 0 && flock(m->directory_file, LOCK_UN);
	return errno == EWOULDBLOCK;
}

static int same_directory(const struct image *a, const struct image *b)
{
	return a->directory.st_dev == b->directory.st_dev && a->directory.st_ino == b->directory.st_ino;
}

const char *judge_open(const char *directory, unsigned threads)
{
	const char *problem = open_image(&next, directory, threads);
	if (!problem && !same_directory(&current, &next) && has_agent(&current))
		problem = "another agent enforces in this VPP, with other memory: end one of them";
	if (problem)
		close_image(&next);
	else
		for (unsigned i = 0; i < threads; i++)
			reset_epoch(&next, i);
	return problem;
}

void judge_switch(void)
{
	struct image last = current;
	current = next;
	next = last;
	clear_map(&frags);
}

void judge_close(void) { close_image(&next); }

unsigned judge_rules(void)
{
	if (!current.policy)
		return 0;
	unsigned rules = *(volatile __u32 *)&current.policy->rules[current.policy->in_force & 1];
	return rules < current.is.slots ? rules : current.is.slots;
}

/* in_force returns one of two offsets: that of the policy map in force. */
static __u64 in_force(const __u64 *at) { return at[current.policy->in_force & 1]; }

_Static_assert(RULE_NAME == NAME_BYTES, "length of names");
void judge_rule_name(unsigned rule, char to[RULE_NAME])
{
	to[0] = 0;
	if (rule < judge_rules())
		memcpy(to, (char *)current.policy + in_force(current.is.at_names) + (__u64)rule * NAME_BYTES, NAME_BYTES);
	to[NAME_BYTES - 1] = 0;
}

unsigned long long judge_decided(unsigned rule, unsigned thread)
{
	if (rule >= judge_rules() || thread >= MOST_THREADS)
		return 0;
	__u64 *all = (__u64 *)((__u8 *)current.state + in_force(current.is.at_counters));
	return *(volatile __u64 *)&all[(__u64)thread * current.is.slots + rule];
}

unsigned long long judge_inode(void) { return current.policy && !current.cut ? current.inode : 0; }

unsigned judge_version(void) { return IMAGE_VERSION; }

unsigned long long judge_dropped(unsigned reason)
{
	unsigned long long n = 0;
	if (!current.policy)
		return 0;
	__u64 *all = (__u64 *)((__u8 *)current.state + current.is.at_drops);
	for (unsigned i = 0; i < MOST_THREADS; i++)
		n += all[i * DROP_PLACES + (reason & (DROP_PLACES - 1))];
	return n;
}

unsigned judge_connections(unsigned endpoint)
{
	if (!current.policy)
		return 0;
	struct share *all = (struct share *)((__u8 *)current.state + current.is.at_shares);
	return *(volatile __u32 *)&all[endpoint & (PLACES - 1)].flows;
}
