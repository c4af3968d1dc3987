/* The plugin: its configuration, its API, and the interfaces that it blocks by itself. */
#include <vlib/vlib.h>
#include <vlib/stats/stats.h>
#include <vlib/unix/unix.h>
#include <vlibapi/api.h>
#include <vlibmemory/api.h>
#include <vnet/interface.api_types.h>
#include <vnet/l2/l2_input.h>
#include <vnet/plugin/plugin.h>

#include "plugin.h"
#include "judge.h"

#include <sluice/sluice.api_enum.h>
#include <sluice/sluice.api_types.h>

#define REPLY_MSG_ID_BASE sluice_main.msg_id_base
#include <vlibapi/api_helper_macros.h>

sluice_main_t sluice_main = { .problem = "no directory is set" };

/* The prefix of the tags of pods' interfaces, and the tags of one that was a pod's and is not, and of
 * one that leads to other nodes.
 * Packages renderer/vpp and renderer/acl have the same ones. */
#define POD_TAG "sluice/pod/"
#define RELEASED_TAG "sluice/released"
#define UPLINK_TAG "sluice/uplink"

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

static int
is_pods (const char *tag)
{
  return !strncmp (tag, POD_TAG, strlen (POD_TAG));
}

/* retagged does what follows from the tag of an interface, which may have changed. An interface with
 * the tag of a pod is blocked from the moment when it is up until it is bound. A binding holds for
 * one tag. An interface that was judged stays so without a tag. */
static void
retagged (u32 sw_if_index, int is_up)
{
  sluice_main_t *sm = &sluice_main;
  u8 *now = tag_of (sw_if_index);
  char *tag = now ? (char *) now : "";
  if (clib_bitmap_get (sm->bound, sw_if_index) && strcmp (sm->tags[sw_if_index].text, tag))
    sm->bound = clib_bitmap_set (sm->bound, sw_if_index, 0);
  if (!strcmp (tag, RELEASED_TAG))
    judged (sw_if_index, 0);
  else if (is_pods (tag) && is_up && !sm->released)
    judged (sw_if_index, 1);
  sm->uplinks = clib_bitmap_set (sm->uplinks, sw_if_index, sm->by_origin && !strcmp (tag, UPLINK_TAG));
}

static clib_error_t *
admin_up_down (vnet_main_t *vnm, u32 sw_if_index, u32 flags)
{
  retagged (sw_if_index, !!(flags & VNET_SW_INTERFACE_FLAG_ADMIN_UP));
  return 0;
}

VNET_SW_INTERFACE_ADMIN_UP_DOWN_FUNCTION (admin_up_down);

/* VPP sends no event when a tag changes. So the plugin calls the handlers that change tags, in
 * their place, while all workers stand still. */
static void (*change_tag) (void *);
static vlib_cli_command_function_t *set_tag, *clear_tag;

static void
change_tag_and_judge (void *message)
{
  vl_api_sw_interface_tag_add_del_t *mp = message;
  u32 sw_if_index = ntohl (mp->sw_if_index);
  change_tag (message);
  if (vnet_sw_interface_is_api_valid (vnet_get_main (), sw_if_index))
    retagged (sw_if_index, vnet_sw_interface_is_admin_up (vnet_get_main (), sw_if_index));
}

static walk_rc_t
retagged_one (vnet_main_t *vnm, vnet_sw_interface_t *si, void *nothing)
{
  retagged (si->sw_if_index, !!(si->flags & VNET_SW_INTERFACE_FLAG_ADMIN_UP));
  return WALK_CONTINUE;
}

/* release ends that the plugin judges packets. From then on it judges those of interfaces that an
 * agent binds, until all are held again. */
static void
release (int released)
{
  sluice_main_t *sm = &sluice_main;
  sm->released = released;
  if (!released)
    vnet_sw_interface_walk (vnet_get_main (), retagged_one, 0);
  for (uword i = clib_bitmap_first_set (sm->enabled); released && i != ~0; i = clib_bitmap_next_set (sm->enabled, i))
    {
      sm->bound = clib_bitmap_set (sm->bound, i, 0);
      judged (i, 0);
    }
}

