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
// has the output list `[infra, part..., rest]`, and `[infra, open]` otherwise; its input list is
// `[reflect]`. The `infra` ACL permits exempt traffic, such as neighbour discovery and ICMP errors.
// Packets that a table permits create a session, so that replies pass. The guard of an interface
// denies what the pod is certain not to be permitted to send, so that it creates no sessions (see
// guard.go). The reflect ACL permits all input and creates sessions for flows that begin there.
// Input lists do not change, because VPP would drop established flows.
//
// A table is held by a stack: ACLs of one interface, which no other one has (see stacks.go). They
// change in place. A large table is held by a front, a base of several ACLs, a small ACL with the
// latest permits, and an ACL that decides the rest (see internal/layout). The tags of ACLs are "sluice:<name>:<n>:<digest>".
//
// # Processing
//
// An Apply computes tables with the cache and maps interfaces to pods with an ownership (wanted.go).
// Package expand converts tables to entries, and package layout decides what the ACLs of a stack get
// to hold. What VPP has no room for is refused (admission.go). Then the changes are made, interface by
// interface, through the mirror (execution.go). Readers see a snapshot of the outcome.
//
// # Invariants
//
//   - Never fewer: between two calls each packet meets the old or the new rules of an interface (see
//     wanted.install).
//   - The mirror changes only after the vswitch has answered. After any error,
//     everything is read before anything is changed.
//   - Equal input causes no changing call, even after a restart.
//   - ACLs without the tag of Sluice are never changed, deleted or unbound. In the
//     list of an interface they keep their order and their side of ours.
//
// Any number of goroutines may use a Renderer. Changes are applied one after the other.
package acl
