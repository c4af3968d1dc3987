package xdp

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// TestTablesNameThePoliciesOfAllPods has two pods of different policies with equal rules.
func TestTablesNameThePoliciesOfAllPods(t *testing.T) {
	v := view{endpoints: newEndpoints()}
	var want []api.Origin
	for i, name := range []string{"one", "two"} {
		o := api.Origin{Policy: api.PolicyID{Kind: api.NetworkPolicy, Namespace: name, Name: "deny"}, Rule: api.IsolationRule}
		id := uint32(i + 1)
		v.lists[id] = compile.Endpoint{ID: id, ToPod: renderer.NewRuleList([]api.ContivRule{{}}, [][]api.Origin{{o}})}
		v.owner[id] = api.PodID{Namespace: name, Name: "web"}
		want = append(want, o)
	}
	tables := v.tables(func(side, *renderer.RuleList) []uint64 { return nil })
	if len(tables) != 1 || len(tables[0].Pods) != 2 {
		t.Fatalf("got %+v, want one table of two pods", tables)
	}
	if d := cmp.Diff([][]api.Origin{want}, tables[0].Origins); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
