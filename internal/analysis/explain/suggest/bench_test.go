package suggest_test

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// BenchmarkExplain asks one question of a new oracle, as an agent does, in a cluster
// of 10 000 pods and 5 000 policies: the whole verdict, and every change tried.
func BenchmarkExplain(b *testing.B) {
	s := cluster.Random(1, cluster.Large(10_000, 5_000))
	flows := cluster.FlowSpace(s).Random(cluster.NewRand(1), 100)
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			oracle.New(s)
		}
	})
	o := oracle.New(s)
	b.Run("explain", func(b *testing.B) {
		changes, policies, i := 0, 0, 0
		for b.Loop() {
			f := flows[i%len(flows)]
			v := reason.Explain(o, oracle.AddrEndpoint(f.Src), oracle.AddrEndpoint(f.Dst), f.Protocol, f.DstPort)
			changes, policies, i = changes+len(v.Changes), policies+len(v.Egress.Policies)+len(v.Ingress.Policies), i+1
		}
		b.ReportMetric(float64(changes)/float64(i), "changes/op")
		b.ReportMetric(float64(policies)/float64(i), "policies/op")
	})
}

// BenchmarkExplainOneNamespace is the worst case: every policy lives in the namespace
// of both ends, and a tenth of them select each.
func BenchmarkExplainOneNamespace(b *testing.B) {
	s := crowded(5_000)
	o := oracle.New(s)
	v := reason.Explain(o, oracle.PodEndpoint("shop", "web"), oracle.PodEndpoint("shop", "db"), api.TCP, 80)
	if v.Allowed || len(v.Changes) == 0 || len(v.Ingress.Policies) < 500 {
		b.Fatalf("the case is not the one that is meant: %d policies, %d changes", len(v.Ingress.Policies), len(v.Changes))
	}
	for b.Loop() {
		reason.Explain(o, oracle.PodEndpoint("shop", "web"), oracle.PodEndpoint("shop", "db"), api.TCP, 80)
	}
}

// crowded has n policies in one namespace, a tenth of which select every pod in both
// directions; each allows one port that the flow does not have.
func crowded(n int) oracle.State {
	s := shop.Cluster()
	for i := range n {
		np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("np-%d", i)}}
		if i%10 > 0 {
			np.Spec.PodSelector.MatchLabels = map[string]string{"app": "none"}
		}
		port := intstr.FromInt(1000 + i)
		ports := []networkingv1.NetworkPolicyPort{{Port: &port}}
		np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: ports}}
		np.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: ports}}
		s.Policies = append(s.Policies, np)
	}
	return s
}
