/* Nodes that ask npol about each packet, to measure it: npol of VPP has no node of its own, and no other
 * plugin asks it. This is built together with npol's files in the tree of VPP. */
#include <vlib/vlib.h>
#include <vnet/vnet.h>
#include <vnet/feature/feature.h>
#include <vnet/plugin/plugin.h>

#include <npol/npol.h>
#include <npol/npol_match.h>
#include <acl/public_inlines.h>

npol_main_t npol_main;
static acl_plugin_methods_t acl_plugin;

enum
{
  NEXT_DROP,
  N_NEXT,
};

static_always_inline uword
ask (vlib_main_t *vm, vlib_frame_t *frame, vlib_node_runtime_t *node, int is_ip6)
{
  u32 *from = vlib_frame_vector_args (frame), n = frame->n_vectors;
  vlib_buffer_t *bufs[VLIB_FRAME_SIZE];
  u16 nexts[VLIB_FRAME_SIZE];
  vlib_get_buffers (vm, from, bufs, n);
  for (u32 i = 0; i < n; i++)
    {
      u32 sw_if_index = vnet_buffer (bufs[i])->sw_if_index[VLIB_RX], next;
      fa_5tuple_t tuple = {};
      u8 action = NPOL_ACTION_DENY;
      acl_fill_5tuple (acl_plugin.p_acl_main, sw_if_index, bufs[i], is_ip6, 1, 0, &tuple);
      npol_match_func (sw_if_index, 1, &tuple, is_ip6, &action);
      vnet_feature_next (&next, bufs[i]);
      nexts[i] = action == NPOL_ACTION_DENY ? NEXT_DROP : next;
    }
  vlib_buffer_enqueue_to_next (vm, node, from, nexts, n);
  return n;
}

VLIB_NODE_FN (npol_asked_ip4) (vlib_main_t *vm, vlib_node_runtime_t *node, vlib_frame_t *frame) { return ask (vm, frame, node, 0); }
VLIB_NODE_FN (npol_asked_ip6) (vlib_main_t *vm, vlib_node_runtime_t *node, vlib_frame_t *frame) { return ask (vm, frame, node, 1); }

#define NODE(id, text) \
  VLIB_REGISTER_NODE (id) = { \
    .name = text, \
    .vector_size = sizeof (u32), \
    .n_next_nodes = N_NEXT, \
    .next_nodes = { [NEXT_DROP] = "error-drop" }, \
  }
NODE (npol_asked_ip4, "npol-asked-ip4");
NODE (npol_asked_ip6, "npol-asked-ip6");

VNET_FEATURE_INIT (npol_asked_ip4_feature, static) = {
  .arc_name = "ip4-unicast",
  .node_name = "npol-asked-ip4",
  .runs_before = VNET_FEATURES ("ip4-lookup"),
};
VNET_FEATURE_INIT (npol_asked_ip6_feature, static) = {
  .arc_name = "ip6-unicast",
  .node_name = "npol-asked-ip6",
  .runs_before = VNET_FEATURES ("ip6-lookup"),
};

/* npol_ask has policy 0 decide about what comes from an interface; what it does not permit is denied. */
static clib_error_t *
npol_ask (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *cmd)
{
  npol_interface_config_t conf = { .policy_default_rx = NPOL_DEFAULT_DENY, .policy_default_tx = NPOL_DEFAULT_DENY };
  u32 sw_if_index;
  if (!unformat (input, "%U", unformat_vnet_sw_interface, vnet_get_main (), &sw_if_index))
    return clib_error_return (0, "an interface is needed");
  vec_add1 (conf.rx_policies, 0);
  if (npol_configure_policies (sw_if_index, &conf))
    return clib_error_return (0, "there is no policy 0");
  vnet_feature_enable_disable ("ip4-unicast", "npol-asked-ip4", sw_if_index, 1, 0, 0);
  vnet_feature_enable_disable ("ip6-unicast", "npol-asked-ip6", sw_if_index, 1, 0, 0);
  return 0;
}

VLIB_CLI_COMMAND (npol_ask_command, static) = {
  .path = "npol ask",
  .short_help = "npol ask <interface>: policy 0, about each packet that comes from it",
  .function = npol_ask,
};

static clib_error_t *
npol_asked_init (vlib_main_t *vm)
{
  return acl_plugin_exports_init (&acl_plugin);
}

VLIB_INIT_FUNCTION (npol_asked_init);

VLIB_PLUGIN_REGISTER () = {
  .version = "1",
  .description = "Asks npol about packets, to measure it",
};
