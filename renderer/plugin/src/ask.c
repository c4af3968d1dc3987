/* An ordinary program with the classifier. It maps the files of a directory and answers questions
 * about packets, which it reads from its standard input. Tests ask it, without privileges.
 *
 *   ask DIRECTORY THREAD
 *
 * A question is a struct question and a frame; an answer is the reason of package bpf as 4 bytes. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "image.h"

struct question {
	__u64 later; /* how many ns later than now */
	__u32 id, to_pod, how, length;
};

#define MOST_BYTES (1 << 16)

static int read_all(void *to, size_t left)
{
	return !left || fread(to, left, 1, stdin) == 1;
}

/* judge_bytes judges a packet as the nodes of VPP judge those of a frame. */
inline_always int judge_bytes(struct bytes *b, struct packet *p, __u32 id, const int to_pod, __u32 how)
{
	struct frame f;
	struct prepared q;
	begin(&f);
	prepare(&f, &q, b, id, p->hairpin, to_pod);
	if (how == ENFORCE && known(&f, &q, to_pod) != UNKNOWN)
		return PERMITTED;
	p->key = q.parsed ? &q.key : 0;
	return how == QUERY ? classify(b, p, id, to_pod, QUERY) : classify(b, p, id, to_pod, ENFORCE);
}

static struct image m;

static void on_bus(int signal, siginfo_t *info, void *context)
{
	if (!survive_cut(&m, info->si_addr))
		abort();
}

int main(int count, char **args)
{
	static __u8 frame[MOST_BYTES];
	struct question q;
	struct sigaction survive = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
	sigaction(SIGBUS, &survive, 0);
	if (count != 3)
		return fprintf(stderr, "want a directory and the number of a thread\n"), 2;
	__u32 thread = atoi(args[2]);
	const char *problem = open_image(&m, args[1], thread + 1);
	if (problem)
		return fprintf(stderr, "%s: %s\n", args[1], problem), 1;
	reset_epoch(&m, thread);
	while (read_all(&q, sizeof(q)) && q.length <= MOST_BYTES && read_all(frame, q.length)) {
		struct timespec now;
		struct packet p = {.made_here = 1};
		struct bytes b = {.data = frame, .length = q.length, .whole = q.length};
		clock_gettime(CLOCK_MONOTONIC, &now);
		begin_frame(&m, thread, (__u64)now.tv_sec * 1000000000 + now.tv_nsec + q.later);
		int reason = q.to_pod ? judge_bytes(&b, &p, q.id, 1, q.how) : judge_bytes(&b, &p, q.id, 0, q.how);
		end_frame(&m, thread);
		if (fwrite(&reason, sizeof(reason), 1, stdout) != 1 || fflush(stdout))
			return 1;
	}
	return 0;
}
