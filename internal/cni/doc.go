// Package cni implements sluice-cni, a chained CNI plugin (specification 1.1.0). It follows the
// plugin that makes a pod's veth pair, blocks the node's end, and reports to the agent of the node
// which pod has it. It returns while the plugin or the agent blocks the interface, or once the
// pod's policy is enforced there. For VPP it also makes the interface.
//
// # Invariants
//
//   - An ADD that succeeds leaves the interface blocked or enforced, never open, whether an agent
//     runs or not.
//   - The kernel reports which interface is the node's end; names and results are not used.
//   - The plugin never unblocks an interface: the agent does, when policy is enforced.
//   - DEL succeeds without an agent and without a namespace.
package cni
