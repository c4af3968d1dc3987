/* The feature arcs where packets of pods are judged or dropped. All of them must be on at every
 * interface that is judged: what others take away is put back, and counted. */
#include <vlib/vlib.h>
#include <vnet/vnet.h>
#include <vnet/adj/adj.h>
#include <vnet/adj/adj_delegate.h>
#include <vnet/adj/adj_mcast.h>
#include <vnet/feature/feature.h>
#include <vnet/ip/ip.h>
#include <vnet/l2/l2_input.h>
#include <vnet/l2/l2_output.h>
#include <vnet/mpls/mpls.h>

#include "plugin.h"

/* The arcs of layer 2 have the interfaces that switch frames, and those of MPLS what has a label: no
 * arc of IP sees these. */
static struct place
{
  const char *arc, *node;
  u8 index; /* of the arc */
} places[] = {
  { "ip4-unicast", "sluice-from-pod-ip4" },	{ "ip6-unicast", "sluice-from-pod-ip6" },   { "ip4-multicast", "sluice-from-pod-ip4" },
  { "ip6-multicast", "sluice-from-pod-ip6" },	{ "ip4-output", "sluice-to-pod-ip4" },	    { "ip6-output", "sluice-to-pod-ip6" },
  { "mpls-input", "sluice-mpls-input" },	{ "mpls-output", "sluice-mpls-output" },
  { "l2-input-ip4", "sluice-bridged-input" },	{ "l2-input-ip6", "sluice-bridged-input" },   { "l2-input-nonip", "sluice-bridged-input" },
  { "l2-output-ip4", "sluice-bridged-output" }, { "l2-output-ip6", "sluice-bridged-output" }, { "l2-output-nonip", "sluice-bridged-output" },
};
/* Where frames begin, nodes of others may take all of them: for another interface, a bond, a tunnel.
 * Only then ours is there, before them, and drops the frames. */
static struct place gates[] = { { "device-input", "sluice-taken-input" }, { "port-rx-eth", "sluice-taken-input" } };
static const char *takers[] = { "l2-patch", "bond-input", "sr-pl-rewrite-encaps-l2" };
#define FIRST_INPUT 8
#define FIRST_OUTPUT 11

static int
is_on (struct place *p, u32 sw_if_index)
{
  return vnet_feature_is_enabled (p->arc, p->node, sw_if_index) == 1;
}

static void
set (struct place *p, u32 sw_if_index, int on)
{
  int rv = vnet_feature_enable_disable (p->arc, p->node, sw_if_index, on, 0, 0);
  if (rv || is_on (p, sw_if_index) != on)
    clib_warning ("interface %U: %s does not go %s on arc %s: %d", format_vnet_sw_if_index_name, vnet_get_main (), sw_if_index, p->node,
		  on ? "on" : "off", p->arc, rv);
}

/* is_taken reports whether a node takes the frames of an interface. */
static int
is_taken (u32 sw_if_index)
{
  for (struct place *g = gates; g < gates + ARRAY_LEN (gates); g++)
    for (u32 i = 0; i < ARRAY_LEN (takers); i++)
      if (vnet_feature_is_enabled (g->arc, takers[i], sw_if_index) == 1)
	return 1;
  return 0;
}

int
sluice_is_bridged (u32 sw_if_index)
{
  l2_input_config_t *c = l2input_intf_config (sw_if_index);
  return l2_input_is_bridge (c) || l2_input_is_xconnect (c) || is_taken (sw_if_index);
}

/* VPP looks at the arcs of layer 2 only where these bits are set. It clears them when an interface
 * goes back to layer 3. */
static int
has_bits (u32 sw_if_index)
{
  return l2input_intf_config (sw_if_index)->feature_bitmap & L2INPUT_FEAT_INPUT_FEAT_ARC &&
	 l2output_intf_config (sw_if_index)->feature_bitmap & L2OUTPUT_FEAT_OUTPUT_FEAT_ARC;
}

static int
has_features (u32 sw_if_index, u32 from, u32 to)
{
  for (u32 i = from; i < to; i++)
    if (vnet_have_features (places[i].index, sw_if_index))
      return 1;
  return 0;
}

static void
set_bits (u32 sw_if_index)
{
  l2input_intf_bitmap_enable (sw_if_index, L2INPUT_FEAT_INPUT_FEAT_ARC, has_features (sw_if_index, FIRST_INPUT, FIRST_OUTPUT));
  l2output_intf_bitmap_enable (sw_if_index, L2OUTPUT_FEAT_OUTPUT_FEAT_ARC, has_features (sw_if_index, FIRST_OUTPUT, ARRAY_LEN (places)));
}

/* An adjacency has a copy of what is on at the output of its interface. VPP makes one for multicast
 * without looking at that. */
