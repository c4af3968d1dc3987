// Package fleet runs the whole pipeline on every node of a cluster, over stacks of one
// kind, and can be looked into. It is what harnesses have in common.
//
//	cluster.State -> Objects -> changes -> Fleet: node 1: plugin -> renderer -> stack
//	                                              node 2: ...
//
// # Invariants
//
//   - A verdict is that of the stacks that a packet meets on its way: the one of its
//     source's node, then the one of its destination's.
//   - What Inspect prints is what must be a function of the state: two fleets that
//     were told the same state print the same, whatever they were told before.
//   - Beside its stack every node tells a Recorder, which checks the contract of
//     package renderer.
package fleet
