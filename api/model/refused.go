package model

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Refuse returns the policy that is in force in place of p, of which something cannot be read that
// decides what it isolates: it has no rules, so it permits nothing. It selects the pods that p
// selects or, if that cannot be read, all of the namespace. p must say which directions to isolate.
func (p *NetworkPolicy) Refuse(reason string) *NetworkPolicy {
	out := &NetworkPolicy{
		Namespace: p.GetNamespace(), Name: p.GetName(), PodSelector: p.GetPodSelector(), Audit: p.GetAudit(),
		IsolatesIngress: p.GetIsolatesIngress(), IsolatesEgress: p.GetIsolatesEgress(), Refused: reason,
	}
	if out.PodSelector == nil || out.PodSelector.unreadable() != nil {
		out.PodSelector = &LabelSelector{}
	}
	return out
}

// Refuse returns the policy that is in force in place of p, of which something cannot be read that
// decides whom it is for, or when: it denies everything in each direction in which p has a rule
// that does not allow. It is for the pods that p is for; if only their namespaces can be read, and
// these are not all, for all pods in them; otherwise for none. One mistake in a policy must not
// stop a whole cluster.
func (p *ClusterPolicy) Refuse(reason string) *ClusterPolicy {
	out := &ClusterPolicy{
		Kind: p.GetKind(), Name: p.GetName(), Tier: p.GetTier(), Priority: p.GetPriority(), Subject: p.GetSubject(),
		Ingress: refuseRules(p.GetIngress()), Egress: refuseRules(p.GetEgress()), Audit: p.GetAudit(), Refused: reason,
	}
	if ns := p.GetSubject().GetNamespaces(); p.unreadable() == nil {
		return out
	} else if some := len(ns.GetMatchLabels())+len(ns.GetMatchExpressions()) > 0; some && ns.unreadable() == nil {
		out.Subject = &ClusterPolicy_Pods{Namespaces: ns, Pods: &LabelSelector{}}
	} else {
		out.Subject = nil
	}
	return out
}

// refuseRules returns a rule that denies everything, because its peers are unknown, unless all
// rules allow.
func refuseRules(rules []*ClusterPolicy_Rule) []*ClusterPolicy_Rule {
	for _, r := range rules {
		if r.GetAction() != ClusterPolicy_ACTION_ALLOW {
			return []*ClusterPolicy_Rule{{Action: ClusterPolicy_ACTION_DENY, AnyPort: true}}
		}
	}
	return nil
}

// maxReason is the length of a reason that is shown.
const maxReason = 1000

// Refused returns why a policy cannot be read as a whole, or "".
func Refused(m proto.Message) string {
	p, ok := m.(interface{ GetRefused() string })
	if !ok {
		return ""
	}
	why := p.GetRefused()
	return Printable(why[:min(len(why), maxReason)])
}

// Closed returns the policy that is in force in place of one whose subject cannot be read, and any
// other message as it is.
func Closed(m proto.Message) proto.Message {
	switch p := m.(type) {
	case *NetworkPolicy:
		if err := p.GetPodSelector().unreadable(); err != nil {
			return p.Refuse("spec.podSelector: " + err.Error())
		}
	case *ClusterPolicy:
		if err := p.unreadable(); err != nil && p.GetRefused() == "" {
			return p.Refuse("spec.subject: " + err.Error())
		}
	}
	return m
}

// unreadable returns why it is unknown which pods a policy is for, or nil.
func (p *ClusterPolicy) unreadable() error {
	s := p.GetSubject()
	if s.GetNamespaces() == nil || s.GetPods() == nil {
		return fmt.Errorf("it selects no namespaces, or no pods in them")
	}
	if err := s.GetNamespaces().unreadable(); err != nil {
		return err
	}
	return s.GetPods().unreadable()
}

// unreadable returns why it is unknown what a selector selects, or nil. A requirement that was
// invalid in its source has no operator.
func (s *LabelSelector) unreadable() error {
	for _, l := range s.GetMatchLabels() {
		if l.GetKey() == "" {
			return fmt.Errorf("a label has no key")
		}
	}
	for _, r := range s.GetMatchExpressions() {
		values := false
		switch r.GetOperator() {
		case LabelSelector_OPERATOR_IN, LabelSelector_OPERATOR_NOT_IN:
			values = true
		case LabelSelector_OPERATOR_EXISTS, LabelSelector_OPERATOR_DOES_NOT_EXIST:
		default:
			return fmt.Errorf("the requirement of %s has no known operator: %d", Quoted(r.GetKey()), r.GetOperator())
		}
		if r.GetKey() == "" || values != (len(r.GetValues()) > 0) {
			return fmt.Errorf("the requirement of %s has no key, no values, or values that its operator does not have", Quoted(r.GetKey()))
		}
	}
	return nil
}
