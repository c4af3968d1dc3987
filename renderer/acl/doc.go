// Package acl installs policy as ACLs of VPP's acl plugin, through GoVPP. The
// configurator's rules arrive through the renderer contract. Package renderer/cache
// combines both directions into rules for the output of the vswitch, and this
// package installs the resulting tables. The vswitch is a VPP process behind a
// socket, or the embedded vswitch in the same process.
//
// # What is installed
//
// The interface of a pod has the input list `[infra, guard, reflect]` and the output list `[infra,
// table]`, or `[infra, open]` while the pod has no table. If there is a global table, every uplink
// has the output list `[infra, young, 16 parts of the table, final]`, and `[infra, open]`
// otherwise; its input list is `[reflect]`. The `infra` ACL permits exempt traffic, such as
// neighbour discovery and ICMP errors. The `young` ACL has the recent permits of the global table.
// Packets that a table permits create a session, so that replies pass. The guard of an interface
// denies what the pod is certain not to be permitted to send, so that it creates no sessions (see
// guard.go). The reflect ACL permits all input and creates sessions for flows that begin there.
// Input lists do not change, because VPP would drop established flows.
//
// A table is held by a slot: one ACL, or several for a large table, with tags
// "sluice:<slot>:<n>:<digest>". Slots keep their ACLs while the content changes. The
// entries of a large table are in segments by age, so that an address that joins
// changes a small ACL at the end of the list (see internal/layout).
//
// # Processing
//
// A Commit computes tables with the cache and maps interfaces to pods with an ownership. Package
// expand converts tables to entries, package layout assigns entries to the ACLs of a slot, and
// package memory checks whether VPP has room for them. The result is a plan, which an execution
// carries out call by call through the mirror. Readers see a snapshot of the outcome.
//
// # Invariants
//
//   - Never fewer: new ACLs are created first. Then changes in place and switches of interfaces
//     follow, in an order in which each packet meets either its old or its new rules. Removals come
//     last (see wanted.install).
//   - The mirror changes only after the vswitch has answered. After any error,
//     everything is read before anything is changed.
//   - Equal input causes no changing call, even after a restart.
//   - ACLs without the tag of Sluice are never changed, deleted or unbound. In the
//     list of an interface they keep their order and their side of ours.
//
// Any number of goroutines may use a Renderer. Transactions are committed one after the other.
package acl
