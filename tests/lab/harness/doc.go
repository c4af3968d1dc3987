// Package harness runs the whole pipeline on every node of a cluster, over backends of one kind,
// and checks the invariants of the result. It is what tests of whole clusters have in common.
//
//	cluster.State -> Objects -> changes -> Cluster: node 1: plugin -> renderer -> dataplane
//	                                                node 2: ...
//
// # Invariants
//
//   - The invariants of clusters are examined here, have names in Invariants, and are the same for
//     all that supply states: scenarios, sequences, random events, recorded suites.
//   - A verdict is that of the dataplanes that a packet meets on its way: the one of its source's
//     node, then the one of its destination's.
//   - What Inspect prints is a function of the desired state: two clusters that received the same
//     state print the same, whatever states preceded it.
//   - Besides its backend every node notifies a Recorder, which knows the contract of package
//     renderer.
package harness
