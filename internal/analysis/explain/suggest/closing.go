package suggest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// closings returns what could make an allowed flow denied: one subject of one
// direction is enough. An exempt subject cannot be closed.
func closings(o *oracle.Oracle, v oracle.Verdict) []Change {
	var out []Change
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := v.Direction(d)
		for _, s := range dv.Subjects {
			e := end{oracle: o, verdict: v, direction: d}
			switch {
			case s.Exempt != oracle.NotExempt:
			case s.DecidedBy == oracle.AdminTier:
				out = append(out, adminRules{e}.close(dv, s)...)
			case s.DecidedBy == oracle.BaselineTier:
				out = append(append(out, adminRules{e}.close(dv, s)...), isolate(d, s.Pod))
			case !s.Isolated:
				out = append(out, isolate(d, s.Pod))
			default:
				out = append(out, closing{e}.subject(dv, s.Pod)...)
			}
		}
	}
	return out
}

// isolate is the change that isolates a pod. A NetworkPolicy that does decides before
// the baseline tier.
func isolate(d api.Direction, pod api.PodID) Change {
	return Change{Kind: Isolate, Direction: d, Pod: pod, Text: fmt.Sprintf("add a policy that isolates %s of %s", d, pod)}
}

// closing looks for what would close one direction of a verdict that NetworkPolicies
// isolate.
type closing struct{ end }

// subject closes all the rules that allow the flow for a subject: each without
// its terms that match, where it keeps others, or as a whole.
func (c closing) subject(dv oracle.DirectionVerdict, subject api.PodID) []Change {
	var remove, rest []api.Origin
	var narrowed, out []Change
	for _, pe := range dv.Policies {
		for _, re := range pe.Rules {
			if pe.Subject != subject || !re.Matched {
				continue
			}
			origin := api.Origin{Policy: pe.Policy, Direction: c.direction, Rule: re.Index}
			remove = append(remove, origin)
			if ways := smallestFirst(c.oracle, c.narrow(origin, re)); len(ways) > 0 {
				narrowed, out = append(narrowed, ways[0]), ways
			} else {
				rest = append(rest, origin)
			}
		}
	}
	if len(remove) > 1 {
		out = nil // the ways of one rule are not enough
	}
	if len(remove) > 1 && len(narrowed) > 0 {
		if len(rest) > 0 {
			narrowed = append(narrowed, c.remove(rest))
		}
		out = append(out, together(narrowed...))
	}
	return append(out, c.remove(remove))
}

func (c closing) remove(origins []api.Origin) Change {
	out := Change{Kind: RemoveRules, Direction: c.direction, Origins: origins, Text: "remove " + ruleTexts(origins...)}
	for _, id := range policiesOf(origins) {
		np := c.oracle.NetworkPolicy(id)
		if c.losesType(np, origins) {
			out.Text += fmt.Sprintf(" and give %s the policyTypes %s", id.Short(), typeTexts(np))
		}
	}
	return out
}

// typeTexts names the types of a policy.
func typeTexts(np *networkingv1.NetworkPolicy) string {
	var out []string
	for _, t := range typesOf(np) {
		out = append(out, string(t))
	}
	return strings.Join(out, ", ")
}

// losesType reports whether a policy isolates egress only because it has rules that
// are all to be removed (SEMANTICS row 4).
func (c closing) losesType(np *networkingv1.NetworkPolicy, origins []api.Origin) bool {
	removed := 0
	for _, g := range origins {
		if g.Policy.Namespace == np.Namespace && g.Policy.Name == np.Name {
			removed++
		}
	}
	return c.direction == api.Egress && len(np.Spec.PolicyTypes) == 0 && removed == len(np.Spec.Egress)
}

// narrow returns the ways to keep a rule without its terms that match.
func (c closing) narrow(origin api.Origin, re oracle.RuleEval) []Change {
	r := oracle.RulesOf(c.oracle.NetworkPolicy(origin.Policy), c.direction)[origin.Rule]
	change := func(kind Kind, terms []int, verb string) Change {
		e := c.edit(kind, origin, verb)
		e.Terms = terms
		return e
	}
	var out []Change
	if terms := matching(re.Ports); len(terms) < len(r.Ports) {
		out = append(out, change(RemovePorts, terms, "remove "+quoted(re.Ports, terms)+" from"))
	}
	terms := matching(re.Peers)
	if len(terms) < len(r.Peers) {
		out = append(out, change(RemovePeers, terms, "remove "+quoted(re.Peers, terms)+" from"))
	}
	if len(r.Peers) > 0 && !slices.ContainsFunc(terms, func(i int) bool { return !c.canExcept(r.Peers[i].IPBlock) }) {
		except := netip.PrefixFrom(c.otherAddr(), c.otherAddr().BitLen()).String()
		e := change(AddExcept, terms, fmt.Sprintf("add except %s to %s of", except, quoted(re.Peers, terms)))
		e.Except = []string{except}
		out = append(out, e)
	}
	return out
}

// canExcept reports whether the address can be taken out of a block: an except is a
// strict part.
func (c closing) canExcept(b *networkingv1.IPBlock) bool {
	if b == nil {
		return false
	}
	block, err := oracle.ParseBlock(b)
	return err == nil && block.CIDR.Bits() < c.otherAddr().BitLen()
}

// matching returns the indexes of the terms that match.
func matching(terms []oracle.TermEval) []int {
	var out []int
	for i, t := range terms {
		if t.Matched {
			out = append(out, i)
		}
	}
	return out
}

func quoted(terms []oracle.TermEval, indexes []int) string {
	var out []string
	for _, i := range indexes {
		out = append(out, fmt.Sprintf("%q", terms[i].Term))
	}
	return strings.Join(out, " and ")
}
