package bench

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// The limits of OVN-Kubernetes for administrators' policies, which are the least that
// we hold: policies on a node, rules of each direction in one, peers of a rule.
const (
	limitPolicies = 100
	limitRules    = 100
	limitPeers    = 100
)

// limits is a cluster in which every policy has as many rules and peers as that.
func limits() world {
	w := world{}
	for i := range limitPeers {
		w.apply(putting(namespace(namespaceOf(i), "team", fmt.Sprintf("t%d", i))))
		for j := range 10 {
			node := 1 + i
			if j == 0 && i < 10 {
				node = 0
			}
			w.apply(putting(pod(namespaceOf(i), fmt.Sprintf("pod-%d", j), node, podIP(node, 1+i+100*j))))
		}
	}
	for i := range limitPolicies {
		w.apply(putting(limitPolicy(i)))
	}
	return w
}

// limitPolicy has rules of all three actions; each names every namespace by a label of
// its own and one port.
func limitPolicy(i int) *v1alpha1.AdminNetworkPolicy {
	actions := []v1alpha1.AdminNetworkPolicyRuleAction{"Allow", "Deny", "Pass"}
	p := &v1alpha1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("anp-%03d", i)}}
	p.Spec.Priority = int32(i)
	p.Spec.Subject.Namespaces = &metav1.LabelSelector{}
	for r := range limitRules {
		ports := &[]v1alpha1.AdminNetworkPolicyPort{{PortNumber: &v1alpha1.Port{Protocol: "TCP", Port: int32(1000 + r*limitPolicies + i)}}}
		in := v1alpha1.AdminNetworkPolicyIngressRule{Action: actions[(i+r)%3], Ports: ports}
		out := v1alpha1.AdminNetworkPolicyEgressRule{Action: actions[(i+r)%3], Ports: ports}
		for n := range limitPeers {
			team := matchLabels("team", fmt.Sprintf("t%d", n))
			in.From = append(in.From, v1alpha1.AdminNetworkPolicyIngressPeer{Namespaces: team})
			out.To = append(out.To, v1alpha1.AdminNetworkPolicyEgressPeer{Namespaces: team})
		}
		p.Spec.Ingress, p.Spec.Egress = append(p.Spec.Ingress, in), append(p.Spec.Egress, out)
	}
	return p
}

// BenchmarkAdminLimits measures the first state of one node with policies of that size:
// a million peers in each direction.
func BenchmarkAdminLimits(b *testing.B) {
	w := limits()
	in := w.resync(b)
	before := liveHeap()
	x := firstStates(b, recorder, node0, in)
	b.ReportMetric(liveHeap()-before, "MiB-above-input")
	runtime.KeepAlive(in)
	x.reportSize(b)
	x.checkFlows(b, w, 10)
	x.close()
}
