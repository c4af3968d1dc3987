package agent

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr"
)

// stateOf returns the state that manifests describe.
func stateOf(t testing.TB, manifests string) (s clusterState) {
	t.Helper()
	load, err := ksr.LoadFiles([]string{ksr.Stdin}, strings.NewReader(manifests))
	if err != nil || len(load.Problems) > 0 {
		t.Fatal(err, load.Problems)
	}
	var entries []model.Entry
	for _, o := range load.Objects {
		m, _ := ksr.Convert(o)
		value, err := model.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, model.Entry{Key: model.Key("/x", o.ID()), Value: value})
	}
	entries = append(entries, model.Entry{Key: "/x/k8s/pod/demo/torn", Value: []byte{0xff}}, model.Entry{Key: "/x/k8s/odd"})
	return decodeState("/x", entries)
}

func TestWhatCannotBeDecodedIsLeftOut(t *testing.T) {
	s := stateOf(t, demo)
	if len(s.Namespaces) != 1 || len(s.Pods) != 4 || len(s.Policies) != 1 {
		t.Errorf("%d namespaces, %d pods, %d policies, want 1, 4 and 1", len(s.Namespaces), len(s.Pods), len(s.Policies))
	}
	if got, want := s.counts(), "1 namespace, 4 pods, 1 policy (pods of 2 nodes: node-1, node-2)"; got != want {
		t.Errorf("counts are %q, want %q", got, want)
	}
}
