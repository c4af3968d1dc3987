package ksr

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	load, err := LoadFiles([]string{Stdin}, strings.NewReader("{apiVersion: apps/v1, kind: Deployment, metadata: {name: foo}}\n---\n{apiVersion: v1, kind: SecretList, items: []}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: \"a\\nb\"}}\n"))
	if diff := cmp.Diff([]string{"deployment.apps/foo", "secretlist", `"secret/a\nb"`}, load.Skipped); diff != "" || err != nil {
		t.Errorf("%v, skipped (-want +got):\n%s", err, diff)
	}
}
