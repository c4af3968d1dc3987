package agent

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
)

// stateOf returns the state that manifests describe.
func stateOf(t testing.TB, text string) (s cluster.State) {
	t.Helper()
	load, err := manifests.LoadFiles([]string{manifests.Stdin}, strings.NewReader(text))
	if err != nil || len(load.Problems) > 0 {
		t.Fatal(err, load.Problems)
	}
	var entries []model.Entry
	for _, o := range load.Objects {
		m, _ := convert.ToModel(o)
		value, err := model.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, model.Entry{Key: model.Key("/x", o.ID()), Value: value})
	}
	entries = append(entries, model.Entry{Key: "/x/k8s/pod/demo/torn", Value: []byte{0xff}}, model.Entry{Key: "/x/k8s/odd"})
	return cluster.Decode("/x", entries)
}

func TestAPIExplainLeavesOutUndecodableObjects(t *testing.T) {
	s := stateOf(t, demo)
	if len(s.Namespaces) != 1 || len(s.Pods) != 4 || len(s.Policies) != 1 {
		t.Errorf("%d namespaces, %d pods, %d policies, want 1, 4 and 1", len(s.Namespaces), len(s.Pods), len(s.Policies))
	}
	if got, want := s.Counts(), "1 namespace, 4 pods, 1 policy (pods of 2 nodes: node-1, node-2)"; got != want {
		t.Errorf("counts are %q, want %q", got, want)
	}
}

// TestExplainShowsEnforcedState: where the store holds nonsense for an object, the last good value
// is in force, and explained; nothing disagrees, and the status names the key.
func TestExplainShowsEnforcedState(t *testing.T) {
	a := running(t, nil)
	key := model.Key(a.cfg.Store.Prefix, model.ID{Kind: model.KindNetworkPolicy, Namespace: "demo", Name: "server"})
	if err := a.store.Write(t.Context(), []model.Entry{{Key: key, Value: []byte{0xff, 0xff}}}, nil); err != nil {
		t.Fatal(err)
	}
	a.eventually(t, "a problem", func() bool { return a.watcher.Status().Problems == 1 })
	for src, want := range map[string]bool{"demo/friend": true, "demo/stranger": false} {
		e := get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom(src, "demo/server", "http"))[0]
		if e.Allowed != want || e.Renderers[0].Allowed != want || !e.Renderers[0].Agrees {
			t.Errorf("from %s: explained as %t, by tables as %t, want %t", src, e.Allowed, e.Renderers[0].Allowed, want)
		}
	}
	if m := get[view.Matrix](t, a, "GET", "/v1/matrix", ""); m.Differ != 0 {
		t.Errorf("%d packets differ", m.Differ)
	}
}
