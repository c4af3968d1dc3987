package api

// PolicySpec is a policy as its author wrote it, checked and in canonical form:
// selectors and named ports are not resolved yet. It is immutable.
//
// What could not be understood is left out, so that it matches nothing. Because
// nothing is inferred from an empty slice (see RuleSpec), leaving out can only
// close, never open.
type PolicySpec struct {
	ID      PolicyID
	Subject *Selector // among the pods of ID.Namespace; nil selects none

	IsolatesIngress, IsolatesEgress bool

	// In the order of the spec, so that indexes are those of the spec. The rules
	// of a direction that is not isolated are not there.
	Ingress, Egress []RuleSpec
}

// RuleSpec is one rule. A peer and a port must match; one without AnyPeer and
// without Peers matches no peer, likewise for ports.
type RuleSpec struct {
	AnyPeer bool
	Peers   []PeerSpec
	AnyPort bool // every port of every protocol
	Ports   []PortSpec
}

// PeerSpec is either a block, or pods that a selector selects: in the
// namespaces that Namespaces selects, or, when that is nil, in the namespace of
// the policy.
type PeerSpec struct {
	Namespaces *Selector
	Pods       *Selector
	Block      *IPBlock
}

// PortSpec is a range of ports of a protocol, or, when Name is not empty, the
// port with that name on the destination.
type PortSpec struct {
	Protocol Protocol
	Range    PortRange
	Name     string
}
