// Package ligato renders policy for a VPP that a ligato vpp-agent (version 3) configures:
// the tables are published as that agent's ACLs, in etcd or in whatever the host of the
// renderer has as a store. It stands where renderer/acl stands, which programs VPP by
// itself; nothing of Ligato is imported.
//
// # What is published
//
// One key per ACL, "/vnf-agent/<label>/config/vpp/acls/v2/acl/sluice-...", whose value is
// JSON. An interface of a pod that has a table is in the egress list of one table's ACL
// and in the ingress list of "sluice-reflect"; interfaces of pods without a table are in
// none. When there is a global table, uplinks are in the egress list of "sluice-global",
// and in the ingress list as well. What a table holds is what renderer/acl installs: first
// neighbour discovery and ICMP errors, then the rules with their sets expanded, then a
// decision for everything else.
//
// # What the agent demands
//
// Exactly one ACL per interface and direction, because it binds several in no particular
// order; both networks in every rule, of one family; both ranges of ports, with explicit
// bounds; both ranges for ICMP; never an ACL without rules; names of at most 63
// characters. It takes two rules that differ only in their protocol field for equal, so
// an ACL that changes in nothing else is published under another name.
//
// # Invariants
//
//   - Never fewer. The agent applies keys in the order in which they are written, one by
//     one, and within a key takes interfaces away before it changes rules, and adds
//     interfaces after. At every step each interface has its old or its new table; for a
//     moment it may have both, each of which decides everything.
//   - What is known of the store changes only when the store has answered. After an error
//     everything is read back before anything is written.
//   - Equal input writes nothing, also after a restart.
//   - Keys of other names are never written or deleted.
package ligato
