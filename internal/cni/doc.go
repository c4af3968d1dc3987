// Package cni is sluice-cni, a chained CNI plugin (specification 1.1.0). It stands behind the
// plugin that makes a pod's veth pair, tells the agent of the node whose interface that is, and
// returns once the interface lets nothing pass, or what the pod's policy permits. For VPP it also
// makes the interface.
//
// # Invariants
//
//   - An ADD that succeeds leaves the interface blocked or enforced, never open, whether an agent
//     runs or not.
//   - Which interface is the node's end is asked of the kernel, not read from names or results.
//   - The plugin never opens an interface: the agent does, when policy is enforced.
//   - DEL succeeds without an agent and without a namespace.
package cni
