package api

import (
	"cmp"
	"fmt"
	"net/netip"
)

// ContivRule is the six-tuple that every renderer must be able to enforce:
// (source, source port, destination, destination port, protocol, action).
// Within a list the first rule that matches decides. It is comparable with ==.
//
// Ports are only set together with a protocol that has ports. A rule without a
// protocol matches every protocol; one with a protocol but no ports matches all
// ports of that protocol.
type ContivRule struct {
	Action   Action    `json:"action"`
	Src      Net       `json:"src,omitzero"`
	Dst      Net       `json:"dst,omitzero"`
	Protocol Protocol  `json:"protocol,omitzero"`
	SrcPort  PortRange `json:"srcPort,omitzero"`
	DstPort  PortRange `json:"dstPort,omitzero"`
}

// Matches reports whether the rule matches the flow. inSet answers for sets.
func (r ContivRule) Matches(f Flow, inSet func(SetID, netip.Addr) bool) bool {
	return r.MatchesPorts(f.Protocol, f.SrcPort, f.DstPort) && r.Src.Contains(f.Src, inSet) && r.Dst.Contains(f.Dst, inSet)
}

// MatchesPorts reports whether the rule's protocol and ports match, whatever the
// addresses are.
func (r ContivRule) MatchesPorts(p Protocol, src, dst uint16) bool {
	return (r.Protocol == AnyProtocol || r.Protocol == p) && r.SrcPort.Contains(src) && r.DstPort.Contains(dst)
}

// Compare is a total order in which a rule sorts before every rule that is known
// to match a proper superset of its traffic; of two rules that match the same
// traffic the Deny sorts first. It returns 0 only for equal rules.
//
// Every component is ordered so that a part sorts before what contains it, which
// makes the lexicographic order of the components have the property as well.
func (r ContivRule) Compare(o ContivRule) int {
	return cmp.Or(
		r.Src.Compare(o.Src),
		r.Dst.Compare(o.Dst),
		compareProtocol(r.Protocol, o.Protocol),
		r.SrcPort.Compare(o.SrcPort),
		r.DstPort.Compare(o.DstPort),
		cmp.Compare(r.Action, o.Action),
	)
}

// compareProtocol orders by number, any last.
func compareProtocol(a, b Protocol) int { return cmp.Compare(a-1, b-1) }

// String returns for example
// "permit tcp 10.1.0.0/16 -> any port 8000-8010".
func (r ContivRule) String() string {
	src := r.Src.String()
	if !r.SrcPort.IsAny() {
		src += " port " + r.SrcPort.String()
	}
	s := fmt.Sprintf("%s %s %s -> %s", r.Action, r.Protocol, src, r.Dst)
	if !r.DstPort.IsAny() {
		s += " port " + r.DstPort.String()
	}
	return s
}

// Values of Origin.Rule that do not stand for a rule of the spec.
const (
	// IsolationRule is the isolation (the default deny) that a policy causes.
	IsolationRule = -1
	// NodeRule is the exemption of the pod's own node from that isolation.
	NodeRule = -2
)

// Origin says which rule of which policy a ContivRule came from. It takes no
// part in the equality of rules.
type Origin struct {
	Policy    PolicyID  `json:"policy"`
	Direction Direction `json:"direction"` // the pod's view
	Rule      int       `json:"rule"`      // index in the spec's list, or IsolationRule, or NodeRule
}

// Compare orders origins by policy, direction and rule.
func (o Origin) Compare(p Origin) int {
	return cmp.Or(o.Policy.Compare(p.Policy), cmp.Compare(o.Direction, p.Direction), cmp.Compare(o.Rule, p.Rule))
}

// String returns for example "NetworkPolicy shop/web ingress rule 0".
func (o Origin) String() string {
	switch o.Rule {
	case IsolationRule:
		return fmt.Sprintf("%s isolates %s", o.Policy, o.Direction)
	case NodeRule:
		return fmt.Sprintf("%s %s exempts the node", o.Policy, o.Direction)
	}
	return fmt.Sprintf("%s %s rule %d", o.Policy, o.Direction, o.Rule)
}
