// Package oracle is an executable specification of NetworkPolicy and of admin policies
// (AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy). For a flow and a cluster
// state it reports whether the flow is allowed, and why.
//
// It is not part of the pipeline. It works on the Kubernetes objects themselves, directly from the
// specification, slowly and simply, and shares no code with the product. Because the two have
// nothing in common, their agreement indicates that the product's tables are right. The same
// evaluator answers "why is this flow allowed?" for users, so explanations never differ from what
// the tests check.
//
// # Invariants
//
//   - A verdict is about the first packet of a flow, after service translation.
//     Replies follow the flow; the oracle does not decide about them.
//   - A flow is allowed if egress of the source and ingress of the destination
//     allow it. A direction without a pod that is subject to policies does not restrict.
//   - The first of these that applies decides a direction: the admin tier, the
//     NetworkPolicies if they isolate the pod in this direction, the baseline tier.
//     In an admin or baseline tier the first matching rule decides, unless it passes.
//   - Invalid parts (a selector, a block, a port, a peer) match
//     nothing, and the verdict says so. A rule of an admin policy that does not allow
//     denies everything instead. A policy is rejected as a whole if its subject, its
//     directions or its place in the order of evaluation are unknown.
//   - A verdict is a function of the set of objects, not of their order.
//   - An Oracle is immutable after New and may be used by several goroutines; the
//     objects in its State must not be modified while it is in use.
//
// Pods in the host network and finished pods (Succeeded, Failed) are neither subjects of policies
// nor peers of selectors. The address of such a pod belongs to the node or to no one. The address
// of a pod therefore counts as the pod's only while the pod runs in its own network.
package oracle
