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
  int by_origin;  /* nothing that comes by an uplink is the node's */
  int released;   /* interfaces are judged only from when an agent binds them */
  char directory[256];
  const char *problem; /* with the directory; 0: it is mapped */
} sluice_main_t;

extern sluice_main_t sluice_main;

/* sluice_enable adds the nodes to an interface, or removes them. */
void sluice_enable (u32 sw_if_index, int enable);

#endif
