// Package cache combines the ingress and egress rules that a renderer receives into the one
// direction that its dataplane can apply, and computes the changes to install. The renderers for
// VPP ACLs and VPP session rules use it to implement the renderer contract.
//
// The result is a local table per pod and one global table. With egress orientation (ACLs) a local
// table is asked about traffic that leaves the vswitch towards its pod. The global table is asked
// about traffic that leaves the node. With ingress orientation (session rules) a local table is
// asked about traffic that comes from its pod. The global table is asked about traffic that comes
// from other nodes. Below, "own" rules are those of the orientation and "opposite" rules those of
// the other direction.
//
// # Use
//
// UpdateSet, SetPod and RemovePod stage changes. Compute returns a Plan: the
// difference between the staged state and the state that the dataplane has
// acknowledged. Acknowledge records that the dataplane has acknowledged the plan.
// After a failure the caller calls nothing; the plan of the next Compute contains
// the failed one.
//
// # Invariants
//
//   - No history: tables are a pure function of pods, rule lists and set members,
//     byte for byte. A plan is a pure function of its two states.
//   - For each pair of a local pod and a peer, the tables that the traffic meets
//     allow exactly what the rules of both sides allow. Ports and protocols are
//     intersected exactly; rules may deny in any position.
//   - A table is identified by its content. Pods with equal tables share one table,
//     no two tables are equal, and every table has a pod.
//   - Compute repeats only work whose result a change can alter. A member that is
//     not an address of a local pod costs one map operation.
//
// The package has no clocks, files or goroutines; its only lock is for readers.
// One goroutine changes a Cache. Tables and plans are immutable.
package cache
