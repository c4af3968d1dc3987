/* The plugin: its configuration, its API, and the interfaces that it blocks by itself. */
#include <vlib/vlib.h>
#include <vlib/stats/stats.h>
#include <vlib/unix/unix.h>
#include <vlibapi/api.h>
#include <vlibmemory/api.h>
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

/* map_memory returns 0, or why the memory of a directory cannot be mapped. With only_check, it does
 * not replace what is mapped. Workers wait while pointers change: what was mapped before judges until
 * then. */
static const char *
map_memory (vlib_main_t *vm, const char *directory, int only_check)
{
  sluice_main_t *sm = &sluice_main;
  const char *problem = judge_open (directory, vlib_get_n_threads ());
  if (!problem && !only_check)
    {
      vlib_worker_thread_barrier_sync (vm);
      judge_switch ();
      vlib_worker_thread_barrier_release (vm);
    }
  judge_close ();
  if (!only_check && (!problem || !judge_inode ()))
    {
      if (directory != sm->directory)
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
  sm->enabled = clib_bitmap_set (sm->enabled, sw_if_index, 0); /* so that feature_changed puts nothing back */
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

/* look_at returns how much of what the plugin does at an interface differs from what follows from its
 * state, and changes it if it shall act. An interface with the tag of a pod is blocked from the
 * moment when it is up until it is bound; so are its sub-interfaces, unless they have a tag. A binding
 * holds for one tag, and while the interface is routed. One that was judged stays so without a tag. */
static int
look_at (vnet_sw_interface_t *si, int act)
{
  sluice_main_t *sm = &sluice_main;
  u32 i = si->sw_if_index;
  u8 *own = tag_of (i), *now = own ? own : tag_of (si->sup_sw_if_index);
  const char *tag = now ? (char *) now : "";
  int was_bound = clib_bitmap_get (sm->bound, i), was_judged = clib_bitmap_get (sm->enabled, i), was_uplink = clib_bitmap_get (sm->uplinks, i);
  int is_bound = was_bound && !strcmp (sm->tags[i].text, own ? (char *) own : "") && !sluice_is_bridged (i);
  int is_judged = was_judged, is_uplink = sm->by_origin && own && !strcmp (tag, UPLINK_TAG);
  if (!strcmp (tag, RELEASED_TAG))
    is_judged = 0;
  else if (is_pods (tag) && si->flags & VNET_SW_INTERFACE_FLAG_ADMIN_UP && !sm->released)
    is_judged = 1;
  if (act)
    {
      sm->bound = clib_bitmap_set (sm->bound, i, is_bound);
      sm->uplinks = clib_bitmap_set (sm->uplinks, i, is_uplink);
      judged (i, is_judged);
      if (is_judged)
	sluice_close (i);
    }
  return (is_bound != was_bound) + (is_judged != was_judged) + (is_uplink != was_uplink);
}

static walk_rc_t
look_at_one (vnet_main_t *vnm, u32 sw_if_index, void *nothing)
{
  look_at (vnet_get_sw_interface (vnm, sw_if_index), 1);
  return WALK_CONTINUE;
}

void
sluice_look (u32 sw_if_index)
{
  vnet_main_t *vnm = vnet_get_main ();
  vnet_hw_interface_walk_sw (vnm, vnet_get_sup_hw_interface (vnm, sw_if_index)->hw_if_index, look_at_one, 0);
}

static walk_rc_t
look_at_each (vnet_main_t *vnm, vnet_sw_interface_t *si, void *nothing)
{
  look_at (si, 1);
  return WALK_CONTINUE;
}

void
sluice_look_at_all (void)
{
  vnet_sw_interface_walk (vnet_get_main (), look_at_each, 0);
}

static clib_error_t *
admin_up_down (vnet_main_t *vnm, u32 sw_if_index, u32 flags)
{
  look_at (vnet_get_sw_interface (vnm, sw_if_index), 1);
  return 0;
}

VNET_SW_INTERFACE_ADMIN_UP_DOWN_FUNCTION (admin_up_down);

static walk_rc_t
count_differences (vnet_main_t *vnm, vnet_sw_interface_t *si, void *count)
{
  *(int *) count += look_at (si, 0);
  if (clib_bitmap_get (sluice_main.enabled, si->sw_if_index))
    *(int *) count += sluice_gaps (si->sw_if_index);
  return WALK_CONTINUE;
}

/* What changes interfaces without a message or command that the plugin watches is found once a
 * second. Workers wait only if something was. */
static uword
look_each_second (vlib_main_t *vm, vlib_node_runtime_t *node, vlib_frame_t *frame)
{
  while (1)
    {
      int differences = 0;
      vlib_process_suspend (vm, 1.0);
      vnet_sw_interface_walk (vnet_get_main (), count_differences, &differences);
      if (!differences)
	continue;
      vlib_worker_thread_barrier_sync (vm);
      sluice_look_at_all ();
      vlib_worker_thread_barrier_release (vm);
    }
  return 0;
}

VLIB_REGISTER_NODE (sluice_process) = {
  .function = look_each_second,
  .type = VLIB_NODE_TYPE_PROCESS,
  .name = "sluice-process",
};

/* release ends that the plugin judges packets. From then on it judges those of interfaces that an
 * agent binds, until all are held again. */
static void
release (int released)
{
  sluice_main_t *sm = &sluice_main;
  sm->released = released;
  if (!released)
    sluice_look_at_all ();
  for (uword i = clib_bitmap_first_set (sm->enabled); released && i != ~0; i = clib_bitmap_next_set (sm->enabled, i))
    {
      sm->bound = clib_bitmap_set (sm->bound, i, 0);
      judged (i, 0);
    }
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
  problem = map_memory (vlib_get_main (), directory, mp->only_check);
  rv = problem ? VNET_API_ERROR_INVALID_VALUE : 0;
  REPLY_MACRO2 (VL_API_SLUICE_OPEN_REPLY, ({
		  rmp->layout = htonl (judge_version ());
		  clib_memset (rmp->problem, 0, sizeof (rmp->problem));
		  if (problem)
		    strncpy ((char *) rmp->problem, problem, sizeof (rmp->problem) - 1);
		}));
}

/* state_of returns what becomes of the packets of an interface that is judged. */
static vl_api_sluice_state_t
state_of (u32 sw_if_index)
{
  if (sluice_gaps (sw_if_index))
    return SLUICE_API_OPEN;
  if (sluice_is_bridged (sw_if_index))
    return SLUICE_API_BRIDGED;
  return clib_bitmap_get (sluice_main.bound, sw_if_index) ? SLUICE_API_BOUND : SLUICE_API_BLOCKED;
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
		  rmp->repaired = clib_host_to_net_u64 (sm->repaired);
		  rmp->count = htonl (count);
		  clib_bitmap_foreach (i, sm->enabled)
		    rmp->interfaces[n++] = (vl_api_sluice_interface_t){ .sw_if_index = htonl (i), .state = state_of (i) };
		}));
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
  vec_validate (sm->tags, sw_if_index);
  strncpy (sm->tags[sw_if_index].text, tag ? (char *) tag : "", sizeof (sm->tags[0].text) - 1);
  sm->bound = clib_bitmap_set (sm->bound, sw_if_index, bind && !sluice_is_bridged (sw_if_index));
  judged (sw_if_index, 1);
  sluice_close (sw_if_index);
  return bind && sluice_is_bridged (sw_if_index) ? VNET_API_ERROR_INVALID_INTERFACE : sluice_gaps (sw_if_index) ? VNET_API_ERROR_FEATURE_DISABLED : 0;
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

