// Package intent has the types that the cache passes to the processor: policies as written, in
// canonical form, selectors, and the properties that distinguish pods and nodes for policies.
// Nothing of it is resolved.
package intent

import "github.com/sluice-net/sluice/api"

// Policy is a policy as written, validated and in canonical form: selectors and named ports are not
// resolved yet. It is immutable.
//
// Invalid parts are left out, so that they match nothing. An empty slice never means "all" (see
// Rule), so leaving out can only close, never open.
type Policy struct {
	ID       api.PolicyID
	Tier     api.Tier
	Priority int // within the tier; lower is evaluated first; 0 in TierNetworkPolicy

	// Subject selects pods: in the namespaces that SubjectNamespaces selects or, if that is nil, in
	// ID.Namespace. A nil Subject selects none.
	Subject, SubjectNamespaces *Selector

	IsolatesIngress, IsolatesEgress bool // in TierNetworkPolicy only

	Audit bool // what only this policy denies is permitted, and counted

	// In the order of the spec, so that indexes are those of the spec. A NetworkPolicy has no rules
	// in a direction that it does not isolate.
	Ingress, Egress []Rule
}

// Compare orders policies by evaluation, see Place.
func (p *Policy) Compare(o *Policy) int { return p.Place().Compare(o.Place()) }

// Place returns the position of the policy in the order of evaluation.
func (p *Policy) Place() api.Place { return api.Place{Tier: p.Tier, Priority: p.Priority, ID: p.ID} }

// Rule is one rule. A peer and a port must match; a rule without AnyPeer and Peers matches no peer,
// likewise for ports.
type Rule struct {
	Action  api.RuleAction // RuleAllow in TierNetworkPolicy
	Name    string         // for users; "" in TierNetworkPolicy
	AnyPeer bool
	Peers   []Peer
	AnyPort bool // every port of every protocol
	Ports   []Port
}

// Peer is a block, or nodes that a selector selects, or pods that a selector selects. The pods are
// in the namespaces that Namespaces selects or, if that is nil, in the namespace of the policy.
type Peer struct {
	Namespaces *Selector
	Pods       *Selector
	Nodes      *Selector // every address of the nodes
	Block      *api.IPBlock
}

// Port is a range of ports of a protocol or, if Name is not empty, the port with that name on the
// destination. With a Name, AnyProtocol matches whatever protocol the port has there.
type Port struct {
	Protocol api.Protocol
	Range    api.PortRange
	Name     string
}
