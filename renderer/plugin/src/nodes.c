/* The nodes that judge the packets of pods: at their way from an interface, before they are routed,
 * and at their way to one, after that. */
#include <vlib/vlib.h>
#include <vnet/vnet.h>
#include <vnet/feature/feature.h>
#include <vnet/ip/ip.h>

#include "plugin.h"
#include "judge.h"

#define TEXT(name, text) text,
static char *reasons[] = { FOREACH_REASON (TEXT) };
#define NAME(name, text) name,
enum { FOREACH_REASON (NAME) REASONS };

enum { NEXT_DROP, NEXTS };

/* trace is what a node adds to the trace of a packet. */
struct trace {
  u32 sw_if_index;
  u32 rule; /* that decided; 0: none */
  u8 reason, to_pod;
  char name[RULE_NAME]; /* of the rule, as it was called then */
};

static u8 *
format_trace (u8 *s, va_list *args)
{
  CLIB_UNUSED (vlib_main_t * vm) = va_arg (*args, vlib_main_t *);
  CLIB_UNUSED (vlib_node_t * node) = va_arg (*args, vlib_node_t *);
  struct trace *t = va_arg (*args, struct trace *);
  s = format (s, "%s pod at %U: %s", t->to_pod ? "to" : "from", format_vnet_sw_if_index_name, vnet_get_main (), t->sw_if_index,
	      t->reason < REASONS ? reasons[t->reason] : "");
  return t->rule ? format (s, ", by rule %u: %s", t->rule, t->name) : s;
}

/* describe describes a packet for the classifier. */
static_always_inline void
describe (vlib_main_t *vm, struct judged *j, vlib_buffer_t *b, uword *bound, uword *uplinks, const int to_pod)
{
  u32 rx = vnet_buffer (b)->sw_if_index[VLIB_RX];
  u32 sw_if_index = to_pod ? vnet_buffer (b)->sw_if_index[VLIB_TX] : rx;
  u32 rewritten = to_pod ? vnet_buffer (b)->ip.save_rewrite_length : 0;
  if (PREDICT_FALSE (rewritten > b->current_length))
    rewritten = b->current_length; /* nothing is left, which is malformed */
  j->data = vlib_buffer_get_current (b) + rewritten;
  j->length = b->current_length - rewritten;
  j->whole = vlib_buffer_length_in_chain (vm, b) - rewritten;
  j->endpoint = PREDICT_TRUE (clib_bitmap_get (bound, sw_if_index)) ? sw_if_index : ~0; /* of no endpoint */
  j->hairpin = to_pod && rx == sw_if_index;
  j->made_here = !(to_pod && clib_bitmap_get (uplinks, rx));
}

/* drop_and_trace is for frames with packets that are dropped, or traced. */
static_always_inline void
drop_and_trace (vlib_main_t *vm, vlib_node_runtime_t *node, vlib_buffer_t **b, struct judged *j, u16 *next, u32 n, const int to_pod)
{
  for (; n; n--, b++, j++, next++)
    {
      if (j->reason)
	{
	  next[0] = NEXT_DROP;
	  b[0]->error = node->errors[j->reason];
	}
      if (PREDICT_FALSE (b[0]->flags & VLIB_BUFFER_IS_TRACED))
	{
	  struct trace *t = vlib_add_trace (vm, node, b[0], sizeof (*t));
	  t->sw_if_index = vnet_buffer (b[0])->sw_if_index[to_pod ? VLIB_TX : VLIB_RX];
	  t->reason = j->reason;
	  t->to_pod = to_pod;
	  t->rule = j->reason == PERMITTED || j->reason == BY_POLICY ? j->rule : 0;
	  judge_rule_name (t->rule, t->name);
	}
    }
}

static_always_inline uword
judge_frame (vlib_main_t *vm, vlib_node_runtime_t *node, vlib_frame_t *frame, const int v6, const int to_pod)
{
  vlib_buffer_t *buffers[VLIB_FRAME_SIZE], **b = buffers;
  struct judged all[VLIB_FRAME_SIZE], *j = all;
  u16 nexts[VLIB_FRAME_SIZE], *next = nexts;
  u32 *from = vlib_frame_vector_args (frame), n = frame->n_vectors;
  int dropped;
  uword *bound = sluice_main.bound, *uplinks = sluice_main.uplinks;

  vlib_get_buffers (vm, from, buffers, n);
  for (u32 left = n; left; left--, b++, j++, next++)
    {
      if (PREDICT_TRUE (left > 8))
	vlib_prefetch_buffer_header (b[8], LOAD);
      describe (vm, j, b[0], bound, uplinks, to_pod);
      clib_prefetch_load ((void *) j->data);
      vnet_feature_next_u16 (next, b[0]);
    }
  dropped = JUDGE (judge_packets) (vm->thread_index, all, n, v6, to_pod);
  if (PREDICT_FALSE (dropped < 0))
    for (j = all; j < all + n; j++)
      {
	j->reason = NO_POLICY;
	j->rule = 0;
      }
  if (PREDICT_FALSE (dropped || node->flags & VLIB_NODE_FLAG_TRACE))
    drop_and_trace (vm, node, buffers, all, nexts, n, to_pod);
  vlib_buffer_enqueue_to_next (vm, node, from, nexts, n);
  return n;
}

