package oracle

import (
	"github.com/sluice-net/sluice/api"
)

// tier evaluates the policies of a tier that apply to a subject, in order, and reports whether one
// decided: the first matching rule does, unless it passes, which ends the tier. It records both in
// the result, and the evaluated policies in the verdict.
func (e evaluation) tier(t Tier, v *DirectionVerdict, r *SubjectResult, subject *pod, other side) (decided bool) {
	list := e.oracle.tiers.policiesOf(t)
	for i, p := range list {
		rules := p.rules(v.Direction)
		if len(rules) == 0 || !p.subject.matches(e.oracle, subject) {
			continue
		}
		asked := TierEval{Policy: p.id, Subject: subject.id, Tier: t, Priority: p.priority, Audit: p.audit}
		matched := e.tierRules(v.Direction, &asked, rules, subject, other)
		e.asked(t, v, asked)
		if matched >= 0 && (e.audited || !p.audit) {
			e.notAsked(t, v, list[i+1:], subject)
			return r.recordAction(t, rules[matched].action, api.Origin{Policy: p.id, Direction: v.Direction, Rule: matched})
		}
	}
	return false
}

// tierRules evaluates the rules of a policy, and returns the index of the first match, or -1.
func (e evaluation) tierRules(d api.Direction, asked *TierEval, rules []tierRule, subject *pod, other side) int {
	for i, rule := range rules {
		re := e.tierRule(d, i, rule, subject, other)
		if e.words {
			asked.Rules = append(asked.Rules, TierRuleEval{RuleEval: re, Name: rule.name, Action: rule.action, Note: rule.describeInvalid(), DeniesAll: rule.deniesAll()})
			asked.NotAsked = len(rules) - i - 1
		}
		if re.Matched {
			return i
		}
	}
	return -1
}

// notAsked adds policies to the verdict that apply to the subject but were not evaluated, because
// an earlier one decided.
func (e evaluation) notAsked(t Tier, v *DirectionVerdict, list []*tierPolicy, subject *pod) {
	if !e.words {
		return
	}
	for _, p := range list {
		if n := len(p.rules(v.Direction)); n > 0 && p.subject.matches(e.oracle, subject) {
			e.asked(t, v, TierEval{Policy: p.id, Subject: subject.id, Tier: t, Priority: p.priority, NotAsked: n, Audit: p.audit})
		}
	}
}

// asked adds a policy to the verdict if words were requested.
func (e evaluation) asked(t Tier, v *DirectionVerdict, te TierEval) {
	switch {
	case !bool(e.words):
	case t == AdminTier:
		v.Admin = append(v.Admin, te)
	default:
		v.Baseline = append(v.Baseline, te)
	}
}

// recordAction records the action of the first matching rule of a tier, and reports whether that decides.
// The exemption from isolation does not apply to rules of admin policies (SEMANTICS D2).
func (r *SubjectResult) recordAction(t Tier, a Action, origin api.Origin) (decided bool) {
	if a == Pass {
		r.PassedBy = append(r.PassedBy, origin)
		return false
	}
	r.DecidedBy, r.Rule, r.Allowed, r.Exempt = t, &origin, a.Allows(), NotExempt
	return true
}

// tierRule evaluates a rule of an admin policy. An invalid rule that does not allow matches
// everything, except ingress from the own node, which no rule matches (SEMANTICS row 78).
func (e evaluation) tierRule(d api.Direction, index int, r tierRule, subject *pod, other side) RuleEval {
	return e.nearest(d, index, subject, other, func(rem, dst remote) (re RuleEval) {
		if r.deniesAll() {
			re.PeerMatched, re.Peers = true, e.anyTerm(preposition(d)+" anywhere", "the rule is not understood")
			if d == api.Ingress && other.addr.IsValid() && e.oracle.isOwnNode(subject, other.addr) {
				re.PeerMatched, re.Peers = false, e.ownNodeTerm()
			}
			re.PortMatched, re.Ports = true, e.anyTerm("every port and protocol", "the rule is not understood")
			return re
		}
		re.PeerMatched, re.Peers = e.tierPeers(d, r.peers, rem)
		re.PortMatched, re.Ports = e.tierPorts(r, dst)
		return re
	})
}

// ownNodeTerm explains why a rule that denies everything does not match.
func (e evaluation) ownNodeTerm() []TermEval {
	if !e.words {
		return nil
	}
	return []TermEval{{Term: "from anywhere", Why: "rules for ingress never match traffic of the own node"}}
}

// tierPeers reports whether some peer matches. An empty list is invalid, and matches nothing.
func (e evaluation) tierPeers(d api.Direction, peers []tierPeer, r remote) (matched bool, terms []TermEval) {
	for _, p := range peers {
		m := e.matchesTierPeer(p, r)
		if matched = matched || m.ok; bool(e.words) {
			terms = append(terms, TermEval{Term: p.text(d), Matched: m.ok, Why: m.why})
		}
	}
	if len(peers) == 0 && bool(e.words) {
		terms = []TermEval{{Term: preposition(d) + " (no peers)", Why: "not understood: the rule has no peers"}}
	}
	return matched, terms
}

// tierPorts reports whether some port matches. A missing list of ports means every port of every
// protocol; an empty one is invalid.
func (e evaluation) tierPorts(r tierRule, dst remote) (matched bool, terms []TermEval) {
	if r.anyPort {
		return true, e.anyTerm("every port and protocol", "the rule names no ports")
	}
	for _, p := range r.ports {
		m := e.matchesTierPort(p, r.nameless, dst, e.flow)
		if matched = matched || m.ok; bool(e.words) {
			terms = append(terms, TermEval{Term: p.text(), Matched: m.ok, Why: m.why})
		}
	}
	if len(r.ports) == 0 && bool(e.words) {
		terms = []TermEval{{Term: "(no ports)", Why: "not understood: the list of ports is empty"}}
	}
	return matched, terms
}
