package kinds

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api/model"
)

func TestReferencesAreThoseOfKubectl(t *testing.T) {
	for want, id := range map[string]model.ID{
		"pod/web":                             {Kind: model.KindPod, Namespace: "shop", Name: "web"},
		"networkpolicy.networking.k8s.io/web": {Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "web"},
		"clusternetworkpolicy.policy.networking.k8s.io/web": {Kind: model.KindClusterNetworkPolicy, Name: "web"},
	} {
		if got := Reference(id); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestIDOfOtherTypesIsEmpty(t *testing.T) {
	for _, obj := range []any{nil, "text", (*corev1.Pod)(nil), (*corev1.Namespace)(nil), (*networkingv1.NetworkPolicy)(nil), corev1.Pod{}} {
		if id := (Object{Object: obj}).ID(); id.Kind != "" || id.Name != "" {
			t.Errorf("%T has the ID %v", obj, id)
		}
	}
}
