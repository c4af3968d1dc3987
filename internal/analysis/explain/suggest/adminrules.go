package suggest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// maxChain bounds how many rules one change removes.
const maxChain = 4

// adminRules looks for what would turn around a direction about which a rule of
// administrators decides.
type adminRules struct{ end }

// open looks for what would allow what the rule denies.
func (f adminRules) open(dv oracle.DirectionVerdict, s oracle.SubjectResult) []Change {
	var out []Change
	for _, a := range askedRules(dv, s) {
		switch {
		case a.rule == *s.Rule:
			out = append(out, f.narrowed(a)...)
			out = append(out, f.evasions(a)...)
		case a.eval.Action.Allows() && a.eval.Failures() == 1:
			out = append(out, f.widened(a)...)
		}
	}
	out = append(out, f.removals(s)...)
	if c, ok := f.before(*s.Rule, f.policyOf(*s.Rule).allow()); ok {
		out = append(out, c)
	}
	if peer := f.peer(s.Pod.Namespace); peer != nil && s.DecidedBy == oracle.BaselineTier {
		out = append(out, Change{Kind: AddPolicy, Direction: f.direction, Pod: s.Pod, Peer: peer, Port: f.port(),
			Text: fmt.Sprintf("add a policy that isolates %s of %s and has the rule \"%s, %s\"", f.direction, s.Pod, f.text(peer), f.portText())})
	}
	return out
}

// close looks for what would deny what the rule allows.
func (f adminRules) close(dv oracle.DirectionVerdict, s oracle.SubjectResult) []Change {
	var out []Change
	for _, a := range askedRules(dv, s) {
		if a.rule == *s.Rule {
			out = append(out, f.narrowed(a)...)
		}
	}
	out = append(out, f.removals(s)...)
	if c, ok := f.before(*s.Rule, oracle.Deny); ok {
		out = append(out, c)
	}
	return out
}

func (f adminRules) policyOf(rule api.Origin) adminPolicy {
	return newAdminPolicy(f.oracle, rule.Policy)
}

// askedRule is an admin rule that was evaluated for a subject.
type askedRule struct {
	rule api.Origin
	eval oracle.TierRuleEval
}

// askedRules returns the rules that the tier which decided asked, in order.
func askedRules(dv oracle.DirectionVerdict, s oracle.SubjectResult) []askedRule {
	list := dv.Admin
	if s.DecidedBy == oracle.BaselineTier {
		list = dv.Baseline
	}
	var out []askedRule
	for _, te := range list {
		for _, re := range te.Rules {
			if te.Subject == s.Pod {
				out = append(out, askedRule{api.Origin{Policy: te.Policy, Direction: dv.Direction, Rule: re.Index}, re})
			}
		}
	}
	return out
}

// before adds a rule for the flow in front of one that does the contrary. On ingress
// only pods are peers, so there may be none.
func (f adminRules) before(rule api.Origin, action oracle.Action) (Change, bool) {
	peer := f.adminPeer()
	if peer == nil {
		return Change{}, false
	}
	c := f.edit(AddRuleBefore, rule, fmt.Sprintf("add the rule \"%s %s, %s\" before", action, f.text(peer), f.portText()))
	c.Peer, c.Port, c.Action = peer, f.port(), action
	return c, true
}

// narrowed returns the ways to keep a rule without its terms that match.
func (f adminRules) narrowed(a askedRule) []Change {
	if a.eval.DeniesAll {
		return nil
	}
	var out []Change
	narrow := func(kind Kind, terms []oracle.TermEval, has []any) {
		matched := matching(terms)
		if len(matched) == len(has) || len(terms) != len(has) {
			return
		}
		c := f.edit(kind, a.rule, "remove "+quoted(terms, matched)+" from")
		c.Terms = matched
		out = append(out, c)
	}
	peers, ports := f.policyOf(a.rule).rule(f.direction, a.rule.Rule)
	narrow(RemovePorts, a.eval.Ports, ports)
	narrow(RemovePeers, a.eval.Peers, peers)
	return out
}

