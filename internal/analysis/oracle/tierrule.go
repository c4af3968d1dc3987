package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// Action is the action of a rule of an admin policy, as the policy names it.
type Action string

// The actions. Allow belongs to v1alpha1, Accept to v1alpha2; the other two to both, but a
// BaselineAdminNetworkPolicy cannot pass.
const (
	Allow  Action = "Allow"
	Accept Action = "Accept"
	Deny   Action = "Deny"
	Pass   Action = "Pass"
)

// Allows reports whether the action allows.
func (a Action) Allows() bool { return a == Allow || a == Accept }

// tierRule is a rule of an admin policy. It matches if a peer and a port match.
type tierRule struct {
	name     string
	action   Action // Deny if unknown, and if the rule denies all
	odd      string // why the action is unknown, in words
	peers    []tierPeer
	anyPort  bool // every port of every protocol
	ports    []tierPort
	nameless bool     // port names match nothing: some peer has none
	unknown  []string // the invalid parts, in words, see deniesAll
}

// newRule builds a rule from parsed peers and ports. actions are those of the kind.
func newRule(name, action string, actions []Action, peers []tierPeer, ports []tierPort, anyPort bool) tierRule {
	r := tierRule{name: name, action: Action(action)}
	if !slices.Contains(actions, r.action) {
		r.action, r.odd = Deny, fmt.Sprintf("the action %q is not known here, so it denies", action)
	}
	return r.with(peers, ports, anyPort)
}

// with returns the rule with these peers and ports.
func (r tierRule) with(peers []tierPeer, ports []tierPort, anyPort bool) tierRule {
	r.peers, r.ports, r.anyPort, r.unknown = peers, ports, anyPort, nil
	r.nameless = slices.ContainsFunc(peers, func(p tierPeer) bool { return p.nameless })
	if len(peers) == 0 {
		r.unknown = append(r.unknown, "it has no peers")
	}
	for _, p := range peers {
		r.unknown = append(r.unknown, p.unknown...)
	}
	if !anyPort && len(ports) == 0 {
		r.unknown = append(r.unknown, "its list of ports is empty")
	}
	for _, p := range ports {
		if p.unknown != "" {
			r.unknown = append(r.unknown, p.unknown)
		}
	}
	if r.deniesAll() {
		r.action = Deny
	}
	return r
}

// deniesAll reports whether the rule denies everything: an invalid part might apply to everyone. A
// rule that allows ignores its invalid parts instead.
func (r tierRule) deniesAll() bool { return len(r.unknown) > 0 && !r.action.Allows() }

// describeInvalid describes the invalid parts of the rule, in words.
func (r tierRule) describeInvalid() string {
	if r.deniesAll() {
		return "not understood, so it denies everything: " + strings.Join(r.unknown, "; ")
	}
	return r.odd
}