static u8
output_arc (ip_adjacency_t *adj)
{
  return adj->ia_link == VNET_LINK_IP4 ? ip4_main.lookup_main.output_feature_arc_index :
	 adj->ia_link == VNET_LINK_IP6 ? ip6_main.lookup_main.output_feature_arc_index :
	 adj->ia_link == VNET_LINK_MPLS ? mpls_main.output_feature_arc_index :
					  (u8) ~0;
}

static adj_walk_rc_t
count_blind (adj_index_t ai, void *count)
{
  ip_adjacency_t *adj = adj_get (ai);
  u8 arc = output_arc (adj);
  *(int *) count += arc != (u8) ~0 && vnet_have_features (arc, adj->rewrite_header.sw_if_index) &&
		    !(adj->rewrite_header.flags & VNET_REWRITE_HAS_FEATURES);
  return ADJ_WALK_RC_CONTINUE;
}

static adj_walk_rc_t
show_output (adj_index_t ai, void *nothing)
{
  ip_adjacency_t *adj = adj_get (ai);
  u32 sw_if_index = adj->rewrite_header.sw_if_index;
  u8 arc = output_arc (adj);
  if (arc != (u8) ~0 && vnet_have_features (arc, sw_if_index))
    {
      adj->ia_cfg_index = vnet_get_feature_config_index (arc, sw_if_index);
      adj->rewrite_header.flags |= VNET_REWRITE_HAS_FEATURES;
    }
  return ADJ_WALK_RC_CONTINUE;
}

static void
adjacency_created (adj_index_t ai)
{
  ip_adjacency_t *adj = adj_get (ai);
  if (adj->lookup_next_index == IP_LOOKUP_NEXT_MCAST && clib_bitmap_get (sluice_main.enabled, adj->rewrite_header.sw_if_index))
    show_output (ai, 0);
}

static void
set_gates (u32 sw_if_index, int closed)
{
  for (struct place *g = gates; g < gates + ARRAY_LEN (gates); g++)
    if (is_on (g, sw_if_index) != closed)
      set (g, sw_if_index, closed);
}

void
sluice_enable (u32 sw_if_index, int enable)
{
  set_gates (sw_if_index, enable && is_taken (sw_if_index));
  if (enable)
    sluice_end_patches (sw_if_index);
  for (struct place *p = places; p < places + ARRAY_LEN (places); p++)
    if (is_on (p, sw_if_index) != enable)
      set (p, sw_if_index, enable);
  set_bits (sw_if_index);
  if (enable)
    adj_walk (sw_if_index, show_output, 0);
}

int
sluice_gaps (u32 sw_if_index)
{
  int n = 0;
  for (struct place *p = places; p < places + ARRAY_LEN (places); p++)
    n += !is_on (p, sw_if_index);
  if (!has_bits (sw_if_index) && sluice_is_bridged (sw_if_index))
    n++;
  for (struct place *g = gates; g < gates + ARRAY_LEN (gates); g++)
    n += !is_on (g, sw_if_index) && is_taken (sw_if_index);
  adj_walk (sw_if_index, count_blind, &n);
  return n;
}

void
sluice_close (u32 sw_if_index)
{
  sluice_main_t *sm = &sluice_main;
  int gaps = sluice_gaps (sw_if_index);
  sluice_enable (sw_if_index, 1);
  if (!gaps)
    return;
  sm->repaired += gaps;
  clib_warning ("interface %U: others took %d of the places away where its packets are judged; they are back", format_vnet_sw_if_index_name,
		vnet_get_main (), sw_if_index, gaps);
}

/* feature_changed undoes at once what another process does to one of our places. While an interface
 * is deleted, VPP calls it for one arc after the other, before the features of that one go: so it
 * looks at no other arc. */
static void
feature_changed (u32 sw_if_index, u8 arc, u8 is_enable, void *nothing)
{
  if (!clib_bitmap_get (sluice_main.enabled, sw_if_index))
    return;
  for (struct place *g = gates; g < gates + ARRAY_LEN (gates); g++)
    if (g->index == arc)
      set_gates (sw_if_index, is_taken (sw_if_index));
  for (struct place *p = places; p < places + ARRAY_LEN (places); p++)
    if (p->index == arc && !is_on (p, sw_if_index))
      sluice_close (sw_if_index);
}

void
sluice_watch_arcs (void)
{
  adj_delegate_vft_t created = { .adv_adj_created = adjacency_created };
  for (struct place *p = places; p < places + ARRAY_LEN (places); p++)
    p->index = vnet_get_feature_arc_index (p->arc);
  for (struct place *g = gates; g < gates + ARRAY_LEN (gates); g++)
    g->index = vnet_get_feature_arc_index (g->arc);
  adj_delegate_register_new_type (&created);
  vnet_feature_register (feature_changed, 0); /* last, so that all others see what it does */
}
