// Package cache combines the two directions of rules that a renderer receives
// into the one direction that its stack can apply, and says what to change. It
// stands between the renderer contract and the renderers for VPP ACLs and VPP
// session rules.
//
// The result is a local table per pod and one global table. With egress
// orientation (ACLs) a local table is asked about traffic that leaves the
// vswitch towards its pod and the global table about traffic that leaves the
// node; with ingress orientation (session rules) a local table is asked about
// traffic that comes from its pod and the global table about traffic that comes
// from other nodes. Below, "own" rules are those of the orientation and
// "opposite" rules those of the other direction.
//
// # Use
//
// UpdateSet, SetPod and RemovePod stage changes. Compute returns the difference
// between what is staged and what the stack acknowledged, as a Plan. Commit says
// that the stack acknowledged it. After a failure nothing is called: the next
// Compute returns a difference that contains the old one.
//
// # Invariants
//
//   - No history: tables are a function of pods, rule lists and set members, byte
//     for byte, whatever sequence of calls led there, and so is a plan of the two
//     states that it leads between.
//   - For each pair of a local pod and a peer, the tables that the traffic meets
//     allow exactly what the rules of both sides allow. Ports and protocols are
//     intersected exactly; rules may deny in any position.
//   - A table is identified by its content. Pods with equal tables share it, no
//     two tables are equal and no table is without a pod.
//   - Only what a change can alter is computed again. A member that is no address
//     of a local pod costs a map operation.
//
// The package is pure: no locks, clocks or goroutines. A Cache is used by one
// goroutine. Tables and plans are immutable.
package cache
