package configurator

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// traffic is what some rules match: ports, by peer. Peers can overlap. The spans of
// a peer are in no order and can overlap, too.
type traffic map[api.Net][]span

// add adds a peer on some ports.
func (t traffic) add(peer api.Net, ports portSet) {
	switch {
	case len(ports) == 0:
	case t[peer] == nil:
		t[peer] = slices.Clip(ports) // shared until more is added; it is in order already
	default:
		t[peer] = append(t[peer], ports...)
	}
}

// clause is one rule of a policy.
type clause struct {
	policy *api.ContivPolicy
	rule   *api.PolicyRule
}

// clausesOf lists the rules of some policies, in order.
func (g *generator) clausesOf(policies []*api.ContivPolicy) []clause {
	var out []clause
	for _, p := range policies {
		rules := p.Rules(g.direction)
		for i := range rules {
			out = append(out, clause{p, &rules[i]})
		}
	}
	return out
}

// match returns what some rules match. When one of them matches everything, that
// is all there is to say.
func (g *generator) match(clauses []clause) traffic {
	t := traffic{}
	var blocks []block
	var toAny []span
	for _, c := range clauses {
		ports := portsOf(c.rule, g.origin(c.policy, c.rule.Index))
		if c.rule.AnyPeer {
			toAny = append(toAny, ports...)
			continue // the other peers of the rule are among any
		}
		for _, s := range c.rule.Sets {
			t.add(api.SetNet(s), ports)
		}
		for _, b := range c.rule.Blocks {
			if b, ok := newBlock(b, ports); ok {
				blocks = append(blocks, b)
			}
			if c.rule.Action != api.RuleAllow && isUnknown(b) {
				toAny = append(toAny, ports...) // whatever it should not let through: closed
			}
		}
	}
	any := newPortSet(toAny)
	if any.isAll() {
		return traffic{api.Net{}: any}
	}
	g.addBlocks(t, any, blocks)
	t.add(api.Net{}, any)
	return t
}

// section is traffic that is permitted or denied as a whole.
type section struct {
	action  api.Action
	traffic traffic
}

// sections are asked one after the other; the first that matches decides. Of an
// ordered tier every rule is one, even among others that do the same: only so a
// rule of the list says which rule of a policy has decided.
type sections []section

// add appends sections that match anything.
func (s sections) add(more ...section) sections {
	for _, x := range more {
		if len(x.traffic) > 0 {
			s = append(s, x)
		}
	}
	return s
}
