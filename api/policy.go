package api

import (
	"cmp"
	"net/netip"
	"strings"
)

// Tier is the tier of a policy. All policies of a lower tier are evaluated before those of a higher
// one.
type Tier uint8

// The tiers, in order of evaluation. Only NetworkPolicy isolates pods.
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

// Place is the position of a policy in the order of evaluation (SEMANTICS rows 57, 58).
type Place struct {
	Tier     Tier
	Priority int // within the tier; lower is evaluated first
	ID       PolicyID
}

// Compare orders policies by evaluation: by tier and priority, then by name, then by kind.
// NetworkPolicies have no order of evaluation; they are ordered by ID.
func (a Place) Compare(b Place) int {
	if a.Tier == TierNetworkPolicy && b.Tier == TierNetworkPolicy {
		return a.ID.Compare(b.ID)
	}
	return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Priority, b.Priority), strings.Compare(a.ID.Name, b.ID.Name), a.ID.Compare(b.ID))
}

// RuleAction is the action of a policy rule, before Pass is resolved.
type RuleAction uint8

// The rule actions. The zero value denies. Every rule of a NetworkPolicy is RuleAllow.
const (
	RuleDeny RuleAction = iota
	RuleAllow
	RulePass
)

// ContivPolicy is a policy with selectors resolved to address sets and named ports resolved to
// numbers, as it applies to one group of pods. It is immutable. It does not include the members of
// sets, so it does not change when pods come and go. Directions are seen from the pod.
type ContivPolicy struct {
	ID       PolicyID
	Tier     Tier
	Priority int // within the tier; lower is evaluated first; 0 in TierNetworkPolicy

	IsolatesIngress, IsolatesEgress bool

	// Audit permits what only this policy denies; its rules carry ContivRule.Audit. The policy
	// permits nothing that others deny.
	Audit bool

	Ingress, Egress []PolicyRule // in the order of the spec
}

// Isolates reports whether the policy isolates the pod in a direction: traffic that no policy
// allows is denied.
func (p *ContivPolicy) Isolates(d Direction) bool {
	if d == Ingress {
		return p.IsolatesIngress
	}
	return p.IsolatesEgress
}

// Place returns the position of the policy in the order of evaluation.
func (p *ContivPolicy) Place() Place { return Place{p.Tier, p.Priority, p.ID} }

// Compare orders policies by evaluation, see Place.
func (p *ContivPolicy) Compare(o *ContivPolicy) int { return p.Place().Compare(o.Place()) }

// Rules returns the rules of a direction.
func (p *ContivPolicy) Rules(d Direction) []PolicyRule {
	if d == Ingress {
		return p.Ingress
	}
	return p.Egress
}

// PolicyRule is one rule, or part of one, of a ContivPolicy. It matches a flow if the peer and the
// port match. Several PolicyRules may share an Index: a rule with a named port is split by the
// numbers that the name resolves to.
//
// An empty slice never means "all": a rule without AnyPeer, Sets and Blocks matches no peer, and a
// rule without AnyPort and Ports matches no port. Unknown peers and unresolved names therefore fail
// closed.
type PolicyRule struct {
	Index  int // index in the spec's list of its direction
	Action RuleAction

	AnyPeer bool
	Sets    []SetID   // sorted
	Blocks  []IPBlock // sorted

	AnyPort bool // every port of every protocol
	Ports   []PolicyPort
}

// IPBlock is a CIDR with exceptions. Prefixes are masked.
type IPBlock struct {
	CIDR   netip.Prefix
	Except []netip.Prefix // within CIDR; may overlap
}

// Contains reports whether the address is in the CIDR and in none of its exceptions.
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
