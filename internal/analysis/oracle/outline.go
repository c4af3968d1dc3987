package oracle

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// RuleText is a rule of a policy in words, without a flow that it is asked about.
type RuleText struct {
	api.Origin
	Name   string   `json:"name,omitempty"`   // of an admin rule
	Action Action   `json:"action,omitempty"` // of an admin rule; a NetworkPolicy allows
	Peers  []string `json:"peers"`            // for example "from app=api"
	Ports  []string `json:"ports"`            // for example "port 9187/tcp"
	Note   string   `json:"note,omitempty"`   // why it does not do what it seems to
}

// Rules returns the rules of a policy in force, those of ingress first; none for a policy that is
// not known, or refused as a whole.
func (o *Oracle) Rules(id api.PolicyID) []RuleText {
	return outline{}.rules(o, func(other api.PolicyID) bool { return other == id })
}

// Naming returns the rules that name a pod as a peer, with the peers that match it: by a selector,
// or by a block that contains one of its addresses. Rules without peers name no pod.
func (o *Oracle) Naming(id api.PodID) []RuleText {
	s, err := o.side(Endpoint{Pod: id})
	if err != nil {
		return nil
	}
	out := outline{evaluation{oracle: o}, s.anywhere()}.rules(o, func(api.PolicyID) bool { return true })
	slices.SortStableFunc(out, func(a, b RuleText) int { return a.Compare(b.Origin) })
	return out
}

// anywhere returns what may be at this end at each of its addresses.
func (s side) anywhere() (out []remote) {
	addrs := s.addrs
	if len(addrs) == 0 {
		addrs = []netip.Addr{{}}
	}
	for _, a := range addrs {
		s.addr = a
		out = append(out, s.remotes()...)
	}
	return out
}

// outline puts rules in words: all, or, where there are remotes, those that name one of them.
type outline struct {
	evaluation
	remotes []remote
}

func (l outline) rules(o *Oracle, wanted func(api.PolicyID) bool) (out []RuleText) {
	for _, d := range []api.Direction{api.Ingress, api.Egress} {
		for _, p := range slices.Concat(o.tiers.admin, o.tiers.baseline) {
			if wanted(p.id) {
				out = append(out, l.ofTier(p, d)...)
			}
		}
		for _, list := range o.policies {
			for _, p := range list {
				if p.refusal == nil && wanted(policyID(p.obj)) {
					out = append(out, l.ofPolicy(p, d)...)
				}
			}
		}
	}
	return out
}

func (l outline) ofPolicy(p policy, d api.Direction) (out []RuleText) {
	note := ""
	if ingress, egress := Isolates(p.obj); d == api.Ingress && !ingress || d == api.Egress && !egress {
		note = "no effect: the policy does not isolate " + d.String()
	}
	for i, r := range RulesOf(p.obj, d) {
		t := RuleText{Origin: api.Origin{Policy: policyID(p.obj), Direction: d, Rule: i}, Note: note}
		for _, peer := range r.Peers {
			if l.names(func(rem remote) match { return l.matchesPeer(p.obj.Namespace, peer, rem) }) {
				t.Peers = append(t.Peers, peerText(d, peer))
			}
		}
		for _, port := range r.Ports {
			t.Ports = append(t.Ports, portText(port))
		}
		out = l.add(out, t)
	}
	return out
}

func (l outline) ofTier(p *tierPolicy, d api.Direction) (out []RuleText) {
	for i, r := range p.rules(d) {
		t := RuleText{Origin: api.Origin{Policy: p.id, Direction: d, Rule: i}, Name: r.name, Action: r.action, Note: r.describeInvalid()}
		for _, peer := range r.peers {
			if l.names(func(rem remote) match { return l.matchesTierPeer(peer, rem) }) {
				t.Peers = append(t.Peers, peer.text(d))
			}
		}
		for _, port := range r.ports {
			t.Ports = append(t.Ports, port.text())
		}
		out = l.add(out, t)
	}
	return out
}

// names reports whether a peer is wanted.
func (l outline) names(matches func(remote) match) bool {
	return l.remotes == nil || slices.ContainsFunc(l.remotes, func(r remote) bool { return matches(r).ok })
}

// add adds a rule, unless it names none of the remotes.
func (l outline) add(out []RuleText, t RuleText) []RuleText {
	if len(t.Peers) == 0 && l.remotes != nil {
		return out
	}
	if len(t.Peers) == 0 {
		t.Peers = []string{preposition(t.Direction) + " anywhere"}
	}
	if len(t.Ports) == 0 {
		t.Ports = []string{"every port and protocol"}
	}
	return append(out, t)
}

// Selecting returns the policies that select a pod: admin policies in the order in which
// they are asked, then NetworkPolicies by name.
func (o *Oracle) Selecting(id api.PodID) []api.PolicyID {
	p := o.pods[id]
	if p == nil || p.hidden() != "" {
		return nil
	}
	out := o.AdminPoliciesOf(id)
	for _, np := range o.policies[id.Namespace] {
		if np.refusal == nil && np.subjects.Matches(labels.Set(p.obj.Labels)) {
			out = append(out, policyID(np.obj))
		}
	}
	return out
}
