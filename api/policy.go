package api

import (
	"cmp"
	"net/netip"
	"strings"
)

// Tier is the place of a policy in the order of evaluation: every policy of a
// lower tier is asked before any of a higher one.
type Tier uint8

// The tiers, in order of evaluation. Only NetworkPolicy isolates.
const (
	TierAdmin Tier = iota
	TierNetworkPolicy
	TierBaseline
)

// String returns the name of the tier.
func (t Tier) String() string {
	switch t {
	case TierAdmin:
		return "admin"
	case TierNetworkPolicy:
		return "networkpolicy"
	case TierBaseline:
		return "baseline"
	}
	return "unknown"
}

// Place is where a policy stands in the order of evaluation (SEMANTICS rows 57, 58).
type Place struct {
	Tier     Tier
	Priority int // within the tier, low first
	ID       PolicyID
}

// Compare is the order in which policies are asked: by tier and priority, of equal
// ones by name, then by kind. NetworkPolicies, which are asked in no order, are in that
// of their IDs.
func (a Place) Compare(b Place) int {
	if a.Tier == TierNetworkPolicy && b.Tier == TierNetworkPolicy {
		return a.ID.Compare(b.ID)
	}
	return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Priority, b.Priority), strings.Compare(a.ID.Name, b.ID.Name), a.ID.Compare(b.ID))
}

// RuleAction is what a policy rule does, before Pass is flattened.
type RuleAction uint8

// The zero value is closed. Rules of NetworkPolicy are all RuleAllow.
const (
	RuleDeny RuleAction = iota
	RuleAllow
	RulePass
)

// ContivPolicy is a policy without indirection, as it applies to one group of
// pods: selectors are address sets, named ports are numbers. It is immutable.
// Which addresses a set holds is not part of it, so a pod that comes or goes
// does not change it. Directions are the pod's.
type ContivPolicy struct {
	ID       PolicyID
	Tier     Tier
	Priority int // within the tier, low first; 0 in TierNetworkPolicy

	IsolatesIngress, IsolatesEgress bool

	Ingress, Egress []PolicyRule // in the order of the spec
}

// Isolates reports whether the policy isolates the pod in a direction, so that what
// no policy allows is denied.
func (p *ContivPolicy) Isolates(d Direction) bool {
	if d == Ingress {
		return p.IsolatesIngress
	}
	return p.IsolatesEgress
}

// Place says where the policy stands among all.
func (p *ContivPolicy) Place() Place { return Place{p.Tier, p.Priority, p.ID} }

// Compare is the order in which policies are asked, see Place.
func (p *ContivPolicy) Compare(o *ContivPolicy) int { return p.Place().Compare(o.Place()) }

// Rules returns the rules of a direction.
func (p *ContivPolicy) Rules(d Direction) []PolicyRule {
	if d == Ingress {
		return p.Ingress
	}
	return p.Egress
}

// PolicyRule is one rule, or a part of one, of a ContivPolicy. It matches a
// flow when the peer and the port match. Several PolicyRules may share an Index:
// a rule with a named port is split by the numbers that the name resolves to.
//
// Nothing is inferred from an empty slice: a rule without AnyPeer and without
// Sets and Blocks matches no peer, one without AnyPort and without Ports matches
// no port. This is how unknown peers and unresolved names fail closed.
type PolicyRule struct {
	Index  int // position in the spec's list of its direction
	Action RuleAction

	AnyPeer bool
	Sets    []SetID   // sorted
	Blocks  []IPBlock // sorted

	AnyPort bool // every port of every protocol
	Ports   []PolicyPort
}

// IPBlock is a CIDR without some holes in it. Prefixes are masked.
type IPBlock struct {
	CIDR   netip.Prefix
	Except []netip.Prefix // within CIDR; may overlap each other
}

// Contains reports whether the address is in the block and in none of its holes.
func (b IPBlock) Contains(a netip.Addr) bool {
	if !b.CIDR.Contains(a) {
		return false
	}
	for _, e := range b.Except {
		if e.Contains(a) {
			return false
		}
	}
	return true
}

// PolicyPort is a range of destination ports of one protocol.
type PolicyPort struct {
	Protocol Protocol // TCP, UDP or SCTP
	Range    PortRange
}
