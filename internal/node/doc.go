// Package node assembles a node from the policy plugin, its renderers and the dataplane that they
// program. The agent runs one; policy tests and the differential tests run one per node of a
// cluster, joined by a Fabric.
//
// # Invariants
//
// A packet is decided by what is installed in the dataplane and by nothing else:
// no question is answered from policies or rules.
package node
