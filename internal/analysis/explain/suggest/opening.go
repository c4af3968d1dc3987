package suggest

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// openings returns, for every subject that denies, the changes that could make it
// allow.
func openings(o *oracle.Oracle, v oracle.Verdict) [][]Change {
	var needs [][]Change
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := v.Direction(d)
		for _, s := range dv.Subjects {
			e := end{oracle: o, verdict: v, direction: d}
			switch {
			case s.Allowed:
			case s.Rule != nil:
				needs = append(needs, adminRules{e}.open(dv, s))
			default:
				needs = append(needs, opening{e}.isolation(dv, s.Pod))
			}
		}
	}
	return needs
}

// opening looks for what would open one direction that NetworkPolicies isolate.
type opening struct{ end }

// isolation looks at the policies of a subject.
func (f opening) isolation(dv oracle.DirectionVerdict, subject api.PodID) []Change {
	var out []Change
	for _, pe := range dv.Policies {
		if pe.Subject == subject {
			out = append(out, f.policy(pe)...)
		}
	}
	return append(out, f.newRule(dv, subject)...)
}

// policy looks at the rules of a policy of which one side failed.
func (f opening) policy(pe oracle.PolicyEval) []Change {
	var out []Change
	np := f.oracle.NetworkPolicy(pe.Policy)
	rules := oracle.RulesOf(np, f.direction)
	for _, re := range pe.Rules {
		if re.Failures() != 1 {
			continue
		}
		origin := api.Origin{Policy: pe.Policy, Direction: f.direction, Rule: re.Index}
		if re.PeerMatched {
			out = append(out, f.anotherPort(origin, len(rules[re.Index].Ports)))
			continue
		}
		out = append(out, f.labels(np.Namespace, origin, rules[re.Index].Peers)...)
		out = append(out, f.excepts(origin, rules[re.Index].Peers)...)
		if peer := f.peer(np.Namespace); peer != nil {
			c := f.edit(AddPeer, origin, fmt.Sprintf("add %q to", f.text(peer)))
			c.Peer = peer
			out = append(out, c)
		}
	}
	return out
}

// anotherPort is the change of a rule whose peers match. No port of a rule can name a
// protocol without ports, only a rule without ports matches it.
func (f opening) anotherPort(origin api.Origin, has int) Change {
	if port := f.port(); port != nil {
		c := f.edit(AddPort, origin, fmt.Sprintf("add %q to", f.portText()))
		c.Port = port
		return c
	}
	c := f.edit(OpenPorts, origin, "remove the ports of")
	for i := range has {
		c.Terms = append(c.Terms, i)
	}
	return c
}

// newRule is a rule for the flow, in the policy that selects the fewest pods.
func (f opening) newRule(dv oracle.DirectionVerdict, subject api.PodID) []Change {
	var best *networkingv1.NetworkPolicy
	for _, pe := range dv.Policies {
		if pe.Subject != subject {
			continue
		}
		if np := f.oracle.NetworkPolicy(pe.Policy); best == nil || breadth(np) < breadth(best) {
			best = np
		}
	}
	peer := f.peer(best.Namespace)
	if peer == nil {
		return nil
	}
	origin := api.Origin{Policy: api.PolicyID{Kind: api.NetworkPolicy, Namespace: best.Namespace, Name: best.Name}, Direction: f.direction, Rule: api.IsolationRule}
	return []Change{{Kind: AddRule, Direction: f.direction, Origins: []api.Origin{origin}, Peer: peer, Port: f.port(),
		Text: fmt.Sprintf("add the rule \"%s, %s\" to %s of %s", f.text(peer), f.portText(), f.direction, origin.Policy.Short())}}
}

// excepts looks for blocks that would match if they had fewer excepts.
func (f opening) excepts(origin api.Origin, peers []networkingv1.NetworkPolicyPeer) []Change {
	addr := f.otherAddr()
	var out []Change
	for i, p := range peers {
		if p.IPBlock == nil || p.PodSelector != nil || p.NamespaceSelector != nil {
			continue
		}
		b, err := oracle.ParseBlock(p.IPBlock)
		if err != nil || !b.CIDR.Contains(addr) {
			continue
		}
		var holes []string
		for j, e := range b.Except {
			if text := p.IPBlock.Except[j]; e.Contains(addr) && !slices.Contains(holes, text) {
				holes = append(holes, text)
			}
		}
		if holes == nil {
			continue
		}
		c := f.edit(RemoveExcept, origin, fmt.Sprintf("remove except %s of %s from", strings.Join(holes, ", "), p.IPBlock.CIDR))
		c.Terms, c.Except = []int{i}, holes
		out = append(out, c)
	}
	return out
}