#define NODE(id, node_name, v6, to_pod) \
  VLIB_NODE_FN (id) (vlib_main_t *vm, vlib_node_runtime_t *node, vlib_frame_t *frame) { return judge_frame (vm, node, frame, v6, to_pod); } \
  VLIB_REGISTER_NODE (id) = { \
    .name = node_name, \
    .vector_size = sizeof (u32), \
    .format_trace = format_trace, \
    .type = VLIB_NODE_TYPE_INTERNAL, \
    .n_errors = REASONS, \
    .error_strings = reasons, \
    .n_next_nodes = NEXTS, \
    .next_nodes = { [NEXT_DROP] = "error-drop" }, \
  }

NODE (sluice_from_pod4, "sluice-from-pod-ip4", 0, 0);
NODE (sluice_from_pod6, "sluice-from-pod-ip6", 1, 0);
NODE (sluice_to_pod4, "sluice-to-pod-ip4", 0, 1);
NODE (sluice_to_pod6, "sluice-to-pod-ip6", 1, 1);

/* No node for IP sees the frames of an interface in a bridge domain, of one that is cross-connected,
 * or of one whose frames another node takes: all of them are dropped. */
static char *bridged[] = { "bridged, cross-connected, patched or bonded: pods are judged at routed interfaces" };
/* What has a label is routed by that. */
static char *mpls[] = { "MPLS: pods send and receive IP" };

static uword
drop_frame (vlib_main_t *vm, vlib_node_runtime_t *node, vlib_frame_t *frame)
{
  vlib_buffer_t *buffers[VLIB_FRAME_SIZE], **b = buffers;
  u32 *from = vlib_frame_vector_args (frame), n = frame->n_vectors;
  vlib_get_buffers (vm, from, buffers, n);
  for (; b < buffers + n; b++)
    b[0]->error = node->errors[0];
  vlib_buffer_enqueue_to_single_next (vm, node, from, NEXT_DROP, n);
  return n;
}

#define DROP_NODE(id, node_name, why) \
  VLIB_REGISTER_NODE (id) = { \
    .name = node_name, \
    .function = drop_frame, \
    .vector_size = sizeof (u32), \
    .type = VLIB_NODE_TYPE_INTERNAL, \
    .n_errors = ARRAY_LEN (why), \
    .error_strings = why, \
    .n_next_nodes = NEXTS, \
    .next_nodes = { [NEXT_DROP] = "error-drop" }, \
  }

DROP_NODE (sluice_bridged_input, "sluice-bridged-input", bridged);
DROP_NODE (sluice_bridged_output, "sluice-bridged-output", bridged);
DROP_NODE (sluice_taken_input, "sluice-taken-input", bridged);
DROP_NODE (sluice_mpls_input, "sluice-mpls-input", mpls);
DROP_NODE (sluice_mpls_output, "sluice-mpls-output", mpls);

/* From a pod: after the translation of a service's address, and before that of sources. What could
 * send a packet elsewhere is behind, too: classifiers of VPP, forwarding by ACL, tunnels. */
