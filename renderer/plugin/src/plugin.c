/* The plugin: its configuration, its API, and the interfaces that it blocks by itself. */
#include <vlib/vlib.h>
#include <vlib/unix/unix.h>
#include <vlibapi/api.h>
#include <vlibmemory/api.h>
#include <vnet/l2/l2_input.h>
#include <vnet/plugin/plugin.h>

#include "plugin.h"
#include "judge.h"

#include <sluice/sluice.api_enum.h>
#include <sluice/sluice.api_types.h>

#define REPLY_MSG_ID_BASE sluice_main.msg_id_base
#include <vlibapi/api_helper_macros.h>

sluice_main_t sluice_main = { .problem = "no directory is set" };

/* The prefix of the tags of pods' interfaces. Package renderer/vpp has the same one. */
#define POD_TAG "sluice/pod/"

/* map_memory returns 0, or why the memory of a directory cannot be mapped. */
static const char *
map_memory (vlib_main_t *vm, const char *directory)
{
  sluice_main_t *sm = &sluice_main;
  const char *problem;
  vlib_worker_thread_barrier_sync (vm);
  problem = judge_open (directory, vlib_get_n_threads ());
  vlib_worker_thread_barrier_release (vm);
  if (!problem || !judge_inode ())
    {
      strncpy (sm->directory, directory, sizeof (sm->directory) - 1);
      sm->problem = problem;
    }
  if (problem)
    clib_warning ("memory %s: %s", directory, problem);
  return problem;
}

/* judged makes the packets of an interface be judged, or ends that. */
static void
judged (u32 sw_if_index, int enable)
{
  sluice_main_t *sm = &sluice_main;
  if (clib_bitmap_get (sm->enabled, sw_if_index) == enable)
    return;
  sluice_enable (sw_if_index, enable);
  sm->enabled = clib_bitmap_set (sm->enabled, sw_if_index, enable);
}

static u8 *
tag_of (u32 sw_if_index)
{
  return vnet_get_sw_interface_tag (vnet_get_main (), sw_if_index);
}

/* An interface with the tag of a pod is blocked from the moment when it goes up until it is bound. */
static clib_error_t *
admin_up_down (vnet_main_t *vnm, u32 sw_if_index, u32 flags)
{
  u8 *tag = tag_of (sw_if_index);
  if (flags & VNET_SW_INTERFACE_FLAG_ADMIN_UP && tag && !strncmp ((char *) tag, POD_TAG, strlen (POD_TAG)))
    judged (sw_if_index, 1);
  return 0;
}

VNET_SW_INTERFACE_ADMIN_UP_DOWN_FUNCTION (admin_up_down);

/* The index of an interface that is gone is given to another one. */
static clib_error_t *
add_del (vnet_main_t *vnm, u32 sw_if_index, u32 is_add)
{
  sluice_main_t *sm = &sluice_main;
  sm->bound = clib_bitmap_set (sm->bound, sw_if_index, 0);
  judged (sw_if_index, 0);
  return 0;
}

VNET_SW_INTERFACE_ADD_DEL_FUNCTION (add_del);

static void
vl_api_sluice_open_t_handler (vl_api_sluice_open_t *mp)
{
  vl_api_sluice_open_reply_t *rmp;
  char directory[sizeof (mp->directory)] = {};
  const char *problem;
  int rv;
  strncpy (directory, (char *) mp->directory, sizeof (directory) - 1);
  problem = map_memory (vlib_get_main (), directory);
  rv = problem ? VNET_API_ERROR_INVALID_VALUE : 0;
  REPLY_MACRO2 (VL_API_SLUICE_OPEN_REPLY, ({
		  rmp->layout = htonl (judge_version ());
		  clib_memset (rmp->problem, 0, sizeof (rmp->problem));
		  if (problem)
		    strncpy ((char *) rmp->problem, problem, sizeof (rmp->problem) - 1);
		}));
}

static void
vl_api_sluice_get_t_handler (vl_api_sluice_get_t *mp)
{
  sluice_main_t *sm = &sluice_main;
  vl_api_sluice_get_reply_t *rmp;
  u32 count = clib_bitmap_count_set_bits (sm->bound);
  int rv = 0;
  REPLY_MACRO3 (VL_API_SLUICE_GET_REPLY, count * sizeof (rmp->bound[0]), ({
		  u32 n = 0;
		  uword i;
		  rmp->layout = htonl (judge_version ());
		  rmp->inode = clib_host_to_net_u64 (judge_inode ());
		  rmp->count = htonl (count);
		  clib_bitmap_foreach (i, sm->bound)
		    rmp->bound[n++] = htonl (i);
		}));
}

