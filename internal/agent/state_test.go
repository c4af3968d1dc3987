package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	if got, want := s.counts(), "1 namespaces, 4 pods, 1 policies (pods of 2 nodes: node-1, node-2)"; got != want {
		t.Errorf("counts are %q, want %q", got, want)
	}
}

func TestTheMatrixHasPodsByApplicationAndTheBlocksThatPoliciesName(t *testing.T) {
	s := stateOf(t, demo+`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: blocks, namespace: demo}
spec:
  podSelector: {}
  egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.8/32]}}, {ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 0.0.0.0/0}}]}]
`)
	got := map[string]string{}
	for _, e := range s.endpoints() {
		got[e.Group] = e.Addrs[0].String()
	}
	want := map[string]string{
		"demo/server": "10.2.0.1", "demo/friend": "10.2.0.2", "demo/stranger": "10.2.0.3", "internet": "198.51.100.7",
		"203.0.113.0/24": "203.0.113.1", "203.0.113.8/32": "203.0.113.8", // 10.0.0.0/8 holds pods
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
