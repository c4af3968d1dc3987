// Package ligato renders policy for a VPP that a ligato vpp-agent (version 3) configures.
// It publishes tables as ACLs of that agent, in etcd or in any other store that the embedder
// provides. It is an alternative to renderer/acl, which programs VPP directly. It imports no
// code of Ligato.
//
// # What is published
//
// Each ACL is one key, "/vnf-agent/<label>/config/vpp/acls/v2/acl/sluice-...", with a JSON value.
// An interface of a pod with a table is in the egress list of the ACL of that table and in the
// ingress list of "sluice-reflect". Interfaces of pods without a table are in no ACL. If there is a
// global table, uplinks are in the egress list of "sluice-global", and in the ingress list as well.
// The content of a table is the same as in renderer/acl. It has first exempt traffic, such as
// neighbour discovery and ICMP errors, then the rules with expanded sets, then a decision for
// everything else.
//
// # Requirements of the agent
//
// Each interface must have exactly one ACL for each direction, because the agent binds
// several in undefined order. Every rule has both networks, of one family; both port ranges
// with explicit bounds; and both ranges for ICMP. An ACL must not be empty, and names have
// at most 63 characters. The agent treats rules that differ only in their protocol field as
// equal, so an ACL that changes in nothing else is published under another name.
//
// # Invariants
//
//   - Never fewer. The agent applies keys one by one, in the order in which they are
//     written. Within a key it first removes interfaces, then changes rules, and then adds
//     interfaces. At every step each interface has its old or its new table; for a moment
//     it may have both, each of which decides everything.
//   - The known content of the store changes only after the store has answered. After an
//     error, everything is read before anything is written.
//   - Equal input writes nothing, even after a restart.
//   - Keys with other names are never written or deleted.
package ligato
