package oracle

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// evaluation is one question to the oracle.
type evaluation struct {
	words
	oracle *Oracle
	flow   api.Flow
}

// direction decides what one end has to say. A subject is isolated when a policy
// selects it for the direction, and then only what some rule of these policies
// matches is allowed.
func (e evaluation) direction(d api.Direction, end, other side) DirectionVerdict {
	v := DirectionVerdict{Direction: d, Applies: len(end.pods) > 0, Allowed: true}
	for _, p := range end.pods {
		policies := e.policies(d, p, other)
		r := SubjectResult{Pod: p.id, Isolated: len(policies) > 0, Exempt: e.exempt(p, other)}
		r.Allowed = !r.Isolated || r.Exempt != NotExempt ||
			slices.ContainsFunc(policies, func(pe PolicyEval) bool { return pe.Allows })
		v.Isolated = v.Isolated || r.Isolated
		v.Allowed = v.Allowed && r.Allowed
		v.Subjects = append(v.Subjects, r)
		v.Policies = append(v.Policies, policies...)
	}
	if e.words {
		v.Deciding = deciding(v)
		v.Reason = reason(v, end)
	}
	return v
}

// exempt says whether isolation does not concern the flow: a pod cannot cut
// itself off from itself, nor from the node that runs it.
func (e evaluation) exempt(subject *pod, other side) Exemption {
	switch {
	case other.isOwn(subject):
		return SelfIsPod
	case e.oracle.allowNode && other.addr.IsValid() && e.oracle.isOwnNode(subject, other.addr):
		return OwnNode
	}
	return NotExempt
}

// policies evaluates every policy that isolates the subject in the direction.
func (e evaluation) policies(d api.Direction, subject *pod, other side) []PolicyEval {
	var out []PolicyEval
	for _, np := range e.oracle.policies[subject.id.Namespace] {
		ingress, egress := isolates(np)
		if d == api.Ingress && !ingress || d == api.Egress && !egress {
			continue
		}
		quiet := words(false)
		if !quiet.selects(&np.Spec.PodSelector, labels.Set(subject.obj.Labels), subject.id).ok || refusal(np) != nil {
			continue
		}
		pe := PolicyEval{Policy: policyID(np), Subject: subject.id, PolicyTypes: typeNames(ingress, egress)}
		for i, r := range rulesOf(np, d) {
			re := e.rule(d, np.Namespace, i, r, subject, other)
			pe.Allows = pe.Allows || re.Matched
			pe.Rules = append(pe.Rules, re)
		}
		out = append(out, pe)
	}
	return out
}

// isolates returns the directions of a policy. An object that never met an API
// server lacks the default: ingress, and egress when there are egress rules.
func isolates(np *networkingv1.NetworkPolicy) (ingress, egress bool) {
	if len(np.Spec.PolicyTypes) == 0 {
		return true, len(np.Spec.Egress) > 0
	}
	return slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeIngress),
		slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// refusal says why a policy is refused as a whole: it is not known whom, or in
// which direction, it isolates. No API server accepts such a policy. It has no
// effect, and the verdicts of pods of its namespace say so.
func refusal(np *networkingv1.NetworkPolicy) error {
	if _, err := metav1.LabelSelectorAsSelector(&np.Spec.PodSelector); err != nil {
		return fmt.Errorf("spec.podSelector is invalid: %w", err)
	}
	for _, t := range np.Spec.PolicyTypes {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			return fmt.Errorf("spec.policyTypes has the unknown type %q", t)
		}
	}
	return nil
}

func typeNames(ingress, egress bool) []string {
	var out []string
	if ingress {
		out = append(out, string(networkingv1.PolicyTypeIngress))
	}
	if egress {
		out = append(out, string(networkingv1.PolicyTypeEgress))
	}
	return out
}

// rule is one rule of either direction.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer // none: every peer
	ports []networkingv1.NetworkPolicyPort // none: every port of every protocol
}