/* connections returns how many connections of bound interfaces are tracked. */
static u32
connections (void)
{
  u32 n = 0;
  uword i;
  clib_bitmap_foreach (i, sluice_main.bound)
    n += judge_connections (i);
  return n;
}

#define REASON_TEXT(name, text) text,
static const char *reason_texts[] = { FOREACH_REASON (REASON_TEXT) };

static const char *states[] = {
  [SLUICE_API_BLOCKED] = "blocked",
  [SLUICE_API_BOUND] = "bound",
  [SLUICE_API_BRIDGED] = "blocked (bridged or cross-connected)",
  [SLUICE_API_OPEN] = "open (an arc has lost its node)",
};

static clib_error_t *
show_sluice (vlib_main_t *vm, unformat_input_t *input, vlib_cli_command_t *command)
{
  sluice_main_t *sm = &sluice_main;
  uword i;
  vlib_cli_output (vm, "memory: %s%s%s", sm->directory, sm->problem ? ": " : "", sm->problem ? sm->problem : "");
  if (!sm->problem && !judge_inode ())
    vlib_cli_output (vm, "a file was truncated: all packets of pods are dropped");
  if (sm->released)
    vlib_cli_output (vm, "released: interfaces that no agent has bound are open");
  vlib_cli_output (vm, "connections: %u", connections ());
  if (sm->repaired)
    vlib_cli_output (vm, "taken away by others, and put back: %llu", sm->repaired);
  for (i = 1; i < ARRAY_LEN (reason_texts); i++)
    if (judge_dropped (i))
      vlib_cli_output (vm, "dropped, %s: %llu", reason_texts[i], judge_dropped (i));
  clib_bitmap_foreach (i, sm->enabled)
    {
      u8 *tag = tag_of (i);
      vlib_cli_output (vm, "interface %U: %s, tag %s", format_vnet_sw_if_index_name, vnet_get_main (), i,
		       states[state_of (i)], tag ? (char *) tag : "none");
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
  u32 threads = vlib_get_n_threads (), rules = judge_rules ();
  counter_t **counters;
  vlib_stats_set_gauge (sm->connections, connections ());
  vlib_stats_validate (d->entry_index, threads - 1, rules ? rules - 1 : 0);
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
    map_memory (vm, sm->directory, 0);
  if (judge_survive ())
    return clib_error_return_unix (0, "sluice: sigaction");
  sluice_watch_arcs ();
  sluice_look_at_all ();
  return sluice_watch_commands ();
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
  vl_api_set_msg_thread_safe (vlibapi_get_main (), sm->msg_id_base + VL_API_SLUICE_OPEN, 1);
  sm->connections = vlib_stats_add_gauge ("/sluice/connections");
  reg.entry_index = vlib_stats_add_counter_vector ("/sluice/rules");
  vlib_stats_register_collector_fn (&reg);
  return 0;
}

VLIB_INIT_FUNCTION (init);

/* Structures of VPP differ between releases: another one does not load what was built for this one. */
VLIB_PLUGIN_REGISTER () = {
  .version = "1",
  .version_required = SLUICE_VPP_RELEASE,
  .description = "Sluice: network policy from shared memory",
};
