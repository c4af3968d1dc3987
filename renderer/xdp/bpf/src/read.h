/* Readers of whole packets: one for each kind of context, all from parse.h. */
#ifndef SLUICE_READ_H
#define SLUICE_READ_H

#include "judge.h"
#include "link.h"

#define CTX struct __sk_buff
#define LOAD skb_load
#define NAME(x) x##_skb
#include "parse.h"
#define CTX struct xdp_md
#define LOAD xdp_load
#define NAME(x) x##_xdp
#include "parse.h"

inline_always long stack_load(struct bpf_nf_ctx *ctx, __u32 at, void *to, __u32 len)
{
	struct bpf_dynptr data;
	if (bpf_dynptr_from_skb((struct __sk_buff *)ctx->skb, 0, &data))
		return -1;
	return dynptr_read(to, len, &data, at, 0);
}

#define CTX struct bpf_nf_ctx
#define LOAD stack_load
#define NAME(x) x##_stack
#include "parse.h"

#endif
