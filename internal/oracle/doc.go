// Package oracle decides what NetworkPolicy means, and the policies of
// administrators around it (AdminNetworkPolicy, BaselineAdminNetworkPolicy,
// ClusterNetworkPolicy): for a flow and a cluster state it reports whether the flow is
// allowed, and why.
//
// It stands beside the flow of rooms, not in it. It works on the Kubernetes
// objects themselves, straight from the specification, slowly and without
// cleverness, and shares no code with the product: its agreement with the
// tables that the product builds is evidence because the two have nothing in
// common. The same evaluator answers "why is this flow allowed?" for people, so
// the explanation can never drift away from what the tests trust.
//
// # Invariants
//
//   - A verdict is about the first packet of a flow, after service translation.
//     Replies follow the flow; whether they pass is not asked here.
//   - A flow is allowed when egress of the source and ingress of the destination
//     allow it. A direction without a pod that policies see does not restrict.
//   - A direction is decided by the first of these that decides: the admin tier, the
//     NetworkPolicies where they isolate the pod in this direction, the baseline tier.
//     In a tier of administrators the first rule that matches does, unless it passes on.
//   - What cannot be understood (a selector, a block, a port, a peer) matches
//     nothing, and the verdict says so. A rule of administrators that does not allow
//     denies everything instead. A policy of which it is not known whom or in which
//     direction it isolates, or where it stands, is refused as a whole.
//   - A verdict is a function of the set of objects, not of their order.
//   - An Oracle is immutable after New and may be used by several goroutines; the
//     objects in its State must not be changed while it is in use.
//
// Pods in the host network and pods that finished (Succeeded, Failed) are
// neither subjects of policies nor peers of selectors; such a pod's address
// belongs to the node or to nobody. The address of a pod therefore counts as the
// pod's only while the pod runs in its own network.
package oracle
