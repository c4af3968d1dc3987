package oracle

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// tryWithout fills what would be without each rule of administrators that decides.
func (o *Oracle) tryWithout(v *Verdict) {
	for _, dv := range []*DirectionVerdict{&v.Egress, &v.Ingress} {
		for i := range dv.Subjects {
			s := &dv.Subjects[i]
			if s.Rule == nil {
				continue
			}
			at := o.after(removal(dv.Direction, []api.Origin{*s.Rule}))
			next := at.decide(v.Src, v.Dst, v.Flow, true).Direction(dv.Direction)
			next = next.of(s.Pod).beforeRemoval(*s.Rule)
			s.Without = &Without{Allowed: next.Allowed, DecidedBy: next.Subjects[0].DecidedBy, Reason: reason(next, side{})}
		}
	}
}

// of leaves of a direction what is about one of its subjects.
func (d DirectionVerdict) of(pod api.PodID) DirectionVerdict {
	d.Subjects = slices.DeleteFunc(slices.Clone(d.Subjects), func(s SubjectResult) bool { return s.Pod != pod })
	d.Policies = slices.DeleteFunc(slices.Clone(d.Policies), func(pe PolicyEval) bool { return pe.Subject != pod })
	d.Others = slices.DeleteFunc(slices.Clone(d.Others), func(o OtherPolicy) bool { return o.Subject != pod })
	d.Admin = slices.DeleteFunc(slices.Clone(d.Admin), func(te TierEval) bool { return te.Subject != pod })
	d.Baseline = slices.DeleteFunc(slices.Clone(d.Baseline), func(te TierEval) bool { return te.Subject != pod })
	d.Isolated, d.Allowed = d.Subjects[0].Isolated, d.Subjects[0].Allowed
	return d
}

// beforeRemoval gives the rules of the one subject the places that they had before a rule
// was removed.
func (d DirectionVerdict) beforeRemoval(g api.Origin) DirectionVerdict {
	s := &d.Subjects[0]
	if s.Rule != nil {
		rule := original(*s.Rule, []api.Origin{g})
		s.Rule = &rule
	}
	s.PassedBy = slices.Clone(s.PassedBy)
	for i, p := range s.PassedBy {
		s.PassedBy[i] = original(p, []api.Origin{g})
	}
	return d
}

// keepsTiers says whether every policy of administrators that applied to an end
// applies to it still.
func keepsTiers(before, after *Oracle, v Verdict) bool {
	for _, s := range slices.Concat(v.Egress.Subjects, v.Ingress.Subjects) {
		for _, p := range slices.Concat(before.tiers.admin, before.tiers.baseline) {
			if p.subject.matches(before, before.pod(s.Pod)) && !p.subject.matches(after, after.pod(s.Pod)) {
				return false
			}
		}
	}
	return true
}

// policy returns a policy of administrators that is in force.
func (t tiers) policy(id api.PolicyID) *tierPolicy {
	for _, list := range [][]*tierPolicy{t.admin, t.baseline} {
		if i := slices.IndexFunc(list, func(p *tierPolicy) bool { return p.id == id }); i >= 0 {
			return list[i]
		}
	}
	return nil
}

// allow is the action that allows, as the kind of the policy calls it.
func (p *tierPolicy) allow() Action {
	if p.id.Kind == api.ClusterNetworkPolicy {
		return Accept
	}
	return Allow
}

// breadth is more than that of any NetworkPolicy, and less with every requirement.
func (p *tierPolicy) breadth() int {
	n := 100
	for _, s := range []labels.Selector{p.subject.namespaces, p.subject.pods} {
		requirements, _ := s.Requirements()
		n -= 2 * len(requirements)
	}
	return n
}

// withTier replaces a policy of administrators.
func (o *Oracle) withTier(p *tierPolicy) *Oracle {
	out := *o
	replace := func(list []*tierPolicy) []*tierPolicy {
		list = slices.Clone(list)
		if i := slices.IndexFunc(list, func(q *tierPolicy) bool { return q.id == p.id }); i >= 0 {
			list[i] = p
		}
		return list
	}
	out.tiers.admin, out.tiers.baseline = replace(o.tiers.admin), replace(o.tiers.baseline)
	return &out
}

// editTier returns a policy of administrators with the change of one of its rules.
func (c Change) editTier(p *tierPolicy, index int) *tierPolicy {
	rules := slices.Clone(p.rules(c.Direction))
	r := rules[index]
	switch c.Kind {
	case RemoveRules:
		rules = slices.Delete(rules, index, index+1)
	case AddRuleBefore:
		added := tierRule{action: c.Action}
		if c.Port != nil {
			added = added.with([]tierPeer{peerOf(c.Peer)}, []tierPort{portOf(c.Port)}, false)
		} else {
			added = added.with([]tierPeer{peerOf(c.Peer)}, nil, true)
		}
		rules = slices.Insert(rules, index, added)
	case AddPeer:
		rules[index] = r.with(append(slices.Clip(r.peers), peerOf(c.Peer)), r.ports, r.anyPort)
	case AddPort:
		rules[index] = r.with(r.peers, append(slices.Clip(r.ports), portOf(c.Port)), r.anyPort)
	case RemovePeers:
		rules[index] = r.with(without(r.peers, c.Terms), r.ports, r.anyPort)
	case RemovePorts:
		rules[index] = r.with(r.peers, without(r.ports, c.Terms), r.anyPort)
	default:
	}
	out := *p
	if c.Direction == api.Ingress {
		out.ingress = rules
	} else {
		out.egress = rules
	}
	return &out
}

// peerOf reads a peer of a change.
func peerOf(p *networkingv1.NetworkPolicyPeer) tierPeer {
	if p.IPBlock != nil {
		return newPeer(peerFields{networks: []string{p.IPBlock.CIDR}})
	}
	pods := p.PodSelector
	if pods == nil {
		pods = &metav1.LabelSelector{}
	}
	return newPeer(peerFields{pods: &podsIn{p.NamespaceSelector, pods}})
}

// portOf reads a port of a change.
func portOf(p *networkingv1.NetworkPolicyPort) tierPort {
	return portsBetween(*p.Protocol, p.Port.IntVal, p.Port.IntVal, 0)
}
