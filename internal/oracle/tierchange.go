package oracle

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
)

// maxChain bounds how many rules one change removes.
const maxChain = 4

// tier looks for what would open a direction that a rule of administrators denies.
func (f opening) tier(dv DirectionVerdict, s SubjectResult) []Change {
	var out []Change
	asked := dv.tierRules(s)
	for _, a := range asked {
		switch {
		case a.origin == *s.Rule:
			out = append(out, f.narrowed(a)...)
			out = append(out, f.evasions(a)...)
		case a.eval.Action.allows() && a.eval.failures() == 1:
			out = append(out, f.widened(a)...)
		}
	}
	out = append(out, f.oracle.removals(f.verdict, f.direction, s)...)
	if c, ok := f.before(*s.Rule, f.oracle.tiers.policy(s.Rule.Policy).allow()); ok {
		out = append(out, c)
	}
	if peer := f.peer(s.Pod.Namespace); peer != nil && s.DecidedBy == BaselineTier {
		out = append(out, Change{Kind: AddPolicy, Direction: f.direction, Pod: s.Pod, Peer: peer, Port: f.flowPort(),
			Text: fmt.Sprintf("add a policy that isolates %s of %s and has the rule \"%s, %s\"", f.direction, s.Pod, f.text(peer), f.portText())})
	}
	return out
}

// closeTier looks for what would close a direction that a rule of administrators
// allows.
func (o *Oracle) closeTier(v Verdict, d api.Direction, s SubjectResult) []Change {
	f := opening{oracle: o, verdict: v, direction: d}
	var out []Change
	for _, a := range v.Direction(d).tierRules(s) {
		if a.origin == *s.Rule {
			out = append(out, f.narrowed(a)...)
		}
	}
	out = append(out, o.removals(v, d, s)...)
	if c, ok := f.before(*s.Rule, Deny); ok {
		out = append(out, c)
	}
	return out
}

// askedRule is a rule of administrators that was asked about a subject.
type askedRule struct {
	origin api.Origin
	eval   TierRuleEval
}

// tierRules returns the rules that the tier which decided asked, in order.
func (d DirectionVerdict) tierRules(s SubjectResult) []askedRule {
	list := d.Admin
	if s.DecidedBy == BaselineTier {
		list = d.Baseline
	}
	var out []askedRule
	for _, te := range list {
		for _, re := range te.Rules {
			if te.Subject == s.Pod {
				out = append(out, askedRule{api.Origin{Policy: te.Policy, Direction: d.Direction, Rule: re.Index}, re})
			}
		}
	}
	return out
}

// before adds a rule for the flow in front of one that does the contrary. On ingress
// only pods are peers, so there may be none.
func (f opening) before(g api.Origin, action Action) (Change, bool) {
	peer := f.tierPeer()
	if peer == nil {
		return Change{}, false
	}
	c := f.edit(AddRuleBefore, g, fmt.Sprintf("add the rule \"%s %s, %s\" before", action, f.text(peer), f.portText()))
	c.Peer, c.Port, c.Action = peer, f.flowPort(), action
	return c, true
}

// tierPeer is a peer that matches the other end: by its labels where it is a pod, else,
// on egress, by its address. It is nil when neither can be.
func (f opening) tierPeer() *networkingv1.NetworkPolicyPeer {
	p := f.peer("") // of no namespace, so that it names one
	if p != nil && p.IPBlock != nil && f.direction == api.Ingress {
		return nil
	}
	return p
}

// narrowed returns the ways to keep a rule without its terms that match.
func (f opening) narrowed(a askedRule) []Change {
	r := f.oracle.tiers.policy(a.origin.Policy).rules(f.direction)[a.origin.Rule]
	if r.deniesAll() {
		return nil
	}
	var out []Change
	narrow := func(kind ChangeKind, terms []TermEval, has int) {
		matched := matching(terms)
		if len(matched) == has || len(terms) != has {
			return
		}
		c := f.edit(kind, a.origin, "remove "+quoted(terms, matched)+" from")
		c.Terms = matched
		out = append(out, c)
	}
	narrow(RemovePorts, a.eval.Ports, len(r.ports))
	narrow(RemovePeers, a.eval.Peers, len(r.peers))
	return out
}