VNET_FEATURE_INIT (sluice_ip4_unicast, static) = {
  .arc_name = "ip4-unicast",
  .node_name = "sluice-from-pod-ip4",
  .runs_after = VNET_FEATURES ("cnat-input-ip4"),
  .runs_before = VNET_FEATURES ("acl-plugin-in-ip4-fa", "ip4-full-reassembly-feature", "ip4-sv-reassembly-feature", "nat44-ed-in2out", "nat44-ed-out2in",
				"nat44-ed-classify", "nat44-ei-in2out", "nat44-ei-out2in", "nat44-ei-classify", "det44-in2out", "det44-out2in",
				"cnat-snat-ip4", "ip4-qos-store", "ip4-not-enabled", "ip4-flow-classify", "ip4-inacl", "ip4-policer-classify",
				"ipsec4-input-feature", "vpath-input-ip4", "ip4-vxlan-bypass", "ip4-gtpu-bypass", "ip4-geneve-bypass",
				"abf-input-ip4", "l3xc-input-ip4", "pnat-input", "ip4-lookup"),
};
VNET_FEATURE_INIT (sluice_ip6_unicast, static) = {
  .arc_name = "ip6-unicast",
  .node_name = "sluice-from-pod-ip6",
  .runs_after = VNET_FEATURES ("cnat-input-ip6"),
  .runs_before = VNET_FEATURES ("acl-plugin-in-ip6-fa", "ip6-full-reassembly-feature", "ip6-sv-reassembly-feature", "cnat-snat-ip6", "nat64-in2out",
				"nat66-in2out", "ip6-qos-store", "ip6-not-enabled", "ip6-unicast-nd-proxy", "ip6-flow-classify", "ip6-inacl",
				"ip6-policer-classify", "ipsec6-input-feature", "l2tp-decap", "vpath-input-ip6", "ip6-vxlan-bypass", "ip6-gtpu-bypass",
				"ip6-geneve-bypass", "abf-input-ip6", "l3xc-input-ip6", "ip6-lookup"),
};
VNET_FEATURE_INIT (sluice_ip4_multicast, static) = {
  .arc_name = "ip4-multicast",
  .node_name = "sluice-from-pod-ip4",
  .runs_before = VNET_FEATURES ("ip4-qos-store", "ip4-not-enabled", "vpath-input-ip4", "ip4-mfib-forward-lookup"),
};
VNET_FEATURE_INIT (sluice_ip6_multicast, static) = {
  .arc_name = "ip6-multicast",
  .node_name = "sluice-from-pod-ip6",
  .runs_before = VNET_FEATURES ("ip6-multicast-nd-proxy", "ip6-qos-store", "ip6-not-enabled", "vpath-input-ip6", "ip6-mfib-forward-lookup"),
};

/* To a pod: before the addresses of answers are translated back, so that both directions of a
 * connection have the same addresses. */
VNET_FEATURE_INIT (sluice_ip4_output, static) = {
  .arc_name = "ip4-output",
  .node_name = "sluice-to-pod-ip4",
  .runs_before = VNET_FEATURES ("acl-plugin-out-ip4-fa", "cnat-output-ip4", "ip4-qos-mark", "ip4-dvr-reinject", "ip4-outacl", "ipsec4-output-feature",
				"policer-output", "interface-output"),
};
VNET_FEATURE_INIT (sluice_ip6_output, static) = {
  .arc_name = "ip6-output",
  .node_name = "sluice-to-pod-ip6",
  .runs_before = VNET_FEATURES ("acl-plugin-out-ip6-fa", "cnat-output-ip6", "ip6-qos-mark", "ip6-dvr-reinject", "ip6-outacl", "ipsec6-output-feature",
				"policer-output", "interface-output"),
};
VNET_FEATURE_INIT (sluice_mpls_in, static) = {
  .arc_name = "mpls-input",
  .node_name = "sluice-mpls-input",
  .runs_before = VNET_FEATURES ("mpls-qos-record", "vlan-mpls-qos-record", "mpls-not-enabled", "mpls-lookup"),
};
VNET_FEATURE_INIT (sluice_mpls_out, static) = {
  .arc_name = "mpls-output",
  .node_name = "sluice-mpls-output",
  .runs_before = VNET_FEATURES ("mpls-qos-mark", "interface-output"),
};

VNET_FEATURE_INIT (sluice_taken_device, static) = {
  .arc_name = "device-input",
  .node_name = "sluice-taken-input",
  .runs_before = VNET_FEATURES ("l2-patch", "bond-input", "sr-pl-rewrite-encaps-l2", "ethernet-input"),
};
VNET_FEATURE_INIT (sluice_taken_port, static) = {
  .arc_name = "port-rx-eth",
  .node_name = "sluice-taken-input",
  .runs_before = VNET_FEATURES ("l2-patch", "bond-input", "ethernet-input"),
};

#define BRIDGED(id, arc, node, end, acl) \
  VNET_FEATURE_INIT (id, static) = { \
    .arc_name = arc, \
    .node_name = node, \
    .runs_before = VNET_FEATURES (acl, end), \
  }

BRIDGED (sluice_l2_input_ip4, "l2-input-ip4", "sluice-bridged-input", "l2-input-feat-arc-end", "acl-plugin-in-ip4-l2");
BRIDGED (sluice_l2_input_ip6, "l2-input-ip6", "sluice-bridged-input", "l2-input-feat-arc-end", "acl-plugin-in-ip6-l2");
BRIDGED (sluice_l2_input_nonip, "l2-input-nonip", "sluice-bridged-input", "l2-input-feat-arc-end", "acl-plugin-in-nonip-l2");
BRIDGED (sluice_l2_output_ip4, "l2-output-ip4", "sluice-bridged-output", "l2-output-feat-arc-end", "acl-plugin-out-ip4-l2");
BRIDGED (sluice_l2_output_ip6, "l2-output-ip6", "sluice-bridged-output", "l2-output-feat-arc-end", "acl-plugin-out-ip6-l2");
BRIDGED (sluice_l2_output_nonip, "l2-output-nonip", "sluice-bridged-output", "l2-output-feat-arc-end", "acl-plugin-out-nonip-l2");
