package faults

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

var addressFaults = []Fault{
	misread("except is ignored", "30", peers(func(p *networkingv1.NetworkPolicyPeer) {
		if p.IPBlock != nil {
			p.IPBlock.Except = nil
		}
	})),
	wrongAnswer("except denies, also what another rule or policy allows", "31", exceptDenies),
	{Name: "ipBlock does not match pods", Rows: "32", begin: func() judgement { return blocksMissPods }},
	misread("0.0.0.0/0 matches IPv6 as well, and ::/0 IPv4", "33", rules(func(r networkingv1.NetworkPolicyIngressRule) []networkingv1.NetworkPolicyIngressRule {
		for _, p := range slices.Clone(r.From) {
			if p.IPBlock != nil && (p.IPBlock.CIDR == "0.0.0.0/0" || p.IPBlock.CIDR == "::/0") {
				r.From = append(r.From, block("0.0.0.0/0"), block("::/0"))
			}
		}
		return []networkingv1.NetworkPolicyIngressRule{r}
	})),
	misread("a block with host bits set matches nothing", "34", peers(func(p *networkingv1.NetworkPolicyPeer) {
		if p.IPBlock == nil {
			return
		}
		if cidr, err := netip.ParsePrefix(p.IPBlock.CIDR); err == nil && cidr != cidr.Masked() {
			p.IPBlock = nil // a peer without a field matches nothing
		}
	})),
	wrongAnswer("IPv6 is not filtered", "33, 46", func(o *oracle.Oracle, _ cluster.State, f api.Flow) bool {
		return f.Dst.Is6() || o.Allowed(f)
	}),
	misread("only the first address of a pod is known", "46", pods(func(p *corev1.Pod) {
		p.Status.PodIPs = p.Status.PodIPs[:min(1, len(p.Status.PodIPs))]
	})),
}

func block(cidr string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}
}

// blocksMissPods asks an oracle without blocks about flows between two pods.
func blocksMissPods(s cluster.State) decision {
	right := oracle.New(s)
	without := oracle.New(edited(s, []edit{peers(func(p *networkingv1.NetworkPolicyPeer) { p.IPBlock = nil })}))
	return func(f api.Flow) bool {
		if len(right.PodsAt(f.Src)) > 0 && len(right.PodsAt(f.Dst)) > 0 {
			return without.Allowed(f)
		}
		return right.Allowed(f)
	}
}

// exceptDenies is right but for the excepts of rules whose ports match: these deny.
func exceptDenies(o *oracle.Oracle, s cluster.State, f api.Flow) bool {
	if !slices.ContainsFunc(s.Policies, hasExcept) {
		return o.Allowed(f)
	}
	v := o.Verdict(f)
	return v.Allowed && !excepted(s, v.Egress, f.Dst) && !excepted(s, v.Ingress, f.Src)
}

func hasExcept(np *networkingv1.NetworkPolicy) bool {
	return slices.ContainsFunc(allPeers(np), func(p networkingv1.NetworkPolicyPeer) bool {
		return p.IPBlock != nil && len(p.IPBlock.Except) > 0
	})
}

func allPeers(np *networkingv1.NetworkPolicy) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for _, r := range np.Spec.Ingress {
		out = append(out, r.From...)
	}
	for _, r := range np.Spec.Egress {
		out = append(out, r.To...)
	}
	return out
}

// excepted reports whether some rule that took part in a verdict excepts the address.
func excepted(s cluster.State, v oracle.DirectionVerdict, remote netip.Addr) bool {
	exempt := func(r oracle.SubjectResult) bool { return r.Exempt != oracle.NotExempt }
	if slices.ContainsFunc(v.Subjects, exempt) {
		return false
	}
	for _, pe := range v.Policies {
		i := slices.IndexFunc(s.Policies, func(np *networkingv1.NetworkPolicy) bool {
			return np.Namespace == pe.Policy.Namespace && np.Name == pe.Policy.Name
		})
		for _, re := range pe.Rules {
			if re.PortMatched && slices.ContainsFunc(peersAt(s.Policies[i], v.Direction, re.Index), holeAt(remote)) {
				return true
			}
		}
	}
	return false
}

func peersAt(np *networkingv1.NetworkPolicy, d api.Direction, rule int) []networkingv1.NetworkPolicyPeer {
	if d == api.Ingress {
		return np.Spec.Ingress[rule].From
	}
	return np.Spec.Egress[rule].To
}

// holeAt returns whether a peer is a block that excepts the address.
func holeAt(a netip.Addr) func(networkingv1.NetworkPolicyPeer) bool {
	return func(p networkingv1.NetworkPolicyPeer) bool {
		return p.IPBlock != nil && slices.ContainsFunc(p.IPBlock.Except, func(text string) bool {
			hole, err := netip.ParsePrefix(text)
			return err == nil && hole.Contains(a)
		})
	}
}