// widened returns the ways in which a rule that allows, and is asked before the one
// that denies, would match.
func (f adminRules) widened(a askedRule) []Change {
	if a.eval.PeerMatched {
		port := f.port()
		if port == nil {
			return nil
		}
		c := f.edit(AddPort, a.rule, fmt.Sprintf("add %q to", f.portText()))
		c.Port = port
		return []Change{c}
	}
	var out []Change
	peers, _ := f.policyOf(a.rule).rule(f.direction, a.rule.Rule)
	for _, p := range peers {
		namespaces, pods, ok := selectorsOf(p)
		if !ok || f.otherPod() == nil {
			continue
		}
		as := networkingv1.NetworkPolicyPeer{PodSelector: pods, NamespaceSelector: namespaces}
		if parts, ok := relabel(f.end, "", a.rule, as, f.otherPod()); ok && len(parts) > 0 {
			out = append(out, together(parts...))
		}
	}
	if peer := f.adminPeer(); peer != nil {
		c := f.edit(AddPeer, a.rule, fmt.Sprintf("add %q to", f.text(peer)))
		c.Peer = peer
		out = append(out, c)
	}
	return out
}

// evasions are the labels by which the other end would not be matched by a rule any
// more, one for every requirement of the one peer that matches.
func (f adminRules) evasions(a askedRule) []Change {
	matched, pod := matching(a.eval.Peers), f.otherPod()
	if pod == nil || a.eval.DeniesAll || len(matched) != 1 {
		return nil
	}
	peers, _ := f.policyOf(a.rule).rule(f.direction, a.rule.Rule)
	namespaces, pods, ok := selectorsOf(peers[matched[0]])
	if !ok {
		return nil
	}
	var out []Change
	for _, c := range escape(pods, pod.Labels) {
		out = append(out, podLabels(f.direction, a.rule, pod, c.Set, c.Unset))
	}
	set, _ := f.oracle.NamespaceLabels(pod.Namespace)
	for _, c := range escape(namespaces, set) {
		if slices.Contains(c.Unset, corev1.LabelMetadataName) {
			continue // the name of a namespace cannot be taken away
		}
		out = append(out, namespaceLabels(f.direction, a.rule, pod.Namespace, c.Set, c.Unset))
	}
	return out
}

// removals removes the rule which decides, and with it the next ones that would decide
// the same. Where NetworkPolicies deny then, what opens these is part of each change.
func (f adminRules) removals(s oracle.SubjectResult) []Change {
	var rules []api.Origin
	for rule := s.Rule; rule != nil && len(rules) < maxChain; {
		c := removal(f.direction, append(slices.Clone(rules), original(*rule, rules)))
		rules = c.Origins
		at := end{oracle: after(f.oracle, c), direction: f.direction}
		at.verdict = at.oracle.VerdictPods(f.verdict.Src, f.verdict.Dst, f.verdict.Flow.Protocol, f.verdict.Flow.DstPort)
		dv := at.verdict.Direction(f.direction).Of(s.Pod)
		r := dv.Subjects[0]
		if r.Allowed != s.Allowed {
			return []Change{c}
		}
		if rule = r.Rule; rule == nil && !s.Allowed {
			return opening{at}.besides(c, dv, s.Pod)
		}
	}
	return nil
}

// besides makes changes of one that was made in the state, and of each of some that
// would open what denies still.
func (f opening) besides(first Change, dv oracle.DirectionVerdict, subject api.PodID) []Change {
	more := smallestFirst(f.oracle, f.isolation(dv, subject))
	var out []Change
	for _, c := range more[:min(len(more), maxPerNeed)] {
		out = append(out, together(first, c))
	}
	return out
}

// original returns the place that a rule had before others of its policy were removed;
// these are sorted.
func original(g api.Origin, removed []api.Origin) api.Origin {
	for _, r := range removed {
		if r.Policy == g.Policy && r.Direction == g.Direction && r.Rule <= g.Rule {
			g.Rule++
		}
	}
	return g
}

// Without returns what one end would say about one of its subjects if the rule of
// administrators that decides about it were not there. The places of rules are those
// that they have now.
func Without(o *oracle.Oracle, v oracle.Verdict, d api.Direction, s oracle.SubjectResult) oracle.DirectionVerdict {
	removed := []api.Origin{*s.Rule}
	o = after(o.Around(v.Src, v.Dst), removal(d, removed))
	dv := o.VerdictPods(v.Src, v.Dst, v.Flow.Protocol, v.Flow.DstPort).Direction(d).Of(s.Pod)
	r := &dv.Subjects[0]
	if r.Rule != nil {
		rule := original(*r.Rule, removed)
		r.Rule = &rule
	}
	r.PassedBy = slices.Clone(r.PassedBy)
	for i, p := range r.PassedBy {
		r.PassedBy[i] = original(p, removed)
	}
	return dv
}
