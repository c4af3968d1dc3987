/* What the parts of the plugin share. */
#ifndef SLUICE_PLUGIN_H
#define SLUICE_PLUGIN_H

#include <vnet/vnet.h>

typedef struct
{
  u16 msg_id_base;
  u32 connections; /* the gauge in the statistics segment */
  uword *bound;   /* the interfaces that are bound to their endpoints */
  uword *enabled; /* the interfaces whose packets are judged */
  uword *uplinks; /* with by_origin, the interfaces that lead to other nodes */
  struct
  {
    char text[64];
  } *tags; /* by which interfaces were bound */
  u64 repaired;   /* how many places others took away, and got back */
  int by_origin;  /* nothing that comes by an uplink is the node's */
  int released;   /* interfaces are judged only from when an agent binds them */
  char directory[256];
  const char *problem; /* with the directory; 0: it is mapped */
} sluice_main_t;

extern sluice_main_t sluice_main;

/* sluice_enable adds the nodes to all arcs of an interface, or removes them. */
void sluice_enable (u32 sw_if_index, int enable);

/* sluice_gaps returns at how many places packets of a judged interface pass without being judged, and
 * sluice_close closes all of them. */
int sluice_gaps (u32 sw_if_index);
void sluice_close (u32 sw_if_index);

/* sluice_is_bridged reports whether an interface switches frames, so that no node for IP sees them. */
int sluice_is_bridged (u32 sw_if_index);

/* sluice_end_patches removes patches that lead to an interface: no node of the plugin sees what they send
 * there. */
void sluice_end_patches (u32 to);

/* sluice_look does what follows from the state of an interface and of its sub-interfaces, and
 * sluice_look_at_all from those of all. */
void sluice_look (u32 sw_if_index);
void sluice_look_at_all (void);

/* sluice_watch_arcs begins to watch arcs, and sluice_watch_commands commands that change interfaces. */
void sluice_watch_arcs (void);
clib_error_t *sluice_watch_commands (void);

#endif
