/* VPP tells no plugin when the tag of an interface changes, whether it switches frames, or where a patch
 * leads. So the plugin calls the handlers of the messages and commands that change these, in their
 * place, while all workers stand still, and looks at the interfaces then. */
#include <vlib/vlib.h>
#include <vlib/unix/unix.h>
#include <vlibapi/api.h>
#include <vlibmemory/api.h>
#include <vnet/interface.api_types.h>
#include <vnet/feature/feature.h>
#include <vnet/l2/l2.api_types.h>

#include "plugin.h"

extern int vnet_l2_patch_add_del (u32 rx_sw_if_index, u32 tx_sw_if_index, int is_add);

static struct
{
  const char *name;
  u32 at; /* of the index of the interface in the message */
  void (*handler) (void *);
  u32 id;
} messages[] = {
  { VL_API_SW_INTERFACE_TAG_ADD_DEL_CRC, offsetof (vl_api_sw_interface_tag_add_del_t, sw_if_index) },
  { VL_API_SW_INTERFACE_SET_L2_BRIDGE_CRC, offsetof (vl_api_sw_interface_set_l2_bridge_t, rx_sw_if_index) },
  { VL_API_SW_INTERFACE_SET_L2_XCONNECT_CRC, offsetof (vl_api_sw_interface_set_l2_xconnect_t, rx_sw_if_index) },
  { VL_API_L2_PATCH_ADD_DEL_CRC, offsetof (vl_api_l2_patch_add_del_t, tx_sw_if_index) },
};

#define PATCH "test l2patch"

static struct
{
  const char *path;
  vlib_cli_command_function_t *function;
} commands[] = {
  { "set interface tag" }, { "clear interface tag" }, { "set interface l2 bridge" }, { "set interface l2 xconnect" }, { "set interface l3" }, { PATCH },
};

/* has_path compares the path of a command, a vector without an end mark. */
static int
has_path (vlib_cli_command_t *c, const char *path)
{
  return vec_len (c->path) == strlen (path) && !memcmp (c->path, path, strlen (path));
}

/* The destinations of patches, by the interface whose frames they take; ~0: none. */
static u32 *patches;

static void
note_patch (u32 from, u32 to)
{
  vec_validate_init_empty (patches, from, ~0);
  patches[from] = to;
}

void
sluice_end_patches (u32 to)
{
  for (u32 from = 0; from < vec_len (patches); from++)
    if (patches[from] == to)
      {
	patches[from] = ~0;
	if (!vnet_sw_interface_is_api_valid (vnet_get_main (), from) || vnet_feature_is_enabled ("device-input", "l2-patch", from) != 1)
	  continue; /* it is gone */
	vnet_l2_patch_add_del (from, to, 0);
	clib_warning ("the patch of interface %U to %U is removed: what it sends there is not judged", format_vnet_sw_if_index_name,
		      vnet_get_main (), from, format_vnet_sw_if_index_name, vnet_get_main (), to);
      }
}

/* read_patch notes the patch that a command is about to make, which reads its input afterwards. */
static void
read_patch (unformat_input_t *input)
{
  unformat_input_t copy;
  u32 from = ~0, to = ~0;
  u8 *rest = 0;
  vec_add (rest, input->buffer + input->index, vec_len (input->buffer) - input->index);
  unformat_init_vector (&copy, rest);
  while (unformat_check_input (&copy) != UNFORMAT_END_OF_INPUT)
    if (unformat (&copy, "del"))
      from = ~0;
    else if (!unformat (&copy, "rx %U", unformat_vnet_sw_interface, vnet_get_main (), &from) &&
	     !unformat (&copy, "tx %U", unformat_vnet_sw_interface, vnet_get_main (), &to))
      break;
  unformat_free (&copy);
  if (from != ~0 && to != ~0)
    note_patch (from, to);
}

static void
handle_and_look (void *message)
{
  vl_api_l2_patch_add_del_t *patch = message;
  u32 sw_if_index;
  if (ntohs (clib_mem_unaligned (message, u16)) == messages[ARRAY_LEN (messages) - 1].id && patch->is_add &&
      vnet_sw_interface_is_api_valid (vnet_get_main (), ntohl (patch->rx_sw_if_index)))
    note_patch (ntohl (patch->rx_sw_if_index), ntohl (patch->tx_sw_if_index));
  for (u32 i = 0; i < ARRAY_LEN (messages); i++)
    if (ntohs (clib_mem_unaligned (message, u16)) == messages[i].id)
      {
	sw_if_index = ntohl (clib_mem_unaligned (message + messages[i].at, u32));
	messages[i].handler (message);
	if (vnet_sw_interface_is_api_valid (vnet_get_main (), sw_if_index))
	  sluice_look (sw_if_index);
	return;
      }
}

static clib_error_t *
run_and_look (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *command)
{
  clib_error_t *error = 0;
  for (u32 i = 0; i < ARRAY_LEN (commands); i++)
    if (has_path (command, commands[i].path))
      {
	if (!strcmp (commands[i].path, PATCH))
	  read_patch (input);
	error = commands[i].function (vm, input, command);
      }
  sluice_look_at_all ();
  return error;
}

static clib_error_t *
watch_messages (vlib_main_t *vm)
{
  api_main_t *am = vlibapi_get_main ();
  for (u32 i = 0; i < ARRAY_LEN (messages); i++)
    {
      u32 id = vl_msg_api_get_msg_index ((u8 *) messages[i].name);
      vl_api_msg_data_t *data = vl_api_get_msg_data (am, id);
      if (!data || !data->handler)
	return clib_error_return (0, "sluice: this VPP changes interfaces in another way: it has no message %s", messages[i].name);
      messages[i].id = id;
      messages[i].handler = data->handler;
      data->handler = handle_and_look;
      data->is_mp_safe = 0;
    }
  return 0;
}

VLIB_API_INIT_FUNCTION (watch_messages) = {
  .runs_after = VLIB_INITS ("interface_api_hookup", "l2_api_hookup"),
};

clib_error_t *
sluice_watch_commands (void)
{
  vlib_cli_command_t *c;
  for (u32 i = 0; i < ARRAY_LEN (commands); i++)
    {
      vec_foreach (c, vlib_global_main.cli_main.commands)
	if (has_path (c, commands[i].path))
	  {
	    commands[i].function = c->function;
	    c->function = run_and_look;
	  }
      if (!commands[i].function)
	return clib_error_return (0, "sluice: this VPP has no command %s", commands[i].path);
    }
  return 0;
}