static clib_error_t *
set_tag_and_judge (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *command)
{
  clib_error_t *error = set_tag (vm, input, command);
  vnet_sw_interface_walk (vnet_get_main (), retagged_one, 0);
  return error;
}

static clib_error_t *
clear_tag_and_judge (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *command)
{
  clib_error_t *error = clear_tag (vm, input, command);
  vnet_sw_interface_walk (vnet_get_main (), retagged_one, 0);
  return error;
}

static clib_error_t *
watch_tags_of_api (vlib_main_t *vm)
{
  api_main_t *am = vlibapi_get_main ();
  vl_api_msg_data_t *data = vl_api_get_msg_data (am, vl_msg_api_get_msg_index ((u8 *) VL_API_SW_INTERFACE_TAG_ADD_DEL_CRC));
  if (!data || !data->handler)
    return clib_error_return (0, "sluice: this VPP sets tags of interfaces in another way");
  change_tag = data->handler;
  data->handler = change_tag_and_judge;
  data->is_mp_safe = 0;
  return 0;
}

VLIB_API_INIT_FUNCTION (watch_tags_of_api) = {
  .runs_after = VLIB_INITS ("interface_api_hookup"),
};

static clib_error_t *
watch_tags_of_cli (void)
{
  vlib_cli_command_t *c;
  vec_foreach (c, vlib_global_main.cli_main.commands)
    {
      if (c->path && !strcmp (c->path, "set interface tag"))
	{
	  set_tag = c->function;
	  c->function = set_tag_and_judge;
	}
      else if (c->path && !strcmp (c->path, "clear interface tag"))
	{
	  clear_tag = c->function;
	  c->function = clear_tag_and_judge;
	}
    }
  return set_tag && clear_tag ? 0 : clib_error_return (0, "sluice: this VPP has no commands for tags");
}