/* is_bridged reports whether an interface switches frames, so that no node for IP sees them. */
static int
is_bridged (u32 sw_if_index)
{
  l2_input_config_t *c = l2input_intf_config (sw_if_index);
  return l2_input_is_bridge (c) || l2_input_is_xconnect (c);
}

static int
bind_interface (u32 sw_if_index, int bind, const char *want)
{
  sluice_main_t *sm = &sluice_main;
  u8 *tag;
  if (!vnet_sw_interface_is_api_valid (vnet_get_main (), sw_if_index))
    return VNET_API_ERROR_INVALID_SW_IF_INDEX;
  tag = tag_of (sw_if_index);
  if (strncmp (tag ? (char *) tag : "", want, 63))
    return VNET_API_ERROR_INVALID_SW_IF_INDEX;
  if (bind && is_bridged (sw_if_index))
    return VNET_API_ERROR_INVALID_INTERFACE;
  sm->bound = clib_bitmap_set (sm->bound, sw_if_index, bind);
  judged (sw_if_index, 1);
  return 0;
}

static void
vl_api_sluice_bind_t_handler (vl_api_sluice_bind_t *mp)
{
  vl_api_sluice_bind_reply_t *rmp;
  char tag[sizeof (mp->tag)] = {};
  int rv;
  strncpy (tag, (char *) mp->tag, sizeof (tag) - 1);
  rv = bind_interface (ntohl (mp->sw_if_index), mp->bind, tag);
  REPLY_MACRO (VL_API_SLUICE_BIND_REPLY);
}

#define REASON_TEXT(name, text) text,
static const char *reason_texts[] = { FOREACH_REASON (REASON_TEXT) };

static clib_error_t *
show_sluice (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *command)
{
  sluice_main_t *sm = &sluice_main;
  uword i;
  vlib_cli_output (vm, "memory: %s%s%s", sm->directory, sm->problem ? ": " : "", sm->problem ? sm->problem : "");
  vlib_cli_output (vm, "connections: %u", judge_connections ());
  for (i = 1; i < ARRAY_LEN (reason_texts); i++)
    if (judge_dropped (i))
      vlib_cli_output (vm, "dropped, %s: %llu", reason_texts[i], judge_dropped (i));
  clib_bitmap_foreach (i, sm->enabled)
    {
      u8 *tag = tag_of (i);
      vlib_cli_output (vm, "interface %U: %s, tag %s", format_vnet_sw_if_index_name, vnet_get_main (), i,
		       clib_bitmap_get (sm->bound, i) ? "bound" : "blocked", tag ? (char *) tag : "none");
    }
  return 0;
}

VLIB_CLI_COMMAND (show_sluice_command, static) = {
  .path = "show sluice",
  .short_help = "show sluice",
  .function = show_sluice,
};

/* sluice { directory /run/sluice/vpp } */
static clib_error_t *
configure (vlib_main_t *vm, unformat_input_t *input)
{
  sluice_main_t *sm = &sluice_main;
  u8 *directory = 0;
  while (unformat_check_input (input) != UNFORMAT_END_OF_INPUT)
    {
      if (!unformat (input, "directory %s", &directory))
	return clib_error_return (0, "sluice: unknown input `%U'", format_unformat_error, input);
      vec_add1 (directory, 0);
      strncpy (sm->directory, (char *) directory, sizeof (sm->directory) - 1);
      vec_free (directory);
    }
  return 0;
}

VLIB_CONFIG_FUNCTION (configure, "sluice");

/* The policy of the last agent is enforced from the first packet on. */
static clib_error_t *
enter_main_loop (vlib_main_t *vm)
{
  sluice_main_t *sm = &sluice_main;
  if (sm->directory[0])
    map_memory (vm, sm->directory);
  return 0;
}

VLIB_MAIN_LOOP_ENTER_FUNCTION (enter_main_loop);

#include <sluice/sluice.api.c>

static clib_error_t *
init (vlib_main_t *vm)
{
  sluice_main.msg_id_base = setup_message_id_table ();
  return 0;
}

VLIB_INIT_FUNCTION (init);

VLIB_PLUGIN_REGISTER () = {
  .version = "1",
  .description = "Sluice: network policy from shared memory",
};
