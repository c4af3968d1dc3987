package oracle

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// evaluation is one query to the oracle.
type evaluation struct {
	words
	oracle *Oracle
	flow   api.Flow
	// audited makes policies in audit mode decide like all others. Otherwise they are evaluated for
	// the verdict's words only.
	audited bool
}

// both decides one end without the policies in audit mode and, if that allows the flow, also with
// them: what only they deny is allowed, and they allow nothing that others deny.
func (e evaluation) both(d api.Direction, end, other side) DirectionVerdict {
	v := e.direction(d, end, other)
	if !e.oracle.audits || !v.Allowed {
		return v
	}
	e.audited = true
	w := e.direction(d, end, other)
	if w.Allowed {
		v.Would = append(w.Deciding, w.PassedBy()...)
		return v
	}
	for i := range w.Deciding {
		w.Deciding[i].Audit = true
	}
	v.Audit = &w
	return v
}

// direction decides one end: all of its pods must allow the flow.
func (e evaluation) direction(d api.Direction, end, other side) DirectionVerdict {
	v := DirectionVerdict{Direction: d, Applies: len(end.pods) > 0, NoPod: end.note, Allowed: true}
	for _, p := range end.pods {
		r := e.subject(&v, p, other)
		v.Isolated = v.Isolated || r.Isolated
		v.Allowed = v.Allowed && r.Allowed
		v.Subjects = append(v.Subjects, r)
	}
	if e.words {
		v.Deciding = e.deciding(v)
	}
	return v
}

// subject decides for one pod, and adds its evaluation to the verdict of the direction. A pod is
// isolated if a NetworkPolicy selects it for the direction; then only traffic that matches a rule
// of these policies is allowed. The admin tier comes before that, and the baseline tier after it.
func (e evaluation) subject(v *DirectionVerdict, p *pod, other side) SubjectResult {
	policies, others := e.policies(v.Direction, p, other)
	v.Policies, v.Others = append(v.Policies, policies...), append(v.Others, others...)
	r := SubjectResult{Pod: p.id, Isolated: slices.ContainsFunc(policies, e.counts), Exempt: e.exempt(p, other)}
	if r.Exempt == SelfIsPod {
		r.Allowed = true
		return r
	}
	if decided := e.tier(AdminTier, v, &r, p, other); decided {
		e.notAsked(BaselineTier, v, e.oracle.tiers.baseline, p)
		return r
	}
	if r.Isolated {
		e.notAsked(BaselineTier, v, e.oracle.tiers.baseline, p)
		r.DecidedBy = NetworkPolicyTier
		r.Allowed = r.Exempt != NotExempt || slices.ContainsFunc(policies, func(pe PolicyEval) bool { return pe.Allows && e.counts(pe) })
		return r
	}
	if decided := e.tier(BaselineTier, v, &r, p, other); !decided {
		r.Allowed = true
	}
	return r
}

// counts reports whether a policy takes part in the decision.
func (e evaluation) counts(pe PolicyEval) bool { return e.audited || !pe.Audit }

// exempt returns the exemption of the flow from isolation: a pod cannot isolate itself from itself,
// nor from its node.
func (e evaluation) exempt(subject *pod, other side) Exemption {
	switch {
	case other.isOwn(subject):
		return SelfIsPod
	case e.oracle.allowNode && other.addr.IsValid() && e.oracle.isOwnNode(subject, other.addr):
		return OwnNode
	}
	return NotExempt
}

// policies evaluates every policy that isolates the subject in the direction, and returns as others
// those that only select it.
func (e evaluation) policies(d api.Direction, subject *pod, other side) (out []PolicyEval, others []OtherPolicy) {
	for _, p := range e.oracle.policies[subject.id.Namespace] {
		np := p.obj
		ingress, egress := Isolates(np)
		effective := d == api.Ingress && ingress || d == api.Egress && egress
		if !effective && !bool(e.words) {
			continue
		}
		if p.refusal != nil || !p.subjects.Matches(labels.Set(subject.obj.Labels)) {
			continue
		}
		rules, types, defaulted := RulesOf(np, d), typeNames(ingress, egress), len(np.Spec.PolicyTypes) == 0
		if !effective {
			others = append(others, OtherPolicy{Policy: policyID(np), Subject: subject.id,
				PolicyTypes: types, Defaulted: defaulted, IgnoredRules: len(rules)})
			continue
		}
		pe := PolicyEval{Policy: policyID(np), Subject: subject.id, PolicyTypes: types, Defaulted: defaulted, Audit: p.audit}
		for i, r := range rules {
			re := e.rule(d, np.Namespace, i, r, subject, other)
			pe.Allows = pe.Allows || re.Matched
			pe.Rules = append(pe.Rules, re)
		}
		out = append(out, pe)
	}
	return out, others
}

