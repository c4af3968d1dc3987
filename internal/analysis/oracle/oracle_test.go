package oracle_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

func TestNewSkipsNilAndKeepsLastOfName(t *testing.T) {
	st := shop.Cluster()
	st.Policies = append(shop.Policies(t, `{metadata: {name: p}, spec: {podSelector: {}, policyTypes: [Ingress]}}`), nil)
	st.Policies = append(st.Policies, shop.Policies(t, `{metadata: {name: p}, spec: {podSelector: {matchLabels: {app: none}}}}`)...)
	st.Pods = append(st.Pods, nil)
	st.Namespaces = append([]*corev1.Namespace{nil}, st.Namespaces...)
	st.Nodes = append(st.Nodes, nil)
	o := oracle.New(st)
	q := shop.Ask(t, "shop/web > shop/db 1/tcp allow")
	if v := o.VerdictPods(q.Src, q.Dst, q.Protocol, q.Port); !v.Allowed {
		t.Errorf("the first of two policies of one name counted:\n%s", reason.Of(v))
	}
}

func benchmark(b *testing.B, ask func(*oracle.Oracle, api.Flow) bool) {
	st := cluster.Random(1, cluster.Large(1000, 100))
	o := oracle.New(st)
	flows := cluster.FlowSpace(st).Random(cluster.NewRand(1), 1000)
	b.ReportAllocs()
	i, allowed := 0, 0
	for b.Loop() {
		if ask(o, flows[i%len(flows)]) {
			allowed++
		}
		i++
	}
	b.ReportMetric(float64(allowed)/float64(i), "allowed/op")
}

func BenchmarkAllowed(b *testing.B) {
	benchmark(b, func(o *oracle.Oracle, f api.Flow) bool { return o.Allowed(f) })
}

func BenchmarkVerdict(b *testing.B) {
	benchmark(b, func(o *oracle.Oracle, f api.Flow) bool { return o.Verdict(f).Allowed })
}

func BenchmarkNew(b *testing.B) {
	st := cluster.Random(1, cluster.Large(10000, 1000))
	b.ReportAllocs()
	for b.Loop() {
		oracle.New(st)
	}
}
