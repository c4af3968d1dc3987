package api

// PolicySpec is a policy as its author wrote it, checked and in canonical form:
// selectors and named ports are not resolved yet. It is immutable.
//
// What could not be understood is left out, so that it matches nothing. Because
// nothing is inferred from an empty slice (see RuleSpec), leaving out can only
// close, never open.
type PolicySpec struct {
	ID       PolicyID
	Tier     Tier
	Priority int // within the tier, low first; 0 in TierNetworkPolicy

	// Subject selects pods: in the namespaces that SubjectNamespaces selects, or,
	// when that is nil, in ID.Namespace. A nil Subject selects none.
	Subject, SubjectNamespaces *Selector

	IsolatesIngress, IsolatesEgress bool // in TierNetworkPolicy only

	// In the order of the spec, so that indexes are those of the spec. The rules
	// of a direction that a NetworkPolicy does not isolate are not there.
	Ingress, Egress []RuleSpec
}

// Compare is the order in which policies are asked, see Place.
func (p *PolicySpec) Compare(o *PolicySpec) int { return p.Place().Compare(o.Place()) }

// Place says where the policy stands among all.
func (p *PolicySpec) Place() Place { return Place{p.Tier, p.Priority, p.ID} }

// RuleSpec is one rule. A peer and a port must match; one without AnyPeer and
// without Peers matches no peer, likewise for ports.
type RuleSpec struct {
	Action  RuleAction // RuleAllow in TierNetworkPolicy
	Name    string     // for people; "" in TierNetworkPolicy
	AnyPeer bool
	Peers   []PeerSpec
	AnyPort bool // every port of every protocol
	Ports   []PortSpec
}

// PeerSpec is either a block, or nodes that a selector selects, or pods that a
// selector selects: in the namespaces that Namespaces selects, or, when that is
// nil, in the namespace of the policy.
type PeerSpec struct {
	Namespaces *Selector
	Pods       *Selector
	Nodes      *Selector // every address of the nodes
	Block      *IPBlock
}

// PortSpec is a range of ports of a protocol, or, when Name is not empty, the
// port with that name on the destination. With a Name, AnyProtocol stands for
// whatever protocol the port has there.
type PortSpec struct {
	Protocol Protocol
	Range    PortRange
	Name     string
}
