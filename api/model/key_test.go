package model_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

func TestKeyLayout(t *testing.T) {
	for _, tc := range []struct {
		id  model.ID
		key string
	}{
		{model.ID{Kind: model.KindPod, Namespace: "shop", Name: "web-0"}, "/sluice/k8s/pod/shop/web-0"},
		{model.ID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "web"}, "/sluice/k8s/networkpolicy/shop/web"},
		{model.ID{Kind: model.KindNamespace, Name: "shop"}, "/sluice/k8s/namespace/_/shop"},
		{model.ID{Kind: model.KindNode, Name: "n1.example.org"}, "/sluice/k8s/node/_/n1.example.org"},
		{model.ID{Kind: model.KindAdminNetworkPolicy, Name: "guard"}, "/sluice/k8s/adminnetworkpolicy/_/guard"},
		{model.ID{Kind: model.KindBaselineAdminNetworkPolicy, Name: "default"}, "/sluice/k8s/baselineadminnetworkpolicy/_/default"},
		{model.ID{Kind: model.KindClusterNetworkPolicy, Name: "guard"}, "/sluice/k8s/clusternetworkpolicy/_/guard"},
	} {
		if got := model.Key(model.DefaultPrefix, tc.id); got != tc.key {
			t.Errorf("key of %v is %q, want %q", tc.id, got, tc.key)
		}
		if got, err := model.ParseKey(model.DefaultPrefix, tc.key); err != nil || got != tc.id {
			t.Errorf("%q is parsed as %v, %v", tc.key, got, err)
		}
	}
}

func TestParseKeyRefusesOtherForms(t *testing.T) {
	for _, key := range []string{
		"", "/sluice", "/sluice/k8s/", "/other/k8s/pod/a/b", "/sluice/k8s/pod/a", "/sluice/k8s/pod/a/b/c", "/sluice/k8s/pod//b",
		"/sluice/k8s/pod/a/", "/sluice/k8s/pod/_/b", "/sluice/k8s/namespace/shop/shop", "/sluice/k8s/configmap/a/b",
		"/sluice/k8s/node/shop/n1", "/sluice/k8s/adminnetworkpolicy/shop/guard", "/sluice/k8s/clusterpolicy/_/guard", "/sluice/k8s/node/_/" + strings.Repeat("n", model.MaxName+1),
	} {
		if id, err := model.ParseKey(model.DefaultPrefix, key); err == nil {
			t.Errorf("%q is parsed as %v", key, id)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("/sluice/k8s/pod/shop/web-0")
	f.Add("/sluice/k8s/namespace/_/shop")
	f.Add("/sluice/k8s/baselineadminnetworkpolicy/_/default")
	f.Fuzz(func(t *testing.T, key string) {
		id, err := model.ParseKey(model.DefaultPrefix, key)
		if err == nil && model.Key(model.DefaultPrefix, id) != key {
			t.Errorf("%q is parsed as %v, which has another key", key, id)
		}
	})
}

func TestDecodeChecksObjectOfKey(t *testing.T) {
	pod := &model.Pod{Namespace: "shop", Name: "web-0", Ips: []string{"10.0.0.1"}}
	id, err := model.IDOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	b, err := model.Encode(pod)
	if err != nil {
		t.Fatal(err)
	}
	got, err := model.Decode(id, b)
	if err != nil || !proto.Equal(got, pod) {
		t.Errorf("decoded %v, %v", got, err)
	}
	id.Name = "web-1"
	if m, err := model.Decode(id, b); err == nil {
		t.Errorf("the value of another pod is accepted: %v", m)
	}
	if m, err := model.Decode(id, []byte{0xff}); err == nil {
		t.Errorf("garbage is accepted: %v", m)
	}
	for _, kind := range model.Kinds {
		if kind.New() == nil || kind.String() == string(kind) {
			t.Errorf("kind %q is not complete", string(kind))
		}
	}
}

// TestDecodeDistinguishesClusterScopedPolicies: three kinds share one message, and
// a value under the key of another kind is not theirs.
func TestDecodeDistinguishesClusterScopedPolicies(t *testing.T) {
	kinds := []model.Kind{model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy}
	for said := range model.ClusterPolicy_Kind_name {
		all := &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}, Pods: &model.LabelSelector{}}
		policy := &model.ClusterPolicy{Kind: model.ClusterPolicy_Kind(said), Name: "guard", Tier: model.ClusterPolicy_TIER_ADMIN, Subject: all}
		b, err := model.Encode(policy)
		if err != nil {
			t.Fatal(err)
		}
		id, idErr := model.IDOf(policy)
		if known := policy.Kind != model.ClusterPolicy_KIND_UNSPECIFIED; (idErr == nil) != known || id.Kind.IsClusterPolicy() != known {
			t.Errorf("%v is of %v, %v", policy, id, idErr)
		}
		for _, kind := range kinds {
			got, err := model.Decode(model.ID{Kind: kind, Name: "guard"}, b)
			if is := idErr == nil && id.Kind == kind; (err == nil) != is || is && !proto.Equal(got, policy) {
				t.Errorf("%v under the key of %s is %v, %v", policy, kind, got, err)
			}
		}
	}
}

// TestDecodeRefusesPoliciesOfTooManyRules: 700 000 rules fit into a value, but every list that has
// them has their origins.
func TestDecodeRefusesPoliciesOfTooManyRules(t *testing.T) {
	const MaxRules = 100_000
	for rules, refused := range map[int]bool{MaxRules: false, MaxRules + 1: true, 700_000: true} {
		half := rules / 2
		policy := &model.NetworkPolicy{Namespace: "shop", Name: "p", Ingress: make([]*model.NetworkPolicy_Rule, half), Egress: make([]*model.NetworkPolicy_Rule, rules-half)}
		cluster := &model.ClusterPolicy{Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Name: "p", Ingress: make([]*model.ClusterPolicy_Rule, rules)}
		for i := range policy.Ingress {
			policy.Ingress[i] = &model.NetworkPolicy_Rule{}
		}
		for i := range policy.Egress {
			policy.Egress[i] = &model.NetworkPolicy_Rule{}
		}
		for i := range cluster.Ingress {
			cluster.Ingress[i] = &model.ClusterPolicy_Rule{}
		}
		for _, m := range []proto.Message{policy, cluster} {
			id, err := model.IDOf(m)
			if err != nil {
				t.Fatal(err)
			}
			value, err := model.Encode(m)
			if err != nil || len(value) > model.MaxValue {
				t.Fatalf("%d bytes, %v", len(value), err)
			}
			_, err = model.Decode(id, value)
			if (err != nil) != refused || err != nil && (!strings.Contains(err.Error(), id.String()) || !strings.Contains(err.Error(), "the limit is 100000")) {
				t.Errorf("%d rules of %s: %v", rules, id, err)
			}
		}
	}
}
