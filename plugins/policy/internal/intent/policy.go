// Package intent has what the cache tells the processor: policies as their authors wrote them, in
// canonical form, selectors, and what these tell pods and nodes apart by. Nothing of it is
// resolved.
package intent

import "github.com/sluice-net/sluice/api"

// Policy is a policy as its author wrote it, checked and in canonical form:
// selectors and named ports are not resolved yet. It is immutable.
//
// What could not be understood is left out, so that it matches nothing. Because
// nothing is inferred from an empty slice (see Rule), leaving out can only
// close, never open.
type Policy struct {
	ID       api.PolicyID
	Tier     api.Tier
	Priority int // within the tier, low first; 0 in TierNetworkPolicy

	// Subject selects pods: in the namespaces that SubjectNamespaces selects, or,
	// when that is nil, in ID.Namespace. A nil Subject selects none.
	Subject, SubjectNamespaces *Selector

	IsolatesIngress, IsolatesEgress bool // in TierNetworkPolicy only

	// In the order of the spec, so that indexes are those of the spec. The rules
	// of a direction that a NetworkPolicy does not isolate are not there.
	Ingress, Egress []Rule
}

// Compare is the order in which policies are asked, see Place.
func (p *Policy) Compare(o *Policy) int { return p.Place().Compare(o.Place()) }

// Place says where the policy stands among all.
func (p *Policy) Place() api.Place { return api.Place{Tier: p.Tier, Priority: p.Priority, ID: p.ID} }

// Rule is one rule. A peer and a port must match; one without AnyPeer and
// without Peers matches no peer, likewise for ports.
type Rule struct {
	Action  api.RuleAction // RuleAllow in TierNetworkPolicy
	Name    string         // for people; "" in TierNetworkPolicy
	AnyPeer bool
	Peers   []Peer
	AnyPort bool // every port of every protocol
	Ports   []Port
}

// Peer is either a block, or nodes that a selector selects, or pods that a
// selector selects: in the namespaces that Namespaces selects, or, when that is
// nil, in the namespace of the policy.
type Peer struct {
	Namespaces *Selector
	Pods       *Selector
	Nodes      *Selector // every address of the nodes
	Block      *api.IPBlock
}

// Port is a range of ports of a protocol, or, when Name is not empty, the
// port with that name on the destination. With a Name, AnyProtocol stands for
// whatever protocol the port has there.
type Port struct {
	Protocol api.Protocol
	Range    api.PortRange
	Name     string
}
