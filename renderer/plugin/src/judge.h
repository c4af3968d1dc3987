/* What the nodes of VPP call of the classifier. The headers of VPP and those of the classifier
 * define the same names, so that no file includes both. */
#ifndef SLUICE_JUDGE_NODES_H
#define SLUICE_JUDGE_NODES_H

/* Why a packet is dropped, in the order of enum reason, with the words of package xdp. */
#define FOREACH_REASON(_) \
	_(PERMITTED, "permitted") \
	_(BY_POLICY, "policy") \
	_(IS_MALFORMED, "malformed") \
	_(IS_SPOOFED, "not an address of the pod") \
	_(IS_FRAGMENT, "unmatched fragment") \
	_(IS_UNKNOWN, "interface not known") \
	_(IS_ERROR, "unrelated ICMP error") \
	_(IS_MANY, "too many errors") \
	_(IS_NEIGHBOUR, "neighbour discovery not permitted") \
	_(IS_ARP, "ARP not permitted") \
	_(IS_NON_IP, "not IP") \
	_(IS_ROUTED, "source route") \
	_(IS_TUNNEL, "tunnel") \
	_(IS_UNJUDGED, "not judged") \
	_(NO_POLICY, "no policy: the agent has not opened its memory")

/* A packet of IP in memory. */
struct judged {
	const void *data;
	unsigned length, whole; /* bytes at data, and of the whole packet */
	unsigned endpoint;
	unsigned char hairpin;  /* it goes to the pod, and came from the same interface */
	unsigned char made_here; /* it came from no other node */
	/* The outcome: why it is dropped, 0 if it passes, and the counter of the rule that decided, 0 if
	 * none did. */
	unsigned char reason;
	unsigned rule;
};

/* judge_open maps the memory of an agent for a number of threads, beside what is mapped. It returns
 * 0, or why that is not possible: then nothing is left to do. judge_switch has it judge packets in
 * place of what was mapped before; no thread may judge packets meanwhile, for which it takes some
 * stores. judge_close ends the use of what judge_switch replaced, or of what it never put in force. */
const char *judge_open(const char *directory, unsigned threads);
void judge_switch(void);
void judge_close(void);

/* judge_survive has truncated files end in dropped packets, and not the process. */
int judge_survive(void);

/* What is compiled for each kind of processor has its name, as in VPP. */
#ifdef CLIB_MARCH_VARIANT
#define JUDGE_VARIANT_(f, v) f##_##v
#define JUDGE_VARIANT(f, v) JUDGE_VARIANT_(f, v)
#define JUDGE(f) JUDGE_VARIANT(f, CLIB_MARCH_VARIANT)
#else
#define JUDGE(f) f
#endif

/* judge_packets judges the packets of a frame of a thread, which are of one family in one direction. It
 * returns how many are dropped, or -1 if no memory is mapped: then all of them must be, and no outcome
 * is set. */
int JUDGE(judge_packets)(unsigned thread, struct judged *all, unsigned count, int v6, int to_pod);

/* judge_rules returns how many counters rules have. judge_rule_name sets to to the name of a rule,
 * which is empty if it has none. judge_decided returns how many packets of a thread it decided. */
unsigned judge_rules(void);
#define RULE_NAME 128
void judge_rule_name(unsigned rule, char to[RULE_NAME]);
unsigned long long judge_decided(unsigned rule, unsigned thread);

/* judge_inode identifies the policy file that is mapped, 0 for none, or for one that was truncated. */
unsigned long long judge_inode(void);

/* judge_version is the version of the memory's layout. */
unsigned judge_version(void);

/* judge_dropped returns how many packets all threads dropped for a reason, also before VPP was
 * started. judge_connections returns how many connections of an endpoint are tracked, expired ones
 * included. */
unsigned long long judge_dropped(unsigned reason);
unsigned judge_connections(unsigned endpoint);

#endif
