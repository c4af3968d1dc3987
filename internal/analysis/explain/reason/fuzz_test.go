package reason_test

import (
	"encoding/json"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// FuzzPolicy evaluates whatever parses as a policy. Nothing in it may panic, and
// the parts of the verdict must agree.
func FuzzPolicy(f *testing.F) {
	for seed := range uint64(20) {
		for _, np := range cluster.Random(seed, cluster.Small()).Policies {
			np.Namespace = "shop"
			text, err := json.Marshal(np)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte(`{"metadata":{"namespace":"shop"},"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"::ffff:1.2.3.4/0","except":["::/-1"]}}],"ports":[{"port":-1,"endPort":-2}]}]}}`))
	st := shop.Cluster()
	questions := cluster.FlowSpace(st).Random(cluster.NewRand(1), 30)
	f.Fuzz(func(t *testing.T, text []byte) {
		np := &networkingv1.NetworkPolicy{}
		if json.Unmarshal(text, np) != nil {
			return
		}
		with := st
		with.Policies = []*networkingv1.NetworkPolicy{np}
		o := oracle.New(with)
		for _, q := range questions {
			v := reason.Explain(o, oracle.AddrEndpoint(q.Src), oracle.AddrEndpoint(q.Dst), q.Protocol, q.DstPort)
			if v.Allowed != o.Allowed(q) || v.String() == "" {
				t.Errorf("%s: the parts disagree", q)
			}
		}
	})
}

// FuzzTiers evaluates everything that parses as admin policies.
func FuzzTiers(f *testing.F) {
	cfg := cluster.Small()
	cfg.Admin = 6
	for seed := range uint64(20) {
		s := cluster.Random(seed, cfg)
		for _, o := range cluster.AdminPolicies(s) {
			text, err := json.Marshal(o)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte(`{"metadata":{"name":"default"},"spec":{"tier":"Admin","subject":{"namespaces":{}},"egress":[{"action":"Pass","to":[{"networks":["::ffff:1.2.3.4/0","::/-1"]},{}],"ports":[],"protocols":[{}]}]}}`))
	st := shop.Cluster()
	questions := cluster.FlowSpace(st).Random(cluster.NewRand(1), 20)
	f.Fuzz(func(t *testing.T, text []byte) {
		with := st
		var admin v1alpha1.AdminNetworkPolicy
		if json.Unmarshal(text, &admin) == nil {
			with.AdminPolicies = append(with.AdminPolicies, &admin)
		}
		var baseline v1alpha1.BaselineAdminNetworkPolicy
		if json.Unmarshal(text, &baseline) == nil {
			with.BaselinePolicies = append(with.BaselinePolicies, &baseline)
		}
		var cnp v1alpha2.ClusterNetworkPolicy
		if json.Unmarshal(text, &cnp) == nil {
			with.ClusterPolicies = append(with.ClusterPolicies, &cnp)
		}
		o := oracle.New(with)
		for _, q := range questions {
			v := reason.Explain(o, oracle.AddrEndpoint(q.Src), oracle.AddrEndpoint(q.Dst), q.Protocol, q.DstPort)
			if v.Allowed != o.Allowed(q) || v.String() == "" {
				t.Errorf("%s: the parts disagree", q)
			}
		}
	})
}
