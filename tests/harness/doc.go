// Package harness runs the whole pipeline on every node of a cluster, over backends of one
// kind, and can be looked into. It is what tests of whole clusters have in common.
//
//	cluster.State -> Objects -> changes -> Cluster: node 1: plugin -> renderer -> dataplane
//	                                                node 2: ...
//
// # Invariants
//
//   - What must hold of clusters is examined here, has a name in Invariants, and is the same for
//     all that supply states: scenarios, sequences, random events, recorded suites.
//   - A verdict is that of the dataplanes that a packet meets on its way: the one of its
//     source's node, then the one of its destination's.
//   - What Inspect prints is what must be a function of the state: two clusters that
//     were told the same state print the same, whatever they were told before.
//   - Beside its backend every node tells a Recorder, which knows the contract of
//     package renderer.
package harness