// widened returns the ways in which a rule that allows, and is asked before the one
// that denies, would match.
func (f opening) widened(a askedRule) []Change {
	r := f.oracle.tiers.policy(a.origin.Policy).rules(f.direction)[a.origin.Rule]
	if a.eval.PeerMatched {
		if port := f.flowPort(); port != nil && !r.anyPort {
			c := f.edit(AddPort, a.origin, fmt.Sprintf("add %q to", f.portText()))
			c.Port = port
			return []Change{c}
		}
		return nil
	}
	var out []Change
	for _, p := range r.peers {
		if p.pods == nil || f.remote() == nil {
			continue
		}
		as := networkingv1.NetworkPolicyPeer{PodSelector: p.pods.pods, NamespaceSelector: p.pods.namespaces}
		if parts, ok := f.relabel("", a.origin, as, f.remote()); ok && len(parts) > 0 {
			out = append(out, allOf(parts))
		}
	}
	if peer := f.tierPeer(); peer != nil {
		c := f.edit(AddPeer, a.origin, fmt.Sprintf("add %q to", f.text(peer)))
		c.Peer = peer
		out = append(out, c)
	}
	return out
}

func allOf(parts []Change) Change {
	if len(parts) == 1 {
		return parts[0]
	}
	return together(parts...)
}

// any reports whether a change, or a part of it, is of a sort.
func (c Change) any(is func(Change) bool) bool {
	return is(c) || slices.ContainsFunc(c.Parts, func(p Change) bool { return p.any(is) })
}

// evasion is 0 for a change that is made where the verdict is: of a rule of administrators by
// changing that. Labels that take a pod out of such a rule come after it, and those of a
// namespace last, since they touch what all its pods may do.
func (c Change) evasion() int {
	ofTier := func(c Change) bool {
		return slices.ContainsFunc(c.Origins, func(g api.Origin) bool { return g.Policy.Kind != api.NetworkPolicy })
	}
	switch {
	case !c.any(ofTier):
		return 0
	case c.any(func(c Change) bool { return c.Kind == LabelNamespace }):
		return 2
	case c.any(func(c Change) bool { return c.Kind == LabelPod && ofTier(c) }):
		return 1
	}
	return 0
}

// evasions are the labels by which the other end would not be matched by a rule any
// more, one for every requirement of the one peer that matches.
func (f opening) evasions(a askedRule) []Change {
	matched, r := matching(a.eval.Peers), f.remote()
	rule := f.oracle.tiers.policy(a.origin.Policy).rules(f.direction)[a.origin.Rule]
	if r == nil || rule.deniesAll() || len(matched) != 1 || rule.peers[matched[0]].pods == nil {
		return nil
	}
	var out []Change
	p := rule.peers[matched[0]].pods
	for _, c := range escape(p.pods, r.obj.Labels) {
		c.Kind, c.Direction, c.Origins, c.Pod = LabelPod, f.direction, []api.Origin{a.origin}, r.id
		c.Text = "label pod " + r.id.String() + " " + labelTexts(c.Set, c.Unset)
		out = append(out, c)
	}
	set, _ := f.oracle.namespaceLabels(r.id.Namespace)
	for _, c := range escape(p.namespaces, set) {
		if slices.Contains(c.Unset, labelOfName) {
			continue // the name of a namespace cannot be taken away
		}
		c.Kind, c.Direction, c.Origins, c.Namespace = LabelNamespace, f.direction, []api.Origin{a.origin}, r.id.Namespace
		c.Text = "label namespace " + r.id.Namespace + " " + labelTexts(c.Set, c.Unset)
		out = append(out, c)
	}
	return out
}

// removals removes the rule which decides, and with it the next ones that would decide
// the same. Where NetworkPolicies deny then, what opens these is part of each change.
func (o *Oracle) removals(v Verdict, d api.Direction, s SubjectResult) []Change {
	var origins []api.Origin
	for rule := s.Rule; rule != nil && len(origins) < maxChain; {
		c := removal(d, append(slices.Clone(origins), original(*rule, origins)))
		origins = c.Origins
		at := o.after(c)
		next := at.decide(v.Src, v.Dst, v.Flow, true)
		dv := next.Direction(d).of(s.Pod)
		r := dv.Subjects[0]
		if r.Allowed != s.Allowed {
			return []Change{c}
		}
		if rule = r.Rule; rule == nil && !s.Allowed {
			return at.both(c, next, dv, r)
		}
	}
	return nil
}

// both makes changes of one that was made in the state, and of each of some that would
// open what denies still.
func (o *Oracle) both(first Change, v Verdict, dv DirectionVerdict, s SubjectResult) []Change {
	f := opening{oracle: o, verdict: v, direction: dv.Direction}
	more := o.smallestFirst(f.isolation(dv, s))
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
