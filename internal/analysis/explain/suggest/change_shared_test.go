package suggest_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// TestChangesOfSharedExemptAddressRemoveRules has two pods with one
// address, both isolated: a rule allows the source, and for the second pod the source
// is its own node as well. The exemption is no rule that could be removed.
func TestChangesOfSharedExemptAddressRemoveRules(t *testing.T) {
	pod := func(name, host string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
			Status: corev1.PodStatus{Phase: corev1.PodRunning,
				PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIPs: []corev1.HostIP{{IP: host}}},
		}
	}
	allowAll := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "all"},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}},
	}
	o := oracle.New(oracle.State{
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
		Pods:       []*corev1.Pod{pod("first", "192.168.0.1"), pod("second", "192.168.0.2")},
		Policies:   []*networkingv1.NetworkPolicy{allowAll},
	})
	src, dst := netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("10.0.0.1")
	v := reason.Explain(o, oracle.AddrEndpoint(src), oracle.AddrEndpoint(dst), api.TCP, 80)
	if !v.Allowed || len(v.Ingress.Subjects) != 2 {
		t.Fatalf("the case is not the one that is meant:\n%s", v)
	}
	for _, c := range v.Changes {
		for _, g := range c.Origins {
			if c.Kind == suggest.RemoveRules && g.Rule < 0 {
				t.Errorf("%q is not a change that can be made", c.Text)
			}
		}
	}
	if len(v.Changes) == 0 {
		t.Error("no change is offered")
	}
}