/* The index of an interface that is gone is given to another one. */
static clib_error_t *
add_del (vnet_main_t *vnm, u32 sw_if_index, u32 is_add)
{
  sluice_main_t *sm = &sluice_main;
  sm->bound = clib_bitmap_set (sm->bound, sw_if_index, 0);
  sm->uplinks = clib_bitmap_set (sm->uplinks, sw_if_index, 0);
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
  u32 count = clib_bitmap_count_set_bits (sm->enabled);
  int rv = 0;
  REPLY_MACRO3 (VL_API_SLUICE_GET_REPLY, count * sizeof (rmp->interfaces[0]), ({
		  u32 n = 0;
		  uword i;
		  rmp->layout = htonl (judge_version ());
		  rmp->inode = clib_host_to_net_u64 (judge_inode ());
		  rmp->released = sm->released;
		  rmp->count = htonl (count);
		  clib_bitmap_foreach (i, sm->enabled)
		    rmp->interfaces[n++] = (vl_api_sluice_interface_t){ .sw_if_index = htonl (i), .bound = clib_bitmap_get (sm->bound, i) };
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
  vec_validate (sm->tags, sw_if_index);
  strncpy (sm->tags[sw_if_index].text, tag ? (char *) tag : "", sizeof (sm->tags[0].text) - 1);
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

static void
vl_api_sluice_release_t_handler (vl_api_sluice_release_t *mp)
{
  vl_api_sluice_release_reply_t *rmp;
  int rv = 0;
  release (mp->release);
  REPLY_MACRO (VL_API_SLUICE_RELEASE_REPLY);
}

static clib_error_t *
sluice_release (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *command)
{
  release (1);
  return 0;
}

VLIB_CLI_COMMAND (sluice_release_command, static) = {
  .path = "sluice release",
  .short_help = "sluice release: judge no packets, until an agent binds interfaces",
  .function = sluice_release,
};

#define REASON_TEXT(name, text) text,
static const char *reason_texts[] = { FOREACH_REASON (REASON_TEXT) };

static clib_error_t *
show_sluice (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *command)
{
  sluice_main_t *sm = &sluice_main;
  uword i;
  vlib_cli_output (vm, "memory: %s%s%s", sm->directory, sm->problem ? ": " : "", sm->problem ? sm->problem : "");
  if (sm->released)
    vlib_cli_output (vm, "released: interfaces that no agent has bound are open");
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

static void
show_rule (vlib_main_t *vm, u32 rule, u64 packets)
{
  char name[RULE_NAME];
  judge_rule_name (rule, name);
  vlib_cli_output (vm, "rule %u: %llu packets: %s", rule, packets, name);
}

static u64
packets_of (u32 rule)
{
  u64 n = 0;
  for (u32 i = 0; i < vlib_get_n_threads (); i++)
    n += judge_decided (rule, i);
  return n;
}

static clib_error_t *
show_sluice_rule (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *command)
{
  u32 rule;
  if (unformat (input, "%u", &rule))
    show_rule (vm, rule, packets_of (rule));
  else
    for (rule = 1; rule < judge_rules (); rule++)
      {
	u64 packets = packets_of (rule);
	if (packets)
	  show_rule (vm, rule, packets);
      }
  return 0;
}

VLIB_CLI_COMMAND (show_sluice_rule_command, static) = {
  .path = "show sluice rule",
  .short_help = "show sluice rule [<number>]: those that decided about packets, or one",
  .function = show_sluice_rule,
};

/* collect copies counters of rules, as they are in the policy map in force, and the number of
 * connections to the statistics segment. */
static void
collect (vlib_stats_collector_data_t *d)
{
  sluice_main_t *sm = &sluice_main;
  u32 threads = vlib_get_n_threads (), last = 0;
  counter_t **counters;
  vlib_stats_set_gauge (sm->connections, judge_connections ());
  for (u32 rule = 1; rule < judge_rules (); rule++)
    if (packets_of (rule))
      last = rule;
  vlib_stats_validate (d->entry_index, threads - 1, last);
  counters = vlib_stats_get_entry_data_pointer (d->entry_index);
  for (u32 i = 0; i < threads; i++)
    for (u32 rule = 0; rule < vec_len (counters[i]); rule++)
      counters[i][rule] = judge_decided (rule, i);
}

/* sluice { directory /run/sluice/vpp-plugin node-by-origin } or sluice { released } */
static clib_error_t *
configure (vlib_main_t *vm, unformat_input_t *input)
{
  sluice_main_t *sm = &sluice_main;
  u8 *directory = 0;
  while (unformat_check_input (input) != UNFORMAT_END_OF_INPUT)
    {
      if (unformat (input, "released"))
	{
	  sm->released = 1;
	  continue;
	}
      if (unformat (input, "node-by-origin"))
	{
	  sm->by_origin = 1;
	  continue;
	}
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
  vnet_sw_interface_walk (vnet_get_main (), retagged_one, 0);
  return watch_tags_of_cli ();
}

VLIB_MAIN_LOOP_ENTER_FUNCTION (enter_main_loop);

#include <sluice/sluice.api.c>

static clib_error_t *
init (vlib_main_t *vm)
{
  sluice_main_t *sm = &sluice_main;
  vlib_stats_collector_reg_t reg = { .collect_fn = collect };
  sm->msg_id_base = setup_message_id_table ();
  vl_api_set_msg_thread_safe (vlibapi_get_main (), sm->msg_id_base + VL_API_SLUICE_GET, 1); /* workers go on */
  sm->connections = vlib_stats_add_gauge ("/sluice/connections");
  reg.entry_index = vlib_stats_add_counter_vector ("/sluice/rules");
  vlib_stats_register_collector_fn (&reg);
  return 0;
}

VLIB_INIT_FUNCTION (init);

VLIB_PLUGIN_REGISTER () = {
  .version = "1",
  .description = "Sluice: network policy from shared memory",
};
