package differential

import (
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/harness"
	"github.com/sluice-net/sluice/tests/harness/backends"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// closed isolates web in both directions and allows nothing.
func closed() cluster.State {
	s := pair(80)
	s.Policies[0].Spec.Ingress = nil
	s.Policies[0].Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	return s
}

// TestPlayPodReachesItself is decision D1: policies never restrict traffic of a pod
// to itself, and this traffic never gets to the vswitch.
func TestPlayPodReachesItself(t *testing.T) {
	s := closed()
	f, o := fabricOf(t, s), oracle.New(s)
	for _, text := range []string{"10.1.0.1", "fd00::1"} {
		for _, protocol := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP, api.ICMPv6} {
			if (protocol == api.ICMP) != addr(text).Is4() && !protocol.HasPorts() {
				continue
			}
			self := api.Flow{Src: addr(text), Dst: addr(text), Protocol: protocol}
			if protocol.HasPorts() {
				self.SrcPort, self.DstPort = sourcePort, 80
			}
			if w := f.Ask(self); w.Verdict != api.Permit || len(w.Visits) != 0 || !o.Allowed(self) {
				t.Errorf("%s: %s after %d nodes, the oracle says %t", self, w, len(w.Visits), o.Allowed(self))
			}
		}
	}
	other := api.Flow{Src: addr("10.1.0.2"), Dst: addr("10.1.0.1"), Protocol: api.TCP, SrcPort: sourcePort, DstPort: 80}
	if w := f.Ask(other); w.Verdict != api.Deny || len(w.Visits) == 0 {
		t.Errorf("%s: %s", other, w)
	}
}

// TestPlayChangesBeforeFirstResync sends changes before the first resync: the renderers
// discard them, including the sets that the configurator derives, so that the resync must repeat
// them.
func TestPlayChangesBeforeFirstResync(t *testing.T) {
	s := pair(80)
	everyPod := v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: &metav1.LabelSelector{}}
	callers := everyPod
	callers.Namespaces, callers.Pods = nil, &v1alpha2.NamespacedPod{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}}
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	p.Spec.Tier, p.Spec.Subject.Namespaces = v1alpha2.AdminTier, &metav1.LabelSelector{}
	p.Spec.Ingress = []v1alpha2.ClusterNetworkPolicyIngressRule{
		{Action: v1alpha2.ClusterNetworkPolicyRuleActionPass, From: []v1alpha2.ClusterNetworkPolicyIngressPeer{callers}},
		{Action: v1alpha2.ClusterNetworkPolicyRuleActionDeny, From: []v1alpha2.ClusterNetworkPolicyIngressPeer{everyPod}},
	}
	s.ClusterPolicies = append(s.ClusterPolicies, p)
	objects := mustReflect(t, s)
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		f, err := harness.New(kind, harness.NamesOf(s.Nodes), harness.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closing(t, f.Close) })
		for _, c := range []model.Changes{{Deltas: objects.All(0)}, {Resync: true, Deltas: objects.All(1)}} {
			if err := f.Apply(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		all := slices.Collect(flowsOf(s, 1<<20, 0))
		if err := f.Check(t.Context(), harness.State{Expected: f.Expect(s), Objects: objects, Flows: all}); err != nil {
			t.Error(err)
		}
	})
}