func rulesOf(np *networkingv1.NetworkPolicy, d api.Direction) []rule {
	var out []rule
	if d == api.Ingress {
		for _, r := range np.Spec.Ingress {
			out = append(out, rule{r.From, r.Ports})
		}
		return out
	}
	for _, r := range np.Spec.Egress {
		out = append(out, rule{r.To, r.Ports})
	}
	return out
}

// rule evaluates a rule on everything that may be at the other end, and returns
// the evaluation that matches, or the one that came nearest.
func (e evaluation) rule(d api.Direction, namespace string, index int, r rule, subject *pod, other side) RuleEval {
	var best RuleEval
	for i, rem := range other.remotes() {
		dst := rem
		if d == api.Ingress {
			dst = remote{pod: subject}
		}
		re := RuleEval{Index: index, Matched: true, Remote: e.f("%s", rem)}
		re.PeerMatched, re.Peers = e.peers(d, namespace, r.peers, rem)
		re.PortMatched, re.Ports = e.ports(r.ports, dst)
		re.Matched = re.PeerMatched && re.PortMatched
		if i == 0 || re.failures() < best.failures() {
			best = re
		}
	}
	return best
}

// peers says whether some peer matches. No peers at all mean every peer.
func (e evaluation) peers(d api.Direction, namespace string, peers []networkingv1.NetworkPolicyPeer, r remote) (bool, []TermEval) {
	if len(peers) == 0 {
		return true, e.anyTerm(preposition(d) + " anywhere")
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

// ports says whether some port matches. No ports at all mean every port of every
// protocol, also of those that have no ports.
func (e evaluation) ports(ports []networkingv1.NetworkPolicyPort, dst remote) (bool, []TermEval) {
	if len(ports) == 0 {
		return true, e.anyTerm("every port and protocol")
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

func (e evaluation) anyTerm(text string) []TermEval {
	if !e.words {
		return nil
	}
	return []TermEval{{Term: text, Matched: true}}
}

// deciding returns the origins of the result, sorted by subject and policy.
func deciding(v DirectionVerdict) []api.Origin {
	var out []api.Origin
	for _, s := range v.Subjects {
		if s.Allowed != v.Allowed || s.Exempt == SelfIsPod {
			continue
		}
		for _, pe := range v.Policies {
			if pe.Subject == s.Pod {
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

// reason sums a direction up in words.
func reason(v DirectionVerdict, end side) string {
	if !v.Applies {
		return "open: " + end.note
	}
	for _, s := range v.Subjects {
		switch {
		case s.Allowed != v.Allowed:
			continue
		case s.Exempt == SelfIsPod:
			return "always permitted: a pod reaches itself"
		case s.Exempt == OwnNode:
			return "always permitted: the other end is the pod's own node"
		}
	}
	if !v.Isolated {
		return "open: no policy selects it"
	}
	var names []string
	for _, pe := range v.Policies {
		names = append(names, pe.Policy.Namespace+"/"+pe.Policy.Name)
	}
	slices.Sort(names)
	return "isolated by " + strings.Join(slices.Compact(names), ", ")
}

// notes says what a reader of the verdict might not expect.
func (e evaluation) notes(src, dst side) []string {
	var out []string
	for _, s := range []side{src, dst} {
		if waits(&s) {
			out = append(out, fmt.Sprintf("%s has no address: judged by its labels, no block matches it", s.endpoint))
		}
		if len(s.pods) > 1 {
			out = append(out, fmt.Sprintf("%s is the address of %d pods: allowed only when allowed for all", s.addr, len(s.pods)))
		}
		for _, p := range s.pods {
			out = append(out, e.oracle.refused(p.id.Namespace)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// refused names the policies of a namespace that have no effect.
func (o *Oracle) refused(namespace string) []string {
	var out []string
	for _, np := range o.policies[namespace] {
		if err := refusal(np); err != nil {
			out = append(out, fmt.Sprintf("%s has no effect: %v", policyID(np), err))
		}
	}
	return out
}
