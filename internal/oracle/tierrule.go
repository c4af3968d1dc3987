package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what a rule of an administrator's policy does with what it matches, as
// the policy names it.
type Action string

// The actions. Allow is that of v1alpha1, Accept of v1alpha2; the other two are of
// both, but a BaselineAdminNetworkPolicy cannot pass.
const (
	Allow  Action = "Allow"
	Accept Action = "Accept"
	Deny   Action = "Deny"
	Pass   Action = "Pass"
)

// Allows reports whether the action allows.
func (a Action) Allows() bool { return a == Allow || a == Accept }

// tierRule is a rule of an administrator's policy. It matches when a peer and a port
// match.
type tierRule struct {
	name     string
	action   Action // Deny for one that is not known, and where the rule denies all
	odd      string // why the action is not known, in words
	peers    []tierPeer
	anyPort  bool // every port of every protocol
	ports    []tierPort
	nameless bool     // names of ports match nothing: some peer has none
	unknown  []string // what is not understood, in words, see deniesAll
}

// newRule reads a rule of which the peers and ports are read. The actions are those
// that the kind has.
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

// deniesAll reports whether the rule denies everything: where it is not understood in
// full, it may be about everybody. A rule that allows matches nothing by what is not
// understood instead.
func (r tierRule) deniesAll() bool { return len(r.unknown) > 0 && !r.action.Allows() }

// note says what is odd about the rule, in words.
func (r tierRule) note() string {
	if r.deniesAll() {
		return "not understood, so it denies everything: " + strings.Join(r.unknown, "; ")
	}
	return r.odd
}
