package api

import (
	"cmp"
	"fmt"
	"net/netip"
)

// ContivRule is the six-tuple that every renderer must be able to enforce: (source, source port,
// destination, destination port, protocol, action). The first rule of a list that matches decides.
// Rules are comparable with ==.
//
// Ports are only set together with a protocol that has ports. A rule without a protocol matches
// every protocol; one with a protocol but no ports matches all ports of that protocol.
type ContivRule struct {
	Action   Action    `json:"action"`
	Src      Net       `json:"src,omitzero"`
	Dst      Net       `json:"dst,omitzero"`
	Protocol Protocol  `json:"protocol,omitzero"`
	SrcPort  PortRange `json:"srcPort,omitzero"`
	DstPort  PortRange `json:"dstPort,omitzero"`
	// Audit marks a permit of traffic that would be denied if the policies in audit mode were
	// enforced. It does not change what a dataplane does with packets, only how they are counted.
	Audit bool `json:"audit,omitzero"`
}

// Matches reports whether the rule matches the flow. It calls inSet to look up members of sets.
func (r ContivRule) Matches(f Flow, inSet func(SetID, netip.Addr) bool) bool {
	return r.MatchesPorts(f.Protocol, f.SrcPort, f.DstPort) && r.Src.Contains(f.Src, inSet) && r.Dst.Contains(f.Dst, inSet)
}

// MatchesPorts reports whether the rule's protocol and ports match, regardless of addresses.
func (r ContivRule) MatchesPorts(p Protocol, src, dst uint16) bool {
	return (r.Protocol == AnyProtocol || r.Protocol == p) && r.SrcPort.Contains(src) && r.DstPort.Contains(dst)
}

// Compare is a total order. A rule sorts before every rule that is known to match a proper superset
// of its traffic; of two rules that match the same traffic the Deny sorts first. It returns 0 only
// for equal rules.
//
// Every component sorts a part before what contains it, so the lexicographic order of the
// components does, too.
func (r ContivRule) Compare(o ContivRule) int {
	return cmp.Or(
		r.Src.Compare(o.Src),
		r.Dst.Compare(o.Dst),
		compareProtocol(r.Protocol, o.Protocol),
		r.SrcPort.Compare(o.SrcPort),
		r.DstPort.Compare(o.DstPort),
		cmp.Compare(r.Action, o.Action),
		compareAudit(r.Audit, o.Audit),
	)
}

// compareAudit orders audited rules first.
func compareAudit(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// compareProtocol orders by number, with any last.
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
	if r.Audit {
		s += " (audit)"
	}
	return s
}

// Values of Origin.Rule that do not refer to a rule of the spec.
const (
	// IsolationRule is the isolation (default deny) that a policy causes.
	IsolationRule = -1
	// NodeRule is the exemption of the pod's node from isolation.
	NodeRule = -2
)

// Origin identifies the policy rule from which a ContivRule was derived. It takes no part in the
// equality of rules.
type Origin struct {
	Policy    PolicyID  `json:"policy"`
	Direction Direction `json:"direction"` // the pod's view
	Rule      int       `json:"rule"`      // index in the spec's list, or IsolationRule, or NodeRule
	// Audit marks a rule of a policy in audit mode that would deny the traffic: it is permitted.
	Audit bool `json:"audit,omitzero"`
}

// Compare orders origins by policy, direction and rule.
func (o Origin) Compare(p Origin) int {
	return cmp.Or(o.Policy.Compare(p.Policy), cmp.Compare(o.Direction, p.Direction), cmp.Compare(o.Rule, p.Rule), compareAudit(o.Audit, p.Audit))
}

// String returns for example "NetworkPolicy shop/web ingress rule 0".
func (o Origin) String() string {
	if o.Audit {
		o.Audit = false
		return o.String() + ", in audit mode"
	}
	switch o.Rule {
	case IsolationRule:
		return fmt.Sprintf("%s isolates %s", o.Policy, o.Direction)
	case NodeRule:
		return fmt.Sprintf("%s %s exempts the node", o.Policy, o.Direction)
	}
	return fmt.Sprintf("%s %s rule %d", o.Policy, o.Direction, o.Rule)
}
