// Package acl renders policy into ACLs of VPP's acl plugin, through GoVPP. It is
// one of the last rooms of the flow: the configurator's rules come in through the
// renderer contract, renderer/cache combines both directions into the direction
// that leaves the vswitch, and this package installs the tables. The vswitch is a
// VPP process on a socket, or the embedded one in the same process.
//
// # What is installed
//
// The interface of a pod has the input list [infra, guard, reflect] and the output list [infra,
// table], or [infra, open] while the pod has no table. When there is a global table, every uplink
// gets the output list [infra, young, 16 parts of the table, final], and [infra, open] otherwise;
// its input list is [reflect]. The infra ACL permits neighbour discovery and ICMP errors. What a
// table permits creates a session, so that replies pass. The guard of an interface denies what its
// pod may not send for certain, so that this creates none (see guard.go). The reflect ACL permits
// everything that enters and creates sessions for flows that begin there. The list of an input
// stays as it is, because any change of it would make VPP forget established flows.
//
// A table is held by a slot: an ACL, or several when it is large, with a tag
// "sluice:<slot>:<n>:<digest>". Slots keep their ACLs while content changes. The
// entries of a large table are in segments by age, so that an address that joins
// changes a small ACL at the end of the list (see internal/layout).
//
// # The way through
//
// A Commit has the cache combine rules, and asks an ownership whose the interfaces are. Package
// expand makes entries of tables, package layout says which ACL of a slot holds which of them, and
// package memory whether VPP has room for it. The outcome is a plan, which an execution carries out
// call by call through the mirror. Readers see a snapshot of what came of it.
//
// # Invariants
//
//   - Never fewer: new ACLs first, then in-place changes and switches of
//     interfaces in an order in which each packet meets either its old or its new
//     rules, removals last (see install.go).
//   - What is known of the vswitch changes only when the vswitch has answered.
//     After any error everything is read back before anything is changed.
//   - Equal input causes no call that changes anything, also after a restart.
//   - ACLs without the tag of Sluice are never changed, deleted or unbound. In the
//     list of an interface they stay in front, in their order.
//
// A Renderer may be used by any number of goroutines; transactions are committed
// one after the other.
package acl