// rule evaluates a rule for everything that may be at the other end, and returns the evaluation
// that matches, or else the nearest one.
func (e evaluation) rule(d api.Direction, namespace string, index int, r Rule, subject *pod, other side) RuleEval {
	return e.nearest(d, index, subject, other, func(rem, dst remote) (re RuleEval) {
		re.PeerMatched, re.Peers = e.peers(d, namespace, r.Peers, rem)
		re.PortMatched, re.Ports = e.ports(r.Ports, dst)
		return re
	})
}

// nearest evaluates the peers and ports of a rule for each remote; dst is the destination of the
// flow.
func (e evaluation) nearest(d api.Direction, index int, subject *pod, other side, on func(rem, dst remote) RuleEval) RuleEval {
	var best RuleEval
	for i, rem := range other.remotes() {
		dst := rem
		if d == api.Ingress {
			dst = remote{pod: subject}
		}
		re := on(rem, dst)
		re.Index, re.Remote = index, e.f("%s", rem)
		re.Matched = re.PeerMatched && re.PortMatched
		if i == 0 || re.Failures() < best.Failures() {
			best = re
		}
	}
	return best
}

// peers reports whether some peer matches. No peers mean every peer.
func (e evaluation) peers(d api.Direction, namespace string, peers []networkingv1.NetworkPolicyPeer, r remote) (bool, []TermEval) {
	if len(peers) == 0 {
		return true, e.anyTerm(preposition(d)+" anywhere", "the rule names no peers")
	}
	var terms []TermEval
	matched := false
	for _, p := range peers {
		m := e.matchesPeer(namespace, p, r)
		matched = matched || m.ok
		if e.words {
			terms = append(terms, TermEval{Term: peerText(d, p), Matched: m.ok, Why: m.why})
		}
	}
	return matched, terms
}

// ports reports whether some port matches. No ports mean every port of every protocol, including
// protocols without ports.
func (e evaluation) ports(ports []networkingv1.NetworkPolicyPort, dst remote) (bool, []TermEval) {
	if len(ports) == 0 {
		return true, e.anyTerm("every port and protocol", "the rule names no ports")
	}
	var terms []TermEval
	matched := false
	for _, p := range ports {
		m := e.matchesPort(p, dst, e.flow)
		matched = matched || m.ok
		if e.words {
			terms = append(terms, TermEval{Term: portText(p), Matched: m.ok, Why: m.why})
		}
	}
	return matched, terms
}

func (e evaluation) anyTerm(text, why string) []TermEval {
	if !e.words {
		return nil
	}
	return []TermEval{{Term: text, Matched: true, Why: why}}
}

// deciding returns the origins of the result, sorted by subject and policy.
func (e evaluation) deciding(v DirectionVerdict) []api.Origin {
	var out []api.Origin
	for _, s := range v.Subjects {
		if s.Allowed != v.Allowed || s.Exempt == SelfIsPod {
			continue
		}
		if s.Rule != nil {
			out = append(out, *s.Rule)
		}
		if s.DecidedBy != NetworkPolicyTier {
			continue
		}
		for _, pe := range v.Policies {
			if pe.Subject == s.Pod && e.counts(pe) {
				out = append(out, originsOf(pe, v.Direction, s)...)
			}
		}
	}
	slices.SortFunc(out, api.Origin.Compare)
	return slices.Compact(out)
}

func originsOf(pe PolicyEval, d api.Direction, s SubjectResult) []api.Origin {
	origin := api.Origin{Policy: pe.Policy, Direction: d}
	switch {
	case s.Exempt == OwnNode:
		origin.Rule = api.NodeRule
		return []api.Origin{origin}
	case !s.Allowed:
		origin.Rule = api.IsolationRule
		return []api.Origin{origin}
	}
	var out []api.Origin
	for _, re := range pe.Rules {
		if re.Matched {
			origin.Rule = re.Index
			out = append(out, origin)
		}
	}
	return out
}
